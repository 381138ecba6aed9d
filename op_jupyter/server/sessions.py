"""Stored sessions as JSON texts.  Every call reads the disk, so none belongs on an event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from op_jupyter.core.values import dataclass
from op_jupyter.engine.service import ALL, Service
from op_jupyter.errors import UsageError
from op_jupyter.store.base import SessionInfo
from op_jupyter.views.details import node_details
from op_jupyter.views.session_json import session_json
from op_jupyter.views.text import storable, visible

MAX_LISTED: Final = 1000
_HITS: Final = 500


@dataclass(frozen=True, slots=True)
class Exported:
    """A session as a file to save."""

    name: str
    media_type: str
    text: str


_MEDIA_TYPES: Final = {
    "md": "text/markdown",
    "html": "text/html",
    "json": "application/json",
    "ipynb": "application/x-ipynb+json",
}


class StoredSessions:
    """What the handlers serve.  Safe to use from any thread.

    Args:
        open_service: picks the store, on first use: that reads the settings and loads a lot.
    """

    def __init__(self, open_service: Callable[[], Service]) -> None:
        self._open_service = open_service
        self._lock = threading.Lock()
        self._opened: Service | None = None

    @property
    def _service(self) -> Service:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_service()
            return self._opened

    def listed(self, *, query: str = "", limit: int = 100, agents: bool = False) -> str:
        """The newest sessions, at most *limit*, those of sub-agents only if *agents*.

        *query*: words that all have to stand in one message, or in the title, the id or the
        notebook's path; a session that was found by a message comes with a ``snippet`` of it.

        Raises:
            UsageError: *limit* or *query* is out of bounds.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise UsageError(f"limit is {limit}; it has to be between 1 and {MAX_LISTED}")
        known = self._service.list_sessions(ALL, sub_agents=agents)
        found = self._found(query, known) if query.strip() else [_info_json(info) for info in known]
        return _dump({"sessions": found[:limit], "total": len(found)})

    def _found(self, query: str, known: Sequence[SessionInfo]) -> list[dict[str, Any]]:
        snippets: dict[str, str] = {}
        for hit in self._service.search(query, _HITS):
            snippets.setdefault(hit.session_id, "" if hit.role == "title" else hit.snippet)
        words = query.casefold().split()
        return [
            {**_info_json(info), "snippet": visible(snippets.get(info.id, ""))}
            for info in known
            if info.id in snippets or _is_named(info, words)
        ]

    def one(self, session_id: str) -> str:
        """A whole session: `views.session_json`, with its ``id`` and ``title``.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
        """
        dag = self._service.graph(session_id)
        title = visible(str(dag.meta.get("title", "")))
        return _dump({"id": session_id, "title": title, **session_json(dag)})

    def node(self, session_id: str, node_id: str) -> str:
        """One node in full: ``input``, ``output`` and, with a decision, ``permission``.

        Raises:
            UnknownSession, UnknownNode, StoreError
        """
        return _dump({"id": node_id, **node_details(*self._service.node(session_id, node_id))})

    def exported(self, session_id: str, form: str) -> Exported:
        """A session as a file: ``md``, ``html``, ``json`` or ``ipynb``.

        Raises:
            UsageError: there is no such format.
            UnknownSession, StoreError
        """
        text = self._service.export(session_id, form)
        return Exported(f"{session_id}.{form}", _MEDIA_TYPES[form], storable(text))

    def delete(self, session_id: str) -> None:
        """Move a session to the trash.

        Raises:
            UnknownSession: there is none.
            SessionLocked: a kernel or another process writes to it.
        """
        self._service.delete_session(session_id)

    def restore(self, session_id: str) -> None:
        """Take a session out of the trash.

        Raises:
            UnknownSession: it is not in the trash.
            StoreError: there is another one of that id.
        """
        self._service.restore_session(session_id)


def _is_named(info: SessionInfo, words: Sequence[str]) -> bool:
    text = f"{info.id} {info.title} {info.notebook}".casefold()
    return all(word in text for word in words)


def _info_json(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "title": visible(info.title),
        "updated_at": info.updated_at,
        "source": info.source,
        "turns": info.turns,
        "last_status": info.last_status,
        "notebook": visible(info.notebook),
    }


def _dump(value: Any) -> str:
    return json.dumps(storable(value), ensure_ascii=False)
