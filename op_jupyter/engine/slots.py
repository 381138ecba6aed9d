"""How many attempts run at once in this process; a further one waits its turn, visibly.

Sub-agents and turns inside of turns take no place: who waits for them holds one already, and
all of them could wait for each other.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = 4


class Slots:
    """Places, given out first come, first served.  Used on the background loop alone."""

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def held(self, limit: int, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """Hold a place while inside; *on_wait* is called when there is none of *limit* free."""
        if self._taken < limit and not self._waiting:
            self._taken += 1
        else:
            on_wait()
            await self._handed_over()
        try:
            yield
        finally:
            self._leave()

    async def _handed_over(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()  # it came just when nobody wanted it any more
            raise

    def _leave(self) -> None:
        """Give the place to whoever waits longest, or back."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken -= 1

    def forget(self) -> None:
        """Start anew, in a forked child, which has none of its parent's turns."""
        self._taken = 0
        self._waiting.clear()


PROCESS: Final = Slots()
"""The places of this process: what is limited is what it does, in whatever session."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.forget)
