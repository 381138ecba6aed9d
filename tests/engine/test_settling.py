"""Work that has to come to its end although somebody wants to stop."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from op_jupyter.engine.settling import settled


async def test_it_is_waited_for_however_often_that_is_cancelled() -> None:
    go, ended = asyncio.Event(), False

    async def work() -> None:
        nonlocal ended
        await go.wait()
        ended = True

    waiting = asyncio.ensure_future(settled(asyncio.ensure_future(work())))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await waiting
    assert ended


async def test_what_goes_wrong_with_it_is_nobody_s_to_hear() -> None:
    complaints: list[dict[str, Any]] = []
    running = asyncio.get_running_loop()
    running.set_exception_handler(lambda _loop, context: complaints.append(context))

    async def work() -> None:
        raise ValueError("lost")

    await settled(asyncio.ensure_future(work()))
    gc.collect()
    await asyncio.sleep(0)
    running.set_exception_handler(None)
    assert complaints == []
