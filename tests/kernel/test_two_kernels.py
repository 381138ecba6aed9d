"""Two kernels on one session: the second is told who has it, and both lose nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kernel.harness import running_kernel

from op_jupyter.store.sessions import SessionStore

SESSION = "shared"
TURNS = int(os.environ.get("TURNS", "200"))
CALLS = f"""
from op_jupyter import Runtime, agentic_function
%load_ext op_jupyter

@agentic_function
def note(number):
    "Take a note."
    return number

def take(first):
    for number in range(first, first + {TURNS}):
        note(number)
"""


@pytest.mark.timeout(300)
def test_two_kernels_of_two_hundred_turns_each_share_a_session(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    store = SessionStore(root)
    session = store.open(store.create_session(SESSION))
    session.set_meta(title="shared")
    session.close()
    env = {
        "HOME": str(tmp_path),
        "OPENPROGRAM_HOME": str(root),
        "OPENPROGRAM_CONFIG": os.devnull,
    }
    with (
        running_kernel("newest", tmp_path, env) as one,
        running_kernel("newest", tmp_path, env) as two,
    ):
        for kernel in (one, two):
            kernel.check(CALLS)
        one.check(f"%agent resume {SESSION}")
        at_work = one.send("take(0)")
        refused = two.run(f"%agent resume {SESSION}")
        assert refused.error == "SessionLocked"
        told = (refused.reply or {})["content"]["evalue"]
        assert "is open for writing in process" in told
        assert ", kernel " in told
        one.finish(at_work)
        assert at_work.status == "ok", at_work.error
        one.check("%agent new")
        two.check(f"%agent resume {SESSION}")
        two.check("take(1000)")
        refused = one.run(f"%agent resume {SESSION}")
        assert "SessionLocked" in refused.error
    dag = store.load(SESSION)
    assert len(dag.turns) == 2 * TURNS
    assert {turn.status for turn in dag.turns.values()} == {"completed"}
    outputs = [node.output for node in dag if node.name == "note"]
    assert sorted(outputs) == [*range(TURNS), *range(1000, 1000 + TURNS)]
    seqs = [node.seq for node in dag]
    assert seqs == sorted(set(seqs))
    store.open(SESSION, timeout=30).close()  # the second kernel may be ending still
    assert store.doctor(SESSION).examine().healthy
    if git := shutil.which("git"):
        log = subprocess.run(
            [git, "-C", str(root / SESSION), "log", "--all", "--format=%B"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert log.stdout.count("Turn-Id:") == 2 * TURNS
