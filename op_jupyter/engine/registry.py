"""The sessions this process has open, counted: one live object per session, and one bus for all.

Two blocks of code in the same session share its writer; the last one to leave closes it.  What
happens in any of them is told on the bus of the place where they are stored.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeAlias

from op_jupyter.core.values import dataclass
from op_jupyter.engine import hooks
from op_jupyter.engine.event_bus import EventBus
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.watch import watch
from op_jupyter.store.base import Store

MAX_SESSION_ID_CHARS: Final = 128
OPEN_SECONDS: Final = 2.0
"""How long to wait for a session that may be on its way to being closed here."""


@dataclass(slots=True)
class _Entry:
    session: AgentSession
    users: int


_Key: TypeAlias = tuple[str, str]
_lock = threading.Lock()
_open: dict[_Key, _Entry] = {}
_changing: dict[_Key, threading.Event] = {}
"""Sessions that are being opened or closed; the event is set when that is done."""
_buses: dict[str, EventBus] = {}
_memory_buses: weakref.WeakKeyDictionary[Store, EventBus] = weakref.WeakKeyDictionary()


def bus_of(store: Store) -> EventBus:
    """The bus of all sessions in the place of *store*, as long as this process runs."""
    with _lock:
        if store.root is None:
            return _memory_buses.setdefault(store, EventBus(time.time))
        return _buses.setdefault(str(store.root), EventBus(time.time))


def acquire(
    store: Store, session_id: str, *, timeout: float = 0.0, force: bool = False
) -> AgentSession:
    """The open session with that id, opened for writing if it is not open yet.

    One that is just being closed here is waited for.
    """
    key = _key(store, session_id)
    deadline = time.monotonic() + max(timeout, OPEN_SECONDS)
    while True:
        with _lock:
            if (entry := _open.get(key)) is not None:
                entry.users += 1
                return entry.session
            gate, mine = _changing.get(key), None
            if gate is None:
                mine = _changing[key] = threading.Event()
        # After so long, whoever holds it may be waiting for us: the store says who that is.
        if gate is None or not gate.wait(max(0.0, deadline - time.monotonic())):
            break
    with _changed(key, mine):
        session = _opened(store, session_id, timeout=timeout, force=force)
        with _lock:
            _open[key] = _Entry(session, 1)
        return session


def live(store: Store, session_id: str) -> AgentSession | None:
    """The session with that id, when this process has it open."""
    with _lock:
        entry = _open.get(_key(store, session_id))
        return None if entry is None else entry.session


def release(session: AgentSession) -> None:
    """Let go of what `acquire` gave; the last one closes it."""
    with _lock:
        key = next((key for key, entry in _open.items() if entry.session is session), None)
        if key is not None:
            _open[key].users -= 1
            if _open[key].users > 0:
                return
            del _open[key]
            mine = _changing[key] = threading.Event()
    if key is None:
        session.close()
        return
    with _changed(key, mine):
        session.close()


@contextmanager
def _changed(key: _Key, mine: threading.Event | None) -> Iterator[None]:
    """Whatever becomes of the block, let those go on who wait for its end."""
    try:
        yield
    finally:
        if mine is not None:
            with _lock:
                if _changing.get(key) is mine:
                    del _changing[key]
            mine.set()


def _key(store: Store, session_id: str) -> _Key:
    # Not by the session's own folder, which is made with its first record.
    return (f"memory-{id(store)}" if store.root is None else str(store.root), session_id)


def _opened(store: Store, session_id: str, *, timeout: float, force: bool) -> AgentSession:
    opened = store.open(session_id, "write", timeout=timeout, force=force)
    with ExitStack() as on_error:
        on_error.callback(opened.close)
        is_new = opened.dag.last_seq == 0
        session = AgentSession(opened)
        session.store_path = None if store.root is None else store.root / session_id
        session.home = _Home(store)
        hooks.guard(session)
        session.reloads_with(lambda: store.open(session_id, "write"))
        watch(session, bus_of(store), is_new=is_new)
        on_error.pop_all()
    return session


def _forget_others() -> None:
    """In a forked child: the threads that held the lock, or were opening something, are gone."""
    global _lock
    _lock = threading.Lock()
    _changing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)


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
