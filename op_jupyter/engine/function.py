"""`@agentic_function`: Python holds the control flow, the docstring is the prompt.

Entering appends a code node that says ``running``; every way out fills the same node with what
happened: ``completed``, ``error``, or ``cancelled`` for an interrupt (`engine.invocation`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from op_jupyter.engine.invocation import Expose, Invocation
from op_jupyter.engine.retry import is_whole
from op_jupyter.errors import ToolDefinitionError

if TYPE_CHECKING:
    from op_jupyter.tools.schema import Signature

P = ParamSpec("P")
R = TypeVar("R")
Binds: TypeAlias = Literal["instance", "class", "nothing"]

_RANGES: Final = frozenset({"callers", "subcalls"})


class AgenticFunction(Generic[P, R]):
    """What `agentic_function` makes of a function; call it like the function."""

    __wrapped__: Callable[P, R]

    def __init__(
        self,
        function: Callable[P, R],
        *,
        binds: Binds = "instance",
        name: str | None,
        expose: Expose,
        render_range: Mapping[str, int | None] | None,
        system: str | None,
        max_depth: int,
    ) -> None:
        check_function(function, "@agentic_function")
        _check_options(name, expose, render_range, system, max_depth)
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self.expose = expose
        self.render_range: Mapping[str, int | None] = dict(render_range or {})
        self.system = inspect.cleandoc(system or "")
        self.max_depth = max_depth
        self.is_async = inspect.iscoroutinefunction(function)
        self.docstring = inspect.cleandoc(function.__doc__ or "")
        self.signature = inspect.signature(function)
        self.takes_runtime = "runtime" in self.signature.parameters
        self._binds = binds
        self._bound_to: Any = None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.is_async:
            return cast("R", self._call_async(args, kwargs))
        with Invocation(self, args, kwargs) as call:
            value = self.function(*call.args, **call.kwargs)
            self._check_over(value)
            call.returned(value)
            return value

    async def _call_async(self, args: Any, kwargs: Any) -> Any:
        with await Invocation.made(self, args, kwargs) as call:
            value = await cast("Awaitable[Any]", self.function(*call.args, **call.kwargs))
            self._check_over(value)
            await call.has_returned(value)
            return value

    def _check_over(self, value: Any) -> None:
        """Refuse a call whose code would run only after its end, without docstring and record."""
        if is_a(value, CoroutineType):
            value.close()
            raise ToolDefinitionError(
                f"{self.name} returned a coroutine, which would run after the call has ended; put "
                "@agentic_function right above `async def`, below other decorators"
            )
        refuse_generator(self.name, value)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        to = owner if self._binds == "class" else instance
        if to is None or self._binds == "nothing":
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__getstate__())
        bound.function = bound.__wrapped__ = cast("Any", MethodType(self.function, to))
        bound.signature = inspect.signature(bound.function)
        bound._bound_to = to
        return bound

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """By name where a name leads here, as functions are: a worker imports it.

        What was defined in a notebook or in ``__main__`` is pickled whole, which takes
        cloudpickle (`engine.parcels`).
        """
        if self._bound_to is not None:
            return getattr, (self._bound_to, self.function.__name__)
        name = getattr(self.function, "__qualname__", "")
        if self.__module__ != "__main__" and _found(self.__module__, name) is self:
            return name
        return super().__reduce_ex__(protocol)

    @property
    def spec(self) -> dict[str, Any]:
        """The function as a tool: ``{"name", "description", "input_schema"}``."""
        found = self._tool.spec
        return {
            "name": found.name,
            "description": found.description,
            "input_schema": dict(found.input_schema),
        }

    def execute(self, /, **arguments: Any) -> Any:
        """Call it with what a model sent, as a tool loop does; a coroutine if it is async.

        Raises:
            InvalidArguments: they do not fit the schema in `spec`; the message names each field.
        """
        return self(**self._tool.bind(arguments))  # type: ignore[call-arg]

    @functools.cached_property
    def _tool(self) -> Signature:
        # pydantic takes 100 ms to import, and a function that is no tool does not need it.
        from op_jupyter.tools.schema import read_signature

        return read_signature(self, name=self.name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_tool"}

    def __repr__(self) -> str:
        return f"<agentic function {self.name}{self.signature}>"


def _found(module: str, name: str) -> Any:
    """What *name* stands for in *module*, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    return found


def check_function(function: Any, decorator: str) -> None:
    """Whether *decorator* can record calls of *function*.

    Raises:
        ToolDefinitionError: it is no function, or a generator; the message says what to do.
    """
    if not inspect.isfunction(function):
        raise ToolDefinitionError(
            f"{decorator} takes a function, not {type(function).__name__}; put it above `def`"
        )
    if not isinstance(function.__doc__, str | None):
        kind = type(function.__doc__).__name__
        raise ToolDefinitionError(f"the docstring of {function.__name__} is a {kind}: give a text")
    is_manager = function.__globals__ is vars(contextlib)  # what it makes of a generator
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function) or is_manager:
        raise ToolDefinitionError(
            f"{function.__name__} is a generator, which {decorator} cannot record as one "
            "call; return a list instead"
        )


def is_a(value: Any, *kinds: type) -> bool:
    """Whether *value* is really of one of *kinds*; what it says of itself is its own code."""
    return issubclass(type(value), kinds)


def refuse_generator(name: str, value: Any) -> None:
    """Refuse a *value* of the function *name* whose code would run only after the call's end.

    Raises:
        ToolDefinitionError: it is a generator.
    """
    if is_a(value, GeneratorType, AsyncGeneratorType):
        raise ToolDefinitionError(
            f"{name} returned a generator, which would run after the call has ended; "
            "return a list instead"
        )


def _check_options(
    name: str | None,
    expose: str,
    render_range: Mapping[str, int | None] | None,
    system: str | None,
    max_depth: int,
) -> None:
    for option, text in (("name", name), ("system", system)):
        if not isinstance(text, str | None):
            raise ToolDefinitionError(f"{option}={text!r:.60}: give a text")
    if expose not in ("io", "llm", "full", "hidden"):
        raise ToolDefinitionError(f"expose={expose!r}: use 'io', 'llm', 'full' or 'hidden'")
    if not isinstance(render_range, Mapping | None):
        raise ToolDefinitionError(
            f"render_range={render_range!r:.60}: give a dict with 'callers' and 'subcalls'"
        )
    if wrong := [key for key in render_range or () if key not in _RANGES]:
        raise ToolDefinitionError(f"render_range has {wrong}: use 'callers' and 'subcalls'")
    for key, bound in (render_range or {}).items():
        if bound is not None and not is_whole(bound, 0):
            raise ToolDefinitionError(
                f"render_range[{key!r}] is {bound!r:.60}; give a whole number from 0 up, or None"
            )
    if not is_whole(max_depth, 1):
        raise ToolDefinitionError(f"max_depth is {max_depth!r:.60}; give a whole number from 1 up")


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
    """Record calls of a function, and make its docstring the prompt of its model calls.

    Args:
        fn: the function, plain or ``async``; methods, class methods and static methods work, too.
        name: the name in the graph and as a tool; default: the function's own.
        expose: what other calls see of a call: ``io`` its arguments and result, ``llm`` also its
            model calls, ``full`` everything it did, ``hidden`` nothing (and no node).
        render_range: ``{"callers": N, "subcalls": M}``: how many entries of history from before
            and from inside the call its model calls see at most; None: no limit.
        system: text added to the system prompt of its model calls.
        max_depth: the deepest recursion allowed.

    Raises:
        ToolDefinitionError: *fn* is a generator, or an option is invalid.
    """
    options: dict[str, Any] = {
        "name": name,
        "expose": expose,
        "render_range": render_range,
        "system": system,
        "max_depth": max_depth,
    }
    if fn is None:
        return lambda function: _decorated(function, options)
    return _decorated(fn, options)


def _decorated(function: Any, options: Mapping[str, Any]) -> AgenticFunction[Any, Any]:
    """*function* may be what ``@classmethod`` or ``@staticmethod`` made."""
    match function:
        case classmethod():
            return AgenticFunction(function.__func__, binds="class", **options)
        case staticmethod():
            return AgenticFunction(function.__func__, binds="nothing", **options)
        case _:
            return AgenticFunction(function, **options)
