"""What a list shows of a session, and what people are told about one; derived, never the truth."""

from __future__ import annotations

import difflib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from op_jupyter.core.graph import Dag, Repair
from op_jupyter.core.nodes import check_session_id
from op_jupyter.errors import InvalidSessionId, StoreError, UnknownSession
from op_jupyter.store import codec
from op_jupyter.store.base import SessionInfo
from op_jupyter.store.session import timestamp

META: Final = "meta.json"
_TITLE_CHARS: Final = 200
_META_CHARS: Final = 4000
_text_of: Final = json.JSONEncoder(ensure_ascii=False).encode  # made once: `dumps` makes it anew


def session_ids(root: str | os.PathLike[str]) -> Iterator[str]:
    """The folders in *root* that may be sessions, by name; none where there is no *root* yet.

    Raises:
        StoreError: it cannot be listed.
    """
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            f"the sessions in {os.fspath(root)} cannot be listed: {error.strerror}"
        ) from error
    for name in names:
        with suppress(InvalidSessionId):
            yield check_session_id(name)


def new_session_id() -> str:
    """An id that nobody has yet."""
    return f"session-{secrets.token_hex(6)}"


def creation_meta(session_id: str, meta: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The first record of a session: who and what it is for.

    Raises:
        GraphError: *meta* is not JSON.
    """
    whole = {"title": "", "source": "library", "agent_id": "main", **meta}
    whole |= {"id": session_id, "created_at": timestamp(now)}
    record: dict[str, Any] = codec.encode(codec.describing(whole, 1)).record["set"]
    return record


def summarise(dag: Dag) -> SessionInfo:
    """How a list shows *dag*; constant time."""
    meta = dag.meta
    turn = next(reversed(dag.turns.values()), None)
    return SessionInfo(
        id=dag.session_id,
        title=str(meta.get("title", ""))[:_TITLE_CHARS],
        created_at=str(meta.get("created_at", ""))[:_TITLE_CHARS],
        updated_at=_updated_at(dag)[:_TITLE_CHARS],
        source=str(meta.get("source", ""))[:_TITLE_CHARS],
        turns=len(dag.turns),
        last_status=turn.status if turn else "",
        notebook=str(meta.get("notebook", ""))[:_TITLE_CHARS],
        status="archived" if meta.get("archived") is True else "active",
        head=dag.head,
        last_attempt_id=dag.last_attempt_id,
        config=_mapping(meta.get("config")),
    )


def meta_json(dag: Dag, version: int = codec.FORMAT) -> bytes:
    """The text of ``meta.json``: what a list shows, and what a person wants to know."""
    info = summarise(dag)
    said = {
        **dag.meta,
        "format": version,
        "id": info.id,
        "title": info.title,
        "source": info.source,
        "notebook": info.notebook,
        "created_at": info.created_at,
        "head": dag.head,
        "branch": dag.active_branch,
        "branches": list(dag.branches),
        "updated_at": info.updated_at,
        "turns": info.turns,
        "last_status": info.last_status,
        "last_attempt_id": info.last_attempt_id,
    }
    # One member a line; with `indent` the encoder would be thirty times as slow.
    lines = [f" {json.dumps(k)}: {_short(said[k])}" for k in sorted(said)]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _short(value: Any) -> str:
    """*value* as JSON; a long one is in the journal, and not in every commit as well."""
    text = _text_of(value)
    return text if len(text) <= _META_CHARS else _text_of(f"({len(text)} characters)")


def parse_meta(session_id: str, data: bytes) -> SessionInfo:
    """How a list shows a session, from its ``meta.json``.

    Raises:
        ValueError: it is none.
    """
    said = json.loads(data)
    if not isinstance(said, dict):
        raise ValueError("meta.json holds no mapping")
    turns = said.get("turns")
    return SessionInfo(
        id=session_id,
        title=str(said.get("title", ""))[:_TITLE_CHARS],
        created_at=str(said.get("created_at", "")),
        updated_at=str(said.get("updated_at", "")),
        source=str(said.get("source", "")),
        turns=turns if isinstance(turns, int) else 0,
        last_status=str(said.get("last_status", "")),
        notebook=str(said.get("notebook", "")),
        status="archived" if said.get("archived") is True else "active",
        head=_text(said.get("head")),
        last_attempt_id=_text(said.get("last_attempt_id")),
        config=_mapping(said.get("config")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _updated_at(dag: Dag) -> str:
    node = next(reversed(dag.nodes.values()), None)
    turn = next(reversed(dag.turns.values()), None)
    times = [str(dag.meta.get("created_at", ""))]
    if node is not None:
        times.append(node.created_at)
    if turn is not None:
        times += [turn.started_at, turn.finished_at or ""]
    return max(times)


def describe_repair(dag: Dag, repair: Repair) -> tuple[str, ...]:
    """One sentence for each thing that opening has to close."""
    said = [
        f"turn {dag.turns[turn].subject or turn!r} was running when its process ended; "
        "it is interrupted now"
        for turn in repair.turns
    ]
    if repair.nodes:
        count = len(repair.nodes)
        said.append(f"{count} unfinished node{'s are' if count > 1 else ' is'} interrupted now")
    return tuple(said)


def session_named(given: str, known: Sequence[str]) -> str:
    """The one of *known* that *given* names: as a whole, or by a beginning that is unique.

    Raises:
        UnknownSession: it names none, or more than one.
    """
    found = [each for each in known if each.startswith(given)] if given else []
    if given in found or len(found) == 1:
        return given if given in found else found[0]
    if not found:
        raise unknown_session(given, known, "here")
    some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    raise UnknownSession(f"{len(found)} sessions begin with {given!r}: {some}", nearest=found[:5])


def unknown_session(session_id: str, known: Iterable[str], where: str) -> UnknownSession:
    """The error for an id that names nothing, with the ids that look alike."""
    nearest = difflib.get_close_matches(session_id, list(known), n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
    return UnknownSession(f"there is no session {session_id!r} {where}{hint}", nearest=nearest)
