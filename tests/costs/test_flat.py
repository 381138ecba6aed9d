"""What a turn costs does not grow with the session: counted, not timed, so that it holds anywhere.

`make bench` has the seconds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from types import FrameType

import pytest

from op_jupyter import Runtime, agent, agentic_function, session_context
from op_jupyter.core import prompt
from op_jupyter.core.messages import TextBlock
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.engine import loop
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.store.base import OpenSession
from op_jupyter.store.files import FileSystem
from op_jupyter.store.journal import SHARD
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore

EARLY, LATE = 20, 20 + SHARD
"""Turns before the two looks, each as far into a folder of segments, whose list git stores."""
LOOK = 9
COUNTED = ("writes", "waits", "syncs", "renames", "opens", "bytes")


class CountingFiles(FileSystem):
    """Counts what is asked of the disk, and spares it the waiting."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._thread = ""
        self._lock = threading.Lock()

    def _count(self, what: str, number: int = 1) -> None:
        with self._lock:
            if self._thread in ("", threading.current_thread().name):
                self.asked[what] += number

    @contextmanager
    def only_of_thread(self, name: str) -> Iterator[None]:
        """Count what that thread asks: what others ask, nobody waits for."""
        self._thread = name
        yield
        self._thread = ""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._count("writes")
        self._count("bytes", len(data))
        return super().write(fd, data)

    def fsync(self, *fds: int) -> None:
        self._count("waits")
        self._count("syncs", len(fds))

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


def a_call(_session: AgentSession, number: int) -> None:
    agent(f"turn {number:06}")


def a_prompt(session: AgentSession, number: int) -> None:
    runtime = Runtime(call=lambda _content: "done")
    start = TurnStart((TextBlock(f"turn {number:06}"),), runtime)
    assert loop.run_sync(session.run_turn, start)[1].status == "completed"


@pytest.mark.parametrize("turn", [a_call, a_prompt], ids=["a bare call", "a person's turn"])
def test_a_turn_of_the_agent_asks_the_same_of_the_disk(
    tmp_path: Path, turn: Callable[[AgentSession, int], None]
) -> None:
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    runtime = Runtime(call=lambda _content: "done")
    with session_context("s", store=store, runtime=runtime) as handle:
        session = handle.agent
        seen = costs(files, lambda number: turn(session, number), session.store.flush)
    assert_flat(seen)


@pytest.mark.parametrize(
    ("turn", "writes"), [(a_call, 2), (a_prompt, 3)], ids=["a bare call", "a person's turn"]
)
def test_a_turn_waits_for_the_disk_as_rarely_as_can_be(
    tmp_path: Path, turn: Callable[[AgentSession, int], None], writes: int
) -> None:
    """The start with the first node and the name of its file, the end with the answer."""
    files = CountingFiles()
    waited_for: Counter[str] = Counter()
    store = SessionStore(tmp_path, files=files)
    runtime = Runtime(call=lambda _content: "done")
    with session_context("s", store=store, runtime=runtime) as handle:
        session = handle.agent
        for number in range(3):  # folders are made
            turn(session, number)
        session.store.flush()
        with files.only_of_thread("openprogram-loop"):
            before = files.asked.copy()
            turn(session, 3)
            waited_for = files.asked - before
    assert (waited_for["writes"], waited_for["waits"]) == (writes, writes)


def test_nodes_that_are_appended_together_are_waited_for_once(tmp_path: Path) -> None:
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    with closing(store.open(store.create_session("s"))) as session:
        session.begin_turn(Turn("t", subject="a turn"))
        inside = {"turn_id": "t"}
        with files.only_of_thread(threading.current_thread().name):
            before = files.asked.copy()
            session.append_many([Node(f"n{n}", "code", "f", metadata=inside) for n in range(50)])
            asked = files.asked - before
    assert (asked["waits"], asked["writes"]) == (1, 1)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git executable")
def test_what_is_pulled_is_waited_for_together(tmp_path: Path) -> None:
    turns = 40
    here, remote = SessionStore(tmp_path / "here"), str(tmp_path / "remote.git")
    with closing(here.open(here.create_session("s"))) as session:
        for number in range(turns):
            write_turn(session, number)
    subprocess.run(["git", "init", "-q", "--bare", remote], check=True)
    here.push("s", remote)
    files = CountingFiles()
    there = SessionStore(tmp_path / "there", files=files)
    there.pull(remote, "s")
    assert len(there.load("s").turns) == turns
    assert files.asked["waits"] < turns


def test_a_session_begins_with_few_waits_for_the_disk(tmp_path: Path) -> None:
    """Its folders, its lock, its repository: what is made together is waited for at once."""
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    with closing(store.open(store.create_session("s"))) as session:
        session.begin_turn(Turn("t", base=None, subject="a turn"))
        first = files.asked["waits"]
        with files.only_of_thread("op-jupyter-commits"):
            session.end_turn("t", "completed")
            session.flush()
        committed = files.asked["waits"] - first
    assert (first, committed) == (3, 8)


def test_a_commit_waits_for_the_disk_three_times(tmp_path: Path) -> None:
    """For its objects and what the ref will say; for the name of their pack; for the ref's."""
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    with closing(store.open(store.create_session("s"))) as session:
        for number in range(2):  # folders are made
            write_turn(session, number)
            session.flush()
        with files.only_of_thread("op-jupyter-commits"):
            before = files.asked.copy()
            write_turn(session, 2)
            session.flush()
        waited_for = files.asked - before
    assert (waited_for["waits"], waited_for["syncs"]) == (3, 5)


@pytest.mark.parametrize("turn", [a_call, a_prompt], ids=["bare calls", "a person's turns"])
def test_a_history_is_rendered_once(turn: Callable[[AgentSession, int], None]) -> None:
    """However long it is: what was rendered for one prompt is not rendered again for the next."""
    seen = {}
    runtime = Runtime(call=lambda _content: "done")
    with session_context("s", store=MemoryStore(), runtime=runtime) as handle:
        session = handle.agent
        for number in range(LATE + 1):
            turn(session, number)
            if number in (EARLY, LATE):
                seen[number] = rendered(session)
    assert seen[EARLY] == seen[LATE] <= 1


def rendered(session: AgentSession) -> int:
    """How many exchanges the next prompt renders anew."""
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is prompt._exchange.__code__

    sys.setprofile(look)
    try:
        messages = prompt.render_messages(
            session.dag, prompt.Shown(session.dag.head, session.dag.last_seq), prompt.CallInput()
        )
    finally:
        sys.setprofile(None)
    assert sum(m.role == "assistant" for m in messages) > EARLY
    return count
