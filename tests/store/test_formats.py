"""Sessions of older formats: they read, render and go on as if they had been written today.

``format-1/first`` is a session as the first version of the store and the engine left it: turns of
a notebook with a tool, agentic functions with a loop inside, a bare call.  Its git is left out.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.errors import CorruptRecord, StoreError
from op_jupyter.store import codec, formats
from op_jupyter.store.doctor import examined_text
from op_jupyter.store.interchange import import_path
from op_jupyter.store.sessions import SessionStore

FIRST = Path(__file__).with_name("format-1") / "first"


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    folder = tmp_path / "sessions" / "first"
    shutil.copytree(FIRST, folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return SessionStore(tmp_path / "sessions")


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("history/*/*.jsonl")}


def old_lines() -> Iterator[bytes]:
    for data in segments(FIRST).values():
        yield from data.splitlines()


def replace_in(path: Path, old: bytes, new: bytes) -> None:
    """Change records of a segment, and their checksums with them."""
    changed = []
    for line in path.read_bytes().splitlines():
        body = line[:-18].replace(old, new)
        changed.append(b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body)))
    path.write_bytes(b"".join(changed))


def test_every_prompt_of_the_first_version_is_the_one_that_was_sent(store: SessionStore) -> None:
    session = store.open("first", "read")
    asked = [node for node in session.dag if node.role == "llm"]
    rendered = [request_of(session.dag, node.id, session.read_blob) for node in asked]
    assert len(asked) == 8
    assert all(proven for _, proven in rendered)
    assert "Classify the text." in prompt_text(rendered[2][0])


def test_going_on_leaves_what_was_written_as_it_was(store: SessionStore) -> None:
    before = segments(FIRST)
    graph = store.load("first")
    session = store.open("first")
    session.begin_turn(Turn("now", base=session.dag.head, subject="go on"))
    session.append(
        Node("n", "user", "user", predecessor=session.dag.head, metadata={"turn_id": "now"}),
        advance_head=True,
    )
    session.update("n", status="completed")
    session.end_turn("now", "completed")
    session.close()

    after = segments(store.root_path / "first")
    assert {name: after[name] for name in before} == before
    new = [codec.decode(line) for n in after if n not in before for line in after[n].splitlines()]
    assert {record["v"] for record in new} == {codec.FORMAT}
    again = store.load("first")
    assert [again.nodes[node.id] for node in graph] == list(graph)
    assert json.loads((store.root_path / "first/meta.json").read_text())["format"] == codec.FORMAT
    examined = store.doctor("first").examine()
    assert examined.healthy
    assert examined.format == codec.FORMAT
    assert examined.older == sum(1 for _ in old_lines())


def test_the_doctor_says_what_is_old_and_what_becomes_of_it(store: SessionStore) -> None:
    examined = store.doctor("first").examine()
    assert examined.format == 1
    told = examined_text(examined)
    assert f"{examined.older} records of an older format than {codec.FORMAT}" in told
    assert "kept as they are" in told


def test_being_of_an_older_format_is_nothing_to_repair(store: SessionStore) -> None:
    store.open("first").close()
    meta = store.root_path / "first/meta.json"
    meta.write_text(meta.read_text().replace(f'"format": {codec.FORMAT}', '"format": 1'))
    assert store.doctor("first").examine().healthy


def test_an_old_session_travels_as_it_is(store: SessionStore, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git executable")
    other = SessionStore(tmp_path / "other")
    remote = tmp_path / "remote.git"
    import git

    git.Repo.init(remote, bare=True)
    store.push("first", str(remote))
    other.pull(str(remote), "first")
    assert list(other.load("first")) == list(store.load("first"))
    assert segments(other.root_path / "first").items() >= segments(FIRST).items()


def test_a_folder_and_a_document_of_the_first_format_come_in(
    store: SessionStore, tmp_path: Path
) -> None:
    graph = store.load("first")
    other = SessionStore(tmp_path / "other")
    import_path(other, FIRST)
    assert list(other.load("first")) == list(graph)

    records = sorted((codec.decode(line) for line in old_lines()), key=lambda r: r["seq"])
    whole = [{k: v for k, v in record.items() if k not in ("v", "crc")} for record in records]
    document = tmp_path / "document.json"
    document.write_text(
        json.dumps({"kind": "op-jupyter session", "format": 1, "session_id": "d", "records": whole})
    )
    import_path(other, document)
    assert list(other.load("d")) == list(graph)


def test_what_no_format_has_is_damage_and_no_crash(store: SessionStore) -> None:
    path = next((store.root_path / "first").glob("history/*/00001-*.jsonl"))
    replace_in(path, b'"context_tokens":200000', b'"context_tokens":"many"')
    with pytest.raises(CorruptRecord, match="not as format 1 has it"):
        store.open("first")
    assert len(store.open("first", "read").dag) > 0
    with pytest.raises(StoreError, match="not as format 1 has it"):
        import_path(SessionStore(store.root_path.parent / "other"), store.root_path / "first")


@pytest.mark.parametrize("version", [b"0", b"-1", b"true", b'"1"', b"1.0"])
def test_a_format_is_a_number_from_one(store: SessionStore, version: bytes) -> None:
    path = next((store.root_path / "first").glob("history/*/00001-*.jsonl"))
    replace_in(path, b'"v":1', b'"v":' + version)
    with pytest.raises(CorruptRecord, match="number"):
        store.open("first")


def test_steps_change_nothing_that_is_as_of_today() -> None:
    dag = Dag("s")
    for line in sorted(old_lines(), key=lambda line: codec.decode(line)["seq"]):
        was = codec.decode(line)
        now = formats.brought_up_to_date(was, 1)
        assert was == codec.decode(line)
        assert formats.brought_up_to_date(now, 1) == now
        assert (now["kind"], now["seq"]) == (was["kind"], was["seq"])
        codec.fold(dag, now)
    assert all("line" in node.reads for node in dag if node.reads is not None)
