"""What a model is told: the docstring rule in every kind of call, and prompts as they were sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from op_jupyter.core.messages import ModelRequest, TextBlock, ToolResultBlock
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.prompts import prompt_text
from op_jupyter.engine.runtime import Runtime, agent, llm
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_context import session_context
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from tests.engine.harness import FakeTool, assert_sendable, assert_sound, run, tool_nodes


def in_session(store: MemoryStore, provider: ScriptedProvider) -> session_context:
    return session_context("s1", store=store, runtime=Runtime(provider=provider))


def told(request: ModelRequest) -> list[str]:
    """The texts of the messages, in order, each with who says it."""
    return [f"{m.role}: {_text(block)}" for m in request.messages for block in m.content]


def _text(block: Any) -> str:
    match block:
        case TextBlock(text):
            return text
        case ToolResultBlock(_, content):
            return f"result {content[0].text}"  # type: ignore[union-attr]
        case _:
            return f"calls {block.name}"


def answers(request: ModelRequest) -> Any:
    """A model that looks once at what it was asked about, and then says what it saw."""
    last = request.messages[-1].content
    results = [b for b in last if isinstance(b, ToolResultBlock)]
    if results:
        return reply(f"answer to {results[-1].content[0].text}")  # type: ignore[union-attr]
    asked = [b.text for b in last if isinstance(b, TextBlock)][-1]
    return reply(call("look", {"what": asked}))


def test_agents_beside_each_other_in_one_function_never_mix_up_their_results(
    store: MemoryStore,
) -> None:
    first_may_go_on, second_has_begun = Gate(), Gate()

    class Look(FakeTool):
        async def run(self, arguments: Any, context: Any) -> Any:
            if arguments["what"] == "first":
                await first_may_go_on.pass_through()
            else:
                await second_has_begun.pass_through()
            return await super().run(arguments, context)

    tool = Look(act=lambda arguments: arguments["what"], trusted=True)

    @agentic_function
    async def both() -> list[str]:
        """Do both."""
        first = asyncio.ensure_future(agent.aio("first", tools=[tool]))
        await first_may_go_on.reached()
        second = asyncio.ensure_future(agent.aio("second", tools=[tool]))
        await second_has_begun.reached()
        first_may_go_on.open()
        done = [await first]
        second_has_begun.open()
        return [*done, await second]

    provider = ScriptedProvider(default=answers)
    with in_session(store, provider) as handle:
        assert asyncio.run(both()) == ["answer to first", "answer to second"]
        assert_sound(handle.agent)
    for request in provider.requests:
        assert_sendable(request)
    first_goes_on, second_goes_on = provider.requests[2:]
    assert told(first_goes_on)[1:] == ["user: first", "assistant: calls look", "user: result first"]
    assert told(second_goes_on)[1:] == [
        *("user: first", "assistant: calls look", "user: result first"),
        "assistant: answer to first",
        *("user: second", "assistant: calls look", "user: result second"),
    ]


@pytest.mark.parametrize("subcalls", [0, 1])
def test_however_little_history_a_call_always_sees_its_own_tool_results(
    store: MemoryStore, subcalls: int
) -> None:
    @agentic_function(render_range={"callers": 0, "subcalls": subcalls})
    def narrow() -> str:
        """Be narrow."""
        llm("aside")
        return agent("sky", tools=[FakeTool(act=lambda a: a["what"], trusted=True)])

    provider = ScriptedProvider(reply("aside answered"), default=answers)
    with in_session(store, provider) as handle:
        assert narrow() == "answer to sky"
        assert_sound(handle.agent)
    last = told(provider.requests[-1])
    assert last[-3:] == ["user: sky", "assistant: calls look", "user: result sky"]
    assert ("user: aside" in last) is (subcalls == 1)
    assert_sendable(provider.requests[-1])


def test_one_agent_is_one_entry_of_the_history(store: MemoryStore) -> None:
    tool = FakeTool(act=lambda a: a["what"], trusted=True)

    @agentic_function(render_range={"callers": 1})
    def last_only() -> str:
        """See the last alone."""
        return llm("now")

    provider = ScriptedProvider(default=answers)
    with in_session(store, provider) as handle:
        agent("sky", tools=[tool])
        agent("sea", tools=[tool])
        provider.add(reply("done"))
        last_only()
        assert_sound(handle.agent)
    assert told(provider.requests[-1])[:4] == [
        "user: sea",
        "assistant: calls look",
        "user: result sea",
        "assistant: answer to sea",
    ]


def test_an_agent_that_still_works_is_not_told_with_results_that_it_waits_for(
    store: MemoryStore,
) -> None:
    gate = Gate()
    tool = FakeTool(gate=gate, trusted=True)
    provider = ScriptedProvider(reply(call("look", {})), reply("aside"), reply("done"))

    async def beside() -> None:
        working = asyncio.ensure_future(agent.aio("work", tools=[tool]))
        await gate.reached()
        await llm.aio("aside?")
        gate.open()
        await working

    with in_session(store, provider) as handle:
        asyncio.run(beside())
        assert_sound(handle.agent)
    assert told(provider.requests[1]) == ["user: aside?"]


def test_what_a_hidden_function_does_stands_where_it_was_called(store: MemoryStore) -> None:
    @agentic_function
    def seen(x: str) -> str:
        """Be seen."""
        return llm(x)

    @agentic_function(expose="hidden")
    def hidden() -> str:
        """Be hidden."""
        llm("in secret")
        return seen("from within")

    provider = ScriptedProvider(*(reply(str(n)) for n in range(5)))
    with in_session(store, provider) as handle:
        llm("before")
        run(handle.agent, provider, prompt="a turn")
        head = handle.agent.dag.head
        hidden()
        llm("after")
        dag = handle.agent.dag
        assert_sound(handle.agent)
    (secret,) = [n for n in dag if n.input == {"content": [{"type": "text", "text": "in secret"}]}]
    (within,) = [n for n in dag if n.name == "seen"]
    assert (secret.predecessor, within.predecessor) == (head, head)
    assert not any("secret" in t or "within" in t for t in told(provider.requests[-1]))
    assert "Call path: hidden → seen" in prompt_text(provider.requests[3])


def test_a_tool_that_calls_its_namesake_twice_records_two_calls(session: AgentSession) -> None:
    @agentic_function
    def think(x: str) -> str:
        """Think about x."""
        return llm(x)

    class Think(FakeTool):
        async def run(self, arguments: Any, context: Any) -> Any:
            first = await asyncio.to_thread(think, "one")
            second = await asyncio.to_thread(think, "two")
            return await super().run({"what": first + second}, context)

    provider = ScriptedProvider(
        reply(call("think", {})), reply("1"), reply("2"), reply("both thought")
    )
    assert run(session, provider, [Think("think", act=lambda a: a["what"])]).text == "both thought"
    assert "user: one" not in told(provider.requests[2])
    (tool,) = tool_nodes(session)
    assert [n.name for n in session.dag.children(tool.id) if n.role == "code"] == ["think"]
    assert_sound(session)


class Judge:
    """Something with agentic methods."""

    def __init__(self, mood: str) -> None:
        self.mood = mood

    @agentic_function
    def judge(self, text: str) -> str:
        """Judge the text."""
        return f"{self.mood}: {llm(text)}"

    @classmethod
    @agentic_function
    def name(cls, text: str) -> str:
        """Name the text."""
        return f"{cls.__name__}: {llm(text)}"

    @staticmethod
    @agentic_function
    def rate(text: str) -> str:
        """Rate the text."""
        return llm(text)


@pytest.mark.parametrize(
    ("method", "doc", "answer"),
    [
        (Judge("mild").judge, "Judge the text.", "mild: fine"),
        (Judge.name, "Name the text.", "Judge: fine"),
        (Judge.rate, "Rate the text.", "fine"),
    ],
    ids=["method", "classmethod", "staticmethod"],
)
def test_methods_are_functions_whose_owner_is_no_argument(
    store: MemoryStore, method: Any, doc: str, answer: str
) -> None:
    provider = ScriptedProvider(reply("fine"))
    with in_session(store, provider) as handle:
        assert method("a text") == answer
        (node, _) = handle.agent.dag
    assert node.input == {"text": "a text"}
    prompt = prompt_text(provider.requests[0])
    assert prompt.count(doc) == 1 and "Judge object" not in prompt


@pytest.mark.parametrize(
    "method", [Judge("mild").judge, Judge.name, Judge.rate], ids=["method", "class", "static"]
)
def test_methods_are_tools(store: MemoryStore, method: Any) -> None:
    name = method.spec["name"]
    provider = ScriptedProvider(reply(call(name, {"text": "x"})), reply("fine"), reply("done"))
    with in_session(store, provider) as handle:
        assert agent("go", tools=[method]) == "done"
        (tool,) = tool_nodes(handle.agent)
        assert tool.output["state"] == "succeeded", tool.output
        assert_sound(handle.agent)


def test_a_runtime_that_is_passed_is_what_the_call_inside_uses(store: MemoryStore) -> None:
    @agentic_function
    def inner() -> str:
        """Be inside."""
        return llm("inside")

    @agentic_function
    def outer(runtime: Runtime) -> str:
        """Be outside."""
        return f"{llm('outside')} {inner()}"

    ambient, passed = ScriptedProvider(), ScriptedProvider(reply("a"), reply("b"))
    with in_session(store, ambient):
        assert outer(runtime=Runtime(provider=passed)) == "a b"
    assert (len(ambient.requests), len(passed.requests)) == (0, 2)
