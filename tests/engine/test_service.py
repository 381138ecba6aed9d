"""The service: what it lists, tells and keeps in order, of stored and of running sessions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from op_jupyter import Runtime, session_context
from op_jupyter.bootstrap import default_service
from op_jupyter.core.messages import TextBlock
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.engine import loop
from op_jupyter.engine.service import Service
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.errors import SessionActive, UnknownSession, UsageError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


@pytest.fixture
def service(store: SessionStore) -> Service:
    return default_service(store)


def answering(text: str = "42") -> Runtime:
    return Runtime(call=lambda content, **_: text)


def ask(session: AgentSession, prompt: str, runtime: Runtime | None = None) -> str:
    start = TurnStart((TextBlock(prompt),), runtime or answering())
    return loop.run_sync(session.run_turn, start)[0]


def record(store: SessionStore, session_id: str, *prompts: str) -> list[str]:
    with session_context(session_id, store=store, create_runtime_if_none=False) as handle:
        return [ask(handle.agent, prompt) for prompt in prompts]


def test_messages_and_attempts_are_told_from_what_is_stored(
    store: SessionStore, service: Service
) -> None:
    def broken(content: object, **_: object) -> str:
        raise ValueError("no luck")

    with session_context("one", store=store, create_runtime_if_none=False) as handle:
        first = ask(handle.agent, "What is the answer?")
        failing = ask(handle.agent, "And the question?", Runtime(call=broken, max_retries=1))

    (done, failed) = service.get_attempts("one")
    assert (done.id, done.status, done.summary, done.error) == (first, "completed", "42", "")
    assert (failed.id, failed.parent_attempt_id, failed.status) == (failing, first, "failed")
    assert failed.prompt == "And the question?"
    assert "no luck" in failed.error
    assert done.finished_at is not None
    said = [(m.role, m.content, m.linked_attempt_id) for m in service.get_messages("one")]
    assert said[:3] == [
        ("user", "What is the answer?", first),
        ("assistant", "42", first),
        ("user", "And the question?", failing),
    ]
    reply = service.get_messages("one", 1)[0]
    assert reply.metadata["status"] == "failed"
    assert "no luck" in reply.content
    assert service.get_messages("one", 0) == []
    info = service.get_session("one")
    assert (info.last_attempt_id, info.status) == (failing, "active")
    assert info.head is not None


def test_archived_sessions_and_those_of_sub_agents_are_listed_when_asked_for(
    store: SessionStore, service: Service
) -> None:
    record(store, "one", "hello")
    record(store, "two", "hello")
    store.create_session("helper", source="agent")
    helper = store.open("helper")
    helper.begin_turn(Turn("t"))
    helper.end_turn("t", "completed")
    helper.close()

    service.archive("one")
    assert [info.id for info in service.list_sessions()] == ["two"]
    assert [info.id for info in service.list_sessions(archived=True)] == ["one"]
    everything = service.list_sessions(archived=None, sub_agents=True)
    assert {info.id for info in everything} == {"one", "two", "helper"}
    service.unarchive("one")
    assert {info.id for info in service.list_sessions(limit=5)} == {"one", "two"}
    assert len(service.list_sessions(limit=1)) == 1


def test_a_session_is_found_by_a_beginning_that_is_unique(
    store: SessionStore, service: Service
) -> None:
    record(store, "alpha-1", "hello")
    record(store, "alpha-2", "hello")

    assert service.find("alpha-2") == "alpha-2"
    assert service.find("alpha-1"[:7]) == "alpha-1"
    with pytest.raises(UnknownSession, match="2 sessions begin with 'alpha'"):
        service.find("alpha")
    with pytest.raises(UnknownSession, match="did you mean"):
        service.get_session("alpha")


def test_what_is_unknown_is_said(service: Service) -> None:
    for call in (service.graph, service.archive, service.delete_session, service.restore_session):
        with pytest.raises(UnknownSession):
            call("nothing")
    with pytest.raises(UsageError, match="no format 'pdf'"):
        service.export("nothing", "pdf")
    with pytest.raises(UsageError, match="cannot be searched"):
        Service(MemoryStore()).search("x")
    with pytest.raises(UsageError, match="1001 characters"):
        service.search("x" * 1001)


def test_a_session_that_runs_here_is_seen_live_and_cannot_be_deleted(
    store: SessionStore, service: Service
) -> None:
    with session_context("one", store=store, create_runtime_if_none=False) as handle:
        handle.agent.recorder.append(Node("n", "user", "user", [], status="completed"))
        assert service.graph("one").node("n").id == "n"
        with pytest.raises(SessionActive, match="open in this process"):
            service.delete_session("one")
        with service.reading("one") as session:
            assert "n" in session.dag.nodes
    assert service.bus.replay("one") != []
    service.delete_session("one")
    assert service.list_sessions() == []
    assert service.bus.replay("one") == []
    service.restore_session("one")
    service.delete_session("one")
    service.purge_session("one")
    with pytest.raises(UnknownSession):
        service.restore_session("one")


def test_turns_that_others_run_are_told_on_one_bus(store: SessionStore, service: Service) -> None:
    with service.bus.subscribe() as events:
        (attempt,) = record(store, "one", "hello")
        told = [event.kind for event in iter(lambda: events.get(0.0), None)]

    assert [kind for kind in told if "." in kind] == [
        "session.created",
        "message.received",
        "attempt.created",
        "attempt.started",
        "attempt.completed",
    ]
    assert told[0] == "session.created"
    record(store, "one", "again")
    later = default_service(SessionStore(store.root_path))  # another one, of the same place
    assert later.bus is service.bus
    replayed = later.bus.replay("one")
    assert replayed is not None
    kinds = [event.kind for event in replayed]
    assert kinds.count("session.created") == 1
    assert kinds.count("attempt.completed") == 2
    assert {event.data["attempt_id"] for event in replayed if event.kind == "attempt.created"} == {
        turn.id for turn in store.load("one").turns.values()
    }
    assert attempt in store.load("one").turns
    assert default_service(SessionStore(store.root_path / "other")).bus is not service.bus


def test_sessions_in_memory_have_a_bus_of_their_store() -> None:
    store, other = MemoryStore(), MemoryStore()
    assert Service(store).bus is Service(store).bus
    assert Service(store).bus is not Service(other).bus


def test_a_session_is_told_as_created_once_whoever_makes_it(service: Service) -> None:
    one = service.create_session("one")
    service.archive(one)
    with session_context(one, store=service.store, create_runtime_if_none=False) as handle:
        ask(handle.agent, "hello")
    replayed = service.bus.replay(one)
    assert replayed is not None
    assert [e.kind for e in replayed].count("session.created") == 1
    assert replayed[0].data == {"title": "one"}


def test_sessions_that_come_in_or_are_forked_are_told_as_created(
    store: SessionStore, service: Service, tmp_path: Path
) -> None:
    record(store, "one", "hello")
    document = tmp_path / "one.json"
    document.write_text(service.export("one", "json"))
    with service.bus.subscribe() as events:
        taken = service.import_session(document).session_id
        fork = service.fork_session("one")
        told = list(iter(lambda: events.get(0.0), None))

    assert [(e.session_id, e.kind) for e in told] == [
        (taken, "session.created"),
        (fork, "session.created"),
    ]
    assert len({"one", taken, fork}) == 3
    assert service.get_attempts(fork)[0].summary == "42"


def test_upkeep_knows_what_this_process_has_open(
    store: SessionStore, service: Service, tmp_path: Path
) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git executable")
    remote = str(tmp_path / "remote.git")
    subprocess.run(["git", "init", "-q", "--bare", remote], check=True)
    upkeep = service.upkeep
    with session_context("one", store=store, create_runtime_if_none=False) as handle:
        ask(handle.agent, "hello")
        upkeep.push("one", remote)
        assert upkeep.pushed(remote) == ["one"]
        before, after = upkeep.pack("one")  # its own writer does it
        assert 0 < after <= before
        for refused in (lambda: upkeep.mend("one"), lambda: upkeep.pull(remote, "one")):
            with pytest.raises(SessionActive, match="open in this process"):
                refused()
        assert "this process" in upkeep.examine("one").holder
        other = default_service(SessionStore(tmp_path / "other"))
        other.upkeep.pull(remote, "one")  # all that was stored by then was committed
        assert list(other.graph("one")) == list(service.graph("one"))
    assert upkeep.mend("one").healthy
    assert upkeep.pull(remote, "one").session_id == "one"
    service.delete_session("one")
    assert [trashed.info.id for trashed in upkeep.trash()] == ["one"]
    assert upkeep.purge_older(0.0) == ["one"]
    with pytest.raises(UsageError, match="kept in memory"):
        _ = Service(MemoryStore()).upkeep


def test_the_service_needs_no_notebook() -> None:
    code = (
        "import sys; from op_jupyter.bootstrap import default_service; default_service();"
        "heavy = ('IPython', 'traitlets', 'ipywidgets', 'anthropic', 'pydantic');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_fifty_sessions_are_listed_unless_more_are_asked_for() -> None:
    store = MemoryStore()
    for number in range(51):
        session = store.open(store.create_session(f"s{number}"))
        session.set_meta(title="one")
        session.close()
    service = Service(store)
    assert len(service.list_sessions()) == 50
    assert len(service.list_sessions(60)) == 51
