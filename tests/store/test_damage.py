"""What is cut off is an append that never ended; what is damaged is said, and left alone."""

import os
import re
import shutil
import stat
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.disks import SmallDisk, mounted

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import CorruptRecord, StoreError
from op_jupyter.store.interchange import copy_session, import_path
from op_jupyter.store.notes import Notes
from op_jupyter.store.search import SearchIndex
from op_jupyter.store.sessions import SessionStore, default_root
from op_jupyter.testing.contracts import picture
from tests.store.conftest import Git


@pytest.fixture
def store(ram_path: Path) -> SessionStore:
    """Session ``s``: a whole turn, and one that its process did not end."""
    store = SessionStore(ram_path / "root")
    session = store.open(store.create_session("s"))
    session.begin_turn(Turn("t1", subject="whole"))
    session.append(Node("n1", "user", "user", status="completed", metadata={"turn_id": "t1"}))
    session.end_turn("t1", "completed")
    session.flush()
    session.begin_turn(Turn("t2", subject="cut off"))
    session.append(Node("n2", "user", "user", input="é" * 20, metadata={"turn_id": "t2"}))
    store.abandon()
    return store


def segment(store: SessionStore, number: int) -> Path:
    (path,) = (store.root_path / "s").glob(f"history/000/{number:05d}-*.jsonl")
    return path


def last_line(data: bytes) -> int:
    return data.rindex(b"\n", 0, -1) + 1


def test_a_tail_torn_at_any_byte_is_cut_off_and_said(store: SessionStore) -> None:
    path = segment(store, 2)
    whole = path.read_bytes()
    start = last_line(whole)
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert [n.id for n in store.load("s")] == ["n1"]
        assert path.read_bytes() == whole[:end]
        session = store.open("s")
        assert [n.id for n in session.dag] == ["n1"]
        assert session.dag.turns["t2"].status == "interrupted"
        said = [text for text in session.status.repaired if "cut off history" in text]
        assert bool(said) == (end > start)
        store.abandon()
        again = store.open("s")
        assert again.status.repaired == ()
        store.abandon()
        shutil.rmtree(store.root_path / "s" / ".git")


@pytest.mark.parametrize("zeros", [b"\0" * 10, b"\0" * 5000, b"\0\0\0\n"])
def test_pages_that_a_power_cut_left_empty_are_a_torn_tail(
    store: SessionStore, zeros: bytes
) -> None:
    path = segment(store, 2)
    path.write_bytes(path.read_bytes() + zeros)
    session = store.open("s")
    assert [n.id for n in session.dag] == ["n1", "n2"]
    assert f"{len(zeros)} bytes" in session.status.repaired[0]
    session.close()


def test_a_changed_byte_anywhere_is_damage_with_its_place(store: SessionStore) -> None:
    for number in (0, 1, 2):
        path = segment(store, number)
        whole = path.read_bytes()
        for position in range(0, len(whole), 7):
            if whole[position] in b"\n" or position == len(whole) - 1:
                continue
            damaged = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
            if damaged.count(b"\n") != whole.count(b"\n"):
                continue
            path.write_bytes(damaged)
            with pytest.raises(CorruptRecord) as caught:
                store.open("s")
            assert caught.value.path == str(path)
            assert caught.value.offset == whole.rfind(b"\n", 0, position) + 1
            assert f"byte {caught.value.offset}" in str(caught.value)
            assert path.read_bytes() == damaged
            with pytest.raises(CorruptRecord):
                store.load("s")
            reader = store.open("s", "read")
            assert str(path) in reader.status.read_only
        path.write_bytes(whole)
    store.open("s").close()


def test_a_tail_torn_off_a_turn_that_had_ended_is_damage(store: SessionStore) -> None:
    path = segment(store, 1)
    path.write_bytes(path.read_bytes() + b'{"half a rec')
    with pytest.raises(CorruptRecord, match="cut off"):
        store.open("s")


def test_damage_leaves_the_rest_readable(store: SessionStore) -> None:
    path = segment(store, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"n1", b"nX"), lines[2]]))
    reader = store.open("s", "read")
    assert [n.id for n in reader.dag] == ["n2"]
    assert "1 records are left out" in reader.status.read_only


def test_a_missing_file_in_the_middle_of_a_segment_is_damage(store: SessionStore) -> None:
    path = segment(store, 2)
    path.rename(path.with_name(path.name.replace(".jsonl", ".1.jsonl")))
    with pytest.raises(CorruptRecord, match="missing"):
        store.open("s")


def test_a_damaged_large_value_is_damage(store: SessionStore) -> None:
    session = store.open("s")
    session.append(Node("big", "user", "user", input="x" * 100_000, status="completed"))
    session.close()
    (blob,) = (store.root_path / "s").glob("context/blobs/*/*")
    blob.write_bytes(b"y" * 100_000)
    with pytest.raises(CorruptRecord, match="is damaged"):
        store.open("s")
    with pytest.raises(StoreError, match="damaged"):
        store.open("s", "read").read_blob(blob.name)


def test_a_missing_large_value_comes_back_from_git(store: SessionStore) -> None:
    session = store.open("s")
    session.append(Node("big", "user", "user", input="x" * 100_000, status="completed"))
    session.close()
    (blob,) = (store.root_path / "s").glob("context/blobs/*/*")
    blob.unlink()
    assert store.load("s").node("big").input == "x" * 100_000
    store.open("s").close()
    assert blob.exists()


def test_a_long_turn_goes_on_in_further_files(store: SessionStore) -> None:
    session = store.open("s")
    session.begin_turn(Turn("t3", base=session.dag.head))
    for number in range(50):
        node = Node(
            f"long{number}",
            "code",
            "f",
            input="x" * 60_000,
            status="completed",
            metadata={"turn_id": "t3"},
        )
        session.append(node)
    store.abandon()
    again = store.open("s")
    files = sorted((store.root_path / "s").glob("history/000/*-agent-*.jsonl"))
    sizes = [f.stat().st_size for f in files if re.search(r"/0000[3-9]-", str(f))]
    assert len(sizes) == 3
    assert max(sizes) <= 1024 * 1024
    assert again.dag.turns["t3"].status == "interrupted"
    before = picture(again.snapshot())
    again.close()
    assert picture(store.load("s")) == before


def test_a_hundred_turns_share_a_folder(ram_path: Path) -> None:
    store = SessionStore(ram_path)
    session = store.open(store.create_session("s"))
    for number in range(205):
        session.begin_turn(Turn(f"t{number}", kind="call"))
        session.end_turn(f"t{number}", "completed")
    session.close()
    folders = sorted((ram_path / "s" / "history").iterdir())
    assert [folder.name for folder in folders] == ["000", "001", "002"]
    assert max(len(list(folder.iterdir())) for folder in folders) <= 100
    assert list(store.load("s").turns) == [f"t{number}" for number in range(205)]


# --- modes, limits, places --------------------------------------------------------------


def test_nobody_else_can_read_what_is_kept(ram_path: Path, git: Git) -> None:
    old = os.umask(0)
    try:
        store = SessionStore(ram_path / "deep" / "root")
        session = store.open(store.create_session("s"))
        session.begin_turn(Turn("t1"))
        session.append(Node("n1", "user", "user", input="x" * 70_000))
        session.end_turn("t1", "completed")
        session.close()
        store.pack("s")
        git(ram_path, "init", "-q", "--bare", "remote.git")
        store.push("s", str(ram_path / "remote.git"))
        pulled = SessionStore(ram_path / "other" / "root")
        pulled.pull(str(ram_path / "remote.git"), "s")
        pulled.doctor("s").mend()
        assert SearchIndex(store.root_path).search("nothing") == []
        Notes(store.root_path).add("a note", "s")
        store.delete("s")
    finally:
        os.umask(old)
    kept = {path.name for path in store.root_path.iterdir()}
    assert kept == {".index", ".memory", ".trash"}
    for root in (store.root_path, pulled.root_path):
        for path in [root, *root.rglob("*")]:
            expected = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == expected, path


FILL = """
import sys
from op_jupyter.store.sessions import SessionStore
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import StoreError
import resource, signal
store = SessionStore(sys.argv[1])
session = store.open(store.create_session("s"))
session.begin_turn(Turn("t1"))
if len(sys.argv) > 2:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
count = 0
try:
    while True:
        node = Node(f"n{count}", "user", "user", input="x" * 30_000, status="completed",
                    metadata={"turn_id": "t1"})
        session.append(node)
        count += 1
except StoreError as exc:
    print(count, type(exc).__name__, exc)
assert session.status.read_only == "" and len(session.dag) == count
"""


def fill(root: Path, *limit: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(root), *map(str, limit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, said = done.stdout.split(" ", 1)
    return int(count), said


def test_a_file_that_may_not_grow_refuses_the_record_and_loses_none(ram_path: Path) -> None:
    count, said = fill(ram_path, 200_000)
    assert count == 6
    assert "StoreError" in said
    assert "nothing was stored" in said
    assert len(SessionStore(ram_path).load("s")) == count


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "small") as disk:
        yield disk


def test_a_full_disk_refuses_loses_nothing_and_works_again_with_room(small_disk: SmallDisk) -> None:
    count, said = fill(small_disk.path)
    assert count > 10
    assert "No space left on device" in said
    store = SessionStore(small_disk.path)
    assert len(store.load("s")) == count
    small_disk.remount("size=8m")
    session = store.open("s")
    assert len(session.dag) == count
    assert session.dag.turns["t1"].status == "interrupted"
    session.begin_turn(Turn("t2"))
    session.append(Node("after", "user", "user", metadata={"turn_id": "t2"}))
    session.end_turn("t2", "completed")
    session.close()
    assert session.status.git_behind == ""


def test_a_read_only_disk_can_be_read_and_says_so(small_disk: SmallDisk) -> None:
    store = SessionStore(small_disk.path)
    session = store.open(store.create_session("s"))
    session.append(Node("n1", "user", "user", status="completed"))
    session.close()
    small_disk.remount("ro")
    try:
        assert len(store.load("s")) == 1
        assert len(store.open("s", "read").dag) == 1
        assert [info.id for info in store.sessions()] == ["s"]
        with pytest.raises(StoreError, match="Read-only file system"):
            store.open("s")
        fresh = store.open(store.create_session("t"))
        with pytest.raises(StoreError, match="Read-only file system"):
            fresh.append(Node("n1", "user", "user"))
    finally:
        small_disk.remount("rw")


def test_whatever_is_asked_of_a_full_disk_leaves_nothing_behind(
    small_disk: SmallDisk, tmp_path: Path, git: Git
) -> None:
    store = SessionStore(small_disk.path)
    session = store.open(store.create_session("s"))
    for number in range(3):
        session.begin_turn(Turn(f"t{number}"))
        about = {"turn_id": f"t{number}"}
        session.append(
            Node(f"n{number}", "user", "user", "x" * 9000, None, "completed", metadata=about)
        )
        session.end_turn(f"t{number}", "completed")
    session.close()
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    store.push("s", str(tmp_path / "remote.git"))
    store.delete("s")
    store.restore("s")
    tasks: list[Callable[[], object]] = [
        lambda: store.pack("s"),
        lambda: copy_session(store, "s", "copy"),
        lambda: import_path(store, small_disk.path / "s", "import"),
        lambda: SessionStore(small_disk.path / "other").pull(str(tmp_path / "remote.git"), "s"),
        lambda: store.open("s"),
    ]
    before = set(small_disk.path.rglob("*"))
    small_disk.fill()
    for task in tasks:
        with suppress(StoreError):
            task()
    assert len(store.load("s")) == 3
    store.delete("s")  # which may be the way to room
    store.restore("s")
    small_disk.empty()
    left = {path for path in small_disk.path.rglob("*") if path not in before}
    assert {path.name for path in left} <= {".incoming", "other"}
    for task in tasks[:3]:
        task()
    assert all(store.doctor(name).examine().healthy for name in ("s", "copy", "import"))


def test_a_root_that_is_a_file_is_a_clear_error(ram_path: Path) -> None:
    (ram_path / "root").write_text("")
    store = SessionStore(ram_path / "root")
    session = store.open(store.create_session("s"))
    with pytest.raises(StoreError, match="root"):
        session.append(Node("n1", "user", "user"))
    with pytest.raises(StoreError, match="Not a directory"):
        store.sessions()


def test_two_thousand_sessions_are_listed_without_opening_any(ram_path: Path) -> None:
    store = SessionStore(ram_path)
    session = store.open(store.create_session("s0000", title="one of many"))
    session.append(Node("n1", "user", "user", status="completed"))
    session.close()
    meta = (ram_path / "s0000" / "meta.json").read_bytes()
    for number in range(1, 2000):
        folder = ram_path / f"s{number:04d}"
        folder.mkdir()
        (folder / "meta.json").write_bytes(meta)
        (folder / "history").mkdir()
    # What other processes take of the machine is no part of it.
    timer = timeit.Timer(lambda: store.sessions(limit=3000), timer=time.process_time)
    assert min(timer.repeat(3, 1)) < 0.3
    assert len(store.sessions(limit=3000)) == 2000
    assert len(store.sessions()) == 50


def test_the_default_place_is_the_users_data_folder_or_a_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("OPENPROGRAM_HOME", raising=False)
    assert default_root() == tmp_path / "op-jupyter" / "sessions"
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "mine"))
    assert SessionStore().root_path == tmp_path / "mine"
    assert SessionStore(tmp_path / "given").root_path == tmp_path / "given"


def test_a_store_in_a_place_of_its_own_looks_nowhere_else(tmp_path: Path) -> None:
    code = """
import sys
from op_jupyter.store.sessions import SessionStore
from op_jupyter.core.nodes import Node, Turn
store = SessionStore(sys.argv[1])
session = store.open(store.create_session("s"))
session.begin_turn(Turn("t1"))
session.end_turn("t1", "completed")
session.close()
assert session.status.git_behind == ""
assert "platformdirs" not in sys.modules
"""
    environ = {"HOME": "/proc/nowhere", "PATH": os.environ["PATH"], "TMPDIR": "/proc/nowhere"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "root")], env=environ, check=True)
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_repository_of_another_user_is_read_and_written(store: SessionStore) -> None:
    store.open("s").close()
    subprocess.run(["chown", "-R", "65534:65534", str(store.root_path)], check=True)
    session = store.open("s")
    session.begin_turn(Turn("t3"))
    session.end_turn("t3", "completed")
    session.close()
    assert session.status.git_behind == ""
    store.pack("s")
