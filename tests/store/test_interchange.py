"""Sessions as documents and back, and sessions of strangers."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import (
    FormatTooNew,
    InvalidSessionId,
    OpenProgramError,
    SessionLocked,
    StoreError,
    UsageError,
)
from op_jupyter.store import documents
from op_jupyter.store.base import Store
from op_jupyter.store.documents import to_json
from op_jupyter.store.interchange import Imported, copy_session, import_path
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "here")


@pytest.fixture
def other(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "there")


def record(store: SessionStore, session_id: str = "one") -> Dag:
    """A session with a fork, a failed turn, overlapping calls, a large value and a decision."""
    store.create_session(session_id, title="A title", source="test")
    session = store.open(session_id)
    first = None
    for number in range(3):
        turn_id = f"turn-{number}"
        session.begin_turn(Turn(turn_id, subject=f"prompt {number}", base=session.dag.head))
        about = {"turn_id": turn_id}
        asked = [{"type": "text", "text": f"prompt {number}"}]
        user = Node(f"u{number}", "user", "user", asked, status="completed", metadata=about)
        session.append(user, advance_head=True)
        session.append(Node(f"m{number}", "llm", "model", metadata=about), advance_head=True)
        said = {"role": "assistant", "content": [{"type": "text", "text": "数据 " * 30_000}]}
        session.update(f"m{number}", output=said, status="completed", metadata={"seconds": 1.5})
        failure = {"code": "model_error", "message": "no"} if number == 1 else None
        session.end_turn(
            turn_id, "failed" if failure else "completed", failure=failure, metadata={"steps": 1}
        )
        first = first or session.dag.head
    session.begin_turn(Turn("call-a", "call", base=session.dag.head))
    session.begin_turn(Turn("call-b", "call", base=session.dag.head))
    session.append(Node("b", "code", "f", {"x": 1}, metadata={"turn_id": "call-b"}))
    session.append(Node("a", "code", "f", {"x": 2}, metadata={"turn_id": "call-a"}))
    session.update("a", output=3, status="completed")
    session.update("b", output=4, status="completed")
    session.end_turn("call-a", "completed")
    session.end_turn("call-b", "completed")
    session.begin_turn(Turn("back", "rewind", base=first))
    session.end_turn("back", "completed")
    session.branch("kept", "u1", activate=False)
    session.record_decision({"tool_call_id": "x", "turn_id": "turn-2", "answer": "allow"})
    session.append(Node("loose", "user", "system", [], status="completed"))
    dag = session.snapshot()
    session.close()
    return dag


def parts(dag: Dag) -> dict[str, Any]:
    told = {f.name: getattr(dag, f.name) for f in fields(dag) if not f.name.startswith("_")}
    return {**told, "nodes": list(dag.nodes.items()), "turns": list(dag.turns.items())}


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "document.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def nothing(sha256: str) -> bytes:
    """In place of what a session keeps, where there is nothing."""
    raise StoreError(sha256)


def document_of(dag: Dag) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_json(dag, nothing))
    return document


def test_what_is_exported_is_the_same_session_when_it_is_imported(
    store: SessionStore, other: SessionStore, tmp_path: Path
) -> None:
    dag = record(store)
    path = written(tmp_path, to_json(dag, nothing))

    assert import_path(other, path) == Imported("one", 6)
    assert parts(other.load("one")) == parts(dag)
    other.open("one").close()
    assert parts(other.load("one")) == parts(dag)
    assert to_json(other.load("one"), nothing) == to_json(dag, nothing)
    assert import_path(MemoryStore(), path) == Imported("one", 6)


def test_a_folder_is_imported_without_its_git(store: SessionStore, other: SessionStore) -> None:
    dag = record(store)
    folder = store.root_path / "one"
    (folder / ".git" / "config").write_text("[core]\n  fsmonitor = touch /tmp/pwned\n")

    assert import_path(other, folder).session_id == "one"
    assert parts(other.load("one")) == parts(dag)
    config = (other.root_path / "one" / ".git" / "config").read_text()
    assert "fsmonitor = touch" not in config


def test_an_id_that_is_taken_becomes_a_new_one_and_says_so(
    store: SessionStore, tmp_path: Path
) -> None:
    dag = record(store)
    path = written(tmp_path, to_json(dag, nothing))

    again = import_path(store, path)
    assert again.was == "one"
    assert again.session_id != "one"
    assert store.load(again.session_id).meta["imported_from"] == "one"
    assert list(store.load(again.session_id).nodes) == list(dag.nodes)
    assert import_path(store, path, "chosen").session_id == "chosen"
    with pytest.raises(UsageError, match="'chosen' is taken"):
        import_path(store, path, "chosen")
    with pytest.raises(InvalidSessionId):
        import_path(store, path, "../up")


@pytest.mark.parametrize("said", [None, 5, ["one"], ""])
def test_a_document_without_an_id_gets_one(
    store: SessionStore, other: SessionStore, tmp_path: Path, said: Any
) -> None:
    document = {**document_of(record(store)), "session_id": said}
    done = import_path(other, written(tmp_path, document))
    assert done.session_id.startswith("session-") and done.was == ""


def test_a_stranger_can_allow_nothing(
    store: SessionStore, other: SessionStore, tmp_path: Path
) -> None:
    document = document_of(record(store))
    document["session_id"] = "../../etc"
    document["records"][0]["set"] |= {
        "rules": {"allow": ["shell", "python"], "deny": ["read_file(~/.ssh/**)"]},
        "mode": "auto",
        "extra_tools": ["shell"],
        "config": {"provider": "http://evil.example"},
        "notebook": "/home/me/work.ipynb",
    }

    done = import_path(other, written(tmp_path, document))

    assert done.session_id.startswith("session-")
    assert done.was == "../../etc"
    assert len(done.notes) == 4
    meta = other.load(done.session_id).meta
    assert meta["rules"] == {"allow": [], "deny": ["read_file(~/.ssh/**)"]}
    assert (meta["mode"], meta["extra_tools"], meta["config"]) == ("accept_edits", [], {})
    assert meta["notebook"] == ""


def broken(change: str, document: dict[str, Any]) -> Any:
    records = document["records"]
    match change:
        case "text":
            return "nonsense"
        case "deep":
            return '{"kind": "op-jupyter session", "records": ' + "[" * 100_000
        case "nan":
            return json.dumps(document).replace("1.5", "NaN")
        case "other":
            return {"cells": []}
        case "newer":
            return {**document, "format": 99}
        case "no list":
            return {**document, "records": {}}
        case "no record":
            return {**document, "records": [7]}
        case "unknown kind":
            return {**document, "records": [*records, {"kind": "eval", "seq": 99}]}
        case "cycle":
            records[2]["node"]["predecessor"] = "b"
            return document
        case "twice":
            return {**document, "records": [*records, records[2]]}
        case "wrong type":
            records[2]["node"]["metadata"] = "x"
            return document
        case "extra member":
            records[2]["node"]["__class__"] = "os.system"
            return document
        case "nested value":
            value: Any = 1
            for _ in range(300):
                value = [value]
            records[2]["node"]["input"] = value
            return document
    raise AssertionError(change)


CHANGES = ["text", "deep", "nan", "other", "newer", "no list", "no record", "unknown kind",
           "cycle", "twice", "wrong type", "extra member", "nested value"]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    store: SessionStore, other: SessionStore, tmp_path: Path, change: str
) -> None:
    document = broken(change, document_of(record(store)))
    error = FormatTooNew if change == "newer" else OpenProgramError

    with pytest.raises(error):
        import_path(other, written(tmp_path, document))

    assert other.sessions() == []
    assert not other.root_path.exists() or not any(other.root_path.glob("[!.]*"))


def test_a_bomb_of_large_values_is_refused(
    store: SessionStore, other: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store)
    monkeypatch.setattr("op_jupyter.store.interchange.MOST_BYTES", 500_000)

    with pytest.raises(OpenProgramError, match="too many"):
        import_path(other, store.root_path / "one")
    assert other.sessions() == []


def test_links_of_a_folder_are_not_followed(
    store: SessionStore, other: SessionStore, tmp_path: Path
) -> None:
    record(store)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    segment = sorted(store.root_path.glob("one/history/*/*-agent-*"))[0]
    segment.unlink()
    os.symlink(secret, segment)

    with pytest.raises(OpenProgramError):
        import_path(other, store.root_path / "one")
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "secret"):
        with pytest.raises(UsageError):
            import_path(other, path)
    assert other.sessions() == []


# --- what a session keeps beside its records


def keep(store: Store, session_id: str = "kept") -> dict[str, bytes]:
    """A session whose nodes name kept values: a text, bytes, and states of files that name one."""
    values = {"text": "数据 and text".encode(), "bytes": b"\x00\xff" * 40, "hidden": b"inner"}
    session = store.open(store.create_session(session_id, title="Keeps things", mode="bypass"))
    session.begin_turn(Turn("t"))
    shas = {name: session.put_blob(data, "text/plain") for name, data in values.items()}
    states = json.dumps({"/a/file": {"blob": shas["hidden"]}}).encode()
    values["states"] = states
    shas["states"] = session.put_blob(states, "application/json")
    session.put_blob(b"named by nothing", "text/plain")
    marks = {
        "turn_id": "t",
        "backup": {"manifest": shas["states"]},
        "files": [{"before": {"blob": shas["bytes"]}}],
        "not one of ours": "0" * 64,
    }
    said = f"… 9 characters cut; whole: context/blobs/{shas['text']} …"
    session.append(Node("n", "code", "f", output=said, status="completed", metadata=marks))
    session.end_turn("t", "completed")
    session.close()
    return {shas[name]: data for name, data in values.items()}


def exported(store: Store, session_id: str, **options: Any) -> str:
    session = store.open(session_id, "read")
    return to_json(session.snapshot(), session.read_blob, **options)


def test_what_nodes_name_by_its_hash_travels_in_a_document_and_in_a_folder(
    store: SessionStore, other: SessionStore, tmp_path: Path
) -> None:
    values = keep(store)
    text = exported(store, "kept")
    assert "数据 and text" in text  # for people
    assert set(json.loads(text)["kept"]) == set(values)

    by_document = import_path(other, written(tmp_path, text))
    by_folder = import_path(other, store.root_path / "kept", "folder")
    for done in (by_document, by_folder):
        session = other.open(done.session_id)
        assert {sha: session.read_blob(sha) for sha in values} == values
        session.close()
        assert other.doctor(done.session_id).examine().healthy
    assert json.loads(exported(other, "kept"))["kept"] == json.loads(text)["kept"]


def test_what_is_too_much_is_left_out_and_said_unless_all_of_it_is_wanted(
    store: SessionStore, other: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = keep(store)
    monkeypatch.setattr(documents, "KEPT_BYTES", 40)
    said: list[str] = []
    text = exported(store, "kept", tell=said.append)
    left = {sha: data for sha, data in values.items() if sha not in json.loads(text)["kept"]}
    assert min(map(len, left.values())) >= max(len(v) for s, v in values.items() if s not in left)
    (note,) = said
    assert f"{len(left)} kept values ({sum(map(len, left.values()))} bytes) left out" in note
    assert import_path(other, written(tmp_path, text)).notes[-1] == (
        "some kept values were left out of it"
    )

    said.clear()
    assert set(json.loads(exported(store, "kept", whole=True, tell=said.append))["kept"]) == set(
        values
    )
    assert said == []


@pytest.mark.parametrize(
    "kept",
    [
        {"0" * 64: {"text": "another one"}},
        {"../../evil": {"text": "x"}},
        {"0" * 64: {"base64": "not base64!"}},
        {"0" * 64: {"pickle": "x"}},
        {"0" * 64: {"text": 7}},
        {"0" * 64: {}},
        ["x"],
        7,
    ],
)
def test_kept_values_that_are_not_what_they_say_are_refused(
    store: SessionStore, other: SessionStore, tmp_path: Path, kept: Any
) -> None:
    document = {**document_of(record(store)), "kept": kept}
    with pytest.raises(StoreError, match="nothing was imported"):
        import_path(other, written(tmp_path, document))
    assert other.sessions() == []


def test_a_copy_is_all_that_was_stored_and_the_other_session_goes_on(
    store: SessionStore,
) -> None:
    values = keep(store)
    holder = store.open("kept")
    holder.begin_turn(Turn("now", base="n"))
    here = SessionStore(store.root_path)
    with pytest.raises(SessionLocked, match=r"fork it into a new session.*op-jupyter fork kept"):
        here.open("kept")

    done = copy_session(here, "kept", "copy")
    holder.end_turn("now", "completed")
    holder.close()

    session = here.open("copy")
    assert session.status.repaired  # what ran there does not run here
    assert session.dag.turns["now"].status == "interrupted"
    assert {sha: session.read_blob(sha) for sha in values} == values
    meta = session.dag.meta
    assert (meta["id"], meta["copy_of"], meta["mode"]) == ("copy", "kept", "bypass")
    session.close()
    assert done.session_id == "copy"
    assert here.load("kept").turns["now"].status == "completed"
    assert here.doctor("copy").examine().healthy
    assert here.doctor("kept").examine().healthy
    with pytest.raises(UsageError, match="taken"):
        copy_session(here, "kept", "copy")


def test_sessions_in_memory_are_copied_too() -> None:
    memory = MemoryStore()
    values = keep(memory)
    done = copy_session(memory, "kept")
    assert done.session_id != "kept"
    session = memory.open(done.session_id)
    assert {sha: session.read_blob(sha) for sha in values} == values


def test_a_damaged_session_is_not_copied(store: SessionStore) -> None:
    keep(store)
    (path,) = store.root_path.glob("kept/history/*/*-agent-*")
    path.write_bytes(path.read_bytes().replace(b"Keeps", b"keeps").replace(b'"f"', b'"g"'))
    with pytest.raises(OpenProgramError, match="damaged"):
        copy_session(store, "kept")
    assert [info.id for info in store.sessions()] == ["kept"]
