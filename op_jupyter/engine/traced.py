"""`@traced`: ordinary steps of a program, as nodes of the graph.

A step is no part of any prompt.  Model calls made in one are told, and see, what they would
without it: only the node that they hang on is another.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import field
from types import CoroutineType, MethodType, TracebackType
from typing import Any, Final, ParamSpec, TypeVar, cast, overload

from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import FrameView
from op_jupyter.core.values import dataclass
from op_jupyter.engine import context
from op_jupyter.engine.context import Frame
from op_jupyter.engine.function import AgenticFunction, check_function, is_a, refuse_generator
from op_jupyter.engine.invocation import Expose, Invocation

_MARK: Final = "__op_jupyter_step__"

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Step:
    """A traced function, with what an invocation wants to know of an agentic one."""

    function: Callable[..., Any]
    name: str
    signature: inspect.Signature
    takes_runtime: bool = False
    docstring: str = ""
    expose: Expose = "io"
    system: str = ""
    render_range: Mapping[str, int | None] = field(default_factory=dict)
    max_depth: int = sys.maxsize


class StepInvocation(Invocation):
    """One call of a traced function; it goes on in the coroutine that a plain one returns."""

    _handed_on = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._handed_on:
            self._leave()
        else:
            super().__exit__(kind, error, trace)

    def over(self, value: Any) -> Any:
        """What the caller gets: *value*, or where that is a coroutine, one that ends the call.

        Raises:
            ToolDefinitionError: it is a generator.
        """
        if is_a(value, CoroutineType):
            self._handed_on = True
            # Here the context is that of the call; who awaits has another one.
            around = (context.current_session(), context.current_turn_id())
            bind = functools.partial(context.bind, *around, context.current_runtime(), self._frame)
            rest = self._rest(value, bind, _Unheard(self, value))
            # What Python says of it if nobody awaits it.
            cast("CoroutineType[Any, Any, Any]", rest).__qualname__ = value.__qualname__
            return rest
        refuse_generator(self._function.name, value)
        self.returned(value)
        return value

    async def _rest(
        self, coroutine: Coroutine[Any, Any, Any], bind: Callable[[], Any], unheard: _Unheard
    ) -> Any:
        unheard.coroutine = None
        try:
            self._tokens = bind()
            value = await coroutine
            refuse_generator(self._function.name, value)
            self.returned(value)
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        return value

    def _new_frame(self, turn_id: str, claimed: bool) -> Frame:
        parent, session = self._parent, self._session
        return Frame(
            FrameView(id="") if parent is None else parent.view,
            session,
            turn_id,
            session.dag.head if parent is None else parent.base,
            name=self._function.name,
            parent=parent,
            system="" if parent is None else parent.system,
            render_range={} if parent is None else parent.render_range,
            step=session.new_id("step"),
            asker=None if parent is None else parent.asker,
            main_thread=None if parent is None else parent.main_thread,
        )

    def _node(self, frame: Frame) -> Node:
        return self._code_node(frame, self._node_id, {"traced": True})

    @property
    def _node_id(self) -> str:
        return "" if self._frame is None else self._frame.step or ""


class _Unheard:
    """Ends a call whose coroutine is thrown away before anybody awaits it."""

    def __init__(self, call: StepInvocation, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._call = call
        self.coroutine: Coroutine[Any, Any, Any] | None = coroutine

    def __del__(self) -> None:
        if self.coroutine is not None:
            self.coroutine.close()
            self._call.end(asyncio.CancelledError("nobody awaited what the function returned"))


@overload
def traced(fn: Callable[P, R]) -> Callable[P, R]: ...
@overload
def traced(
    fn: None = None, *, name: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def traced(fn: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Record calls of a plain function in the graph: arguments, result, and how they ended.

    Models do not see them.  Outside any session, the function just runs.  A call that returns a
    coroutine, as other decorators make of ``async`` functions, ends when that has been awaited.

    Args:
        fn: the function, plain or ``async``.
        name: the name in the graph; default: the function's own.

    Raises:
        ToolDefinitionError: *fn* is a generator, or no function.
    """
    if fn is None:
        return lambda function: traced(function, name=name)
    check_function(fn, "@traced")
    step = Step(fn, name or fn.__name__, inspect.signature(fn))
    wrapper = _async(step) if inspect.iscoroutinefunction(fn) else _sync(step)
    setattr(wrapper, _MARK, step)
    return wrapper


def callee_of(function: Callable[..., Any]) -> AgenticFunction[Any, Any] | Step:
    """What is recorded of *function*: agentic, traced, or plain, which is as if it were traced.

    Raises:
        ToolDefinitionError: it is a generator, or no function.
    """
    if isinstance(function, MethodType) and isinstance(function.__func__, AgenticFunction):
        # From Python 3.13 on, `@classmethod` above a decorator does not bind what that made.
        function = function.__func__.__get__(function.__self__)
    if isinstance(function, AgenticFunction):
        return function
    step = getattr(function, _MARK, None)
    # Decorators copy such marks to what they wrap around it.
    if isinstance(step, Step) and getattr(function, "__wrapped__", None) is step.function:
        return step
    check_function(function, "a worker")
    return Step(function, function.__name__, inspect.signature(function))


def _recorded() -> bool:
    """Whether calls made here are recorded.

    Raises:
        UsageError: nobody gave this thread a context, while the program is in a session.
    """
    if context.current_frame() is not None or context.current_session() is not None:
        return True
    context.refuse_stray_thread()
    return False


def _sync(step: Step) -> Callable[..., Any]:
    function = step.function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _recorded():
            return function(*args, **kwargs)
        with StepInvocation(step, args, kwargs) as entered:
            return entered.over(function(*args, **kwargs))

    return call


def _async(step: Step) -> Callable[..., Any]:
    function = cast("Callable[..., Awaitable[Any]]", step.function)

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not _recorded():
            return await function(*args, **kwargs)
        with await StepInvocation.made(step, args, kwargs) as entered:
            value = await function(*args, **kwargs)
            refuse_generator(step.name, value)
            await entered.has_returned(value)
            return value

    return call
