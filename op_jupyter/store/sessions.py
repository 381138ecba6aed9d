"""Sessions on disk: one folder each, which is a git repository a person can read."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import check_session_id
from op_jupyter.errors import SessionLocked, StoreError, UnknownSession
from op_jupyter.store.base import Clock, OpenSession, SessionInfo
from op_jupyter.store.disk import (
    DiskSession,
    Outside,
    ReadSession,
    acquire,
    translated,
    writer_lock,
)
from op_jupyter.store.files import FileSystem, disk_usage, is_folder, new_tag, read_file
from op_jupyter.store.git import Repository
from op_jupyter.store.loading import Folder, corrupt, load, load_node
from op_jupyter.store.lock import Holder, locked, this_process
from op_jupyter.store.session import timestamp
from op_jupyter.store.summary import (
    META,
    creation_meta,
    new_session_id,
    parse_meta,
    session_ids,
    summarise,
    unknown_session,
)
from op_jupyter.store.trash import MAX_META_BYTES, Trash, Trashed

# What mends sessions and carries them elsewhere is imported on first use: a notebook that only
# opens one should load quickly.
if TYPE_CHECKING:
    from op_jupyter.store.doctor import Doctor
    from op_jupyter.store.sync import Incoming, Synced

HOME_VARIABLE: Final = "OPENPROGRAM_HOME"
KERNEL_VARIABLE: Final = "OPENPROGRAM_KERNEL_ID"


def default_root() -> Path:
    """Where sessions live when nobody says otherwise."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser()
    from platformdirs import user_data_path

    return user_data_path("op-jupyter", appauthor=False) / "sessions"


class SessionStore:
    """Sessions under one folder (see `store.base.Store`)."""

    def __init__(
        self,
        root_path: str | os.PathLike[str] | None = None,
        *,
        kernel_id: str | None = None,
        clock: Clock = time.time,
        files: FileSystem | None = None,
    ) -> None:
        """*kernel_id*: named to others that want a session we hold (default: the environment's)."""
        root = default_root() if root_path is None else Path(root_path).expanduser()
        self.root_path = root.absolute()
        self._root = str(self.root_path)
        if kernel_id is None:
            kernel_id = os.environ.get(KERNEL_VARIABLE, "")
        self._outside = Outside(files or FileSystem(), clock, new_tag, kernel_id)
        self._reserved: dict[str, dict[str, Any]] = {}
        # Sessions are opened in many threads: looked up, never iterated over.
        self._writers: weakref.WeakValueDictionary[str, DiskSession] = weakref.WeakValueDictionary()
        self._trash = Trash(self._root, self._outside.files, clock)

    def create_session(self, session_id: str | None = None, **meta: Any) -> str:
        """Reserve a session and return its id; its folder is made with its first record."""
        session_id = check_session_id(new_session_id() if session_id is None else session_id)
        if self.exists(session_id):
            raise StoreError(f"session id {session_id!r} is taken; open it, or choose another id")
        self._reserved[session_id] = creation_meta(session_id, meta, self._outside.clock())
        return session_id

    @contextmanager
    def creating(self, session_id: str) -> Iterator[DiskSession]:
        """A new session, which is here when the block ends without an error, or not at all."""
        self.create_session(session_id)
        reserved = self._reserved.pop(session_id)
        folder = self._folder(session_id)
        with translated(self._root), self._incoming() as made:
            session = DiskSession(made.path, Dag(session_id), reserved, self._outside)
            try:
                yield session
            finally:
                session.close()
            if not session.dag.last_seq:  # nothing of it is on disk, so it waits for more
                self._reserved[session_id] = reserved
                return
            if self._is_stored(session_id):
                raise StoreError(f"session id {session_id!r} was taken meanwhile; choose another")
            self._outside.files.rename(made.path, folder)
            self._outside.files.sync_folder(self._root)

    def exists(self, session_id: str) -> bool:
        """Whether that session was created here."""
        return self._is_stored(check_session_id(session_id)) or session_id in self._reserved

    def open(
        self,
        session_id: str,
        mode: Literal["write", "read"] = "write",
        *,
        timeout: float = 0.0,
        force: bool = False,
    ) -> OpenSession:
        """Open for writing or for reading."""
        check_session_id(session_id)
        if mode == "read":
            return self._open_for_reading(session_id)
        if self._is_stored(session_id):
            session = DiskSession.reopen(
                self._folder(session_id), session_id, self._outside, timeout=timeout, force=force
            )
        else:
            session = self._open_new(session_id)
        self._writers[session_id] = session
        return session

    def sessions(self, limit: int = 50) -> list[SessionInfo]:
        """The newest first; reads their ``meta.json`` only."""
        with translated(self._root):
            found = [
                info
                for session_id in session_ids(self._root)
                if (info := self._describe(session_id))
            ]
        found.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
        return found[:limit]

    def load(self, session_id: str) -> Dag:
        """The graph of a session, read without a lock."""
        check_session_id(session_id)
        if not self._is_stored(session_id):
            if session_id in self._reserved:
                return Dag(session_id)
            raise self._unknown(session_id)
        with translated(self._folder(session_id)):
            loaded = load(session_id, self._reader(session_id))
        if loaded.damages:
            raise corrupt(session_id, self._folder(session_id), loaded.damages)
        return loaded.dag

    def load_node(self, session_id: str, node_id: str) -> Dag:
        """A node alone, and all decisions, of what can be read without a lock."""
        if not self._is_stored(check_session_id(session_id)):
            return self.load(session_id)
        with translated(self._folder(session_id)):
            return load_node(session_id, self._reader(session_id), node_id)

    @property
    def root(self) -> Path | None:
        """The folder of all sessions."""
        return self.root_path

    def path(self, session_id: str) -> Path | None:
        """The session's folder; None when nothing of it is on disk."""
        known = self._is_stored(check_session_id(session_id))
        return self.root_path / session_id if known else None

    def pack(self, session_id: str) -> tuple[int, int]:
        """Pack the repository of a session nobody has open for writing.

        Bytes on disk, before and after.

        Raises:
            StoreError: there is no git executable, or it failed.
            UnknownSession, SessionLocked
        """
        if not self._is_stored(session_id):
            raise self._unknown(session_id)
        folder = self._folder(session_id)
        lock = writer_lock(folder, session_id, self._outside)
        with translated(folder):
            is_folder(folder)
            unclean = acquire(lock, folder, self._outside, 0.0, force=False)
            try:
                # No record is read: what the last process left is for who opens the session.
                before = disk_usage(folder)
                self._repository(session_id).gc()
                return before, disk_usage(folder)
            finally:
                # Who opens the session next is told when its last writer was not heard of again.
                (lock.drop if unclean else lock.release)()

    def doctor(self, session_id: str) -> Doctor:
        """Who looks at a session and mends it, whatever state it is in.

        Raises:
            UnknownSession: nothing of it is stored.
        """
        check_session_id(session_id)
        if not self._is_stored(session_id):
            raise self._unknown(session_id)
        from op_jupyter.store.doctor import Doctor

        return Doctor(self._folder(session_id), session_id, self._outside)

    # -- other repositories

    def push(self, session_id: str, remote: str) -> Synced:
        """Push the session to the git repository *remote* (a path or an ssh address).

        If the session has continued there as well, the line here becomes a new branch there.

        Raises:
            UsageError: *remote* is neither.
            StoreError: it cannot be reached or refuses, or there is no git executable.
        """
        from op_jupyter.store import sync
        from op_jupyter.store.remotes import open_remote

        check_session_id(session_id)
        if not self._is_stored(session_id):
            raise self._unknown(session_id)
        notes: list[str] = []
        with translated(remote):
            other = open_remote(remote, self._outside.clock)
        try:
            session = self.open(session_id)
        except SessionLocked as exc:
            notes = [f"it is open for writing in {exc.holder}; what is not committed is not sent"]
        else:
            session.close()
            notes = [behind] if (behind := session.status.git_behind) else []
        with translated(remote):
            changes = sync.push(session_id, self._repository(session_id), other, self._incoming)
        return sync.Synced(session_id, changes, tuple(notes))

    def pull(self, remote: str, session_id: str | None = None) -> Synced:
        """Pull a session from the git repository *remote* (a path or an ssh address).

        If it has continued here as well, the line from there becomes a new branch here.
        Without *session_id*: the one whose clone *remote* is, if it is one.

        Raises:
            UsageError: *remote* is neither.
            UnknownSession: it has no such session.
            SessionLocked: there is something new, and the session is open for writing here.
            StoreError: it cannot be reached or does not fit; nothing was changed.
        """
        from op_jupyter.store import sync
        from op_jupyter.store.pulling import Joining, take_new
        from op_jupyter.store.remotes import open_remote

        with translated(self._root), self._incoming() as arrived:
            other = open_remote(remote, self._outside.clock)
            pushed = sync.sessions_in(other)
            if session_id is not None and check_session_id(session_id) in pushed:
                found: str | None = session_id
                here = self._repository_of(session_id)
                if here and sync.has_all(here, sync.of_session(other.refs(), session_id)):
                    return sync.Synced(session_id, ())
                arrived.fetch(other, session_id, here)
            else:
                arrived.fetch(other, None)
                found = sync.read_id(arrived)
            if found is None or session_id not in (None, found):
                known = [*pushed, *([found] if found else [])]
                raise unknown_session(session_id or "", known, f"in {remote}")
            folder = self._folder(found)
            if self._is_stored(found):
                return Joining(found, folder, arrived, self._outside).run()
            taken = take_new(found, arrived, self._outside, folder)
            self._reserved.pop(found, None)
            return taken

    def pushed(self, remote: str) -> list[str]:
        """The ids of the sessions that were pushed to *remote*.

        Raises:
            UsageError, StoreError: as for `pull`.
        """
        from op_jupyter.store import sync
        from op_jupyter.store.remotes import open_remote

        with translated(remote):
            return sync.sessions_in(open_remote(remote, self._outside.clock))

    def _incoming(self) -> Incoming:
        from op_jupyter.store.sync import Incoming

        return Incoming(self._root, self._outside)

    def abandon(self) -> None:
        """Let go of every open session at once, for an exit that cannot wait for git."""
        for held in self._writers.valuerefs():
            if (session := held()) is not None:
                session.abandon()

    # -- the trash

    def delete(self, session_id: str) -> None:
        """Move it to the trash."""
        check_session_id(session_id)
        if not self._is_stored(session_id):
            if self._reserved.pop(session_id, None) is None:
                raise self._unknown(session_id)
            return
        with translated(self._root), self._locked(session_id):
            self._trash.put(session_id, self._folder(session_id))
        self._reserved.pop(session_id, None)

    def restore(self, session_id: str) -> None:
        """Take it out of the trash; of several with that id, the one deleted last."""
        check_session_id(session_id)
        with translated(self._root):
            self._trash.check(session_id)
            if self.exists(session_id):
                raise StoreError(f"session id {session_id!r} is taken; delete that one first")
            self._trash.restore(session_id, self._folder(session_id))

    def purge(self, session_id: str) -> None:
        """Remove it from the trash for good."""
        check_session_id(session_id)
        with translated(self._root):
            self._trash.purge(session_id)

    def purge_older(self, seconds: float) -> list[str]:
        """Remove for good what was deleted at least *seconds* ago; the ids of that."""
        with translated(self._root):
            self._trash.clear_leftovers()
            return self._trash.purge_older(seconds)

    def trashed(self) -> list[Trashed]:
        """What is in the trash, the newest first."""
        with translated(self._root):
            return self._trash.contents()

    # -- how

    def _folder(self, session_id: str) -> str:
        return f"{self._root}/{session_id}"

    def _is_stored(self, session_id: str) -> bool:
        folder = self._folder(session_id)
        return any(os.path.lexists(f"{folder}/{name}") for name in (META, "history", ".git/HEAD"))

    def _unknown(self, session_id: str) -> UnknownSession:
        return unknown_session(
            session_id, {*session_ids(self._root), *self._reserved}, f"in {self._root}"
        )

    def _reader(self, session_id: str) -> Folder:
        path = self._folder(session_id)
        is_folder(path)
        return Folder(path, self._repository(session_id))

    def _repository(self, session_id: str) -> Repository:
        return Repository(self._folder(session_id), self._outside.files, self._outside.clock)

    def _repository_of(self, session_id: str) -> Repository | None:
        return self._repository(session_id) if self._is_stored(session_id) else None

    def _open_for_reading(self, session_id: str) -> ReadSession:
        if not self._is_stored(session_id):
            dag = self.load(session_id)
            return ReadSession(dag, None, _read_only(session_id), self._outside)
        with translated(self._folder(session_id)):
            folder = self._reader(session_id)
            loaded = load(session_id, folder)
        why = _read_only(session_id)
        if loaded.damages:
            damage = corrupt(session_id, folder.path, loaded.damages)
            why = f"{damage.message}; {len(loaded.damages)} records are left out here"
        return ReadSession(loaded.dag, folder, why, self._outside, damaged=bool(loaded.damages))

    def _open_new(self, session_id: str) -> DiskSession:
        if session_id not in self._reserved:
            raise self._unknown(session_id)
        writer = self._writers.get(session_id)
        if writer is not None and not writer.closed:
            raise locked(session_id, self._me())
        return DiskSession(
            self._folder(session_id), Dag(session_id), self._reserved[session_id], self._outside
        )

    def _describe(self, session_id: str) -> SessionInfo | None:
        try:
            return parse_meta(
                session_id, read_file(f"{self._folder(session_id)}/{META}", MAX_META_BYTES)
            )
        except (OSError, ValueError, RecursionError):
            if not self._is_stored(session_id):
                return None
        # It can always be made again from the journal; whoever opens the session does so.
        try:
            return summarise(self.load(session_id))
        except StoreError:
            return SessionInfo(session_id, "", "", "", "", 0, "damaged")

    def _me(self) -> Holder:
        return this_process(self._outside.kernel, timestamp(self._outside.clock()))

    @contextmanager
    def _locked(self, session_id: str) -> Iterator[None]:
        """Be the one writer for a moment."""
        folder = self._folder(session_id)
        is_folder(folder)
        self._outside.files.make_folders(folder, ".git")
        lock = writer_lock(folder, session_id, self._outside)
        lock.acquire(self._me(), for_a_moment=True)
        try:
            yield
        finally:
            lock.drop()


def _read_only(session_id: str) -> str:
    return f"session {session_id!r} was opened for reading; open it with mode='write' to change it"
