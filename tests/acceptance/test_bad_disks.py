"""Acceptance lines 11 and 17: a store that refuses, at every write of a turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import pytest

from op_jupyter.core.messages import message_from_json
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.engine import registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import (
    ALLOW,
    DENY,
    FailingStore,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    run,
    tool_nodes,
)


@pytest.fixture
def opened(store: MemoryStore) -> Iterator[Any]:
    session = store.open(store.create_session("s1"))
    yield session
    session.close()


ENDS: Final[dict[str, tuple[str, str | None]]] = {
    "answer": ("completed", None),
    "deny": ("failed", "permission_denied"),
    "limit": ("failed", "max_model_calls"),
    "doom loop": ("failed", "doom_loop"),
}


def a_turn(session: AgentSession, ending: str) -> tuple[Any, ScriptedProvider, list[FakeTool]]:
    """A turn with a free call, calls that ask, and one of the ways to end."""
    tools = [FakeTool(), FakeTool("run", effect="execute")]
    last = {
        "answer": reply("done"),
        "deny": reply(call("run", {"what": "no"}), call("run", {"what": "mate"})),
        "limit": reply(call("look", {"what": "last"})),
        "doom loop": reply(*[call("look", {"what": "same"})] * 3, call("run", {"what": "mate"})),
    }[ending]
    asks = [
        call("look", {"what": "free"}),
        call("run", {"what": "allowed"}),
        call("run", {"what": "edited"}),
        call("fly", {}),
    ]
    provider = ScriptedProvider(reply("Hm. ", *asks), last)
    answers = [ALLOW, PermissionAnswer("allow", "click", arguments={"what": "safe"}), DENY]
    outcome = run(session, provider, tools, asker=ScriptedAsker(answers), max_steps=2)
    return outcome, provider, tools


def writes_of(ending: str) -> int:
    store = MemoryStore()
    disk = FailingStore(store.open(store.create_session()), 10**6)
    outcome, _, _ = a_turn(AgentSession(disk), ending)  # type: ignore[arg-type]
    assert (outcome.status, outcome.code) == ENDS[ending]
    return 10**6 - disk.left


EVERY_WRITE: Final = [(ending, n) for ending in ENDS for n in range(writes_of(ending))]


class ForgetsAnswers(FailingStore):
    """Refuses each write that would store an assistant's message."""

    def __getattr__(self, name: str) -> Any:
        write = super().__getattr__(name)
        if name != "update":
            return write

        def update(node_id: str, **fields: Any) -> Any:
            if fields.get("output", {}).get("role") == "assistant":
                self.left = 0
            return write(node_id, **fields)

        return update


def test_a11_a_tool_whose_request_is_not_stored_never_runs(opened: Any) -> None:
    session = AgentSession(ForgetsAnswers(opened, 10**6, more=0))  # type: ignore[arg-type]
    provider = ScriptedProvider(reply(call("look", {}), call("look", {"what": "b"})))
    look = FakeTool()
    outcome = run(session, provider, [look])
    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert look.calls == [] and tool_nodes(session) == [] and len(provider.requests) == 1
    assert [n.status for n in session.dag] == ["completed", "error"]
    assert session.dag.spine()[-1].output is None


def assert_invariants(session: AgentSession, tools: list[FakeTool]) -> None:
    """What ran is on record; each call has at most one result, and its message before it."""
    dag = session.dag
    asked = [use for n in dag if n.role == "llm" and n.output for use in message_of(n).tool_uses]
    calls = tool_nodes(session)
    assert sum(len(tool.calls) for tool in tools) <= len(calls) <= len(asked)
    ids = [n.metadata["tool_call_id"] for n in calls]
    assert len(set(ids)) == len(ids)
    for node in calls:
        caller = dag.node(node.caller or "")
        assert caller.status == "completed" and caller.seq < node.seq
    allowed = [d for d in dag.decisions if d["answer"] == "allow"]
    assert len(tools[1].calls) <= len(allowed)
    # No model call but the first was made before each call of the one before had its result.
    answers = [n for n in dag if n.role == "llm"]
    for before, after in pairwise(answers):
        results = dag.children(before.id)
        assert len(results) == len(message_of(before).tool_uses)
        assert all(n.metadata["done_seq"] < after.seq and n.output for n in results)


def message_of(node: Any) -> Any:
    return message_from_json(node.output)


@pytest.mark.parametrize(("ending", "number"), EVERY_WRITE)
@pytest.mark.parametrize("more", [0, 1, float("inf")], ids=["once", "twice", "for good"])
def test_a17_a_store_failure_at_every_write_keeps_the_invariants(
    store: MemoryStore, ending: str, number: int, more: float
) -> None:
    disk = FailingStore(store.open(store.create_session("s1")), number, more)
    session = AgentSession(disk)  # type: ignore[arg-type]
    outcome, _, tools = a_turn(session, ending)
    assert outcome.status == "failed"
    # The first cause: what ended the turn before its record was refused, or the refusal.
    assert outcome.code in ("persistence_error", ENDS[ending][1])
    assert_invariants(session, tools)
    ran = [len(tool.calls) for tool in tools]
    assert session.active_turn_id is None

    store.crash()  # the process ends, and another one opens the session
    again = registry.acquire(store, "s1")
    assert_invariants(again, tools)
    assert not [n for n in again.dag if n.status == "running"]
    assert not [t for t in again.dag.turns.values() if t.status == "running"]
    provider = ScriptedProvider(reply("again"))
    assert run(again, provider).text == "again"
    assert [len(tool.calls) for tool in tools] == ran
    assert_sendable(provider.requests[0])
    registry.release(again)


@pytest.mark.parametrize("ending", [e for e in ENDS if e != "answer"])
def test_a17_the_first_cause_is_kept_when_the_end_cannot_be_recorded(
    opened: Any, ending: str
) -> None:
    disk = FailingStore(opened, writes_of(ending) - 1, float("inf"))
    outcome, _, _ = a_turn(AgentSession(disk), ending)  # type: ignore[arg-type]
    assert (outcome.status, outcome.code) == ENDS[ending]


def test_a17_nothing_was_written_means_no_model_call(opened: Any) -> None:
    for number in range(2):  # the turn's record, the user's node
        provider = ScriptedProvider(reply("never"))
        session = AgentSession(FailingStore(opened, number, float("inf")))  # type: ignore[arg-type]
        outcome = run(session, provider)
        assert (outcome.code, provider.requests) == ("persistence_error", [])
