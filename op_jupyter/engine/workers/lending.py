"""Connections that calls which were sent off share in a process.

Each call has a runtime of its own: that is one conversation.  A provider that keeps connections,
and nothing of what is said, is the same below those that were sent the same runtime, as it would
be where they come from; and below those of one map that take what is configured here.  It is made
for the first call, and closed soon after the maps and the single calls that used it are over.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from dataclasses import field
from typing import Final, TypeAlias

from op_jupyter.core.values import dataclass
from op_jupyter.engine import hooks, loop
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.workers.line import Line
from op_jupyter.engine.workers.parcels import Address
from op_jupyter.providers.base import keeps_connections
from op_jupyter.store.interrupts import Uninterrupted

_Key: TypeAlias = tuple[bytes | Address, frozenset[tuple[str, str]]]
"""With the environment: keys do not travel, they are taken from there."""

IDLE_SECONDS: Final = 0.5
"""How long connections are kept for a call that may follow, as where calls are sent one by one."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A runtime for one call of *address*.

    *key*: under which its provider is shared; None: it is not.
    """

    runtime: Runtime
    address: Address
    key: _Key | None = None

    def end(self) -> None:
        """The call is over."""
        if self.key is None:
            self.runtime.close()
        else:
            loop.background_loop().call_soon_threadsafe(_give_back, self.key, self.address)


@dataclass(slots=True)
class _Lent:
    owner: Runtime
    users: int = 0
    lines: set[Line] = field(default_factory=set)
    waiting: asyncio.Task[None] | None = None


_lent: dict[_Key, _Lent] = {}
_lock = threading.Lock()


def borrow(address: Address, packed: bytes | None) -> Lease:
    """A runtime for a call that *address* sent off.

    Args:
        packed: a pickled `Runtime`; None: the one that is configured here.

    Raises:
        ConfigurationError: there is no key for it here, or no provider is configured.
    """
    runtime = hooks.defaults().create_runtime() if packed is None else _unpacked(packed)
    if not keeps_connections(runtime.provider):
        return Lease(runtime, address)
    # What is configured here may be something else when the next map comes.
    key = (address if packed is None else packed, frozenset(os.environ.items()))
    with Uninterrupted(), _lock:
        lent = _lent.setdefault(key, _Lent(runtime))
        lent.users += 1
        return Lease(runtime.over(lent.owner.provider), address, key)


def _unpacked(packed: bytes) -> Runtime:
    runtime: Runtime = pickle.loads(packed)
    return runtime


# -- on the background loop


def _give_back(key: _Key, address: Address) -> None:
    lent = _lent[key]
    with _lock:
        lent.users -= 1
    if (line := Line.known(address)) is not None:
        lent.lines.add(line)
    if lent.waiting is None:
        lent.waiting = asyncio.create_task(_wait(lent, key))


async def _wait(lent: _Lent, key: _Key) -> None:
    """Wait until no call is likely to follow."""
    while lent.lines:
        await lent.lines.pop().ended()
    await asyncio.sleep(IDLE_SECONDS)
    lent.waiting = None
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
