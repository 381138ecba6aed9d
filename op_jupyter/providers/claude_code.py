"""Claude Code as a provider: its command line program keeps the conversation.

The program's own retries, its own ways around an error and its settings files are off: retries
are the runtime's, and what may run is decided by our permission gate alone.  The SDK takes more
than a second to import, so it is loaded on the first request, in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shlex
import shutil
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import uuid4

from op_jupyter.core.messages import (
    Block,
    Continuation,
    ImageBlock,
    Message,
    ModelDelta,
    ModelRequest,
    OpaqueBlock,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    block_to_json,
)
from op_jupyter.core.redact import Redactor, secrets_of
from op_jupyter.core.values import dataclass
from op_jupyter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ProviderConnectionError,
    ProviderError,
)
from op_jupyter.providers.base import Capabilities, Conversations, OwnTool
from op_jupyter.providers.claude_conversation import PREFIX, SERVER, Conversation
from op_jupyter.providers.claude_program import (
    ENVIRONMENT,
    LIBRARY,
    bundled_program,
    can_run,
    find_program,
    has_library,
)
from op_jupyter.providers.claude_tools import OWN_TOOLS
from op_jupyter.providers.claude_version import check_program
from op_jupyter.providers.lifeline import Lifeline
from op_jupyter.providers.live import check_live
from op_jupyter.providers.profile import DEFAULT_MODEL, EndpointProfile
from op_jupyter.providers.request_body import without_surrogates
from op_jupyter.providers.service_errors import ErrorAnswer, provider_error
from op_jupyter.providers.structured import format_instruction

NAME: Final = "claude-code"
_MOST_AT_ONCE: Final = 4
"""Requests at the same time; each needs a process of 200 MB."""

_OWN_SPECS: Final = tuple(tool.spec for tool in OWN_TOOLS)
_LINE_BYTES: Final = 64 << 20
_ENVIRONMENT: Final = {
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}
_CAUSES: Final = {
    "billing_error": "billing_error",
    "rate_limit": "rate_limit_error",
    "invalid_request": "invalid_request_error",
    "server_error": "api_error",
}
"""The CLI's word for a failure without an HTTP status, in the words of the Messages API."""

_NO_LOGIN: Final = "authentication_failed"
_PROFILE: Final = EndpointProfile(name=NAME, needs_key=False)


@dataclass(frozen=True, slots=True)
class _Setup:
    """What a process is started with."""

    model: str
    system: str
    tools: str
    folder: str
    max_tokens: int


def _elsewhere(model: str, cli: Path | None, start_timeout: float) -> ClaudeCodeProvider:
    return ClaudeCodeProvider(model, cli=cli, start_timeout=start_timeout)


class ClaudeCodeProvider:
    """Provider that asks through the Claude Code CLI.  Use it from one event loop.

    Args:
        model: used when nobody names one.
        cli: the program; None: the one that ``OPENPROGRAM_CLAUDE`` names, else the one that
            comes with the SDK, else ``claude`` on the path.
        environment: added to the environment of the program.
        start_timeout: seconds within which the program has to be ready.

    Raises:
        ConfigurationError: the optional package is missing.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        cli: Path | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        if not has_library():
            raise ConfigurationError(
                "Claude Code needs its package: run pip install 'op-jupyter[claude-code]'"
            )
        self._capabilities = Capabilities(
            NAME, model, context_tokens=200_000, max_output_tokens=32_000, has_session=True
        )
        self._cli = cli
        self._environment = dict(environment or {})
        self._start_timeout = start_timeout
        self._checked: set[Path] = set()
        self._used: Path | None = None
        self._sdk: ModuleType | None = None
        self._running: dict[str, Conversation] = {}
        self._idle: Conversation | None = None
        self._ours: set[str] = set()
        self._lasting: dict[str, bool] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._stderr: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def conversations(self) -> Conversations:
        """This provider keeps the conversation."""
        return self

    @property
    def own_tools(self) -> Sequence[OwnTool]:
        return OWN_TOOLS

    def __reduce__(self) -> tuple[Any, ...]:
        """A provider of the same kind elsewhere, with conversations of its own.

        Raises:
            ConfigurationError: its environment was given in code, and may hold a key.
        """
        if self._environment:
            raise ConfigurationError(
                "Claude Code was given an environment in code, which may hold a key, and keys do "
                "not travel to workers; set the variables where the workers run"
            )
        return _elsewhere, (self._capabilities.default_model, self._cli, self._start_timeout)

    # --- asking ---------------------------------------------------------------------------

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        check_live("Claude Code")
        where = request.continuation
        if where is None:  # a single question, without the engine
            where = Continuation(f"single-{uuid4().hex}", str(Path.cwd()), lasting=False)
        try:
            async with self._turns:
                conversation = await self._conversation(where, request)
                async with aclosing(conversation.answer(_content(request))) as deltas:
                    async for delta in deltas:
                        yield delta
                self._ours.add(conversation.id)
        finally:
            if request.continuation is None:
                self.end(where.exchange)

    async def _conversation(self, where: Continuation, request: ModelRequest) -> Conversation:
        running = self._running.get(where.exchange)
        if running is not None:
            await running.settled()
            if running.phase != "dead":
                return running
            if running.answered:
                raise ProviderConnectionError(
                    "Claude Code ended in the middle of a turn; ask again", retryable=False
                )
            await running.close()
        setup = _Setup(
            request.model or self._capabilities.default_model,
            request.system,
            json.dumps([(t.name, t.description, dict(t.input_schema)) for t in request.tools]),
            where.folder,
            request.max_tokens,
        )
        idle = self._idle
        if idle is not None and where.lasting:
            self._idle = None
            await idle.settled()
            if idle.id == where.resume and idle.setup == setup and idle.phase in _USABLE:
                self._enter(where, idle)
                return idle
            await idle.close()
        conversation = await self._start(where, setup, request.tools)
        self._enter(where, conversation)
        return conversation

    def _enter(self, where: Continuation, conversation: Conversation) -> None:
        conversation.said = conversation.answered = False
        self._running[where.exchange] = conversation
        self._lasting[where.exchange] = where.lasting

    async def _start(
        self, where: Continuation, setup: _Setup, tools: Sequence[ToolSpec]
    ) -> Conversation:
        sdk = await self._library()
        lifeline = Lifeline(await self._program())
        own = frozenset(t.name for t in tools if t in _OWN_SPECS)
        failure = partial(self._failure, setup.model)
        conversation = Conversation(sdk, setup, own, failure, self._start_timeout)
        options = self._options(sdk, conversation, where, setup, tools, lifeline)
        try:
            await conversation.start(options, lifeline)
        except BaseException:
            lifeline.close()
            raise
        return conversation

    async def _library(self) -> ModuleType:
        if self._sdk is None:
            self._sdk = await asyncio.to_thread(importlib.import_module, LIBRARY)
        return self._sdk

    async def _program(self) -> Path:
        program = self._cli or find_program()
        if program is None or not can_run(program):
            raise ConfigurationError(
                f"the program `{self._cli or os.environ.get(ENVIRONMENT) or 'claude'}` was not"
                " found; install Claude Code, or the wheel of claude-agent-sdk for this system,"
                " which brings it"
            )
        if program != bundled_program() and program not in self._checked:
            await check_program(program, self._start_timeout)
            self._checked.add(program)
        self._used = program
        return program

    def _options(
        self,
        sdk: ModuleType,
        conversation: Conversation,
        where: Continuation,
        setup: _Setup,
        tools: Sequence[ToolSpec],
        lifeline: Lifeline,
    ) -> Any:
        own = [t.name for t in tools if t in _OWN_SPECS]
        ours = [t for t in tools if t not in _OWN_SPECS]
        handlers = [
            sdk.SdkMcpTool(
                t.name, t.description, dict(t.input_schema), partial(conversation.give, t.name)
            )
            for t in ours
        ]
        server = sdk.create_sdk_mcp_server(SERVER, tools=handlers)
        settings = {
            "attribution": {"commit": "", "pr": ""},
            # Rules that ask come before rules that allow, wherever those stand.
            "permissions": {"ask": [*own, *(PREFIX + t.name for t in ours)]},
        }
        return sdk.ClaudeAgentOptions(
            model=setup.model,
            system_prompt=_system_prompt(setup.system, lifeline),
            tools=own,
            mcp_servers={SERVER: server} if ours else {},
            strict_mcp_config=True,
            can_use_tool=conversation.may_run,
            setting_sources=[],
            settings=json.dumps(settings),
            include_partial_messages=True,
            verbatim_prompts=True,
            cwd=where.folder,
            resume=where.resume,
            fork_session=where.resume is not None and where.resume not in self._ours,
            cli_path=lifeline.launcher,
            max_buffer_size=_LINE_BYTES,
            stderr=self._note,
            env={
                **_ENVIRONMENT,
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(setup.max_tokens),
                **self._environment,
                **lifeline.environment,
            },
        )

    def _note(self, line: str) -> None:
        self._stderr = [*self._stderr[-4:], line]

    # --- Conversations --------------------------------------------------------------------

    async def remembers(self, conversation: str, folder: str) -> bool:
        sdk = await self._library()
        found = await asyncio.to_thread(sdk.get_session_info, conversation, folder)
        return found is not None

    async def run_own(self, exchange: str, arguments: Mapping[str, Any]) -> ToolResultBlock:
        return await self._running[exchange].run_own(arguments)

    def deliver(self, exchange: str, result: ToolResultBlock) -> None:
        self._running[exchange].deliver(result)

    def end(self, exchange: str) -> None:
        conversation = self._running.pop(exchange, None)
        if conversation is None:
            return
        if conversation.phase in ("asking", "tools"):
            conversation.stop()
        if not self._lasting.pop(exchange):
            self._let_go(conversation)
            return
        if self._idle is not None:
            self._let_go(self._idle)
        self._idle = conversation

    def _let_go(self, conversation: Conversation) -> None:
        task = asyncio.create_task(conversation.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        for exchange in list(self._running):
            self.end(exchange)
        idle, self._idle = self._idle, None
        if idle is not None:
            self._let_go(idle)
        if self._ending:
            await asyncio.wait(self._ending)

    # --- errors ---------------------------------------------------------------------------

    def _failure(self, model: str, result: Any, cause: str, begun: bool) -> ProviderError:
        """What went wrong, from a result of the CLI or an error of the SDK."""
        said = getattr(result, "errors", None) or getattr(result, "result", None) or str(result)
        text = self._shown(said if isinstance(said, str) else "; ".join(map(str, said)))
        status = getattr(result, "api_error_status", None)
        if status is None and not cause:
            tail = self._shown(" ".join(self._stderr))
            return ProviderConnectionError(
                f"Claude Code failed: {text}" + (f" ({tail})" if tail and tail not in text else ""),
                retryable=not begun,
                semantic_output=begun,
            )
        if cause == _NO_LOGIN or status in (401, 403):
            return AuthenticationFailed(
                f"Claude Code is not logged in, or may not do this: run {self._command()} in a"
                " terminal and type /login, or set ANTHROPIC_API_KEY, or choose another provider"
                f" (provider=, OPENPROGRAM_PROVIDER). It says: {text}",
                retryable=False,
                semantic_output=begun,
                status_code=status,
            )
        kind = "not_found_error" if status == 404 else _CAUSES.get(cause, "")
        answer = ErrorAnswer(status or 200, kind, message=text)
        return provider_error(answer, _PROFILE, model, now=time.time(), semantic=begun)

    def _command(self) -> str:
        """What starts the very program that is asked here."""
        program = str(self._used or "claude")
        return "`claude`" if shutil.which("claude") == program else f"`{shlex.quote(program)}`"

    def _shown(self, text: str) -> str:
        redactor = Redactor(secrets_of({**os.environ, **self._environment}))
        return redactor.text(" ".join(text.split()))[:300]


_USABLE: Final = ("idle", "failed")
_LONGEST_ARGUMENT: Final = 100_000
"""Bytes.  Linux takes 128 KiB in one argument of a command."""


def _system_prompt(text: str, lifeline: Lifeline) -> Any:
    told: str = without_surrogates(text)
    if len(told.encode()) <= _LONGEST_ARGUMENT:
        return told
    return {"type": "file", "path": str(lifeline.keep("system.txt", told))}


def _content(request: ModelRequest) -> list[dict[str, Any]]:
    """What is said to the CLI: the last message, after what it was not there to hear."""
    *before, last = request.messages or (Message("user", ()),)
    results = [b for b in last.content if isinstance(b, ToolResultBlock)]
    if results:
        before = [*before, Message("user", tuple(results))]
    blocks = [
        block_to_json(b)
        for b in last.content
        if not isinstance(b, ToolResultBlock) and not (isinstance(b, TextBlock) and _blank(b))
    ]
    if before:
        blocks.insert(0, {"type": "text", "text": _transcript(before)})
    if request.response_schema is not None:
        blocks.append({"type": "text", "text": format_instruction(request.response_schema)})
    cleaned: list[dict[str, Any]] = without_surrogates(blocks)
    return cleaned


def _blank(block: TextBlock) -> bool:
    return not block.text.strip()


def _transcript(messages: Sequence[Message]) -> str:
    told = "\n\n".join(f"[{m.role}]\n" + "\n".join(map(_told, m.content)) for m in messages)
    return f"<conversation>\n{told}\n</conversation>\nThis was said so far. Go on from here."


def _told(block: Block) -> str:
    match block:
        case TextBlock(text):
            return text
        case ImageBlock(media_type):
            return f"(an image, {media_type})"
        case ToolUseBlock(_, name, arguments):
            return f"(calls the tool {name} with {arguments})"
        case ToolResultBlock(_, content, state):
            return f"(result, {state}:) " + "\n".join(map(_told, content))
        case OpaqueBlock(payload):
            return f"({payload.get('type', 'block')})"
