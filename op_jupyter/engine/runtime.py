"""A runtime: one provider session, the retries around it, and the two ways to ask a model.

`llm` makes one model call, `agent` lets the model use tools until it answers; both are
`Runtime.exec`.  Where the call stands (function, arguments, docstring, history) comes from the
ambient context; the caller only says what to ask.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, overload

from op_jupyter.core.messages import (
    Block,
    ModelDelta,
    ModelRequest,
    ResponseDone,
    TextBlock,
    Usage,
)
from op_jupyter.core.turn import MAX_MODEL_CALLS
from op_jupyter.core.updates import clip
from op_jupyter.engine import context, loop, questions
from op_jupyter.engine.call_options import (
    AgentOptions,
    AllAgentOptions,
    AllAskOptions,
    AllExecOptions,
    AskOptions,
    Content,
    ExecOptions,
    check_options,
    to_blocks,
)
from op_jupyter.engine.calls import ambient_runtime, call_end, open_call, session_tools
from op_jupyter.engine.cancelling import host_can_cancel
from op_jupyter.engine.exchanges import ProviderMemory
from op_jupyter.engine.formats import Misfit, ReplyFormat, format_of, settle, settle_async
from op_jupyter.engine.responses import check_response
from op_jupyter.engine.retry import RetryInfo, RetryPolicy, call_with_retry
from op_jupyter.engine.steps import Plan, Progress, run_steps
from op_jupyter.engine.tool_call import TurnEnd
from op_jupyter.errors import (
    ConfigurationError,
    ProtocolError,
    ProviderError,
    ReplyInvalid,
    RuntimeClosed,
    TurnCancelled,
    TurnFailed,
)
from op_jupyter.providers.base import Provider, holds_nothing
from op_jupyter.tools.toolset import Toolset, toolset_of

T = TypeVar("T")
CLOSE_SECONDS: Final = 5.0


class Reply(str):
    """The model's answer: a string that also says where it came from.

    *stop_reason*: ``end_turn``; ``max_tokens`` when the answer was cut off.
    """

    session_id: str
    turn_id: str
    node_id: str
    usage: Usage
    steps: int
    stop_reason: str


class Runtime:
    """One conversation with one provider.

    Args:
        call: a function ``fn(content, model=..., response_format=None) -> str``, sync or async,
            used as the provider; see `providers.callable`.
        provider: a provider; give this or *call*.
        model: the model, unless a call names another; None: the provider's default.
        max_retries: attempts after the first one, from 0 up.
        timeout: total seconds for one call, retries and waits included; None: no limit.
        on_retry: called after each failed attempt that will be repeated.

    Raises:
        ConfigurationError: neither or both of *call* and *provider* are given, one that is no
            provider, or a number that means nothing.
    """

    def __init__(
        self,
        call: Callable[..., Any] | None = None,
        *,
        provider: Provider | None = None,
        model: str | None = None,
        max_retries: int = 2,
        timeout: float | None = None,
        on_retry: Callable[[RetryInfo], None] | None = None,
    ) -> None:
        if (call is None) == (provider is None):
            raise ConfigurationError(
                "give a Runtime either call= (a function that answers) or provider=; "
                "create_runtime() picks the configured one"
            )
        if provider is not None and not hasattr(provider, "stream"):
            raise ConfigurationError(
                f"provider={provider!r:.60} is no provider; create_runtime(NAME) opens one by name"
            )
        if provider is None and call is not None:
            from op_jupyter.providers.callable import CallableProvider  # anyio, on first use

            provider = CallableProvider(call, model or "callable")
        assert provider is not None
        self.provider: Provider = provider
        self.model = model
        self._max_retries = max_retries
        self._timeout = timeout
        self._on_retry = on_retry
        self._policy(None, None)
        self._closed = False
        self.memory = ProviderMemory()
        self._closing: asyncio.Task[None] | None = None

    # -- asking

    @overload
    def exec(self, content: Content, **options: Unpack[ExecOptions]) -> Reply: ...
    @overload
    def exec(
        self, content: Content, *, response_format: type[T], **options: Unpack[ExecOptions]
    ) -> T: ...
    @overload
    def exec(
        self,
        content: Content,
        *,
        response_format: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
        **options: Unpack[ExecOptions],
    ) -> Any: ...
    def exec(self, content: Content, **options: Unpack[AllExecOptions]) -> Any:
        """Ask and wait; see `async_exec`.  An interrupt cancels the call and is recorded."""
        context.refuse_stray_thread()
        return settle(loop.run_sync(self._exec, content, **options))

    @overload
    async def async_exec(self, content: Content, **options: Unpack[ExecOptions]) -> Reply: ...
    @overload
    async def async_exec(
        self, content: Content, *, response_format: type[T], **options: Unpack[ExecOptions]
    ) -> T: ...
    @overload
    async def async_exec(
        self,
        content: Content,
        *,
        response_format: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
        **options: Unpack[ExecOptions],
    ) -> Any: ...
    async def async_exec(self, content: Content, **options: Unpack[AllExecOptions]) -> Any:
        """Ask the model, let it use *tools*, and return its answer.

        Args:
            content: text, an image block, or a sequence of them.
            tools: functions, agentic functions or `Tool` objects.  Tools that the program passes
                here run without asking.
            max_steps: the most model calls; each may ask for tools.
            model: overrides the runtime's model.
            system: added to the system prompt, after the function's own.
            timeout: seconds for each model call, retries and waits included.
            max_retries: overrides the runtime's.
            on_stream: called with each delta, on the background loop; must be quick.
            response_format: a JSON Schema (dict), a pydantic model, or another type that
                pydantic supports; returns the validated value instead of the text.
            choices: maps names to values or functions; returns the value that the model chose,
                or the result of the function that it chose.

        Raises:
            EmptyInput: nothing to ask.
            UsageError: *response_format* or *choices* cannot be used.
            ReplyInvalid: neither the answer nor a corrected second one fits; ``raw`` is the text.
            RuntimeClosed: after `close`.
            ProviderError: the model could not be asked; every attempt is listed.
            TurnFailed: no answer after *max_steps*, a denied tool, a doom loop.
            TurnCancelled: a tool reported that it was cancelled.
        """
        context.refuse_stray_thread()
        return await settle_async(await loop.run_async(self._exec, content, **options))

    async def _exec(
        self,
        content: Content,
        *,
        tools: Sequence[Any] | Toolset = (),
        max_steps: int = 1,
        model: str | None = None,
        system: str | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
        on_stream: Callable[[ModelDelta], None] | None = None,
        response_format: Any = None,
        choices: Mapping[str, Any] | None = None,
        own_tools: bool = False,
    ) -> Any:
        self._check_open()
        self._policy(timeout, max_retries)  # refused before anything is recorded
        check_options(max_steps, model, system, on_stream)
        blocks = to_blocks(content)
        wanted = format_of(response_format, choices)
        toolset = tools if isinstance(tools, Toolset) else toolset_of(tools, trusted=True)
        subject = clip("".join(b.text for b in blocks if isinstance(b, TextBlock)))
        with open_call(subject) as call:
            frame = call.frame
            plan = Plan(
                session=frame.session,
                turn=call.turn,
                runtime=self,
                tools=toolset,
                max_steps=max_steps,
                asker=frame.asker or frame.session.asker,
                base=frame.base,
                predecessor=call.predecessor,
                frames=frame.views(),
                caller=frame.caller_id,
                nested=call.nested,
                model=model,
                system="\n\n".join(part for part in (frame.system, system) if part),
                schema=None if wanted is None else wanted.schema,
                render_range=frame.render_range,
                main_thread=frame.main_thread or frame.session.main_thread,
                timeout=timeout,
                max_retries=max_retries,
                on_stream=on_stream,
                frame=frame,
                own_tools=own_tools,
                ending=(lambda progress: call_end(frame.session, call.turn, None, progress))
                if call.owns_turn and wanted is None
                else None,
            )
            try:
                async with host_can_cancel():
                    if wanted is not None:
                        return await _value(plan, blocks, call.progress, wanted)
                    await run_steps(plan, blocks, call.progress)
            except TurnEnd as end:
                raise _turn_error(end, plan) from None
            return _reply(plan, call.progress)

    async def call_model(
        self,
        request: ModelRequest,
        *,
        on_delta: Callable[[ModelDelta], None],
        attempts: list[str],
        timeout: float | None = None,
        max_retries: int | None = None,
    ) -> ResponseDone:
        """Send one request, with retries, and return the whole response.

        *attempts* is filled with a line for each attempt that failed.

        Raises:
            ProviderError: see `engine.retry`.
        """
        self._check_open()
        policy = self._policy(timeout, max_retries)

        def note(info: RetryInfo) -> None:
            attempts.append(info.line)
            if self._on_retry is not None:
                self._on_retry(info)

        return await call_with_retry(
            lambda attempt: self._attempt(request, on_delta), policy, on_retry=note
        )

    def _policy(self, timeout: float | None, max_retries: int | None) -> RetryPolicy:
        return RetryPolicy(
            max_retries=self._max_retries if max_retries is None else max_retries,
            timeout=self._timeout if timeout is None else timeout,
        )

    async def _attempt(
        self, request: ModelRequest, on_delta: Callable[[ModelDelta], None]
    ) -> ResponseDone:
        """One attempt: exactly one end of the response, and it comes last."""
        done: ResponseDone | None = None
        seen = False
        try:
            async with aclosing(self.provider.stream(request)) as stream:
                async for delta in stream:
                    if done is not None:
                        raise ProtocolError("the response went on after its end; it was dropped")
                    if isinstance(delta, ResponseDone):
                        done = delta
                    else:
                        seen = True
                        on_delta(delta)
        except ProviderError as error:
            error.semantic_output = error.semantic_output or seen
            raise
        if done is None:
            raise ProtocolError(
                "the response broke off before its end; it was dropped", semantic_output=seen
            )
        check_response(done)
        return done

    # -- the person

    def can_ask(self) -> bool:
        """Whether `ask` and `confirm` can get an answer here and now."""
        return questions.can_ask()

    def ask(
        self,
        prompt: str,
        options: Sequence[str] | None = None,
        multi: bool = False,
        allow_custom: bool = True,
        timeout: float | None = questions.TIMEOUT,
        default: Any = questions.NO_DEFAULT,
    ) -> Any:
        """Ask the person; as `op_jupyter.ask`."""
        return questions.ask(prompt, options, multi, allow_custom, timeout, default)

    def confirm(self, prompt: str, default: bool = False) -> bool:
        """Ask the person for a yes or no; as `op_jupyter.confirm`."""
        return questions.confirm(prompt, default)

    # -- life

    def over(self, provider: Provider) -> Runtime:
        """A runtime with the same model, retries and limits that asks *provider* instead."""
        return Runtime(
            provider=provider,
            model=self.model,
            max_retries=self._max_retries,
            timeout=self._timeout,
            on_retry=self._on_retry,
        )

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("this runtime is closed; create_runtime() opens a new one")

    def close(self) -> None:
        """End the provider session.  Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if holds_nothing(self.provider):
            return
        if loop.on_background_loop():
            self._closing = asyncio.get_running_loop().create_task(self.provider.aclose())
            return
        job = loop.submit(self.provider.aclose)
        concurrent.futures.wait([job.future], timeout=CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A new runtime of the same kind, for a worker.  *on_retry* stays here."""
        return _runtime_elsewhere, (self.provider, self.model, self._max_retries, self._timeout)

    def __repr__(self) -> str:
        return f"<Runtime {self.provider.capabilities.name} {self.model or 'default model'}>"


def _runtime_elsewhere(
    provider: Provider, model: str | None, max_retries: int, timeout: float | None
) -> Runtime:
    return Runtime(provider=provider, model=model, max_retries=max_retries, timeout=timeout)


async def _value(
    plan: Plan, blocks: tuple[Block, ...], progress: Progress, wanted: ReplyFormat
) -> Any:
    """The value of the answer; one that does not fit is sent back once, with what is wrong."""
    await run_steps(plan, (*blocks, *wanted.question), progress)
    try:
        return wanted.read(progress.text)
    except Misfit as misfit:
        again = f"Your answer does not fit: {misfit.told}. Answer again, in the right format."
    await run_steps(plan, (TextBlock(again),), progress)
    try:
        return wanted.read(progress.text)
    except Misfit as misfit:
        raise ReplyInvalid(
            f"the answer does not fit, after the model was told so once: {misfit.shown}; "
            "the attribute `raw` is what it said",
            raw=progress.text,
        ) from None


def _turn_error(end: TurnEnd, plan: Plan) -> TurnFailed | TurnCancelled:
    if end.status == "cancelled":
        return TurnCancelled(end.message, turn_id=plan.turn.id)
    return TurnFailed(f"{end.code}: {end.message}", code=end.code, turn_id=plan.turn.id)


def _reply(plan: Plan, progress: Progress) -> Reply:
    reply = Reply(progress.text)
    reply.session_id = plan.session.session_id
    reply.turn_id = plan.turn.id
    reply.node_id = progress.node.id if progress.node is not None else ""
    reply.usage = progress.usage
    reply.steps = progress.steps
    reply.stop_reason = progress.stop_reason
    return reply


class _Llm:
    """`llm`: one model call, no tools."""

    @overload
    def __call__(self, content: Content, **options: Unpack[AskOptions]) -> Reply: ...
    @overload
    def __call__(
        self, content: Content, *, response_format: type[T], **options: Unpack[AskOptions]
    ) -> T: ...
    @overload
    def __call__(
        self,
        content: Content,
        *,
        response_format: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
        **options: Unpack[AskOptions],
    ) -> Any: ...
    def __call__(self, content: Content, **options: Unpack[AllAskOptions]) -> Any:
        """Ask the ambient runtime and wait for the answer; options as in `Runtime.async_exec`."""
        context.refuse_stray_thread()
        return settle(loop.run_sync(self._ask, content, **options))

    @overload
    async def aio(self, content: Content, **options: Unpack[AskOptions]) -> Reply: ...
    @overload
    async def aio(
        self, content: Content, *, response_format: type[T], **options: Unpack[AskOptions]
    ) -> T: ...
    @overload
    async def aio(
        self,
        content: Content,
        *,
        response_format: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
        **options: Unpack[AskOptions],
    ) -> Any: ...
    async def aio(self, content: Content, **options: Unpack[AllAskOptions]) -> Any:
        """Ask the ambient runtime from async code."""
        context.refuse_stray_thread()
        return await settle_async(await loop.run_async(self._ask, content, **options))

    async def _ask(self, content: Content, **options: Unpack[AllAskOptions]) -> Any:
        with ambient_runtime() as runtime:
            return await runtime._exec(content, **options)


class _Agent:
    """`agent`: model calls and tool calls until the model answers."""

    @overload
    def __call__(self, content: Content, **options: Unpack[AgentOptions]) -> Reply: ...
    @overload
    def __call__(
        self, content: Content, *, response_format: type[T], **options: Unpack[AgentOptions]
    ) -> T: ...
    @overload
    def __call__(
        self,
        content: Content,
        *,
        response_format: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Any: ...
    def __call__(self, content: Content, **options: Unpack[AllAgentOptions]) -> Any:
        """Let the ambient runtime work on *content* with *tools* (None: the session's).

        Options as in `Runtime.async_exec`, which also says what is raised.
        """
        context.refuse_stray_thread()
        return settle(loop.run_sync(self._ask, content, **options))

    @overload
    async def aio(self, content: Content, **options: Unpack[AgentOptions]) -> Reply: ...
    @overload
    async def aio(
        self, content: Content, *, response_format: type[T], **options: Unpack[AgentOptions]
    ) -> T: ...
    @overload
    async def aio(
        self,
        content: Content,
        *,
        response_format: Mapping[str, Any] | None = None,
        choices: Mapping[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Any: ...
    async def aio(self, content: Content, **options: Unpack[AllAgentOptions]) -> Any:
        """The same from async code."""
        context.refuse_stray_thread()
        return await settle_async(await loop.run_async(self._ask, content, **options))

    async def _ask(
        self,
        content: Content,
        *,
        tools: Sequence[Any] | Toolset | None = None,
        max_steps: int = MAX_MODEL_CALLS,
        **options: Unpack[AllAskOptions],
    ) -> Any:
        given = session_tools() if tools is None else tools
        with ambient_runtime() as runtime:
            return await runtime._exec(
                content, tools=given, max_steps=max_steps, own_tools=tools is None, **options
            )


llm = _Llm()
agent = _Agent()
