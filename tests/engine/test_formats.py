"""Replies that are values: JSON Schemas, pydantic models, choices."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import threading
import time

import pytest
from pydantic import BaseModel, Field, field_validator

from op_jupyter import Runtime, agent, agentic_function, decision, llm, session_scope
from op_jupyter.core.recording import Folders
from op_jupyter.engine.formats import Misfit, json_text
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.errors import ReplyInvalid, TurnFailed, UsageError
from op_jupyter.providers.recorded import RecordedProvider
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import assert_sendable, assert_sound

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADA = '{"name": "Ada", "age": 36}'


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


def asked(*texts: str) -> tuple[Runtime, ScriptedProvider]:
    provider = ScriptedProvider(*(reply(text) for text in texts))
    return Runtime(provider=provider, max_retries=0), provider


def last_text(provider: ScriptedProvider) -> str:
    return provider.requests[-1].messages[-1].text


def test_a_schema_gives_the_value_and_reaches_the_provider():
    runtime, provider = asked(ADA)

    assert runtime.exec("Who?", response_format=PERSON) == {"name": "Ada", "age": 36}
    assert provider.requests[0].response_schema == PERSON


def test_a_pydantic_model_gives_an_instance_of_it():
    runtime, provider = asked(ADA)

    person = runtime.exec("Who?", response_format=Person)

    assert person == Person(name="Ada", age=36)
    assert set(provider.requests[0].response_schema["properties"]) == {"name", "age"}


def test_other_types_that_pydantic_knows_work_as_well():
    @dataclasses.dataclass
    class Point:
        x: int

    assert asked('{"x": 2}')[0].exec("?", response_format=Point) == Point(2)
    assert asked("[1, 2]")[0].exec("?", response_format=list[int]) == [1, 2]


@pytest.mark.parametrize("text", [f"```json\n{ADA}\n```", f"Here it is:\n```\n{ADA}\n```\n"])
def test_json_may_stand_in_a_code_fence(text):
    assert asked(text)[0].exec("Who?", response_format=Person).age == 36


def test_a_reply_that_does_not_fit_is_repaired_once():
    runtime, provider = asked('{"name": "Ada", "age": "old"}', ADA)

    assert runtime.exec("Who?", response_format=PERSON)["age"] == 36
    first, answer, repair = provider.requests[1].messages
    assert (first.text, answer.text) == ("Who?", '{"name": "Ada", "age": "old"}')
    assert 'age: "old" is not of type "integer"' in repair.text
    assert_sendable(provider.requests[1])


def test_a_second_misfit_is_an_error_with_the_reply_in_an_attribute_alone():
    secret = "the patient is called Bob"
    runtime, _ = asked("no idea", json.dumps({"name": secret, "age": secret}))

    with pytest.raises(ReplyInvalid) as caught:
        runtime.exec("Who?", response_format=Person)

    assert secret in caught.value.raw
    assert secret not in str(caught.value)
    assert "age" in str(caught.value)


def test_a_validators_own_words_stay_out_of_the_message():
    class Picky(BaseModel):
        word: str

        @field_validator("word")
        @classmethod
        def refuse(cls, word: str) -> str:
            raise ValueError(f"{word} is a bad word")

    runtime, provider = asked('{"word": "zounds"}', '{"word": "zounds"}')

    with pytest.raises(ReplyInvalid) as caught:
        runtime.exec("?", response_format=Picky)

    assert "zounds" not in str(caught.value)
    assert "zounds is a bad word" in last_text(provider)


@pytest.mark.parametrize(
    "wanted",
    [
        "json",
        42,
        {"type": "objekt"},
        {"type": {1, 2}},
        {"const": float("nan")},
        lambda: None,
        threading.Lock,
    ],
)
def test_a_format_that_cannot_be_used_is_refused_before_anything_is_sent(wanted):
    runtime, provider = asked(ADA)

    with pytest.raises(UsageError):
        runtime.exec("Who?", response_format=wanted)

    assert provider.requests == []


@pytest.mark.parametrize("ref", ["#/$defs/missing", "http://127.0.0.1:9/schema.json"])
def test_a_schema_that_points_out_of_itself_is_refused_and_nothing_is_fetched(ref):
    runtime, _ = asked("{}")

    with pytest.raises(UsageError, match="hold everything"):
        runtime.exec("Who?", response_format={"$ref": ref})


def test_a_reply_made_to_be_slow_to_read_is_read_at_once():
    started = time.monotonic()
    for text in ("```\n" + " " * 200_000, "```\n" * 50_000, "`" * 200_000):
        with pytest.raises(Misfit):
            json_text(text)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("text", ["NaN", "[" * 100_000, "9" * 5000, "", '{"a": 1', "\ud800"])
def test_what_is_no_json_is_told_and_never_breaks_anything(text):
    runtime, _ = asked(text, "[1]")

    assert runtime.exec("?", response_format={"type": "array"}) == [1]


def test_a_function_keeps_the_repair_in_its_own_frame():
    runtime, provider = asked("first", "?", ADA, "last")

    @agentic_function
    def who() -> Person:
        """Say who it is."""
        llm("look")
        person = llm("Who?", response_format=Person)
        llm("thanks")
        return person

    with session_scope(MemoryStore(), "s1") as handle:
        assert agentic_with(runtime, who).name == "Ada"
        assert_sound(handle.agent)
        said = [m.text for m in provider.requests[-1].messages]
        assert sum("Say who it is." in text for text in said) == 1
        assert said[-1] == "thanks"
        assert said[-2] == ADA


def agentic_with(runtime, function, *args):
    @agentic_function(expose="hidden")
    def outer(runtime: Runtime):
        return function(*args)

    return outer(runtime=runtime)


def test_the_prompt_renders_again_with_its_format():
    runtime, _ = asked("?", ADA)
    with session_scope(MemoryStore(), "s1") as handle:
        runtime.exec("Who?", response_format=PERSON)
        session = handle.agent

        assert_sound(session)
        node = next(n for n in session.dag if n.role == "llm")
        request, proven = request_of(session.dag, node.id, session.store.read_blob)
        assert proven and request.response_schema == PERSON
        assert "format of the answer" in prompt_text(request)


def test_an_agent_uses_its_tools_and_then_answers_in_the_format():
    def lookup(name: str) -> int:
        """The age of a person."""
        return 36

    provider = ScriptedProvider(
        reply(call("lookup", {"name": "Ada"})), reply("It is 36."), reply(ADA)
    )
    runtime = Runtime(provider=provider, max_retries=0)

    person = runtime.exec("Who?", tools=[lookup], max_steps=2, response_format=Person)

    assert person.age == 36
    assert len(provider.requests) == 3
    assert [t.name for t in provider.requests[2].tools] == ["lookup"]


def test_a_repair_that_only_calls_tools_ends_by_the_limit():
    provider = ScriptedProvider(reply("?"), reply(call("lookup", {})))

    def lookup() -> int:
        """Look."""
        return 1

    with pytest.raises(TurnFailed) as caught:
        Runtime(provider=provider).exec("Who?", tools=[lookup], response_format=Person)
    assert caught.value.code == "max_model_calls"


def test_streaming_shows_the_deltas_of_every_attempt():
    runtime, _ = asked("no", ADA)
    seen = []

    runtime.exec("Who?", response_format=Person, on_stream=seen.append)

    assert "".join(delta.text for delta in seen) == "no" + ADA


def test_the_async_twins_give_the_same():
    runtime, _ = asked(ADA, ADA, "no", ADA)

    async def all_three():
        one = await runtime.async_exec("Who?", response_format=Person)
        two = await agentic_async(runtime, lambda: llm.aio("Who?", response_format=Person))
        three = await agentic_async(
            runtime, lambda: agent.aio("Who?", tools=[], response_format=PERSON)
        )
        return one, two, three

    one, two, three = asyncio.run(all_three())
    assert one == two == Person(**three)


async def agentic_async(runtime, make):
    @agentic_function(expose="hidden")
    async def outer(runtime: Runtime):
        return await make()

    return await outer(runtime=runtime)


def test_a_function_that_takes_the_format_gets_it_and_another_reads_it():
    seen = []

    def knows(content, response_format=None):
        seen.append(response_format)
        return ADA

    def reads(content):
        seen.append(content[-1]["text"])
        return ADA

    for function in (knows, reads):
        assert Runtime(call=function).exec("Who?", response_format=PERSON)["name"] == "Ada"
    assert seen[0] == PERSON
    assert json.loads(seen[1].partition("JSON Schema:\n")[2]) == PERSON


def test_a_recorded_repair_plays_again_without_the_provider(tmp_path):
    folders = Folders.of(workspace=tmp_path, home=tmp_path / "home")

    def play(mode, provider):
        cassette = FileCassette(tmp_path / "a.cassette")
        recorded = RecordedProvider(lambda: provider, cassette, mode, folders=folders)
        return Runtime(provider=recorded).exec("Who?", response_format=Person)

    first = play("record", asked("no", ADA)[1])

    assert play("replay", None) == first == Person(name="Ada", age=36)


# -- choices


def test_choices_give_the_value_of_the_name_that_was_chosen():
    runtime, provider = asked('{"choice": "up"}')

    assert runtime.exec("Which way?", choices={"up": 1, "down": -1}) == 1
    assert "- up\n- down" in last_text(provider)
    assert provider.requests[0].response_schema["properties"]["choice"]["enum"] == ["up", "down"]


@pytest.mark.parametrize("said", ["up", '"up"', "up.", "`up`", '```json\n{"choice": "up"}\n```'])
def test_a_bare_name_is_a_choice_too(said):
    assert asked(said)[0].exec("Which way?", choices={"up": 1, "down": -1}) == 1


def test_a_choice_that_there_is_not_is_repaired_once_then_an_error():
    runtime, provider = asked("left", '{"choice": "right"}')

    with pytest.raises(ReplyInvalid, match='none of "up", "down"') as caught:
        runtime.exec("Which way?", choices={"up": 1, "down": -1})

    assert caught.value.raw == '{"choice": "right"}'
    assert "right" not in str(caught.value)
    assert len(provider.requests) == 2


def test_a_chosen_function_runs_in_the_callers_thread_and_gives_its_result():
    runtime, provider = asked("go")

    def go():
        """Go on with it.

        This part is for people.
        """
        return threading.current_thread()

    assert runtime.exec("?", choices={"go": go, "stop": None}) is threading.current_thread()
    assert "- go: Go on with it.\n- stop" in last_text(provider)


def test_only_a_functions_own_words_are_shown_to_the_model():
    runtime, provider = asked("a")
    options = {"a": functools.partial(int, "7"), "b": int, "c": "text", "d": lambda: 1}

    assert runtime.exec("?", choices=options) == 7
    lines = last_text(provider).splitlines()
    assert {"- a", "- c", "- d"} <= set(lines)


def test_a_chosen_function_may_ask_the_model_itself():
    runtime, _ = asked("deeper", "here")

    @agentic_function
    def deeper():
        """Look deeper."""
        return llm("where?")

    @agentic_function
    async def deeper_async():
        """Look deeper."""
        return await llm.aio("where?")

    assert agentic_with(runtime, lambda: llm("?", choices={"deeper": deeper})) == "here"
    runtime, _ = asked("deeper", "here")
    assert agentic_with(runtime, lambda: llm("?", choices={"deeper": deeper_async})) == "here"


def test_a_chosen_function_works_from_async_code_on_either_loop():
    def plain():
        """Ask again."""
        return str(llm("where?"))

    @agentic_function(expose="hidden")
    async def outer(runtime: Runtime):
        return await llm.aio("?", choices={"deeper": plain})

    runtime, _ = asked("deeper", "here")
    assert asyncio.run(outer(runtime=runtime)) == "here"

    async def tool() -> str:
        """Runs on the background loop."""
        return await llm.aio("?", choices={"deeper": plain})

    provider = ScriptedProvider(
        reply(call("tool", {})), reply("deeper"), reply("there"), reply("done")
    )
    assert Runtime(provider=provider).exec("go", tools=[tool], max_steps=2) == "done"
    assert provider.requests[-1].messages[-1].content[0].content[0].text == "there"


def test_decision_make_takes_names_or_a_mapping():
    runtime, _ = asked("b", "b", "b")

    assert agentic_with(runtime, decision.make, "Which?", ["a", "b"]) == "b"
    assert agentic_with(runtime, decision.make, "Which?", {"a": 1, "b": 2}) == 2
    assert (
        asyncio.run(agentic_async(runtime, lambda: decision.async_make("Which?", ["a", "b"])))
        == "b"
    )


@pytest.mark.parametrize("choices", [{}, {"": 1}, {" a": 1}, {1: 2}, ["a"]])
def test_choices_that_cannot_be_named_are_refused(choices):
    runtime, provider = asked("a")

    with pytest.raises(UsageError):
        runtime.exec("?", choices=choices)
    assert provider.requests == []


def test_a_format_and_choices_together_are_refused():
    with pytest.raises(UsageError, match="not both"):
        asked("a")[0].exec("?", choices={"a": 1}, response_format=PERSON)
    with pytest.raises(UsageError, match="list of texts"):
        decision.make("?", "abc")
