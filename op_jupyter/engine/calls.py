"""Where a call stands: its session, its turn, its frame.

Without an ambient session everything runs the same way on a session in memory, which is
forgotten with the outermost call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from op_jupyter.core.agents import AGENT_TOOLS
from op_jupyter.core.prompt import FrameView
from op_jupyter.core.values import dataclass
from op_jupyter.engine import context, hooks
from op_jupyter.engine.context import Frame
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.outcomes import status_of
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.steps import Progress
from op_jupyter.engine.turn_runner import end_metadata, failure_of
from op_jupyter.errors import StoreError, TurnCancelled
from op_jupyter.store.base import Ended
from op_jupyter.store.interrupts import Uninterrupted
from op_jupyter.store.memory import MemoryStore
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime


@dataclass(slots=True)
class Call:
    """One ``exec``: the frame that its nodes belong to, and its turn, which may be its own."""

    frame: Frame
    turn: LiveTurn
    predecessor: str | None = None
    progress: Progress = field(default_factory=Progress)
    owns_turn: bool = False

    @property
    def nested(self) -> bool:
        """Inside a tool of a visible turn, whose phase and draft are not ours."""
        return self.turn.visible


def session_in_memory() -> AgentSession:
    """A session that nobody will ever open again."""
    store = MemoryStore()
    return AgentSession(store.open(store.create_session()))


@contextmanager
def own_turn(session: AgentSession, subject: str, progress: Progress) -> Iterator[LiveTurn]:
    """The turn for one call at top level: the ambient one, or a short one of its own."""
    shared = context.current_turn_id()
    if shared is not None:
        yield session.call_turn(shared)
        return
    turn: LiveTurn | None = None
    error: BaseException | None = None
    try:
        with Uninterrupted():
            turn = session.begin_call(subject, with_node=True)
        yield turn
    except BaseException as raised:
        error = raised
        raise
    finally:
        if turn is not None:
            ended = turn
            record_end(error, lambda: end_call(session, ended, error, progress))


def call_end(
    session: AgentSession, turn: LiveTurn, error: BaseException | None, progress: Progress
) -> Ended:
    """The end of a turn of one call, which ended with *error*, or well."""
    failure = failure_of(error, session.recorder.clean)
    return Ended(turn.id, status_of(error), failure, end_metadata(progress))


def end_call(
    session: AgentSession, turn: LiveTurn, error: BaseException | None, progress: Progress
) -> None:
    """Store the end of a turn of one call, if it has none yet."""
    end = call_end(session, turn, error, progress)
    session.end_call(turn, end.status, end.failure, end.metadata)


def record_end(error: BaseException | None, record: Callable[[], None]) -> None:
    """Have *record* store how something ended: with *error*, or well.

    What does not end well is not masked by a record that fails: that is a note on it.  An
    interrupt does not keep the end from being recorded; *record* may be called twice.
    """
    try:
        try:
            with Uninterrupted():
                record()
        except KeyboardInterrupt:  # it came just before it could be held back
            with Uninterrupted():
                record()
            raise
    except StoreError as refused:
        if error is None:
            raise
        error.add_note(f"op-jupyter could not record this: {refused.message}")


def refuse_when_cancelled(frame: Frame | None) -> None:
    """Go no further when what runs around *frame* has been cancelled.

    A thread cannot be stopped from outside: here it finds out.

    Raises:
        TurnCancelled: it has.
    """
    if hooks.is_cancelled():
        raise TurnCancelled("the call was cancelled")
    if frame is not None and frame.session.is_cancelling(frame.turn_id):
        raise TurnCancelled(f"turn {frame.turn_id} was cancelled", turn_id=frame.turn_id)


def was_cancelled(error: BaseException) -> bool:
    """Whether *error* says that something was stopped, rather than that it failed."""
    return isinstance(error, TurnCancelled) or not isinstance(error, Exception)


@contextmanager
def open_call(subject: str) -> Iterator[Call]:
    """Where an ``exec`` that is made now stands.

    Raises:
        TurnCancelled: what is around it has been cancelled.
    """
    frame = context.current_frame()
    refuse_when_cancelled(frame)
    if frame is not None and frame.in_function:
        # What a hidden function does at top level hangs on no node: it follows the base.
        after = frame.base if frame.caller_id is None else None
        yield Call(frame, frame.session.call_turn(frame.turn_id), after)
        return
    if frame is not None:
        inside = _anonymous(frame.session, frame.turn_id, frame.base, frame)
        yield Call(inside, frame.session.call_turn(frame.turn_id))
        return
    ambient = context.current_session()
    session = session_in_memory() if ambient is None else ambient.agent
    progress = Progress()
    with own_turn(session, subject, progress) as turn:
        base = session.dag.head
        bare = _anonymous(session, turn.id, base, None)
        yield Call(bare, turn, base, progress, owns_turn=context.current_turn_id() is None)


def _anonymous(
    session: AgentSession, turn_id: str, base: str | None, parent: Frame | None
) -> Frame:
    """A frame for a call outside of any agentic function: it has no header."""
    recorded = None if parent is None else parent.caller_id
    return Frame(
        FrameView(id=session.new_id("frame"), recorded_id=recorded),
        session,
        turn_id,
        base,
        parent=parent,
        asker=None if parent is None else parent.asker,
        main_thread=None if parent is None else parent.main_thread,
    )


def session_tools() -> Toolset:
    """The tools that `agent` uses when it is given none: sub-agents are for a person's turn."""
    frame, ambient = context.current_frame(), context.current_session()
    session = frame.session if frame is not None else None if ambient is None else ambient.agent
    offered = () if session is None else session.tools
    return Toolset(tool for tool in offered if tool.spec.name not in AGENT_TOOLS)


@contextmanager
def ambient_runtime() -> Iterator[Runtime]:
    """The runtime that calls inherit, or the configured one, built now.

    One that is built inside a function lives until the outermost function returns; one for a
    bare call is closed after it.

    Raises:
        ConfigurationError: no provider is configured; says how to configure one.
    """
    runtime, frame = context.current_runtime(), context.current_frame()
    if runtime is not None:
        yield runtime
        return
    if frame is not None:
        yield frame_runtime(frame)
        return
    with hooks.defaults().create_runtime() as built:
        yield built


def frame_runtime(frame: Frame) -> Runtime:
    """The runtime that the outermost function of *frame* owns; built on first use."""
    outermost = frame.chain()[0]
    with outermost.lock:
        if outermost.owned_runtime is None:
            make = outermost.make_runtime or hooks.defaults().create_runtime
            outermost.owned_runtime = make()
        return outermost.owned_runtime
