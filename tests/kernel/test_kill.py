"""A kernel that is killed in the middle of a turn: nothing that was shown is lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import Kernel, running_kernel
from kernel.page import Page

from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text, tool

KILLS = int(os.environ.get("OPENPROGRAM_TEST_KILLS", "15"))
SESSION = "often-killed"


class Shown:
    """The last status of every node that a page was shown."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}

    def read(self, kernel: Kernel) -> None:
        for messages in kernel.comms.values():
            for message in messages:
                self._message(message["content"]["data"])

    def _message(self, data: dict[str, Any]) -> None:
        content = data.get("content", {})
        if content.get("kind") == "snapshot":
            for node in content["state"]["nodes"]:
                self.nodes[node["id"]] = node["status"]
        if content.get("kind") == "updates":
            for item in content["items"]:
                if item["kind"] in ("node_appended", "node_updated"):
                    self.nodes[item["data"]["id"]] = item["data"]["status"]


def script(fake: FakeMessages, delay: float) -> None:
    """Three steps: slow code, slow code, a streamed answer."""
    fake.script(
        Reply([text("First. "), tool("python", id="a", code="import time; time.sleep(0.05)")]),
        Reply([tool("python", id="b", code="print('x' * 5000)")], delay=delay),
        Reply([text("An answer of some words. " * 20)], delay=delay),
    )


def check(root: Path, shown: Shown) -> None:
    """Open what the dead kernel left, and hold it against what it had shown."""
    store = SessionStore(root_path=root)
    opened = store.open(SESSION, timeout=10)  # the system may take a moment to bury it
    dag = opened.dag
    opened.close()
    for node_id, status in shown.nodes.items():
        assert node_id in dag.nodes, f"{node_id} was shown and is lost"
        kept = dag.nodes[node_id].status
        assert (
            kept == status
            or (status, kept) == ("running", "interrupted")
            or (status == "running" and kept != "running")
        ), f"{node_id} was shown as {status} and is {kept}"
    assert not [n.id for n in dag if n.status == "running"]
    assert not [t.id for t in dag.turns.values() if t.status == "running"]
    assert [n.seq for n in dag] == sorted({n.seq for n in dag})


def kill_once(kernel: Kernel, fake: FakeMessages, chance: random.Random, shown: Shown) -> None:
    kernel.check("%load_ext op_jupyter")
    kernel.check(f"%agent resume {SESSION}")
    fake.reset()
    script(fake, 0.002)
    cell = kernel.send("%%agent --mode auto\nWork until you are killed", allow_stdin=True)
    page = Page(kernel, cell)
    page.send({"kind": "ready"})
    after = chance.uniform(0, 0.6)
    with suppress(TimeoutError):
        kernel.wait_for(lambda: cell.finished, "the moment of the kill", after)
    kernel.kill()
    shown.read(kernel)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_lose_nothing_that_was_shown(tmp_path: Path, fake: FakeMessages) -> None:
    root = tmp_path / "sessions"
    store = SessionStore(root_path=root)
    opened = store.open(store.create_session(SESSION))
    opened.set_meta(title="killed")
    opened.close()
    env = {
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(root),
    }
    chance, shown = random.Random(20261129), Shown()
    with running_kernel("newest", tmp_path, env) as kernel:
        for _ in range(KILLS):
            kill_once(kernel, fake, chance, shown)
            check(root, shown)
            kernel.restart()
        kernel.check("%load_ext op_jupyter")
        kernel.check(f"%agent resume {SESSION}")
        fake.reset()
        fake.script(Reply([text("Still here.")]))
        cell = kernel.run("%%agent\nAre you there?")
        assert cell.status == "ok", cell.reply and cell.reply["content"]
    turns = list(SessionStore(root_path=root).load(SESSION).turns.values())
    assert turns[-1].status == "completed"
    # A few kills come before the first record of their turn.
    interrupted = [t for t in turns if t.status == "interrupted"]
    assert KILLS // 3 < len(interrupted) <= KILLS
    if git := shutil.which("git"):
        done = subprocess.run(
            [git, "-C", str(root / SESSION), "fsck", "--strict"], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
