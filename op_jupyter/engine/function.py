"""`@agentic_function`: Python holds the control flow, the docstring is the prompt.

Entering appends a code node that says ``running``; every way out fills the same node with what
happened: ``completed``, ``error``, or ``cancelled`` for an interrupt.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import MethodType
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import FrameView, call_line, frame_header
from op_jupyter.core.updates import bounded, clip
from op_jupyter.engine import context
from op_jupyter.engine.calls import frame_runtime, noting, own_turn, session_in_memory
from op_jupyter.engine.context import Frame
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.steps import Progress
from op_jupyter.errors import RecursionLimit, ToolDefinitionError
from op_jupyter.tools.summaries import to_json_value

P = ParamSpec("P")
R = TypeVar("R")
Expose: TypeAlias = Literal["io", "llm", "full", "hidden"]

TRACEBACK_CHARS: Final = 4_000
_RANGES: Final = frozenset({"callers", "subcalls"})


class AgenticFunction(Generic[P, R]):
    """What `agentic_function` makes of a function; call it like the function."""

    __wrapped__: Callable[P, R]

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        expose: Expose,
        render_range: Mapping[str, int | None] | None,
        system: str | None,
        max_depth: int,
    ) -> None:
        _check(function, expose, render_range, max_depth)
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self.expose = expose
        self.render_range = dict(render_range or {})
        self.system = inspect.cleandoc(system or "")
        self.max_depth = max_depth
        self.is_async = inspect.iscoroutinefunction(function)
        self.docstring = inspect.cleandoc(function.__doc__ or "")
        self._signature = inspect.signature(function)
        self._takes_runtime = "runtime" in self._signature.parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.is_async:
            return cast("R", self._call_async(args, kwargs))
        with self._entered(args, kwargs) as entered:
            value = self.function(*entered.args, **entered.kwargs)
            entered.value = value
            return value

    async def _call_async(self, args: Any, kwargs: Any) -> Any:
        with self._entered(args, kwargs) as entered:
            coroutine = cast(
                "Coroutine[Any, Any, Any]", self.function(*entered.args, **entered.kwargs)
            )
            entered.value = value = await coroutine
            return value

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        bound = copy.copy(self)
        bound.function = bound.__wrapped__ = cast("Any", MethodType(self.function, instance))
        bound._signature = inspect.signature(bound.function)
        return bound

    @property
    def spec(self) -> dict[str, Any]:
        """The function as a tool: ``{"name", "description", "input_schema"}``."""
        # pydantic takes 100 ms to import, and a function that is no tool does not need it.
        from op_jupyter.tools.schema import tool_spec

        found = tool_spec(self, name=self.name)
        return {
            "name": found.name,
            "description": found.description,
            "input_schema": dict(found.input_schema),
        }

    def execute(self, **arguments: Any) -> Any:
        """Call it with keyword arguments, as a tool loop does; a coroutine if it is async."""
        return self(**arguments)  # type: ignore[call-arg]

    def __repr__(self) -> str:
        return f"<agentic function {self.name}{self._signature}>"

    # -- entry and exit

    @contextmanager
    def _entered(self, args: Any, kwargs: Any) -> Iterator[_Entered]:
        bound = self._signature.bind_partial(*args, **kwargs)
        parent = context.current_frame()
        self._check_depth(parent)
        if parent is not None:
            with self._running(bound, parent, parent.session, parent.turn_id) as entered:
                yield entered
            return
        ambient = context.current_session()
        session = session_in_memory() if ambient is None else ambient.agent
        subject = call_line(self.name, self._shown_arguments(bound))
        with (
            own_turn(session, subject, Progress()) as turn,
            self._running(bound, None, session, turn.id) as entered,
        ):
            yield entered

    def _check_depth(self, parent: Frame | None) -> None:
        depth = 0 if parent is None else parent.path().count(self.name)
        if depth >= self.max_depth:
            raise RecursionLimit(
                f"{self.name} called itself {depth} times; raise max_depth="
                f"{self.max_depth} on @agentic_function if that is meant"
            )

    def _shown_arguments(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """The arguments as the model and the store see them: defaults filled in, no runtime."""
        bound = self._signature.bind_partial(*bound.args, **bound.kwargs)
        bound.apply_defaults()
        return {
            name: to_json_value(value)
            for name, value in bound.arguments.items()
            if name not in ("self", "cls", "runtime")
        }

    @contextmanager
    def _running(
        self,
        bound: inspect.BoundArguments,
        parent: Frame | None,
        session: AgentSession,
        turn_id: str,
    ) -> Iterator[_Entered]:
        arguments = session.recorder.clean(self._shown_arguments(bound))
        claimed = parent is not None and parent.claim(self.name)
        frame = self._frame(arguments, parent, session, turn_id, claimed)
        record = self.expose != "hidden" and not claimed
        if record:
            self._append(frame, arguments, parent)
        passed = bound.arguments.get("runtime") if self._takes_runtime else None
        runtime = passed or context.current_runtime()
        entered = _Entered(bound)
        started = monotonic()
        try:
            with context.executing(frame, runtime):
                self._fill_runtime(bound, frame)
                yield entered
        except BaseException as error:
            if record:
                with noting(error):
                    _note_failure(frame, error, monotonic() - started)
            raise
        else:
            if record:
                frame.session.recorder.finish(
                    frame.view.id,
                    status="completed",
                    output=to_json_value(entered.value),
                    metadata={"seconds": round(monotonic() - started, 3)},
                )
        finally:
            if frame.owned_runtime is not None:
                frame.owned_runtime.close()

    def _frame(
        self,
        arguments: Mapping[str, Any],
        parent: Frame | None,
        session: AgentSession,
        turn_id: str,
        claimed: bool,
    ) -> Frame:
        names = (() if parent is None else parent.path()) + (self.name,)
        above = None if parent is None else parent.view.recorded_id
        node_id = parent.view.id if claimed and parent is not None else session.new_id("call")
        recorded_id = above if self.expose == "hidden" and not claimed else node_id
        view = FrameView(
            id=node_id,
            recorded_id=recorded_id,
            line="" if self.expose == "hidden" else call_line(self.name, arguments),
            header=frame_header(names, self.docstring, arguments),
            expose=self.expose,
        )
        return Frame(
            view,
            session,
            turn_id,
            session.dag.head if parent is None else parent.base,
            name=self.name,
            parent=parent,
            system=self.system,
            render_range=self.render_range,
            asker=None if parent is None else parent.asker,
            main_thread=None if parent is None else parent.main_thread,
        )

    def _append(self, frame: Frame, arguments: Mapping[str, Any], parent: Frame | None) -> None:
        caller = None if parent is None else parent.view.recorded_id
        frame.session.recorder.append(
            Node(
                id=frame.view.id,
                role="code",
                name=self.name,
                input=dict(arguments),
                caller=caller,
                predecessor=frame.base if caller is None else None,
                metadata={
                    "turn_id": frame.turn_id,
                    "kind": "function",
                    "expose": self.expose,
                    "frame": None if parent is None else parent.view.id,
                    "label": clip(call_line("", arguments)[1:-1]),
                },
            )
        )

    def _fill_runtime(self, bound: inspect.BoundArguments, frame: Frame) -> None:
        if self._takes_runtime and bound.arguments.get("runtime") is None:
            bound.arguments["runtime"] = context.current_runtime() or frame_runtime(frame)


class _Entered:
    """A call that has been entered: what to pass, and then what came back."""

    def __init__(self, bound: inspect.BoundArguments) -> None:
        self._bound = bound
        self.value: Any = None

    @property
    def args(self) -> tuple[Any, ...]:
        return self._bound.args

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._bound.kwargs


def _note_failure(frame: Frame, error: BaseException, seconds: float) -> None:
    cancelled = not isinstance(error, Exception) or isinstance(error, asyncio.CancelledError)
    told = {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": bounded("".join(traceback.format_exception(error)), 0, TRACEBACK_CHARS),
    }
    frame.session.recorder.finish(
        frame.view.id,
        status="cancelled" if cancelled else "error",
        metadata={"error": told, "seconds": round(seconds, 3)},
    )


def _check(
    function: Callable[..., Any],
    expose: str,
    render_range: Mapping[str, int | None] | None,
    max_depth: int,
) -> None:
    if not inspect.isfunction(function):
        raise ToolDefinitionError(
            f"@agentic_function takes a function, not {type(function).__name__}; put it directly "
            "above `def` (below @staticmethod or @classmethod)"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(
            f"{function.__name__} is a generator, which @agentic_function cannot record as one "
            "call; return a list instead"
        )
    if expose not in ("io", "llm", "full", "hidden"):
        raise ToolDefinitionError(f"expose={expose!r}: use 'io', 'llm', 'full' or 'hidden'")
    if wrong := sorted(set(render_range or ()) - _RANGES):
        raise ToolDefinitionError(f"render_range has {wrong}: use 'callers' and 'subcalls'")
    if any(n is not None and n < 0 for n in (render_range or {}).values()) or max_depth < 1:
        raise ToolDefinitionError("render_range values and max_depth cannot be negative")


@overload
def agentic_function(fn: Callable[P, R]) -> AgenticFunction[P, R]: ...
@overload
def agentic_function(
    fn: None = None,
    *,
    name: str | None = None,
    expose: Expose = "io",
    render_range: Mapping[str, int | None] | None = None,
    system: str | None = None,
    max_depth: int = 5,
) -> Callable[[Callable[P, R]], AgenticFunction[P, R]]: ...
def agentic_function(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    expose: Expose = "io",
    render_range: Mapping[str, int | None] | None = None,
    system: str | None = None,
    max_depth: int = 5,
) -> Any:
    """Record calls of a function, and tell its docstring to the model calls made inside it.

    Args:
        fn: the function; plain or ``async``.
        name: in the DAG and as a tool; default: the function's own.
        expose: what others see of a call afterwards: ``io`` arguments and result, ``llm`` those
            and its model calls, ``full`` its whole subtree, ``hidden`` nothing (no node).
        render_range: ``{"callers": N, "subcalls": M}``: most entries of history before and
            inside the call that its model calls are shown; None: no bound.
        system: added to the system prompt of its model calls.
        max_depth: how often it may be inside itself.

    Raises:
        ToolDefinitionError: a generator, or options that make no sense.
    """
    options: dict[str, Any] = {
        "name": name,
        "expose": expose,
        "render_range": render_range,
        "system": system,
        "max_depth": max_depth,
    }
    if fn is None:
        return lambda function: AgenticFunction(function, **options)
    return AgenticFunction(fn, **options)
