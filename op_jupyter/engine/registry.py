"""The sessions this process has open, counted: one live object per session.

Two blocks of code in the same session share its writer; the last one to leave closes it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from op_jupyter.engine import hooks
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.base import Store


@dataclass(slots=True)
class _Entry:
    session: AgentSession
    users: int


_lock = threading.Lock()
_open: dict[tuple[str, str], _Entry] = {}


def _key(store: Store, session_id: str) -> tuple[str, str]:
    path = store.path(session_id)
    return (str(path.parent) if path is not None else f"memory-{id(store)}", session_id)


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
            session.store_path = store.path(session_id)
            try:
                hooks.guard(session)
            except OpenProgramError:
                session.close()
                raise
            session.reloads_with(lambda: store.open(session_id, "write"))
            entry = _open[key] = _Entry(session, 0)
        entry.users += 1
        return entry.session


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
