"""A session as one JSON document.

It holds records like those of the journal, a record a line, and with them the values that they
name by their hash: what files were (for undo), whole results, what tools were offered.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, TypeAlias

from op_jupyter.core.graph import MAIN, Dag
from op_jupyter.core.nodes import Turn
from op_jupyter.errors import StoreError
from op_jupyter.store import codec
from op_jupyter.store.codec import Record

KIND: Final = "op-jupyter session"
KEPT_BYTES: Final = 16 * 1024 * 1024
"""So much of kept values goes into a document that is not asked to be whole."""
MOST_BYTES: Final = 512 * 1024 * 1024
"""Larger documents and folders cannot be imported: they are read as one."""
LONGER: Final = "`op-jupyter push` and `pull` take sessions of any length to other places"
# Longer runs than a hash has are matched as well, and passed over: that is three times as fast as
# to look around at each place.
_HEX: Final = re.compile("[0-9a-f]{64,}")
_HASH_CHARS: Final = 64
_encode: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode

Tell: TypeAlias = Callable[[str], None]
"""Told what a person should know: one sentence."""


def to_json(
    dag: Dag, read_blob: codec.ReadBlob, *, whole: bool = False, tell: Tell = lambda said: None
) -> str:
    """The whole session, a record a line, and then the values that it keeps, each on a line.

    Args:
        whole: with all of them, also beyond `KEPT_BYTES`.
        tell: is told when some are left out, and when the document is too large to be imported.
    """
    lines = [_encode(record) for record in records_of(dag)]
    sizes = kept_values(lines, read_blob)
    taken = list(sizes) if whole else _fitting(sizes)
    head: Record = {"kind": KIND, "format": codec.FORMAT, "session_id": dag.session_id}
    if left := len(sizes) - len(taken):
        size = sum(sizes.values()) - sum(sizes[sha256] for sha256 in taken)
        head["left_out"] = {"values": left, "bytes": size}
        tell(_left_out(left, size))
    kept = [f'"{sha256}": {_value_to_json(read_blob(sha256))}' for sha256 in taken]
    # Joined once: a long session has hundreds of megabytes.
    parts = [f'{json.dumps(head)[:-1]},\n"records": [\n', *_lines(lines)]
    parts += ['\n],\n"kept": {\n', *_lines(kept), "\n}}\n"]
    text = "".join(parts)
    if 4 * len(text) > MOST_BYTES and (size := len(text.encode())) > MOST_BYTES:
        tell(f"with {size:,} bytes this document is too large to be imported again; {LONGER}")
    return text


def _lines(texts: Sequence[str]) -> Iterator[str]:
    """*texts*, with what stands between them."""
    for number, text in enumerate(texts):
        yield ",\n" if number else ""
        yield text


def _left_out(count: int, size_bytes: int) -> str:
    what = "1 kept value" if count == 1 else f"{count} kept values"
    return (
        f"{what} ({size_bytes:,} bytes) left out: files cannot be put back where these are "
        "needed; --whole takes them along"
    )


def kept_values(texts: Iterable[str], read_blob: codec.ReadBlob) -> dict[str, int]:
    """The values that are kept under hashes that stand in *texts*, and in values that name others.

    Their sizes in bytes, the small ones first.
    """
    found: dict[str, int] = {}
    seen: set[str] = set()
    pending = list(texts)
    while pending:
        for sha256 in _HEX.findall(pending.pop()):
            if sha256 in seen or len(sha256) > _HASH_CHARS:
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
        return _encode({"text": data.decode()})
    except UnicodeDecodeError:
        return _encode({"base64": base64.b64encode(data).decode()})


def records_of(dag: Dag) -> Iterator[Record]:
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
