"""Short notes that are kept across sessions, beside them: one small file each."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError, UsageError
from op_jupyter.store.files import FileSystem, read_file, remove
from op_jupyter.store.session import timestamp

FOLDER: Final = ".memory"
MAX_CHARS: Final = 2_000
MOST: Final = 500
_ID: Final = re.compile(r"note-[0-9a-f]{8}")
_MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Note:
    """One note.  *session_id*: where it was made."""

    id: str
    text: str
    created_at: str
    session_id: str


class Notes:
    """The notes beside the sessions under one folder."""

    def __init__(
        self,
        root: Path,
        *,
        files: FileSystem | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = os.fspath(root)
        self._files = files or FileSystem()
        self._clock = clock

    def all(self) -> list[Note]:
        """Every note, the oldest first; what is no note is passed over."""
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(f"{self._root}/{FOLDER}")
        notes = (self._read(name.removesuffix(".json")) for name in names)
        return sorted((note for note in notes if note), key=lambda note: (note.created_at, note.id))

    def add(self, text: str, session_id: str) -> Note:
        """Keep *text*.

        Raises:
            UsageError: it is empty or too long, or there are too many.
            StoreError: the disk refused.
        """
        if not text.strip() or len(text) > MAX_CHARS:
            raise UsageError(f"a note has 1 to {MAX_CHARS:,} characters, not {len(text):,}")
        if len(self.all()) >= MOST:
            raise UsageError(f"there are {MOST} notes; `%agent memory --delete ID` makes room")
        note = Note(f"note-{secrets.token_hex(4)}", text, timestamp(self._clock()), session_id)
        try:
            self._files.make_folders(self._root, FOLDER)
            data = json.dumps(asdict(note), ensure_ascii=False).encode("utf-8", "replace")
            self._files.replace(f"{self._root}/{FOLDER}/{note.id}.json", data)
        except OSError as error:
            raise StoreError(f"the note cannot be kept: {error}") from error
        return note

    def find(self, query: str) -> list[Note]:
        """The notes that hold every word of *query*; all of them without a word."""
        words = query.casefold().split()
        return [note for note in self.all() if all(w in note.text.casefold() for w in words)]

    def delete(self, note_id: str) -> None:
        """Forget a note.

        Raises:
            UsageError: there is none of that id.
        """
        if self._read(note_id) is None:
            raise UsageError(f"there is no note {note_id!r:.60}; `%agent memory` lists them")
        remove(f"{self._root}/{FOLDER}/{note_id}.json")

    def _read(self, note_id: str) -> Note | None:
        if not _ID.fullmatch(note_id):
            return None
        try:
            said = json.loads(read_file(f"{self._root}/{FOLDER}/{note_id}.json", _MAX_BYTES))
            members = {k: str(said[k]) for k in ("text", "created_at", "session_id")}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return Note(note_id, **members)
