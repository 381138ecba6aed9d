"""Entering a session: the one way in for every caller.

A cell, a script, the command line, a worker and a test all come through `session_context` (or,
for hosts that bring their own store, `session_scope`).
"""

from __future__ import annotations

from contextlib import ExitStack
from contextvars import Token
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from op_jupyter.core.nodes import check_session_id
from op_jupyter.engine import hooks, registry
from op_jupyter.engine.calls import record_end
from op_jupyter.engine.context import SessionHandle, bind, enter, leave, unbind
from op_jupyter.errors import ConfigurationError, UsageError
from op_jupyter.store.base import Store

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime


def open_handle(
    session_id: str | None = None,
    *,
    store: Store | None = None,
    runtime: Runtime | None = None,
    turn_id: str | None = None,
    id_prefix: str = "session",
    timeout: float = 0.0,
    **meta: Any,
) -> SessionHandle:
    """Open or create a session and return its handle; `close_handle` lets it go.

    A given id that does not exist is created under that id; no id makes a new one.

    Raises:
        InvalidSessionId, SessionLocked, StoreError: see `store.base.Store.open`.
    """
    store = store if store is not None else hooks.defaults().default_store()
    created = session_id is None or not store.exists(check_session_id(session_id))
    if session_id is None:
        session_id = f"{id_prefix}-{uuid4().hex[:12]}"
    if created:
        session_id = store.create_session(session_id, **meta)
    agent = registry.acquire(store, session_id, timeout=timeout)
    return SessionHandle(store, session_id, runtime, turn_id, created, agent)


def close_handle(handle: SessionHandle) -> None:
    """Flush pending commits and give the writer's lock back when nobody else holds it."""
    registry.release(handle.agent)


class session_context:  # noqa: N801 -- used like the functions of contextlib
    """Run a block in a session: ``with session_context() as handle:`` (or ``async with``).

    Leaving the block does not end the session: pass its id again to continue it.

    Args:
        session_id: the session to continue; None: a new one.  A session that does not exist is
            created with this id (see ``handle.created``).
        agent_id: stored with a new session.
        turn_id: a turn that all calls of the block belong to; None: each top-level call is a
            turn of its own.
        runtime: used by calls that are given none.
        create_runtime_if_none: otherwise, create the configured runtime.  If no provider is
            configured, the block still runs; the first model call says what to configure.
        store: where sessions are stored; None: the default store.
        id_prefix: beginning of a new session's id.
        source: ``notebook``, ``cli``, ``library``, ``subprocess`` or ``test``; stored with a new
            session.

    Raises:
        UsageError: *store* or *runtime* is none; entering raises what `open_handle` does.
    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        agent_id: str = "main",
        turn_id: str | None = None,
        runtime: Runtime | None = None,
        create_runtime_if_none: bool = True,
        store: Store | None = None,
        id_prefix: str = "session",
        source: str = "library",
    ) -> None:
        if store is not None and not hasattr(store, "create_session"):
            raise UsageError(f"store={store!r:.60} is no store; pass SessionStore(root_path=...)")
        if runtime is not None and not hasattr(runtime, "async_exec"):
            raise UsageError(
                f"runtime={runtime!r:.60} is no runtime; create_runtime(...) opens one"
            )
        self._session_id = session_id
        self._meta: dict[str, Any] = {"agent_id": agent_id, "source": source}
        self._turn_id = turn_id
        self._runtime = runtime
        self._build_runtime = create_runtime_if_none and runtime is None
        self._store = store
        self._id_prefix = id_prefix
        self._owned: Runtime | None = None
        self._handle: SessionHandle | None = None
        self.embedded = False
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> SessionHandle:
        handle = open_handle(
            self._session_id,
            store=self._store,
            turn_id=self._turn_id,
            id_prefix=self._id_prefix,
            **self._meta,
        )
        with ExitStack() as on_error:
            on_error.callback(close_handle, handle)
            runtime = self._configured_runtime() if self._build_runtime else self._runtime
            if self._owned is not None:
                on_error.callback(self._owned.close)
            self._handle = handle = replace(handle, runtime=runtime)
            if self._turn_id is not None:
                handle.agent.open_shared_turn(self._turn_id)
            on_error.pop_all()
        self._tokens = bind(handle, self._turn_id, runtime)
        if not self.embedded:
            enter(handle)
        return handle

    def _configured_runtime(self) -> Runtime | None:
        try:
            self._owned = hooks.defaults().create_runtime()
        except ConfigurationError:
            # Said again, and in full, by the first call that needs a model.
            return None
        return self._owned

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unbind(self._tokens)
        handle = self._handle
        if handle is None:
            return
        leave(handle)
        with ExitStack() as last:
            last.callback(close_handle, handle)
            if self._owned is not None:
                last.callback(self._owned.close)
            if (turn_id := self._turn_id) is not None:
                record_end(error, lambda: handle.agent.close_shared_turn(turn_id, error))

    async def __aenter__(self) -> SessionHandle:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)


def session_scope(store: Store, session_id: str) -> session_context:
    """Bind a session of a store of the host's choice, and nothing else.

    No runtime is built and no default path is looked up.  A missing session is created.

    Raises:
        UsageError: there is no store: nothing may take its place.
    """
    if store is None:
        raise UsageError(
            "session_scope() needs a store, for example SessionStore(root_path=...); "
            "session_context() uses the default one"
        )
    scope = session_context(session_id, store=store, create_runtime_if_none=False)
    scope.embedded = True  # the host knows which of its threads stand in no session
    return scope
