"""What becomes of a conversation when the SDK fails in a way that it does not tell of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from op_jupyter.errors import ProviderConnectionError, ProviderError
from op_jupyter.providers.claude_conversation import Conversation
from op_jupyter.providers.lifeline import Lifeline

SECONDS = 5.0


class OddClient:
    """A client of the SDK that raises what the SDK raises where it has no class for it."""

    def __init__(self, options: Any) -> None:
        self.asked = asyncio.Event()

    async def connect(self) -> None: ...

    async def disconnect(self) -> None: ...

    async def query(self, prompt: Any) -> None:
        self.asked.set()

    async def receive_messages(self) -> AsyncIterator[Any]:
        await self.asked.wait()
        raise Exception("Control request timeout: initialize")
        yield


class SilentClient(OddClient):
    """One that says nothing, and cannot even be interrupted."""

    async def receive_messages(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def interrupt(self) -> None:
        raise Exception("no such request")


def failure(result: Any, cause: str, begun: bool) -> ProviderError:
    return ProviderConnectionError(f"failed: {result}", retryable=not begun)


async def started(client: type[OddClient]) -> Conversation:
    sdk = ModuleType("sdk")
    sdk.ClaudeSDKClient = client  # type: ignore[attr-defined]
    sdk.ClaudeSDKError = type("ClaudeSDKError", (Exception,), {})  # type: ignore[attr-defined]
    conversation = Conversation(sdk, None, frozenset(), failure, SECONDS)
    await conversation.start(None, Lifeline(Path("/bin/true")))
    return conversation


async def test_who_waits_for_an_answer_is_told_of_any_failure() -> None:
    conversation = await started(OddClient)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(ProviderConnectionError, match="Control request timeout"):
            _ = [delta async for delta in conversation.answer([])]
        await conversation.close()
    assert conversation.phase == "dead"


async def test_a_program_that_cannot_be_stopped_is_ended() -> None:
    conversation = await started(SilentClient)
    asking = asyncio.ensure_future(_ask(conversation))
    async with asyncio.timeout(SECONDS):
        await conversation._client.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await conversation.settled()
        assert conversation.phase == "dead"
        await conversation.close()


async def _ask(conversation: Conversation) -> None:
    async for _ in conversation.answer([]):
        pass
