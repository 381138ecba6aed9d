"""Stored sessions as JSON texts.  Every call reads the disk, so none belongs on an event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from op_jupyter.errors import UsageError
from op_jupyter.store.base import SessionInfo, Store
from op_jupyter.views.details import node_details
from op_jupyter.views.session_json import session_json
from op_jupyter.views.text import storable, visible

MAX_LISTED: Final = 1000
_ALL: Final = 1_000_000
_QUERY_CHARS: Final = 500


class StoredSessions:
    """What the handlers serve.  Safe to use from any thread.

    Args:
        open_store: picks the store, on first use: that reads the settings and loads a lot.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._lock = threading.Lock()
        self._opened: Store | None = None

    @property
    def _store(self) -> Store:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_store()
            return self._opened

    def listed(self, *, query: str = "", limit: int = 100, agents: bool = False) -> str:
        """The newest sessions, at most *limit*, those of sub-agents only if *agents*.

        *query*: words that all have to stand in the id, the title or the notebook's path.

        Raises:
            UsageError: *limit* or *query* is out of bounds.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise UsageError(f"limit is {limit}; it has to be between 1 and {MAX_LISTED}")
        if len(query) > _QUERY_CHARS:
            raise UsageError(f"the search has {len(query)} characters; {_QUERY_CHARS} are allowed")
        words = query.casefold().split()
        found = [
            info
            for info in self._store.sessions(_ALL)
            if (agents or info.source != "agent") and _fits(info, words)
        ]
        shown = [_info_json(info) for info in found[:limit]]
        return _dump({"sessions": shown, "total": len(found)})

    def one(self, session_id: str) -> str:
        """A whole session: `views.session_json`, with its ``id`` and ``title``.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
        """
        dag = self._store.load(session_id)
        title = visible(str(dag.meta.get("title", "")))
        return _dump({"id": session_id, "title": title, **session_json(dag)})

    def node(self, session_id: str, node_id: str) -> str:
        """One node in full: ``input``, ``output`` and, with a decision, ``permission``.

        Raises:
            UnknownSession, UnknownNode, StoreError
        """
        dag = self._store.load(session_id)
        node = dag.node(node_id)
        return _dump({"id": node_id, **node_details(node, dag.decision_of(node))})

    def delete(self, session_id: str) -> None:
        """Move a session to the trash.

        Raises:
            UnknownSession: there is none.
            SessionLocked: a kernel or another process writes to it.
        """
        self._store.delete(session_id)

    def restore(self, session_id: str) -> None:
        """Take a session out of the trash.

        Raises:
            UnknownSession: it is not in the trash.
            StoreError: there is another one of that id.
        """
        self._store.restore(session_id)


def _fits(info: SessionInfo, words: list[str]) -> bool:
    text = f"{info.id} {info.title} {info.notebook}".casefold()
    return all(word in text for word in words)


def _info_json(info: SessionInfo) -> dict[str, Any]:
    told = {k: visible(v) if isinstance(v, str) else v for k, v in asdict(info).items()}
    # The id is an address as well; one that is not safe never gets here.
    return {**told, "id": info.id}


def _dump(value: Any) -> str:
    return json.dumps(storable(value), ensure_ascii=False)
