"""`@agentic_function`: Python holds the control flow, the docstring is the prompt.

Entering appends a code node that says ``running``; every way out fills the same node with what
happened: ``completed``, ``error``, or ``cancelled`` for an interrupt (`engine.invocation`).
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MethodType
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

from op_jupyter.engine.invocation import Invocation
from op_jupyter.errors import ToolDefinitionError

P = ParamSpec("P")
R = TypeVar("R")
Expose: TypeAlias = Literal["io", "llm", "full", "hidden"]

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
        self.signature = inspect.signature(function)
        self.takes_runtime = "runtime" in self.signature.parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.is_async:
            return cast("R", self._call_async(args, kwargs))
        with Invocation(self, args, kwargs) as call:
            value = self.function(*call.args, **call.kwargs)
            call.returned(value)
            return value

    async def _call_async(self, args: Any, kwargs: Any) -> Any:
        with Invocation(self, args, kwargs) as call:
            value = await cast("Awaitable[Any]", self.function(*call.args, **call.kwargs))
            call.returned(value)
            return value

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        bound = copy.copy(self)
        bound.function = bound.__wrapped__ = cast("Any", MethodType(self.function, instance))
        bound.signature = inspect.signature(bound.function)
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
        return f"<agentic function {self.name}{self.signature}>"


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
