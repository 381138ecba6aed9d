"""Acceptance line 16: never a half message, never a tool run, wherever the stream breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from op_jupyter.core.messages import (
    Message,
    ResponseDone,
    TextBlock,
    TextDelta,
    ToolUseBlock,
    message_from_json,
)
from op_jupyter.core.turn import Outcome
from op_jupyter.engine import loop
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.errors import ProviderConnectionError
from op_jupyter.providers.anthropic import AnthropicProvider
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, stream_bytes, text, tool
from op_jupyter.testing.providers import Script, ScriptedProvider, call, reply
from op_jupyter.tools.toolset import toolset_of
from tests.engine.harness import FakeTool, ScriptedAsker, assert_sound, run, tool_nodes

ASKS: Final = Reply([tool("look", id="t", what="a")])
WHOLE: Final = stream_bytes(ASKS)
END: Final = WHOLE.index(b"event: message_stop")
UNCUT: Final = 3
"""Answers past the last byte, which shows that it was reached: ids and counts have any length."""


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeMessages]:
    with FakeMessages(default=lambda body: Reply([text("next")])) as service:
        yield service


@pytest.fixture(scope="module")
def runtime(fake: FakeMessages) -> Iterator[Runtime]:
    profile = EndpointProfile("fake", fake.url, API_KEY)
    with Runtime(provider=AnthropicProvider(profile, end_grace=0.5), max_retries=0) as made:
        yield made


async def one_turn(runtime: Runtime, tool: FakeTool) -> tuple[Outcome, AgentSession]:
    """A turn in a session of its own, so that no cut sees what another one left."""
    store = MemoryStore()
    session = AgentSession(store.open(store.create_session()))
    start = TurnStart(
        (TextBlock("go"),), runtime, tools=toolset_of([tool]), max_steps=1, asker=ScriptedAsker()
    )
    return (await session.run_turn(start))[1], session


def assert_dropped(outcome: Outcome, session: AgentSession, tool: FakeTool, where: object) -> None:
    assert outcome.status == "failed", where
    assert outcome.code in ("model_error", "model_protocol_error"), (where, outcome)
    assert tool.calls == [] and tool_nodes(session) == [], where
    (node,) = [n for n in session.dag if n.role == "llm"]
    assert (node.status, node.output) == ("error", None), where
    assert session.snapshot().runtime["state"] == "terminal"
    assert_sound(session)


async def _cut_everywhere(fake: FakeMessages, runtime: Runtime, fault: Any, first: int) -> int:
    whole = 0
    for cut in range(first, 2 * len(WHOLE), len(CUTS)):
        fake.script(Reply(ASKS.blocks, fault=fault, cut=cut))
        look = FakeTool()
        outcome, session = await one_turn(runtime, look)
        if outcome.code == "max_model_calls":  # the answer was whole: its tool ran
            assert cut > END and look.calls == [{"what": "a"}], cut
            whole += 1
        else:
            assert_dropped(outcome, session, look, cut)
        if whole == UNCUT:
            break
    return whole


CUTS: Final = ["eof", "close", "abort"]


@pytest.mark.parametrize("fault", CUTS)
def test_a16_a_disconnect_at_every_byte_is_never_half_a_message(
    fake: FakeMessages, runtime: Runtime, fault: str
) -> None:
    """Each byte is cut once, in one of the ways a connection can end."""
    whole = loop.run_sync(_cut_everywhere, fake, runtime, fault, CUTS.index(fault))
    assert whole == UNCUT


GARBAGE: Final[dict[str, Script]] = {
    "no end": [TextDelta("half")],
    "no event at all": [],
    "two ends": [*reply("one"), *reply("two")],
    "an end, then more": [*reply(call("look", {})), TextDelta("more")],
    "disconnected": [TextDelta("half"), ProviderConnectionError("cut")],
    "an exception of any kind": [TextDelta("half"), ValueError("garbage")],
    "cut tool input": reply(call("look", {}), stop_reason="max_tokens"),
    "a user's message": [
        ResponseDone(Message("user", (ToolUseBlock("c1", "look", "{}"),)), "tool_use")
    ],
    "declined": reply(call("look", {}), stop_reason="refusal"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_a16_garbage_is_dropped_and_the_session_goes_on(session: AgentSession, case: str) -> None:
    look = FakeTool()
    outcome = run(session, ScriptedProvider(GARBAGE[case]), [look])
    assert_dropped(outcome, session, look, case)
    assert run(session, ScriptedProvider(reply("fine"))).text == "fine"
    assert message_from_json(session.dag.spine()[-1].output).text == "fine"


@pytest.mark.parametrize(
    "fault",
    [
        "drop",
        "error",
        "malformed",
        "bad_order",
        "two_stops",
        "no_stop_reason",
        "no_start",
        "html",
    ],
)
def test_a16_a_service_that_breaks_the_protocol_is_never_half_a_message(
    fake: FakeMessages, runtime: Runtime, fault: Any
) -> None:
    for at in range(0, 9, 2):
        fake.script(Reply(ASKS.blocks, fault=fault, at=at))
        look = FakeTool()
        outcome, session = loop.run_sync(one_turn, runtime, look)
        assert_dropped(outcome, session, look, at)


def test_a16_a_stream_that_never_ends_is_ended_by_cancelling(
    fake: FakeMessages, runtime: Runtime
) -> None:
    fake.script(Reply(ASKS.blocks, fault="hang", at=6))
    look = FakeTool()

    async def cancelled() -> tuple[str, AgentSession]:
        store = MemoryStore()
        session = AgentSession(store.open(store.create_session()))
        start = TurnStart((TextBlock("go"),), runtime, tools=toolset_of([look]))
        turn_id = (await session.start_turn(start)).turn_id
        await asyncio.to_thread(fake.wait_held)
        await session.cancel_turn(turn_id)
        return (await session.wait(turn_id)).status, session

    status, session = loop.run_sync(cancelled)
    assert status == "cancelled" and look.calls == []
    assert_sound(session)
