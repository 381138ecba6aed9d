"""`ask`, `confirm`, `form`, `can_ask`: outcomes, the graph, the prompt, the hosts' seams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from op_jupyter import (
    Runtime,
    agentic_function,
    ask,
    can_ask,
    confirm,
    form,
    llm,
    session_context,
    session_scope,
    set_ask_handler,
    set_cancellation_check,
    set_session_id_provider,
)
from op_jupyter.core.questions import (
    BadAnswer,
    FormField,
    Question,
    field_lines,
    fields_of,
    prompt_lines,
    read_form,
    read_line,
)
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import AskTimeout, CannotAsk, TurnCancelled, UsageError, UserDeclined
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from tests.engine.harness import (
    DECLINES,
    ScriptedAsker,
    assert_sendable,
    assert_sound,
    run,
    tool_nodes,
    wait_until,
)


class Trip(BaseModel):
    city: Literal["Rome", "Oslo"]
    days: int = Field(ge=1)
    pets: bool = False
    notes: str | None = None


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    yield
    set_ask_handler(None)
    set_cancellation_check(None)
    set_session_id_provider(None)


@pytest.fixture
def asker() -> ScriptedAsker:
    return ScriptedAsker()


@pytest.fixture
def session(asker: ScriptedAsker) -> Iterator[AgentSession]:
    with session_scope(MemoryStore(), "s1") as handle:
        handle.agent.asker = asker
        yield handle.agent


def users(session: AgentSession) -> list[tuple[str, str]]:
    return [(n.name, n.status) for n in session.dag if n.role == "user"]


# -- what comes back


def test_free_text_is_returned_as_it_was_written(session, asker):
    asker.says = ["  ", " red \n"]
    assert ask("Which colour?") == " red \n"
    assert asker.problems == ["the answer is empty"]


def test_one_option_is_a_text_and_several_are_a_list(session, asker):
    asker.says = ["blue", ["blue", "red", "blue"], "green"]
    assert ask("Which?", ["red", "blue"]) == "blue"
    assert ask("Which ones?", ["red", "blue"], multi=True) == ["blue", "red"]
    assert ask("Which?", ["red", "blue"]) == "green"


def test_own_words_can_be_ruled_out(session, asker):
    asker.says = ["green", 3, None, ["red"], "red"]
    assert ask("Which?", ["red", "blue"], allow_custom=False) == "red"
    assert asker.problems[0] == "choose one of red, blue"
    assert len(asker.problems) == 4


def test_several_options_need_at_least_one(session, asker):
    asker.says = [[], "red", ["green"], ["red"]]
    assert ask("Which?", ["red", "blue"], multi=True, allow_custom=False) == ["red"]


def test_confirm_is_true_or_false(session, asker):
    asker.says = ["yes", 1, True, False]
    assert confirm("Go on?") is True
    assert confirm("Go on?", default=True) is False
    assert [q.default for q in asker.questions] == [False, True]


def test_a_form_gives_an_instance_of_its_model(session, asker):
    asker.says = [
        {"city": "Paris", "days": "3"},
        {"city": "Rome", "days": "0"},
        {"city": "Rome", "days": "x"},
        {"city": "Rome"},
        "Rome",
        {"city": "Rome", "days": " 3 ", "pets": "yes", "notes": ""},
    ]
    assert form("Your trip?", Trip) == Trip(city="Rome", days=3, pets=True)
    assert len(asker.problems) == 5
    assert "greater than or equal to 1" in asker.problems[1]


def test_a_form_of_a_schema_gives_a_dict_with_its_defaults(session, asker):
    schema = {
        "type": "object",
        "properties": {
            "size": {"enum": [1, 2, "many"]},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "ratio": {"type": "number", "default": 0.5},
            "extra": {"type": "object"},
        },
        "required": ["size", "tags"],
    }
    asker.says = [{"size": "2", "tags": ["b"], "extra": '{"deep": [1]}'}]
    value = form("How?", schema)
    assert value == {"size": 2, "tags": ["b"], "ratio": 0.5, "extra": {"deep": [1]}}
    assert [f.kind for f in asker.questions[0].fields] == ["choice", "choices", "number", "json"]


def test_declining_is_an_error_of_its_own(session, asker):
    asker.says = [DECLINES, DECLINES, DECLINES]
    for question in (lambda: ask("?"), lambda: confirm("?"), lambda: form("?", Trip)):
        with pytest.raises(UserDeclined):
            question()
    assert users(session) == [("question", "denied")] * 3


def test_no_answer_in_time_is_the_default_or_an_error(session):
    assert ask("?", timeout=0.01, default=None) is None
    assert confirm("?", default=True, timeout=0.01) is True
    with pytest.raises(AskTimeout, match=r"0\.01 seconds"):
        ask("?", timeout=0.01)
    assert users(session) == [
        ("question", "completed"),
        ("question", "completed"),
        ("question", "error"),
    ]
    assert_sound(session)


def test_where_nobody_can_answer_it_says_so_at_once_and_records_nothing(session, asker):
    asker.interactive = False
    assert can_ask() is False
    for question in (lambda: ask("?"), lambda: confirm("?"), lambda: form("?", Trip)):
        with pytest.raises(CannotAsk, match="can_ask"):
            question()
    assert len(session.dag) == 0 and session.dag.turns == {}


def test_without_a_session_and_a_terminal_nobody_can_answer():
    assert can_ask() is False
    with pytest.raises(CannotAsk):
        ask("?", default="red")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ask(""),
        lambda: ask("?", options="ab"),
        lambda: ask("?", options=[]),
        lambda: ask("?", options=["a", "a"]),
        lambda: ask("?", options=["a", " "]),
        lambda: ask("?", options=[1]),
        lambda: ask("?", multi=True),
        lambda: ask("?", timeout=0),
        lambda: ask("?", timeout=float("nan")),
        lambda: confirm("?", default="yes"),
        lambda: form("?", None),
        lambda: form("?", {"type": "string"}),
        lambda: form("?", list[int]),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(session, asker, wrong):
    with pytest.raises(UsageError):
        wrong()
    assert asker.questions == []


# -- the graph and the prompt


def test_question_and_answer_are_user_nodes_under_the_function(session, asker):
    asker.says = ["red"]

    @agentic_function
    def paint():
        """Paint it."""
        return ask("Which colour?", ["red", "blue"])

    assert paint() == "red"
    code, question, answer = list(session.dag)
    assert [n.role for n in (code, question, answer)] == ["code", "user", "user"]
    assert question.caller == answer.caller == code.id
    assert answer.predecessor == question.id
    assert (question.output, answer.output) == ("red", "red")
    assert question.metadata["question"]["options"] == ["red", "blue"]
    assert answer.metadata["how"] == "click"
    assert_sound(session)


def test_the_running_function_tells_its_model_what_was_answered(session, asker):
    asker.says = ["red", DECLINES]
    provider = ScriptedProvider(reply("ok"))

    @agentic_function
    def paint(runtime: Runtime):
        """Paint it."""
        ask("Which colour?", ["red", "blue"])
        with pytest.raises(UserDeclined):
            ask("How often?")
        return llm("Go.")

    paint(runtime=Runtime(provider=provider))
    (message,) = provider.requests[0].messages
    parts = [block.text for block in message.content]
    assert parts[1:] == [
        "The program asked the person: Which colour?\nOptions: red, blue\nThe person answered: red",
        "The program asked the person: How often?\nThe person chose not to answer.",
        "Go.",
    ]
    assert_sendable(provider.requests[0])
    assert_sound(session)


def test_a_question_of_a_cell_is_history_of_the_next_prompt(session, asker):
    asker.says = ["red"]
    ask("Which colour?")
    provider = ScriptedProvider(reply("fine"))
    assert run(session, provider, prompt="Paint it").status == "completed"
    said = provider.requests[0].messages[0].content[0].text
    assert said == "The program asked the person: Which colour?\nThe person answered: red"
    assert [t.kind for t in session.dag.turns.values()] == ["call", "agent"]
    assert_sound(session)


def test_what_a_function_asked_stays_its_own_business_afterwards(session, asker):
    asker.says = ["red"]

    @agentic_function
    def paint():
        """Paint it."""
        return len(ask("Which colour?"))

    paint()
    provider = ScriptedProvider(reply("fine"))
    run(session, provider)
    assert "Which colour?" not in str(provider.requests[0].messages)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_tool_of_a_turn_asks_through_the_turns_own_way(session, asker, kind):
    own = ScriptedAsker(says=["red"])

    def paint() -> str:
        """Paint it."""
        return ask("Which colour?")

    async def paint_async() -> str:
        """Paint it."""
        return await ask.aio("Which colour?")

    function = paint if kind == "sync" else paint_async
    function.__name__ = "paint"
    provider = ScriptedProvider(reply(call("paint", {})), reply("done"))
    outcome = run(session, provider, [op_jupyter_trusted(function)], asker=own)

    assert outcome.status == "completed"
    assert asker.questions == [] and len(own.questions) == 1
    (tool,) = tool_nodes(session)
    assert [n.caller for n in session.dag if n.name in ("question", "answer")] == [tool.id] * 2
    assert_sound(session)


def op_jupyter_trusted(function: Any) -> Any:
    from op_jupyter.tools.toolset import toolset_of

    (tool,) = toolset_of([function], trusted=True)
    return tool


def test_the_async_twins_and_the_runtime_ask_alike(session, asker):
    asker.says = ["a", True, {"city": "Oslo", "days": "2"}, "b", False]
    runtime = Runtime(call=lambda content: "x")

    async def all_of_them() -> list[Any]:
        return [await ask.aio("?"), await confirm.aio("?"), await form.aio("?", Trip)]

    assert asyncio.run(all_of_them()) == ["a", True, Trip(city="Oslo", days=2)]
    assert runtime.can_ask()
    assert runtime.ask("?", ["b"]) == "b"
    assert runtime.confirm("?") is False


def test_two_threads_are_answered_one_after_the_other(session, asker):
    seen: list[str] = []
    busy = threading.Lock()

    class OneAtATime(ScriptedAsker):
        async def question(self, question, check):
            assert busy.acquire(blocking=False)
            await asyncio.sleep(0)
            busy.release()
            seen.append(question.prompt)
            return await super().question(question, check)

    session.asker = OneAtATime(says=["x", "x", "x"])

    async def three() -> None:
        await asyncio.gather(*(ask.aio(f"question {n}") for n in range(3)))

    asyncio.run(three())
    assert sorted(seen) == ["question 0", "question 1", "question 2"]


def test_an_interrupt_while_somebody_is_asked_is_recorded_as_cancelled(session):
    async def stopped() -> None:
        task = asyncio.create_task(ask.aio("?"))
        await wait_until(session, lambda: users(session))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert users(session) == [("question", "cancelled")]
    assert [t.status for t in session.dag.turns.values()] == ["cancelled"]
    assert_sound(session)


# -- the seams


def test_a_hosts_handler_comes_first_and_may_be_sync_or_async(session, asker):
    async def later(question):
        return f"async {question.prompt} {question.session_id}"

    set_ask_handler(lambda question: f"{question.kind} in {threading.current_thread().name}")
    assert ask("?").startswith("ask in ")
    assert "openprogram-loop" not in ask("?")
    set_ask_handler(later)
    assert ask("hm") == "async hm s1"
    assert asker.questions == []
    assert session.dag.nodes and users(session)[-1] == ("answer", "completed")


def test_a_handler_works_without_any_session_and_none_declines():
    set_ask_handler(lambda question: None)
    assert can_ask()
    with pytest.raises(UserDeclined):
        ask("?", default="red")


def test_a_question_waits_for_half_an_hour_unless_the_program_says_otherwise():
    asked = []

    def answer(question):
        asked.append((question.kind, question.timeout))
        return {"ask": "red", "confirm": True, "form": {"city": "Oslo", "days": 2}}[question.kind]

    set_ask_handler(answer)
    ask("?")
    confirm("?")
    form("?", Trip)
    ask("?", timeout=5)
    ask("?", timeout=None)
    assert asked == [("ask", 1800), ("confirm", 1800), ("form", 1800), ("ask", 5), ("ask", None)]


def test_a_handlers_form_is_typed_and_checked():
    set_ask_handler(lambda question: {"city": "Oslo", "days": 2})
    assert form("?", Trip) == Trip(city="Oslo", days=2)
    for wrong in ({"city": "Paris", "days": 2}, {"city": "Oslo"}, "Oslo", object(), float("nan")):
        set_ask_handler(lambda question, wrong=wrong: wrong)
        with pytest.raises(UsageError, match="handler"):
            form("?", Trip)


def test_a_handler_that_fails_is_not_taken_for_an_answer(session):
    def broken(question):
        raise LookupError("no such room")

    set_ask_handler(broken)
    with pytest.raises(LookupError):
        ask("?", default="red")
    assert users(session) == [("question", "error")]


def test_a_handlers_own_timeout_error_is_not_ours():
    def broken(question):
        raise TimeoutError("socket")

    set_ask_handler(broken)
    with pytest.raises(TimeoutError, match="socket"):
        ask("?", default="red")


def test_the_session_id_provider_names_the_hosts_session_or_nobody(session):
    seen = []
    set_ask_handler(lambda question: seen.append(question.session_id) or "x")
    set_session_id_provider(lambda: "room-7")
    ask("?")
    set_session_id_provider(lambda: None)
    assert can_ask() is False
    with pytest.raises(CannotAsk):
        ask("?")
    assert seen == ["room-7"]


def test_a_cancellation_check_stops_a_call_that_waits(session):
    gate = Gate()
    stop = threading.Event()
    set_cancellation_check(stop.is_set)
    provider = ScriptedProvider([gate, *reply("late")])

    @agentic_function
    def work(runtime: Runtime):
        """Work."""
        return llm("Go.")

    @agentic_function(expose="hidden")
    def stopper():
        gate.wait_reached()
        stop.set()

    threading.Thread(target=stopper.function).start()
    with pytest.raises(TurnCancelled):
        work(runtime=Runtime(provider=provider))
    assert [n.status for n in session.dag] == ["cancelled", "cancelled"]
    assert_sound(session)


def test_a_cancellation_check_stops_a_question(session):
    asked = threading.Event()

    def check() -> bool:
        return bool(users(session)) and asked.is_set()

    asked.set()
    set_cancellation_check(check)
    started = time.monotonic()
    with pytest.raises(TurnCancelled):
        ask("?")
    assert time.monotonic() - started < 5
    assert users(session) == [("question", "cancelled")]


def test_a_check_that_fails_is_told_and_not_swallowed(session):
    def broken() -> bool:
        raise LookupError("no such run")

    set_cancellation_check(broken)
    with pytest.raises(LookupError):
        Runtime(call=lambda content: "x").exec("?")
    assert_sound(session)


# -- a terminal


SCRIPT = """
    from typing import Literal
    from pydantic import BaseModel
    from op_jupyter import ask, can_ask, confirm, form
    from op_jupyter.errors import AskTimeout, UserDeclined

    class Trip(BaseModel):
        city: Literal["Rome", "Oslo"]
        days: int

    print("can ask:", can_ask())
    print("got", repr(ask("Which colour?", ["red", "blue"])))
    print("got", ask("Which ones?", ["red", "blue"], multi=True))
    print("got", confirm("Go on?", default=True))
    print("got", form("Your trip?", Trip))
    try:
        ask("Nothing to say?")
    except UserDeclined:
        print("got declined")
    try:
        ask("Too slow?", timeout=0.3)
    except AskTimeout:
        print("got timeout")
    print("got", ask("Still there?"))
"""


@pytest.mark.slow
def test_a_program_in_a_terminal_asks_there(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ours, theirs = pty.openpty()
    env = {**os.environ, "OPENPROGRAM_HOME": str(tmp_path), "HOME": str(tmp_path)}
    program = subprocess.Popen(
        [sys.executable, script], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    seen = ""

    def until(words: str) -> None:
        nonlocal seen
        while words not in seen:
            assert select.select([ours], [], [], 30)[0], seen
            seen += os.read(ours, 65536).decode()

    def say(line: str) -> None:
        nonlocal seen
        seen = ""
        os.write(ours, line.encode() + b"\n")

    try:
        until("declines)\r\n> ")
        say("2")
        until("got 'blue'")
        until("declines)\r\n> ")
        say("1, green")
        until("got ['red', 'green']")
        until("[Y/n] ")
        say("perhaps")
        until("answer yes or no\r\n> ")
        say("")
        until("got True")
        until("number or name)\r\n> ")
        say("Paris")
        until("choose from Rome, Oslo\r\n> ")
        say("2")
        until("whole number)\r\n> ")
        say("3")
        until("got city='Oslo' days=3")
        until("declines)\r\n> ")
        say("")
        until("got timeout")
        until("Still there?")
        say("yes, here")
        until("got yes, here")
        assert program.wait(30) == 0
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def test_a_session_context_of_a_script_uses_the_terminal_or_nobody():
    with session_context(store=MemoryStore(), create_runtime_if_none=False):
        assert can_ask() is False


# -- text


def test_what_is_asked_in_text_cannot_give_orders_to_the_terminal():
    esc = "\x1b[2J\u202e"
    field = FormField("f", "choice", f"title{esc}", f"help{esc}", (f"a{esc}",), default=f"a{esc}")
    asked = Question("q", "s", "t", "ask", f"prompt{esc}", (f"red{esc}",))
    for text in (prompt_lines(asked), field_lines(field)):
        assert "\x1b" not in text and "\u202e" not in text
        assert "[U+001B]" in text


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("1", "red"),
        ("2", "3"),
        ("3", "3"),
        ("red", "red"),
        ("4", "4"),
        ("00001", "red"),
        ("٣", "٣"),
        ("9" * 5000, "9" * 5000),
        ("", None),
    ],
)
def test_a_line_means_an_option_by_name_then_by_number_then_own_words(line, value):
    answer = read_line(Question("q", "s", "t", "ask", "?", ("red", "3")), line)
    assert (answer.value, answer.declined) == (value, value is None)


def test_a_comma_in_an_option_is_no_separator_when_the_line_is_that_option():
    asked = Question("q", "s", "t", "ask", "?", ("a, b", "c"), multi=True)
    assert read_line(asked, "a, b").value == ["a, b"]
    assert read_line(asked, "1, c, c, own").value == ["a, b", "c", "own"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=8) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "enum", "items", "$ref", "anyOf", "properties", "default", "title"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_part_of_a_schema_becomes_a_field_that_reads_texts_or_refuses(part):
    fields = fields_of({"properties": {"x": part}})
    for said in ({}, {"x": "1"}, {"x": ["1"]}, {"x": 3}, [], None):
        with contextlib.suppress(BadAnswer):
            read_form(fields, said)
    field_lines(fields[0])
    fields[0].to_json()
