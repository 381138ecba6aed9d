"""A faithful fake of the Messages service, over real HTTP.

    with FakeMessages() as fake:
        fake.script(Reply([tool("add", a=1, b=2)]), Reply([text("3")], fault="abort"))
        ...                                     # talk to fake.url with the key API_KEY
        assert fake.requests[1].body["messages"][-1]["content"][0]["content"] == "3"

It answers from its script, then from *default*; it refuses what the real service refuses, and
breaks in every way a stream can break (see `Fault`).  For other processes and languages:

    python -m op_jupyter.testing.fake_messages 8099
    curl -d '[{"status": 529}]' localhost:8099/_script

Needs aiohttp (``pip install aiohttp``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from aiohttp import web

from op_jupyter.core.values import dataclass
from op_jupyter.testing.message_rules import API_KEY, PromptCache, ServiceRules, violation
from op_jupyter.testing.message_stream import (
    HTML_PAGE,
    Fault,
    Reply,
    error_json,
    estimate_tokens,
    events,
    frame,
    message_json,
    redacted_thinking,
    stream_bytes,
    text,
    thinking,
    tool,
)

__all__ = [
    "API_KEY",
    "FakeMessages",
    "Fault",
    "ReceivedRequest",
    "Reply",
    "ServiceRules",
    "echo",
    "last_results",
    "last_text",
    "redacted_thinking",
    "stream_bytes",
    "text",
    "thinking",
    "tool",
]

_MAX_BODY_BYTES: Final = 64 << 20
_POLL: Final = 0.02
_CUTTING: Final = frozenset({"abort", "close", "eof"})
_NESTED_LEVELS: Final = 50_000


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """What a client sent; header names are lower case, *body* is parsed JSON or text."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def last_text(body: Mapping[str, Any]) -> str:
    """The text of the last message, for *default* functions."""
    content = body["messages"][-1]["content"]
    blocks = [text(content)] if isinstance(content, str) else content
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def last_results(body: Mapping[str, Any]) -> list[str]:
    """The texts of the tool results in the last message, for *default* functions."""
    content = body["messages"][-1]["content"]
    return [_text_of(block) for block in content if block["type"] == "tool_result"]


def _text_of(result: Mapping[str, Any]) -> str:
    content = result.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def echo(body: Mapping[str, Any]) -> Reply:
    """Repeat what was said, or report the tools' results."""
    results = [] if isinstance(body["messages"][-1]["content"], str) else last_results(body)
    if results:
        return Reply([text("The tools say: " + "; ".join(results))])
    return Reply([text(f"You said: {last_text(body)}")])


class FakeMessages:
    """The service, on a thread and event loop of its own while the ``with`` block runs.

    Every method may be called from any thread.

    Attributes:
        requests: what arrived, in order, refused requests included.
        active: answers that are being sent at this moment.
        peers: host and port of each connection that a request came over.
    """

    def __init__(
        self,
        *,
        default: Callable[[Mapping[str, Any]], Reply] = echo,
        rules: ServiceRules | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.requests: list[ReceivedRequest] = []
        self.active = 0
        self.peers: set[tuple[str, int]] = set()
        self._default = default
        self._rules = rules or ServiceRules()
        self._address = (host, port)
        self._script: deque[Reply] = deque()
        self._cache = PromptCache()
        self._paused: list[Sequence[Mapping[str, Any]]] = []
        self._held = 0
        self._released: asyncio.Event  # made on the loop
        self._stopping: asyncio.Event
        self._changed = threading.Condition()
        self._started: Future[str] = Future()
        self._loop = asyncio.new_event_loop()
        self._server: web.Server
        self._thread = threading.Thread(target=self._run, name="fake-messages", daemon=True)

    # --- for the test ---------------------------------------------------------------------

    def __enter__(self) -> FakeMessages:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """Base URL for clients, without ``/v1``."""
        return self._started.result()

    @property
    def connections(self) -> int:
        """TCP connections that are open, idle ones included."""
        return len(self._server.connections)

    def script(self, *replies: Reply) -> None:
        """Queue *replies*; they come before the default."""
        self._script.extend(replies)

    def set_default(self, default: Callable[[Mapping[str, Any]], Reply]) -> None:
        """Answer with *default* from now on whenever the script is empty."""
        self._default = default

    def reset(self) -> None:
        """Forget the script and the requests."""
        self._script.clear()
        self.requests.clear()

    def release(self) -> None:
        """Let every answer go on that stands at a ``hold``, and those to come."""
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_held(self, timeout: float = 60) -> None:
        """Block until an answer stands at a ``hold`` or ``hang``."""
        self._wait(lambda: self._held > 0, timeout, "no answer reached its hold")

    def wait_idle(self, timeout: float = 60) -> None:
        """Block until no answer is being sent."""
        self._wait(lambda: self.active == 0, timeout, "an answer is still being sent")

    def wait_requests(self, count: int, timeout: float = 60) -> None:
        """Block until *count* requests have arrived."""
        self._wait(lambda: len(self.requests) >= count, timeout, f"fewer than {count} requests")

    def wait_connections(self, count: int, timeout: float = 60) -> None:
        """Block until at most *count* TCP connections are open."""
        self._wait(lambda: self.connections <= count, timeout, f"more than {count} connections")

    def _wait(self, ready: Callable[[], bool], timeout: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not ready():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{otherwise} after {timeout:g} s")
                self._changed.wait(_POLL)  # the end of a connection notifies nobody

    # --- the server -----------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._started.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._released = asyncio.Event()
        # Cancelled with its client, so that `active` tells when a client has really gone.
        runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address).start()
            assert runner.server is not None
            self._server = runner.server
            host, port = runner.addresses[0][:2]
            self._started.set_result(f"http://{host}:{port}")
            await self._stopping.wait()
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/v1/messages", self._messages),
                web.post("/v1/messages/count_tokens", self._count_tokens),
                web.get("/v1/models", self._models),
                web.post("/_script", self._control_script),
                web.post("/_release", self._control_release),
                web.post("/_reset", self._control_reset),
                web.get("/_requests", self._control_requests),
                web.route("*", "/{path:.*}", self._unknown),
            ]
        )
        return app

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        self._count_active(+1)
        try:
            return await self._answer(request)
        finally:
            self._count_active(-1)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError:
            return self._error(Reply(status=400, error_message="the body is not JSON"))
        headers = self._record(request, body)
        if refused := violation(body, headers, self._rules, self._paused):
            status, kind, message = refused
            return self._error(Reply(status=status, error_type=kind, error_message=message))
        reply = self._script.popleft() if self._script else self._default(body)
        if reply.stop_reason == "pause_turn":
            self._paused.append(reply.blocks)
        await asyncio.sleep(reply.ttft)
        if reply.status != 200:
            return self._error(reply)
        if reply.fault == "html":
            return web.Response(text=HTML_PAGE, content_type="text/html")
        message_id, usage = f"msg_{len(self.requests):04d}", self._cache.usage(body)
        if not body.get("stream"):
            return web.json_response(message_json(reply, body["model"], message_id, usage))
        if reply.fault == "drop" and request.transport is not None:
            request.transport.abort()
            return web.Response()
        response = web.StreamResponse(headers=self._stream_headers(reply))
        await response.prepare(request)
        stream = _Stream(request, response, reply, self._hold)
        with suppress(ConnectionResetError):  # the client has gone, which is its right
            await stream.send([*events(reply, body["model"], message_id, usage)])
        return response

    def _stream_headers(self, reply: Reply) -> dict[str, str]:
        return {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "request-id": self._request_id,
            **reply.headers,
        }

    async def _hold(self, *, releasable: bool) -> None:
        self._count_held(+1)
        try:
            if releasable:
                await self._released.wait()
            else:
                await self._loop.create_future()
        finally:
            self._count_held(-1)

    async def _count_tokens(self, request: web.Request) -> web.Response:
        body = await request.json()
        headers = self._record(request, body)
        if refused := violation({"max_tokens": 1, **body}, headers, self._rules):
            status, kind, message = refused
            return self._error(Reply(status=status, error_type=kind, error_message=message))
        return web.json_response({"input_tokens": estimate_tokens(body)})

    async def _models(self, request: web.Request) -> web.Response:
        self._record(request, "")
        models = [{"type": "model", "id": m, "display_name": m} for m in self._rules.models]
        return web.json_response({"data": models, "has_more": False})

    async def _unknown(self, request: web.Request) -> web.Response:
        self._record(request, await request.text())
        message = f"{request.method} {request.path}"
        return self._error(Reply(status=404, error_type="not_found_error", error_message=message))

    def _error(self, reply: Reply) -> web.Response:
        headers = {"request-id": self._request_id, **reply.headers}
        if reply.page:
            return web.Response(
                text=reply.page, status=reply.status, headers=headers, content_type="text/html"
            )
        body = error_json(reply, self._request_id)
        return web.json_response(body, status=reply.status, headers=headers)

    @property
    def _request_id(self) -> str:
        return f"req_{len(self.requests):04d}"

    def _record(self, request: web.Request, body: Any) -> dict[str, str]:
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._changed:
            self.requests.append(ReceivedRequest(request.method, request.path_qs, headers, body))
            if request.transport is not None:  # otherwise the client is gone again
                self.peers.add(request.transport.get_extra_info("peername")[:2])
            self._changed.notify_all()
        return headers

    def _count_active(self, change: int) -> None:
        with self._changed:
            self.active += change
            self._changed.notify_all()

    def _count_held(self, change: int) -> None:
        with self._changed:
            self._held += change
            self._changed.notify_all()

    # --- control over HTTP ----------------------------------------------------------------

    async def _control_script(self, request: web.Request) -> web.Response:
        try:
            replies = [Reply.from_json(item) for item in await request.json()]
        except (ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        self.script(*replies)
        return web.json_response({"queued": len(self._script)})

    async def _control_release(self, request: web.Request) -> web.Response:
        self._released.set()
        return web.json_response({})

    async def _control_reset(self, request: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})

    async def _control_requests(self, request: web.Request) -> web.Response:
        received = [
            {"method": r.method, "path": r.path, "headers": dict(r.headers), "body": r.body}
            for r in self.requests
        ]
        return web.json_response(received)


class _Stream:
    """One answer on its way: the events of a reply, and its fault."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        reply: Reply,
        hold: Callable[..., Any],
    ) -> None:
        self._request = request
        self._response = response
        self._reply = reply
        self._hold = hold

    async def send(self, stream: list[dict[str, Any]]) -> None:
        if self._reply.cut is not None:
            whole = b"".join(frame(event) for event in stream)
            await self._response.write(whole[: self._reply.cut])
            await self._end()
            return
        for index, event in enumerate(stream):
            if index == self._reply.at and await self._strike():
                return
            await asyncio.sleep(self._reply.delay)
            await self._response.write(frame(event))
        if self._reply.at >= len(stream) and await self._strike():
            return
        await self._response.write_eof()

    async def _strike(self) -> bool:
        """Do what goes wrong here; whether the answer is over by that."""
        match self._reply.fault:
            case fault if fault in _CUTTING:
                await self._end()
                return True
            case "error":
                await self._response.write(frame(error_json(self._reply)))
                await self._response.write_eof()
                return True
            case "hang":
                await self._hold(releasable=False)
            case "hold":
                await self._hold(releasable=True)
            case "malformed":
                broken = b'event: content_block_delta\ndata: {"type":"content_bl\n\n'
                await self._response.write(broken)
            case "nested":
                await self._response.write(b"data: " + b"[" * _NESTED_LEVELS + b"\n\n")
            case "bad_order":
                delta = {"type": "text_delta", "text": "x"}
                await self._response.write(
                    frame({"type": "content_block_delta", "index": 7, "delta": delta})
                )
            case "unknown":
                await self._response.write(frame({"type": "brand_new_event", "x": 1}))
        return False

    async def _end(self) -> None:
        transport = self._request.transport
        if self._reply.fault == "eof" or transport is None:
            await self._response.write_eof()
        elif self._reply.fault == "close":
            transport.close()
        else:
            transport.abort()


def _parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m op_jupyter.testing.fake_messages")
    parser.add_argument("port", type=int, help="TCP port on 127.0.0.1; 0 picks a free one")
    parser.add_argument("--key", default=API_KEY, help="the key it accepts")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Serve until interrupted; the first line of output is the URL, as JSON."""
    options = _parse_arguments(arguments)
    rules = ServiceRules(api_key=options.key)
    with FakeMessages(rules=rules, port=options.port) as fake:
        sys.stdout.write(json.dumps({"url": fake.url}) + "\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
