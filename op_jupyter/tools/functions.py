"""Functions as tools: plain, ``async``, or agentic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.messages import ImageBlock, TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.errors import InvalidArguments, ToolDefinitionError
from op_jupyter.tools.base import CallDescription, Tool, ToolContext, ToolOutput
from op_jupyter.tools.summaries import content_of, to_json_value
from op_jupyter.tools.threads import in_thread, looked_at
from op_jupyter.tools.tracebacks import message_of, short_traceback

if TYPE_CHECKING:
    from op_jupyter.tools.schema import Signature

TIMEOUT: Final = 60.0


class FunctionTool:
    """A Python function that a model may call.

    A plain function runs in a thread of its own with the caller's context, so it may block;
    an ``async`` one runs on the background loop.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        effect: Effect = "execute",
        trusted: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> None:
        """Offer *function*.

        Raises:
            ToolDefinitionError: a model could not call it; the message says what to change.
        """
        self.signature = _read(function, name)
        _check_hidden(function, self.signature.spec.name)
        self._call = function
        self._is_async = _is_async(function)
        self.effect: Effect = effect
        self.trusted = trusted
        self.timeout = timeout

    @property
    def spec(self) -> ToolSpec:
        """The function as the model sees it."""
        return self.signature.spec

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""
        try:
            self.signature.bind(arguments)
        except InvalidArguments as error:
            return error.message
        return ""

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """Nothing: what a function touches cannot be known before."""
        return CallDescription()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Call the function; what it raises is the result, with the lines that led there."""
        keywords = self._keywords(arguments)
        try:
            value = await self._value(keywords)
            return await looked_at(lambda: _output(value), value)
        except Exception as error:  # noqa: BLE001 -- foreign code; the model reads what it raised
            told = await _told(error)
            return ToolOutput((TextBlock(told),), "failed")
        except (SystemExit, KeyboardInterrupt) as error:  # would end the background loop
            return ToolOutput(
                (TextBlock(f"{type(error).__name__}: {message_of(error)}"),), "failed"
            )

    def _keywords(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.signature.bind(arguments)

    async def _value(self, keywords: Mapping[str, Any]) -> Any:
        if self._is_async:
            return await self._call(**keywords)
        value = await in_thread(lambda: self._call(**keywords))
        return await value if inspect.isawaitable(value) else value


def _read(function: Callable[..., Any], name: str | None) -> Signature:
    # pydantic takes 100 ms to import, and an extension has to load at once.
    from op_jupyter.tools.schema import read_signature

    return read_signature(function, name=name)


class AgenticTool(FunctionTool):
    """An object with ``.spec`` and ``.execute``: an agentic function of this package, or alike.

    It calls models itself and keeps its own time, so it has no timeout here.
    """

    def __init__(self, function: Any, *, trusted: bool = False) -> None:
        """Offer *function* as its own ``spec`` says.

        Raises:
            ToolDefinitionError: the spec is no tool's, or a model could not call it.
        """
        spec = _read_spec(function.spec)
        self.signature = _read(function, spec.name)
        self._spec = spec
        self._call = function.execute
        self._is_async = _is_async(function)
        self.effect = "execute"
        self.trusted = trusted
        self.timeout = None

    def _keywords(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments  # ``execute`` takes what a model sent, and makes of it what it needs

    @property
    def spec(self) -> ToolSpec:
        """The function as it describes itself."""
        return self._spec


def as_tool(item: Any, *, trusted: bool = False) -> Tool:
    """*item* as a tool: a tool itself, an agentic function, or any typed function.

    *trusted* says that the program's author passed it; a tool keeps what it says of itself.

    Raises:
        ToolDefinitionError: it is none of these, or a model could not call it.
    """
    if isinstance(item, MethodType) and hasattr(item.__func__, "spec"):
        # From Python 3.13 on, `@classmethod` above a decorator does not bind what that made.
        item = item.__func__.__get__(item.__self__)
    if all(hasattr(item, name) for name in ("spec", "run", "describe", "effect")):
        return item  # type: ignore[no-any-return]  # it has what a Tool has
    if hasattr(item, "spec") and hasattr(item, "execute"):
        return AgenticTool(item, trusted=trusted)
    if callable(item):
        return FunctionTool(item, trusted=trusted)
    raise ToolDefinitionError(
        f"{item!r:.80} is no tool: pass a function, an agentic function or a tool object"
    )


async def _told(error: Exception) -> str:
    """The error with its lines; the text of it may be code of its own."""
    return await in_thread(lambda: short_traceback(error))


def _output(value: Any) -> ToolOutput:
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, TextBlock | ImageBlock):
        return ToolOutput((value,))
    return ToolOutput(content_of(value), value=to_json_value(value))


def _is_async(function: Any) -> bool:
    bare = inspect.unwrap(function)
    return inspect.iscoroutinefunction(bare) or inspect.iscoroutinefunction(
        getattr(bare, "__call__", None)  # noqa: B004 -- the method itself is wanted
    )


def _check_hidden(function: Callable[..., Any], name: str) -> None:
    from op_jupyter.tools.schema import HIDDEN

    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in HIDDEN and parameter.default is inspect.Parameter.empty:
            raise ToolDefinitionError(
                f"parameter {parameter.name!r} of {name} is filled in for agentic functions "
                "only; put @agentic_function above it, or give the parameter a default",
                parameter=parameter.name,
            )


def _read_spec(spec: Any) -> ToolSpec:
    if isinstance(spec, ToolSpec):
        return spec
    try:
        return ToolSpec(spec["name"], spec["description"], spec["input_schema"])
    except (TypeError, KeyError) as error:
        raise ToolDefinitionError(
            f"{spec!r:.80} is no tool description; it needs name, description and input_schema"
        ) from error
