"""The doctor says what is wrong, file and byte, changes nothing, and mends when it is told to."""

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import SessionLocked, UnknownSession
from op_jupyter.store import codec
from op_jupyter.store.doctor import Examined
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture
from tests.store.conftest import Git


@pytest.fixture
def store(ram_path: Path) -> SessionStore:
    """Session ``s``: two turns, a fork, and a large value."""
    store = SessionStore(ram_path)
    session = store.open(store.create_session("s", title="A patient"))
    for number, base in ((1, None), (2, "n1"), (3, "n1")):
        session.begin_turn(Turn(f"t{number}", base=base, subject=f"turn {number}"))
        text, where = "x" * 70_000, {"turn_id": f"t{number}"}
        node = Node(f"n{number}", "user", "user", input=text, predecessor=base, metadata=where)
        session.append(node, advance_head=True)
        session.update(node.id, status="completed")
        session.end_turn(f"t{number}", "completed")
    session.close()
    return store


def folder(store: SessionStore) -> Path:
    return store.root_path / "s"


def segment(store: SessionStore, turn: int) -> Path:
    return sorted(folder(store).glob("history/000/*-agent-*.jsonl"))[turn - 1]


def state(root: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def examine(store: SessionStore) -> Examined:
    """What the doctor says; looking changes nothing."""
    before = state(folder(store))
    said = store.doctor("s").examine()
    assert state(folder(store)) == before
    return said


def said(examined: Examined) -> list[tuple[str, bool]]:
    return [(finding.kind, bool(finding.repair)) for finding in examined.findings]


def test_a_healthy_session_has_nothing(store: SessionStore) -> None:
    examined = examine(store)
    assert (examined.findings, examined.turns, examined.nodes) == ((), 3, 3)
    assert (examined.format, examined.older, examined.holder) == (codec.FORMAT, 0, "")


def test_a_session_that_is_not_there_is_an_error(store: SessionStore) -> None:
    with pytest.raises(UnknownSession):
        store.doctor("other")


def test_a_damaged_record_comes_back_from_git(store: SessionStore) -> None:
    before = picture(store.load("s"))
    path = segment(store, 2)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"turn 2", b"turn X"))
    examined = examine(store)
    first = examined.findings[0]
    assert (first.kind, first.path) == ("damage", str(path.relative_to(folder(store))))
    assert first.offset == 0
    assert "checksum is wrong" in first.what
    assert "copy that git has" in first.repair

    assert store.doctor("s").mend().findings == ()
    assert path.read_bytes() == whole
    assert picture(store.load("s")) == before
    (kept,) = folder(store).glob("context/damaged/*")
    assert b"turn X" in kept.read_bytes()


def test_damage_that_git_has_no_copy_of_is_said_and_left_alone(store: SessionStore) -> None:
    session = store.open("s")
    session.begin_turn(Turn("t4", base="n3"))
    session.append(Node("n4", "user", "user", status="completed", metadata={"turn_id": "t4"}))
    session.append(Node("n5", "user", "user", status="completed", metadata={"turn_id": "t4"}))
    store.abandon()
    path = max(folder(store).glob("history/000/*-agent-*"))
    path.write_bytes(path.read_bytes().replace(b'"n4"', b'"nX"'))
    (damage,) = [f for f in examine(store).findings if f.kind == "damage"]
    assert "git has no copy" in damage.what
    assert damage.repair == ""
    assert damage in store.doctor("s").mend().findings
    assert b'"nX"' in path.read_bytes()


def test_a_damaged_large_value_comes_back_from_git(store: SessionStore) -> None:
    (blob,) = folder(store).glob("context/blobs/*/*")
    blob.write_bytes(b"y" * 70_000)
    assert ("damage", True) in said(examine(store))
    assert store.doctor("s").mend().healthy
    assert blob.read_bytes() == b"x" * 70_000
    (kept,) = folder(store).glob("context/damaged/*")
    assert kept.read_bytes() == b"y" * 70_000


def test_files_that_are_only_in_git_are_put_back(store: SessionStore) -> None:
    shutil.rmtree(folder(store) / "history")
    shutil.rmtree(folder(store) / "context")
    assert said(examine(store)) == [("missing", True)]
    assert store.doctor("s").mend().healthy
    assert segment(store, 1).exists()


def test_refs_that_moved_are_told_and_put_right(store: SessionStore, git: Git) -> None:
    tip = git(folder(store), "rev-parse", "fork-2").strip()
    git(folder(store), "update-ref", "refs/heads/fork-2", "fork-2~1")
    git(folder(store), "symbolic-ref", "HEAD", "refs/heads/main")
    # The segment is in no ref any more: it is committed again, and then the ref is right.
    assert [finding.kind for finding in examine(store).findings] == ["behind"]
    assert store.doctor("s").mend().healthy
    git(folder(store), "update-ref", "refs/heads/fork-2", "main")
    git(folder(store), "update-ref", "refs/heads/mine", tip)
    git(folder(store), "symbolic-ref", "HEAD", "refs/heads/main")
    kinds = [finding.kind for finding in examine(store).findings]
    assert set(kinds) <= {"refs", "behind"}
    assert kinds
    assert store.doctor("s").mend().healthy
    assert "turn 3" in git(folder(store), "log", "--format=%s", "fork-2")
    assert git(folder(store), "rev-parse", "mine").strip() == tip


@pytest.mark.parametrize("path", ["", "history", "history/000", "meta.json"])
def test_what_others_may_read_is_told_and_closed(store: SessionStore, path: str) -> None:
    (folder(store) / path).chmod(0o755)
    (finding,) = examine(store).findings
    assert (finding.kind, finding.path) == ("modes", path)
    assert store.doctor("s").mend().healthy


def test_what_a_dead_writer_left_is_told_and_cleared(store: SessionStore) -> None:
    code = """
import os, sys
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.sessions import SessionStore
session = SessionStore(sys.argv[1]).open("s")
session.begin_turn(Turn("t4", base="n3", subject="cut off"))
session.append(Node("n4", "user", "user", metadata={"turn_id": "t4"}))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code, str(store.root_path)], check=True)
    (folder(store) / ".git" / "swap_01234567").write_bytes(b"x")
    (folder(store) / "meta.json.01234567.tmp").write_bytes(b"x")
    path = max(folder(store).glob("history/000/*-agent-*"))
    path.write_bytes(path.read_bytes() + b'{"kind":')
    for left in folder(store).rglob("*"):
        left.chmod(0o700 if left.is_dir() else 0o600)
    examined = examine(store)
    assert {finding.kind for finding in examined.findings} == {"leftover", "behind"}
    told = "\n".join(finding.what for finding in examined.findings)
    for words in ("ended without closing it", "swap_", "never finished", "8 bytes", "1 turns"):
        assert words in told
    assert store.doctor("s").mend().healthy
    assert store.load("s").turns["t4"].status == "interrupted"


def test_a_session_that_is_open_is_not_sick_and_not_mended(store: SessionStore) -> None:
    session = store.open("s")
    session.begin_turn(Turn("t4", base="n3"))
    examined = examine(store)
    assert examined.healthy
    assert str(os.getpid()) in examined.holder or "this process" in examined.holder
    with pytest.raises(SessionLocked):
        store.doctor("s").mend()
    session.end_turn("t4", "completed")
    session.close()


def test_a_newer_format_is_named(store: SessionStore) -> None:
    path = segment(store, 3)
    lines = path.read_bytes().split(b"\n")
    body = lines[0][: lines[0].rindex(b',"crc"')].replace(b'"v":%d' % codec.FORMAT, b'"v":7')
    lines[0] = b'%b,"crc":"%08x"}' % (body, zlib.crc32(body))
    path.write_bytes(b"\n".join(lines))
    examined = examine(store)
    assert examined.format == 7
    assert "format 7" in examined.findings[-1].what


def test_a_committed_segment_that_was_rewritten_is_told(store: SessionStore) -> None:
    path = segment(store, 2)
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first + b"\n")  # its records are good, but not all there
    (finding,) = examine(store).findings
    assert "git has more" in finding.what
    assert store.doctor("s").mend().healthy
    assert path.read_bytes() == first + b"\n" + rest


def test_a_damaged_repository_is_told_with_the_way_out(store: SessionStore) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git executable")
    for pack in folder(store).glob(".git/objects/pack/*.pack"):
        pack.chmod(0o600)
        data = pack.read_bytes()
        pack.write_bytes(data[:40] + bytes([data[40] ^ 255]) + data[41:])
    told = [f.what for f in examine(store).findings if f.kind == "git"]
    assert told
    (folder(store) / ".git").rename(folder(store) / "old.git")
    assert {f.kind for f in examine(store).findings} == {"behind"}
    assert store.doctor("s").mend().healthy
