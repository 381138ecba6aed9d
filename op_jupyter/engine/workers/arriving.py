"""Outcomes that come home: the session's one writer appends what workers recorded.

Outcomes that arrive at about the same time, or while others are being stored, are stored as
one: neither a disk that is slow to confirm a write nor many short calls make workers wait.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from op_jupyter.core.nodes import Node
from op_jupyter.core.values import dataclass
from op_jupyter.engine.context import Frame
from op_jupyter.engine.invocation import Invocation
from op_jupyter.engine.recorder import Part, Recorder
from op_jupyter.engine.workers.parcels import Outcome
from op_jupyter.errors import NotPortable, OpenProgramError, StoreError, WorkerLost
from op_jupyter.tools.tracebacks import message_of

GATHER_SECONDS: Final = 0.02
"""How long an outcome that has come may wait for more to be stored with."""


@dataclass(frozen=True, slots=True)
class End:
    """How one call ended: with *value*, or with *error*."""

    value: Any = None
    error: BaseException | None = None


@dataclass(eq=False, slots=True)
class Call:
    """One call on its way.  *runtime* and *arguments* are pickled."""

    invocation: Invocation
    arguments: bytes
    runtime: bytes | None
    id: str = ""
    frame: Frame | None = None
    node: Node | None = None
    end: End | None = None

    def fail(self, error: BaseException) -> None:
        """End it here, and record that."""
        self.end = End(error=error)
        self.invocation.end(error)


@dataclass(frozen=True, slots=True)
class _Arrived:
    call: Call
    end: End
    outcome: Outcome | None = None

    def part(self, since: int) -> Part:
        """What there is to store."""
        outcome = self.outcome
        if outcome is None:
            return Part((), (), since, self.call.invocation.ended(self.end.error, {}, None))
        ended = self.call.invocation.ended(self.end.error, outcome.told, outcome.output)
        return Part(outcome.nodes, outcome.decisions, since, ended)


class Arrivals:
    """What was *sent*, and comes home.  Lives on the background loop.

    Attributes:
        waiting: what is not home yet.
    """

    def __init__(
        self,
        recorder: Recorder,
        sent: Mapping[Future[bytes], Call],
        since: int,
        over: Callable[[str], None],
        *,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        """*since*: the seq up to which the workers know the graph; *over* is told the id of each
        call that has come; *gather_seconds*: how long the first that has come waits for others.
        """
        self._recorder = recorder
        self._over = over
        self._gather_seconds = gather_seconds
        self._since = since
        self._loop = asyncio.get_running_loop()
        self._here: list[Future[bytes]] = []
        self._enough = asyncio.Event()
        self.waiting = dict(sent)
        for future in sent:
            future.add_done_callback(self._done)

    def _done(self, future: Future[bytes]) -> None:
        # Not `asyncio.wrap_future`: it never ends when the future holds a StopIteration.
        self._loop.call_soon_threadsafe(self._came, future)

    def _came(self, future: Future[bytes]) -> None:
        self._over(self.waiting[future].id)
        self._here.append(future)
        if len(self._here) == len(self.waiting):
            self._enough.set()
        elif len(self._here) == 1:
            self._loop.call_later(self._gather_seconds, self._enough.set)

    async def store_all(self) -> None:
        """Wait for what is still under way, and store it.  May be gone on with after a cancel."""
        while self.waiting:
            await self._enough.wait()
            self._enough.clear()
            await self.store_here()

    async def store_here(self) -> None:
        """Store what has come."""
        came, self._here = self._here, []
        if not came:
            return
        calls = [(future, self.waiting.pop(future)) for future in came]
        storing = asyncio.create_task(asyncio.to_thread(self._store, calls))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            await asyncio.wait([storing])  # what is on the way to the disk gets there
            raise

    def _store(self, calls: Sequence[tuple[Future[bytes], Call]]) -> None:
        arrived = [_read(call, future) for future, call in calls]
        try:
            self._keep(arrived)
        except StoreError:  # one of them may be the only one that is refused
            for one in arrived:
                self._keep_alone(one)

    def _keep(self, arrived: Sequence[_Arrived]) -> None:
        for one in arrived:
            for data, media_type in () if one.outcome is None else one.outcome.blobs:
                self._recorder.keep_blob(data, media_type)
        self._recorder.bring_home([one.part(self._since) for one in arrived])
        for one in arrived:
            one.call.end = one.end

    def _keep_alone(self, one: _Arrived) -> None:
        try:
            self._keep([one])
        except StoreError as refused:  # the value is here, but what happened is not recorded
            one.call.fail(one.end.error or refused)


def _read(call: Call, future: Future[bytes]) -> _Arrived:
    if future.cancelled():
        return _Arrived(call, End(error=asyncio.CancelledError()))
    if (error := future.exception()) is not None:
        return _Arrived(call, End(error=_lost(error)))
    try:
        outcome = pickle.loads(future.result())
    except Exception as broken:  # noqa: BLE001 -- whatever somebody's executor gave us
        return _Arrived(call, End(error=_lost(broken)))
    if not isinstance(outcome, Outcome):
        kind = type(outcome).__name__
        return _Arrived(call, End(error=WorkerLost(f"the executor returned {kind}, not ours")))
    return _Arrived(call, _end_of(outcome), outcome)


def _lost(error: BaseException) -> BaseException:
    if isinstance(error, OpenProgramError):
        return error
    lost = WorkerLost(f"the worker was lost: {type(error).__name__}: {message_of(error):.500}")
    lost.__cause__ = error
    return lost


def _end_of(outcome: Outcome) -> End:
    try:
        if outcome.error is None:
            return End(pickle.loads(outcome.value or b""))
        error: BaseException = pickle.loads(outcome.error)
    except Exception as broken:  # noqa: BLE001 -- the value's own code may raise anything
        return End(error=NotPortable(f"what came home cannot be unpickled: {broken!s:.200}"))
    error.add_note(f"In the worker:\n{outcome.told.get('traceback', '')}")
    return End(error=error)
