"""The store's twin in memory: the same promises, kept for as long as the object lives.

Its journal is a list of lines, so what it gives back after reopening has been through
the same records as on disk.  For tests, and for hosts that want to record nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from op_jupyter.core.graph import Dag, unfinished
from op_jupyter.core.nodes import check_session_id
from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError
from op_jupyter.store import codec
from op_jupyter.store.base import Clock, SessionInfo, StoreStatus
from op_jupyter.store.codec import Encoded
from op_jupyter.store.lock import Holder, locked, this_process
from op_jupyter.store.session import RecordedSession, check_blob_hash, missing_blob, timestamp
from op_jupyter.store.summary import (
    creation_meta,
    describe_repair,
    new_session_id,
    summarise,
    unknown_session,
)


@dataclass(slots=True)
class _Kept:
    """What survives closing: a session's files, as it were."""

    reserved: dict[str, Any]
    lines: list[bytes] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    writer: MemorySession | None = None


class MemorySession(RecordedSession):
    """An open session of a `MemoryStore`."""

    def __init__(self, session_id: str, kept: _Kept, clock: Clock, *, read_only: str = "") -> None:
        super().__init__(_load(session_id, kept), kept.reserved, clock)
        self._files = kept
        self._repaired: tuple[str, ...] = ()
        if not read_only:
            repair = unfinished(self._dag)
            self._repaired = describe_repair(self._dag, repair)
            self._repair(repair)
        self._read_only = read_only

    @property
    def status(self) -> StoreStatus:
        """Never behind: there is no git here."""
        return StoreStatus(read_only=self._read_only, repaired=self._repaired)

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Keep *data* once and return its sha256."""
        self._check_writable()
        self._create()
        digest = hashlib.sha256(data).hexdigest()
        self._files.blobs[digest] = bytes(data)
        return digest

    def read_blob(self, sha256: str) -> bytes:
        """What `put_blob` kept."""
        try:
            return self._files.blobs[check_blob_hash(sha256)]
        except KeyError:
            raise missing_blob(sha256, self.session_id) from None

    def flush(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Let the next writer in."""
        self._closed = True
        if self._files.writer is self:
            self._files.writer = None

    def _keep(self, batch: Sequence[Encoded]) -> None:
        for encoded in batch:
            self._files.blobs.update(encoded.blobs)
            self._files.lines.append(encoded.line)

    def _kept(self, batch: Sequence[Encoded]) -> None:
        """Nobody else has to know."""


class MemoryStore:
    """Sessions in memory (see `store.base.Store`)."""

    def __init__(
        self, *, clock: Clock = time.time, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._sessions: dict[str, _Kept] = {}
        self._trash: dict[str, list[_Kept]] = {}

    def create_session(self, session_id: str | None = None, **meta: Any) -> str:
        """Reserve a session and return its id."""
        session_id = check_session_id(new_session_id() if session_id is None else session_id)
        if session_id in self._sessions:
            raise StoreError(f"session id {session_id!r} is taken; open it, or choose another id")
        self._sessions[session_id] = _Kept(creation_meta(session_id, meta, self._clock()))
        return session_id

    @contextmanager
    def creating(self, session_id: str) -> Iterator[MemorySession]:
        """A new session, which is here when the block ends without an error."""
        kept = self._sessions.pop(self.create_session(session_id))
        session = MemorySession(session_id, kept, self._clock)
        try:
            yield session
        finally:
            session.close()
        self.create_session(session_id)
        self._sessions[session_id] = kept

    def exists(self, session_id: str) -> bool:
        """Whether that session was created here."""
        return check_session_id(session_id) in self._sessions

    def open(
        self,
        session_id: str,
        mode: Literal["write", "read"] = "write",
        *,
        timeout: float = 0.0,
        force: bool = False,
    ) -> MemorySession:
        """Open for writing or for reading."""
        kept = self._find(session_id)
        if mode == "read":
            reason = f"session {session_id!r} was opened for reading"
            return MemorySession(session_id, kept, self._clock, read_only=reason)
        self._wait(kept, timeout)
        if kept.writer is not None:
            raise locked(session_id, self._me())
        kept.writer = MemorySession(session_id, kept, self._clock)
        return kept.writer

    def crash(self) -> None:
        """Drop every writer as kill -9 would: what was acknowledged stays, nothing is closed."""
        for kept in self._sessions.values():
            if kept.writer is not None:
                kept.writer._closed = True
                kept.writer = None

    def sessions(self, limit: int = 50) -> list[SessionInfo]:
        """The newest first."""
        found = [
            summarise(_load(session_id, kept))
            for session_id, kept in self._sessions.items()
            if kept.lines
        ]
        found.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
        return found[:limit]

    def load(self, session_id: str) -> Dag:
        """The graph of a session."""
        return _load(session_id, self._find(session_id))

    def load_node(self, session_id: str, node_id: str) -> Dag:
        """The graph of a session; nothing has to be read for it."""
        return self.load(session_id)

    @property
    def root(self) -> Path | None:
        """None: they are not on disk."""
        return None

    def path(self, session_id: str) -> Path | None:
        """None: it is not on disk."""
        check_session_id(session_id)
        return None

    def delete(self, session_id: str) -> None:
        """Move it to the trash."""
        kept = self._find(session_id)
        if kept.writer is not None:
            raise locked(session_id, self._me())
        del self._sessions[session_id]
        if kept.lines:
            self._trash.setdefault(session_id, []).append(kept)

    def restore(self, session_id: str) -> None:
        """Take it out of the trash; of several with that id, the one deleted last."""
        trashed = self._trash.get(check_session_id(session_id))
        if not trashed:
            raise unknown_session(session_id, self._trash, "in the trash")
        if session_id in self._sessions:
            raise StoreError(f"session id {session_id!r} is taken; delete that one first")
        self._sessions[session_id] = trashed.pop()

    def purge(self, session_id: str) -> None:
        """Remove it from the trash for good."""
        if not self._trash.pop(check_session_id(session_id), None):
            raise unknown_session(session_id, self._trash, "in the trash")

    def _me(self) -> Holder:
        return this_process("", timestamp(self._clock()))

    def _find(self, session_id: str) -> _Kept:
        try:
            return self._sessions[check_session_id(session_id)]
        except KeyError:
            raise unknown_session(session_id, self._sessions, "here") from None

    def _wait(self, kept: _Kept, timeout: float) -> None:
        waited = 0.0
        while kept.writer is not None and waited < timeout:
            self._sleep(0.01)
            waited += 0.01


def _load(session_id: str, kept: _Kept) -> Dag:
    dag = Dag(session_id)
    for line in kept.lines:
        record = codec.decode(line[:-1])
        codec.fold(dag, codec.make_whole(record, kept.blobs.__getitem__))
    return dag
