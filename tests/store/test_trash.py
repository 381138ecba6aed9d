"""The trash: deleted sessions come back whole, and go for good only when somebody asks."""

import os
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node
from op_jupyter.errors import StoreError, UnknownSession
from op_jupyter.store.sessions import SessionStore


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(ram_path: Path, clock: Clock) -> SessionStore:
    return SessionStore(ram_path, clock=clock)


def delete_new(store: SessionStore, session_id: str, title: str = "") -> None:
    session = store.open(store.create_session(session_id, title=title))
    session.append(Node("n1", "user", "user", input=title))
    session.close()
    store.delete(session_id)


def test_the_trash_lists_what_was_deleted_and_when(store: SessionStore, clock: Clock) -> None:
    assert store.trashed() == []
    delete_new(store, "first", "One")
    clock.now += 60
    delete_new(store, "second", "Two")
    clock.now += 60
    listed = store.trashed()
    assert [(t.info.id, t.info.title, t.age) for t in listed] == [
        ("second", "Two", 60.0),
        ("first", "One", 120.0),
    ]
    assert listed[1].deleted_at == "2023-11-14T22:13:20.000000+00:00"
    assert store.sessions() == []


def test_only_what_is_old_enough_is_purged(store: SessionStore, clock: Clock) -> None:
    delete_new(store, "s", "older")
    clock.now += 1000
    delete_new(store, "s", "newer")
    clock.now += 10
    assert store.purge_older(2000) == []
    assert store.purge_older(1000) == ["s"]
    assert [t.info.title for t in store.trashed()] == ["newer"]
    store.restore("s")
    assert store.load("s").node("n1").input == "newer"


def test_a_purge_that_was_killed_is_finished_by_the_next(
    store: SessionStore, ram_path: Path
) -> None:
    delete_new(store, "s")
    (ram_path / ".trash" / "s").rename(ram_path / ".trash" / ".0123456789abcdef")
    assert store.trashed() == []
    store.purge_older(0)
    assert os.listdir(ram_path / ".trash") == []


def test_strange_files_in_the_trash_are_left_alone(store: SessionStore, ram_path: Path) -> None:
    delete_new(store, "s")
    trash = ram_path / ".trash"
    (trash / "s~x").mkdir()
    (trash / "s~2").symlink_to("/etc")
    (trash / "..s").mkdir()
    (trash / "note.txt").write_text("mine")
    (trash / "s" / "meta.json").write_text("[")
    assert [(t.info.id, t.info.last_status) for t in store.trashed()] == [("s", "damaged")]
    store.purge("s")
    assert sorted(os.listdir(trash)) == ["..s", "note.txt", "s~2", "s~x"]
    with pytest.raises(UnknownSession, match="in the trash"):
        store.purge("s")


def test_what_is_in_the_way_of_a_restore_stays(store: SessionStore) -> None:
    delete_new(store, "s", "deleted")
    store.create_session("s")
    with pytest.raises(StoreError, match="is taken"):
        store.restore("s")
    assert [t.info.title for t in store.trashed()] == ["deleted"]
