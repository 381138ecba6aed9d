"""Acceptance line 10: every operation of a trace raises, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import request_to_json
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.trace import Trace
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import ALLOW, FakeTool, ScriptedAsker, assert_sound, run


class Broken(Exception):
    """What a broken tracer raises."""


class BreakingSpan:
    """A span whose operation *broken* raises."""

    def __init__(self, broken: str) -> None:
        self._broken = broken

    def _do(self, operation: str) -> None:
        if self._broken in (operation, "everything"):
            raise Broken(operation)

    def is_recording(self) -> bool:
        self._do("is_recording")
        return True

    def set_attributes(self, attributes: Any) -> None:
        self._do("set_attributes")

    def set_status(self, status: Any) -> None:
        self._do("set_status")

    def end(self, end_time: int) -> None:
        self._do("end")


class BreakingTracer:
    def __init__(self, broken: str) -> None:
        self._broken = broken

    def start_span(self, name: str, **values: Any) -> BreakingSpan:
        if self._broken in ("start_span", "everything"):
            raise Broken("start_span")
        return BreakingSpan(self._broken)


def no_tracer() -> Any:
    raise Broken("tracer")


OPERATIONS: Final[dict[str, Callable[[], Any]]] = {
    "tracer": no_tracer,
    **{
        name: (lambda name=name: BreakingTracer(name))
        for name in (
            "start_span",
            "is_recording",
            "set_attributes",
            "set_status",
            "end",
            "everything",
        )
    },
}


def story(trace: Callable[[str], Trace] | None) -> tuple[Any, ...]:
    """A turn with all kinds of spans: what was sent, stored and told, without what varies."""
    store = MemoryStore(clock=lambda: 1.0)
    numbers = iter(range(1000))
    opened = store.open(store.create_session("s1"))
    session = AgentSession(opened, clock=lambda: 1.0, new_id=lambda kind: f"{kind}-{next(numbers)}")
    if trace is not None:
        session.trace = trace("s1")
    provider = ScriptedProvider(
        reply("Hm. ", call("look", {}), call("run", {}), call("fly", {})), reply("done")
    )
    tools = [FakeTool(), FakeTool("run", effect="execute")]
    outcome = run(session, provider, tools, asker=ScriptedAsker([ALLOW]))
    assert_sound(session)
    session.trace.flush(5)
    shape = [(n.id, n.role, n.name, n.status, n.output, n.caller) for n in session.dag]
    told = [
        (e.update.kind, e.update.data.get("id"))
        for e in session.replay_updates(0) or ()
        if e.update.kind != "turn_finished"
    ]
    sent = [canonical_json(request_to_json(r)) for r in provider.requests]
    return outcome, shape, told, sent, session.trace.dropped_signals


@pytest.mark.parametrize("broken", OPERATIONS)
def test_a10_every_trace_operation_raising_changes_nothing(broken: str) -> None:
    *expected, _ = story(None)
    *happened, dropped = story(lambda name: Trace(name, tracer=OPERATIONS[broken]))
    assert happened == expected
    assert dropped > 0
