"""The one way to stored sessions for everybody who is not a session's owner.

The notebook, the command line and the server of the lab extension list, read, search, export
and delete through here, and nobody of them touches the store behind its back.  Reading takes no
lock; of a session that this process has open, it sees what is going on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from op_jupyter.core.attempts import (
    Attempt,
    AttemptStatus,
    Message,
    attempt_of,
    is_attempt,
    messages_of,
)
from op_jupyter.core.graph import Dag
from op_jupyter.core.turn import Phase
from op_jupyter.engine import registry
from op_jupyter.engine.event_bus import EventBus
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import SessionActive, UsageError
from op_jupyter.store.base import OpenSession, SearchHit, SessionInfo, Store
from op_jupyter.store.interchange import Imported, import_path
from op_jupyter.store.summary import session_named, unknown_session

Exporter: TypeAlias = Callable[[Dag], str]
ALL: Final = 1_000_000
SUB_AGENT: Final = "agent"
"""The ``source`` of sub-agents' sessions, which lists leave out unless asked for them."""
MAX_QUERY_CHARS: Final = 1_000

_LIVE: Final[Mapping[Phase, AttemptStatus]] = {
    Phase.PENDING: "pending",
    Phase.WAITING_PERMISSION: "waiting_user",
}


class Searcher(Protocol):
    """Finds messages; see `store.search.SearchIndex`."""

    def search(self, query: str, limit: int = 20) -> list[SearchHit]: ...


class Service:
    """Sessions of one store.  Safe to use from any thread, but not on the background loop.

    Args:
        searcher: makes it when it is first wanted; None: this store cannot be searched.
        exporters: by the name of their format.

    Attributes:
        bus: what happens in the sessions that this process works in.
    """

    def __init__(
        self,
        store: Store,
        *,
        searcher: Callable[[], Searcher] | None = None,
        exporters: Mapping[str, Exporter] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.bus = EventBus(clock)
        self._searcher = None if searcher is None else cache(searcher)
        self._exporters = exporters or {}

    # -- finding sessions

    def list_sessions(
        self,
        limit: int = 50,
        *,
        archived: bool | None = False,
        sub_agents: bool = False,
    ) -> list[SessionInfo]:
        """The newest first, without opening any.

        Args:
            archived: None: both kinds.
            sub_agents: also those of sub-agents.
        """
        found = self.store.sessions(ALL)
        return [
            info
            for info in found
            if archived in (None, info.status == "archived")
            and (sub_agents or info.source != SUB_AGENT)
        ][:limit]

    def get_session(self, session_id: str) -> SessionInfo:
        """One of them.

        Raises:
            UnknownSession: there is none of that id.
        """
        known = {info.id: info for info in self.store.sessions(ALL)}
        if session_id not in known:
            raise unknown_session(session_id, known, "here")
        return known[session_id]

    def find(self, named: str) -> str:
        """The id of the session that *named* is, or is the unique beginning of.

        Raises:
            InvalidSessionId: it can be no session's.
            UnknownSession: it names none, or more than one.
        """
        if self.store.exists(named):
            return named
        return session_named(named, [info.id for info in self.store.sessions(ALL)])

    def search(self, query: str, limit: int = 20) -> list[SearchHit]:
        """The messages and titles that hold every word of *query*, the best first.

        Raises:
            UsageError: the query is too long, or this store cannot be searched.
        """
        if self._searcher is None:
            raise UsageError("sessions that are kept in memory cannot be searched")
        if len(query) > MAX_QUERY_CHARS:
            raise UsageError(
                f"the search has {len(query)} characters; {MAX_QUERY_CHARS} are allowed"
            )
        return self._searcher().search(query, limit)

    # -- reading one

    def graph(self, session_id: str) -> Dag:
        """Everything that happened in a session, as it is now.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
        """
        here = self._live(session_id)
        return self.store.load(session_id) if here is None else here.store.snapshot()

    @contextmanager
    def reading(self, session_id: str) -> Iterator[OpenSession]:
        """A session to be read, with its large values; a writer elsewhere goes on meanwhile.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
        """
        here = self._live(session_id)
        if here is not None:
            yield here.store
            return
        session = self.store.open(session_id, "read")
        try:
            yield session
        finally:
            session.close()

    def path(self, session_id: str) -> Path | None:
        """The session's folder; None when nothing of it is on disk."""
        return self.store.path(session_id)

    def get_messages(self, session_id: str, limit: int = 100) -> list[Message]:
        """The newest *limit* messages, in the order in which they were said."""
        return list(messages_of(self.graph(session_id)))[-limit:] if limit > 0 else []

    def get_attempts(self, session_id: str) -> list[Attempt]:
        """Every attempt, with what is known of one that runs here."""
        dag, here = self.graph(session_id), self._live(session_id)
        return [
            attempt_of(dag, turn, _live_status(here, turn.id))
            for turn in dag.turns.values()
            if is_attempt(turn)
        ]

    def export(self, session_id: str, format: str = "md") -> str:  # noqa: A002 - the word for it
        """A whole session as a text of its own: ``md``, ``html``, ``json`` or ``ipynb``.

        Raises:
            UsageError: there is no such format.
            UnknownSession, StoreError: the session is not there, or cannot be read.
        """
        exporter = self._exporters.get(format)
        if exporter is None:
            known = ", ".join(self._exporters)
            raise UsageError(f"there is no format {format!r} to export to; there are: {known}")
        return exporter(self.graph(session_id))

    def import_session(self, path: Path, session_id: str | None = None) -> Imported:
        """Take an exported document (``json``) or a session's folder in, as a new session.

        Raises:
            UsageError, StoreError: see `store.interchange.import_path`; nothing was stored.
        """
        return import_path(self.store, path, session_id)

    # -- keeping them in order

    def create_session(
        self, title: str = "", config: Mapping[str, Any] | None = None, **meta: Any
    ) -> str:
        """Make a session and return its id."""
        session_id = self.store.create_session(title=title, config=dict(config or {}), **meta)
        self.bus.publish(session_id, "session.created", {"title": title})
        return session_id

    def archive(self, session_id: str) -> None:
        """Leave it out of lists; it is kept, and found by a search."""
        self._set_meta(session_id, archived=True)

    def unarchive(self, session_id: str) -> None:
        """List it again."""
        self._set_meta(session_id, archived=False)

    def delete_session(self, session_id: str) -> None:
        """Move it to the trash, from which `restore_session` brings it back.

        Raises:
            UnknownSession: there is none of that id.
            SessionActive: this process works in it.
            SessionLocked: another process does.
        """
        here = self._live(session_id)
        if here is not None:
            raise SessionActive(
                f"session {session_id!r} is open in this process; "
                "cancel what runs in it, or leave it, and delete it then"
            )
        self.store.delete(session_id)
        self.bus.free(session_id)

    def restore_session(self, session_id: str) -> None:
        """Take it out of the trash.

        Raises:
            UnknownSession: it is not in there.
            StoreError: its id is taken.
        """
        self.store.restore(session_id)

    def purge_session(self, session_id: str) -> None:
        """Remove it from the trash for good.

        Raises:
            UnknownSession: it is not in there.
        """
        self.store.purge(session_id)

    # -- how

    def _live(self, session_id: str) -> AgentSession | None:
        return registry.live(self.store, session_id)

    def _set_meta(self, session_id: str, **fields: Any) -> None:
        if not self.store.exists(session_id):
            self.get_session(session_id)  # says what is there
        session = registry.acquire(self.store, session_id)
        try:
            session.recorder.set_meta(**fields)
        finally:
            registry.release(session)


def _live_status(here: AgentSession | None, turn_id: str) -> AttemptStatus | None:
    turn = None if here is None else here.active_turn
    return None if turn is None or turn.id != turn_id else _LIVE.get(turn.phase)
