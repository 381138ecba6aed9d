"""The degradation table of the specification: a test a row, for those that no line holds.

Rows held elsewhere: turn or user node, assistant message (`test_bad_disks`), trace
(`test_broken_traces`, `tests/engine/test_trace`), broken streams (`test_broken_streams`), and the
crash after a side effect (`test_restart`).
"""

from __future__ import annotations

from typing import Any

import pytest

from op_jupyter.core.messages import TextDelta
from op_jupyter.engine import loop
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ProviderOverloaded
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from op_jupyter.tools.base import ToolOutput
from tests.engine.harness import (
    FailingStore,
    FakeTool,
    assert_sound,
    results_in,
    run,
    start_in_background,
    texts,
    turn_start,
)


def test_a_result_that_cannot_be_written_ends_the_turn_before_the_next_model_call(
    store: MemoryStore,
) -> None:
    disk = FailingStore(store.open(store.create_session("s2")), 10**6)
    session = AgentSession(disk)  # type: ignore[arg-type]

    def act(arguments: Any) -> str:
        disk.left = 0
        return "done"

    tool = FakeTool(act=act)
    provider = ScriptedProvider(reply(call("look", {}), call("look", {"what": "mate"})))
    outcome = run(session, provider, [tool])
    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert len(provider.requests) == 1 and len(tool.calls) == 1


def test_a_receiver_that_is_gone_changes_nothing_and_the_snapshot_can_be_read(
    session: AgentSession,
) -> None:
    def gone(envelope: Any) -> None:
        raise BrokenPipeError("the page was closed")

    session.subscribe(gone)
    heard: list[int] = []
    session.subscribe(lambda envelope: heard.append(envelope.sequence))
    assert run(session, ScriptedProvider(reply("fine"))).text == "fine"
    snapshot = session.snapshot()
    assert snapshot.runtime["outcome"]["text"] == "fine"
    assert heard == list(range(1, snapshot.last_update_sequence + 1))


@pytest.mark.parametrize("said", [[], [TextDelta("half")]], ids=["nothing", "something"])
def test_a_broken_stream_is_tried_again_only_if_nothing_was_said(
    session: AgentSession, said: list[Any]
) -> None:
    broken = [*said, ProviderOverloaded("busy", retryable=True, retry_after=0.0)]
    provider = ScriptedProvider(broken, reply("whole"))
    start = turn_start(provider, max_retries=1)
    outcome = loop.run_sync(session.run_turn, start)[1]
    if said:
        assert (outcome.status, outcome.code, len(provider.requests)) == (
            "failed",
            "model_error",
            1,
        )
    else:
        assert (outcome.text, len(provider.requests)) == ("whole", 2)
    assert session.snapshot().runtime["outcome"]["text"] == outcome.text
    assert_sound(session)


def burn(arguments: Any) -> Any:
    raise OSError("on fire")


TOOLS = {
    "raises": (lambda: FakeTool(act=burn), "on fire"),
    "raises what ends processes": (lambda: FakeTool(act=_exit), "SystemExit"),
    "hangs": (lambda: FakeTool(timeout=0.01, gate=Gate()), "TimedOut"),
    "returns garbage": (lambda: FakeTool(act=lambda a: ToolOutput("text")), "no tool output"),  # type: ignore[arg-type]
}


def _exit(arguments: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize("how", TOOLS)
def test_a_tool_that_misbehaves_is_an_error_result_and_the_model_goes_on(
    session: AgentSession, how: str
) -> None:
    make, says = TOOLS[how]
    provider = ScriptedProvider(reply(call("look", {})), reply("I see"))
    assert run(session, provider, [make()]).text == "I see"
    (result,) = results_in(provider)
    assert result.state == "error" and says in texts(session)[0]
    assert_sound(session)


def test_a_page_that_joins_late_has_seen_everything(session: AgentSession) -> None:
    """Snapshot, then the updates after its sequence: no gap and nothing twice."""
    gate = Gate()
    provider = ScriptedProvider([TextDelta("half "), gate, *reply("half an answer")])
    _, job = start_in_background(session, provider)
    gate.wait_reached()
    late: list[Any] = []
    session.subscribe(late.append)
    snapshot = session.snapshot()
    assert snapshot.runtime["draft"] == "half "
    gate.open()
    assert job.future.result(5).text == "half an answer"
    after = [e.sequence for e in late if e.sequence > snapshot.last_update_sequence]
    assert after[0] == snapshot.last_update_sequence + 1
    assert after == list(range(after[0], session.snapshot().last_update_sequence + 1))
