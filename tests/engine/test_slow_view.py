"""200 tool calls in one turn, and a page that cannot keep up."""

from __future__ import annotations

import queue
import threading
from typing import Any, Final

from op_jupyter.engine.session import AgentSession
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.views.agent_view import AgentView
from tests.engine.harness import FakeTool, assert_sound, run

CALLS: Final = 200
TEXT: Final = "x" * 5_000
KEPT: Final = 512
"""So many updates are kept for whoever comes late."""


def a_long_turn(session: AgentSession) -> tuple[Any, list[Any]]:
    asked = [call("look", {"what": str(n)}, id=f"c{n}") for n in range(CALLS)]
    provider = ScriptedProvider(reply("Many. ", *asked), reply("done"))
    outcome = run(session, provider, [FakeTool(act=lambda a: a["what"] + TEXT)])
    assert_sound(session)
    told = [(n.role, n.name, n.status, n.output) for n in session.dag]
    return outcome, told


def session_in(store: MemoryStore) -> AgentSession:
    return AgentSession(store.open(store.create_session()))


def test_a_view_that_consumes_slowly_changes_nothing_and_misses_nothing() -> None:
    """The consumer stands still until the turn is over: no deadlock, and the same result."""
    expected = a_long_turn(session_in(MemoryStore()))
    session = session_in(MemoryStore())
    over = threading.Event()
    sent: list[Any] = []
    waiting: queue.Queue[Any] = queue.Queue()

    def consume() -> None:
        assert over.wait(60)
        while (item := waiting.get(timeout=10)) is not None:
            sent.append(item)

    consumer = threading.Thread(target=consume)
    consumer.start()
    unsubscribe = session.subscribe(waiting.put)
    try:
        happened = a_long_turn(session)
    finally:
        over.set()
        waiting.put(None)
        consumer.join(20)
    unsubscribe()
    assert happened == expected
    assert [e.sequence for e in sent] == list(range(1, len(sent) + 1))
    finished = [e.update.data["id"] for e in sent if e.update.kind == "tool_call_finished"]
    assert finished == [f"c{n}" for n in range(CALLS)]


def test_what_is_kept_for_pages_is_bounded_and_a_late_one_takes_the_snapshot() -> None:
    session = session_in(MemoryStore())
    view = AgentView()
    view.attach(subscribe=session.subscribe, client_request_id=None, turn_id=None)
    a_long_turn(session)
    last = session.snapshot().last_update_sequence
    assert last > KEPT
    assert session.replay_updates(0) is None  # the gap is said
    kept = session.replay_updates(last - KEPT)
    assert kept is not None and len(kept) == KEPT
    # An update holds the beginning and the end of a result, never the whole.
    assert max(len(str(e.to_json())) for e in kept) < 8_000
    snapshot = session.snapshot()
    assert snapshot.runtime["outcome"]["status"] == "completed"
    view.close()


def test_the_memory_of_the_live_state_does_not_grow_with_the_results() -> None:
    session = session_in(MemoryStore())
    largest = 0

    def measure(envelope: Any) -> None:
        nonlocal largest
        finished = envelope.update.kind == "tool_call_finished"
        if finished and envelope.update.data["id"] in ("c0", "c99", "c199"):
            largest = max(largest, len(str(session.snapshot().to_json())))

    session.subscribe(measure)
    a_long_turn(session)
    # Each of the 200 calls takes its line and 2,000 characters of its result at most.
    assert largest < CALLS * 3_000
