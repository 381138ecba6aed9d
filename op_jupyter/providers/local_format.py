"""Answers of the local model that are held to a JSON Schema.

llama.cpp samples within a grammar that it makes of the schema, but its Messages endpoint drops
every parameter that could say so; its chat endpoint takes it.  So these requests, and no others,
go there.  They offer no tools: the grammar would keep the model from calling one.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.messages import (
    Message,
    ModelDelta,
    ModelRequest,
    ResponseDone,
    StopReason,
    TextBlock,
    TextDelta,
    Usage,
)
from op_jupyter.core.values import dataclass
from op_jupyter.errors import ProtocolError, ProviderConnectionError, ProviderTimeout
from op_jupyter.providers.local_profile import prepare
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.providers.request_body import request_body, without_surrogates
from op_jupyter.providers.service_errors import parse_error, provider_error

if TYPE_CHECKING:
    import httpx2

_STOPS: Final[dict[str, StopReason]] = {"stop": "end_turn", "length": "max_tokens"}


def chat_body(request: ModelRequest, profile: EndpointProfile) -> dict[str, Any]:
    """*request*, which has a schema and no tools, for llama.cpp's chat endpoint."""
    body = request_body(replace(request, response_schema=None), profile)
    body = prepare(without_surrogates(body))
    system = [{"role": "system", "content": _text(part)} for part in body.get("system", ())]
    messages = [
        {"role": m["role"], "content": "\n".join(filter(None, map(_text, m["content"])))}
        for m in body["messages"]
    ]
    wanted = {"schema": dict(request.response_schema or {})}
    return {
        "model": body["model"],
        "max_tokens": body["max_tokens"],
        "messages": [*system, *messages],
        "response_format": {"type": "json_schema", "json_schema": wanted},
        "stream": True,
        "stream_options": {"include_usage": True},
        **profile.extra_body,
    }


def _text(block: Mapping[str, Any]) -> str:
    """A block as text: earlier tool calls are only told."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "tool_use", "name": name, "input": arguments}:
            return f"[called {name} with {json.dumps(arguments, ensure_ascii=False)}]"
        case {"type": "tool_result", "content": [*parts]}:
            return "\n".join(filter(None, map(_text, parts)))
        case _:
            return ""


@dataclass(slots=True)
class _Answer:
    """What has come so far."""

    text: str = ""
    stop: str = ""
    usage: Usage = field(default_factory=Usage)

    def take(self, chunk: Any) -> str:
        """The new piece of text in one event; raises ValueError when it is none of theirs."""
        try:
            if used := chunk.get("usage"):
                cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                self.usage = Usage(used["prompt_tokens"], used["completion_tokens"], cached)
            piece = ""
            for choice in chunk["choices"]:
                piece += choice["delta"].get("content") or ""
                self.stop = choice.get("finish_reason") or self.stop
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("an event of another shape") from error
        self.text += piece
        return piece

    def done(self, model: str) -> ResponseDone:
        content = (TextBlock(self.text),) if self.text else ()
        stop = _STOPS.get(self.stop, "end_turn")
        return ResponseDone(Message("assistant", content), stop, self.usage, model)


async def stream_format(
    request: ModelRequest, profile: EndpointProfile
) -> AsyncGenerator[ModelDelta]:
    """Ask the server that *profile* describes; as `Provider.stream`.

    Raises:
        InvalidRequest: llama.cpp can make no grammar of the schema; nothing was answered.
        ProviderError: anything else, as `Provider.stream` does.
    """
    http = await asyncio.to_thread(importlib.import_module, "httpx2")
    answer = _Answer()
    async with (
        _translated(http, profile, answer),
        _response(http, request, profile) as response,
    ):
        await _check(response, request, profile)
        async with aclosing(_events(response)) as events:
            async for event in events:
                if piece := answer.take(event):
                    yield TextDelta(piece)
    if not answer.stop:
        raise ProtocolError(
            "the local model's answer broke off before its end; it was dropped",
            semantic_output=bool(answer.text),
        )
    yield answer.done(request.model or profile.default_model)


@asynccontextmanager
async def _response(
    http: ModuleType, request: ModelRequest, profile: EndpointProfile
) -> AsyncIterator[httpx2.Response]:
    # A connection of its own: the server closes the ones that it kept when it likes.
    limits = http.Timeout(profile.read_timeout, connect=profile.connect_timeout)
    async with http.AsyncClient(trust_env=False, timeout=limits) as client:
        url = f"{profile.base_url}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {profile.api_key}"}
        body = chat_body(request, profile)
        async with client.stream("POST", url, json=body, headers=headers) as response:
            yield response


async def _check(
    response: httpx2.Response, request: ModelRequest, profile: EndpointProfile
) -> None:
    if response.status_code == 200:
        return
    text = (await response.aread()).decode("utf-8", "replace")
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    answer = parse_error(response.status_code, body, response.headers)
    raise provider_error(answer, profile, request.model, now=time.time())


async def _events(response: httpx2.Response) -> AsyncGenerator[Any]:
    async for line in response.aiter_lines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


@asynccontextmanager
async def _translated(
    http: ModuleType, profile: EndpointProfile, answer: _Answer
) -> AsyncIterator[None]:
    try:
        yield
    except http.HTTPError as error:
        semantic = bool(answer.text)
        late = isinstance(error, http.TimeoutException)
        raise (ProviderTimeout if late else ProviderConnectionError)(
            f"{profile.name} at {profile.base_url} "
            f"{'was silent for too long' if late else 'could not be reached'} "
            f"({type(error).__name__}); is it running?",
            retryable=not semantic,
            semantic_output=semantic,
        ) from error
    except (ValueError, RecursionError) as error:  # no JSON, or JSON without end
        raise ProtocolError(
            f"{profile.name} sent a broken stream: {type(error).__name__}",
            semantic_output=bool(answer.text),
        ) from error
