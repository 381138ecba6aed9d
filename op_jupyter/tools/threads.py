"""Blocking work in a thread of its own, with the caller's context."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from op_jupyter.tools.summaries import is_seen_at_once
from op_jupyter.tools.tracebacks import message_of

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run *function* in a new thread and return its value.

    Cancelling stops the waiting, not the thread: its result is dropped.  The thread is a
    daemon, so work that never ends cannot keep the process from ending; the threads of
    `asyncio.to_thread` and of anyio would.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def deliver(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # no error: it is a T

    def work() -> None:
        value: T | None = None
        caught: BaseException | None = None
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
            caught = _carried(error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, value, caught)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="op-tool", daemon=True).start()
    return await result


async def looked_at(look: Callable[[], T], *values: Any) -> T:
    """What *look* finds out about *values*: in a thread, unless that takes no time.

    To look at a value may run code of its own, such as a ``__repr__`` that waits for a network,
    which must not hold up the event loop.
    """
    return look() if all(map(is_seen_at_once, values)) else await in_thread(look)


def _carried(error: BaseException) -> BaseException:
    """*error* in a form that a task can raise without harm to its event loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    text = message_of(error)
    told = RuntimeError(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    told.__cause__ = error
    return told
