"""Neither the user's git nor a stranger's folder decides what we run, write or become."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hostile_git import CASES, Surroundings

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import CorruptRecord, FormatTooNew, StoreError
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture
from tests.store.conftest import Git

WRITE = """
import shutil, sys, warnings
warnings.simplefilter("error")
from op_jupyter.store.sessions import SessionStore
from op_jupyter.core.nodes import Node, Turn
store = SessionStore(sys.argv[1])
session = store.open(store.create_session("s"))
for number in range(3):
    session.begin_turn(Turn(f"t{number}", subject=f"turn {number}"))
    session.append(Node(f"n{number}", "user", "user", input="line\\r\\nline $Id$",
                        status="completed", metadata={"turn_id": f"t{number}"}))
    session.put_blob(b"bytes\\r\\nand more", "text/plain")
    session.end_turn(f"t{number}", "completed")
session.close()
assert session.status.git_behind == "", session.status.git_behind
session = store.open("s")
assert session.status.repaired == () and len(session.dag) == 3
session.close()
assert store.doctor("s").examine().healthy
if shutil.which("git") is None:
    sys.exit()
store.pack("s")
store.push("s", sys.argv[2])
other = SessionStore(sys.argv[1] + "-other")
assert len(other.pull(sys.argv[2], "s").changes) == 1
assert [n.id for n in other.load("s")] == ["n0", "n1", "n2"]
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_users_git_changes_nothing(
    ram_path: Path, git: Git, case: Callable[[Surroundings], None]
) -> None:
    surroundings = Surroundings(ram_path / "home")
    case(surroundings)
    git(ram_path, "init", "-q", "--bare", "remote.git")
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(ram_path / "root"), str(ram_path / "remote.git")],
        env=surroundings.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = ram_path / "root" / "s"
    log = git(folder, "log", "--format=%an <%ae> %s").splitlines()
    assert log == [f"op-jupyter <op-jupyter@localhost> agent: turn {n}" for n in (2, 1, 0)]
    assert git(folder, "branch", "--show-current") == "main\n"
    assert git(folder, "status", "--porcelain") == ""
    assert not surroundings.ran.exists()
    assert git(folder, "fsck", "--strict") == ""
    for path in git(folder, "ls-files").split():
        with subprocess.Popen(
            ["git", "-C", str(folder), "cat-file", "blob", f"HEAD:{path}"], stdout=subprocess.PIPE
        ) as process:
            assert process.communicate()[0] == (folder / path).read_bytes()
    left = {path.name for path in surroundings.home.iterdir()}
    assert left <= {".gitconfig", "hooks", "attributes", "excludes", "gpg", "clean", "monitor"}


def test_importing_the_store_and_storing_a_record_imports_no_git(ram_path: Path) -> None:
    code = """
import sys
from op_jupyter.store.sessions import SessionStore
from op_jupyter.core.nodes import Node, Turn
store = SessionStore(sys.argv[1])
session = store.open(store.create_session("s"))
session._committer.flush()
session.append(Node("n", "user", "user"))
assert not {"git", "gitdb", "platformdirs"} & set(sys.modules)
session.abandon()
"""
    subprocess.run([sys.executable, "-c", code, str(ram_path)], check=True)


# --- a stranger's folder ----------------------------------------------------------------


@pytest.fixture
def store(ram_path: Path) -> SessionStore:
    """With one session ``s`` of two turns, closed."""
    store = SessionStore(ram_path / "root")
    session = store.open(store.create_session("s"))
    for number in range(2):
        session.begin_turn(Turn(f"t{number}", base=session.dag.head, subject=f"turn {number}"))
        node = Node(
            f"n{number}",
            "user",
            "user",
            input="x" * 70_000,
            predecessor=session.dag.head,
            status="completed",
            metadata={"turn_id": f"t{number}"},
        )
        session.append(node, advance_head=True)
        session.end_turn(f"t{number}", "completed")
    session.close()
    return store


def use(store: SessionStore) -> str:
    """Open, write and close; why that was refused, or where git is behind."""
    try:
        session = store.open("s")
    except StoreError as exc:
        return str(exc)
    try:
        number = len(session.dag)
        session.begin_turn(Turn(f"new{number}", base=session.dag.head))
        session.append(Node(f"new{number}", "user", "user", input="y" * 70_000))
        session.end_turn(f"new{number}", "completed")
    except StoreError as exc:
        return str(exc)
    finally:
        session.close()
    return session.status.git_behind


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "below",
    [
        ".git",
        ".git/objects",
        ".git/objects/pack",
        ".git/refs",
        ".git/refs/heads",
        "history",
        "history/000",
        "context",
        "context/blobs",
    ],
)
def test_a_folder_that_is_a_link_is_never_written_through(
    store: SessionStore, ram_path: Path, below: str
) -> None:
    outside = ram_path / "outside"
    (store.root_path / "s" / below).rename(outside)
    (store.root_path / "s" / below).symlink_to(outside)
    before = snapshot_of(outside)
    reason = use(store)
    assert snapshot_of(outside) == before
    assert reason


def test_a_session_folder_that_is_a_link_is_refused(store: SessionStore, ram_path: Path) -> None:
    (store.root_path / "s").rename(ram_path / "outside")
    (store.root_path / "s").symlink_to(ram_path / "outside")
    before = snapshot_of(ram_path / "outside")
    for mode in ("write", "read"):
        with pytest.raises(StoreError, match="not a folder of its own"):
            store.open("s", mode)  # type: ignore[arg-type]
    assert snapshot_of(ram_path / "outside") == before
    assert store.sessions() == []


ALONE = [".git/session.lock", ".git/HEAD", ".git/index", ".git/op-jupyter-tips", "meta.json"]


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("below", ALONE)
def test_a_file_that_is_a_link_is_never_written_through(
    store: SessionStore, ram_path: Path, below: str, link: Callable[[Path, Path], None]
) -> None:
    outside = ram_path / "outside"
    outside.write_text("precious")
    (store.root_path / "s" / below).unlink()
    link(outside, store.root_path / "s" / below)
    use(store)
    assert outside.read_text() == "precious"


def test_a_segment_that_is_a_link_is_damage(store: SessionStore, ram_path: Path) -> None:
    outside = ram_path / "outside"
    segment = next((store.root_path / "s").glob("history/000/*-agent-*.jsonl"))
    segment.rename(outside)
    segment.symlink_to(outside)
    before = outside.read_bytes()
    assert "damaged" in use(store)
    assert outside.read_bytes() == before


def test_a_torn_segment_with_a_second_name_elsewhere_is_cut_here_only(
    store: SessionStore, ram_path: Path
) -> None:
    outside = ram_path / "outside"
    outside.write_bytes(b"precious, and no record at all")
    os.link(outside, store.root_path / "s" / "history" / "000" / "00009-agent-01234567.jsonl")
    assert use(store) == ""
    assert outside.read_bytes() == b"precious, and no record at all"


def test_hooks_config_and_attributes_of_the_folder_run_nothing(
    store: SessionStore, ram_path: Path
) -> None:
    surroundings = Surroundings(ram_path / "home")
    folder = store.root_path / "s"
    hooks = surroundings.hooks()
    (folder / ".git" / "hooks").symlink_to(hooks)
    script = surroundings.script("script")
    (folder / ".git" / "config").write_text(
        f"[core]\n fsmonitor = {script}\n hooksPath = {hooks}\n worktree = {ram_path}/elsewhere\n"
        f" sshCommand = {script}\n[include]\n path = {ram_path}/nothing\n"
        f'[filter "x"]\n clean = {script}\n process = {script}\n'
        f"[gc]\n recentObjectsHook = {script}\n"
        f"[gpg]\n program = {script}\n[commit]\n gpgsign = true\n"
    )
    (folder / ".gitattributes").write_text("* filter=x\n")
    (folder / ".git" / "info" / "attributes").write_text("* filter=x\n")
    assert use(store) == ""
    store.pack("s")
    assert not surroundings.ran.exists()
    assert not (ram_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commondir", "../../elsewhere"),
        ("gitdir", "/elsewhere"),
        ("objects/info/alternates", "/elsewhere/objects"),
    ],
)
def test_a_repository_that_keeps_its_parts_elsewhere_is_not_written(
    store: SessionStore, name: str, text: str
) -> None:
    path = store.root_path / "s" / ".git" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    before = snapshot_of(store.root_path / "s" / ".git")
    assert "not a plain repository" in use(store)
    after = snapshot_of(store.root_path / "s" / ".git")
    assert {k: v for k, v in after.items() if "lock" not in k} == {
        k: v for k, v in before.items() if "lock" not in k
    }
    assert len(store.load("s")) == 3


def test_a_git_file_in_place_of_the_repository_is_refused(
    store: SessionStore, ram_path: Path
) -> None:
    (store.root_path / "s" / ".git").rename(ram_path / "outside")
    (store.root_path / "s" / ".git").write_text(f"gitdir: {ram_path / 'outside'}\n")
    assert "not a folder of its own" in use(store)


def test_paths_in_git_that_lead_out_are_not_restored(
    store: SessionStore, git: Git, ram_path: Path
) -> None:
    folder = store.root_path / "s"
    blob = git(folder, "hash-object", "-w", "meta.json").strip()
    for bad in ("..", ".git", "."):
        shard = _mktree(folder, f"100644 blob {blob}\t00007-agent-0123abcd.jsonl\n")
        shards = _mktree(folder, f"040000 tree {shard}\t{bad}\n")
        root = _mktree(folder, f"040000 tree {shards}\thistory\n")
        commit = git(folder, "commit-tree", "-m", "evil", root).strip()
        git(folder, "update-ref", "refs/heads/evil", commit)
        before = {p for p in ram_path.rglob("*") if ".git" not in str(p)}
        use(store)
        new = {p for p in ram_path.rglob("*") if ".git" not in str(p)} - before
        assert all(str(p).startswith((f"{folder}/history", f"{folder}/context")) for p in new)


def _mktree(folder: Path, text: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "mktree"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


# --- malformed records ------------------------------------------------------------------


def line(record: object) -> bytes:
    body = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def add_records(store: SessionStore, *lines: bytes) -> Path:
    path = store.root_path / "s" / "history" / "000" / "00008-session-89abcdef.jsonl"
    path.write_bytes(b"".join(lines))
    return path


DEEP = '{"kind":"meta","seq":900,"set":{"a":' + "[" * 100_000 + "]" * 100_000 + '},"v":1'

BAD = {
    "unknown kind": line({"kind": "poem", "seq": 900, "v": 1}),
    "no version": line({"kind": "meta", "seq": 900, "set": {}}),
    "bad seq": line({"kind": "meta", "seq": "last", "set": {}, "v": 1}),
    "negative seq": line({"kind": "meta", "seq": -1, "set": {}, "v": 1}),
    "list": line([1, 2, {"a": 1}]),
    "node without a role": line({"kind": "enter", "seq": 900, "v": 1, "node": {"id": "x"}}),
    "node of a wrong type": line({"kind": "enter", "seq": 900, "v": 1, "node": "x"}),
    "node id of a wrong type": line(
        {"kind": "enter", "seq": 900, "v": 1, "node": {"id": [1], "role": "user", "name": "u"}}
    ),
    "node that calls itself": line(
        {
            "kind": "enter",
            "seq": 900,
            "v": 1,
            "node": {"id": "x", "role": "user", "name": "u", "caller": "x"},
        }
    ),
    "unknown member": line(
        {"kind": "enter", "seq": 900, "v": 1, "node": {"id": "x", "role": "user", "evil": 1}}
    ),
    "update of nothing": line({"kind": "update", "seq": 900, "v": 1, "id": "x", "set": {}}),
    "update of the id": line({"kind": "update", "seq": 900, "v": 1, "id": "n1", "set": {"id": 1}}),
    "turn without an end": line({"kind": "turn", "op": "pause", "seq": 900, "v": 1}),
    "branch that leads out": line(
        {"kind": "head", "branch": "../../x", "node": "n1", "activate": True, "seq": 900, "v": 1}
    ),
    "blob that leads out": line(
        {
            "kind": "meta",
            "seq": 900,
            "v": 1,
            "set": {},
            "blobs": {"a": {"hash": "../../../../etc/passwd", "type": "text/plain"}},
        }
    ),
    "blob that is not there": line(
        {"kind": "meta", "seq": 900, "v": 1, "set": {}, "blobs": {"a": {"hash": "0" * 64}}}
    ),
    "nan": b'{"kind":"meta","seq":900,"set":{"a":NaN},"v":1,"crc":"%08x"}\n'
    % zlib.crc32(b'{"kind":"meta","seq":900,"set":{"a":NaN},"v":1'),
    "deep": b'%b,"crc":"%08x"}\n' % (DEEP.encode(), zlib.crc32(DEEP.encode())),
    "no utf-8": b'{"a":"\xff","crc":"%08x"}\n' % zlib.crc32(b'{"a":"\xff"'),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_malformed_record_is_refused_and_nothing_is_touched(
    store: SessionStore, bad: bytes
) -> None:
    before = picture(store.load("s"))
    path = add_records(store, line({"kind": "meta", "seq": 800, "set": {"a": 1}, "v": 1}), bad)
    for attempt in (store.open, store.load):
        with pytest.raises(CorruptRecord) as caught:
            attempt("s")
        assert caught.value.path == str(path)
        assert caught.value.offset == path.read_bytes().index(b"\n") + 1
    reader = store.open("s", "read")
    found = picture(reader.snapshot())
    assert found["meta"].pop("a") == 1
    assert (found | {"last_seq": 0}) == (before | {"last_seq": 0})
    assert "damaged" in reader.status.read_only


def test_a_newer_format_is_refused_with_its_version(store: SessionStore) -> None:
    add_records(store, line({"kind": "dream", "seq": 900, "v": 7}))
    for attempt in (store.open, store.load, lambda s: store.open(s, "read")):
        with pytest.raises(FormatTooNew, match="format 7") as caught:
            attempt("s")
        assert caught.value.version == 7


def test_an_enormous_file_is_not_read(store: SessionStore) -> None:
    path = add_records(store)
    os.truncate(path, 1 << 33)
    with pytest.raises(CorruptRecord, match="larger than"):
        store.open("s")


@pytest.mark.parametrize(
    "meta", [b"", b"[]", b"{", b"[" * 100_000, b'{"turns": "many", "title": 5}', b"\xff"]
)
def test_a_malformed_meta_json_is_made_again(store: SessionStore, meta: bytes) -> None:
    path = store.root_path / "s" / "meta.json"
    good = path.read_bytes()
    path.write_bytes(meta)
    assert [info.id for info in store.sessions()] == ["s"]
    store.open("s").close()
    assert path.read_bytes() == good


def test_a_damaged_session_does_not_break_the_list(store: SessionStore) -> None:
    add_records(store, BAD["unknown kind"])
    (store.root_path / "s" / "meta.json").unlink()
    assert [(info.id, info.last_status) for info in store.sessions()] == [("s", "damaged")]
