"""What every provider promises, as tests to inherit.

    class TestMyProvider(ToolCallingContract, StreamingContract):
        @asynccontextmanager
        async def answering(self, text):
            ...
            yield provider

Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeAlias

import pytest

from op_jupyter.core.messages import (
    ModelDelta,
    ModelRequest,
    ResponseDone,
    TextDelta,
    ToolSpec,
    ToolUseStarted,
    user_text,
)
from op_jupyter.errors import ProviderError
from op_jupyter.providers.base import Provider

REQUEST = ModelRequest(
    model="claude-opus-5-5",
    messages=(user_text("What is 1 + 2?"),),
    system="Answer briefly.",
    tools=(ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {}}),),
)

Reached: TypeAlias = Callable[[], Awaitable[None]]


async def collect(provider: Provider, request: ModelRequest = REQUEST) -> list[ModelDelta]:
    """Everything *provider* yields for *request*."""
    async with aclosing(provider.stream(request)) as stream:
        return [delta async for delta in stream]


async def collect_until_error(
    provider: Provider, request: ModelRequest = REQUEST
) -> tuple[list[ModelDelta], ProviderError]:
    """What *provider* yields before it fails, and the error."""
    seen: list[ModelDelta] = []

    async def read() -> None:
        async with aclosing(provider.stream(request)) as stream:
            async for delta in stream:
                seen.append(delta)  # noqa: PERF401 -- kept although the stream fails

    with pytest.raises(ProviderError) as caught:
        await read()
    return seen, caught.value


class ProviderContract(ABC):
    """The promises of every provider."""

    @abstractmethod
    def answering(self, text: str) -> AbstractAsyncContextManager[Provider]:
        """A provider whose model answers *text* to every request."""

    @abstractmethod
    def waiting(self) -> AbstractAsyncContextManager[tuple[Provider, Reached]]:
        """A provider whose first answer never comes to its end (and *reached*, which waits
        until the request hangs), and whose second is whole."""

    @abstractmethod
    def unreachable(self) -> AbstractAsyncContextManager[Provider]:
        """A provider whose service cannot be reached."""

    async def test_a_response_ends_with_exactly_one_whole_message(self) -> None:
        async with self.answering("It is 3.") as provider:
            deltas = await collect(provider)
        assert [d for d in deltas if isinstance(d, ResponseDone)] == deltas[-1:]
        done = deltas[-1]
        assert isinstance(done, ResponseDone)
        assert (done.message.role, done.message.text) == ("assistant", "It is 3.")
        assert done.stop_reason == "end_turn"

    async def test_the_pieces_shown_are_the_text_of_the_message(self) -> None:
        async with self.answering("It is 3, I think.") as provider:
            deltas = await collect(provider)
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "It is 3, I think."

    async def test_requests_at_the_same_time_do_not_mix(self) -> None:
        async with self.answering("It is 3.") as provider:
            answers = await asyncio.gather(*(collect(provider) for _ in range(5)))
        assert [a[-1].message.text for a in answers] == ["It is 3."] * 5  # type: ignore[union-attr]

    async def test_cancelling_passes_through_and_leaves_the_provider_usable(self) -> None:
        async with self.waiting() as (provider, reached):
            task = asyncio.create_task(collect(provider))
            await reached()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert isinstance((await collect(provider))[-1], ResponseDone)

    async def test_an_unreachable_service_is_an_error_worth_another_attempt(self) -> None:
        async with self.unreachable() as provider:
            seen, error = await collect_until_error(provider)
        assert seen == []
        assert (error.retryable, error.semantic_output) == (True, False)

    async def test_closing_twice_is_harmless(self) -> None:
        async with self.answering("ok") as provider:
            await collect(provider)
            await provider.aclose()
            await provider.aclose()

    async def test_it_says_what_it_is(self) -> None:
        async with self.answering("ok") as provider:
            told = provider.capabilities
        assert told.name
        assert told.default_model
        assert 0 < told.max_output_tokens <= told.context_tokens


class StreamingContract(ProviderContract):
    """The promises of a provider that shows an answer before it is whole."""

    @abstractmethod
    def breaking_midway(self) -> AbstractAsyncContextManager[Provider]:
        """A provider whose connection breaks after the first words of the answer."""

    async def test_a_broken_answer_is_never_a_message_and_never_retried(self) -> None:
        async with self.breaking_midway() as provider:
            seen, error = await collect_until_error(provider)
        assert any(isinstance(d, TextDelta) for d in seen)
        assert not any(isinstance(d, ResponseDone) for d in seen)
        assert (error.retryable, error.semantic_output) == (False, True)

    async def test_leaving_the_stream_early_leaves_the_provider_usable(self) -> None:
        async with self.answering("It is 3, I think.") as provider:
            async with aclosing(provider.stream(REQUEST)) as stream:
                await anext(stream)
            assert isinstance((await collect(provider))[-1], ResponseDone)


class ToolCallingContract(ProviderContract):
    """The promises of a provider whose model can ask for tools."""

    @abstractmethod
    def calling(
        self, name: str, arguments: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[Provider]:
        """A provider whose model asks for one tool call."""

    async def test_a_tool_call_is_announced_and_then_whole(self) -> None:
        async with self.calling("add", {"a": 1, "b": 2}) as provider:
            deltas = await collect(provider)
        assert [d.name for d in deltas if isinstance(d, ToolUseStarted)] == ["add"]
        done = deltas[-1]
        assert isinstance(done, ResponseDone)
        assert done.stop_reason == "tool_use"
        (use,) = done.message.tool_uses
        assert use.id
        assert (use.name, json.loads(use.arguments)) == ("add", {"a": 1, "b": 2})
