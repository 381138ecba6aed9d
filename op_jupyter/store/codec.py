"""Records and the lines they are kept as; how lines become a graph again.

A record is one line of canonical JSON with a CRC-32 of what stands before it as its last
member.  Its members: ``kind``, ``seq`` (a Lamport counter over the whole session), ``v``
(format version, see `store.formats`), and by kind

``enter``       node {...}; head: the branch whose tip it becomes
``update``      id, set {fields filled in later}
``turn``        op "open": turn {...}, branch; op "close": id, set {status, finished_at, ...}
``decision``    decision {...}
``checkpoint``  checkpoint {...}
``head``        branch, node, activate
``meta``        set {...}

A member of one of those mappings that is longer than `BLOB_BYTES` is kept once under its
sha256; the record then has ``blobs {member: {hash, size, type, preview}}`` in its place.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, Final, TypeAlias

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import FormatTooNew, GraphError, StoreError
from op_jupyter.store import formats

FORMAT: Final = formats.FORMAT
BLOB_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 200
PREVIEW_CHARS: Final = 200

Record: TypeAlias = formats.Record
ReadBlob: TypeAlias = Callable[[str], bytes]


class BadRecord(StoreError):
    """A line that is no record.  Whoever knows the file says where (`CorruptRecord`)."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record ready to be kept.

    Attributes:
        line: the bytes, with their newline.
        record: the record as reading the line will give it; shares nothing with the caller's.
        blobs: large values to keep first, by sha256.
    """

    line: bytes
    record: Record
    blobs: Mapping[str, bytes]


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _mapping(value: Any) -> dict[Any, Any]:
    """What the encoder does with a value it does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# The C scanner itself: `json.loads` on top of it costs as much as a small record does.
_scan: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder(
    parse_constant=_refuse_constant
).scan_once  # type: ignore[attr-defined]  # there, but not in the stubs
_encode: Final = json.JSONEncoder(
    ensure_ascii=False,
    sort_keys=True,
    separators=(",", ":"),
    allow_nan=False,
    check_circular=False,  # a circle ends in RecursionError as well, and costs nothing here
    default=_mapping,
).encode
_NODE_FIELDS: Final = tuple(f.name for f in fields(Node) if f.name != "seq")
_TURN_FIELDS: Final = tuple(f.name for f in fields(Turn))
_NO_BLOBS: Final[Mapping[str, bytes]] = {}
_LARGE: Final = 2**63


# --- making records ---------------------------------------------------------------------


def entering(node: Node, seq: int, created_at: str, head: str | None) -> Record:
    """A node starts to be; *head* names the branch whose tip it becomes."""
    members = _plain(node, _NODE_FIELDS)
    members["created_at"] = node.created_at or created_at
    record: Record = {"kind": "enter", "seq": seq, "node": members}
    if head is not None:
        record["head"] = head
    return record


def updating(node_id: str, changes: Mapping[str, Any], seq: int) -> Record:
    """Fields of a node are filled in."""
    return {"kind": "update", "seq": seq, "id": node_id, "set": dict(changes)}


def opening(turn: Turn, branch: str, seq: int) -> Record:
    """A turn starts on *branch*, which is made at the turn's base if there is none yet."""
    return {
        "kind": "turn",
        "op": "open",
        "seq": seq,
        "turn": _plain(turn, _TURN_FIELDS),
        "branch": branch,
    }


def closing(turn_id: str, changes: Mapping[str, Any], seq: int) -> Record:
    """A turn ends."""
    return {"kind": "turn", "op": "close", "seq": seq, "id": turn_id, "set": dict(changes)}


def pointing(branch: str, node_id: str | None, activate: bool, seq: int) -> Record:
    """A branch is made, moved or made the active one."""
    return {"kind": "head", "seq": seq, "branch": branch, "node": node_id, "activate": activate}


def deciding(decision: Mapping[str, Any], seq: int) -> Record:
    """Somebody allowed or denied something."""
    return {"kind": "decision", "seq": seq, "decision": dict(decision)}


def summarising(checkpoint: Mapping[str, Any], seq: int) -> Record:
    """A summary stands for named nodes from now on."""
    return {"kind": "checkpoint", "seq": seq, "checkpoint": dict(checkpoint)}


def describing(meta: Mapping[str, Any], seq: int) -> Record:
    """Something about the session itself."""
    return {"kind": "meta", "seq": seq, "set": dict(meta)}


def _plain(value: Node | Turn, names: tuple[str, ...]) -> dict[str, Any]:
    return {n: m for n in names if (m := getattr(value, n)) is not None}


# --- lines ------------------------------------------------------------------------------


def encode(record: Record) -> Encoded:
    """*record* as a line and as what the line will read as.

    Raises:
        GraphError: a value that JSON cannot hold, or that nests too deeply.
    """
    record["v"] = FORMAT
    try:
        whole: Record = _copied(record, MAX_DEPTH)
        data = _dumps()(whole)
    except TypeError:  # seldom: what only the slow way can keep, or say what is wrong with
        text, data = _to_text(record)
        whole = _scan(text, 0)[0]
    blobs = _NO_BLOBS
    if len(data) > BLOB_BYTES:
        blobs = _move_large(whole)
        data = _encode(_slim(whole)).encode()
    body = data[:-1]
    return Encoded(b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body)), whole, blobs)


def _copied(value: Any, depth: int) -> Any:
    """*value* as reading it back will give it, which shares nothing but texts with it.

    Raises:
        TypeError: it holds what `orjson` does not write as `json` does, or more than *depth*
            levels.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict and depth:
        below = depth - 1
        copy = {}
        for name in sorted(value):
            if type(name) is not str:
                raise TypeError
            member = value[name]
            copy[name] = member if type(member) is str else _copied(member, below)
        return copy
    if kind is list and depth:
        below = depth - 1
        return [_copied(item, below) for item in value]
    if kind is int and -_LARGE <= value < _LARGE:
        return value
    if kind is float and (value == 0 or 1e-4 <= abs(value) < 1e16):
        return value  # others have an exponent, which `json` and `orjson` write differently
    raise TypeError


@cache
def _dumps() -> Callable[[Any], bytes]:
    """Writes what `_copied` gives as `json` would, in a tenth of the time."""
    import orjson  # on first use: sessions are read without it

    return partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)


def _to_text(record: Record) -> tuple[str, bytes]:
    try:
        text = _encode(record)
        data = text.encode()
        # Brackets bound the depth from above; only a value that may be too deep is walked.
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(record) > MAX_DEPTH:
            raise RecursionError
    except RecursionError:
        raise GraphError(
            f"{_culprit(record)} nests more than {MAX_DEPTH} levels deep, or contains itself; "
            "nothing was stored"
        ) from None
    except (TypeError, ValueError) as exc:
        reason = "an unpaired surrogate" if isinstance(exc, UnicodeError) else str(exc)
        raise GraphError(
            f"{_culprit(record)} cannot be stored as JSON ({reason}); nothing was stored"
        ) from exc
    return text, data


def _depth(value: Any) -> int:
    depth, level = 0, [value] if isinstance(value, Mapping | list | tuple) else []
    while level and depth <= MAX_DEPTH + 1:
        depth += 1
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, Mapping) else parent)
            if isinstance(child, Mapping | list | tuple)
        ]
    return depth


def _culprit(record: Record) -> str:
    """The member that does not encode, in words."""
    body: Record = next((record[b] for b in _MEMBERS if b in record), {})
    whose = record.get("id") or body.get("id") or "the session"
    for name, value in body.items():
        try:
            _encode({name: value}).encode()
        except (TypeError, ValueError, RecursionError):
            return f"{name} of {whose!r}"
        if _depth(value) >= MAX_DEPTH:
            return f"{name} of {whose!r}"
    return f"a {record['kind']} record of {whose!r}"


_MEMBERS: Final = ("node", "set", "turn", "decision", "checkpoint")


def _move_large(whole: Record) -> Mapping[str, bytes]:
    """The large members of *whole* by sha256; it says in ``blobs`` which they are."""
    body: Record = next((whole[b] for b in _MEMBERS if b in whole), {})
    blobs, moved = {}, {}
    for name, value in body.items():
        text = value if isinstance(value, str) else _encode(value)
        data = text.encode()
        if len(data) > BLOB_BYTES:
            digest = hashlib.sha256(data).hexdigest()
            blobs[digest] = data
            moved[name] = {
                "hash": digest,
                "size": len(data),
                "type": "text/plain" if isinstance(value, str) else "application/json",
                "preview": text[:PREVIEW_CHARS],
            }
    if moved:
        whole["blobs"] = moved
    return blobs


def _slim(whole: Record) -> Record:
    """*whole* without its large members."""
    moved = whole.get("blobs", {})
    return {
        name: {k: v for k, v in value.items() if k not in moved} if name in _MEMBERS else value
        for name, value in whole.items()
    }


def decode(line: bytes) -> Record:
    """The record of a *line* without its newline; large values are still outside.

    Raises:
        BadRecord: not a whole record with the right checksum.
        FormatTooNew: written by a newer version.
    """
    # The last member has a fixed length: ,"crc":"01234567"}
    if line[-18:-10] != b',"crc":"' or line[-2:] != b'"}':
        raise BadRecord("it does not end with a checksum")
    if b"%08x" % zlib.crc32(memoryview(line)[:-18]) != line[-10:-2]:
        raise BadRecord("its checksum is wrong")
    try:
        record: Record = _parse(line)
        version, seq, kind = record["v"], record["seq"], record["kind"]
        known = kind in _FOLD
    except (ValueError, StopIteration, RecursionError, KeyError, TypeError) as exc:
        raise BadRecord("it is not one of our records") from exc
    if type(version) is not int or version < 1 or type(seq) is not int or seq < 1:
        raise BadRecord("its version or seq is not a number from 1")
    check_format(version, "the session")
    if not known:
        raise BadRecord(f"its kind {kind!r:.60} is unknown")
    return record


def check_format(version: int, what: str) -> None:
    """Refuse what a newer version wrote.

    Raises:
        FormatTooNew: it did; names both formats.
    """
    if version > FORMAT:
        raise FormatTooNew(
            f"{what} was written in format {version}, and this version of op-jupyter reads "
            f"up to format {FORMAT}; install a newer version",
            version=version,
        )


def _parse(data: bytes) -> Any:
    text = data.decode()
    value, end = _scan(text, 0)
    if end != len(text):
        raise ValueError("something follows the value")
    return value


def make_whole(record: Record, read_blob: ReadBlob) -> Record:
    """*record* with its large values put back in, as it would be written today."""
    if "blobs" in record:
        _put_back(record, read_blob)
    version = record["v"]
    return record if version == FORMAT else as_of_today(record, version)


def as_of_today(record: Record, version: int) -> Record:
    """A whole *record* of format *version* as it would be written today.

    Raises:
        BadRecord: it is not what its format has.
    """
    try:
        return formats.brought_up_to_date(record, version)
    except (KeyError, TypeError, ValueError) as exc:
        raise BadRecord(f"it is not as format {version} has it") from exc


def _put_back(record: Record, read_blob: ReadBlob) -> None:
    try:
        body = next(record[b] for b in _MEMBERS if b in record)
        for name, blob in record["blobs"].items():
            data = read_blob(blob["hash"])
            body[name] = data.decode() if blob["type"] == "text/plain" else _parse(data)
    except (ValueError, StopIteration, RecursionError, KeyError, TypeError, AttributeError) as exc:
        raise BadRecord("its large values are not as it says") from exc


# --- folding ----------------------------------------------------------------------------


def fold(dag: Dag, record: Record, *, fits: bool = False) -> None:
    """Apply a whole *record* to *dag*, if it fits; *fits*: the rules were asked before.

    Raises:
        BadRecord: it does not; nothing was changed.
    """
    try:
        _FOLD[record["kind"]](dag, record, fits)
        dag.see(record["seq"])
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        reason = exc if isinstance(exc, GraphError) else "its members are not as they should be"
        raise BadRecord(str(reason)) from exc


def _fold_enter(dag: Dag, record: Record, fits: bool) -> None:
    node = Node(seq=record["seq"], **record["node"])
    if not fits:
        dag.check_node(node)
    if "head" in record:
        if record["head"] not in dag.branches:
            raise GraphError(f"there is no branch {record['head']!r:.60}")
        dag.branches[record["head"]] = node.id
    dag.add(node)


def _fold_update(dag: Dag, record: Record, fits: bool) -> None:
    if not fits:
        dag.check_update(record["id"], record["set"])
    dag.fill(record["id"], record["set"])


def _fold_turn(dag: Dag, record: Record, fits: bool) -> None:
    if record["op"] == "open":
        turn, branch = Turn(**record["turn"]), record["branch"]
        if not fits:
            dag.check_open_turn(turn)
            dag.check_branch(branch)
        dag.open_turn(turn)
        if branch not in dag.branches:
            dag.point(branch, turn.base, activate=True)
    elif record["op"] == "close":
        if not fits:
            dag.check_close_turn(record["id"], record["set"])
        dag.close_turn(record["id"], record["set"])
    else:
        raise GraphError(f"a turn has no {record['op']!r:.60}")


def _fold_head(dag: Dag, record: Record, fits: bool) -> None:
    if not fits:
        dag.check_branch(record["branch"])
        dag.check_head(record["node"])
    dag.point(record["branch"], record["node"], activate=bool(record["activate"]))


def _fold_decision(dag: Dag, record: Record, fits: bool) -> None:
    dag.decisions.append(_mapping(record["decision"]))


def _fold_checkpoint(dag: Dag, record: Record, fits: bool) -> None:
    dag.checkpoints.append(_mapping(record["checkpoint"]))


def _fold_meta(dag: Dag, record: Record, fits: bool) -> None:
    dag.meta.update(_mapping(record["set"]))


_FOLD: Final[dict[str, Callable[[Dag, Record, bool], None]]] = {
    "enter": _fold_enter,
    "update": _fold_update,
    "turn": _fold_turn,
    "head": _fold_head,
    "decision": _fold_decision,
    "checkpoint": _fold_checkpoint,
    "meta": _fold_meta,
}
