"""A session as one JSON document, and sessions from strangers: a document or a folder.

The document holds records like those of the journal, so what is read back has been through the
same checks, and equals what was written: ids, order, times, branches.  What a stranger's session
could allow is taken out of it.  Kept contents of files (for undo) are in the folder alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

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
_BATCH: Final = 500


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


def to_json(dag: Dag) -> str:
    """The whole session, a record a line."""
    head = json.dumps({"kind": KIND, "format": codec.FORMAT, "session_id": dag.session_id})
    lines = [json.dumps(r, ensure_ascii=False, sort_keys=True) for r in _records(dag)]
    return head[:-1] + ',\n"records": [\n' + ",\n".join(lines) + "\n]}\n"


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
    if path.is_dir():
        named, records = path.resolve().name, _read_folder(path)
    else:
        named, records = _read_document(path)
    return _store(store, named, records, session_id)


def _read_document(path: Path) -> tuple[str, list[Record]]:
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
    return str(document.get("session_id", "")), _as_of_today(path, records, version)


def _as_of_today(path: Path, records: Sequence[Any], version: int) -> list[Record]:
    if version == codec.FORMAT:
        return list(records)
    try:
        return [codec.as_of_today(dict(record), version) for record in records]
    except (BadRecord, TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged: {error}; nothing was imported") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _read_folder(path: Path) -> list[Record]:
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

    return [_whole(record, read_blob, path) for _, _, _, record in found]


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


def _store(store: Store, named: str, records: Sequence[Any], session_id: str | None) -> Imported:
    scratch, checked = Dag("import"), []
    for number, record in enumerate(records, 1):
        try:
            line = codec.encode(dict(record))
            codec.fold(scratch, line.record)
            checked.append(line.record)
        except (OpenProgramError, TypeError, ValueError, AttributeError, KeyError) as error:
            why = error.message if isinstance(error, OpenProgramError) else "it is no record"
            raise StoreError(
                f"record {number} of the session does not fit: {why}; nothing was imported"
            ) from None
    wanted, was = _free_id(store, named, session_id)
    notes, safe = _harmless(scratch.meta)
    store.create_session(wanted)
    try:
        session = store.open(wanted)
        assert isinstance(session, RecordedSession)
        try:
            for batch in _batches(checked):
                session.take_over(batch)
            if safe or was:
                session.set_meta(**safe, **({"imported_from": was[:200]} if was else {}))
        finally:
            session.close()
    except BaseException:
        store.delete(wanted)
        raise
    return Imported(wanted, len(scratch.turns), was, tuple(notes))


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
