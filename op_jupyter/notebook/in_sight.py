"""What waits for a click stays in sight: where its output was cleared, it is shown once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

GONE_SECONDS: Final = 0.5
"""A cell that is moved takes its output away for a moment, too."""
_LOOK_SECONDS: Final = 0.1


@asynccontextmanager
async def kept_in_sight(
    is_seen: Callable[[], bool],
    show_again: Callable[[], Awaitable[None]],
    *,
    gone_seconds: float = GONE_SECONDS,
) -> AsyncIterator[None]:
    """While inside, call *show_again* when *is_seen* has been false for that long.

    Once each time: a notebook whose cell is gone as well has no place for it.
    """
    watching = asyncio.ensure_future(_watch(is_seen, show_again, gone_seconds))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def _watch(
    is_seen: Callable[[], bool], show_again: Callable[[], Awaitable[None]], gone_seconds: float
) -> None:
    gone_since: float | None = None
    shown = False
    while True:
        await asyncio.sleep(min(_LOOK_SECONDS, gone_seconds))
        if is_seen():
            gone_since, shown = None, False
        elif gone_since is None:
            gone_since = monotonic()
        elif not shown and monotonic() - gone_since >= gone_seconds:
            shown = True
            await show_again()
