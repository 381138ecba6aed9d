"""A session in memory; and no test may leave anything behind on the background loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

from op_jupyter.engine import loop, registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.store.memory import MemoryStore

LEFT_SECONDS = 5.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def session(store: MemoryStore) -> Iterator[AgentSession]:
    opened = registry.acquire(store, store.create_session("s1"))
    yield opened
    registry.release(opened)


@pytest.fixture(autouse=True)
def nothing_is_left_on_the_loop() -> Iterator[None]:
    """A task that is still there, destroyed while pending, or failed unheard, is an error."""
    background = loop.background_loop()
    before = asyncio.all_tasks(background)
    complaints: list[dict[str, Any]] = []
    background.set_exception_handler(lambda _loop, context: complaints.append(context))
    gc.freeze()  # so that the collection below looks at what the test made, and takes no time
    yield
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := asyncio.all_tasks(background) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    gc.collect()
    gc.unfreeze()
    background.set_exception_handler(None)
    assert not left
    assert complaints == []
    assert background.is_running()
