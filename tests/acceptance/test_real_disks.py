"""A disk that is full, or cannot be written to any more, in the middle of a turn."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.disks import SmallDisk, mounted
from support.faulty_files import FaultyFileSystem

from op_jupyter.engine import registry
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import FakeTool, assert_sendable, run

LONG = "x" * 20_000  # no page that a file has already has room for it


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "small") as small:
        yield small


def test_a_disk_that_is_full_in_a_turn_loses_nothing_and_takes_more_with_room(
    disk: SmallDisk,
) -> None:
    store = SessionStore(disk.path / "sessions")
    session = registry.acquire(store, store.create_session("s"))
    assert run(session, ScriptedProvider(reply("first"))).text == "first"
    tool = FakeTool(act=lambda _: disk.fill() or LONG)

    outcome = run(session, ScriptedProvider(reply(call("look", {})), reply("never")), [tool])

    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert "No space left on device" in outcome.message
    assert "Make room" in outcome.message or "nothing was stored" in outcome.message
    disk.empty()
    provider = ScriptedProvider(reply("again"))
    assert run(session, provider).text == "again"
    assert_sendable(provider.requests[0])
    seen = picture(session.dag)
    registry.release(session)
    assert picture(store.load("s")) == seen
    again = registry.acquire(store, "s")
    assert picture(again.dag) == seen
    assert again.store.status.git_behind == ""
    assert all(node.status != "running" for node in again.dag)
    registry.release(again)
    assert store.doctor("s").examine().healthy


def test_a_disk_that_becomes_read_only_in_a_turn_loses_nothing(tmp_path: Path) -> None:
    # No system mounts what is written to read-only; it becomes that by an error of the disk.
    files = FaultyFileSystem()
    store = SessionStore(tmp_path, files=files)
    session = registry.acquire(store, store.create_session("s"))
    tool = FakeTool(act=lambda _: files.arm(1, errno.EROFS, forever=True))

    outcome = run(session, ScriptedProvider(reply(call("look", {})), reply("never")), [tool])

    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert "Read-only file system" in outcome.message
    seen = set(session.dag.nodes)
    registry.release(session)
    files.disarm()
    again = registry.acquire(store, "s")
    assert set(again.dag.nodes) == seen
    provider = ScriptedProvider(reply("again"))
    assert run(again, provider).text == "again"
    assert_sendable(provider.requests[0])
    assert all(node.status != "running" for node in again.dag)
    registry.release(again)
    assert store.doctor("s").examine().healthy
