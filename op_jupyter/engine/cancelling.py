"""The host's way to cancel: its check, looked at while something is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from op_jupyter.engine import hooks
from op_jupyter.errors import TurnCancelled

LOOK_SECONDS: Final = 0.1


@asynccontextmanager
async def host_can_cancel() -> AsyncIterator[None]:
    """While inside, the host's check cancels what the task that runs now waits for.

    Raises:
        TurnCancelled: it did.
    """
    task = asyncio.current_task()
    if not hooks.can_cancel() or task is None:
        yield
        return
    watching = asyncio.create_task(_watch(task))
    try:
        yield
    except asyncio.CancelledError:
        if not _has_cancelled(watching):
            raise
        task.uncancel()
        raise TurnCancelled("the call was cancelled") from None
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(task: asyncio.Task[Any]) -> bool:
    while True:
        if hooks.is_cancelled():
            return task.cancel()
        await asyncio.sleep(LOOK_SECONDS)


def _has_cancelled(watching: asyncio.Task[bool]) -> bool:
    return watching.done() and not watching.cancelled() and watching.exception() is None
