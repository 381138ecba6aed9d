"""What a turn costs does not grow with the session: counted, not timed, so that it holds anywhere.

`make bench` has the seconds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

from op_jupyter import Runtime, agent, agentic_function, session_context
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.base import OpenSession
from op_jupyter.store.files import FileSystem
from op_jupyter.store.journal import SHARD
from op_jupyter.store.sessions import SessionStore

EARLY, LATE = 20, 20 + SHARD
"""Turns before the two looks, each as far into a folder of segments, whose list git stores."""
LOOK = 9
COUNTED = ("writes", "syncs", "renames", "opens", "bytes")


class CountingFiles(FileSystem):
    """Counts what is asked of the disk, and spares it the waiting."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.asked[what] += number

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._count("writes")
        self._count("bytes", len(data))
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._count("syncs")

    def rename(self, old: str, new: str) -> None:
        self._count("renames")
        super().rename(old, new)

    def open(self, path: str, flags: int) -> int:
        self._count("opens")
        return super().open(path, flags)


def costs(
    files: CountingFiles, turn: Callable[[int], None], flush: Callable[[], None]
) -> dict[int, dict[str, float]]:
    """What *turn* asks of the disk, early and late.

    The median of some turns: once in a while packs of git are made one, which `make bench` has.
    """
    seen = {}
    done = 0
    for at in (EARLY, LATE):
        for number in range(done, at):
            turn(number)
        flush()
        taken = []
        for number in range(at, at + LOOK):
            before = files.asked.copy()
            turn(number)
            flush()
            taken.append({what: files.asked[what] - before[what] for what in COUNTED})
        seen[at] = {what: median(each[what] for each in taken) for what in COUNTED}
        done = at + LOOK
    return seen


def write_turn(session: OpenSession, number: int) -> None:
    """Three nodes of a kilobyte."""
    turn = f"t{number:06}"
    session.begin_turn(Turn(turn, base=session.dag.head, subject="a turn"))
    for step in range(3):
        node = f"n{number:06}-{step}"
        session.append(
            Node(
                node,
                "llm",
                "model",
                input={"prompt": "x" * 1_000},
                predecessor=session.dag.head,
                metadata={"turn_id": turn},
            ),
            advance_head=True,
        )
        session.update(node, output="y" * 1_000, status="completed")
    session.end_turn(turn, "completed")


def assert_flat(seen: dict[int, dict[str, float]]) -> None:
    early, late = seen[EARLY], seen[LATE]
    for what in COUNTED:
        # Numbers get digits, and the list of folders a line: a little, never in proportion.
        assert late[what] <= 1.05 * early[what] + 1, (what, early, late)


def test_a_turn_asks_the_same_of_the_disk_however_long_the_session_is(tmp_path: Path) -> None:
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    with closing(store.open(store.create_session("s"))) as session:
        seen = costs(files, lambda number: write_turn(session, number), session.flush)
    assert_flat(seen)
    # Each record once to the journal, and once to git, which compresses it.
    assert seen[LATE]["bytes"] <= 2 * 3 * 2_000 + 5_000


@pytest.mark.parametrize("nested", [False, True], ids=["a bare call", "inside a function"])
def test_a_function_that_does_nothing_asks_the_same_of_the_disk(
    tmp_path: Path, nested: bool
) -> None:
    files = CountingFiles()

    @agentic_function
    def nothing(n: int) -> int:
        """Do nothing."""
        return n

    def run(flush: Callable[[], None]) -> dict[int, dict[str, float]]:
        return costs(files, lambda number: nothing(number), flush)

    @agentic_function
    def outer() -> None:
        """Call `nothing` often."""
        seen.update(run(lambda: None))

    seen: dict[int, dict[str, float]] = {}
    store = SessionStore(tmp_path, files=files)
    with session_context("s", store=store, create_runtime_if_none=False) as handle:
        if nested:
            outer()
        else:
            seen = run(handle.agent.store.flush)
    assert_flat(seen)


def test_a_turn_of_the_agent_asks_the_same_of_the_disk(tmp_path: Path) -> None:
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    runtime = Runtime(call=lambda _content: "done")
    with session_context("s", store=store, runtime=runtime) as handle:
        seen = costs(files, lambda number: agent(f"turn {number:06}"), handle.agent.store.flush)
    assert_flat(seen)
