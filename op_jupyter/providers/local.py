"""The embedded model: tiny, real, offline, on this machine alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

from op_jupyter.core.messages import ModelDelta, ModelRequest
from op_jupyter.errors import ContextOverflow, InvalidRequest
from op_jupyter.providers.anthropic import AnthropicProvider
from op_jupyter.providers.base import Capabilities
from op_jupyter.providers.live import check_live
from op_jupyter.providers.local_format import stream_format
from op_jupyter.providers.local_profile import CONTEXT_TOKENS, endpoint, prepare
from op_jupyter.providers.local_server import shared_server

_CAPABILITIES: Final = endpoint("http://127.0.0.1", "").capabilities


class Server(Protocol):
    """A running Messages server, as far as this provider needs it."""

    @property
    def base_url(self) -> str: ...

    @property
    def api_key(self) -> str: ...


def _shared() -> Server:
    return shared_server(context_tokens=CONTEXT_TOKENS)


class LocalProvider:
    """Provider for the tiny model on this machine.

    *serve* returns the running server, and starts it when there is none; it may block, so it is
    called in a thread, before every request.  A server that died is thus replaced by the next
    attempt.  The server outlives this provider: all that ask the model share it.
    """

    def __init__(self, serve: Callable[[], Server] = _shared) -> None:
        self._serve = serve
        self._server: Server | None = None
        self._client: AnthropicProvider | None = None
        self._connecting = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        check_live("the local model")
        client = await self._connected()
        if request.response_schema is not None and not request.tools:
            try:
                async with aclosing(stream_format(request, client.profile)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except ContextOverflow:
                raise
            except InvalidRequest:
                pass  # no grammar can be made of this schema: it is asked for in words
        async with aclosing(client.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        client, self._client, self._server = self._client, None, None
        if client is not None:
            await client.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        """The same provider elsewhere, which starts its own server."""
        return LocalProvider, (self._serve,)

    async def _connected(self) -> AnthropicProvider:
        """A client of the server that runs now."""
        async with self._connecting:
            server = await asyncio.to_thread(self._serve)
            if self._client is None or server is not self._server:
                await self.aclose()
                profile = endpoint(server.base_url, server.api_key)
                self._server, self._client = server, AnthropicProvider(profile, adapt=prepare)
            return self._client
