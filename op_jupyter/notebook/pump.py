"""Widget messages reach a busy cell, on every supported ipykernel.

While a cell runs, the kernel reads nothing from its main shell channel, so a click on a card
would wait for the cell that waits for the click.  A pump reads that channel in the cell's own
thread: comm messages (and the two info requests of a page that is being reloaded) are handled
at once, everything else (the next cell's execute request) is held and handed to the kernel in
order when the pump is left.  Messages that go to a subshell never come here.

This file is the only one that touches private API of ipykernel and pyzmq.  `open_pump` checks
all of it first; where something is missing there is no pump, only a wait that says why.
"""

from __future__ import annotations

import inspect
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias

import zmq

from op_jupyter.notebook.interrupts import Interrupts

COMM: Final = frozenset({"comm_open", "comm_msg", "comm_close"})
_END_OF_INPUT: Final = "\x04"
AT_ONCE: Final = COMM | {"comm_info_request", "kernel_info_request"}

_KERNEL_API: Final = (
    "session",
    "shell_handlers",
    "get_parent",
    "set_parent",
    "_parent_ident",
    "_publish_status",
)
_STREAM_API: Final = ("socket", "io_loop", "on_recv", "flush", "_recv_callback", "_run_callback")


Line: TypeAlias = "Callable[[], str | None]"
"""The line that was asked for, once it is there; raises `EOFError` when there will be none."""


class Pump(Protocol):
    """A way to wait on the thread that holds a cell.

    Attributes:
        reason: why clicks cannot come through, or "".
    """

    reason: str
    beside: bool

    def __enter__(self) -> Pump: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def wait(self, wake: int, timeout: float) -> None:
        """Handle messages until *wake* is readable, or one came, or *timeout* seconds passed."""

    def asking(self, prompt: str) -> AbstractContextManager[Line | None]:
        """Have the client of the cell asked for a line, for which `wait` ends while inside.

        Yields what reads it; None: nothing was asked, and `input` does as well.
        """


class PlainWait:
    """The pump where there is nothing to pump."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.beside = False

    def __enter__(self) -> PlainWait:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing was changed, nothing is put back."""

    def wait(self, wake: int, timeout: float) -> None:
        """Sleep until *wake* is readable, at most *timeout* seconds."""
        poller = select.poll()  # `select.select` takes no descriptor from 1024 up
        poller.register(wake, select.POLLIN)
        poller.poll(int(timeout * 1000))

    def asking(self, prompt: str) -> AbstractContextManager[Line | None]:
        """Nothing could come through meanwhile."""
        return nullcontext()


def open_pump(kernel: Any, interrupts: Interrupts) -> Pump:
    """A pump for *kernel*, to be entered by the main thread during a cell, inside *interrupts*."""
    if kernel is None:
        return PlainWait()
    if threading.current_thread() is not threading.main_thread():
        return PlainWait("this cell runs in a subshell")
    stream, reply_to, missing = _shell_channel(kernel)
    missing += [f"kernel.{name}" for name in _KERNEL_API if not hasattr(kernel, name)]
    missing += [f"stream.{name}" for name in _STREAM_API if not hasattr(stream, name)]
    if missing:
        return PlainWait(f"this ipykernel has no {', '.join(missing)}")
    return CommPump(kernel, stream, reply_to, interrupts)


def _shell_channel(kernel: Any) -> tuple[Any, Any, list[str]]:
    """The stream that brings the main shell's messages, where replies go, and what is missing."""
    thread = getattr(kernel, "shell_channel_thread", None)
    if thread is None:  # ipykernel 6
        stream = getattr(kernel, "shell_stream", None)
        return stream, stream, [] if stream is not None else ["kernel.shell_stream"]
    try:
        manager = thread.manager
        stream = manager.get_shell_channel_to_subshell_pair(None).to_stream
        return stream, manager.get_subshell_to_shell_channel_socket(None), []
    except AttributeError as error:
        return None, None, [str(error)]


class CommPump:
    """Reads the main shell channel while it is entered.  Main thread only, one at a time.

    It moves messages from one owner to another, so no interrupt may be raised inside it:
    it is only used while `Interrupts` is entered, or beside a cell that awaits, where the
    kernel raises none.

    Attributes:
        beside: the kernel's own loop runs, beside a cell that awaits, and brings the messages;
            `wait` is called for a line of input alone.
    """

    reason = ""

    def __init__(self, kernel: Any, stream: Any, reply_to: Any, interrupts: Interrupts) -> None:
        self._kernel = kernel
        self._stream = stream
        self._reply_to = reply_to
        self._interrupts = interrupts
        self.beside = False
        self._now: deque[Sequence[Any]] = deque()
        self._held: deque[Sequence[Any]] = deque()
        self._callback: Any = None
        self._cell: tuple[Any, Any] = (b"", {})
        self._stdin: Any = None

    def __enter__(self) -> CommPump:
        kernel = self._kernel
        self._cell = (kernel._parent_ident["shell"], kernel.get_parent("shell"))
        self._callback = self._stream._recv_callback
        self._stream.on_recv(self._sort, copy=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stream, callback = self._stream, self._callback
        stream.on_recv(callback, copy=False)
        # Before the cell ends: if it failed, the kernel aborts the execute requests among them.
        for queue in (self._now, self._held):
            while queue:
                stream._run_callback(callback, queue.popleft())
        # The socket's file descriptor is edge-triggered, and its edge may have passed.
        stream.io_loop.add_callback(_read_again, stream)

    def wait(self, wake: int, timeout: float) -> None:
        """Handle messages until *wake* is readable, or one came, or *timeout* seconds passed."""
        poller = zmq.Poller()
        poller.register(self._stream.socket, zmq.POLLIN)
        poller.register(wake, zmq.POLLIN)
        if self._stdin is not None:
            poller.register(self._stdin, zmq.POLLIN)
        ready = dict(poller.poll(int(timeout * 1000)))
        if self._stream.socket not in ready:
            return
        self._stream.flush(zmq.POLLIN)
        while self._now:
            self._handle(self._now.popleft())

    @contextmanager
    def asking(self, prompt: str) -> Iterator[Line | None]:
        """Send what `input` sends, to the client of the cell that the caller's context is of."""
        kernel = self._kernel
        stdin = getattr(kernel, "stdin_socket", None)
        if stdin is None:
            yield None
            return
        while stdin.poll(0):  # what was typed too late, at an earlier prompt
            stdin.recv_multipart()
        content = {"prompt": prompt, "password": False}
        to, parent = kernel._parent_ident["shell"], kernel.get_parent("shell")
        kernel.session.send(stdin, "input_request", content, parent, ident=to)
        self._stdin = stdin
        try:
            yield self._line
        finally:
            self._stdin = None

    def _line(self) -> str | None:
        if not self._stdin.poll(0):
            return None
        try:
            _, reply = self._kernel.session.recv(self._stdin)
            said = str(reply["content"]["value"])
        except (ValueError, TypeError, KeyError):
            return None  # not signed by a client of this kernel, or no answer
        if said == _END_OF_INPUT:
            raise EOFError
        return said

    def _sort(self, frames: Sequence[Any]) -> None:
        if self._kind(frames) not in AT_ONCE:
            self._held.append(frames)
        elif self.beside:
            self._handle(frames)
        else:
            self._now.append(frames)

    def _kind(self, frames: Sequence[Any]) -> str:
        """The message's type, without using its signature up; "" for what is no message."""
        session = self._kernel.session
        try:
            _, parts = session.feed_identities(frames, copy=False)
            header = session.deserialize(parts, content=False, copy=False)["header"]
            return str(header["msg_type"])
        except (ValueError, TypeError, KeyError):
            return ""  # held: the kernel's own code complains about it later

    def _handle(self, frames: Sequence[Any]) -> None:
        kernel = self._kernel
        identities, parts = kernel.session.feed_identities(frames, copy=False)
        message = kernel.session.deserialize(parts, content=True, copy=False)
        kernel.set_parent(identities, message, channel="shell")
        try:
            kernel._publish_status("busy", "shell")
            handler = kernel.shell_handlers[message["header"]["msg_type"]]
            # Someone else's callback, of any length.
            self._interrupts.call(lambda: _finish(handler(self._reply_to, identities, message)))
            if self._reply_to is self._stream:  # ipykernel 6 only queues what it sends
                self._stream.flush(zmq.POLLOUT)
        finally:
            # ipywidgets holds updates back in the browser until it sees this idle.
            kernel._publish_status("idle", "shell")
            # Without this the cell's own end would go to the comm message.
            kernel.set_parent(*self._cell, channel="shell")
            kernel._publish_status("busy", "shell")


def _finish(result: Any) -> None:
    """Run the coroutine of an info request, which never really waits, to its end."""
    if not inspect.iscoroutine(result):
        return
    try:
        result.send(None)
    except StopIteration:
        return
    result.close()


def _read_again(stream: Any) -> None:
    if not stream.closed():
        stream.flush(zmq.POLLIN)
