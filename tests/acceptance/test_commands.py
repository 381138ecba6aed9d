"""Acceptance lines 6, 7, 14 and 15: permission, cancelling, and the checks of the commands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from op_jupyter.core.messages import TextDelta, message_from_json
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.turn import NOT_EXECUTED
from op_jupyter.engine import loop, registry
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import (
    Busy,
    PermissionNotPending,
    ReloadRequired,
    SessionActive,
    TurnNotActive,
)
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import HANG, Gate, ScriptedProvider, call, reply
from op_jupyter.tools.base import ToolContext, ToolOutput
from tests.engine.harness import (
    ALLOW,
    DENY,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    assert_sound,
    results_in,
    run,
    start_in_background,
    states,
    texts,
    wait_phase,
)


def goes_on(session: AgentSession) -> ScriptedProvider:
    """The next turn works, and its request can be sent."""
    provider = ScriptedProvider(reply("next"))
    assert run(session, provider, prompt="and now?").text == "next"
    assert_sendable(provider.requests[0])
    assert_sound(session)
    return provider


# --- 6: allow, deny, rule


def test_a06_allow_runs_that_call_only(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    asker = ScriptedAsker([ALLOW, ALLOW, ALLOW])
    same, other = call("look", {"what": "a"}), call("look", {"what": "b"})
    provider = ScriptedProvider(reply(same), reply(same), reply(other), reply("ok"))
    assert run(session, provider, [tool], asker=asker).status == "completed"
    assert [r.arguments for r in asker.requests] == [{"what": "a"}, {"what": "a"}, {"what": "b"}]
    assert session.rules == {"allow": [], "deny": []}
    assert [d["answer"] for d in session.dag.decisions] == ["allow"] * 3
    assert_sound(session)


def test_a06_deny_ends_the_turn(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {})))
    outcome = run(session, provider, [tool], asker=ScriptedAsker([DENY]))
    assert (outcome.status, outcome.code) == ("failed", "permission_denied")
    assert tool.calls == [] and states(session) == ["denied"]
    assert results_in(goes_on(session))[0].state == "denied"


def test_a06_deny_with_a_message_goes_on(session: AgentSession) -> None:
    asker = ScriptedAsker([PermissionAnswer("deny_message", "click", message="use the cache")])
    provider = ScriptedProvider(reply(call("look", {})), reply("I used the cache"))
    tool = FakeTool(effect="execute")
    assert run(session, provider, [tool], asker=asker).status == "completed"
    (result,) = results_in(provider)
    assert tool.calls == [] and result.state == "denied"
    assert "use the cache" in result.content[0].text  # type: ignore[union-attr]
    assert_sound(session)


def test_a06_a_rule_s_denial_is_a_result_and_the_turn_goes_on(session: AgentSession) -> None:
    session.add_rule("deny", "look")
    tool, asker = FakeTool(), ScriptedAsker()
    provider = ScriptedProvider(reply(call("look", {})), reply("cannot"))
    outcome = run(session, provider, [tool], asker=asker)
    assert (outcome.status, outcome.text) == ("completed", "cannot")
    assert tool.calls == [] and asker.requests == [] and states(session) == ["denied"]
    assert results_in(provider)[0].state == "denied" and "look" in texts(session)[0]
    assert_sound(session)


# --- 7: cancel


@pytest.mark.parametrize("where", ["before the first event", "mid-stream", "approval", "tool"])
def test_a07_cancel_leaves_no_draft_right_results_and_a_usable_session(
    session: AgentSession, where: str
) -> None:
    gate = Gate()
    asks = [call("look", {"what": w}, id=w) for w in "abc"]
    tool = FakeTool(effect="execute" if where == "approval" else "read", gate=gate)
    scripts: dict[str, Any] = {
        "before the first event": [gate, HANG],
        "mid-stream": [TextDelta("half an answer"), gate, HANG],
        "approval": reply(*asks),
        "tool": reply(*asks),
    }
    provider = ScriptedProvider(scripts[where])
    turn_id, job = start_in_background(session, provider, [tool])
    if where == "approval":
        loop.run_sync(wait_phase, session, "waiting_permission")
    else:
        gate.wait_reached()
    if where == "mid-stream":
        assert session.snapshot().runtime["draft"] == "half an answer"
    loop.run_sync(session.cancel_turn, turn_id)
    outcome = job.future.result(5)
    assert (outcome.status, outcome.code, outcome.text) == ("cancelled", None, "")
    assert session.dag.turns[turn_id].status == "cancelled"
    assert provider.open_streams == 0 and len(provider.requests) == 1
    assert "half an answer" not in str([n.output for n in session.dag])
    if where in ("approval", "tool"):
        assert states(session) == ["cancelled"] * 3
        assert texts(session)[1:] == [NOT_EXECUTED] * 2
        assert len(tool.calls) == (where == "tool")
    with pytest.raises(TurnNotActive):
        loop.run_sync(session.cancel_turn, turn_id)
    after = goes_on(session)
    assert [r.state for r in results_in(after)] == [
        "interrupted" for _ in asks if where in ("approval", "tool")
    ]
    assert "half an answer" not in str(after.requests[0].messages)


def test_a07_a_decision_after_the_cancelling_is_refused(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {}, id="c1")))
    turn_id, job = start_in_background(session, provider, [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")

    async def cancel_then_click() -> None:
        await session.cancel_turn(turn_id)
        with pytest.raises(TurnNotActive):
            await session.resolve_permission(turn_id, "c1", ALLOW)

    loop.run_sync(cancel_then_click)
    assert job.future.result(5).status == "cancelled"
    assert tool.calls == [] and states(session) == ["cancelled"]
    goes_on(session)


def test_a07_a_cancelling_that_is_noticed_when_a_call_begins_still_gives_it_a_result(
    session: AgentSession,
) -> None:
    def cancel_at_start(envelope: Any) -> None:
        if envelope.update.kind == "tool_call_started" and envelope.update.data["id"] == "b":
            with pytest.raises(StopIteration):
                session.cancel_turn(envelope.turn_id).send(None)

    session.subscribe(cancel_at_start)
    asks = [call("look", {"what": w}, id=w) for w in "abc"]
    assert run(session, ScriptedProvider(reply(*asks)), [FakeTool()]).status == "cancelled"
    assert states(session) == ["succeeded", "cancelled", "cancelled"]
    goes_on(session)


def test_a07_a_tool_that_reports_cancelled_cancels_the_turn(session: AgentSession) -> None:
    class Stopped(FakeTool):
        async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
            raise asyncio.CancelledError

    provider = ScriptedProvider(reply(call("look", {}), call("look", {"what": "b"})))
    assert run(session, provider, [Stopped()]).status == "cancelled"
    assert states(session) == ["cancelled", "cancelled"]
    goes_on(session)


# --- 14: request ids


def test_a14_the_same_request_id_is_the_same_turn_at_any_time(store: MemoryStore) -> None:
    session = registry.acquire(store, store.create_session("s2"))
    tool = FakeTool(gate=Gate())
    provider = ScriptedProvider(reply(call("look", {})), reply("once"))
    turn_id, job = start_in_background(session, provider, [tool], client_request_id="r1")
    assert tool.gate is not None
    tool.gate.wait_reached()
    again, other_job = start_in_background(session, provider, [tool], client_request_id="r1")
    assert again == turn_id
    with pytest.raises(Busy) as busy:
        run(session, ScriptedProvider(), client_request_id="r2")
    assert busy.value.turn_id == turn_id
    with pytest.raises(Busy):
        run(session, ScriptedProvider())
    tool.gate.open()
    assert job.future.result(5).text == other_job.future.result(5).text == "once"
    assert start_in_background(session, provider, client_request_id="r1")[0] == turn_id
    registry.release(session)
    session = registry.acquire(store, "s2")
    restarted, job = start_in_background(session, provider, client_request_id="r1")
    assert (restarted, job.future.result(5).text) == (turn_id, "once")
    registry.release(session)
    assert len(provider.requests) == 2 and len(tool.calls) == 1


def test_a14_an_interrupted_request_is_not_run_again(store: MemoryStore) -> None:
    session = registry.acquire(store, store.create_session("s2"))
    tool = FakeTool(gate=Gate())
    provider = ScriptedProvider(reply(call("look", {})))
    turn_id, job = start_in_background(session, provider, [tool], client_request_id="r1")
    assert tool.gate is not None
    tool.gate.wait_reached()
    store.crash()
    registry.release(session)
    tool.gate.open()
    job.future.result(5)
    session = registry.acquire(store, "s2")
    again, job = start_in_background(session, provider, client_request_id="r1")
    outcome = job.future.result(5)
    assert again == turn_id and outcome.status == "failed"
    assert session.dag.turns[turn_id].status == "interrupted"
    registry.release(session)
    assert len(provider.requests) == 1


# --- 15: the wrong moment


def test_a15_a_decision_with_a_wrong_id_leaves_the_card(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {}, id="c1")), reply("ok"))
    turn_id, job = start_in_background(session, provider, [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")
    card = session.snapshot().runtime["permission"]
    with pytest.raises(TurnNotActive):
        loop.run_sync(session.resolve_permission, "other", "c1", ALLOW)
    with pytest.raises(PermissionNotPending):
        loop.run_sync(session.resolve_permission, turn_id, "c9", DENY)
    assert session.snapshot().runtime["permission"] == card
    assert [r.id for r in session.pending_cards()] == ["c1"] and tool.calls == []
    loop.run_sync(session.resolve_permission, turn_id, "c1", ALLOW)
    assert job.future.result(5).text == "ok"


@pytest.mark.parametrize("command", ["compact", "rewind"])
def test_a15_compact_and_rewind_are_refused_while_a_turn_is_active(
    session: AgentSession, command: str
) -> None:
    run(session, ScriptedProvider(reply("first")))
    prompt = session.dag.spine()[0].id
    tool = FakeTool(gate=Gate())
    provider = ScriptedProvider(reply(call("look", {})), reply("ok"))
    _, job = start_in_background(session, provider, [tool])
    assert tool.gate is not None
    tool.gate.wait_reached()
    never = ScriptedProvider()
    before, head = len(session.dag), session.dag.head
    with pytest.raises(SessionActive):
        if command == "compact":
            loop.run_sync(session.compact, CompactionStart(Runtime(provider=never)))
        else:
            loop.run_sync(session.rewind, prompt)
    assert (len(session.dag), session.dag.head, never.requests) == (before, head, [])
    tool.gate.open()
    assert job.future.result(5).text == "ok"
    if command == "rewind":
        loop.run_sync(session.rewind, prompt)
        assert session.dag.head is None


def test_a15_reload_required_is_cured_by_reloading_in_place(store: MemoryStore) -> None:
    session = registry.acquire(store, store.create_session("s2"))
    run(session, ScriptedProvider(reply("first")))
    session.require_reload("a test")
    prompt = session.dag.spine()[0].id
    with pytest.raises(ReloadRequired):
        loop.run_sync(session.rewind, prompt)
    with pytest.raises(ReloadRequired):
        loop.run_sync(session.compact, CompactionStart(Runtime(provider=ScriptedProvider())))
    loop.run_sync(session.reload)
    assert run(session, ScriptedProvider(reply("second"))).text == "second"
    assert len(session.dag.spine()) == 4
    registry.release(session)


def test_a15_reload_required_refuses_turns_until_the_session_is_opened_again(
    store: MemoryStore,
) -> None:
    session = registry.acquire(store, store.create_session("s2"))
    run(session, ScriptedProvider(reply("first")))
    session.require_reload("its summary could not be installed")
    for _ in range(2):
        with pytest.raises(ReloadRequired, match="could not be installed"):
            run(session, ScriptedProvider())
    assert len(session.dag) == 2 and session.snapshot().runtime["state"] == "terminal"
    registry.release(session)
    session = registry.acquire(store, "s2")
    assert run(session, ScriptedProvider(reply("second"))).text == "second"
    assert message_from_json(session.dag.spine()[1].output).text == "first"
    registry.release(session)
