"""The one background event loop, and the bridge to it from any thread.

Every session of the process runs on this loop.  A sync caller submits and waits; an async
caller awaits.  Nothing is implemented twice.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from op_jupyter.engine.settling import note_end
from op_jupyter.store.interrupts import Uninterrupted

T = TypeVar("T")
P = ParamSpec("P")
Waiter: TypeAlias = "Callable[[concurrent.futures.Future[Any]], None]"

CLEAN_UP_SECONDS = 5.0
"""How long an interrupted caller waits for the cancelled work to finish tidying up."""


class Job(Generic[T]):
    """Work on the background loop.  `future` is done only when the work has really ended."""

    def __init__(self) -> None:
        self.future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._task: asyncio.Task[T] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def cancel(self) -> None:
        """Ask the work to stop; it may still tidy up, so wait for `future`."""
        if self._loop is None:  # interrupted before it was started
            self.future.cancel()
        else:
            self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> None:
        """Run *coroutine* on the loop, with a copy of the caller's context.  Once only."""
        loop, context = background_loop(), contextvars.copy_context()

        def begin() -> None:
            self._task = loop.create_task(coroutine, context=context)
            self._task.add_done_callback(self._settle)

        loop.call_soon_threadsafe(begin)
        self._loop = loop

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.future.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())


class _Background:
    """The loop and its thread; made on first use, anew in a forked child."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # anyio keeps its threads for as long as the task that a loop was started with: without
        # one it starts a thread for each call, and ends it with the task that made the call.
        # It is there before the loop runs, and knows nothing of whoever needed the loop first.
        self._root = self.loop.create_task(_wait_for_ever(), context=contextvars.Context())
        self.thread = threading.Thread(target=self._run, name="openprogram-loop", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            # Whoever awaits a task that raised one of these is told by the task.  asyncio lets
            # them end the loop as well, which everybody else still needs.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_until_complete(self._root)


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


_lock = threading.Lock()
_background: _Background | None = None
_waiter: Waiter | None = None
_waiting: dict[int, Job[Any]] = {}
"""What each thread waits for in `run_sync`, by the thread's id."""


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use."""
    global _background
    with _lock:
        if _background is None:
            _background = _Background()
        return _background.loop


def _forget_after_fork() -> None:
    """A forked child has the object but not the thread, and no front end to wait for."""
    global _background, _lock, _waiter
    _lock = threading.Lock()
    _background = None
    _waiter = None
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def set_waiter(waiter: Waiter | None) -> None:
    """How the main thread waits: *waiter* returns when the future is done, or raises.

    The notebook layer lends the cell's thread to the turn with this.  None: wait plainly.
    """
    global _waiter
    _waiter = waiter


def on_background_loop() -> bool:
    """Whether this very thread runs the loop."""
    return _background is not None and threading.current_thread() is _background.thread


def cancel_waiting(thread_id: int) -> bool:
    """Cancel what that thread waits for in `run_sync`; False: it does not wait there."""
    job = _waiting.get(thread_id)
    if job is not None:
        job.cancel()
    return job is not None


def submit(function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kw: P.kwargs) -> Job[T]:
    """Start *function* on the loop with a copy of the caller's context."""
    job: Job[T] = Job()
    job.start(function(*args, **kw))
    return job


def run_sync(function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kw: P.kwargs) -> T:
    """Run *function* on the loop and wait for its value in this thread.

    An interrupt cancels it, waits until it has tidied up, and goes on as an interrupt.

    Raises:
        RuntimeError: called on the loop's own thread, where waiting would never end.
    """
    if on_background_loop():
        raise RuntimeError(
            "a synchronous call on the background loop would wait for itself for ever; "
            "use the async form (`await llm.aio(...)`, `await runtime.async_exec(...)`)"
        )
    job: Job[T] = Job()
    thread_id = threading.get_ident()
    around = _waiting.get(thread_id)
    try:
        with Uninterrupted():
            _waiting[thread_id] = job
            job.start(function(*args, **kw))
        wait(job.future)
    except BaseException:
        job.cancel()
        _wait_for_clean_up(job.future)
        raise
    finally:
        if around is None:
            del _waiting[thread_id]
        else:  # the thread does this while it waits for that: a cell lends its own
            _waiting[thread_id] = around
    return job.future.result()


async def run_async(
    function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kw: P.kwargs
) -> T:
    """Run *function* on the background loop and await its value from any loop."""
    if on_background_loop():
        return await function(*args, **kw)
    job = submit(function, *args, **kw)
    done = asyncio.wrap_future(job.future)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        job.cancel()
        done.add_done_callback(note_end)
        await asyncio.wait([done], timeout=CLEAN_UP_SECONDS)
        raise


def wait(future: concurrent.futures.Future[Any]) -> None:
    """Wait in this thread until it is done; a cell lends its thread meanwhile, as to a turn."""
    if _waiter is not None and threading.current_thread() is threading.main_thread():
        _waiter(future)
    concurrent.futures.wait([future])


def _wait_for_clean_up(future: concurrent.futures.Future[Any]) -> None:
    try:
        concurrent.futures.wait([future], timeout=CLEAN_UP_SECONDS)
    except KeyboardInterrupt:
        # A second interrupt: the work has been told already, and ends on its own.
        return
