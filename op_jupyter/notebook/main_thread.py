"""The thread that holds the cell, lent to what runs in the background.

While a cell waits for a turn, its thread handles clicks, runs what has to run there (the
`python` tool, `input()`), and notices the stop button.  While no cell waits (an ``await`` in
the cell, a call from another thread), jobs go through the kernel's own event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from op_jupyter.errors import SessionStateError
from op_jupyter.notebook.interrupts import Interrupts
from op_jupyter.notebook.pump import Line, Pump, open_pump

T = TypeVar("T")

WAIT_SECONDS: Final = 0.2
"""Longest sleep of the waiting thread: a signal may have been taken by another thread."""
KICK_SECONDS: Final = 1.0
"""How often a job that was cancelled and does not stop is interrupted again."""


ABOUT_TO_WAIT_SECONDS: Final = 1.0


class Wake:
    """A file descriptor that becomes readable, so that one wait covers messages and jobs."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._watches = False

    @property
    def fd(self) -> int:
        """What to wait for."""
        return self._reader

    def set(self) -> None:
        """Wake the waiting thread; from any thread, and from a signal handler."""
        writer = self._writer
        if writer < 0:
            return  # closed: the number may be another file's by now
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(writer, b"w")

    def clear(self) -> None:
        """Forget earlier calls of `set`."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._reader, 4096)) == 4096:
                pass

    def watch_signals(self) -> None:
        """Become readable for every signal, unless somebody else is told of them already.

        Main thread only.
        """
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
        self._watches = before == -1

    def close(self) -> None:
        """Give the descriptors back."""
        if self._watches and (other := signal.set_wakeup_fd(-1)) != self._writer:
            signal.set_wakeup_fd(other)
        writer, self._writer = self._writer, -1
        os.close(self._reader)
        os.close(writer)


class _Job(Generic[T]):
    """Something to run on the main thread, in the context of who asked."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self.value: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.over = threading.Event()
        self.running = False

    def call(self) -> T:
        return self._context.run(self._function)

    def is_running(self) -> bool:
        return self.running


class LentThread:
    """The main thread of a kernel or a terminal.  Implements `tools.base.MainThread`.

    Attributes:
        interrupts: entered by whoever must not be cut short by the stop button.
    """

    def __init__(self, kernel: Any = None) -> None:
        self._kernel = kernel
        self._loop: Any = None
        self._wake = Wake()
        self.interrupts = Interrupts(self._wake.set)
        self._jobs: deque[_Job[Any]] = deque()
        self._ending = threading.Lock()  # between a job's end and an interrupt meant for it
        self._pump: Pump | None = None
        self._beside: Pump | None = None
        self._in_cell = False
        if hasattr(os, "register_at_fork"):
            forget = weakref.WeakMethod(self._forget_kernel)
            os.register_at_fork(after_in_child=lambda: (found := forget()) and found())

    def _forget_kernel(self) -> None:
        """In a forked child: the kernel's loop and sockets are the parent's."""
        self._kernel = self._loop = self._pump = self._beside = None
        self._jobs.clear()

    # -- on the main thread

    def attach(self) -> None:
        """Let the kernel's own loop run jobs between cells, and wake it for every signal.

        Without the latter the stop button does nothing to a cell that awaits: the kernel's
        handler only schedules a callback, and its loop sleeps until some message comes.
        Harmless to call again; does nothing as long as the kernel has not started its loop.
        """
        loop = getattr(self._kernel, "io_loop", None)
        if loop is None or self._loop is not None:
            return
        self._loop = loop
        loop.add_handler(self._wake.fd, lambda _fd, _events: self._run_all(), loop.READ)
        self._wake.watch_signals()

    def begin_cell(self) -> None:
        """A cell begins; one in a subshell's thread does not concern this one."""
        if threading.current_thread() is threading.main_thread():
            self.attach()
            self._in_cell = True

    def end_cell(self) -> None:
        """The cell is over; what it held back goes to the kernel."""
        if threading.current_thread() is threading.main_thread():
            self._in_cell = False
            self._leave_beside()

    @property
    def waiting(self) -> bool:
        """Whether a cell waits, so that jobs and clicks are handled at once."""
        return self._pump is not None

    def why_no_clicks(self) -> str:
        """Why clicks cannot reach a busy cell in this kernel, or ""."""
        return open_pump(self._kernel, self.interrupts).reason

    def wait(self, future: concurrent.futures.Future[Any]) -> None:
        """Lend this thread until *future* is done.

        Raises:
            KeyboardInterrupt: the stop button.
        """
        future.add_done_callback(lambda _future: self._wake.set())
        with self.interrupts:
            if self._pump is not None:  # inside a job of an outer wait, whose pump goes on
                self._serve(self._pump, future)
                return
            with open_pump(self._kernel, self.interrupts) as self._pump:
                try:
                    self._serve(self._pump, future)
                finally:
                    self._pump = None

    def _serve(self, pump: Pump, future: concurrent.futures.Future[Any]) -> None:
        while not future.done():
            self.interrupts.check()
            if self._jobs:
                self._run_next()
            else:
                pump.wait(self._wake.fd, WAIT_SECONDS)
                self._wake.clear()

    def _run_next(self) -> None:
        job = self._jobs.popleft()
        if not job.value.set_running_or_notify_cancel():
            return
        job.running = True
        error: BaseException | None = None
        value: Any = None
        try:
            value = self.interrupts.call(job.call)
        except BaseException as raised:  # noqa: BLE001 -- it belongs to who asked
            error = raised
        with self._ending:
            job.running = False
        self._deliver(job, value, error)
        job.over.set()

    def _deliver(self, job: _Job[Any], value: Any, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt) or self.interrupts.noted:
            # Also when the code swallowed the interrupt: stop means stop.  A task that gets a
            # KeyboardInterrupt takes its whole event loop down, so it is told in its own words.
            job.value.set_exception(asyncio.CancelledError())
        elif error is not None:
            job.value.set_exception(error)
        else:
            job.value.set_result(value)

    def read(self, prompt: str) -> str:
        """``input()``, while which clicks come through: another page may answer first.

        Raises:
            EOFError: the person ended the input.
            KeyboardInterrupt: the stop button, or nobody wants the line any more.
        """
        pump = self._pump or self._beside
        if pump is None:
            return input(prompt)
        with self.interrupts:
            for stream in (sys.stdout, sys.stderr):  # as `input` does
                stream.flush()
            with pump.asking(prompt) as line:
                if line is not None:
                    return self._typed(pump, line)
        return input(prompt)

    def _typed(self, pump: Pump, line: Line) -> str:
        while (said := line()) is None:
            self.interrupts.check()
            pump.wait(self._wake.fd, WAIT_SECONDS)
            self._wake.clear()
        return said

    # -- from anywhere

    def post(self, function: Callable[[], None]) -> None:
        """Have *function* run on the main thread, after all that was asked for before.

        Nobody waits for it, and where no cell waits, it may be a while.
        """
        self._jobs.append(_Job(function))
        self._wake.set()

    # -- on the background loop

    async def caught_up(self) -> None:
        """Wait until the waiting thread, if one waits, has done what it was given so far."""
        if self.waiting:
            await self.run(lambda: None)

    async def run(self, function: Callable[[], T]) -> T:
        """Run *function* on the main thread and return its value.

        Cancelling interrupts it there, and waits until it is over.
        """
        if self._loop is None:
            await self._until_somebody_waits()
        job = _Job(function)
        self._jobs.append(job)
        self._wake.set()
        try:
            return await asyncio.wrap_future(job.value)
        except asyncio.CancelledError:
            await self._stop(job)
            raise

    async def _until_somebody_waits(self) -> None:
        """Outside of a kernel only a waiting thread can run anything; it may be about to wait.

        Raises:
            SessionStateError: nobody waits.
        """
        deadline = monotonic() + ABOUT_TO_WAIT_SECONDS
        while not self.waiting:
            if monotonic() > deadline:
                raise SessionStateError(
                    "nothing can run on the main thread now; call the function without `await`, "
                    "so that the main thread waits for it"
                )
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def clicks(self) -> AsyncIterator[None]:
        """While inside, widget messages come through, also beside a cell that awaits."""
        if self.waiting or self._loop is None:
            yield
            return
        await self.run(self._enter_beside)
        try:
            yield
        finally:
            await self.run(self._leave_beside)

    def _enter_beside(self) -> None:
        # Between cells the kernel reads its messages itself, and must go on running cells.
        if self._in_cell and self._pump is None and self._beside is None:
            self._beside = open_pump(self._kernel, self.interrupts)
            self._beside.beside = True
            self._beside.__enter__()

    def _leave_beside(self) -> None:
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.__exit__(None, None, None)

    async def _stop(self, job: _Job[Any]) -> None:
        if job.value.cancel():  # it never began
            return
        while not job.over.is_set():
            with self._ending:
                if job.running:
                    self.interrupts.kick(job.is_running)
            await asyncio.to_thread(job.over.wait, KICK_SECONDS)

    def _run_all(self) -> None:
        """Between cells, or beside one that awaits."""
        self._wake.clear()
        if not self._jobs:
            return
        with self.interrupts:
            while self._jobs:
                self._run_next()
            self.interrupts.clear()

    def leave(self) -> None:
        """The process is on its way out: the kernel's loop will run nothing here any more."""
        self._loop = None

    def close(self) -> None:
        """Give up what was taken from the system.  Nobody may wait any more."""
        if self._loop is not None:
            self._loop.remove_handler(self._wake.fd)
            self._loop = None
        self._wake.close()
