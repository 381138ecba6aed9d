"""Acceptance line 12: a process that is killed in the middle of a tool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from op_jupyter.core.messages import MISSING_RESULT, TextBlock, block_to_json
from op_jupyter.engine import registry
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import ScriptedProvider, reply
from tests.engine.harness import assert_sendable, results_in, run, start_in_background, tool_nodes

TESTS = Path(__file__).parents[1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a process was killed in the middle of a tool that had its effect."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.turn_writer", str(tmp_path), "s"],
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in tool\n"
    process.kill()
    process.wait()
    process.stdout.close()
    return tmp_path


def journal(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (root / "s" / "history").rglob("*.jsonl")}


def test_a12_after_kill_9_in_a_tool_the_story_is_truthful_and_goes_on(root: Path) -> None:
    assert (root / "mark").read_text("utf-8") == "done"
    (root / "mark").unlink()
    before = journal(root)
    store = SessionStore(root)
    session = registry.acquire(store, "s", timeout=10)

    # Opened: statuses repaired, what was stored is as it was, and nothing ran.
    after = journal(root)
    assert before and all(after[path].startswith(kept) for path, kept in before.items())
    (turn,) = session.dag.turns.values()
    assert turn.status == "interrupted"
    (node,) = tool_nodes(session)
    assert (node.status, node.output) == ("interrupted", None)
    assert node.metadata["tool_call_id"] == "before"
    assert [n.status for n in session.dag] == ["completed", "completed", "interrupted"]
    assert session.snapshot().runtime == {"state": "idle"}
    assert len(session.dag) == 3 and not (root / "mark").exists()

    # The request that was interrupted is known, and is not run again.
    never = ScriptedProvider()
    again, job = start_in_background(session, never, client_request_id="r1")
    assert again == turn.id and job.future.result(5).status == "failed"
    assert never.requests == []

    # The user's next turn goes on, and the request says what is not known.
    sent = []
    for _ in range(2):
        provider = ScriptedProvider(reply("I see."))
        assert run(session, provider, prompt="what happened?").text == "I see."
        assert_sendable(provider.requests[0])
        sent.append([block_to_json(r) for r in results_in(provider)])
        registry.release(session)
        session = registry.acquire(SessionStore(root), "s", timeout=10)
    registry.release(session)
    assert sent[0] == sent[1]
    assert [r["tool_use_id"] for r in sent[0]] == ["before", "mate"]
    for result in sent[0]:
        assert result["content"] == [block_to_json(TextBlock(MISSING_RESULT))]
        assert result["state"] == "interrupted"
    assert not (root / "mark").exists()
