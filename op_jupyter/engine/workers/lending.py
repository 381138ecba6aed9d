"""Connections that the calls of one map share in a process.

Each call has a runtime of its own: that is one conversation.  A provider that keeps connections,
and nothing of what is said, is the same below them, as it would be where the calls were sent
off; it is made for the first call and closed when the map is over.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from typing import TypeAlias

from op_jupyter.core.values import dataclass
from op_jupyter.engine import hooks, loop
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.workers.line import Line
from op_jupyter.engine.workers.parcels import Address
from op_jupyter.providers.base import keeps_connections
from op_jupyter.store.interrupts import Uninterrupted

_Key: TypeAlias = tuple[Address, bytes | None]


@dataclass(frozen=True, slots=True)
class Lease:
    """A runtime for one call; *key*: under which its provider is shared, None: it is not."""

    runtime: Runtime
    key: _Key | None = None

    def end(self) -> None:
        """The call is over."""
        if self.key is None:
            self.runtime.close()
        else:
            loop.background_loop().call_soon_threadsafe(_give_back, self.key)


@dataclass(slots=True)
class _Lent:
    owner: Runtime
    users: int = 0
    waiting: asyncio.Task[None] | None = None


_lent: dict[_Key, _Lent] = {}
_lock = threading.Lock()


def borrow(address: Address, packed: bytes | None) -> Lease:
    """A runtime for a call of the map at *address*.

    Args:
        packed: a pickled `Runtime`; None: the one that is configured here.

    Raises:
        ConfigurationError: there is no key for it here, or no provider is configured.
    """
    runtime = hooks.defaults().create_runtime() if packed is None else _unpacked(packed)
    if not keeps_connections(runtime.provider):
        return Lease(runtime)
    key = (address, packed)
    with Uninterrupted(), _lock:
        lent = _lent.setdefault(key, _Lent(runtime))
        lent.users += 1
        return Lease(runtime.over(lent.owner.provider), key)


def _unpacked(packed: bytes) -> Runtime:
    runtime: Runtime = pickle.loads(packed)
    return runtime


# -- on the background loop


def _give_back(key: _Key) -> None:
    lent = _lent[key]
    with _lock:
        lent.users -= 1
    if lent.waiting is not None:
        return
    line = Line.known(key[0])
    if line is None:
        _close_unused(key)
    else:  # a further call of the map may come
        lent.waiting = asyncio.create_task(_wait(line, key))


async def _wait(line: Line, key: _Key) -> None:
    await line.ended()
    _lent[key].waiting = None
    _close_unused(key)


def _close_unused(key: _Key) -> None:
    with _lock:
        if _lent[key].users:
            return
        lent = _lent.pop(key)
    lent.owner.close()


def _forget_after_fork() -> None:
    """The connections, and the loop, are the parent's."""
    global _lock
    _lock = threading.Lock()
    _lent.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
