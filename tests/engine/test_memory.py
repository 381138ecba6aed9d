"""Notes across sessions: behind the gate, off by default, listed and forgotten."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from op_jupyter.engine.asking import HeadlessAsker
from op_jupyter.engine.attempt_host import AttemptHost
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.service import Service
from op_jupyter.errors import UsageError
from op_jupyter.store.notes import MAX_CHARS, Notes
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply


def run(service: Service, session_id: str, prompt: str) -> None:
    attempt = service.send_message(session_id, prompt).attempt_id
    assert attempt is not None
    service.wait(session_id, attempt, 10)


def test_a_note_is_asked_about_kept_and_recalled_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ScriptedProvider()
    host = AttemptHost(
        lambda _p, _m: Runtime(provider=provider), asker=HeadlessAsker(), workspace=tmp_path
    )
    store = SessionStore(tmp_path / "sessions")
    service = Service(store, host=lambda: host)
    one, two = (service.create_session(name, {"memory": True}) for name in "ab")
    keep = call("remember", {"text": "Plots in blue."})

    provider.add(reply("", keep), reply("no"))
    run(service, one, "remember that")
    assert Notes(store.root_path).all() == []  # nobody could be asked
    monkeypatch.setenv("OPENPROGRAM_ALLOW_EVERYTHING", "1")
    provider.add(reply("", keep), reply("yes"))
    run(service, one, "remember that")
    monkeypatch.delenv("OPENPROGRAM_ALLOW_EVERYTHING")
    provider.add(reply("", call("recall", {"query": "PLOTS blue"})), reply("blue"))
    run(service, two, "which colour?")

    (note,) = Notes(store.root_path).all()
    assert (note.text, note.session_id) == ("Plots in blue.", one)
    result = next(n for n in service.graph(two) if n.name == "recall").output
    assert result["content"][0]["text"].endswith(": Plots in blue.")
    assert {info.id for info in service.list_sessions()} == {one, two}
    service.close()


def test_notes_are_bounded_private_and_survive_nonsense(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    kept = notes.add("数据 first", "s")
    folder = tmp_path / ".memory"
    (folder / "note-00000000.json").write_text("[")
    (folder / "note-00000002.json").write_text("[" * 10_000)
    (folder / "other.txt").write_text("x")
    (folder / "note-00000001.json").symlink_to(folder / f"{kept.id}.json")

    assert notes.all() == [kept]
    assert notes.find("数据") == [kept]
    assert notes.find("nothing") == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{kept.id}.json").stat().st_mode) == 0o600
    for text in ("", " ", "x" * (MAX_CHARS + 1)):
        with pytest.raises(UsageError):
            notes.add(text, "s")
    for name in ("note-ffffffff", "../../etc/passwd", ""):
        with pytest.raises(UsageError, match="no note"):
            notes.delete(name)
    notes.delete(kept.id)
    assert notes.all() == []
