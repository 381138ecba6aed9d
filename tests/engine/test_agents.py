"""Sub-agents: sessions of their own, whose results arrive once, whatever happens in between."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.agents import AgentMessage, fitted, message_node_id, too_long
from op_jupyter.core.messages import ModelRequest, TextDelta
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.engine import loop, registry
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.slots import AT_ONCE, PROCESS
from op_jupyter.errors import UsageError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import HANG, Gate, Script, ScriptedProvider, call, reply
from op_jupyter.tools.files import file_tools
from tests.engine.harness import (
    FailingStore,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    assert_sound,
    run,
    start_in_background,
    texts,
)

PARENT = "ask the others"


@pytest.fixture
def session(store: MemoryStore) -> Iterator[AgentSession]:
    opened = registry.acquire(store, store.create_session("s1"))
    yield opened
    registry.release(opened)


def by_task(scripts: Mapping[str, Sequence[Script]]) -> ScriptedProvider:
    """A model that answers each conversation from its own scripts; the first prompt names it."""
    queues = {task: deque(listed) for task, listed in scripts.items()}

    def answer(request: ModelRequest) -> Script:
        said = "".join(m.text for m in request.messages if m.role == "user")
        task = next(t for t in queues if t in said)
        assert queues[task], f"one more model call for {task!r}"
        return queues[task].popleft()

    return ScriptedProvider(default=answer)


def spawn(task: str, **more: Any) -> Any:
    return call("spawn_agent", {"message": task, **more})


WAIT = call("wait_agent", {})


def ask(session: AgentSession, provider: ScriptedProvider, *tools: Any, **options: Any) -> Any:
    return run(session, provider, [*tools, *agent_tools()], prompt=PARENT, **options)


def requests_for(provider: ScriptedProvider, task: str) -> list[ModelRequest]:
    """The model calls of that conversation, parents not included."""
    return [r for r in provider.requests if task in r.messages[0].text]


def arrived(session: AgentSession) -> list[str]:
    """The messages of sub-agents that the conversation holds."""
    return [n.input[0]["text"] for n in session.dag.spine() if n.metadata.get("agent")]


def test_a_result_arrives_as_a_message_before_the_next_model_call(session: AgentSession) -> None:
    provider = by_task(
        {
            PARENT: [reply(spawn("count the files")), reply(WAIT), reply("there are 7")],
            "count the files": [reply("I counted 7.")],
        }
    )
    outcome = ask(session, provider)
    assert (outcome.status, outcome.text) == ("completed", "there are 7")
    (message,) = arrived(session)
    assert "agent-1" in message and "completed" in message and message.endswith("I counted 7.")
    mine = requests_for(provider, PARENT)
    assert message in str(mine[-1].messages) or message in mine[-1].messages[-1].text
    assert sum(m.text.count("I counted 7.") for m in mine[-1].messages) == 1
    for request in provider.requests:
        assert_sendable(request)
    assert_sound(session)


def test_a_sub_agent_is_a_session_of_its_own_linked_from_the_parent_s_node(
    session: AgentSession, store: MemoryStore
) -> None:
    tool = FakeTool()
    provider = by_task(
        {
            PARENT: [reply(spawn("look around")), reply(WAIT), reply("ok")],
            "look around": [reply(call("look", {})), reply("seen")],
        }
    )
    ask(session, provider, tool)
    (task,) = [n for n in session.dag if n.metadata.get("kind") == "agent"]
    assert session.dag.node(task.caller or "").name == "spawn_agent"
    assert (task.status, task.output) == ("completed", {"text": "seen"})
    child = store.load(task.metadata["session_id"])
    assert child.meta["parent"] == {"session_id": "s1", "node_id": task.caller}
    assert [n.role for n in child] == ["user", "llm", "code", "llm"]
    assert tool.calls == [{}]
    # It has the parent's tools, but makes no sub-agents, and sees nothing of the parent.
    (first, _) = requests_for(provider, "look around")
    assert [spec.name for spec in first.tools] == ["look"]
    assert PARENT not in str(first.messages)


@pytest.mark.parametrize("name", ["x" * 128, "ends-with."])
def test_a_parent_with_an_awkward_id_has_sub_agents_too(store: MemoryStore, name: str) -> None:
    session = registry.acquire(store, store.create_session(name))
    provider = by_task(
        {PARENT: [reply(spawn("go")), reply(WAIT), reply("ok")], "go": [reply("gone")]}
    )
    assert ask(session, provider).text == "ok"
    assert "gone" in arrived(session)[0]
    registry.release(session)


def test_a_sub_agent_has_fifteen_model_calls(session: AgentSession) -> None:
    endless = [reply(call("look", {"what": str(n)})) for n in range(16)]
    provider = by_task(
        {PARENT: [reply(spawn("go on for ever")), reply(WAIT), reply("ok")], "go on": endless}
    )
    ask(session, provider, FakeTool())
    assert "max_model_calls" in arrived(session)[0] and "[failed]" in arrived(session)[0]
    assert len(requests_for(provider, "go on for ever")) == 15


def test_it_can_ask_nobody_and_its_mode_is_at_most_the_parent_s(session: AgentSession) -> None:
    tool = FakeTool("run", effect="execute")
    provider = by_task(
        {
            PARENT: [reply(spawn("run it", mode="auto")), reply(WAIT), reply("ok")],
            "run it": [reply(call("run", {})), reply("not allowed")],
        }
    )
    asker = ScriptedAsker()
    ask(session, provider, tool, asker=asker)
    assert tool.calls == [] and asker.requests == []
    (_, second) = requests_for(provider, "run it")
    assert "denied" in str(second.messages[-1]) and "%agent allow" in str(second.messages[-1])


def test_a_stricter_mode_can_be_asked_for(session: AgentSession, store: MemoryStore) -> None:
    loop.run_sync(session.set_permission_mode, "auto")
    tool = FakeTool("run", effect="execute")
    provider = by_task(
        {
            PARENT: [
                reply(spawn("freely run it"), spawn("only read", mode="read_only")),
                reply(call("wait_agent", {"agent_id": "agent-1"})),
                reply(call("wait_agent", {"agent_id": "agent-2"})),
                reply("ok"),
            ],
            "freely run it": [reply(call("run", {"what": "free"})), reply("ran")],
            "only read": [reply(call("run", {"what": "never"})), reply("could not")],
        }
    )
    ask(session, provider, tool)
    assert tool.calls == [{"what": "free"}]


def test_the_parent_s_rules_and_a_mode_that_gets_stricter_hold_for_it(
    session: AgentSession,
) -> None:
    loop.run_sync(session.set_permission_mode, "auto")
    session.add_rule("deny", "look")
    gate = Gate()
    tools = [FakeTool(), FakeTool("run", effect="execute")]
    provider = by_task(
        {
            PARENT: [reply(spawn("try both")), [gate, *reply(WAIT)], reply("ok")],
            "try both": [
                reply(call("look", {})),
                reply(call("run", {"what": "1"})),
                reply("neither"),
            ],
        }
    )

    def stricter(envelope: Any) -> None:
        if envelope.update.kind == "node_appended" and envelope.update.data["name"] == "agent-1":
            session.recorder.set_meta(mode="read_only")
            gate.open()

    session.subscribe(stricter)
    assert ask(session, provider, *tools).text == "ok"
    assert [tool.calls for tool in tools] == [[], []]
    assert "neither" in arrived(session)[0]


def test_three_work_at_once_and_a_fourth_has_to_wait(session: AgentSession) -> None:
    gate = Gate()
    hold = {f"task {n}": [[gate, *reply(f"done {n}")]] for n in range(1, 4)}
    provider = by_task(
        {
            PARENT: [
                reply(*(spawn(f"task {n}") for n in range(1, 5))),
                [*reply(call("list_agents", {}))],
                reply("enough"),
            ],
            **hold,
        }
    )
    outcome = ask(session, provider)
    assert outcome.text == "enough"
    assert "3 sub-agents work already" in texts(session)[3]
    assert texts(session)[4].count(": running") == 3
    gate.open()
    loop.run_sync(_all_done, session)
    assert session.agents.mailbox.waiting == 3
    run(session, ScriptedProvider(reply("thanks")))
    assert sorted(text[-6:] for text in arrived(session)) == ["done 1", "done 2", "done 3"]


def test_sub_agents_take_no_place_of_attempts(session: AgentSession) -> None:
    """Or parents that wait for theirs would block each other for ever."""
    provider = by_task(
        {PARENT: [reply(spawn("task 1")), reply(WAIT), reply("heard")], "task 1": [reply("done")]}
    )

    async def take(places: AsyncExitStack) -> None:
        for _ in range(AT_ONCE - 1):  # the last one is for the parent
            await places.enter_async_context(PROCESS.held(AT_ONCE, lambda: None))

    others = AsyncExitStack()
    loop.run_sync(take, others)
    try:
        assert ask(session, provider).text == "heard"
    finally:
        loop.run_sync(others.aclose)
    assert "done" in arrived(session)[0]


def test_waiting_ends_when_a_message_of_anybody_arrives(session: AgentSession) -> None:
    gate = Gate()
    provider = by_task(
        {PARENT: [reply(spawn("slowly")), reply(WAIT), reply("heard")], "slowly": [[gate, HANG]]}
    )
    _, job = start_in_background(session, provider, agent_tools(), prompt=PARENT)
    gate.wait_reached()
    loop.run_sync(session.deliver_agent_message, AgentMessage("m1", "watcher", "red"))
    assert job.future.result(5).text == "heard"
    assert arrived(session)[0].endswith("red")
    loop.run_sync(session.agents.shutdown)


async def _all_done(session: AgentSession) -> None:
    for agent, _ in session.agents.listed():
        await agent.ended.wait()


def test_a_result_after_the_answer_waits_for_the_next_turn_and_starts_none(
    session: AgentSession,
) -> None:
    gate = Gate()
    provider = by_task(
        {PARENT: [reply(spawn("slowly")), reply("meanwhile")], "slowly": [[gate, *reply("late")]]}
    )
    assert ask(session, provider).text == "meanwhile"
    turns = len(session.dag.turns)
    gate.open()
    loop.run_sync(_all_done, session)
    assert len(session.dag.turns) == turns and session.active_turn_id is None
    assert arrived(session) == []
    for _ in range(2):
        provider = ScriptedProvider(reply("I see"))
        run(session, provider, prompt="and now?")
        assert len(arrived(session)) == 1
    assert_sendable(provider.requests[0])
    assert_sound(session)


def test_a_follow_up_remembers_what_was_before(session: AgentSession) -> None:
    provider = by_task(
        {
            PARENT: [
                reply(spawn("remember 42")),
                reply(WAIT),
                reply(call("followup_task", {"agent_id": "agent-1", "message": "say it"})),
                reply(WAIT),
                reply("done"),
            ],
            "remember 42": [reply("I will"), reply("it was 42")],
        }
    )
    assert ask(session, provider).text == "done"
    assert [text.split("\n")[-1] for text in arrived(session)] == ["I will", "it was 42"]
    (_, second) = requests_for(provider, "remember 42")
    assert "I will" in str(second.messages)
    assert_sound(session)


def test_interrupting_stops_it_and_tells_the_truth(session: AgentSession) -> None:
    provider = by_task(
        {
            PARENT: [
                reply(spawn("never end")),
                reply(call("interrupt_agent", {"agent_id": "agent-1"})),
                reply(call("interrupt_agent", {"agent_id": "agent-1"})),
                reply("stopped"),
            ],
            "never end": [[TextDelta("half"), HANG]],
        }
    )
    assert ask(session, provider).text == "stopped"
    assert "[cancelled]" in arrived(session)[0] and "half" not in arrived(session)[0]
    assert "does nothing" in texts(session)[-1]
    assert provider.open_streams == 0
    assert_sound(session)


def test_stopping_the_parent_s_turn_stops_its_sub_agents(session: AgentSession) -> None:
    gate = Gate()
    provider = by_task(
        {PARENT: [reply(spawn("never end")), reply(WAIT)], "never end": [[gate, HANG]]}
    )
    turn_id, job = start_in_background(session, provider, agent_tools(), prompt=PARENT)
    gate.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    loop.run_sync(_all_done, session)
    assert provider.open_streams == 0
    run(session, ScriptedProvider(reply("ok")))
    assert "[cancelled]" in arrived(session)[0]
    assert_sound(session)


def test_waiting_in_vain_three_times_in_a_row_is_a_doom_loop(session: AgentSession) -> None:
    impatient = call("wait_agent", {"timeout_seconds": 0.001})
    listing = call("list_agents", {})
    provider = by_task(
        {
            PARENT: [
                reply(spawn("never end")),
                reply(impatient, impatient, listing, impatient, impatient),
                reply(impatient, listing),
            ],
            "never end": [[HANG]],
        }
    )
    outcome = ask(session, provider)
    assert (outcome.status, outcome.code) == ("failed", "doom_loop")
    assert [t for t in texts(session) if "still working" in t].__len__() == 5
    assert "not executed" in texts(session)[-1]
    loop.run_sync(session.agents.shutdown)


def test_waiting_for_the_same_thing_again_and_again_is_no_doom_loop(session: AgentSession) -> None:
    provider = by_task({PARENT: [reply(WAIT)] * 5 + [reply("nobody there")]})
    assert ask(session, provider).text == "nobody there"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (spawn(" \n"), "empty"),
        (spawn("x" * 16_000), "under 4000"),
        (spawn("go", mode="everything"), "InvalidArguments"),
        (call("followup_task", {"agent_id": "agent-9", "message": "go"}), "no sub-agent"),
        (call("wait_agent", {"agent_id": "agent-9"}), "no sub-agent"),
        (call("interrupt_agent", {"agent_id": "x" * 500}), "no sub-agent"),
        (call("wait_agent", {"timeout_seconds": -1}), "InvalidArguments"),
        (call("spawn_agent", {}), "message: is missing"),
        (call("spawn_agent", {"message": "go", "where": 1}), "where: there is no such"),
        (call("wait_agent", {"timeout_seconds": True}), "has to be a number"),
        (call("wait_agent", {"timeout_seconds": "9"}), "has to be a number"),
    ],
)
def test_what_cannot_be_done_is_a_result_that_says_why(
    session: AgentSession, asked: Any, says: str
) -> None:
    provider = ScriptedProvider(reply(asked), reply("ok"))
    assert run(session, provider, agent_tools()).status == "completed"
    assert says in texts(session)[0], texts(session)
    assert session.agents.running == []


def test_a_long_result_is_cut_to_what_a_message_may_be(session: AgentSession) -> None:
    text = "ü" * 20_000
    cut = fitted(text, "s1.agent-1")
    assert too_long(text) and not too_long(cut) and "s1.agent-1" in cut
    provider = by_task(
        {PARENT: [reply(spawn("talk")), reply(WAIT), reply("ok")], "talk": [reply(text)]}
    )
    ask(session, provider)
    assert len(arrived(session)[0].encode()) < 16_500 and "cut" in arrived(session)[0]


# --- restart


def interrupted_parent(store: MemoryStore, gate: Gate) -> str:
    """A parent whose sub-agent works, and whose process is gone; the sub-agent's session."""
    session = registry.acquire(store, "s1")
    provider = by_task(
        {PARENT: [reply(spawn("slowly")), reply("meanwhile")], "slowly": [[gate, *reply("late")]]}
    )
    assert ask(session, provider).text == "meanwhile"
    gate.wait_reached()
    (task,) = [n for n in session.dag if n.metadata.get("kind") == "agent"]
    store.crash()
    gate.open()
    loop.run_sync(_all_done, session)
    registry.release(session)
    return str(task.metadata["session_id"])


def test_after_a_restart_nothing_is_rerun_and_the_unfinished_is_told_once(
    store: MemoryStore,
) -> None:
    store.create_session("s1")
    child_id = interrupted_parent(store, Gate())
    session = registry.acquire(store, "s1")
    (task,) = [n for n in session.dag if n.metadata.get("kind") == "agent"]
    assert task.status == "interrupted"
    for _ in range(2):
        provider = ScriptedProvider(reply("I see"))
        run(session, provider, prompt="and now?")
        assert len(provider.requests) == 1
        assert_sendable(provider.requests[0])
    (message,) = arrived(session)
    assert "[interrupted]" in message and "Nothing was run again" in message
    assert message_node_id(task.id) in session.dag.nodes
    assert [t.status for t in store.load(child_id).turns.values()] == ["running"]  # as it was left
    assert_sound(session)
    registry.release(session)


def test_after_a_restart_a_sub_agent_can_go_on(store: MemoryStore) -> None:
    store.create_session("s1")
    interrupted_parent(store, Gate())
    session = registry.acquire(store, "s1")
    provider = by_task(
        {
            "go on": [
                reply(call("followup_task", {"agent_id": "agent-1", "message": "resume"})),
                reply(WAIT),
                reply("fine"),
            ],
            "slowly": [reply("done at last")],
        }
    )
    assert run(session, provider, agent_tools(), prompt="go on").text == "fine"
    assert [t.split("\n")[1] for t in arrived(session)] == ["[interrupted]", "[completed]"]
    registry.release(session)


def test_a_result_that_was_stored_but_not_told_is_told_after_a_restart_once(
    store: MemoryStore,
) -> None:
    store.create_session("s1")
    session = registry.acquire(store, "s1")
    gate = Gate()
    provider = by_task(
        {PARENT: [reply(spawn("quick")), reply("ok")], "quick": [[gate, *reply("done")]]}
    )
    ask(session, provider)
    gate.open()
    loop.run_sync(_all_done, session)
    assert session.agents.mailbox.waiting == 1
    store.crash()
    registry.release(session)
    session = registry.acquire(store, "s1")
    for _ in range(2):
        run(session, ScriptedProvider(reply("thanks")))
        assert len(arrived(session)) == 1
    registry.release(session)


class SlowHome:
    """Opens sessions when it is let; keeps count of what is open."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.asked, self.let = threading.Event(), threading.Event()
        self.open: list[Any] = []

    def create(self, session_id: str, **meta: Any) -> str:
        return str(self._inner.create(session_id, **meta))

    def acquire(self, session_id: str) -> Any:
        self.asked.set()
        assert self.let.wait(10)
        self.open.append(self._inner.acquire(session_id))
        return self.open[-1]

    def release(self, opened: Any) -> None:
        self._inner.release(opened)
        self.open.remove(opened)


def test_one_that_is_stopped_while_its_session_is_opened_leaves_nothing_open(
    session: AgentSession,
) -> None:
    home = session.home = SlowHome(session.home)
    provider = by_task({PARENT: [reply(spawn("go")), reply("meanwhile")], "go": []})
    ask(session, provider)
    assert home.asked.wait(5)

    async def stop() -> None:
        session.agents.interrupt_all()

    loop.run_sync(stop)
    loop.run_sync(stop)
    home.let.set()
    loop.run_sync(_all_done, session)
    assert home.open == []
    (task,) = [n for n in session.dag if n.metadata.get("kind") == "agent"]
    assert task.status == "cancelled"


def test_an_end_that_is_stored_in_part_is_told_as_a_failure(store: MemoryStore) -> None:
    home = registry.acquire(store, store.create_session("home"))
    disk = FailingStore(store.open(store.create_session("s1")), 10**6)
    session = AgentSession(disk)  # type: ignore[arg-type]
    session.home = home.home
    gate = Gate()
    provider = by_task(
        {PARENT: [reply(spawn("go")), reply("meanwhile")], "go": [[gate, *reply("done")]]}
    )
    ask(session, provider)
    gate.wait_reached()
    refused = iter([True])
    disk.refuses = lambda: next(refused, False)  # type: ignore[method-assign]
    gate.open()
    loop.run_sync(_all_done, session)
    run(session, ScriptedProvider(reply("I see")))
    assert "[failed]" in arrived(session)[0] and "disk full" in arrived(session)[0]
    registry.release(home)


# --- the mailbox's own command


def test_a_message_is_delivered_once_and_survives_a_restart(store: MemoryStore) -> None:
    store.create_session("s1")
    session = registry.acquire(store, "s1")
    message = AgentMessage("m1", "watcher", "the build is red")
    assert loop.run_sync(session.deliver_agent_message, message)
    assert not loop.run_sync(session.deliver_agent_message, message)
    assert session.active_turn_id is None and len(session.dag.turns) == 0
    store.crash()
    registry.release(session)
    session = registry.acquire(store, "s1")
    assert not loop.run_sync(session.deliver_agent_message, message)
    for _ in range(2):
        provider = ScriptedProvider(reply("ok"))
        run(session, provider)
        assert str(provider.requests[0].messages).count("the build is red") == 1
    assert not loop.run_sync(session.deliver_agent_message, message)
    assert session.agents.listed() == []
    assert_sound(session)
    registry.release(session)


@pytest.mark.parametrize("text", ["", "x" * 16_000])
def test_a_message_that_cannot_be_delivered_changes_nothing(
    session: AgentSession, text: str
) -> None:
    with pytest.raises(UsageError):
        loop.run_sync(session.deliver_agent_message, AgentMessage("m1", "watcher", text))
    assert len(session.dag) == 0 and session.agents.mailbox.waiting == 0


def test_a_message_that_cannot_be_stored_stays_in_the_mailbox(store: MemoryStore) -> None:
    disk = FailingStore(store.open(store.create_session("s1")), 10**6)
    session = AgentSession(disk)  # type: ignore[arg-type]
    loop.run_sync(session.deliver_agent_message, AgentMessage("m1", "watcher", "red"))
    disk.left = 1  # the turn and its prompt are written, the message is not
    outcome = run(session, ScriptedProvider())
    assert (outcome.code, session.agents.mailbox.waiting) == ("persistence_error", 1)
    disk.left = 10**6
    assert run(session, ScriptedProvider(reply("ok"))).text == "ok"
    assert len(arrived(session)) == 1


def test_a_call_outside_of_a_person_s_turn_has_no_sub_agents(session: AgentSession) -> None:
    """A tool that was passed by hand says so; nothing is started."""
    from op_jupyter.engine.runtime import Runtime, agent
    from op_jupyter.engine.session_context import session_context

    store = MemoryStore()
    provider = ScriptedProvider(reply(spawn("go")), reply("cannot"))
    with session_context("s2", store=store, runtime=Runtime(provider=provider)) as handle:
        assert agent("do it", tools=agent_tools()) == "cannot"
        assert "turn of a person" in texts(handle.agent)[0]


def test_closing_a_session_stops_its_sub_agents(store: MemoryStore) -> None:
    session = registry.acquire(store, store.create_session("s9"))
    gate = Gate()
    provider = by_task(
        {PARENT: [reply(spawn("never end")), reply("bye")], "never end": [[gate, HANG]]}
    )
    ask(session, provider)
    gate.wait_reached()
    registry.release(session)
    assert provider.open_streams == 0
    (task,) = [n for n in store.load("s9") if n.metadata.get("kind") == "agent"]
    assert task.status == "cancelled"


# -- in a git worktree of its own


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


def write(text: str) -> Any:
    return reply(call("write_file", {"path": "a.txt", "text": text}))


def test_a_sub_agent_may_work_in_a_worktree_of_its_own_after_asking(
    session: AgentSession, repo: Path
) -> None:
    provider = by_task(
        {
            PARENT: [
                reply(spawn("change it", worktree="try")),
                reply(WAIT),
                reply(call("followup_task", {"agent_id": "agent-1", "message": "once more"})),
                reply(WAIT),
                reply(call("list_agents", {})),
                reply("ok"),
            ],
            "change it": [write("theirs"), reply("changed"), write("theirs too"), reply("again")],
        }
    )
    asker = ScriptedAsker([PermissionAnswer("allow", "click")])
    assert ask(session, provider, *file_tools(), asker=asker).text == "ok"
    there = repo.with_name("repo.worktrees") / "try"
    assert (there / "a.txt").read_text() == "theirs too"
    assert (repo / "a.txt").read_text() == "mine"
    (card,) = asker.requests
    assert card.tool == "spawn_agent" and str(there) in " ".join(card.dangers)
    assert "in worktree try" in texts(session)[0] and "in worktree try" in texts(session)[-1]
    (first, *_) = requests_for(provider, "change it")
    assert str(there) in str(first.messages)
    (spawned, *_) = [n for n in session.dag if n.name == "spawn_agent"]
    assert "files" not in spawned.metadata  # a worktree is no file of the workspace
    assert_sound(session)


def test_two_sub_agents_do_not_work_in_one_worktree_at_once(
    session: AgentSession, repo: Path
) -> None:
    session.add_rule("allow", f"spawn_agent({repo.with_name('repo.worktrees')}/same)")
    provider = by_task(
        {
            PARENT: [
                reply(spawn("first", worktree="same"), spawn("second", worktree="same")),
                reply(call("interrupt_agent", {"agent_id": "agent-1"})),
                reply("ok"),
            ],
            "first": [[HANG]],
        }
    )
    assert ask(session, provider).text == "ok"
    assert "agent-1 works in worktree same" in texts(session)[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("try", "nobody can be asked here"),
        ("../up", "is no name for a worktree"),
        ("", "is no name for a worktree"),
    ],
)
def test_a_worktree_that_may_not_be_made_is_not_made(
    session: AgentSession, repo: Path, name: str, said: str
) -> None:
    provider = by_task({PARENT: [reply(spawn("go", worktree=name)), reply("then not")]})
    outcome = ask(session, provider, asker=ScriptedAsker(interactive=False))
    assert outcome.text == "then not"
    assert said in texts(session)[0]
    assert not repo.with_name("repo.worktrees").exists()
    assert loop.run_sync(session.sub_agents) == []


def test_without_a_repository_there_is_no_worktree(session: AgentSession, tmp_path: Path) -> None:
    session.workspace = tmp_path
    provider = by_task({PARENT: [reply(spawn("go", worktree="x")), reply("then not")]})
    assert ask(session, provider).text == "then not"
    assert "is in no git repository" in texts(session)[0]


def test_a_worktree_that_is_gone_is_said_before_a_follow_up(
    session: AgentSession, repo: Path
) -> None:
    session.add_rule("allow", f"spawn_agent({repo.with_name('repo.worktrees')}/gone)")
    provider = by_task(
        {
            PARENT: [reply(spawn("go", worktree="gone")), reply(WAIT), reply("ok")],
            "go": [reply("gone there")],
        }
    )
    ask(session, provider)
    shutil.rmtree(repo.with_name("repo.worktrees"))
    again = by_task(
        {
            PARENT: [
                reply(call("followup_task", {"agent_id": "agent-1", "message": "on"})),
                reply("ok"),
            ]
        }
    )
    assert ask(session, again).text == "ok"
    assert "is gone; give the task to a new sub-agent" in texts(session)[-1]


def test_a_story_from_elsewhere_cannot_say_where_a_sub_agent_works_or_which_session_it_is(
    store: MemoryStore, session: AgentSession, repo: Path
) -> None:
    (home := repo.parent / "home").mkdir()
    for name in ("diary", "s1.agent-2"):
        opened = store.open(store.create_session(name, parent={"session_id": name[:2]}))
        opened.append(Node("n", "user", "user", [], status="completed"))
        opened.close()
    told: list[dict[str, Any]] = [
        {"agent_id": "agent-1", "session_id": "diary"},
        {"agent_id": "agent-2", "session_id": "s1.agent-2", "worktree": str(home)},
        {"agent_id": "agent-3", "session_id": ["s1"]},
        {"session_id": "diary"},
    ]
    for number, said in enumerate(told):
        there = {"workspace": str(home), **said, "kind": "agent"}
        session.recorder.append(
            Node(f"forged-{number}", "code", "x", {}, status="completed", metadata=there)
        )
    provider = by_task(
        {
            PARENT: [
                reply(call("followup_task", {"agent_id": "agent-1", "message": "tell"})),
                reply(WAIT),
                reply(call("followup_task", {"agent_id": "agent-2", "message": "write"})),
                reply(call("list_agents", {})),
                reply("ok"),
            ],
        }
    )
    assert ask(session, provider, *file_tools()).text == "ok"
    assert "diary is no session of a sub-agent of this one" in " ".join(arrived(session))
    assert "is in no worktree of this repository" in texts(session)[2]
    assert "agent-3" not in texts(session)[3]
    assert len(store.load("diary")) == 1 and len(store.load("s1.agent-2")) == 1
