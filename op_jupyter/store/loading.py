"""From files to a graph: the union of what the folder and git have, folded in order of seq.

Nothing here writes.  What git has and the folder lacks (after a `git checkout` or a
`git clone`) is read from git.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from typing import Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.values import dataclass
from op_jupyter.errors import CorruptRecord, StoreError
from op_jupyter.store import codec
from op_jupyter.store.codec import BadRecord, Record
from op_jupyter.store.files import is_folder, read_file
from op_jupyter.store.git import Repository
from op_jupyter.store.history import blob_path
from op_jupyter.store.journal import (
    MAX_FILE_BYTES,
    Damage,
    StoredSegment,
    list_files,
    parse_path,
    read_segments,
)
from op_jupyter.store.objects import Entries, GitRefused, NoCommit
from op_jupyter.store.packs import MAX_OBJECT_BYTES, name_of

_SHA256: Final = re.compile("[0-9a-f]{64}")
_DECISION: Final = b'"kind":"decision"'


@dataclass(slots=True)
class InGit:
    """What the trees of all refs have of ours: path -> sha."""

    segments: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    unreadable: str = ""


class Folder:
    """A session's folder for reading, with git behind it."""

    def __init__(self, path: str, repository: Repository) -> None:
        self.path = path
        self.in_git = find_in_git(repository)
        self._repository = repository

    def read_segment(self, path: str) -> bytes:
        """A segment's file, from git when it is not there."""
        return self._read(path, MAX_FILE_BYTES, self.in_git.segments)

    def read_blob(self, sha256: str) -> bytes:
        """A large value.

        Raises:
            FileNotFoundError: it is nowhere.
            BadRecord: it is not what it was.
        """
        if not _SHA256.fullmatch(sha256):
            raise BadRecord("its large value has no proper name")
        data = self._read(blob_path(sha256), MAX_OBJECT_BYTES, self.in_git.blobs)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BadRecord(f"its large value {blob_path(sha256)} is damaged")
        return data

    def read(self, path: str) -> bytes:
        """A file of ours that git has."""
        sha = self.in_git.segments.get(path) or self.in_git.blobs[path]
        return self._repository.read(sha)[1]

    def is_ahead(self, path: str) -> bool:
        """Whether a segment's file goes on where git's copy of it ends."""
        data, sha = self.read_segment(path), self.in_git.segments[path]
        return name_of(b"blob", data) != sha and data.startswith(self._repository.read(sha)[1])

    def list_segments(self) -> dict[str, int | None]:
        """Paths of all segment files with their sizes; None: it is in git only."""
        return dict.fromkeys(self.in_git.segments) | list_files(self.path)

    def _read(self, path: str, limit: int, in_git: dict[str, bytes]) -> bytes:
        try:
            return read_file(f"{self.path}/{path}", limit)
        except FileNotFoundError:
            if path not in in_git:
                raise
            return self._repository.read(in_git[path])[1]


def find_in_git(repository: Repository) -> InGit:
    """What the trees of all refs have of ours."""
    found = InGit()
    try:
        if not is_folder(repository.git_dir):
            return found
        repository.check()
        seen: set[bytes] = set()
        for tip in set(repository.refs.all().values()):
            _look_into(repository, tip, found, seen)
    except (StoreError, OSError) as exc:
        found.unreadable = f"git cannot be read: {exc}"
    return found


def _look_into(repository: Repository, tip: bytes, found: InGit, seen: set[bytes]) -> None:
    try:
        root = repository.tree(repository.commit_object(tip).tree)
    except NoCommit:
        return  # a tag may name anything
    except GitRefused as exc:
        found.unreadable = found.unreadable or f"git cannot be read: {exc}"
        return
    history = repository.subtree(root, b"history")
    for path, sha in _files_below(repository, history, "history", seen):
        if parse_path(path):
            found.segments[path] = sha
    blobs = repository.subtree(repository.subtree(root, b"context"), b"blobs")
    for path, sha in _files_below(repository, blobs, "context/blobs", seen):
        if path == blob_path(path.rpartition("/")[2]):
            found.blobs[path] = sha


def _files_below(
    repository: Repository, entries: Entries, prefix: str, seen: set[bytes]
) -> Iterator[tuple[str, bytes]]:
    """Files in the folders of *entries*; trees that were *seen* are passed over."""
    for name, (_, tree) in entries.items():
        if tree not in seen:
            seen.add(tree)
            for file, (_, sha) in repository.subtree(entries, name).items():
                yield (
                    f"{prefix}/{name.decode(errors='replace')}/{file.decode(errors='replace')}",
                    sha,
                )


@dataclass(slots=True)
class Loaded:
    """A session as it was found.

    Attributes:
        dag: folded from every record that fits.
        segments: where the records were.
        records: all of them, in order, with the segment of each; whole and as of today where
            they fit.
        damages: what did not fit, or was no record.
    """

    dag: Dag
    segments: list[StoredSegment]
    records: list[tuple[int, str, int, Record]]
    damages: list[Damage]


def load(session_id: str, folder: Folder) -> Loaded:
    """Read everything and fold it.

    Raises:
        FormatTooNew: a newer version wrote it.
    """
    segments = list(read_segments(folder.list_segments(), folder.read_segment))
    for segment in segments:
        _compare_with_git(segment, folder)
    records = [record for segment in segments for record in segment.records]
    records.sort(key=lambda entry: entry[:3])
    loaded = Loaded(Dag(session_id), segments, records, [d for s in segments for d in s.damages])
    for index, (seq, path, offset, record) in enumerate(records):
        try:
            whole = codec.make_whole(record, folder.read_blob)
            codec.fold(loaded.dag, whole)
            records[index] = seq, path, offset, whole
        except (BadRecord, OSError) as exc:
            loaded.damages.append(Damage(path, offset, str(exc)))
    return loaded


def load_node(session_id: str, folder: Folder, node_id: str) -> Dag:
    """A node without its edges, and all decisions: what no line tells of is not parsed.

    Raises:
        FormatTooNew: a newer version wrote it.
    """
    named = canonical_json(node_id).encode("utf-8", "surrogatepass")
    found: list[tuple[int, str, int, Record]] = []
    for path in folder.list_segments():
        data = folder.read_segment(path)
        if named in data or _DECISION in data:
            for number, line in enumerate(data.split(b"\n")):
                if named in line or _DECISION in line:
                    with suppress(BadRecord):  # what is damaged is told by who reads it all
                        record = codec.decode(line)
                        found.append((record["seq"], path, number, record))
    found.sort(key=lambda entry: entry[:3])
    dag = Dag(session_id)
    for *_, record in found:
        with suppress(BadRecord, FileNotFoundError):
            if _tells_of(record, node_id):
                codec.fold(dag, _without_edges(codec.make_whole(record, folder.read_blob)))
    return dag


def _tells_of(record: Record, node_id: str) -> bool:
    match record:
        case {"kind": "enter", "node": {"id": entered}}:
            return bool(entered == node_id)
        case {"kind": "update", "id": updated}:
            return bool(updated == node_id)
    return bool(record["kind"] == "decision")


def _without_edges(record: Record) -> Record:
    if record["kind"] != "enter":
        return record
    alone = {key: value for key, value in record.items() if key != "head"}
    return {**alone, "node": {**record["node"], "caller": None, "predecessor": None}}


def _compare_with_git(segment: StoredSegment, folder: Folder) -> None:
    """A segment whose end is missing was never committed; if it was, something cut it off."""
    path = segment.name.path(len(segment.sizes) - 1)
    cut_off = (segment.open or segment.torn) and not segment.damages
    if cut_off and path in folder.in_git.segments:
        size = segment.sizes[-1] + segment.torn
        if name_of(b"blob", folder.read_segment(path)) != folder.in_git.segments[path]:
            segment.damages.append(Damage(path, size, "git has more of this file"))


def corrupt(session_id: str, folder: str, damages: list[Damage]) -> CorruptRecord:
    """The error for what was found damaged."""
    first = damages[0]
    more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
    return CorruptRecord(
        f"session {session_id!r} is damaged: {folder}/{first.path}, byte {first.offset}: "
        f"{first.reason}{more}; nothing was changed. Open it read-only (mode='read') to see what "
        f"can be read; `op-jupyter doctor {session_id}` says what git still has",
        path=f"{folder}/{first.path}",
        offset=first.offset,
    )
