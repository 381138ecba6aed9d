"""One live object per session, also before anything of it is on disk."""

from __future__ import annotations

from pathlib import Path

from op_jupyter.engine import registry
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.files import file_tools
from tests.engine.harness import run, texts


def test_two_blocks_share_a_session_whose_folder_is_made_between_them(tmp_path: Path) -> None:
    first_store, second_store = SessionStore(tmp_path), SessionStore(tmp_path)
    first = registry.acquire(first_store, first_store.create_session("s1"))
    run(first, ScriptedProvider(reply("hello")))
    second = registry.acquire(second_store, "s1")
    assert second is first
    registry.release(second)
    assert run(first, ScriptedProvider(reply("still open"))).text == "still open"
    registry.release(first)


def test_the_folder_of_a_new_session_is_protected_from_its_first_turn_on(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
    session = registry.acquire(store, store.create_session("s1"))
    session.workspace = tmp_path
    target = {"path": "sessions/s1/history/forged.jsonl", "text": "{}"}
    run(session, ScriptedProvider(reply(call("write_file", target)), reply("no")), file_tools())
    assert "protected" in texts(session)[0]
    registry.release(session)
