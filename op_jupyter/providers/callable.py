"""Any function as a model: ``fn(content, model=..., response_format=None) -> str``."""

from __future__ import annotations

import functools
import inspect
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
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUseBlock,
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


class CallableProvider:
    """Provider that calls *fn* with the whole prompt.

    *fn* gets a flat list of blocks in the order of the prompt, each ``{"type": "text", "text":
    ..., "role": "system" | "user" | "assistant"}`` or an image block with a role, so that
    joining the texts is enough.  Of the keyword arguments ``model`` and ``response_format`` (a
    JSON Schema or None) it gets those it accepts; a schema it does not accept is asked for in
    the content.  A plain function runs in a worker thread, in a copy of the caller's context;
    cancelling leaves it behind there, as a thread cannot be stopped.

    Connection errors, timeouts and errors that carry an HTTP status of a passing fault are
    worth another attempt; whatever else *fn* raises passes through unchanged.
    """

    def __init__(self, fn: Callable[..., Any], model: str) -> None:
        self._fn = fn
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._accepted = _accepted_names(fn)
        self._is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
            getattr(fn, "__call__", None)  # noqa: B004 -- an object whose call is async
        )
        self._capabilities = Capabilities("callable", model, max_tools=0)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        answer = await self._answer(request)
        if answer:
            yield TextDelta(answer)
        content = (TextBlock(answer),) if answer else ()
        yield ResponseDone(Message("assistant", content), "end_turn", model=request.model)

    async def aclose(self) -> None:
        """Nothing to free."""

    async def _answer(self, request: ModelRequest) -> str:
        content = flat_content(request)
        schema = request.response_schema
        if schema is not None and "response_format" not in self._accepted:
            content.append({"type": "text", "text": format_instruction(schema), "role": "user"})
        offered = {"model": request.model, "response_format": schema}
        options = {name: offered[name] for name in self._accepted}
        try:
            answer = await self._call(content, options)
        except ProviderError:
            raise
        except Exception as error:
            translated = _translate(error, self._name)
            if translated is None:
                raise
            raise translated from error
        if not isinstance(answer, str):
            raise TypeError(
                f"{self._name} returned {type(answer).__name__}; a function that plays the model"
                " has to return its answer as str"
            )
        return str(answer)

    async def _call(self, content: Sequence[Any], options: Mapping[str, Any]) -> Any:
        call = functools.partial(self._fn, content, **options)
        if self._is_async:
            return await call()
        # The call may ask the model again from its thread: a limit could lock all of them up.
        no_limit = anyio.CapacityLimiter(math.inf)
        answer = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=no_limit)
        return await answer if inspect.isawaitable(answer) else answer


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
