"""Sessions from strangers, as a document or a folder, and copies of one's own.

What comes in has been through the same checks as the journal, and equals what was written: ids,
order, times, branches, and the values that are kept beside them.  What a stranger's session could
allow is taken out of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import check_session_id
from op_jupyter.core.values import dataclass
from op_jupyter.errors import (
    InvalidSessionId,
    OpenProgramError,
    StoreError,
    UsageError,
)
from op_jupyter.store import codec
from op_jupyter.store.base import Store
from op_jupyter.store.codec import BadRecord, Record
from op_jupyter.store.documents import KIND, LONGER, MOST_BYTES, kept_values, records_of
from op_jupyter.store.files import read_file
from op_jupyter.store.history import blob_path
from op_jupyter.store.journal import MAX_FILE_BYTES, list_files, read_segments
from op_jupyter.store.packs import MAX_OBJECT_BYTES
from op_jupyter.store.session import RecordedSession, check_blob_hash
from op_jupyter.store.summary import new_session_id

MAX_RECORDS: Final = 2_000_000
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
_BATCH: Final = 500
_BATCH_TURNS: Final = 50
"""Each turn of a batch is a file of its own, open until the batch is on disk."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import.

    Attributes:
        was: the id that it had, when that one was taken here, or could be none.
        notes: what was left out, one sentence each.
    """

    session_id: str
    turns: int
    was: str = ""
    notes: Sequence[str] = ()


# -- reading what a stranger wrote


def import_path(store: Store, path: Path, session_id: str | None = None) -> Imported:
    """Take a document of `to_json`, or a session's folder, into *store*, as a new session.

    Args:
        session_id: its id here; None: the one it had, or a new one where that is taken.

    Raises:
        UsageError: it is neither, or too large; nothing was stored.
        StoreError: it is damaged, or was written by a newer version; nothing was stored.
    """
    read = _read_folder(path) if path.is_dir() else _read_document(path)
    wanted, was = _free_id(store, read.named, session_id)
    meta = _store(store, read, wanted, _harmless, {"imported_from": was[:200]} if was else {})
    return Imported(wanted, meta.turns, was, (*meta.notes, *read.notes))


def copy_session(store: Store, session_id: str, copy_id: str | None = None) -> Imported:
    """Make a session of everything that is stored of another one by now, and leave that as it is.

    No lock is taken: somebody may be writing to it.

    Args:
        copy_id: the id of the new one; None: any.

    Raises:
        UnknownSession, StoreError: it is not there, or cannot be read.
        UsageError: *copy_id* is taken.
    """
    dag = store.load(session_id)
    source = store.open(session_id, "read")
    try:
        read = _Read(session_id, *_with_kept(list(records_of(dag)), source.read_blob))
        wanted = new_session_id() if copy_id is None else _free_id(store, "", copy_id)[0]
        done = _store(store, read, wanted, _as_it_is, {"copy_of": session_id})
    finally:
        source.close()
    return Imported(wanted, done.turns, session_id)


def _with_kept(
    records: Sequence[Record], read_blob: codec.ReadBlob, most_bytes: float = float("inf")
) -> tuple[Sequence[Record], Iterable[bytes]]:
    """*records*, and the values that they name.

    Raises:
        StoreError: these have more than *most_bytes*.
    """
    texts = map(_encode, records)
    sizes = kept_values(texts, read_blob)
    if (size := sum(sizes.values())) > most_bytes:
        raise StoreError(f"its kept values have {size:,} bytes, which are too many")
    return records, (read_blob(sha256) for sha256 in sizes)


@dataclass(frozen=True, slots=True)
class _Read:
    """A session, read from elsewhere.

    Attributes:
        named: the id that it had.
        kept: values that the records name by their hash.
        notes: what is missing, for people.
    """

    named: str
    records: Sequence[Any]
    kept: Iterable[bytes]
    notes: Sequence[str] = ()


def _read_document(path: Path) -> _Read:
    real = os.fspath(path.resolve())
    try:
        _check_size(path, os.stat(real).st_size)
        text = read_file(real, MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be imported: {error}") from error
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "it nests too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{path} is no JSON document: {reason}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UsageError(
            f"{path} is no exported session; `op-jupyter export ID --format json` makes one"
        )
    version, records = document.get("format"), document.get("records")
    if type(version) is not int or version < 1:
        raise UsageError(f"{path} does not say in which format it was written")
    codec.check_format(version, str(path))
    if not isinstance(records, list) or len(records) > MAX_RECORDS:
        raise UsageError(f"{path} holds no list of at most {MAX_RECORDS:,} records")
    kept = _read_kept(path, document.get("kept", {}))
    named = document.get("session_id")
    named = named if isinstance(named, str) else ""
    notes = ("some kept values were left out of it",) if document.get("left_out") else ()
    return _Read(named, _as_of_today(path, records, version), kept, notes)


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        raise UsageError(
            f"{path} has {size:,} bytes, and at most {MOST_BYTES:,} can be imported; {LONGER}"
        )


def _read_kept(path: Path, kept: Any) -> list[bytes]:
    """The values of a document, which are what their hashes say."""
    found = []
    try:
        for sha256, value in kept.items():
            ((how, text),) = value.items()
            data = text.encode() if how == "text" else base64.b64decode(text, validate=True)
            if hashlib.sha256(data).hexdigest() != sha256 or how not in ("text", "base64"):
                raise ValueError(f"{sha256!r:.80} is not what it says")
            found.append(data)
    except (ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise StoreError(
            f"{path} is damaged: its kept values are not as they should be ({error}); "
            "nothing was imported"
        ) from error
    return found


def _as_of_today(path: Path, records: Sequence[Any], version: int) -> list[Record]:
    if version == codec.FORMAT:
        return list(records)
    try:
        return [codec.as_of_today(dict(record), version) for record in records]
    except (BadRecord, TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged: {error}; nothing was imported") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _read_folder(path: Path) -> _Read:
    folder = os.fspath(path.resolve())
    try:
        files = list_files(folder)
    except OSError as error:
        raise UsageError(f"{path} cannot be imported: {error}") from error
    if not files:
        raise UsageError(f"{path} is no session's folder: it has no history/")
    _check_size(path, size := sum(files.values()))
    found: list[tuple[int, str, int, Record]] = []
    for segment in read_segments(files, lambda p: read_file(f"{folder}/{p}", MAX_FILE_BYTES)):
        if segment.damages:
            first = segment.damages[0]
            raise StoreError(
                f"{path} is damaged: {first.path}, byte {first.offset}: {first.reason}; "
                "nothing was imported"
            )
        found += segment.records
    found.sort(key=lambda entry: entry[:3])
    budget = _Budget(MOST_BYTES - size)

    def read_blob(sha256: str) -> bytes:
        data = read_file(f"{folder}/{blob_path(check_blob_hash(sha256))}", MAX_OBJECT_BYTES)
        return budget.spent(data)

    def read_kept(sha256: str) -> bytes:
        data = read_file(f"{folder}/{blob_path(check_blob_hash(sha256))}", MAX_OBJECT_BYTES)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreError(f"{path} is damaged: a kept value is not what its name says")
        return data

    records = [_whole(record, read_blob, path) for _, _, _, record in found]
    return _Read(path.resolve().name, *_with_kept(records, read_kept, budget.left))


@dataclass(slots=True)
class _Budget:
    """One large value may be named by many records; together they may not be too much."""

    left: int

    def spent(self, data: bytes) -> bytes:
        """*data*, which there is still room for."""
        self.left -= len(data)
        if self.left < 0:
            raise BadRecord("its large values are too many")
        return data


def _whole(record: Record, read_blob: codec.ReadBlob, path: Path) -> Record:
    try:
        whole = codec.make_whole(record, read_blob)
    except (BadRecord, OSError) as error:
        raise StoreError(f"{path} is damaged: {error}; nothing was imported") from error
    return {key: value for key, value in whole.items() if key != "blobs"}


Judge: TypeAlias = Callable[[Mapping[str, Any]], tuple[list[str], dict[str, Any]]]
"""Says of a session's metadata what is not taken over, and what takes its place."""


@dataclass(frozen=True, slots=True)
class _Stored:
    turns: int
    notes: Sequence[str]


def _store(
    store: Store, read: _Read, wanted: str, judge: Judge, more: Mapping[str, Any]
) -> _Stored:
    """Make session *wanted* of what was *read*, all of it or nothing."""
    scratch, checked = Dag("import"), []
    for number, record in enumerate(read.records, 1):
        try:
            line = codec.encode(dict(record))
            codec.fold(scratch, line.record)
            checked.append(line.record)
        except (OpenProgramError, TypeError, ValueError, AttributeError, KeyError) as error:
            why = error.message if isinstance(error, OpenProgramError) else "it is no record"
            raise StoreError(
                f"record {number} of the session does not fit: {why}; nothing was imported"
            ) from None
    notes, changed = judge(scratch.meta)
    changed |= more
    if scratch.meta.get("id", wanted) != wanted:
        changed["id"] = wanted
    with store.creating(wanted) as session:
        assert isinstance(session, RecordedSession)
        for batch in _batches(checked):
            session.take_over(batch)
        for data in read.kept:
            session.put_blob(data, "application/octet-stream")
        if changed:
            session.set_meta(**changed)
    return _Stored(len(scratch.turns), notes)


def _free_id(store: Store, named: str, asked: str | None) -> tuple[str, str]:
    """The id to use, and the one that it had when that is another one."""
    if asked is not None:
        if store.exists(check_session_id(asked)):
            raise UsageError(f"session id {asked!r} is taken; choose another one")
        return asked, named if named != asked else ""
    try:
        if not store.exists(check_session_id(named)):
            return named, ""
    except InvalidSessionId:
        pass
    return new_session_id(), named


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Runs of turns and their nodes, each stored as one; anything else alone."""
    batch: list[Record] = []
    turns = 0
    for record in records:
        together = record["kind"] in ("turn", "enter")
        begins = record.get("op") == "open"
        if batch and (not together or len(batch) == _BATCH or turns + begins > _BATCH_TURNS):
            yield batch
            batch, turns = [], 0
        if together:
            batch.append(record)
            turns += begins
        else:
            yield [record]
    if batch:
        yield batch


def _as_it_is(_meta: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    return [], {}


def _harmless(meta: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """What a stranger's session may not bring along, and what takes its place."""
    notes, safe = [], dict[str, Any]()
    rules = meta.get("rules")
    if isinstance(rules, Mapping) and rules.get("allow"):
        denied = rules.get("deny")
        safe["rules"] = {"allow": [], "deny": denied if isinstance(denied, list) else []}
        notes.append("its rules that allow something were left out")
    elif rules is not None and not isinstance(rules, Mapping):
        safe["rules"] = {"allow": [], "deny": []}
    if meta.get("mode", "accept_edits") not in ("accept_edits", "read_only"):
        safe["mode"] = "accept_edits"
        notes.append("it asks before code runs, whatever its mode was")
    if meta.get("extra_tools"):
        safe["extra_tools"] = []
        notes.append("the extra tools that it had are not offered; `%agent tools +shell` does it")
    if meta.get("config"):
        safe["config"] = {}
        notes.append("its configuration was left out")
    if meta.get("notebook"):
        safe["notebook"] = ""
    return notes, safe
