"""What goes on beside a turn: sub-agents, worktrees, other processes; and what a kill leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.agents import AGENT
from op_jupyter.engine import context, loop, registry
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.context import SessionHandle, current_session
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.worktrees import end_worktree
from op_jupyter.errors import SessionActive, SessionLocked
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from op_jupyter.tools.files import file_tools
from tests.engine.harness import (
    FailingStore,
    FakeTool,
    assert_sendable,
    assert_sound,
    results_in,
    run,
    start_in_background,
    states,
    wait_phase,
)
from tests.engine.test_agents import PARENT, WAIT, arrived, ask, by_task, spawn, write
from tests.engine.test_compaction import summary

TESTS = Path(__file__).parents[1]


@pytest.fixture
def session(store: MemoryStore) -> Iterator[AgentSession]:
    opened = registry.acquire(store, store.create_session("s1"))
    yield opened
    registry.release(opened)


@pytest.fixture
def repo(session: AgentSession, tmp_path: Path) -> Path:
    """A repository with one commit, which is the session's workspace."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("mine")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    session.workspace = folder
    return folder


async def all_done(session: AgentSession) -> None:
    for agent, _ in session.agents.listed():
        await agent.ended.wait()


def tasks(session: AgentSession) -> list[Any]:
    return [n for n in session.dag if n.metadata.get("kind") == AGENT]


def test_a_conversation_is_compacted_beside_sub_agents_whose_results_are_told_once(
    session: AgentSession,
) -> None:
    """One ends while the summary is written, the other one after it."""
    first, second, writing = Gate(), Gate(), Gate()
    provider = by_task(
        {
            PARENT: [
                reply(spawn("task one"), spawn("task two")),
                reply("meanwhile"),
                [writing, *reply(summary("they are at work"))],
            ],
            "task one": [[first, *reply("one is done")]],
            "task two": [[second, *reply("two is done")]],
        }
    )
    ask(session, provider)
    first.wait_reached()
    second.wait_reached()
    start = CompactionStart(Runtime(provider=provider, max_retries=0))
    compacting = loop.submit(session.compact, start)
    writing.wait_reached()
    first.open()
    loop.run_sync(session.agents.get("agent-1").ended.wait)
    writing.open()
    assert compacting.future.result(10)[1].status == "completed"
    second.open()
    loop.run_sync(all_done, session)
    for _ in range(2):
        after = ScriptedProvider(reply("I see"))
        assert run(session, after, prompt="and now?").text == "I see"
        assert_sendable(after.requests[0])
        told = str(after.requests[0].messages)
        assert "they are at work" in told and "meanwhile" not in told
        assert [told.count("one is done"), told.count("two is done")] == [1, 1]
    assert_sound(session)


def test_wherever_the_disk_dies_each_result_is_told_once_after_the_restart() -> None:
    told = []
    for writes in range(1, 30):
        store = MemoryStore()
        home = registry.acquire(store, store.create_session("home"))
        disk = FailingStore(store.open(store.create_session("s1")), writes)
        session = AgentSession(disk)  # type: ignore[arg-type]
        session.home = home.home
        provider = by_task(
            {PARENT: [reply(spawn("go")), reply(WAIT), reply("ok")], "go": [reply("gone")]}
        )
        ask(session, provider)
        loop.run_sync(all_done, session)
        died = disk.left < 0
        store.crash()
        registry.release(home)
        opened = registry.acquire(store, "s1")
        for _ in range(2):
            after = ScriptedProvider(reply("I see"))
            run(opened, after, prompt="and now?")
            messages = [str(n) for n in arrived(opened)]
            assert len(messages) == len(tasks(opened)), writes
            assert str(after.requests[0].messages).count("[message from") == len(messages)
        told += messages
        registry.release(opened)
        if not died:
            break
    assert not died
    assert {text.split("\n")[1] for text in told} == {"[interrupted]", "[completed]"}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process: with two sub-agents in a session, and a turn in another one."""
    started = subprocess.Popen(
        [sys.executable, "-m", "support.parent_writer", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    with started, started.stdout:
        assert started.stdout.readline() == "ready\n"
        yield started
        started.kill()


def test_another_process_s_sessions_are_refused_by_name_and_after_kill_9_all_is_told_once(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    store = SessionStore(tmp_path)
    for session_id in ("parent", "parent.agent-2", "other"):
        with pytest.raises(SessionLocked, match=f"process {process.pid}"):
            registry.acquire(store, session_id)
    with pytest.raises(SessionLocked, match=str(process.pid)):
        registry.acquire(store, "other", timeout=0.2)
    freed = threading.Timer(0.2, process.kill)
    freed.start()
    other = registry.acquire(store, "other", timeout=30)  # waits as long as it was asked to
    assert [turn.status for turn in other.dag.turns.values()] == ["interrupted"]
    registry.release(other)
    session = registry.acquire(store, "parent", timeout=30)
    assert [task.status for task in tasks(session)] == ["completed", "interrupted"]
    for _ in range(2):
        provider = ScriptedProvider(reply("I see"))
        run(session, provider, prompt="and now?")
        assert len(provider.requests) == 1
        assert str(provider.requests[0].messages).count("[message from") == 2
        assert [text.split("\n")[1] for text in arrived(session)] == [
            *("[completed]", "[interrupted]")
        ]
        registry.release(session)
        session = registry.acquire(SessionStore(tmp_path), "parent")
    registry.release(session)


def test_closing_a_session_ends_a_turn_that_was_left_waiting_for_a_card(
    session: AgentSession, store: MemoryStore
) -> None:
    """Whether the call did anything is not known; the session goes on when it is opened again."""
    registry.acquire(store, "s1")  # the fixture lets go of it once more
    tool = FakeTool("run", effect="execute")
    asked = reply(call("run", {}), call("run", {"what": "mate"}))
    _, job = start_in_background(session, ScriptedProvider(asked), [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")
    session.close()
    outcome = job.future.result(5)
    assert (outcome.status, outcome.code) == ("failed", "actor_stopped")
    assert (states(session), tool.calls) == (["outcome_unknown", "cancelled"], [])
    assert session.pending_cards() == []
    (turn,) = store.load("s1").turns.values()
    assert (turn.status, (turn.failure or {})["code"]) == ("failed", "actor_stopped")
    registry.release(session)
    registry.release(session)
    again = registry.acquire(store, "s1")
    provider = ScriptedProvider(reply("I see"))
    assert run(again, provider, prompt="and now?").text == "I see"
    assert [r.state for r in results_in(provider)] == ["error", "interrupted"]
    assert_sound(again)
    registry.release(again)


# -- worktrees


def test_after_a_restart_the_worktree_of_an_unfinished_sub_agent_is_known_and_gone_on_with(
    session: AgentSession, store: MemoryStore, repo: Path
) -> None:
    there = repo.with_name("repo.worktrees") / "try"
    session.add_rule("allow", f"spawn_agent({there})")
    gate = Gate()
    half = by_task(
        {
            PARENT: [reply(spawn("change it", worktree="try")), reply("meanwhile")],
            "change it": [write("half"), [gate, *reply("never said")]],
        }
    )
    ask(session, half, *file_tools())
    gate.wait_reached()
    store.crash()
    gate.open()
    loop.run_sync(all_done, session)
    registry.release(session)

    opened = registry.acquire(store, "s1")
    opened.workspace = repo
    ((agent, task),) = loop.run_sync(opened.sub_agents)
    assert task.status == "interrupted"
    assert agent.place is not None and agent.place.worktree == there
    assert ((there / "a.txt").read_text(), (repo / "a.txt").read_text()) == ("half", "mine")
    rest = by_task(
        {
            "and now?": [
                reply(call("followup_task", {"agent_id": "agent-1", "message": "the rest"})),
                reply(WAIT),
                reply("fine"),
            ],
            "change it": [write("whole"), reply("done")],
        }
    )
    assert run(opened, rest, [*file_tools(), *agent_tools()], prompt="and now?").text == "fine"
    assert [text.split("\n")[1] for text in arrived(opened)] == ["[interrupted]", "[completed]"]
    assert ((there / "a.txt").read_text(), (repo / "a.txt").read_text()) == ("whole", "mine")
    registry.release(opened)


def test_a_turn_in_a_worktree_stays_there_whatever_its_session_is_told_meanwhile(
    session: AgentSession, repo: Path, tmp_path: Path
) -> None:
    worktree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", str(worktree)], cwd=repo, check=True)
    gate = Gate()
    provider = ScriptedProvider([gate, *write("theirs")], reply("done"))
    _, job = start_in_background(
        session, provider, file_tools(), worktree=worktree, workspace=worktree
    )
    gate.wait_reached()
    assert session.workspace == repo and session.worktree is None, "what is beside is elsewhere"
    assert session.works_in(worktree) and not session.works_in(repo)
    session.workspace = tmp_path  # as a notebook does that takes the session up again
    gate.open()
    assert job.future.result(10).text == "done"
    assert ((worktree / "a.txt").read_text(), (repo / "a.txt").read_text()) == ("theirs", "mine")
    assert not session.works_in(worktree) and not (tmp_path / "a.txt").exists()


def test_a_sub_agent_of_a_turn_in_a_worktree_works_there_too(
    session: AgentSession, repo: Path, tmp_path: Path
) -> None:
    worktree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", str(worktree)], cwd=repo, check=True)
    provider = by_task(
        {
            PARENT: [reply(spawn("change it")), reply(WAIT), reply("ok")],
            "change it": [write("theirs"), reply("changed")],
        }
    )
    assert ask(session, provider, *file_tools(), worktree=worktree).text == "ok"
    assert ((worktree / "a.txt").read_text(), (repo / "a.txt").read_text()) == ("theirs", "mine")


def test_a_worktree_in_which_a_sub_agent_works_is_not_ended(
    session: AgentSession, repo: Path
) -> None:
    there = repo.with_name("repo.worktrees") / "try"
    session.add_rule("allow", f"spawn_agent({there})")
    gate = Gate()
    provider = by_task(
        {
            PARENT: [reply(spawn("change it", worktree="try")), reply("meanwhile")],
            "change it": [[gate, *reply("done")]],
        }
    )
    ask(session, provider)
    gate.wait_reached()
    assert session.works_in(there)
    with pytest.raises(SessionActive, match="still working"):
        loop.run_sync(lambda: end_worktree(session, "drop", "try", ask=False, force=True))
    assert there.is_dir()
    gate.open()
    loop.run_sync(all_done, session)
    assert not session.works_in(there)


def test_threads_of_a_notebook_stay_in_its_session_when_a_sub_agent_is_made(
    session: AgentSession, store: MemoryStore
) -> None:
    handle = SessionHandle(store, "s1", None, None, created=False, agent=session)
    found: list[Any] = []
    context.install(handle)
    try:
        tool = FakeTool(act=lambda _: found.append(current_session()))
        provider = by_task(
            {
                PARENT: [reply(spawn("look")), reply(WAIT), reply("ok")],
                "look": [reply(call("look", {})), reply("seen")],
            }
        )
        assert ask(session, provider, tool).text == "ok"
        thread = threading.Thread(target=lambda: found.append(current_session()))
        thread.start()
        thread.join()
    finally:
        context.install(None)
    assert found == [None, handle], "the sub-agent stands in no session of ours; the thread does"
