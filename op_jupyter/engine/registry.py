"""The sessions this process has open, counted: one live object per session.

Two blocks of code in the same session share its writer; the last one to leave closes it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from op_jupyter.engine import hooks
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.base import Store

MAX_SESSION_ID_CHARS: Final = 128
OPEN_SECONDS: Final = 2.0
"""How long to wait for a session that may be on its way to being closed here."""


@dataclass(slots=True)
class _Entry:
    session: AgentSession
    users: int


_lock = threading.Lock()
_open: dict[tuple[str, str], _Entry] = {}


def _key(store: Store, session_id: str) -> tuple[str, str]:
    # Not by the session's own folder, which is made with its first record.
    return (f"memory-{id(store)}" if store.root is None else str(store.root), session_id)


def acquire(
    store: Store, session_id: str, *, timeout: float = 0.0, force: bool = False
) -> AgentSession:
    """The open session with that id, opened for writing if it is not open yet."""
    with _lock:
        key = _key(store, session_id)
        entry = _open.get(key)
        if entry is None:
            opened = store.open(session_id, "write", timeout=timeout, force=force)
            session = AgentSession(opened)
            session.store_path = None if store.root is None else store.root / session_id
            session.home = _Home(store)
            try:
                hooks.guard(session)
            except OpenProgramError:
                session.close()
                raise
            session.reloads_with(lambda: store.open(session_id, "write"))
            entry = _open[key] = _Entry(session, 0)
        entry.users += 1
        return entry.session


def live(store: Store, session_id: str) -> AgentSession | None:
    """The session with that id, when this process has it open."""
    with _lock:
        entry = _open.get(_key(store, session_id))
        return None if entry is None else entry.session


def release(session: AgentSession) -> None:
    """Let go of what `acquire` gave; the last one closes it."""
    with _lock:
        for key, entry in list(_open.items()):
            if entry.session is session:
                entry.users -= 1
                if entry.users > 0:
                    return
                del _open[key]
    session.close()


@dataclass(frozen=True, slots=True)
class _Home:
    """Sub-agents' sessions, in the store of their parent's (see `agents.Home`)."""

    store: Store

    def create(self, session_id: str, **meta: object) -> str:
        """Reserve a session: of that id, when it is free and can be one."""
        fits = len(session_id) <= MAX_SESSION_ID_CHARS and ".." not in session_id
        free = fits and not self.store.exists(session_id)
        return self.store.create_session(session_id if free else None, **meta)

    def acquire(self, session_id: str) -> AgentSession:
        """Open it."""
        return acquire(self.store, session_id, timeout=OPEN_SECONDS)

    def release(self, session: AgentSession) -> None:
        """Close it."""
        release(session)
