"""What people do to a session's repository with their own git is noticed, kept and built upon."""

from dataclasses import replace
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import CorruptRecord, StoreError
from op_jupyter.store.base import OpenSession
from op_jupyter.store.files import FileSystem
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture
from tests.store.conftest import Git


@pytest.fixture
def store(ram_path: Path) -> SessionStore:
    return SessionStore(ram_path)


@pytest.fixture
def session(store: SessionStore) -> OpenSession:
    """Two turns on main, one on a fork."""
    session = store.open(store.create_session("s"))
    turn(session, "t1", None)
    turn(session, "t2", "t1")
    turn(session, "t3", "t1", text="x" * 100_000)
    session.flush()
    return session


def turn(session: OpenSession, name: str, base: str | None, text: str = "") -> None:
    session.begin_turn(Turn(name, base=base, subject=name))
    node = Node(
        name,
        "user",
        "user",
        input=text or name,
        status="completed",
        predecessor=base,
        metadata={"turn_id": name},
    )
    session.append(node, advance_head=True)
    session.end_turn(name, "completed")


def commit_by_hand(git: Git, folder: Path, text: str = "seen") -> None:
    (folder / "notes.md").write_text(text)
    git(folder, "add", "notes.md")
    git(folder, "commit", "-q", "-m", "by hand")


def subjects(git: Git, folder: Path) -> list[str]:
    return git(folder, "log", "--format=%s").splitlines()


def test_a_commit_by_hand_while_closed_is_built_upon(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    session.close()
    folder = store.root_path / "s"
    commit_by_hand(git, folder)
    again = store.open("s")
    turn(again, "t4", "t3")
    again.close()
    assert subjects(git, folder) == ["agent: t4", "by hand", "agent: t3", "agent: t1"]
    assert git(folder, "show", "HEAD:notes.md") == "seen"
    assert git(folder, "status", "--porcelain") == ""


def test_a_commit_by_hand_while_open_is_built_upon(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    folder = store.root_path / "s"
    git(folder, "read-tree", "HEAD")  # while a session is open its index is as it was
    commit_by_hand(git, folder)
    turn(session, "t4", "t3")
    session.close()
    assert subjects(git, folder) == ["agent: t4", "by hand", "agent: t3", "agent: t1"]
    assert git(folder, "show", "HEAD:notes.md") == "seen"
    git(folder, "fsck", "--strict")


def test_a_turn_that_was_committed_by_hand_in_its_middle_is_committed_whole_after_a_crash(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    folder = store.root_path / "s"
    session.begin_turn(Turn("t4", base="t3", subject="t4"))
    git(folder, "read-tree", "HEAD")
    git(folder, "add", "-A", "-f", "history")
    git(folder, "commit", "-q", "-m", "by hand")
    node = Node("t4", "user", "user", predecessor="t3", metadata={"turn_id": "t4"})
    session.append(replace(node, status="completed"), advance_head=True)
    lock = folder / ".git" / "refs" / "heads" / "fork-2.lock"
    lock.touch()  # the commit that follows has to wait
    session.end_turn("t4", "completed")
    session.flush()
    store.abandon()
    lock.unlink()
    store.pack("s")  # as somebody may do before the session is opened

    again = store.open("s")
    again.close()
    assert subjects(git, folder)[:2] == ["agent: t4 (recovered)", "by hand"]
    assert store.doctor("s").examine().healthy


def test_what_is_staged_stays_staged(store: SessionStore, session: OpenSession, git: Git) -> None:
    session.close()
    folder = store.root_path / "s"
    commit_by_hand(git, folder)
    (folder / "more.md").write_text("staged")
    git(folder, "add", "more.md")
    again = store.open("s")
    turn(again, "t4", "t3")
    again.close()
    assert git(folder, "status", "--porcelain") == "A  more.md\n"


def test_another_branch_checked_out_loses_nothing(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    before = picture(session.snapshot())
    session.close()
    folder = store.root_path / "s"
    git(folder, "checkout", "-q", "main")
    assert not list(folder.glob("context/blobs/*/*"))
    assert picture(store.load("s")) == before
    reader = store.open("s", "read")
    assert picture(reader.snapshot()) == before

    again = store.open("s")
    assert picture(again.snapshot()) == before
    assert again.status.repaired == ("2 files that were only in git were put back",)
    turn(again, "t4", "t3")
    again.close()
    assert subjects(git, folder) == ["agent: t4", "agent: t3", "agent: t1"]
    assert git(folder, "branch", "--show-current") == "fork-2\n"


def test_an_old_commit_checked_out_loses_nothing(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    before = picture(session.snapshot())
    session.close()
    git(store.root_path / "s", "checkout", "-q", "main~1")
    again = store.open("s")
    assert picture(again.snapshot()) == before
    again.close()
    assert git(store.root_path / "s", "branch", "--show-current") == "fork-2\n"


def test_a_clone_is_the_whole_session(
    store: SessionStore, session: OpenSession, git: Git, tmp_path: Path
) -> None:
    before = picture(session.snapshot())
    session.close()
    git(tmp_path, "clone", "-q", str(store.root_path / "s"), str(tmp_path / "root" / "copy"))
    elsewhere = SessionStore(tmp_path / "root")
    copy = elsewhere.open("copy")
    assert picture(copy.snapshot()) == before
    turn(copy, "t4", "t3")
    turn(copy, "t5", "t2")
    copy.close()
    folder = elsewhere.root_path / "copy"
    assert subjects(git, folder) == ["agent: t5", "agent: t2", "agent: t1"]
    assert git(folder, "log", "--format=%s", "fork-2").splitlines()[0] == "agent: t4"
    git(folder, "fsck", "--strict")


def test_a_clone_of_one_branch_has_that_branch(
    store: SessionStore, session: OpenSession, git: Git, tmp_path: Path
) -> None:
    session.close()
    git(
        tmp_path,
        *("clone", "-q", "--single-branch", "-b", "main", str(store.root_path / "s")),
        str(tmp_path / "root" / "copy"),
    )
    copy = SessionStore(tmp_path / "root").open("copy")
    assert [n.id for n in copy.dag] == ["t1", "t2"]
    turn(copy, "t4", "t2")
    copy.close()
    assert copy.status.git_behind == ""


def test_a_shallow_clone_goes_on_as_well(
    store: SessionStore, session: OpenSession, git: Git, tmp_path: Path
) -> None:
    session.close()
    url = f"file://{store.root_path / 's'}"
    git(tmp_path, "clone", "-q", "--depth", "1", url, str(tmp_path / "root" / "copy"))
    copy = SessionStore(tmp_path / "root").open("copy")
    assert {n.id for n in copy.dag} == {"t1", "t3"}
    turn(copy, "t4", "t3")
    copy.close()
    assert copy.status.git_behind == ""


@pytest.mark.parametrize("while_open", [False, True])
def test_packing_and_pruning_by_hand_loses_nothing(
    store: SessionStore, session: OpenSession, git: Git, while_open: bool
) -> None:
    before = picture(session.snapshot())
    folder = store.root_path / "s"
    if not while_open:
        session.close()
    git(folder, "gc", "-q", "--prune=now")
    again = session if while_open else store.open("s")
    assert picture(again.snapshot()) == before
    turn(again, "t4", "t2")
    turn(again, "t5", "t3")
    again.close()
    assert again.status.git_behind == ""
    git(folder, "fsck", "--strict")
    assert git(folder, "log", "--all", "--format=%s").count("agent") == 5


def test_a_hard_reset_by_hand_is_the_users_will_and_still_loses_no_turn(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    session.close()
    folder = store.root_path / "s"
    again = store.open("s")
    git(folder, "reset", "-q", "--soft", "HEAD~1")
    turn(again, "t4", "t3")
    again.close()
    assert subjects(git, folder) == ["agent: t4", "agent: t1"]
    assert {n.id for n in store.load("s")} == {"t1", "t2", "t3", "t4"}


@pytest.mark.parametrize("while_open", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        "reset --hard HEAD~1",
        "rebase -q --onto HEAD~1 HEAD",
        "commit -q --amend -m mine",
        "revert --no-edit HEAD",
    ],
)
def test_what_git_takes_out_of_reach_stays_part_of_the_session(
    store: SessionStore, session: OpenSession, git: Git, command: str, while_open: bool
) -> None:
    turn(session, "t4", "t3")
    session.close()
    folder = store.root_path / "s"
    tip = git(folder, "rev-parse", "HEAD").strip()
    if while_open:
        session = store.open("s")
        before = picture(session.snapshot())
    else:
        before = picture(store.load("s"))
    git(folder, *command.split())
    again = session if while_open else store.open("s")
    turn(again, "t5", "t2")
    turn(again, "t6", "t4")
    again.close()
    found = store.load("s")
    assert {n.id for n in found} == {"t1", "t2", "t3", "t4", "t5", "t6"}
    assert [n.id for n in found.spine()] == ["t1", "t3", "t4", "t6"]
    assert len(before["nodes"]) == 4
    assert git(folder, "for-each-ref", "--contains", tip) != ""
    again = store.open("s")
    again.close()
    assert again.status.git_behind == ""
    git(folder, "fsck", "--strict")


def test_without_its_repository_a_session_makes_a_new_one(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    import shutil

    before = picture(session.snapshot())
    session.close()
    folder = store.root_path / "s"
    shutil.rmtree(folder / ".git")
    again = store.open("s")
    assert picture(again.snapshot()) == before
    again.close()
    log = git(folder, "log", "--all", "--format=%s").splitlines()
    assert sorted(log) == [f"agent: {name} (recovered)" for name in ("t1", "t2", "t3")]
    assert git(folder, "log", "-1", "--format=%s", "main") == "agent: t2 (recovered)\n"
    assert git(folder, "log", "-1", "--format=%s", "fork-2") == "agent: t3 (recovered)\n"


def test_a_lock_of_another_git_delays_the_commit_and_nothing_else(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    lock = store.root_path / "s" / ".git" / "refs" / "heads" / "fork-2.lock"
    lock.touch()
    turn(session, "t4", "t3")
    session.flush()
    assert "fork-2.lock exists" in session.status.git_behind
    lock.unlink()
    turn(session, "t5", "t4")
    session.close()
    assert session.status.git_behind == ""
    assert subjects(git, store.root_path / "s")[:2] == ["agent: t5", "agent: t4"]


def test_a_lock_whose_owner_died_long_ago_is_removed(
    store: SessionStore, session: OpenSession
) -> None:
    import os

    session.close()
    lock = store.root_path / "s" / ".git" / "refs" / "heads" / "fork-2.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    again = store.open("s")
    turn(again, "t4", "t3")
    again.close()
    assert again.status.git_behind == ""
    assert not lock.exists()


def test_a_committed_segment_cut_short_is_damage(store: SessionStore, session: OpenSession) -> None:
    session.close()
    (segment,) = (store.root_path / "s").glob("history/000/00002-agent-*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(CorruptRecord, match="git has more"):
        store.open("s")
    assert segment.read_bytes() == b"".join(lines[:-1])


def test_nothing_is_stored_in_a_file_that_was_removed(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    folder = store.root_path / "s"
    session.begin_turn(Turn("t4", base="t3"))
    git(folder, "clean", "-q", "-fdx")  # takes along what is not committed yet
    before = picture(session.snapshot())
    with pytest.raises(StoreError, match="somebody else removed"):
        session.append(Node("t4", "user", "user", metadata={"turn_id": "t4"}))
    assert picture(session.snapshot()) == before
    assert "open it again" in session.status.read_only
    session.close()
    again = store.open("s")
    assert {n.id for n in again.dag} == {"t1", "t2", "t3"}
    turn(again, "t5", "t3")
    again.close()
    assert again.status.git_behind == ""


def test_a_segment_that_was_deleted_comes_back_from_git(
    store: SessionStore, session: OpenSession
) -> None:
    before = picture(session.snapshot())
    session.close()
    for segment in (store.root_path / "s").glob("history/000/0000[12]-*.jsonl"):
        segment.unlink()
    again = store.open("s")
    assert picture(again.snapshot()) == before
    again.close()


def test_a_users_branches_and_tags_are_left_alone(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    session.close()
    folder = store.root_path / "s"
    git(folder, "branch", "theirs", "main~1")
    git(folder, "tag", "-a", "-m", "a tag", "v1", "main")
    blob = git(folder, "hash-object", "-w", "meta.json").strip()
    git(folder, "tag", "of-a-file", blob)
    git(folder, "pack-refs", "--all")
    before = git(folder, "for-each-ref")
    again = store.open("s")
    turn(again, "t4", "t3")
    again.close()
    assert again.status.git_behind == ""
    after = git(folder, "for-each-ref")
    assert [r for r in before.splitlines() if "fork-2" not in r] == [
        r for r in after.splitlines() if "fork-2" not in r
    ]


def test_garbage_that_is_collected_in_the_middle_of_a_commit_is_not_its_own(
    ram_path: Path, git: Git
) -> None:
    folder, collected = ram_path / "s", []

    class Collecting(FileSystem):
        def rename(self, old: str, new: str) -> None:
            if new.endswith("/refs/heads/main"):  # its objects are there, no ref reaches them yet
                git(folder, "repack", "-adq")
                git(folder, "prune", "--expire=now")
                collected.append(len(list(folder.glob(".git/objects/pack/*.keep"))))
            super().rename(old, new)

    store = SessionStore(ram_path, files=Collecting())
    session = store.open(store.create_session("s"))
    for number in range(3):
        turn(session, f"t{number}", f"t{number - 1}" if number else None)
        session.flush()
    session.close()
    assert collected == [1, 1, 1]
    assert [s.split()[-1] for s in subjects(git, folder)] == ["t2", "t1", "t0"]
    git(folder, "fsck", "--full", "--strict")
    assert not list(folder.glob(".git/objects/pack/*.keep"))
