"""kill -9 at any moment: the session opens again, with everything that was acknowledged."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.sessions import SessionStore
from tests.store.conftest import Git

TESTS = Path(__file__).parents[1]


def write_until_killed(root: Path, seed: int, delay: float) -> list[list[str]]:
    """Start a writer, kill it *delay* seconds after its first word; what it acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "support.store_writer", str(root), "s", str(seed)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    first = writer.stdout.readline()
    time.sleep(delay)  # the moment of the kill is what varies here
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    writer.wait()
    writer.stdout.close()
    whole = (first + rest).rpartition("\n")[0]
    return [line.split() for line in whole.splitlines()]


def check(root: Path, acknowledged: list[list[str]], git: Git) -> None:
    store = SessionStore(root)
    if acknowledged == [["open", "-"]] and not store.exists("s"):
        return
    session = store.open("s")
    for what, status in acknowledged[1:]:
        if status == "running":
            assert session.dag.node(what).status in ("completed", "interrupted")
        elif status == "completed":
            assert session.dag.node(what).status == "completed"
            assert session.dag.node(what).output == session.dag.node(what).input
        else:
            assert session.dag.turns[what].status == "completed"
    assert all(n.status != "running" for n in session.dag)
    assert all(t.status != "running" for t in session.dag.turns.values())

    session.begin_turn(Turn(f"after {len(session.dag)}", base=session.dag.head, subject="go on"))
    session.append(Node(f"n{len(session.dag) + 1}", "user", "user", status="completed"))
    session.end_turn(f"after {len(session.dag) - 1}", "completed")
    session.flush()
    assert session.status.git_behind == ""
    session.close()
    log = git(store.path("s"), "log", "--all", "--format=%B")
    assert log.count("Turn-Id:") == len(session.dag.turns)
    git(store.path("s"), "fsck", "--strict")
    assert git(store.path("s"), "status", "--porcelain") == ""


def kill_often(tmp_path: Path, git: Git, times: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(times):
        root = tmp_path / str(number % 3)  # some sessions die again and again
        acknowledged = write_until_killed(root, seed + number, chance.uniform(0, 0.5))
        check(root, acknowledged, git)


def test_ten_kills_lose_nothing(ram_path: Path, git: Git) -> None:
    kill_often(ram_path, git, 10, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_kills_lose_nothing(tmp_path: Path, git: Git) -> None:
    """KILLS=500 in the environment for a longer run."""
    kill_often(tmp_path, git, int(os.environ.get("KILLS", "50")), seed=1000)
