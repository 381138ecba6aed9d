"""Cassettes: recorded model calls and decisions in a text file next to the notebook."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from op_jupyter.core.recording import Recording, request_key
from op_jupyter.errors import CorruptRecord, FormatTooNew, StoreError
from op_jupyter.store.cassette_codec import (
    Contents,
    Decision,
    Exchange,
    Unreadable,
    decision_key,
    decode,
    encode,
)
from op_jupyter.store.cassette_use import add_line

MOST_BYTES: Final = 64 * 1024 * 1024
"""Largest file that is read; it is read whole."""

T = TypeVar("T")
_UNREAD: Final = (-1,)
"""The state of no file."""


class FileCassette:
    """Cassette in the file *path* (see `store.cassette_codec` for its text).

    Every recording is written at once, in the place of the whole file; a reader never sees half
    a file.  Any number of objects and processes may record into one file and replay from it:
    each looks at the file again when it has changed.

    What an object records for a request takes the place of what earlier runs recorded for it;
    a second reply of the same run comes after the first, unless it is the same.

    Args:
        log: file to which each recording that is played or made adds a line, so that those which
            a run did not need can be found (see `store.cassette_use`).

    Raises:
        CorruptRecord: the file is no cassette; the line is named.
        FormatTooNew: a newer version wrote it.
    """

    def __init__(self, path: Path, log: Path | None = None) -> None:
        self._path = path
        self._log = log
        self._state: tuple[int, ...] | None = None
        self._text = ""
        self._contents = Contents()
        self._refresh()
        self._played: Counter[str] = Counter()
        self._fresh: set[str] = set()
        self._used: Counter[str] = Counter()
        self._travelled = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """The same file, read anew."""
        self._travelled = True
        return FileCassette, (self._path, self._log)

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return self._path.name

    @property
    def path(self) -> Path:
        """The file; it need not exist."""
        return self._path

    def contents(self) -> Contents:
        """Everything in it; not to be changed."""
        with self._lock:
            self._refresh()
            return self._contents

    def replace(self, contents: Contents) -> None:
        """Hold *contents*, and nothing else."""
        with self._changing() as kept:
            kept.provider = contents.provider
            kept.providers = contents.providers
            kept.exchanges = contents.exchanges
            kept.decisions = contents.decisions

    @property
    def used(self) -> Mapping[str, int] | None:
        """How many recordings of each key this object played or made.

        None: it was sent to other processes as well, which do not tell.
        """
        with self._lock:
            return None if self._travelled else dict(self._used)

    def keep_only(self, used: Mapping[str, int]) -> None:
        """Drop each reply and answer but the first *used* ones of its key, and what is empty."""
        with self._changing() as contents:
            for key, exchange in list(contents.exchanges.items()):
                del exchange.replies[used.get(key, 0) :]
                if not exchange.replies:
                    del contents.exchanges[key]
            for key, decision in list(contents.decisions.items()):
                del decision.answers[used.get(key, 0) :]
                if not decision.answers:
                    del contents.decisions[key]

    def find_provider(self, name: str | None) -> Mapping[str, Any] | None:
        """What the recorded provider of that name can do; None: the one recorded with last."""
        with self._lock:
            self._refresh()
            return self._contents.providers.get(name or self._contents.provider or "")

    def record_provider(self, name: str, can: Mapping[str, Any]) -> None:
        """Keep what the provider *name* can do."""
        with self._changing() as contents:
            contents.provider = name
            contents.providers[name] = dict(can)

    def find_reply(self, key: str) -> Recording | None:
        """The next reply recorded for *key*; the last one again when they are used up."""
        with self._lock:
            self._refresh()
            exchange = self._contents.exchanges.get(key)
            return self._next(key, exchange.replies) if exchange else None

    def record_reply(self, request: Mapping[str, Any], reply: Recording) -> None:
        """Keep *reply* to the canonical *request*."""
        key = request_key(request)
        with self._changing() as contents:
            known = contents.exchanges.setdefault(key, Exchange(request, []))
            self._add(key, known.replies, reply)

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Every recorded canonical request."""
        with self._lock:
            self._refresh()
            return [exchange.request for exchange in self._contents.exchanges.values()]

    def find_decision(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The next decision recorded for exactly this call; the last again at the end."""
        key = decision_key(tool, arguments)
        with self._lock:
            self._refresh()
            decision = self._contents.decisions.get(key)
            return self._next(key, decision.answers) if decision else None

    def record_decision(
        self, tool: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> None:
        """Keep the *answer* that a person gave on the card of this call."""
        key = decision_key(tool, arguments)
        with self._changing() as contents:
            known = contents.decisions.setdefault(key, Decision(tool, arguments, []))
            self._add(key, known.answers, dict(answer))

    def _next(self, key: str, items: Sequence[T]) -> T | None:
        """The item of *key* whose turn it is."""
        if not items:
            return None
        position = min(self._played[key], len(items) - 1)
        self._played[key] += 1
        self._note(key, position)
        return items[position]

    def _add(self, key: str, items: list[T], item: T) -> None:
        """Put *item*, which was just recorded for *key*, where it belongs."""
        if key not in self._fresh:
            self._fresh.add(key)
            items[:] = [item]
        elif items[-1] != item:
            items.append(item)
        self._note(key, len(items) - 1)

    def _note(self, key: str, position: int) -> None:
        self._used[key] = max(self._used[key], position + 1)
        if self._log is not None:
            with self._explained():
                add_line(self._log, self._path, key, position)

    def _refresh(self) -> None:
        state = _state(self._path)
        if state != self._state:
            self._text, self._contents = _read(self._path)
            self._state = state

    @contextmanager
    def _changing(self) -> Iterator[Contents]:
        """The contents to change; they are written at the end.  Other writers wait."""
        with self._lock, self._only_writer():
            self._refresh()
            fresh, used = set(self._fresh), self._used.copy()
            try:
                yield self._contents
                text = encode(self._contents)
                if text != self._text:
                    self._write(text)
                    self._text, self._state = text, _state(self._path)
            except StoreError:
                self._fresh, self._used = fresh, used
                self._state = _UNREAD  # what was changed in memory is not in the file
                raise

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        with self._explained():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with self._explained():
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self, text: str) -> None:
        # One name for all: only one writes, and what a killed one left, or a link that a stranger
        # put there, is removed.
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with self._explained():
            try:
                temporary.unlink(missing_ok=True)
                with temporary.open("xb") as file:
                    if (mode := _mode(self._path)) is not None:
                        os.fchmod(file.fileno(), mode)
                    file.write(text.encode("utf-8", "surrogatepass"))
                    file.flush()
                    os.fsync(file.fileno())  # a full disk may tell only here
                temporary.replace(self._path)
            except OSError:
                with suppress(OSError):
                    temporary.unlink()
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the recording could not be written to {self._path}: {error.strerror};"
                " make the folder writable, or run without recording"
            ) from error


def _mode(path: Path) -> int | None:
    """The mode that a file's owner gave it; None: it is no file yet."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return None
    return stat.S_IMODE(info.st_mode) if stat.S_ISREG(info.st_mode) else None


def _state(path: Path) -> tuple[int, ...] | None:
    """Changes whenever the file does; None: there is none."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


def _read(path: Path) -> tuple[str, Contents]:
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise CorruptRecord(
                f"{path} has {size:,} bytes, and a cassette may have {MOST_BYTES:,}: record into"
                " several, one for each notebook",
                path=str(path),
            )
        text = path.read_bytes().decode("utf-8", "surrogatepass")
    except FileNotFoundError:
        return "", Contents()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptRecord(
            f"{path} cannot be read as a cassette: {error}", path=str(path)
        ) from error
    try:
        return text, decode(text)
    except FormatTooNew as error:
        raise FormatTooNew(f"{path}: {error}", version=error.version) from None
    except Unreadable as error:
        line = text.count("\n", 0, error.position) + 1
        raise CorruptRecord(
            f"{path} line {line}: {error}; if a merge left marks there, take one side whole and"
            " join the other with `op-jupyter cassette merge`",
            path=str(path),
            offset=len(text[: error.position].encode("utf-8", "surrogatepass")),
        ) from error
