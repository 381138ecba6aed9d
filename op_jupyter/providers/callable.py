"""Any function as a model: ``fn(content, model=..., response_format=None, tools=()) -> str``."""

from __future__ import annotations

import functools
import inspect
import json
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
import anyio.to_thread

from op_jupyter.core.messages import (
    Block,
    ImageBlock,
    Message,
    ModelDelta,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    ToolUseStarted,
    block_to_json,
)
from op_jupyter.errors import (
    ProviderConnectionError,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
)
from op_jupyter.providers.base import Capabilities
from op_jupyter.providers.service_errors import parse_retry_after
from op_jupyter.providers.structured import format_instruction

_OFFERED: Final = ("model", "response_format")
_TOOLS: Final = "tools"


class CallableProvider:
    """Provider that calls *fn* with the whole prompt.

    *fn* gets a flat list of blocks in the order of the prompt, each ``{"type": "text", "text":
    ..., "role": "system" | "user" | "assistant"}`` or an image block with a role, so that
    joining the texts is enough: all but the last end with a blank line.  Of the keyword
    arguments ``model`` and ``response_format`` (a JSON Schema or None) it gets those it accepts;
    a schema it does not accept is asked for in the content.  A plain function runs in a worker
    thread, in a copy of the caller's context; cancelling leaves it behind there, as a thread
    cannot be stopped.

    It returns its answer as text.  A function with a parameter ``tools`` may call tools: it gets
    what is offered, each ``{"name": ..., "description": ..., "input_schema": ...}``, and returns a
    list of texts and of calls, ``{"type": "tool_use", "name": ..., "input": {...}}``.  A function
    without that parameter is offered none.

    Connection errors, timeouts and errors that carry an HTTP status of a passing fault are
    worth another attempt; whatever else *fn* raises passes through unchanged.
    """

    holds_nothing = True

    def __init__(self, fn: Callable[..., Any], model: str) -> None:
        self._fn = fn
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._accepted = _accepted_names(fn)
        self._is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
            getattr(fn, "__call__", None)  # noqa: B004 -- an object whose call is async
        )
        self._takes_tools = _takes_tools(fn)
        most = None if self._takes_tools else 0
        self._capabilities = Capabilities("callable", model, max_tools=most)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        content = self._blocks(await self._answer(request), request)
        for index, block in enumerate(content):
            if isinstance(block, TextBlock):
                yield TextDelta(block.text)
            else:
                yield ToolUseStarted(index, block.name)
        calls = any(isinstance(block, ToolUseBlock) for block in content)
        reason: StopReason = "tool_use" if calls else "end_turn"
        yield ResponseDone(Message("assistant", content), reason, model=request.model)

    async def aclose(self) -> None:
        """Nothing to free."""

    async def _answer(self, request: ModelRequest) -> Any:
        content = flat_content(request)
        schema = request.response_schema
        if schema is not None and "response_format" not in self._accepted:
            content.append({"type": "text", "text": format_instruction(schema), "role": "user"})
        offered = {"model": request.model, "response_format": schema}
        options: dict[str, Any] = {name: offered[name] for name in self._accepted}
        if self._takes_tools:
            options[_TOOLS] = [_tool(spec) for spec in request.tools]
        try:
            return await self._call(_set_apart(content), options)
        except ProviderError:
            raise
        except Exception as error:
            translated = _translate(error, self._name)
            if translated is None:
                raise
            raise translated from error

    def _blocks(self, answer: Any, request: ModelRequest) -> tuple[TextBlock | ToolUseBlock, ...]:
        """What the function returned, as the content of a message."""
        if isinstance(answer, str):
            return (TextBlock(str(answer)),) if answer else ()
        if not (self._takes_tools and isinstance(answer, list | tuple)):
            also = ", or a list of texts and tool calls" if self._takes_tools else ""
            raise TypeError(
                f"{self._name} returned {type(answer).__name__}; a function that plays the model"
                f" has to return its answer as str{also}"
            )
        number = 1 + sum(len(message.tool_uses) for message in request.messages)
        blocks = [self._block(item, f"call_{number + place}") for place, item in enumerate(answer)]
        return tuple(block for block in blocks if block is not None)

    def _block(self, item: Any, call_id: str) -> TextBlock | ToolUseBlock | None:
        match item:
            case str(text) | {"type": "text", "text": str(text)}:
                return TextBlock(text) if text else None
            case {"type": "tool_use", "name": str(name), "input": Mapping() as arguments}:
                return ToolUseBlock(call_id, name, json.dumps(dict(arguments)))
        raise TypeError(
            f"{self._name} returned a list with {item!r:.80}; its items have to be texts or"
            ' {"type": "tool_use", "name": ..., "input": {...}}'
        )

    async def _call(self, content: Sequence[Any], options: Mapping[str, Any]) -> Any:
        call = functools.partial(self._fn, content, **options)
        if self._is_async:
            return await call()
        # The call may ask the model again from its thread: a limit could lock all of them up.
        no_limit = anyio.CapacityLimiter(math.inf)
        answer = await anyio.to_thread.run_sync(
            self._in_thread, call, abandon_on_cancel=True, limiter=no_limit
        )
        return await answer if inspect.isawaitable(answer) else answer

    def _in_thread(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (StopIteration, StopAsyncIteration, GeneratorExit) as error:
            # asyncio takes these for its own, so nobody who awaits can be given them.
            raised = f"{type(error).__name__}{error.args!r:.200}"
            raise RuntimeError(f"{self._name} raised {raised}, which ends generators") from error


def flat_content(request: ModelRequest) -> list[dict[str, Any]]:
    """The prompt of *request* as one list of text and image blocks, each with its role."""
    content: list[dict[str, Any]] = []
    if request.system:
        content.append({"type": "text", "text": request.system, "role": "system"})
    names = {use.id: use.name for message in request.messages for use in message.tool_uses}
    for message in request.messages:
        for block in message.content:
            content += [{**flat, "role": message.role} for flat in _flatten(block, names)]
    return content


def _set_apart(content: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """*content* whose texts do not run together where they are joined."""
    return [*map(_with_a_blank_line, content[:-1]), *content[-1:]]


def _with_a_blank_line(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get("text", "")
    missing = 2 - len(text) + len(text.rstrip("\n"))
    return {**block, "text": text + "\n" * missing} if text else block


def _flatten(block: Block, names: Mapping[str, str]) -> list[dict[str, Any]]:
    match block:
        case TextBlock() | ImageBlock():
            return [block_to_json(block)]
        case ToolUseBlock():
            return [_text(f"[tool call: {block.name}({block.arguments})]")]
        case ToolResultBlock():
            head = f"[tool result of {names.get(block.tool_use_id, 'a call')}: {block.state}]"
            return [_text(head), *(block_to_json(part) for part in block.content)]
        case OpaqueBlock():
            return []  # another model's thinking says nothing to this one


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.description,
        "input_schema": dict(spec.input_schema),
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _accepted_names(fn: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(fn).parameters
    except ValueError:  # a builtin without a signature
        return ()
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return _OFFERED
    return tuple(name for name in _OFFERED if name in list(parameters)[1:])


def _takes_tools(fn: Callable[..., Any]) -> bool:
    """Whether it says so: what takes any keyword may be older than tools."""
    try:
        return _TOOLS in list(inspect.signature(fn).parameters)[1:]
    except ValueError:
        return False


def _translate(error: Exception, name: str) -> ProviderError | None:
    """*error* of a function called *name* as one worth another attempt, or None."""
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    kind = _retryable_kind(error, status if isinstance(status, int) else 0)
    if kind is None:
        return None
    return kind(
        f"{name} failed with {type(error).__name__}: {error}",
        retry_after=parse_retry_after(_headers(response), time.time()),
        status_code=status,
    )


def _headers(response: Any) -> Mapping[str, str]:
    """The headers of what may be a response of any library, or of none."""
    headers = getattr(response, "headers", None)
    if not isinstance(headers, Mapping):
        return {}
    return {str(name).lower(): str(value) for name, value in headers.items() if value is not None}


def _retryable_kind(error: Exception, status: int) -> type[ProviderError] | None:
    if isinstance(error, ConnectionError):
        return ProviderConnectionError
    if isinstance(error, TimeoutError) or status in (408, 504):
        return ProviderTimeout
    if status == 429:
        return RateLimited
    if status == 409 or 500 <= status < 600:
        return ProviderOverloaded
    return None
