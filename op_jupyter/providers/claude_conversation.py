"""One conversation of the Claude Code CLI: its process, and what goes to and fro.

A task of its own reads what the process says for as long as it lives.  A response that asks for
tools is handed over at once, while the CLI waits: for our tools, whose results it is given, and
for leave to run its own.  Nothing runs in the CLI before the engine has said so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import (
    ImageBlock,
    ModelDelta,
    ResponseDone,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    ToolUseStarted,
    Usage,
)
from op_jupyter.core.values import dataclass
from op_jupyter.errors import (
    ProtocolError,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
)
from op_jupyter.providers.base import CONVERSATION
from op_jupyter.providers.lifeline import Lifeline
from op_jupyter.providers.request_body import parse_arguments
from op_jupyter.providers.response_assembly import Assembly

SERVER: Final = "op_jupyter"
"""Name under which our tools are offered to the CLI; it puts it into theirs."""

PREFIX: Final = f"mcp__{SERVER}__"
STOP_SECONDS: Final = 5.0
"""How long the CLI may take to give up a turn before its process is ended."""

_GO_ON: Final = "The service failed before you could answer. Go on."
_STOPPED: Final = "The turn was stopped."

log = logging.getLogger(__name__)

Phase: TypeAlias = Literal["idle", "asking", "tools", "failed", "dead"]
Failure: TypeAlias = Callable[[Any, str, bool], ProviderError]
"""From a result of the CLI, the cause that it named before, and whether the answer had begun."""


@dataclass(slots=True)
class _Call:
    """A tool call on its way through the CLI; *leave* is what its permission waits for."""

    leave: asyncio.Future[_Leave]
    result: asyncio.Future[ToolResultBlock]
    taken: bool = False


@dataclass(frozen=True, slots=True)
class _Leave:
    """Whether a call may go on: with *arguments* (own tools) or to *content* (ours)."""

    allowed: bool
    text: str = ""
    arguments: Mapping[str, Any] | None = None
    content: Sequence[Mapping[str, Any]] = ()
    stop: bool = False


@dataclass(slots=True)
class Conversation:
    """A running CLI.

    Attributes:
        setup: what it was started with; another setup needs another process.
        start_timeout: seconds within which it has to be ready.
        id: the CLI's own id of the conversation; "" until it has said so.
        phase: ``asking``: an answer is awaited; ``tools``: calls are to be settled;
            ``failed``: the last request got no answer; ``dead``: of no use any more.
        said, answered: what the exchange that goes on has come to.
    """

    sdk: ModuleType
    setup: object
    own: frozenset[str]
    failure: Failure
    start_timeout: float
    id: str = ""
    phase: Phase = "idle"
    said: bool = False
    answered: bool = False
    _client: Any = None
    _lifeline: Lifeline | None = None
    _inbox: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    _calls: dict[str, _Call] = field(default_factory=dict)
    _asked: tuple[ToolUseBlock, ...] = ()
    _next: int = 0
    _held: tuple[_Call, _Leave] | None = None
    _reader: asyncio.Task[None] | None = None
    _stopping: asyncio.Task[None] | None = None

    # --- life -----------------------------------------------------------------------------

    async def start(self, options: Any, lifeline: Lifeline) -> None:
        """Start the process; *options* are the SDK's."""
        self._lifeline = lifeline
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(options, lifeline, ready))
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            ready.cancel()
            self._reader.cancel()
            raise

    async def _read(self, options: Any, lifeline: Lifeline, ready: asyncio.Future[None]) -> None:
        # The SDK wants one task to open, read and close a client.
        client = self._client = self.sdk.ClaudeSDKClient(options)
        try:
            await self._connect()
            if not ready.done():
                ready.set_result(None)
            async for message in client.receive_messages():
                self._take(message)
            self._die(ProviderConnectionError("Claude Code ended by itself", retryable=True))
        except ProviderTimeout as late:
            self._fail(late, ready)
        except Exception as error:  # noqa: BLE001 -- foreign code; who waits for it has to be told
            self._fail(self.failure(error, "", False), ready)
        finally:
            self.phase = "dead"
            if not ready.done():
                ready.set_exception(ProviderConnectionError("Claude Code could not be started"))
            await client.disconnect()
            lifeline.close()

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self.start_timeout):
                await self._client.connect()
        except TimeoutError as error:
            raise ProviderTimeout(
                f"Claude Code was not ready within {self.start_timeout:g} s; run `claude` in a "
                "terminal to see why",
                retryable=False,
            ) from error

    def _fail(self, error: ProviderError, ready: asyncio.Future[None]) -> None:
        self._die(error)
        if not ready.done():
            ready.set_exception(error)

    def _die(self, error: ProviderError) -> ProviderError:
        self.phase = "dead"
        self._inbox.put_nowait(error)
        self._refuse_all("Claude Code ended.")
        return error

    async def close(self) -> None:
        """End the process, whatever it does."""
        if self.phase not in ("idle", "failed") and self._lifeline is not None:
            self._lifeline.close()  # it would first finish what it does
        self._die(ProviderConnectionError("this runtime was closed", retryable=False))
        for task in (self._stopping, self._reader):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    # --- asking ---------------------------------------------------------------------------

    async def answer(self, content: Sequence[Mapping[str, Any]]) -> AsyncGenerator[ModelDelta]:
        """Say *content*, or go on after the tools; the deltas of the response, then its end."""
        await self._send(content)
        answer = _Answer()
        try:
            while not answer.is_over:
                delta = self._heard(await self._inbox.get(), answer)
                if delta is not None:
                    yield delta
            done = answer.done(self.id)
            self._asked, self._next = done.message.tool_uses, 0
            self._calls = {use.id: self._call(use.id) for use in self._asked}
            self.phase = "tools" if self._asked else "idle"
            self.answered = True
        finally:
            if self.phase == "asking":
                self.stop()
        yield replace(done, message=_plain(done.message))

    def _heard(self, message: Any, answer: _Answer) -> ModelDelta | None:
        """What there is to show of a message; the end of a turn that failed is raised."""
        match type(message).__name__:
            case "StreamEvent" if message.parent_tool_use_id is None:
                self.id = message.session_id
                return answer.feed(message.event)
            case "AssistantMessage" if message.error is not None:
                answer.cause = str(message.error)
            case "ResultMessage":
                self.id = message.session_id
                self.phase = "failed" if message.is_error else "idle"
                if message.is_error:
                    raise self.failure(message, answer.cause, answer.begun)
                answer.end()
            case _ if isinstance(message, ProviderError):
                if answer.begun:
                    message.retryable, message.semantic_output = False, True
                raise message
        return None

    async def _send(self, content: Sequence[Mapping[str, Any]]) -> None:
        await self.settled()
        phase = self.phase
        if phase == "dead":
            raise ProviderConnectionError("Claude Code has ended", retryable=True)
        self.phase = "asking"
        if phase == "tools":
            self._release()
            return
        again = phase == "failed" and self.said
        self.said = True
        message = {
            "type": "user",
            "message": {
                "role": "user",
                "content": [{"type": "text", "text": _GO_ON}] if again else list(content),
            },
            "parent_tool_use_id": None,
        }

        async def only() -> AsyncGenerator[dict[str, Any]]:
            yield message

        try:
            await self._client.query(only())
        except self.sdk.ClaudeSDKError as error:
            raise self._die(self.failure(error, "", False)) from error

    async def settled(self) -> None:
        """Wait until a turn that was stopped has ended."""
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def stop(self) -> None:
        """Have the CLI give up what it does; `settled` waits for that."""
        if self.phase == "dead" or self._stopping is not None:
            return
        self.phase = "asking"
        self._asked = ()
        self._refuse_all(_STOPPED)
        self._stopping = asyncio.create_task(self._interrupt())

    async def _interrupt(self) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._client.interrupt()
                while type(message := await self._inbox.get()).__name__ != "ResultMessage":
                    if isinstance(message, ProviderError):
                        return
            self.phase = "idle"
        except Exception as error:  # noqa: BLE001 -- foreign code; what does not stop is ended
            log.info("Claude Code did not stop (%r); its process is ended", error)
            self.phase = "dead"
            if self._lifeline is not None:
                self._lifeline.close()
        finally:
            self._stopping = self._held = None

    # --- tools ----------------------------------------------------------------------------

    async def run_own(self, arguments: Mapping[str, Any]) -> ToolResultBlock:
        """Let the CLI run the call that is due; what it says came out."""
        if self._next >= len(self._asked):
            return ToolResultBlock("", (TextBlock(_STOPPED),), "interrupted")
        call = self._call(self._asked[self._next].id)
        if not call.leave.done():
            call.leave.set_result(_Leave(allowed=True, arguments=arguments))
        return await asyncio.shield(call.result)

    def deliver(self, result: ToolResultBlock) -> None:
        """Settle the call that is due."""
        if self._next >= len(self._asked):
            return  # the turn was stopped meanwhile
        use = self._asked[self._next]
        self._next += 1
        call = self._call(use.id)
        if use.name not in self.own and result.state == "success":
            leave = _Leave(allowed=True, content=[_mcp_block(b) for b in result.content])
        else:
            leave = _Leave(allowed=False, text=_refusal(result))
        if self._next < len(self._asked):
            _settle(call, leave)
        else:
            # The last one makes the CLI ask the model again: not before we are asked for it.
            self._held = (call, leave)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            _settle(*held)

    def _refuse_all(self, text: str) -> None:
        self._held = None
        for call in self._calls.values():
            _settle(call, _Leave(allowed=False, text=text, stop=True))
            if not call.result.done():
                call.result.set_result(ToolResultBlock("", (TextBlock(text),), "interrupted"))
        self._calls.clear()

    def _call(self, call_id: str) -> _Call:
        if call_id not in self._calls:
            loop = asyncio.get_running_loop()
            self._calls[call_id] = _Call(loop.create_future(), loop.create_future())
        return self._calls[call_id]

    async def may_run(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
        """The SDK asks whether a call may run: the engine's decision about it."""
        if self.phase == "dead" or self._stopping is not None:
            return self.sdk.PermissionResultDeny(message=_STOPPED, interrupt=True)
        leave = await self._call(context.tool_use_id).leave
        if leave.allowed:
            changed = leave.arguments if leave.arguments is not None else arguments
            return self.sdk.PermissionResultAllow(updated_input=dict(changed))
        return self.sdk.PermissionResultDeny(message=leave.text, interrupt=leave.stop)

    async def give(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one of our tools, when the CLI comes to it."""
        wanted = canonical_json(dict(arguments))
        for use in self._asked:
            call = self._calls.get(use.id)
            same = use.name == PREFIX + name
            if not same or call is None or call.taken:
                continue
            if canonical_json(parse_arguments(use.arguments)) == wanted:
                call.taken = True
                leave = await call.leave
                content = list(leave.content) or [{"type": "text", "text": leave.text}]
                return {"content": content, "is_error": not leave.allowed}
        return {"content": [{"type": "text", "text": _STOPPED}], "is_error": True}

    def _take(self, message: Any) -> None:
        if type(message).__name__ != "UserMessage":
            self._inbox.put_nowait(message)
            return
        if isinstance(message.content, str) or message.parent_tool_use_id is not None:
            return
        for block in message.content:
            if type(block).__name__ == "ToolResultBlock":
                self._came_out(block)

    def _came_out(self, block: Any) -> None:
        call = self._call(block.tool_use_id)
        if not call.result.done():
            call.result.set_result(_result_of(block))
        if call.leave.done():
            del self._calls[block.tool_use_id]


class _Answer:
    """An answer while it comes in: one message of the model, or several where a limit cut it.

    Attributes:
        begun: words, thinking or a tool call were seen.
        is_over: it asks for tools, or the CLI said that the turn has ended.
        cause: the CLI's own word for what went wrong.
    """

    def __init__(self) -> None:
        self.begun = False
        self.is_over = False
        self.cause = ""
        self._parts: list[ResponseDone] = []
        self._assembly: Assembly | None = None

    def feed(self, event: Mapping[str, Any]) -> ModelDelta | None:
        """Take one event of the Messages API; what there is to show of it."""
        if event.get("type") == "message_start":
            if self._assembly is not None and not self._assembly.is_complete:
                raise ProtocolError(
                    "Claude Code began its answer a second time; it was dropped",
                    semantic_output=self.begun,
                )
            self._assembly = Assembly()
        if self._assembly is None:
            return None  # the rest of a turn that was stopped
        delta = self._assembly.feed(event)
        self.begun = self.begun or self._assembly.semantic_output
        if event.get("type") == "message_stop":
            self._parts.append(self._assembly.finish())
            self.is_over = bool(self._parts[-1].message.tool_uses)
        return _renamed(delta) if delta is not None else None

    def end(self) -> None:
        """The turn has ended."""
        if not self._parts:
            raise ProtocolError("Claude Code answered without a message; it was dropped")
        self.is_over = True

    def done(self, conversation: str) -> ResponseDone:
        """The whole of it."""
        return _joined(self._parts, conversation)


def _settle(call: _Call, leave: _Leave) -> None:
    if not call.leave.done():
        call.leave.set_result(leave)


def _joined(parts: Sequence[ResponseDone], conversation: str) -> ResponseDone:
    """The parts of an answer as one: the CLI goes on by itself where a limit cut it."""
    last = parts[-1]
    usage = Usage(
        sum(p.usage.input_tokens for p in parts),
        sum(p.usage.output_tokens for p in parts),
        sum(p.usage.cache_read_tokens for p in parts),
        sum(p.usage.cache_write_tokens for p in parts),
    )
    content = tuple(block for part in parts for block in part.message.content)
    return replace(
        last,
        message=replace(last.message, content=content),
        usage=usage,
        details={**last.details, CONVERSATION: conversation},
    )


def _plain(message: Any) -> Any:
    content = tuple(
        replace(b, name=b.name.removeprefix(PREFIX)) if isinstance(b, ToolUseBlock) else b
        for b in message.content
    )
    return replace(message, content=content)


def _renamed(delta: ModelDelta) -> ModelDelta:
    if isinstance(delta, ToolUseStarted):
        return replace(delta, name=delta.name.removeprefix(PREFIX))
    return delta


def _refusal(result: ToolResultBlock) -> str:
    text = "".join(b.text for b in result.content if isinstance(b, TextBlock))
    word = "" if result.state in ("success", "error") else f"[{result.state}] "
    return word + (text or "The call failed without a message.")


def _mcp_block(block: TextBlock | ImageBlock) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": "text", "text": block.text}


def _result_of(block: Any) -> ToolResultBlock:
    """A result as the CLI tells it."""
    raw = block.content
    parts = [{"type": "text", "text": raw}] if isinstance(raw, str) else list(raw or ())
    content: list[TextBlock | ImageBlock] = []
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)}:
                content.append(TextBlock(text))
            case {"type": "image", "source": {"media_type": str(kind), "data": str(data)}}:
                content.append(ImageBlock(kind, data))
            case _:
                content.append(TextBlock(json.dumps(part, default=str)))
    return ToolResultBlock(
        block.tool_use_id, tuple(content), "error" if block.is_error else "success"
    )
