"""The journal: append-only files of records, one segment a turn.  It is the truth.

    history/<number // 100>/<number>-<label>-<tag>.jsonl     first file of a segment
    history/<number // 100>/<number>-<label>-<tag>.1.jsonl   its continuation over 1 MB

*label* is the kind of the turn, or ``session`` for what happens between turns, or ``local``
for which line is which on this machine, which git is not told.  Nothing reads an order out of
the names: records are ordered by their seq alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from op_jupyter.errors import StoreError
from op_jupyter.store import codec
from op_jupyter.store.codec import BadRecord, Record
from op_jupyter.store.files import FileSystem, FsyncFailed, is_folder, read_file

SEGMENT_BYTES: Final = 1024 * 1024
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
SHARD: Final = 100
BETWEEN: Final = "session"
"""Label of the segments that belong to no turn."""
LOCAL: Final = "local"
"""Label of the segments that never leave this machine."""

_NAME: Final = re.compile(r"(\d{5,9})-([a-z]{1,20})-([0-9a-f]{8})(?:\.(\d{1,5}))?\.jsonl")
_CREATE: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL


Entry: TypeAlias = tuple[int, str, int, Record]
"""A record with what orders it: its seq, and the file and the offset where it stands."""


class Unsafe(StoreError):
    """Nobody knows any more what is on disk: an fsync failed, or a file cannot be put back."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Which segment: what its files have in common."""

    number: int
    label: str
    tag: str

    @property
    def is_turn(self) -> bool:
        """Whether it is a turn's."""
        return self.label not in (BETWEEN, LOCAL)

    def path(self, part: int) -> str:
        """Its file number *part*, relative to the session's folder."""
        suffix = f".{part}" if part else ""
        shard = f"{self.number // SHARD:03d}"
        return f"history/{shard}/{self.number:05d}-{self.label}-{self.tag}{suffix}.jsonl"


def parse_path(path: str) -> tuple[SegmentName, int] | None:
    """The segment and the part that a file is, or None when it is none of ours."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    name, part = SegmentName(int(match[1]), match[2], match[3]), int(match[4] or 0)
    return (name, part) if name.path(part) == path else None


# --- writing ----------------------------------------------------------------------------


@dataclass(slots=True)
class _OpenSegment:
    name: SegmentName
    fd: int = -1
    part: int = -1
    size: int = 0


class Journal:
    """The writer's side.  Not thread-safe: its session holds a mutex."""

    def __init__(self, folder: str, files: FileSystem, next_number: int) -> None:
        self._folder = folder
        self._files = files
        self._next_number = next_number
        self._segments: dict[str | None, _OpenSegment] = {}
        self._finished: dict[str | None, tuple[str, ...]] = {}
        self._unsynced: set[str] = set()

    def __contains__(self, key: str | None) -> bool:
        return key in self._segments

    def start(self, key: str | None, label: str, tag: str) -> None:
        """Give *key* (a turn's id, or None) a segment; its file is made with its first record."""
        self._segments[key] = _OpenSegment(SegmentName(self._next_number, label, tag))
        self._next_number += 1

    def adopt(self, key: str, name: SegmentName, part: int, size: int) -> None:
        """Go on with a segment that was left open, its last file *size* bytes long."""
        fd = self._open_alone(name.path(part), size)
        self._segments[key] = _OpenSegment(name, fd, part, size)

    def found_finished(self, key: str | None, paths: tuple[str, ...]) -> None:
        """Remember the files of a segment that was closed before: `finish` gives them, once."""
        self._finished[key] = paths

    def has_found(self, key: str | None) -> bool:
        """Whether there are such files still, which nobody has asked for."""
        return bool(self._finished.get(key))

    def cut(self, path: str, size: int) -> None:
        """Cut a file to its *size* good bytes, durably."""
        fd = self._open_alone(path, size)
        try:
            self._files.truncate(fd, size)
            self._files.sync(fd)
        finally:
            self._files.close(fd)

    def _open_alone(self, path: str, size: int) -> int:
        """Open a file whose only name is *path*."""
        whole = f"{self._folder}/{path}"
        if os.lstat(whole).st_nlink > 1:
            # The other name may be anywhere; what we write must not appear there.
            self._files.replace(whole, read_file(whole, MAX_FILE_BYTES)[:size])
        return self._files.open(whole, os.O_WRONLY | os.O_APPEND)

    def append(self, groups: Sequence[tuple[str | None, bytes]]) -> None:
        """Add whole records to the segments of their keys (each once), durable as one.

        Raises:
            StoreError: the disk refused; every file is as it was.
            Unsafe: nobody knows what is on disk now.
        """
        touched: list[_OpenSegment] = []
        before: list[tuple[int, int, int]] = []
        for key, _ in groups:
            segment = self._segments[key]
            self._check_there(segment)
            touched.append(segment)
            before.append((segment.fd, segment.part, segment.size))
        try:
            for segment, (_, data) in zip(touched, groups, strict=True):
                self._write(segment, data)
            self._files.sync_with_folders([segment.fd for segment in touched], self._unsynced)
            self._unsynced.clear()  # after a failure they are synced with what comes next
        except OSError as exc:
            known = self._put_back(touched, before) and not isinstance(exc, FsyncFailed)
            refusal = f"{self._folder} cannot be written to ({exc.strerror or exc})"
            if known:
                raise StoreError(f"{refusal}; nothing was stored") from exc
            raise Unsafe(refusal) from exc
        for segment, (fd, _, _) in zip(touched, before, strict=True):
            if fd not in (-1, segment.fd):
                self._files.close(fd)

    def finish(self, key: str | None) -> tuple[str, ...]:
        """Close the segment of *key* for good and return its files, relative to the folder."""
        if found := self._finished.pop(key, ()):
            return found
        segment = self._segments.pop(key, None)
        if segment is None or segment.fd < 0:
            return ()
        self._files.close(segment.fd)
        return tuple(segment.name.path(part) for part in range(segment.part + 1))

    def close(self) -> None:
        """Close every file."""
        self._finished.clear()
        for key in list(self._segments):
            self.finish(key)

    def _write(self, segment: _OpenSegment, data: bytes) -> None:
        if segment.fd < 0 or (segment.size and segment.size + len(data) > SEGMENT_BYTES):
            self._start_file(segment)
        self._files.write_all(segment.fd, data)
        segment.size += len(data)

    def _check_there(self, segment: _OpenSegment) -> None:
        """Write nothing into a file that has no name any more: it would be lost."""
        if segment.fd >= 0 and not os.fstat(segment.fd).st_nlink:
            path = segment.name.path(segment.part)
            raise Unsafe(
                f"somebody else removed {self._folder}/{path} while it was written to, by "
                "`git clean` or `git checkout` for instance"
            )

    def _start_file(self, segment: _OpenSegment) -> None:
        path = segment.name.path(segment.part + 1)
        folder = os.path.dirname(path)
        self._files.make_missing(self._folder, [folder], self._unsynced)
        segment.fd = self._files.open(f"{self._folder}/{path}", _CREATE)
        segment.part, segment.size = segment.part + 1, 0
        self._unsynced.add(f"{self._folder}/{folder}")

    def _put_back(
        self, touched: Sequence[_OpenSegment], before: Sequence[tuple[int, int, int]]
    ) -> bool:
        """Make every file what it was before; whether that worked."""
        worked = True
        for segment, (fd, part, size) in zip(touched, before, strict=True):
            new_fd, new_part = segment.fd, segment.part
            segment.fd, segment.part, segment.size = fd, part, size
            try:
                if new_part != part:
                    self._files.close(new_fd)
                    self._files.unlink(f"{self._folder}/{segment.name.path(new_part)}")
                elif fd >= 0:
                    self._files.truncate(fd, size)
                    self._files.sync(fd)
            except OSError:
                worked = False
        return worked


# --- reading ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a file where there should be a record and is none."""

    path: str
    offset: int
    reason: str


@dataclass(slots=True)
class StoredSegment:
    """A segment as it was found.

    Attributes:
        records: with the file and the offset of each.
        open: it is a turn's, and its end is not there.
        sizes: of its files, in bytes, good ones only.
        torn: bytes after the last whole record, an append that never ended.
    """

    name: SegmentName
    records: list[Entry]
    damages: list[Damage]
    open: bool
    sizes: list[int]
    torn: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it never leaves this machine."""
        return self.name.label == LOCAL

    @property
    def turn_id(self) -> str | None:
        """The turn it belongs to, if it is a turn's and says so."""
        if not self.name.is_turn or not self.records:
            return None
        turn = self.records[0][3].get("turn")
        return turn.get("id") if isinstance(turn, dict) else None


def list_files(folder: str) -> dict[str, int]:
    """Paths of all segment files of a session, with their sizes, as of one moment.

    A writer may be at work: the newest shards are looked at again until two looks agree,
    so that no file is seen older than one it depends on.
    """
    found = _look(folder, None)
    if not found:
        return found
    newest = sorted({path.split("/")[1] for path in found})[-2:]
    for _ in range(50):
        again = {**found, **_look(folder, newest)}
        if again == found:
            break
        found = again
    return found


def _look(folder: str, shards: Iterable[str] | None) -> dict[str, int]:
    history = f"{folder}/history"
    if not is_folder(history):
        return {}
    found = {}
    for shard in sorted(os.listdir(history)) if shards is None else shards:
        if not stat.S_ISDIR(os.lstat(f"{history}/{shard}").st_mode):
            continue
        with os.scandir(f"{history}/{shard}") as entries:
            for entry in entries:
                path = f"history/{shard}/{entry.name}"
                if parse_path(path):
                    found[path] = entry.stat(follow_symlinks=False).st_size
    return found


def read_segments(
    sizes: Mapping[str, int | None], read: Callable[[str], bytes]
) -> Iterator[StoredSegment]:
    """The segments whose files are *sizes*, each read up to its size there (None: whole)."""
    named = sorted((*parsed, path) for path in sizes if (parsed := parse_path(path)))
    between = [name for name, _, _ in named if name.label == BETWEEN]
    for name, group in groupby(named, key=lambda item: item[0]):
        files = [(part, path) for _, part, path in group]
        yield _read_segment(name, files, sizes, read, newest=between[-1:] == [name])


def _read_segment(
    name: SegmentName,
    files: Sequence[tuple[int, str]],
    sizes: Mapping[str, int | None],
    read: Callable[[str], bytes],
    *,
    newest: bool,
) -> StoredSegment:
    segment = StoredSegment(name, [], [], open=name.is_turn, sizes=[])
    for expected, (part, path) in enumerate(files):
        if part != expected:
            segment.damages.append(Damage(name.path(expected), 0, "the file is missing"))
            break
        try:
            data = read(path)[: sizes[path]]
        except (OSError, StoreError) as exc:
            segment.damages.append(Damage(path, 0, str(exc)))
            segment.sizes.append(0)
            continue
        last = part == files[-1][0]
        _parse(segment, path, data, may_be_torn=last and (newest or name.label != BETWEEN))
    return segment


def _parse(segment: StoredSegment, path: str, data: bytes, *, may_be_torn: bool) -> None:
    lines = data.split(b"\n")
    offset, last = 0, len(lines) - 1
    for index, line in enumerate(lines):
        try:
            if index == last and line:
                raise BadRecord("it is cut off")
            if line or index < last:
                record = codec.decode(line)
                segment.records.append((record["seq"], path, offset, record))
                if record["kind"] == "turn" and record.get("op") == "close":
                    segment.open = False
        except BadRecord as exc:
            # An append that never ended has no newline, or pages that were never written.
            unfinished = index == last or (b"\0" in line and not lines[-1] and index == last - 1)
            if unfinished and may_be_torn and (segment.open or not segment.name.is_turn):
                segment.torn = len(data) - offset
                break
            segment.damages.append(Damage(path, offset, exc.message))
        offset += len(line) + 1
    segment.sizes.append(len(data) - segment.torn)
