"""Whatever the disk refuses, and wherever: nothing acknowledged is lost, nothing else breaks."""

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.faulty_files import FaultyFileSystem

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import ReadOnlySession, StoreError
from op_jupyter.store.base import OpenSession
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture

Step = Callable[[OpenSession], Any]
Picture = dict[str, Any]

TWO_SEGMENTS = [
    Node("g", "code", "g", caller="m", metadata={"turn_id": "t1"}),
    Node("h", "code", "h", caller="g"),  # of no turn
]


def bulky(name: str) -> list[Node]:
    return [
        Node(f"{name}{i}", "code", "f", input="z" * 60_000, metadata={"turn_id": "t1"})
        for i in range(9)
    ]


# A turn, a fork and what is around them; each step is acknowledged or refused as a whole.
STEPS: list[Step] = [
    lambda s: s.set_meta(title="first"),
    lambda s: s.begin_turn(Turn("t1", subject="hello")),
    lambda s: s.append(Node("u", "user", "user", input="hi", metadata={"turn_id": "t1"})),
    lambda s: s.append(
        Node("m", "llm", "model", predecessor="u", input="x" * 70_000, metadata={"turn_id": "t1"}),
        advance_head=True,
    ),
    lambda s: s.update("m", output=["y" * 70_000], status="completed"),
    lambda s: s.append_many(bulky("a")),
    lambda s: s.append_many(bulky("b")),  # its file is full: it goes on in another
    lambda s: s.append_many(TWO_SEGMENTS),
    lambda s: s.record_decision({"answer": "allow"}),
    lambda s: s.end_turn("t1", "completed"),
    lambda s: s.begin_turn(Turn("t2", base="u")),
    lambda s: s.append(Node("v", "user", "user", predecessor="u", metadata={"turn_id": "t2"})),
    lambda s: s.branch("idea", "u"),
    lambda s: s.end_turn("t2", "failed", failure={"code": "doom_loop"}),
]


def now() -> float:
    return 1_800_000_000.0


def open_new(root: Path, files: FaultyFileSystem) -> OpenSession:
    store = SessionStore(root, files=files, clock=now)
    return store.open(store.create_session("s", title="given"))


def run(session: OpenSession, steps: list[Step]) -> int:
    """Do *steps* until one is refused, which must change nothing; how many were not."""
    for number, step in enumerate(steps):
        before = picture(session.snapshot())
        try:
            step(session)
        except StoreError:
            assert picture(session.snapshot()) == before
            return number
    return len(steps)


def expected(steps: list[Step]) -> Picture:
    """What reopening has to give after these acknowledged steps and a crash."""
    store = MemoryStore(clock=now)
    session = store.open(store.create_session("s", title="given"))
    assert run(session, steps) == len(steps)
    store.crash()
    return picture(store.open("s").snapshot())


EXPECTED = [expected(STEPS[:count]) for count in range(len(STEPS) + 1)]


def perhaps(done: int) -> list[Picture]:
    """What may be there after *done* steps when nobody could put the refused one back.

    Of several nodes that were appended at once, those before some point.
    """
    batches = {5: bulky("a"), 6: bulky("b"), 7: TWO_SEGMENTS}
    prefixes = [batches[done][:n] for n in range(len(batches.get(done, [])))]
    partly = [
        expected([*STEPS[:done], lambda s, nodes=nodes: s.append_many(nodes)])
        for nodes in prefixes
        if nodes
    ]
    return [EXPECTED[done], *partly, EXPECTED[min(done + 1, len(STEPS))]]


def reopened(root: Path) -> Picture:
    store = SessionStore(root, clock=now)
    if not store.exists("s"):
        store.create_session("s", title="given")
    session = store.open("s")
    found = picture(session.snapshot())
    session.flush()
    assert session.status.git_behind == ""
    session.close()
    assert picture(store.load("s")) == found
    committed = commits_of_turns(root / "s")
    assert sorted(committed) == sorted(found_turn.id for found_turn in found["turns"])
    return found


def commits_of_turns(folder: Path) -> list[str]:
    """The turns that commits say they are of; each should be there once."""
    log = subprocess.run(
        ["git", "-C", str(folder), "log", "--all", "--format=%(trailers:key=Turn-Id,valueonly)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return log.stdout.split()


def count_calls(root: Path, files: FaultyFileSystem) -> int:
    session = open_new(root, files)
    assert run(session, STEPS) == len(STEPS)
    session.close()
    return files.calls


FAULTS = pytest.mark.parametrize(
    ("error", "forever", "only"),
    [
        (errno.EIO, False, ""),
        (errno.ENOSPC, True, "open write mkdir"),
        (errno.EIO, True, ""),
    ],
    ids=["one call fails", "the disk is full", "the disk is gone"],
)


@FAULTS
def test_a_failing_disk_loses_nothing_that_was_acknowledged(
    ram_path: Path, error: int, forever: bool, only: str
) -> None:
    fail_the_journal(ram_path, error, forever, only, stride=7)


@pytest.mark.slow
@FAULTS
def test_a_disk_that_fails_at_any_call_loses_nothing_that_was_acknowledged(
    ram_path: Path, error: int, forever: bool, only: str
) -> None:
    fail_the_journal(ram_path, error, forever, only, stride=1)


def fail_the_journal(root: Path, error: int, forever: bool, only: str, stride: int) -> None:
    probe = FaultyFileSystem("journal")
    probe.arm(0, only=only)
    for number in range(1, count_calls(root / "probe", probe) + 1, stride):
        files = FaultyFileSystem("journal")
        files.arm(number, error, forever=forever, only=only)
        session = open_new(root / str(number), files)
        done = run(session, STEPS)
        files.disarm()
        if session.status.read_only:
            with pytest.raises(ReadOnlySession, match="open it again"):
                session.set_meta(title="second")
            allowed = perhaps(done)
        else:
            assert run(session, STEPS[done:]) == len(STEPS) - done, f"after call {number}"
            allowed = [EXPECTED[-1]]
        session.abandon()
        assert reopened(root / str(number)) in allowed, f"call {number}: {files.names[number - 1]}"


FOREVER = pytest.mark.parametrize("forever", [False, True], ids=["one call fails", "all fail"])


@FOREVER
def test_a_failing_commit_fails_nothing_else_and_is_made_up_for(
    ram_path: Path, forever: bool
) -> None:
    fail_the_commits(ram_path, forever, stride=17)


@pytest.mark.slow
@FOREVER
def test_a_commit_that_fails_at_any_call_is_made_up_for(ram_path: Path, forever: bool) -> None:
    fail_the_commits(ram_path, forever, stride=1)


def fail_the_commits(root: Path, forever: bool, stride: int) -> None:
    probe = FaultyFileSystem("git")
    for number in range(1, count_calls(root / "probe", probe) + 1, stride):
        files = FaultyFileSystem("git")
        files.arm(number, forever=forever)
        session = open_new(root / str(number), files)
        assert run(session, STEPS) == len(STEPS)
        session.flush()
        files.disarm()
        session.flush()
        assert session.status.git_behind == ""
        session.close()
        assert reopened(root / str(number)) == EXPECTED[-1]


def test_git_that_is_behind_says_so_and_catches_up_with_the_next_turn(ram_path: Path) -> None:
    files = FaultyFileSystem("git")
    session = open_new(ram_path, files)
    files.arm(1, errno.ENOSPC, forever=True)
    run(session, STEPS[:10])
    session.flush()
    assert "No space left" in session.status.git_behind
    files.disarm()
    run(session, STEPS[10:])
    session.flush()
    assert session.status.git_behind == ""
    session.close()


def test_a_record_that_arrives_in_pieces_is_whole(ram_path: Path) -> None:
    session = open_new(ram_path, FaultyFileSystem(piece=7))
    assert run(session, STEPS[:5]) == 5
    session.abandon()
    assert reopened(ram_path) == EXPECTED[5]


def test_when_space_returns_the_session_goes_on(ram_path: Path) -> None:
    files = FaultyFileSystem("journal")
    session = open_new(ram_path, files)
    run(session, STEPS[:3])
    files.arm(1, errno.ENOSPC, forever=True, only="write")
    for _ in range(3):
        with pytest.raises(StoreError, match="No space left on device"):
            session.append(Node("n", "user", "user", metadata={"turn_id": "t1"}))
    assert session.status.read_only == ""
    files.disarm()
    assert run(session, STEPS[3:]) == len(STEPS) - 3
    session.close()
    assert reopened(ram_path) == EXPECTED[-1]


class WatchedFiles(FaultyFileSystem):
    """Remembers what was made durable, by path."""

    def __init__(self) -> None:
        super().__init__("journal")
        self.synced: set[str] = set()
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def fsync(self, *fds: int) -> None:
        super().fsync(*fds)
        self.synced.update(self._paths[fd] for fd in fds)


def test_folders_that_a_refused_record_left_are_made_durable_with_the_next(ram_path: Path) -> None:
    files = WatchedFiles()
    session = open_new(ram_path, files)
    files.arm(2, errno.ENOSPC, only="open")  # the first is that of the lock
    with pytest.raises(StoreError, match="nothing was stored"):
        session.set_meta(title="first")
    shard = ram_path / "s" / "history" / "000"
    assert shard.is_dir()
    files.disarm()
    session.set_meta(title="first")
    assert {str(ram_path / "s"), str(shard.parent), str(shard)} <= files.synced
    session.close()


def test_after_a_failed_fsync_nothing_is_written_until_reopened(ram_path: Path) -> None:
    files = FaultyFileSystem("journal")
    session = open_new(ram_path, files)
    run(session, STEPS[:3])
    files.arm(1, only="fsync")
    with pytest.raises(StoreError):
        session.append(Node("n", "user", "user"))
    files.disarm()
    assert "open it again" in session.status.read_only
    with pytest.raises(ReadOnlySession):
        session.append(Node("n", "user", "user"))
    session.close()
    assert reopened(ram_path) == EXPECTED[3]
