"""What a click on a node's button does: nothing while the turn runs, everything at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from op_jupyter.engine import registry
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.session import AgentSession
from op_jupyter.notebook.node_actions import NodeActions
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.files import file_tools
from tests.engine.harness import ALLOW, ScriptedAsker, run, tool_nodes


@pytest.fixture
def session(tmp_path: Path) -> Iterator[AgentSession]:
    """A session with one turn, which changed two files."""
    store = MemoryStore()
    opened = registry.acquire(store, store.create_session("s1"))
    opened.workspace = tmp_path / "work"
    opened.workspace.mkdir()
    (opened.workspace / "a.txt").write_text("before")
    writes = [
        call("write_file", {"path": "a.txt", "text": "after"}),
        call("write_file", {"path": "new.txt", "text": "new"}),
    ]
    provider = ScriptedProvider(reply(*writes), reply("done"))
    run(opened, provider, [*file_tools()], asker=ScriptedAsker([ALLOW] * 2))
    yield opened
    registry.release(opened)


def finish(actions: NodeActions) -> list[str]:
    """What the end of the turn does."""
    return run_sync(actions.finish)


def prompt_of(session: AgentSession) -> str:
    return next(node.id for node in session.dag if node.role == "user")


def test_details_name_the_files_that_a_call_or_a_whole_turn_changed(session: AgentSession) -> None:
    actions = NodeActions(session)
    first, second = tool_nodes(session)
    assert actions.details(first.id)["changes"] == ["a.txt"]
    assert actions.details(second.id)["changes"] == ["new.txt"]
    assert actions.details(prompt_of(session))["changes"] == ["a.txt", "new.txt"]
    assert actions.details("no-such-node") == {}


def test_files_are_put_back_when_the_turn_ends(session: AgentSession) -> None:
    actions = NodeActions(session)
    first, _ = tool_nodes(session)
    assert "a.txt" in actions.act("undo", first.id)
    assert (session.workspace / "a.txt").read_text() == "after"
    (said,) = finish(actions)
    assert "a.txt" in said
    assert (session.workspace / "a.txt").read_text() == "before"
    assert (session.workspace / "new.txt").exists()


def test_files_that_somebody_else_changed_since_stay_and_are_named(session: AgentSession) -> None:
    actions = NodeActions(session)
    actions.act("undo", prompt_of(session))
    (session.workspace / "a.txt").write_text("by hand")
    (said,) = finish(actions)
    assert "nothing was put back" in said and "a.txt" in said
    assert (session.workspace / "a.txt").read_text() == "by hand"
    assert (session.workspace / "new.txt").exists()


@pytest.mark.parametrize("action", ["fork", "rewind"])
def test_the_conversation_goes_on_from_before_a_prompt(session: AgentSession, action: str) -> None:
    actions = NodeActions(session)
    assert "before this" in actions.act(action, prompt_of(session))  # type: ignore[arg-type]
    assert session.dag.head is not None
    finish(actions)
    assert session.dag.head is None


def test_a_second_click_takes_back_and_another_place_takes_over(session: AgentSession) -> None:
    actions = NodeActions(session)
    prompt, head = prompt_of(session), session.dag.head
    assert head is not None
    actions.act("rewind", prompt)
    assert actions.act("rewind", prompt).startswith("Taken back")
    assert finish(actions) == []
    again = NodeActions(session)
    again.act("rewind", prompt)
    again.act("fork", head)
    assert len(finish(again)) == 1
    assert session.dag.head == head


def test_what_cannot_be_done_is_said_at_once(session: AgentSession) -> None:
    actions = NodeActions(session)
    first, _ = tool_nodes(session)
    assert "inside the conversation" in actions.act("rewind", first.id)
    assert "no-such-node" in actions.act("fork", "no-such-node")
    assert "changed no file" in actions.act("undo", str(session.dag.head))
    assert "--- user" in actions.act("show_prompt", str(session.dag.head))
    assert finish(actions) == []


def test_after_the_turn_a_click_says_which_command_does_it(session: AgentSession) -> None:
    actions = NodeActions(session)
    finish(actions)
    prompt = prompt_of(session)
    assert f"`%agent rewind {prompt}`" in actions.act("rewind", prompt)


def test_where_no_cell_waits_for_the_turn_it_is_done_once_nothing_runs(
    session: AgentSession,
) -> None:
    (turn_id,) = session.dag.turns
    actions = NodeActions(session, turn_id=turn_id)
    said = actions.act("rewind", prompt_of(session))
    assert said.startswith("When this turn and the running cell end")
    assert actions.ready
    session.recorder.begin_turn(replace(session.dag.turns[turn_id], id="t2", status="running"))
    assert not NodeActions(session, turn_id="t2").ready
