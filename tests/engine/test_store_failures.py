"""A disk that refuses, at every write of every kind of call: nothing runs that is not on record,
the first cause is what is told, and the session goes on when the disk does."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.engine import context, loop
from op_jupyter.engine.context import SessionHandle
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.runtime import Runtime, agent, llm
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ReloadRequired, StoreError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from tests.engine.harness import (
    ALLOW,
    DENY,
    FailingStore,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    run,
    start_in_background,
    tool_nodes,
)

WRITES_OF_A_TURN = 25


@pytest.fixture
def disk(store: MemoryStore) -> Iterator[Any]:
    opened = store.open(store.create_session("s1"))
    yield opened
    opened.close()


def asked() -> ScriptedProvider:
    return ScriptedProvider(
        reply(
            call("look", {"what": "free"}),
            call("run", {"what": "allowed"}),
            call("run", {"what": "edited"}),
            call("run", {"what": "by rule from now on"}),
        ),
        reply(call("run", {"what": "by rule"})),
        reply("done"),
    )


def a_whole_turn(session: AgentSession, provider: ScriptedProvider) -> tuple[Any, list[FakeTool]]:
    tools = [FakeTool(), FakeTool("run", effect="execute")]
    answers = [
        ALLOW,
        PermissionAnswer("allow", "click", arguments={"what": "safe"}),
        PermissionAnswer("allow_session", "click"),
    ]
    return run(session, provider, tools, asker=ScriptedAsker(answers)), tools


def assert_what_ran_is_on_record(session: AgentSession, tools: list[FakeTool]) -> None:
    """Every run has its call, and every run that was asked about its decision."""
    dag = session.dag
    answers = [n for n in dag if n.role == "llm" and n.status == "completed"]
    calls = [n for n in dag if n.metadata.get("kind") == "tool"]
    assert len(tools[0].calls) + len(tools[1].calls) <= len(calls)
    assert len(calls) == 0 or answers
    decided = [d for d in dag.decisions if d["answer"] in ("allow", "allow_session")]
    assert len(tools[1].calls) <= len(decided)
    for node in calls:
        assert node.caller in {n.id for n in answers}


@pytest.mark.parametrize("number", range(WRITES_OF_A_TURN))
def test_a_write_that_fails_for_good_ends_the_turn_there(disk: Any, number: int) -> None:
    failing = FailingStore(disk, number, more=float("inf"))
    session = AgentSession(failing)  # type: ignore[arg-type]
    provider = asked()
    outcome, tools = a_whole_turn(session, provider)
    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert_what_ran_is_on_record(session, tools)
    before = len(provider.requests)
    failing.left = 10**6
    assert run(session, ScriptedProvider(reply("again"))).text == "again"
    assert len(provider.requests) == before


@pytest.mark.parametrize("number", range(WRITES_OF_A_TURN))
def test_a_write_that_fails_once_leaves_nothing_that_says_it_runs(disk: Any, number: int) -> None:
    failing = FailingStore(disk, number, more=0)
    session = AgentSession(failing)  # type: ignore[arg-type]
    outcome, tools = a_whole_turn(session, asked())
    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert_what_ran_is_on_record(session, tools)
    assert [n for n in session.dag if n.status == "running"] == []
    assert [t.status for t in session.dag.turns.values()] in ([], ["failed"])
    for asks in [n for n in session.dag if n.role == "llm" and n.output]:
        results = [c.metadata["tool_call_id"] for c in session.dag.children(asks.id)]
        assert len(set(results)) == len(results)
    provider = ScriptedProvider(reply("again"))
    assert run(session, provider).text == "again"
    assert_sendable(provider.requests[0])


def test_a_turn_has_that_many_writes(disk: Any) -> None:
    counting = FailingStore(disk, 10**6, more=0)
    assert a_whole_turn(AgentSession(counting), asked())[0].status == "completed"  # type: ignore[arg-type]
    assert 10**6 - counting.left == WRITES_OF_A_TURN


@pytest.mark.parametrize("how", ["denied", "cancelled"])
def test_the_first_cause_is_kept_when_recording_it_fails(disk: Any, how: str) -> None:
    failing = FailingStore(disk, 10**6, more=float("inf"))
    session = AgentSession(failing)  # type: ignore[arg-type]
    gate = Gate()

    class Full(ScriptedAsker):
        async def decide(self, request: Any) -> PermissionAnswer:
            failing.left = 1 if how == "denied" else 0
            if how == "cancelled":
                await gate.pass_through()
            return DENY

    provider = ScriptedProvider(reply(call("run", {}), call("run", {"what": "b"})))
    tool = FakeTool("run", effect="execute")
    turn_id, job = start_in_background(session, provider, [tool], asker=Full())
    if how == "cancelled":
        gate.wait_reached()
        loop.run_sync(session.cancel_turn, turn_id)
    outcome = job.future.result(5)
    assert (outcome.status, outcome.code) == (
        ("failed", "permission_denied") if how == "denied" else ("cancelled", None)
    )
    failing.left = 10**6
    assert run(session, ScriptedProvider(reply("again"))).text == "again"


# --- calls outside of any turn


def in_failing_session(
    disk: Any, number: int, more: float, provider: ScriptedProvider
) -> tuple[FailingStore, list[Any]]:
    failing = FailingStore(disk, number, more)
    session = AgentSession(failing)  # type: ignore[arg-type]
    runtime = Runtime(provider=provider, max_retries=0)
    handle = SessionHandle(MemoryStore(), "s1", runtime, None, False, session)
    return failing, context.bind(handle, None, runtime)


class Broken(Exception):
    """What the function itself raises."""


@agentic_function
def works() -> str:
    """Work."""
    return llm("hello")


@agentic_function
def breaks() -> str:
    """Break."""
    llm("hello")
    raise Broken("by itself")


WRITES_OF_A_CALL = 4


@pytest.mark.parametrize("more", [0, float("inf")], ids=["once", "for good"])
@pytest.mark.parametrize("number", range(WRITES_OF_A_CALL))
def test_a_call_whose_record_fails_is_never_a_silent_success(
    disk: Any, number: int, more: float
) -> None:
    failing, tokens = in_failing_session(disk, number, more, ScriptedProvider(reply("hi")))
    try:
        with pytest.raises(StoreError):
            works()
    finally:
        context.unbind(tokens)
    if not more:
        assert [n for n in disk.dag if n.status == "running"] == []
        assert [t.status for t in disk.dag.turns.values()] in ([], ["failed"])
    assert failing.left < 0


def test_a_call_of_which_nothing_could_be_stored_leaves_no_turn_behind(disk: Any) -> None:
    failing, tokens = in_failing_session(disk, 0, float("inf"), ScriptedProvider())
    session = context.current_session()
    assert session is not None
    try:
        with pytest.raises(StoreError):
            llm("hello")
    finally:
        context.unbind(tokens)
    failing.left = 10**6
    session.agent.recorder.keep_blob(b"large", "text/plain")  # goes with whatever has begun
    assert list(disk.dag.turns) == []


@pytest.mark.parametrize("more", [0, float("inf")], ids=["once", "for good"])
@pytest.mark.parametrize("number", range(3, WRITES_OF_A_CALL))
def test_what_a_function_raises_is_not_masked_by_a_record_that_fails(
    disk: Any, number: int, more: float
) -> None:
    _, tokens = in_failing_session(disk, number, more, ScriptedProvider(reply("hi")))
    try:
        with pytest.raises(Broken, match="by itself") as caught:
            breaks()
    finally:
        context.unbind(tokens)
    assert "disk full" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("number", range(10))
def test_a_bare_agent_whose_record_fails_is_never_a_silent_success(disk: Any, number: int) -> None:
    provider = ScriptedProvider(reply(call("look", {}), call("look", {"what": "b"})), reply("done"))
    _, tokens = in_failing_session(disk, number, float("inf"), provider)
    try:
        with pytest.raises(StoreError):
            agent("go", tools=[FakeTool()])
    finally:
        context.unbind(tokens)


def test_a_session_that_has_to_be_reloaded_says_so_before_anything_else(disk: Any) -> None:
    session = AgentSession(disk)
    session.require_reload("a test")
    with pytest.raises(ReloadRequired, match="a test"):
        run(session, ScriptedProvider(), client_request_id="r1")
    assert tool_nodes(session) == []
