"""A session as one JSON document, sessions from strangers, and copies of one's own.

The document holds records like those of the journal, so what is read back has been through the
same checks, and equals what was written: ids, order, times, branches.  With them go the values
that they name by their hash: what files were (for undo), whole results, what tools were offered.
What a stranger's session could allow is taken out of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

from op_jupyter.core.graph import MAIN, Dag
from op_jupyter.core.nodes import Turn, check_session_id
from op_jupyter.errors import (
    InvalidSessionId,
    OpenProgramError,
    StoreError,
    UsageError,
)
from op_jupyter.store import codec
from op_jupyter.store.base import Store
from op_jupyter.store.codec import BadRecord, Record
from op_jupyter.store.files import read_file
from op_jupyter.store.history import blob_path
from op_jupyter.store.journal import MAX_FILE_BYTES, list_files, read_segments
from op_jupyter.store.packs import MAX_OBJECT_BYTES
from op_jupyter.store.session import RecordedSession, check_blob_hash
from op_jupyter.store.summary import new_session_id

KIND: Final = "op-jupyter session"
MAX_BYTES: Final = 512 * 1024 * 1024
"""Larger documents and folders are refused."""
MAX_RECORDS: Final = 2_000_000
KEPT_BYTES: Final = 16 * 1024 * 1024
"""So much of kept values goes into a document that is not asked to be whole."""
_BATCH: Final = 500
_HASH: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


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


Tell: TypeAlias = Callable[[str], None]
"""Told what a person should know: one sentence."""


def to_json(
    dag: Dag, read_blob: codec.ReadBlob, *, whole: bool = False, tell: Tell = lambda said: None
) -> str:
    """The whole session, a record a line, and then the values that it keeps, each on a line.

    Args:
        whole: with all of them, also beyond `KEPT_BYTES`.
        tell: is told when some are left out.
    """
    lines = [json.dumps(r, ensure_ascii=False, sort_keys=True) for r in _records(dag)]
    sizes = _kept_values(lines, read_blob)
    taken = list(sizes) if whole else _fitting(sizes)
    head: Record = {"kind": KIND, "format": codec.FORMAT, "session_id": dag.session_id}
    if left := len(sizes) - len(taken):
        size = sum(sizes.values()) - sum(sizes[sha256] for sha256 in taken)
        head["left_out"] = {"values": left, "bytes": size}
        tell(_left_out(left, size))
    kept = [f'"{sha256}": {_value_to_json(read_blob(sha256))}' for sha256 in taken]
    return (
        f'{json.dumps(head)[:-1]},\n"records": [\n{_lines(lines)}\n],\n'
        f'"kept": {{\n{_lines(kept)}\n}}}}\n'
    )


def _lines(parts: Sequence[str]) -> str:
    return ",\n".join(parts)


def _left_out(count: int, size_bytes: int) -> str:
    what = "1 kept value" if count == 1 else f"{count} kept values"
    return (
        f"{what} ({size_bytes:,} bytes) left out: files cannot be put back where these are "
        "needed; --whole takes them along"
    )


def _kept_values(texts: Iterable[str], read_blob: codec.ReadBlob) -> dict[str, int]:
    """The values that are kept under hashes that stand in *texts*, and in values that name others.

    Their sizes in bytes, the small ones first.
    """
    found: dict[str, int] = {}
    seen: set[str] = set()
    pending = list(texts)
    while pending:
        for sha256 in _HASH.findall(pending.pop()):
            if sha256 in seen:
                continue
            seen.add(sha256)
            with suppress(StoreError, OSError):  # not everything that looks like one is kept
                data = read_blob(sha256)
                found[sha256] = len(data)
                if data.startswith(b"{"):  # states of files, which name their contents
                    pending.append(data.decode(errors="replace"))
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def _fitting(sizes: Mapping[str, int]) -> list[str]:
    """The first ones, as many as `KEPT_BYTES` have room for."""
    together = zip(sizes, accumulate(sizes.values()), strict=True)
    return [sha256 for sha256, size in together if size <= KEPT_BYTES]


def _value_to_json(data: bytes) -> str:
    try:
        return json.dumps({"text": data.decode()}, ensure_ascii=False)
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(data).decode()})


def _records(dag: Dag) -> Iterator[Record]:
    """What makes *dag* when it is folded, in an order in which each record fits."""
    yield codec.describing(dag.meta, 1)
    waiting = list(dag.turns.values())
    last = {node.turn_id: node.id for node in dag}
    opened: dict[str, Turn] = {}
    for node in dag:
        turn = dag.turns.get(node.turn_id or "")
        if turn is not None and turn.id not in opened:
            at = waiting.index(turn) + 1
            yield from _opened(waiting[:at], node.seq, opened, last)
            del waiting[:at]
        yield codec.entering(node, node.seq, "", None)
        if turn is not None and last[turn.id] == node.id:
            yield from _closed(turn, node.seq)
    yield from _opened(waiting, dag.last_seq, opened, last)
    yield from (codec.deciding(decision, dag.last_seq) for decision in dag.decisions)
    yield from (codec.summarising(checkpoint, dag.last_seq) for checkpoint in dag.checkpoints)
    for branch, head in dag.branches.items():
        yield codec.pointing(branch, head, branch == dag.active_branch, dag.last_seq)
    if dag.active_branch in dag.branches:
        yield codec.pointing(dag.active_branch, dag.head, True, dag.last_seq)


def _opened(
    turns: Sequence[Turn], seq: int, opened: dict[str, Turn], last: Mapping[str | None, str]
) -> Iterator[Record]:
    for turn in turns:
        opened[turn.id] = turn
        said = turn.metadata if turn.status == "running" else {}
        begun = replace(turn, status="running", finished_at=None, failure=None, metadata=said)
        yield codec.opening(begun, MAIN, max(1, seq - 1))
        if turn.id not in last:
            yield from _closed(turn, max(1, seq - 1))


def _closed(turn: Turn, seq: int) -> Iterator[Record]:
    if turn.status == "running":
        return
    changes: dict[str, Any] = {"status": turn.status, "finished_at": turn.finished_at or ""}
    if turn.failure is not None:
        changes["failure"] = turn.failure
    yield codec.closing(turn.id, {**changes, "metadata": turn.metadata}, seq)


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
        read = _Read(session_id, *_with_kept(list(_records(dag)), source.read_blob))
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
    texts = (json.dumps(record, ensure_ascii=False) for record in records)
    sizes = _kept_values(texts, read_blob)
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
    try:
        text = read_file(os.fspath(path.resolve()), MAX_BYTES).decode("utf-8-sig")
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
    named = str(document.get("session_id", ""))
    notes = ("some kept values were left out of it",) if document.get("left_out") else ()
    return _Read(named, _as_of_today(path, records, version), kept, notes)


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
    if (size := sum(files.values())) > MAX_BYTES:
        raise UsageError(f"{path} has {size:,} bytes of history; {MAX_BYTES:,} are allowed")
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
    budget = _Budget(MAX_BYTES - size)

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
    store.create_session(wanted)
    try:
        session = store.open(wanted)
        assert isinstance(session, RecordedSession)
        try:
            for batch in _batches(checked):
                session.take_over(batch)
            for data in read.kept:
                session.put_blob(data, "application/octet-stream")
            if changed:
                session.set_meta(**changed)
        finally:
            session.close()
    except BaseException:
        store.delete(wanted)
        raise
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
    """Runs of new nodes of one turn, which are stored as one; anything else alone."""
    for (kind, _), run in groupby(records, key=_batch_key):
        found = list(run)
        size = _BATCH if kind == "enter" else 1
        yield from (found[at : at + size] for at in range(0, len(found), size))


def _batch_key(record: Record) -> tuple[str, Any]:
    node = record.get("node")
    turn = node.get("metadata", {}).get("turn_id") if isinstance(node, dict) else None
    return str(record["kind"]), turn


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
