"""Cancelling at every place where a turn can be: results are true, and the session goes on."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.messages import TextBlock, TextDelta
from op_jupyter.core.turn import NOT_EXECUTED
from op_jupyter.engine import context, loop
from op_jupyter.engine.context import SessionHandle
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.runtime import Runtime, agent, llm
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_context import session_context
from op_jupyter.errors import PermissionNotPending, ProviderConnectionError, TurnNotActive
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import HANG, Gate, ScriptedProvider, call, reply
from op_jupyter.tools.base import ToolContext, ToolOutput
from tests.engine.harness import (
    ALLOW,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    assert_sound,
    kinds,
    run,
    start_in_background,
    states,
    texts,
    turn_start,
    wait_phase,
    wait_until,
)

CALLS = [call("look", {"what": w}) for w in "abc"]


def goes_on(session: AgentSession) -> None:
    """The next turn works, and the real service would take its request."""
    provider = ScriptedProvider(reply("next"))
    assert run(session, provider).text == "next"
    assert_sendable(provider.requests[0])
    assert_sound(session)


def cancel_now(session: AgentSession, turn_id: str) -> None:
    """Cancel at this very step of the loop: `cancel_turn` awaits nothing."""
    with pytest.raises(StopIteration):
        session.cancel_turn(turn_id).send(None)


def cancel_at_update(session: AgentSession, number: int) -> list[str]:
    """Cancel the active turn when the *number*-th update of it is published."""
    seen: list[str] = []

    def listen(envelope: Any) -> None:
        if envelope.turn_id != session.active_turn_id:
            return
        seen.append(envelope.update.kind)
        if len(seen) == number + 1:
            cancel_now(session, envelope.turn_id)

    session.subscribe(listen)
    return seen


def whole_turn() -> tuple[ScriptedProvider, list[FakeTool], ScriptedAsker]:
    """A turn that goes everywhere: text, a free call, two that ask, and the answer."""
    opened = Gate()
    opened.open()
    *deltas, done = reply("It is done.")
    provider = ScriptedProvider(
        reply("Let me look. ", call("look", {}), call("run", {}), call("run", {"what": "b"})),
        [*deltas, opened, done],
    )
    asker = ScriptedAsker([ALLOW, ALLOW])
    return provider, [FakeTool(), FakeTool("run", effect="execute")], asker


UPDATES = 38


@pytest.mark.parametrize("number", range(UPDATES))
def test_cancelling_at_any_update_of_a_turn_leaves_it_sound(
    session: AgentSession, number: int
) -> None:
    provider, tools, asker = whole_turn()
    cancel_at_update(session, number)
    outcome = run(session, provider, tools, asker=asker)
    answered = [n for n in session.dag if n.role == "llm" and n.status == "completed"][1:]
    assert outcome.status == ("completed" if answered else "cancelled")
    assert bool(answered) is (number >= UPDATES - 3)
    assert_sound(session)
    assert states(session).count("succeeded") == len(tools[0].calls) + len(tools[1].calls)
    goes_on(session)


def test_a_whole_turn_has_that_many_updates(session: AgentSession) -> None:
    provider, tools, asker = whole_turn()
    assert run(session, provider, tools, asker=asker).status == "completed"
    assert len(kinds(session)) == UPDATES


def test_a_turn_that_is_cancelled_before_its_first_step_ends(session: AgentSession) -> None:
    provider = ScriptedProvider(reply("never"))

    async def start_and_cancel() -> str:
        accepted = await session.start_turn(turn_start(provider, client_request_id="r1"))
        await session.cancel_turn(accepted.turn_id)
        return accepted.turn_id

    turn_id = loop.run_sync(start_and_cancel)
    job = loop.submit(session.wait, turn_id)
    assert job.future.result(5).status == "cancelled"
    assert provider.requests == []
    assert kinds(session)[0] == "turn_started" and kinds(session)[-1] == "turn_finished"
    assert session.dag.turns[turn_id].status == "cancelled"
    goes_on(session)


def test_cancelling_twice_and_again_while_a_tool_tidies_up_is_harmless(
    session: AgentSession,
) -> None:
    gate, tidying = Gate(), Gate()

    class Tidy(FakeTool):
        async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
            try:
                await gate.pass_through()
            finally:
                await tidying.pass_through()
            return ToolOutput(())

    turn_id, job = start_in_background(session, ScriptedProvider(reply(*CALLS)), [Tidy()])
    gate.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    tidying.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    tidying.open()
    with pytest.raises(TurnNotActive):
        loop.run_sync(session.cancel_turn, turn_id)
    assert states(session) == ["cancelled"] * 3
    assert texts(session)[1:] == [NOT_EXECUTED] * 2
    goes_on(session)


@pytest.mark.parametrize("bare", [False, True])
def test_a_cancel_that_comes_while_a_late_tool_is_given_up_is_not_lost(
    session: AgentSession, store: MemoryStore, bare: bool
) -> None:
    never, stopping = Gate(), Gate()

    class Late(FakeTool):
        async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
            try:
                await never.pass_through()
            finally:
                await stopping.pass_through()
            return ToolOutput(())

    provider = ScriptedProvider(reply(*CALLS), reply("went on"))
    tool = Late(timeout=0.01)
    if bare:
        with session_context("s1", store=store, runtime=Runtime(provider=provider)):
            call_job = loop.submit(agent.aio, "go", tools=[tool])
        stopping.wait_reached()
        call_job.cancel()
        with pytest.raises(asyncio.CancelledError):
            call_job.future.result(5)
    else:
        turn_id, job = start_in_background(session, provider, [tool])
        stopping.wait_reached()
        loop.run_sync(session.cancel_turn, turn_id)
        assert job.future.result(5).status == "cancelled"
    stopping.open()
    assert states(session) == ["cancelled"] * 3
    assert len(provider.requests) == 1
    goes_on(session)


def test_a_tool_that_ends_well_although_it_was_cancelled_has_its_true_result(
    session: AgentSession,
) -> None:
    gate = Gate()

    class Stubborn(FakeTool):
        async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                return ToolOutput((TextBlock("the file was written all the same"),))
            return ToolOutput(())

    turn_id, job = start_in_background(session, ScriptedProvider(reply(*CALLS)), [Stubborn()])
    gate.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    assert states(session) == ["succeeded", "cancelled", "cancelled"]
    assert texts(session)[0] == "the file was written all the same"
    goes_on(session)


def test_a_function_that_blocks_its_thread_does_not_hold_the_cancelling(
    session: AgentSession,
) -> None:
    entered, release = threading.Event(), threading.Event()

    def block(what: str = "") -> str:
        """Block."""
        entered.set()
        release.wait(20)
        return "late"

    asker = ScriptedAsker([ALLOW])
    provider = ScriptedProvider(reply(call("block", {}), call("block", {"what": "b"})))
    turn_id, job = start_in_background(session, provider, [block], asker=asker)
    assert entered.wait(10)
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    release.set()
    assert states(session) == ["cancelled", "cancelled"]
    goes_on(session)


def test_cancelling_ends_a_turn_that_waits_for_another_ones_card(session: AgentSession) -> None:
    other = ScriptedProvider(reply(call("run", {}, id="first")), reply("other done"))
    tool = FakeTool("run", effect="execute")
    session.asker = ScriptedAsker()

    async def bare() -> str:
        handle = SessionHandle(MemoryStore(), "s1", None, None, False, session)
        context.bind(handle, None, Runtime(provider=other))
        return await agent.aio("do it", tools=[tool])

    bare_job = loop.submit(bare)
    loop.run_sync(wait_until, session, session.pending_cards)
    asks = ScriptedProvider(reply(call("run", {}, id="second"), call("run", {"what": "b"})))
    turn_id, job = start_in_background(session, asks, [tool])
    loop.run_sync(wait_phase, session, "running_tools")
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    (waiting,) = session.pending_cards()
    assert waiting.id == "first"
    loop.run_sync(session.resolve_permission, waiting.turn_id, "first", ALLOW)
    assert bare_job.future.result(5) == "other done"
    goes_on(session)


def test_an_answer_that_comes_while_the_turn_is_cancelled_is_refused(
    session: AgentSession,
) -> None:
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {}, id="c1")))
    turn_id, job = start_in_background(session, provider, [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")

    async def cancel_and_click() -> None:
        await session.cancel_turn(turn_id)
        with pytest.raises(TurnNotActive):
            await session.resolve_permission(turn_id, "c1", ALLOW)

    loop.run_sync(cancel_and_click)
    assert job.future.result(5).status == "cancelled"
    assert tool.calls == []
    with pytest.raises((TurnNotActive, PermissionNotPending)):
        loop.run_sync(session.resolve_permission, turn_id, "c1", ALLOW)
    goes_on(session)


def test_a_click_and_a_cancel_in_one_step_never_run_the_tool_unseen(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {}, id="c1")))
    turn_id, job = start_in_background(session, provider, [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")

    async def click_and_cancel() -> None:
        await session.resolve_permission(turn_id, "c1", ALLOW)
        await session.cancel_turn(turn_id)

    loop.run_sync(click_and_cancel)
    assert job.future.result(5).status == "cancelled"
    assert states(session) == ["cancelled"]
    assert tool.calls == []
    goes_on(session)


def test_cancelling_while_a_failed_call_waits_for_its_next_attempt(session: AgentSession) -> None:
    waiting = threading.Event()
    provider = ScriptedProvider([ProviderConnectionError("refused", retry_after=200.0)])
    start = turn_start(provider, max_retries=2)
    start.runtime._on_retry = lambda info: waiting.set()
    turn_id = loop.run_sync(session.start_turn, start).turn_id
    job = loop.submit(session.wait, turn_id)
    assert waiting.wait(10)
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    (node,) = [n for n in session.dag if n.role == "llm"]
    assert node.status == "cancelled"
    assert node.metadata["attempts"] == ["Attempt 1: ProviderConnectionError: refused"]
    goes_on(session)


def test_closing_the_stream_is_part_of_cancelling(session: AgentSession) -> None:
    gate = Gate()
    provider = ScriptedProvider([TextDelta("half"), gate, HANG])
    turn_id, job = start_in_background(session, provider)
    gate.wait_reached()
    assert session.snapshot().runtime["draft"] == "half"
    loop.run_sync(session.cancel_turn, turn_id)
    job.future.result(5)
    assert provider.open_streams == 0
    assert session.snapshot().runtime["outcome"]["status"] == "cancelled"
    goes_on(session)


def interrupted_call(
    store: MemoryStore, provider: ScriptedProvider, gate: Gate, work: Callable[[], Any]
) -> Any:
    """*work* in a session, interrupted like by the stop button when *gate* is reached."""

    def wait(future: Any) -> None:
        gate.wait_reached()
        raise KeyboardInterrupt

    with session_context("s1", store=store, runtime=Runtime(provider=provider)) as handle:
        loop.set_waiter(wait)
        try:
            with pytest.raises(KeyboardInterrupt):
                work()
        finally:
            loop.set_waiter(None)
        assert_sound(handle.agent)
        return handle.agent.dag


def test_interrupting_a_bare_agent_in_a_tool_records_it_all_as_cancelled(
    store: MemoryStore,
) -> None:
    gate = Gate()
    tool = FakeTool(gate=gate, trusted=True)
    provider = ScriptedProvider(reply(*CALLS))
    dag = interrupted_call(store, provider, gate, lambda: agent("look", tools=[tool]))
    assert [t.status for t in dag.turns.values()] == ["cancelled"]
    assert [n.status for n in dag if n.role == "code"] == ["cancelled"] * 3


def test_interrupting_fifty_calls_at_once_cancels_and_records_each(tmp_path: Path) -> None:
    waiting: list[int] = []

    async def endless(content: Any) -> str:
        waiting.append(1)
        if len(waiting) == 50:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.Event().wait()
        return ""

    @agentic_function
    async def think(n: int) -> str:
        """Think of a number."""
        return await llm.aio(f"number {n}")

    async def all_of_them() -> None:
        await asyncio.gather(*map(think, range(50)))

    store = SessionStore(tmp_path)
    with session_context("s1", store=store, runtime=Runtime(call=endless)) as handle:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(all_of_them())
        assert_sound(handle.agent)
    stored = store.load("s1")
    assert [n.status for n in stored] == ["cancelled"] * 100
    assert {turn.status for turn in stored.turns.values()} == {"cancelled"}


def test_interrupting_a_function_cancels_it_and_the_call_inside(store: MemoryStore) -> None:
    @agentic_function
    def think() -> str:
        """Think."""
        return llm("deeply")

    gate = Gate()
    dag = interrupted_call(store, ScriptedProvider([gate, HANG]), gate, think)
    assert [(n.role, n.status) for n in dag] == [("code", "cancelled"), ("llm", "cancelled")]
    assert [t.status for t in dag.turns.values()] == ["cancelled"]
