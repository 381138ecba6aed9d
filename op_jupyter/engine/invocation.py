"""One call of an agentic function: from its entry to the record of how it ended.

Entry and exit write, and set the context, while interrupts are held back: the stop button finds
the function either not entered at all, or inside its own code, or ended and on record.  It ends
what is not ours and may take its time: a look at a value, a host's hook.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from inspect import BoundArguments, Signature
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias, TypeVar

from op_jupyter.core.keys import Json
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import FrameView, call_line, frame_header
from op_jupyter.core.updates import bounded, clip
from op_jupyter.engine import context, hooks, loop
from op_jupyter.engine.calls import (
    call_end,
    end_call,
    frame_runtime,
    record_end,
    refuse_when_cancelled,
    session_in_memory,
    was_cancelled,
)
from op_jupyter.engine.context import Frame
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.steps import Progress
from op_jupyter.errors import RecursionLimit, StoreError
from op_jupyter.store.base import Fill
from op_jupyter.store.interrupts import Uninterrupted
from op_jupyter.tools.summaries import to_json_value
from op_jupyter.tools.threads import looked_at
from op_jupyter.tools.tracebacks import stored_message

if TYPE_CHECKING:
    from contextvars import Token

    from op_jupyter.engine.runtime import Runtime

T = TypeVar("T")
Expose: TypeAlias = Literal["io", "llm", "full", "hidden"]

TRACEBACK_CHARS: Final = 4_000


class Callee(Protocol):
    """What is called: an agentic function, or a traced one."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> Signature: ...

    @property
    def takes_runtime(self) -> bool: ...

    @property
    def docstring(self) -> str: ...

    @property
    def expose(self) -> Expose: ...

    @property
    def system(self) -> str: ...

    @property
    def render_range(self) -> Mapping[str, int | None]: ...

    @property
    def max_depth(self) -> int: ...


class Invocation:
    """A call that can be entered once, with ``with``; inside, *args* and *kwargs* are complete.

    Raises:
        RecursionLimit: the function is inside itself too often.
        TurnCancelled: what is around it has been cancelled.
        TypeError: the arguments do not fit.
    """

    def __init__(
        self, function: Callee, args: Any, kwargs: Any, session: AgentSession | None = None
    ) -> None:
        """*session*: where it is recorded when nothing around it says so."""
        self._function = function
        try:
            self._bound = function.signature.bind_partial(*args, **kwargs)
        except TypeError as misfit:
            raise TypeError(f"{function.name}() {misfit}") from None
        self._parent = context.current_frame()
        around = session_around(self._parent) or session
        if around is None:
            context.refuse_stray_thread()
        self._session = around or session_in_memory()
        self._check()
        clean = self._session.recorder.clean
        shown, self._stopped = _shown(function, self._bound)
        self._arguments = clean(shown)
        self._line = clean(call_line(function.name, self._arguments))
        self._turn: LiveTurn | None = None
        self._frame: Frame | None = None
        self._tokens: list[Token[Any]] = []
        self._output: Json = None
        self._told_elsewhere: Mapping[str, str] = {}
        self._started = monotonic()

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments for the function."""
        return self._bound.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments for the function."""
        return self._bound.kwargs

    def __enter__(self) -> Self:
        try:
            with Uninterrupted():
                self._begin()
            self._go_on()
            hooks.before_invocation(self._function.name, self._arguments)
            with Uninterrupted():
                self._bind()
            self._fill_runtime()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def returned(self, value: Any) -> None:
        """Take note of what the function returned."""
        self._output = to_json_value(value)

    @classmethod
    async def made(cls, function: Callee, args: Any, kwargs: Any) -> Self:
        """The same for a coroutine: nobody else on the background loop has to wait meanwhile."""
        return await _beside(lambda: cls(function, args, kwargs), args, kwargs)

    async def has_returned(self, value: Any) -> None:
        """`returned` for a coroutine."""
        await _beside(lambda: self.returned(value), value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(error)

    # -- of a call that runs elsewhere (`engine.workers`)

    def travelling(self) -> tuple[tuple[Any, ...], dict[str, Any], Runtime | None]:
        """The arguments without the runtime, and the runtime that the call would use here.

        Raises:
            KeyboardInterrupt: it came while the arguments were looked at.
        """
        self._go_on()
        runtime = self._passed_runtime() or context.current_runtime()
        if self._function.takes_runtime:
            self._bound.arguments.pop("runtime", None)
        return self._bound.args, self._bound.kwargs, runtime

    def place(self, turn_id: str) -> tuple[Frame, Node | None]:
        """The frame of the call in that turn, and the node to store; None: it is hidden."""
        hooks.before_invocation(self._function.name, self._arguments)
        frame = self._frame = self._new_frame(turn_id, claimed=False)
        return frame, self._node(frame)

    def ended(
        self, error: BaseException | None, told: Mapping[str, str], output: Json
    ) -> Fill | None:
        """How it ended, to be recorded: *told* of the error, where it was raised; or *output*.

        None: there is nothing to record, or it is recorded.
        """
        self._told_elsewhere, self._output = told, output
        return self._filling(error, self._seconds())

    def end(self, error: BaseException) -> None:
        """Record that it ended with *error*, which was raised here."""
        self._end(error)

    # -- entry

    def _go_on(self) -> None:
        """Go no further if the stop button came while the arguments were looked at."""
        if self._stopped is not None:
            raise self._stopped

    def _check(self) -> None:
        refuse_when_cancelled(self._parent)
        _check_depth(self._function, self._parent)

    def _begin(self) -> None:
        turn_id = self._turn_id()
        claimed = self._parent is not None and self._parent.claim(self._function.name)
        frame = self._frame = self._new_frame(turn_id, claimed)
        if not claimed and (node := self._node(frame)) is not None:
            self._session.recorder.append(node)

    def _bind(self) -> None:
        assert self._frame is not None
        runtime = self._passed_runtime() or context.current_runtime()
        turn_id = self._frame.turn_id
        self._tokens = context.bind(context.current_session(), turn_id, runtime, self._frame)

    def _turn_id(self) -> str:
        """The turn around the call, or a short one of its own."""
        if self._parent is not None:
            return self._parent.turn_id
        shared = context.current_turn_id()
        if shared is not None:
            return shared
        self._turn = self._session.begin_call(self._line, with_node=True)
        return self._turn.id

    def _new_frame(self, turn_id: str, claimed: bool) -> Frame:
        function, parent, session = self._function, self._parent, self._session
        names = (() if parent is None else parent.path()) + (function.name,)
        above = None if parent is None else parent.caller_id
        node_id = parent.view.id if claimed and parent is not None else session.new_id("call")
        hidden = function.expose == "hidden"
        view = FrameView(
            id=node_id,
            recorded_id=above if hidden and not claimed else node_id,
            line="" if hidden else self._line,
            header=session.recorder.clean(frame_header(names, function.docstring, self._arguments)),
            expose=function.expose,
        )
        return Frame(
            view,
            session,
            turn_id,
            session.dag.head if parent is None else parent.base,
            name=function.name,
            parent=parent,
            system=function.system,
            render_range=function.render_range,
            asker=None if parent is None else parent.asker,
            main_thread=None if parent is None else parent.main_thread,
        )

    def _node(self, frame: Frame) -> Node | None:
        """The node of the call that runs in *frame*; None: it is hidden."""
        if frame.view.recorded_id != frame.view.id:
            return None
        return self._code_node(frame, frame.view.id, {"expose": self._function.expose})

    def _code_node(self, frame: Frame, node_id: str, metadata: Mapping[str, Any]) -> Node:
        parent = self._parent
        caller = None if parent is None else parent.caller_id
        job = context.take_job()
        return Node(
            id=node_id,
            role="code",
            name=self._function.name,
            input=dict(self._arguments),
            caller=caller,
            predecessor=frame.base if caller is None else None,
            metadata={
                "turn_id": frame.turn_id,
                "kind": "function",
                "frame": (None if parent is None else parent.view.id) or None,
                "label": clip(self._line[len(self._function.name) + 1 : -1]),
                **({} if job is None else {"job": job}),
                **metadata,
            },
        )

    def _passed_runtime(self) -> Runtime | None:
        return self._bound.arguments.get("runtime") if self._function.takes_runtime else None

    def _fill_runtime(self) -> None:
        if self._function.takes_runtime and self._passed_runtime() is None:
            assert self._frame is not None
            runtime = context.current_runtime() or frame_runtime(self._frame)
            self._bound.arguments["runtime"] = runtime

    # -- exit

    def _end(self, error: BaseException | None) -> None:
        seconds = self._seconds()
        try:
            record_end(error, lambda: self._record(error, seconds))
        finally:
            if self._frame is not None and self._frame.owned_runtime is not None:
                self._frame.owned_runtime.close()

    def _leave(self) -> None:
        """Put the context back, once."""
        # In a coroutine that is thrown away the context is another one, and not ours to change.
        tokens, self._tokens = self._tokens, []
        context.unbind(tokens)

    def _record(self, error: BaseException | None, seconds: float) -> None:
        self._leave()
        try:
            self._finish(error, seconds)
        except StoreError as refused:
            error = error or refused
            raise
        finally:
            if self._turn is not None:
                end_call(self._session, self._turn, error, Progress())

    def _finish(self, error: BaseException | None, seconds: float) -> None:
        if (end := self._filling(error, seconds)) is not None:
            ended = (
                None
                if self._turn is None
                else call_end(self._session, self._turn, error, Progress())
            )
            self._session.recorder.finish(end.node_id, ended=ended, **end.fields)

    def _filling(self, error: BaseException | None, seconds: float) -> Fill | None:
        node = self._session.dag.nodes.get(self._node_id)
        if node is None or node.metadata["kind"] == "tool" or node.status != "running":
            return None
        metadata: dict[str, Any] = {"seconds": seconds}
        if error is None:
            fields: dict[str, Any] = {"status": "completed", "output": self._output}
        else:
            fields = {"status": "cancelled" if was_cancelled(error) else "error"}
            metadata["error"] = self._told(error)
        return Fill(node.id, {**fields, "metadata": metadata})

    def _seconds(self) -> float:
        return round(monotonic() - self._started, 3)

    @property
    def _node_id(self) -> str:
        return "" if self._frame is None else self._frame.view.id

    def _told(self, error: BaseException) -> Mapping[str, str]:
        return self._told_elsewhere or error_told(error, self._session.recorder.clean)


async def _beside(look: Callable[[], T], *values: Any) -> T:
    """What *look* returns, which looks at *values*.

    A loop of the program's own waits for that, as the program has it; the one that all sessions
    share does not.
    """
    return await looked_at(look, *values) if loop.on_background_loop() else look()


def error_told(error: BaseException, clean: Callable[[str], str]) -> Mapping[str, str]:
    """What is recorded of *error*; *clean* takes secrets out."""
    # Cleaned before it is cut, as the message is.
    trace = clean("".join(traceback.format_exception(error)))
    return {
        "type": type(error).__name__,
        "message": stored_message(error, clean),
        "traceback": bounded(trace, 0, TRACEBACK_CHARS),
    }


def session_around(parent: Frame | None) -> AgentSession | None:
    """The session that a call in *parent* is recorded in; None: there is none here."""
    if parent is not None:
        return parent.session
    ambient = context.current_session()
    return None if ambient is None else ambient.agent


def _check_depth(function: Callee, parent: Frame | None) -> None:
    depth = 0 if parent is None else parent.path().count(function.name)
    if depth >= function.max_depth:
        raise RecursionLimit(
            f"{function.name} called itself {depth} times; raise max_depth="
            f"{function.max_depth} on @agentic_function if that is meant"
        )


def _shown(
    function: Callee, bound: BoundArguments
) -> tuple[dict[str, Any], KeyboardInterrupt | None]:
    """The arguments as the model and the store see them: defaults filled in, no runtime.

    With them the interrupt that came meanwhile: code of theirs may run for long.
    """
    whole = BoundArguments(bound.signature, dict(bound.arguments))
    whole.apply_defaults()
    shown: dict[str, Any] = {}
    for name, value in whole.arguments.items():
        if name in ("self", "cls", "runtime"):
            continue
        try:
            shown[name] = to_json_value(value)
        except KeyboardInterrupt as stop:
            shown[name] = f"{type(value).__name__} (looking at it was interrupted)"
            return shown, stop
    return shown, None
