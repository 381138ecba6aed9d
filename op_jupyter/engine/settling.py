"""Waiting for the end of work, although somebody wants to stop waiting."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


async def settled(work: asyncio.Future[Any]) -> None:
    """Wait until *work* has ended, however often that is cancelled, and whatever comes of it."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work})
    note_end(work)


def note_end(work: asyncio.Future[Any]) -> None:
    """Take note of how *work* ended: nobody asks for it, and asyncio need not complain."""
    if not work.cancelled():
        work.exception()
