"""Which conversation of its provider a request goes on with, and what it is told there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from engine.harness import ALLOW, FakeTool, ScriptedAsker, assert_sound, run, states

from op_jupyter.core.messages import (
    ModelDelta,
    ModelRequest,
    ResponseDone,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
)
from op_jupyter.engine import loop
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.runtime import Runtime, agent, llm
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.engine.session_context import session_context
from op_jupyter.errors import RateLimited, TurnFailed
from op_jupyter.providers.base import CONVERSATION, Capabilities, OwnTool
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from op_jupyter.tools.toolset import toolset_of

SHELL = OwnTool(
    ToolSpec("Bash", "Run a command.", {"type": "object", "properties": {"command": {}}}),
    "execute",
    code="command",
    language="shell",
)


class KeepingProvider(ScriptedProvider):
    """A scripted provider that keeps conversations: it numbers them, and notes what it is told."""

    def __init__(self, *scripts: Any, forgets: bool = False, **options: Any) -> None:
        can = Capabilities("keeping", "model", has_session=True)
        super().__init__(*scripts, capabilities=can, **options)
        self.own_tools: Sequence[OwnTool] = (SHELL,)
        self.settled: list[ToolResultBlock] = []
        self.ran: list[Mapping[str, Any]] = []
        self.ended: list[str] = []
        self._forgets = forgets
        self._started = 0
        self._names: dict[str, str] = {}

    @property
    def conversations(self) -> KeepingProvider:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        where = request.continuation
        assert where is not None
        if where.exchange not in self._names:
            self._started += where.resume is None
            self._names[where.exchange] = where.resume or f"conversation-{self._started}"
        kept = self._names[where.exchange]
        async for delta in super().stream(request):
            if isinstance(delta, ResponseDone):
                delta = replace(delta, details={CONVERSATION: kept})
            yield delta

    async def remembers(self, conversation: str, folder: str) -> bool:
        return not self._forgets

    async def run_own(self, exchange: str, arguments: Mapping[str, Any]) -> ToolResultBlock:
        self.ran.append(arguments)
        return ToolResultBlock("", (TextBlock("done"),))

    def deliver(self, exchange: str, result: ToolResultBlock) -> None:
        self.settled.append(result)

    def end(self, exchange: str) -> None:
        self.ended.append(exchange)


def told(provider: ScriptedProvider, index: int = -1) -> list[str]:
    """The texts of a request's messages."""
    return ["|".join(map(_text, m.content)) for m in provider.requests[index].messages]


def _text(block: Any) -> str:
    if isinstance(block, ToolResultBlock):
        return "".join(map(_text, block.content))
    return getattr(block, "text", type(block).__name__)


def resumed(provider: ScriptedProvider) -> list[str | None]:
    return [r.continuation and r.continuation.resume for r in provider.requests]


def go(session: AgentSession, runtime: Runtime, prompt: str, **options: Any) -> Any:
    start = TurnStart((TextBlock(prompt),), runtime, asker=ScriptedAsker(), **options)
    return loop.run_sync(session.run_turn, start)[1]


@agentic_function(render_range={"callers": 0})
def classify(review: str) -> str:
    """Say whether the review is good."""
    return llm(review)


@pytest.mark.parametrize("keeps", [False, True])
def test_both_kinds_of_provider_answer_the_same_function_and_are_told_what_they_need(
    store: MemoryStore, keeps: bool
) -> None:
    kind = KeepingProvider if keeps else ScriptedProvider
    provider = kind(reply("good"), reply("bad"), reply("so so"))
    runtime = Runtime(provider=provider)
    with session_context("s", store=store, runtime=runtime):
        assert [classify("a"), classify("b")] == ["good", "bad"]
        assert llm("And in all?") == "so so"
    header = "Call path: classify\n\nSay whether the review is good."
    assert told(provider, 1)[-1].startswith(header)
    assert "".join(told(provider, 1)).count("Say whether") == 1
    assert len(told(provider, 1)) == 1  # nothing of before: bounded for the one, known to the other
    assert (len(told(provider, 2)) == 1) is keeps
    if keeps:
        assert resumed(provider) == [None, "conversation-1", "conversation-1"]


def test_a_turn_is_told_its_prompt_and_then_the_results_alone(session: AgentSession) -> None:
    provider = KeepingProvider(reply("hm", call("look", {})), reply("so"), reply("yes"))
    runtime, tools = Runtime(provider=provider), toolset_of([FakeTool()])
    go(session, runtime, "one", tools=tools)
    go(session, runtime, "two", tools=tools)
    assert [told(provider, i) for i in range(3)] == [["one"], ["seen"], ["two"]]
    assert [_text(r) for r in provider.settled] == ["seen"]
    assert resumed(provider) == [None, None, "conversation-1"]
    assert len(provider.ended) == 2
    assert_sound(session)


def test_after_a_fork_a_new_conversation_is_told_the_rendered_history(
    session: AgentSession,
) -> None:
    provider = KeepingProvider(*[reply(f"answer {i}") for i in range(4)])
    runtime = Runtime(provider=provider)
    go(session, runtime, "one")
    fork = session.dag.head
    go(session, runtime, "two")
    go(session, runtime, "other two", base=fork)
    assert told(provider) == ["one", "answer 0", "other two"]
    go(session, runtime, "three")
    assert (told(provider), resumed(provider)[2:]) == (["three"], [None, "conversation-2"])
    assert_sound(session)


def test_what_another_model_said_meanwhile_is_told_in_a_new_conversation(
    session: AgentSession,
) -> None:
    provider, other = KeepingProvider(reply("a"), reply("c")), ScriptedProvider(reply("b"))
    runtime = Runtime(provider=provider)
    go(session, runtime, "one")
    go(session, Runtime(provider=other), "two")
    assert told(other) == ["one", "a", "two"]
    go(session, runtime, "three")
    assert told(provider) == ["one", "a", "two", "b", "three"]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_new_runtime_goes_on_with_the_stored_conversation_if_it_still_exists(
    session: AgentSession, forgets: bool
) -> None:
    go(session, Runtime(provider=KeepingProvider(reply("a"))), "one")
    later = KeepingProvider(reply("b"), forgets=forgets)
    go(session, Runtime(provider=later), "two")
    assert told(later) == (["one", "a", "two"] if forgets else ["two"])
    assert resumed(later) == [None if forgets else "conversation-1"]
    assert_sound(session)


def test_a_conversation_that_went_on_elsewhere_is_not_gone_on_with(session: AgentSession) -> None:
    provider = KeepingProvider(reply("a"), reply("b"))
    runtime = Runtime(provider=provider)
    go(session, runtime, "one")
    fork = session.dag.head
    go(session, runtime, "two")
    later = KeepingProvider(reply("c"))
    go(session, Runtime(provider=later), "other two", base=fork)
    assert (told(later), resumed(later)) == (["one", "a", "other two"], [None])


def test_a_turn_that_failed_is_known_to_the_conversation_and_is_not_told_again(
    session: AgentSession,
) -> None:
    provider = KeepingProvider(reply("a"), [RateLimited("slow down")], reply("c"))
    runtime = Runtime(provider=provider, max_retries=0)
    go(session, runtime, "one")
    assert go(session, runtime, "two").status == "failed"
    go(session, runtime, "three")
    assert (told(provider), resumed(provider)[-1]) == (["three"], "conversation-1")


def test_calls_at_the_same_time_have_conversations_of_their_own(store: MemoryStore) -> None:
    gate = Gate()
    provider = KeepingProvider([gate, *reply("slow")], reply("quick"), reply("then"))

    async def both() -> list[str]:
        slow = asyncio.create_task(llm.aio("slow?"))
        await gate.reached()
        quick = await llm.aio("quick?")
        gate.open()
        return [await slow, quick, await llm.aio("then?")]

    with session_context("s", store=store, runtime=Runtime(provider=provider)):
        assert asyncio.run(both()) == ["slow", "quick", "then"]
    lasting = [r.continuation and r.continuation.lasting for r in provider.requests]
    assert lasting == [True, False, True]
    assert resumed(provider) == [None, None, "conversation-1"]
    assert len(provider.ended) == 3


def test_its_own_tools_are_offered_with_ours_and_pass_the_gate(session: AgentSession) -> None:
    provider = KeepingProvider(
        reply(call("Bash", {"command": "rm a"}), call("look", {})), reply("done")
    )
    asker = ScriptedAsker([ALLOW])
    run(session, provider, [FakeTool()], asker=asker)
    assert [t.name for t in provider.requests[0].tools] == ["look", "Bash"]
    assert [r.tool for r in asker.requests] == ["Bash"]
    assert provider.ran == [{"command": "rm a"}]
    assert (states(session), len(provider.settled)) == (["succeeded", "succeeded"], 2)
    assert_sound(session)


def test_a_tool_of_ours_takes_the_place_of_its_own_tool_of_that_name(
    session: AgentSession,
) -> None:
    provider = KeepingProvider(reply(call("Bash", {})), reply("done"))
    tool = FakeTool("Bash")
    run(session, provider, [tool])
    assert (len(tool.calls), provider.ran) == (1, [])


def test_its_own_tools_are_offered_only_where_the_session_s_tools_are(store: MemoryStore) -> None:
    provider = KeepingProvider(default=lambda request: reply("ok"))
    with session_context("s", store=store, runtime=Runtime(provider=provider)):
        llm("a")
        agent("b", tools=[])
        agent("c")
    assert [[t.name for t in r.tools] for r in provider.requests] == [[], [], ["Bash"]]


def test_a_provider_that_keeps_nothing_is_not_bothered(session: AgentSession) -> None:
    provider = ScriptedProvider(reply("a"))
    go(session, Runtime(provider=provider), "one")
    assert provider.requests[0].continuation is None


def test_a_failed_loop_frees_the_conversation(session: AgentSession) -> None:
    provider = KeepingProvider(
        *[reply(call("look", {"what": str(i)})) for i in range(2)], reply("ok")
    )
    runtime = Runtime(provider=provider)
    assert go(session, runtime, "go", tools=toolset_of([FakeTool()]), max_steps=2).code == (
        "max_model_calls"
    )
    assert not runtime.memory.busy
    go(session, runtime, "again")
    assert resumed(provider)[-1] == "conversation-1"
    with pytest.raises(TurnFailed):
        Runtime(provider=KeepingProvider(reply(call("look", {})))).exec("x", tools=[FakeTool()])
