"""The trash: deleted sessions, which come back until they are purged.

    <root>/.trash/<id>       the one with that id that was deleted first, whole
    <root>/.trash/<id>~2     the next one
    <root>/.trash/.<hex>     on its way out: no session any more

A session goes there and comes back by one rename.  Nothing is purged unless somebody asks.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from op_jupyter.core.nodes import check_session_id
from op_jupyter.core.values import dataclass
from op_jupyter.errors import InvalidSessionId, StoreError
from op_jupyter.store.base import Clock, SessionInfo
from op_jupyter.store.files import FileSystem, read_file
from op_jupyter.store.session import timestamp
from op_jupyter.store.summary import META, parse_meta, unknown_session

FOLDER: Final = ".trash"
MAX_META_BYTES: Final = 16 * 1024 * 1024
_NAME: Final = re.compile(r"(?P<id>[^~]+)(?:~(?P<number>[1-9][0-9]{0,8}))?")


@dataclass(frozen=True, slots=True)
class Trashed:
    """A deleted session.

    Attributes:
        info: how a list shows it.
        deleted_at: UTC, ISO 8601.
        age: seconds since then.
    """

    info: SessionInfo
    deleted_at: str
    age: float


@dataclass(frozen=True, slots=True)
class _Entry:
    session_id: str
    number: int
    path: str
    deleted: float


class Trash:
    """The trash of the sessions under one folder."""

    def __init__(self, root: str, files: FileSystem, clock: Clock) -> None:
        self._root = root
        self._files = files
        self._clock = clock

    def put(self, session_id: str, folder: str) -> None:
        """Move the session in *folder* here; its caller holds the writer's lock."""
        self._files.make_folders(self._root, FOLDER)
        taken = {entry.number for entry in self._entries(session_id)}
        number = max(taken, default=0) + 1
        name = f"{session_id}~{number}" if number > 1 else session_id
        now = self._clock()
        os.utime(folder, (now, now))  # a rename leaves no trace of when it happened
        self._move(folder, f"{self._root}/{FOLDER}/{name}")

    def check(self, session_id: str) -> None:
        """Make sure that a session with that id is here.

        Raises:
            UnknownSession: there is none.
        """
        self._known(session_id)

    def restore(self, session_id: str, folder: str) -> None:
        """Move a session back to *folder*: of several with that id, the one deleted last.

        Raises:
            UnknownSession: there is none here.
        """
        self._move(max(self._known(session_id), key=lambda entry: entry.number).path, folder)

    def purge(self, session_id: str) -> None:
        """Remove every session with that id for good.

        Raises:
            UnknownSession: there is none here.
        """
        self._remove(self._known(session_id))

    def purge_older(self, seconds: float) -> list[str]:
        """Remove for good what was deleted at least *seconds* ago; the ids of that."""
        now = self._clock()
        old = [entry for entry in self._entries() if now - entry.deleted >= seconds]
        self._remove(old)
        return [entry.session_id for entry in old]

    def contents(self) -> list[Trashed]:
        """What is here, the newest first."""
        now = self._clock()
        found = sorted(self._entries(), key=lambda e: (e.deleted, e.number), reverse=True)
        return [Trashed(_describe(e), timestamp(e.deleted), now - e.deleted) for e in found]

    def clear_leftovers(self) -> None:
        """Finish what a purge that was killed has begun."""
        with suppress(FileNotFoundError):
            for name in os.listdir(f"{self._root}/{FOLDER}"):
                if re.fullmatch(r"\.[0-9a-f]{16}", name):
                    shutil.rmtree(f"{self._root}/{FOLDER}/{name}")

    def _known(self, session_id: str) -> list[_Entry]:
        found = list(self._entries(session_id))
        if not found:
            ids = {entry.session_id for entry in self._entries()}
            raise unknown_session(session_id, ids, "in the trash")
        return found

    def _entries(self, session_id: str | None = None) -> Iterator[_Entry]:
        with suppress(FileNotFoundError), os.scandir(f"{self._root}/{FOLDER}") as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match is None or session_id not in (None, match["id"]):
                    continue
                with suppress(InvalidSessionId, FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        found, number = check_session_id(match["id"]), int(match["number"] or 1)
                        yield _Entry(found, number, entry.path, info.st_mtime)

    def _remove(self, entries: list[_Entry]) -> None:
        for entry in entries:
            # Out of sight first: what a crash leaves of it is no session any more.
            doomed = f"{self._root}/{FOLDER}/.{secrets.token_hex(8)}"
            self._move(entry.path, doomed)
            shutil.rmtree(doomed)

    def _move(self, old: str, new: str) -> None:
        if os.path.lexists(new):
            raise StoreError(f"{new} is there already; nothing was moved")
        self._files.rename(old, new)
        for parent in {os.path.dirname(old), os.path.dirname(new)}:
            self._files.sync_folder(parent)


def _describe(entry: _Entry) -> SessionInfo:
    try:
        data = read_file(f"{entry.path}/{META}", MAX_META_BYTES)
        return parse_meta(entry.session_id, data)
    except (OSError, ValueError, RecursionError):
        return SessionInfo(entry.session_id, "", "", "", "", 0, "damaged")
