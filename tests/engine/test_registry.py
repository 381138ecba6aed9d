"""One live object per session, also before anything of it is on disk."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from op_jupyter.engine import registry
from op_jupyter.errors import SessionLocked
from op_jupyter.store.files import FileSystem
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


class SlowToLetGo(FileSystem):
    """A disk on which a writer's lock is let go when *go* is set."""

    def __init__(self) -> None:
        self.closing, self.go = threading.Event(), threading.Event()

    def truncate(self, fd: int, size: int) -> None:
        if threading.current_thread().name.startswith("close"):
            self.closing.set()
            self.go.wait(10)
        super().truncate(fd, size)


def test_a_session_that_is_just_being_closed_is_waited_for(tmp_path: Path) -> None:
    disk = SlowToLetGo()
    store = SessionStore(tmp_path, files=disk)
    session = registry.acquire(store, store.create_session("s1"))
    run(session, ScriptedProvider(reply("hello")))
    with (
        ThreadPoolExecutor(thread_name_prefix="close") as closer,
        ThreadPoolExecutor(thread_name_prefix="open") as opener,
    ):
        closing = closer.submit(registry.release, session)
        assert disk.closing.wait(10)
        opening = opener.submit(registry.acquire, store, "s1")
        other = registry.acquire(store, store.create_session("s2"))  # nobody else waits
        registry.release(other)
        assert not opening.done()
        disk.go.set()
        again = opening.result(10)
        closing.result(10)
    assert again is not session
    assert run(again, ScriptedProvider(reply("still there"))).text == "still there"
    registry.release(again)


def test_waiting_for_another_holder_keeps_nobody_from_other_sessions(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    elsewhere = SessionStore(tmp_path)
    elsewhere.create_session("held")
    holder = elsewhere.open("held")
    holder.set_meta(title="here")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(registry.acquire, store, "held", timeout=30)
        free = registry.acquire(store, store.create_session("free"))
        assert registry.live(store, "free") is free
        assert registry.live(store, "held") is None
        registry.release(free)
        assert not waiting.done()
        holder.close()
        registry.release(waiting.result(10))


def test_a_session_that_could_not_be_opened_can_be_tried_again(tmp_path: Path) -> None:
    store, elsewhere = SessionStore(tmp_path), SessionStore(tmp_path)
    elsewhere.create_session("held")
    holder = elsewhere.open("held")
    holder.set_meta(title="here")
    with pytest.raises(SessionLocked):
        registry.acquire(store, "held")
    holder.close()
    registry.release(registry.acquire(store, "held"))
