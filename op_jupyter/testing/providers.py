"""A fake model, driven event by event.

    gate = Gate()
    provider = ScriptedProvider(
        reply("Let me look. ", call("python", {"code": "1 + 1"})),
        [TextDelta("It is "), gate, *reply("It is 2.")],
        [TextDelta("It"), RateLimited("slow down")],
    )

One script answers one request.  What a script says is what the caller gets, even when no real
service would say it: no end, two ends, deltas after the end.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, TypeAlias

from op_jupyter.core.messages import (
    Block,
    Message,
    ModelDelta,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
    ToolUseStarted,
    Usage,
)
from op_jupyter.providers.base import Capabilities


class ScriptExhausted(AssertionError):
    """The code under test asked the model once more than the test expected."""


class Gate:
    """A place in a script where the stream waits until the test opens it.

    Works from any thread and any event loop.
    """

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._opened: Future[None] = Future()

    def open(self) -> None:
        """Let the stream go on; harmless when it is open already."""
        if not self._opened.done():
            self._opened.set_result(None)

    def wait_reached(self, timeout: float = 60) -> None:
        """Block this thread until the stream stands at the gate."""
        self._reached.result(timeout)

    async def reached(self) -> None:
        """Wait until the stream stands at the gate."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    async def pass_through(self) -> None:
        """Report that the gate is reached and wait until it opens; for scripts and fake tools."""
        if not self._reached.done():
            self._reached.set_result(None)
        await asyncio.shield(asyncio.wrap_future(self._opened))


class _Hang:
    """See `HANG`."""


HANG: Final = _Hang()
"""In a script: the stream goes silent and never ends by itself."""

Step: TypeAlias = ModelDelta | Gate | BaseException | _Hang
Script: TypeAlias = Sequence[Step]


def call(name: str, arguments: Mapping[str, Any] | str, *, id: str = "") -> ToolUseBlock:  # noqa: A002 -- the wire's word
    """A tool call; *arguments* may be raw, even malformed text.

    Without an id the provider numbers it: ``call_1``, ``call_2``, ...
    """
    raw = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
    return ToolUseBlock(id, name, raw)


def thinking(text: str, *, signature: str = "signed") -> OpaqueBlock:
    """A thinking block as the service sends it."""
    return OpaqueBlock({"type": "thinking", "thinking": text, "signature": signature})


def reply(
    *content: str | Block, stop_reason: StopReason | None = None, usage: Usage | None = None
) -> Script:
    """A whole, well-formed response: the deltas of *content*, then its `ResponseDone`."""
    blocks = tuple(TextBlock(c) if isinstance(c, str) else c for c in content)
    asks_for_tool = any(isinstance(b, ToolUseBlock) for b in blocks)
    done = ResponseDone(
        Message("assistant", blocks),
        stop_reason or ("tool_use" if asks_for_tool else "end_turn"),
        usage or Usage(input_tokens=10, output_tokens=5),
    )
    deltas = [delta for index, block in enumerate(blocks) for delta in _deltas(index, block)]
    return (*deltas, done)


def _deltas(index: int, block: Block) -> Iterable[ModelDelta]:
    match block:
        case TextBlock(text):
            return [TextDelta(piece) for piece in re.findall(r"\S+\s*|\s+", text)]
        case ToolUseBlock():
            return [ToolUseStarted(index, block.name)]
        case OpaqueBlock(payload) if "thinking" in payload:
            return [ThinkingDelta(str(payload["thinking"]))]
        case _:
            return []


class ScriptedProvider:
    """Provider that plays *scripts*, one for each request, and keeps every request it was sent.

    Attributes:
        requests: what was asked, in order.
        open_streams: streams that began and have neither ended nor been closed.
        closed: how often `aclose` was called.
    """

    def __init__(
        self,
        *scripts: Script,
        default: Callable[[ModelRequest], Script] | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.open_streams = 0
        self.closed = 0
        self._scripts = deque(scripts)
        self._default = default
        self._capabilities = capabilities or Capabilities("scripted", "scripted-model")
        self._calls = 0

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def add(self, *scripts: Script) -> None:
        """Queue more scripts."""
        self._scripts.extend(scripts)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        self.requests.append(request)
        script = self._next_script(request)
        self.open_streams += 1
        try:
            for step in script:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, Gate):
                    await step.pass_through()
                elif isinstance(step, _Hang):
                    await asyncio.get_running_loop().create_future()
                else:
                    yield self._numbered(step)
        finally:
            self.open_streams -= 1

    async def aclose(self) -> None:
        self.closed += 1

    def _next_script(self, request: ModelRequest) -> Script:
        if self._scripts:
            return self._scripts.popleft()
        if self._default is not None:
            return self._default(request)
        raise ScriptExhausted(f"model call {len(self.requests)} was not expected; queue a script")

    def _numbered(self, delta: ModelDelta) -> ModelDelta:
        if not isinstance(delta, ResponseDone):
            return delta
        content = tuple(self._with_id(block) for block in delta.message.content)
        return replace(delta, message=replace(delta.message, content=content))

    def _with_id(self, block: Block) -> Block:
        if not isinstance(block, ToolUseBlock) or block.id:
            return block
        self._calls += 1
        return replace(block, id=f"call_{self._calls}")
