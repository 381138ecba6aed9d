"""The ambient session: the one module that sets the ContextVars everything hangs on.

    store writer   the session that nodes are recorded in
    turn id        the turn that side effects belong to
    runtime        what an agentic function gets when none is passed
    frame          the call that is executing now (its node is the next one's ``caller``)

They are set together and reset by token in reverse order, on every way out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from op_jupyter.core.prompt import FrameView
from op_jupyter.store.base import Store
from op_jupyter.tools.base import MainThread

if TYPE_CHECKING:
    from op_jupyter.engine.asking import Asker
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession


@dataclass(frozen=True, slots=True)
class SessionHandle:
    """The session that a block of code runs in."""

    store: Store
    session_id: str
    runtime: Runtime | None
    turn_id: str | None
    created: bool
    agent: AgentSession = field(repr=False)


@dataclass(slots=True, eq=False)
class Frame:
    """A call that is executing.

    Attributes:
        view: how a prompt sees it.
        session: where its nodes go; without an ambient session, one in memory.
        turn_id: the turn that it belongs to.
        base: the node of the conversation that the outermost call follows.
        system: the function's addition to the system prompt.
        render_range: bounds of the history.
        tool_name: set while a tool runs: the agentic function of that name takes over the
            tool's node instead of writing a second one.
        owned_runtime: built inside this call; closed when it ends.
        asker, main_thread: those of the turn around it, for the tools that it runs in turn.
    """

    view: FrameView
    session: AgentSession
    turn_id: str
    base: str | None
    name: str = ""
    parent: Frame | None = None
    system: str = ""
    render_range: Mapping[str, int | None] = field(default_factory=dict)
    tool_name: str | None = None
    owned_runtime: Runtime | None = None
    asker: Asker | None = None
    main_thread: MainThread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _claimed: bool = False

    def claim(self, name: str) -> bool:
        """Whether the function *name* that is entered is the very tool that runs; once only."""
        with self.lock:
            if self.tool_name != name or self._claimed:
                return False
            self._claimed = True
            return True

    def chain(self) -> tuple[Frame, ...]:
        """From the outermost frame to this one."""
        frames: list[Frame] = []
        current: Frame | None = self
        while current is not None:
            frames.append(current)
            current = current.parent
        return tuple(reversed(frames))

    def path(self) -> tuple[str, ...]:
        """Names of the functions, outermost first."""
        return tuple(f.name for f in self.chain() if f.name)

    def views(self) -> tuple[FrameView, ...]:
        """The frames that a prompt shows."""
        return tuple(f.view for f in self.chain() if f.tool_name is None)


_session: ContextVar[SessionHandle | None] = ContextVar("openprogram_session", default=None)
_turn_id: ContextVar[str | None] = ContextVar("openprogram_turn_id", default=None)
_runtime: ContextVar[Runtime | None] = ContextVar("openprogram_runtime", default=None)
_frame: ContextVar[Frame | None] = ContextVar("openprogram_frame", default=None)


def current_session() -> SessionHandle | None:
    """The handle of the ambient session, or None."""
    return _session.get()


def current_runtime() -> Runtime | None:
    """The runtime that nested calls inherit, or None."""
    return _runtime.get()


def current_turn_id() -> str | None:
    """The turn that side effects belong to, or None."""
    return _turn_id.get()


def current_frame() -> Frame | None:
    """The call that is executing, or None."""
    return _frame.get()


def current_call_id() -> str | None:
    """Id of the node that is executing, or None."""
    frame = _frame.get()
    return None if frame is None else frame.view.id


def bind(
    handle: SessionHandle | None,
    turn_id: str | None,
    runtime: Runtime | None,
    frame: Frame | None = None,
) -> list[Token[Any]]:
    """Set all four together; `unbind` takes what this returns."""
    return [
        _session.set(handle),
        _turn_id.set(turn_id),
        _runtime.set(runtime),
        _frame.set(frame),
    ]


def unbind(tokens: Sequence[Token[Any]]) -> bool:
    """Put back what `bind` replaced, in reverse order.

    False: it was done in another context, which keeps what was set there.
    """
    for token in reversed(tokens):
        try:
            token.var.reset(token)
        except ValueError:
            return False
    return True


@contextmanager
def executing(frame: Frame, runtime: Runtime | None) -> Iterator[Frame]:
    """Make *frame* the call that is executing, with *runtime* for what it calls."""
    tokens = bind(_session.get(), frame.turn_id, runtime, frame)
    try:
        yield frame
    finally:
        unbind(tokens)


def install(handle: SessionHandle | None) -> None:
    """Make *handle* the ambient session of this context, for good.

    For a notebook, whose cells do not reliably inherit from each other: set before each cell,
    never reset by token, because the hook after a cell may run in another context.
    """
    runtime = None if handle is None else handle.runtime
    bind(handle, None if handle is None else handle.turn_id, runtime)
