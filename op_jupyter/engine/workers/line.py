"""The line between a worker and the process that sent a call off.

One socket per map, on loopback unless the caller names another address; a line of JSON is a
message.  Both ends prove that they know the map's token (HMAC), which travelled with the
call.  The worker asks (permissions); the other end answers, or says "stop".  When the line
breaks, the call is stopped: nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from op_jupyter.engine.workers.parcels import Address

Answer: TypeAlias = "Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]"
"""From the id of a call and what it asks to what it is answered."""

CONNECT_SECONDS: Final = 3.0
_LIMIT: Final = 64 << 20
_SIZE: Final = 64  # of a nonce, and of a proof
_DIGITS: Final = 3  # of the length of a call's id


class Switchboard:
    """The end that sent calls off; lives on the background loop."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._token = secrets.token_bytes(32)
        self._server: asyncio.Server | None = None
        self._lines: dict[str, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: set[str] = set()

    async def open(self, host: str) -> Address:
        """Listen at *host*, and say where.

        Raises:
            OSError: this machine has no such address.
        """
        self._server = await asyncio.start_server(self._connected, host, 0, limit=_LIMIT)
        port = self._server.sockets[0].getsockname()[1]
        return Address(host, port, self._token)

    def stop(self, call_id: str) -> None:
        """Tell the worker of that call to stop; one that is not there yet hears it first."""
        self._stopped.add(call_id)
        writer = self._lines.get(call_id)
        if writer is not None:
            writer.write(_line({"stop": True}))

    async def close(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            call_id = await asyncio.wait_for(self._greet(reader, writer), CONNECT_SECONDS)
            if call_id is not None:
                await self._listen(call_id, reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.CancelledError):
            pass  # a stranger, or the worker is gone, or we hang up
        finally:
            await _hang_up(writer)

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str | None:
        """The id of the call that speaks; None: a stranger."""
        nonce = _nonce()
        writer.write(nonce)
        theirs, proof = await reader.readexactly(_SIZE), await reader.readexactly(_SIZE)
        call_id = await reader.readexactly(int(await reader.readexactly(_DIGITS)))
        if not hmac.compare_digest(proof, _proof(self._token, b"worker", nonce, call_id)):
            return None
        writer.write(_proof(self._token, b"home", theirs, call_id))
        return call_id.decode()

    async def _listen(
        self, call_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._lines[call_id] = writer
        asked: set[asyncio.Task[None]] = set()
        try:
            if call_id in self._stopped:
                self.stop(call_id)
            while message := await _message(reader):
                task = asyncio.create_task(self._reply(call_id, message, writer))
                asked.add(task)
                task.add_done_callback(asked.discard)
        finally:
            self._lines.pop(call_id, None)
            for task in tuple(asked):
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _reply(
        self, call_id: str, message: Mapping[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        answer = await self._answer(call_id, message["ask"])
        writer.write(_line({"number": message["number"], "answer": dict(answer)}))


class Line:
    """The worker's end; lives on the background loop of its process."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_stop: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._on_stop = on_stop
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._number = 0
        self._listening = asyncio.create_task(self._listen(reader))

    @classmethod
    async def connect(
        cls, address: Address, call_id: str, on_stop: Callable[[], None]
    ) -> Line | None:
        """A line to *address*; None: nobody we know can be reached there."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, limit=_LIMIT
                )
                if await _introduce(address.token, call_id, reader, writer):
                    return cls(reader, writer, on_stop)
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # told below
        if writer is not None:
            await _hang_up(writer)
        return None

    async def ask(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the other end answers.

        Raises:
            ConnectionError: it is gone.
        """
        self._number += 1
        number = self._number
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        if self._listening.done():
            future.set_exception(ConnectionError("the process that sent this off is gone"))
        self._writer.write(_line({"number": number, "ask": dict(message)}))
        try:
            return await future
        finally:
            del self._asked[number]

    async def close(self) -> None:
        """Hang up; the call is over."""
        self._on_stop = lambda: None
        self._listening.cancel()
        await asyncio.wait([self._listening])
        await _hang_up(self._writer)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while message := await _message(reader):
                if "stop" in message:
                    self._on_stop()
                elif (asked := self._asked.get(message["number"])) and not asked.done():
                    asked.set_result(message["answer"])
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionError("the process that sent this off is gone"))
        self._on_stop()


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _introduce(
    token: bytes, call_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Whether both ends know each other."""
    nonce, name = _nonce(), call_id.encode()
    theirs = await reader.readexactly(_SIZE)
    writer.write(nonce + _proof(token, b"worker", theirs, name) + b"%03d" % len(name) + name)
    proof = await reader.readexactly(_SIZE)
    return hmac.compare_digest(proof, _proof(token, b"home", nonce, name))


def _nonce() -> bytes:
    return secrets.token_hex(_SIZE // 2).encode()


def _proof(token: bytes, *said: bytes) -> bytes:
    return hmac.new(token, b"\n".join(said), "sha256").hexdigest().encode()


async def _message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    data = await reader.readline()
    return _parsed(data) if data.endswith(b"\n") else None


def _parsed(data: bytes) -> dict[str, Any]:
    message: Any = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")
    return message


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
