"""The Messages API through Anthropic's SDK.

The SDK takes more than a second to import, so it is loaded on the first request, in a thread.
Its retries are off: `engine.retry` counts every attempt.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from op_jupyter.core.messages import ModelDelta, ModelRequest
from op_jupyter.errors import (
    ConfigurationError,
    ProtocolError,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
)
from op_jupyter.providers.base import Capabilities
from op_jupyter.providers.live import check_live
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.providers.request_body import body_bytes, request_body
from op_jupyter.providers.response_assembly import Assembly
from op_jupyter.providers.service_errors import ErrorAnswer, parse_error, provider_error
from op_jupyter.providers.structured import is_constrainable

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic, AsyncStream
    from anthropic.types import RawMessageStreamEvent


def _without_key(profile: EndpointProfile) -> tuple[EndpointProfile, str]:
    """*profile* without its key, and the name of the field that held it."""
    field = next((f for f in ("api_key", "auth_token") if getattr(profile, f)), "")
    if field and not profile.key_source.isidentifier():
        raise ConfigurationError(
            f"the key of {profile.name} was given in code, and keys do not travel to workers; "
            "set it in an environment variable, here and where the workers run"
        )
    return replace(profile, api_key=None, auth_token=None, needs_key=False), field


def _elsewhere(
    bare: EndpointProfile,
    field: str,
    adapt: Callable[[dict[str, Any]], dict[str, Any]],
    end_grace: float,
) -> AnthropicProvider:
    key = os.environ.get(bare.key_source)
    if field and not key:
        raise ConfigurationError(
            f"the worker has no key for {bare.name}: set {bare.key_source} where it runs"
        )
    if field == "api_key":
        bare = replace(bare, api_key=key)
    elif field:
        bare = replace(bare, auth_token=key)
    return AnthropicProvider(bare, adapt=adapt, end_grace=end_grace)


class AnthropicProvider:
    """Provider for the endpoint that *profile* describes.  Use it from one event loop.

    A service gets *end_grace* seconds to close the stream after the end of its message: reading
    to the end shows a second message, and lets the connection be used again.  *adapt* changes
    the body before it is sent, for a model that needs more than a profile can say.
    """

    keeps_connections = True

    def __init__(
        self,
        profile: EndpointProfile,
        *,
        adapt: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body,
        end_grace: float = 2.0,
    ) -> None:
        if profile.needs_key and not (profile.api_key or profile.auth_token):
            raise ConfigurationError(
                f"no key for {profile.name}: set ANTHROPIC_API_KEY, or choose another provider"
            )
        self._profile = profile
        self._adapt = adapt
        self._end_grace = end_grace
        self._sdk: ModuleType
        self._http: ModuleType
        self._client: AsyncAnthropic | None = None
        self._starting = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return self._profile.capabilities

    @property
    def profile(self) -> EndpointProfile:
        """The endpoint that it asks."""
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        check_live(self._profile.name)
        client = await self._ready_client()
        schema = self._native_schema(request.response_schema)
        body = self._adapt(request_body(request, self._profile, schema))
        assembly = Assembly()
        async with aclosing(self._events(client, body, assembly)) as events:
            async for event in events:
                delta = assembly.feed(event)
                if delta is not None:
                    yield delta
        yield assembly.finish()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """The same provider elsewhere.  A key never travels: it is looked up where it runs.

        Raises:
            ConfigurationError: the key does not come from an environment variable.
        """
        bare, field = _without_key(self._profile)
        return _elsewhere, (bare, field, self._adapt, self._end_grace)

    def _native_schema(self, schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if schema is None or not self._profile.supports_schema or not is_constrainable(schema):
            return None
        try:
            native: dict[str, Any] = self._sdk.transform_schema(dict(schema))
        except ValueError:
            return None  # no way to say it in the subset that the service knows
        return native

    # --- the client -----------------------------------------------------------------------

    async def _ready_client(self) -> AsyncAnthropic:
        async with self._starting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._make_client)
            return self._client

    def _make_client(self) -> AsyncAnthropic:
        self._sdk = importlib.import_module("anthropic")
        self._http = importlib.import_module("httpx2")
        profile = self._profile
        # With neither key nor token, the SDK would go and look for credentials of its own.
        key = profile.api_key or (None if profile.auth_token else "none")
        client: AsyncAnthropic = self._sdk.AsyncAnthropic(
            api_key=key,
            auth_token=None if key else profile.auth_token,
            base_url=profile.base_url,
            default_headers=self._headers(key),
            max_retries=0,
            timeout=self._sdk.Timeout(
                connect=profile.connect_timeout, read=profile.read_timeout, write=60, pool=10
            ),
            # A proxy of the environment does not lead to this machine's loopback.
            http_client=self._sdk.DefaultAsyncHttpxClient(trust_env=not profile.is_loopback),
            open_telemetry=False,  # the engine traces model calls
        )
        return client

    def _headers(self, key: str | None) -> dict[str, Any]:
        profile = self._profile
        headers: dict[str, Any] = dict(profile.headers)
        if profile.api_version:
            headers["anthropic-version"] = profile.api_version
        if key and profile.auth != "bearer":
            headers["x-api-key"] = key
        if key and profile.auth == "x-api-key":
            headers["Authorization"] = self._sdk.Omit()
        return headers

    # --- one request ----------------------------------------------------------------------

    async def _events(
        self, client: AsyncAnthropic, body: dict[str, Any], assembly: Assembly
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """The events of the answer, until its stream ends.

        They come from below the SDK's event classes: those hide a cut message, and parse tool
        arguments whose raw text we keep.
        """
        async with self._translated(body["model"], assembly):
            stream = await self._post(client, body)
            try:
                self._check_is_stream(stream.response)
                async with aclosing(self._read(stream.response, assembly)) as events:
                    async for event in events:
                        if event["type"] == "error":
                            answer = parse_error(200, event, stream.response.headers)
                            raise self._refusal(answer, body["model"], assembly)
                        yield event
            finally:
                await stream.close()

    async def _post(
        self, client: AsyncAnthropic, body: Mapping[str, Any]
    ) -> AsyncStream[RawMessageStreamEvent]:
        """Send *body*, as the bytes that it is: ``messages.create`` would copy each part of it."""
        whole = {**body, "stream": True, **self._profile.extra_body}
        return await client.post(
            "/v1/messages",
            content=body_bytes(whole),
            cast_to=self._sdk.types.Message,
            stream=True,
            stream_cls=self._sdk.AsyncStream[self._sdk.types.RawMessageStreamEvent],
        )

    async def _read(
        self, response: httpx2.Response, assembly: Assembly
    ) -> AsyncGenerator[Mapping[str, Any]]:
        async with aclosing(self._sdk.AsyncStream.raw_events(response)) as lines:
            while True:
                try:
                    if assembly.is_complete:
                        async with asyncio.timeout(self._end_grace):
                            event = await anext(lines)
                    else:
                        event = await anext(lines)
                except StopAsyncIteration:
                    return
                except (TimeoutError, self._http.HTTPError):
                    if assembly.is_complete:
                        return  # the message was whole before the connection went wrong
                    raise
                if event.data and event.event != "ping":
                    yield _parse_event(event.event, event.data)

    def _check_is_stream(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise ProtocolError(
                f"{self._profile.base_url} answered with {kind or 'no content type'}, not with a"
                " stream; check the base URL, or whether the network asks for a login"
            )

    # --- errors ---------------------------------------------------------------------------

    @asynccontextmanager
    async def _translated(self, model: str, assembly: Assembly) -> AsyncIterator[None]:
        """Turn what the SDK and its HTTP library raise into `ProviderError`."""
        try:
            yield
        except self._sdk.APIStatusError as error:
            answer = parse_error(error.status_code, error.body, error.response.headers)
            raise self._refusal(answer, model, assembly) from self._shown(error)
        except (self._sdk.APIConnectionError, self._http.HTTPError) as error:
            raise self._disconnected(error, assembly) from self._shown(error)
        except (ValueError, RecursionError) as error:  # no JSON, JSON without end, or no UTF-8
            raise ProtocolError(
                f"{self._profile.name} sent a broken stream: {type(error).__name__}",
                semantic_output=assembly.semantic_output,
            ) from error

    def _refusal(self, answer: ErrorAnswer, model: str, assembly: Assembly) -> ProviderError:
        return provider_error(
            answer, self._profile, model, now=time.time(), semantic=assembly.semantic_output
        )

    def _disconnected(self, error: Exception, assembly: Assembly) -> ProviderError:
        timed_out = isinstance(error, self._sdk.APITimeoutError | self._http.TimeoutException)
        kind = ProviderTimeout if timed_out else ProviderConnectionError
        what = "was silent for too long" if timed_out else "could not be reached"
        if assembly.has_started:
            what = "went silent in the middle of an answer" if timed_out else "broke off an answer"
        advice = "is it running?" if self._profile.is_loopback else "check the network"
        cause = type(error.__cause__ or error).__name__
        return kind(
            f"{self._profile.name} at {self._profile.base_url} {what} ({cause}); {advice}",
            retryable=not assembly.semantic_output,
            semantic_output=assembly.semantic_output,
        )

    def _shown(self, error: Exception) -> Exception | None:
        """*error* as the cause in a traceback, unless it repeats a secret."""
        return error if self._profile.redact(str(error)) == str(error) else None


def _parse_event(name: str | None, data: str) -> dict[str, Any]:
    """One event; some servers give its type only as the event's name."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("an event that is no object")
    return {"type": name, **value}
