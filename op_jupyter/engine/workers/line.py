"""The line between a process that works and the process that sent calls off.

One socket for each map and process, on loopback unless the caller names another address; a
line of JSON is a message.  Both ends prove that they know the map's token (HMAC), which
travelled with the calls.  The worker says which calls it begins, and asks (permissions); the
other end answers, tells news, or says "stop", and hangs up when the map is over.  That a call is
over is not told: its outcome says so.  When the line breaks, the calls are stopped: nobody waits
for them any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias

from op_jupyter.engine.workers.parcels import Address

Answer: TypeAlias = "Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]"
"""From the id of a call and what it asks to what it is answered."""

CONNECT_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.1
_LIMIT: Final = 64 << 20
_SIZE: Final = 64  # of a nonce, and of a proof
_GONE: Final = "the process that sent this off is gone"


class Switchboard:
    """The end that sent calls off; lives on the background loop."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._token = secrets.token_bytes(32)
        self._door: socket.socket | None = None
        self._lines: dict[str, asyncio.StreamWriter] = {}
        self._asked: dict[str, set[asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: set[str] = set()
        self._news: Mapping[str, Any] | None = None

    async def open(self, host: str) -> Address:
        """Listen at *host*, and say where.

        Raises:
            OSError: this machine has no such address.
        """
        family, _, _, _, at = (
            await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        )[0]
        # No `asyncio.Server`: it leaves those open who come while it is being closed.
        door = self._door = socket.create_server(at[:2], family=family)
        door.setblocking(False)
        self._wait_at(door)
        return Address(host, door.getsockname()[1], self._token)

    def reaches(self, call_id: str) -> bool:
        """Whether that call runs, and hears us."""
        return call_id in self._lines

    def stop(self, call_id: str) -> None:
        """Have that call stopped; one that has not begun hears it when it does."""
        self._stopped.add(call_id)
        writer = self._lines.get(call_id)
        if writer is not None:
            writer.write(_line({"stop": call_id}))

    def tell(self, news: Mapping[str, Any]) -> None:
        """Tell all calls, those that have not begun when they do; later news replace earlier."""
        self._news = news
        for writer in set(self._lines.values()):
            writer.write(_line({"news": news}))

    async def close(self) -> None:
        """Hang up."""
        if self._door is not None:
            asyncio.get_running_loop().remove_reader(self._door)
            self._door.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wait_at(self, door: socket.socket) -> None:
        if door.fileno() != -1:  # otherwise it was closed meanwhile
            asyncio.get_running_loop().add_reader(door, self._let_in, door)

    def _let_in(self, door: socket.socket) -> None:
        try:
            came, _ = door.accept()
        except OSError:  # who came is gone again, or there is no room for more yet
            running = asyncio.get_running_loop()
            running.remove_reader(door)
            running.call_later(_PAUSE_SECONDS, self._wait_at, door)
            return
        task = self._task(self._talk(came))
        task.add_done_callback(lambda _: came.close())  # it may be called off before it begins

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """*work*, which ends when we hang up at the latest."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _talk(self, came: socket.socket) -> None:
        came.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=came, limit=_LIMIT)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):  # `wait_for` may swallow a cancel
                known = await self._greet(reader, writer)
            if known:
                await self._listen(reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.CancelledError):
            pass  # a stranger, or the worker is gone, or we hang up
        finally:
            await _hang_up(writer)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether it is a process that we sent something."""
        nonce = _nonce()
        writer.write(nonce)
        theirs, proof = await reader.readexactly(_SIZE), await reader.readexactly(_SIZE)
        if not hmac.compare_digest(proof, _proof(self._token, b"worker", nonce)):
            return False
        writer.write(_proof(self._token, b"home", theirs))
        return True

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while message := await _message(reader):
                call_id = str(message.get("call"))
                match message:
                    case {"says": "begin"}:
                        self._begin(call_id, writer)
                    case {"ask": asked, "number": number} if self._lines.get(call_id) is writer:
                        task = self._task(self._reply(call_id, number, asked, writer))
                        self._asked[call_id].add(task)
                        task.add_done_callback(self._asked[call_id].discard)
        finally:
            for call_id in [call_id for call_id, to in self._lines.items() if to is writer]:
                self.over(call_id)

    def _begin(self, call_id: str, writer: asyncio.StreamWriter) -> None:
        self.over(call_id)  # where it began before: an executor may run it once more
        self._lines[call_id] = writer
        self._asked[call_id] = set()
        if self._news is not None:
            writer.write(_line({"news": self._news}))
        if call_id in self._stopped:
            self.stop(call_id)

    def over(self, call_id: str) -> None:
        """That call is over: what it still asks is taken back."""
        self._lines.pop(call_id, None)
        for task in self._asked.pop(call_id, ()):
            task.cancel()

    async def _reply(
        self, call_id: str, number: int, asked: Mapping[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        answer = await self._answer(call_id, asked)
        writer.write(_line({"number": number, "answer": dict(answer)}))


class Hears(Protocol):
    """A call, for what is told it; on the background loop.

    Attributes:
        over: it has ended; set before `Line.end`.
    """

    @property
    def over(self) -> bool: ...

    def stop(self) -> None:
        """It is to stop."""

    def news(self, told: Mapping[str, Any]) -> None:
        """Something has changed where it came from."""


class Line:
    """The worker's end, for all calls of a map in this process; on its background loop.

    It begins with the first of them, and ends when the other end hangs up.  Where nobody we
    know can be reached, calls run all the same; only who asks is told.
    """

    def __init__(self, address: Address) -> None:
        self._calls: dict[str, Hears] = {}
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None
        self._reached = asyncio.Event()
        self._ended = asyncio.Event()
        self._talking = asyncio.create_task(self._talk(address))

    @classmethod
    def to(cls, address: Address) -> Line:
        """The line to *address*; a new one, unless there is one."""
        line = _lines.get(address)
        if line is None:
            line = _lines[address] = cls(address)
        return line

    @classmethod
    def known(cls, address: Address) -> Line | None:
        """The line to *address*, if there is one."""
        return _lines.get(address)

    def begin(self, call_id: str, call: Hears) -> None:
        """A call begins."""
        self._calls[call_id] = call
        if call.over:  # it was quicker than the loop: `end` came first, and found nothing
            self.end(call_id)
        else:
            self._say_begin(call_id)

    def end(self, call_id: str) -> None:
        """A call is over.  From any thread, which spares waking the loop."""
        self._calls.pop(call_id, None)

    def _say_begin(self, call_id: str) -> None:
        if self._writer is not None:
            self._writer.write(_line({"says": "begin", "call": call_id}))

    async def ask(self, call_id: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the other end answers.

        Raises:
            ConnectionError: it is gone, or was never there.
        """
        await self._reached.wait()
        if self._writer is None:
            raise ConnectionError(_GONE)
        self._number += 1
        number = self._number
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._writer.write(_line({"number": number, "call": call_id, "ask": dict(message)}))
        try:
            return await future
        finally:
            del self._asked[number]

    async def _talk(self, address: Address) -> None:
        try:
            reached = await _reach(address)
            if reached is not None:
                await self._listen(*reached)
        finally:
            _lines.pop(address, None)
            self._reached.set()
            self._ended.set()

    async def ended(self) -> None:
        """Wait until the other end has hung up, or could not be reached."""
        await self._ended.wait()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        for call_id in tuple(self._calls):
            self._say_begin(call_id)
        self._reached.set()
        try:
            with contextlib.suppress(OSError, ValueError):
                while message := await _message(reader):
                    self._heard(message)
        finally:
            self._writer = None
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ConnectionError(_GONE))
            for call in tuple(self._calls.values()):
                call.stop()
            await _hang_up(writer)

    def _heard(self, message: Mapping[str, Any]) -> None:
        if "news" in message:
            for call in tuple(self._calls.values()):
                call.news(message["news"])
        elif "stop" in message:
            if (stopped := self._calls.get(message["stop"])) is not None:
                stopped.stop()
        elif (asked := self._asked.get(message["number"])) and not asked.done():
            asked.set_result(message["answer"])


_lines: dict[Address, Line] = {}
"""The lines of this process that are open; changed on the background loop alone."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lines.clear)  # its loop and sockets are the parent's


async def _reach(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A connection to *address*; None: nobody we know can be reached there."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(address.host, address.port, limit=_LIMIT)
            if await _introduce(address.token, reader, writer):
                return reader, writer
    except (OSError, EOFError, ValueError, TimeoutError):
        pass  # told below
    if writer is not None:
        await _hang_up(writer)
    return None


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _introduce(
    token: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Whether both ends know each other."""
    nonce = _nonce()
    theirs = await reader.readexactly(_SIZE)
    writer.write(nonce + _proof(token, b"worker", theirs))
    proof = await reader.readexactly(_SIZE)
    return hmac.compare_digest(proof, _proof(token, b"home", nonce))


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
