"""The ambient session: the one module that sets the ContextVars everything hangs on.

    store writer   the session that nodes are recorded in
    turn id        the turn that side effects belong to
    runtime        what an agentic function gets when none is passed
    frame          the call that is executing now (its node is the next one's ``caller``)

Beside them stands the worktree of a turn that works in one.  They are set together and reset by
token in reverse order, on every way out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token, copy_context
from dataclasses import field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from op_jupyter.core.prompt import FrameView
from op_jupyter.core.values import dataclass
from op_jupyter.errors import UsageError
from op_jupyter.store.base import Store
from op_jupyter.tools.base import MainThread

if TYPE_CHECKING:
    from op_jupyter.engine.asking import Asker
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SessionHandle:
    """The session that a block of code runs in."""

    store: Store
    session_id: str
    runtime: Runtime | None
    turn_id: str | None
    created: bool
    agent: AgentSession = field(repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A git worktree, and the folder in it to work in."""

    worktree: Path
    workspace: Path


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
        step: the node of the `traced` function that runs; prompts do not know that it does.
        owned_runtime: built inside this call; closed when it ends.
        make_runtime: builds it; None: the configured one.
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
    step: str | None = None
    owned_runtime: Runtime | None = None
    make_runtime: Callable[[], Runtime] | None = None
    asker: Asker | None = None
    main_thread: MainThread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _claimed: bool = False

    @property
    def caller_id(self) -> str | None:
        """The recorded node that what is called from here hangs on."""
        return self.step or self.view.recorded_id

    @property
    def in_function(self) -> bool:
        """Whether model calls made here belong to an agentic function."""
        frame: Frame | None = self
        while frame is not None and frame.step is not None:
            frame = frame.parent
        return frame is not None and frame.tool_name is None

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
        return tuple(f.name for f in self.chain() if f.name and f.step is None)

    def views(self) -> tuple[FrameView, ...]:
        """The frames that a prompt shows."""
        return tuple(f.view for f in self.chain() if f.tool_name is None and f.step is None)


_session: ContextVar[SessionHandle | None] = ContextVar("openprogram_session", default=None)
_turn_id: ContextVar[str | None] = ContextVar("openprogram_turn_id", default=None)
_runtime: ContextVar[Runtime | None] = ContextVar("openprogram_runtime", default=None)
_frame: ContextVar[Frame | None] = ContextVar("openprogram_frame", default=None)
_place: ContextVar[tuple[AgentSession, Place] | None] = ContextVar(
    "openprogram_place", default=None
)

_job: ContextVar[str | None] = ContextVar("openprogram_job", default=None)

_home: SessionHandle | None = None
"""The notebook's session: where a thread stands that nobody gave a context."""


_entered: list[SessionHandle] = []
"""What the main thread has entered by `session_context`, the innermost last."""
_UNSET: Final = object()


def enter(handle: SessionHandle) -> None:
    """The main thread goes into a session, which its threads may have to be told of."""
    if threading.current_thread() is threading.main_thread():
        _entered.append(handle)


def leave(handle: SessionHandle) -> None:
    """It comes out again; what another thread entered is not among those."""
    _entered[:] = [entered for entered in _entered if entered is not handle]


def refuse_stray_thread() -> None:
    """Refuse a call in a thread that nobody gave a context, while the main thread is in a session.

    Who wrote it means that session, and would look for the call in vain.

    Raises:
        UsageError: this is such a thread.
    """
    if not _entered or threading.current_thread() is threading.main_thread():
        return
    if _home is None and _session.get(_UNSET) is _UNSET:
        raise UsageError(
            "this thread stands in no session, while the program is in session "
            f"{_entered[-1].session_id!r}: start it with op_jupyter.carry(function), or enter a "
            "session_context in it"
        )


def current_session() -> SessionHandle | None:
    """The handle of the ambient session, or None.

    In a notebook a thread that was given no context stands in the notebook's session.
    """
    return _session.get(_home)


def current_runtime() -> Runtime | None:
    """The runtime that nested calls inherit, or None."""
    return _runtime.get(None if _home is None else _home.runtime)


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


def take_job() -> str | None:
    """The id of the job that the call which is made here is; said to the first one that asks."""
    job = _job.get()
    if job is not None:
        _job.set(None)
    return job


@contextmanager
def as_job(job_id: str) -> Iterator[None]:
    """Have the first call that is made in a copy of this context be that job."""
    token = _job.set(job_id)
    try:
        yield
    finally:
        unbind([token])


def place_in(session: AgentSession) -> Place | None:
    """Where the turn of *session* that stands around works, if that is a worktree."""
    held = _place.get()
    return held[1] if held is not None and held[0] is session else None


@contextmanager
def working_in(session: AgentSession, place: Place | None) -> Iterator[None]:
    """Have a turn of *session*, and all that is called in it, work in *place*; None: as before."""
    if place is None:
        yield
        return
    token = _place.set((session, place))
    try:
        yield
    finally:
        unbind([token])


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
    tokens = bind(current_session(), frame.turn_id, runtime, frame)
    try:
        yield frame
    finally:
        unbind(tokens)


def install(handle: SessionHandle | None) -> None:
    """Make *handle* the ambient session of this context, for good.

    For a notebook, whose cells do not reliably inherit from each other: set before each cell,
    never reset by token, because the hook after a cell may run in another context.
    """
    global _home
    _home = handle
    runtime = None if handle is None else handle.runtime
    bind(handle, None if handle is None else handle.turn_id, runtime)


def leave_all() -> None:
    """Stand in no session, turn or call in this context, for good."""
    bind(None, None, None)


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """*function*, to be called elsewhere as if it were called here.

    A plain ``threading.Thread`` or executor starts without any context; with
    ``Thread(target=carry(work))`` what *work* does is recorded in the session, turn and call
    that stand around this line.  What `carry` returns may be called often, and at once.
    """
    here = copy_context()

    @wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        return here.copy().run(function, *args, **kwargs)

    return carried
