"""Turns that go on while the cells after them run.

Such a turn is an ordinary turn of its session: only nobody's cell waits for it.  A question of
its waits too, on the page or for `%agent approve`, and ends with the process, as the turn does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.nodes import Turn
from op_jupyter.core.turn import Outcome
from op_jupyter.engine import loop
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.engine.session_context import close_handle, open_handle
from op_jupyter.errors import SessionStateError, TurnNotActive, UsageError
from op_jupyter.notebook.display import FinalDisplay, LiveDisplay
from op_jupyter.notebook.main_thread import LentThread
from op_jupyter.notebook.result import TurnResult, judged, turn_result

if TYPE_CHECKING:
    from op_jupyter.engine.context import SessionHandle
    from op_jupyter.store.base import Store

CLOSE_SECONDS: Final = 5.0


class BackgroundTurn:
    """A turn that runs in the background: the value of a ``%%agent --background`` cell.

    ``await job`` and `result` wait for its end; both give the same `TurnResult`.
    """

    def __init__(self, session: AgentSession, turn_id: str, watch: FinalDisplay) -> None:
        self.id = turn_id
        self._session = session
        self._watch = watch
        self._ended: loop.Job[Outcome] | None = None

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        return self._session.session_id

    @property
    def status(self) -> str:
        """``running``, or how it ended: ``completed``, ``failed``, ``cancelled``."""
        turn = self._session.dag.turns.get(self.id)
        if turn is not None and turn.status != "running":
            return turn.status
        # A disk that refuses keeps the end of a turn, or all of it, from being stored.
        ended = None if self._ended is None else self._ended.future
        if ended is None or not ended.done():
            return "running"
        return "failed" if ended.exception() is not None else ended.result().status

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.status != "running"

    @property
    def progress(self) -> str:
        """How far it is, in one line."""
        from op_jupyter.views.words import summary_line

        return summary_line(self._watch.state())

    def cancel(self) -> bool:
        """Stop it; every call of it still gets its result.  False: it was over already."""
        try:
            loop.run_sync(self._session.cancel_turn, self.id)
        except TurnNotActive:
            return False
        return True

    def result(self) -> TurnResult:
        """How it ended; waits for that.  Stopping the wait does not stop the turn.

        Raises:
            TurnFailed, TurnCancelled: there is no answer.
        """
        return self._judged(loop.run_sync(self._wait))

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self._async_result().__await__()

    async def _async_result(self) -> TurnResult:
        return self._judged(await loop.run_async(self._wait))

    async def _wait(self) -> Outcome:
        assert self._ended is not None
        return await asyncio.shield(asyncio.wrap_future(self._ended.future))

    def settled(self) -> None:
        """Wait until its session is free again; as for `result`, that can be stopped."""
        loop.run_sync(self._wait)

    def _judged(self, outcome: Outcome) -> TurnResult:
        result = turn_result(self._session, self.id, outcome, self._watch.state())
        return judged(result, outcome)

    def _begin(self, hold: SessionHandle, display: LiveDisplay | None, lent: LentThread) -> None:
        self._ended = loop.submit(self._see_to_end, hold, display, lent)

    async def _see_to_end(
        self, hold: SessionHandle, display: LiveDisplay | None, lent: LentThread
    ) -> Outcome:
        """Wait for the end, leave in the cell what stays, and let the session go."""
        try:
            outcome = await self._session.wait(self.id)
            self._watch.end()
            if display is not None:
                said = await display.settle()
                with suppress(SessionStateError):  # the kernel is on its way out
                    await lent.run(lambda: display.end_with(said))
            return outcome
        finally:
            await asyncio.shield(asyncio.to_thread(close_handle, hold))

    def __repr__(self) -> str:
        # No id: a saved notebook is the same when it is run again.
        return f"<background turn: {self.progress}>"


class Jobs:
    """The background turns that this process started, in order."""

    def __init__(self, lent: LentThread) -> None:
        self._lent = lent
        self._jobs: dict[str, BackgroundTurn] = {}

    def start(
        self, store: Store, session: AgentSession, start: TurnStart, display: LiveDisplay | None
    ) -> BackgroundTurn:
        """Start a turn and return at once; *display* shows it until its end."""
        assert start.client_request_id is not None
        watch = FinalDisplay(session, start.client_request_id, quiet=True)
        # The session stays open until the turn is over, whatever the notebook goes on to.
        hold = open_handle(session.session_id, store=store)
        try:
            watch.begin()
            if display is not None:
                display.begin()
            turn_id = loop.run_sync(session.start_turn, start).turn_id
        except BaseException:
            watch.end()
            if display is not None:
                display.end()
            close_handle(hold)
            raise
        job = self._jobs[turn_id] = BackgroundTurn(session, turn_id, watch)
        job._begin(hold, display, self._lent)
        return job

    def __contains__(self, turn_id: object) -> bool:
        return turn_id in self._jobs

    def sessions(self) -> list[AgentSession]:
        """The sessions that turns run in now."""
        return [job._session for job in self if not job.done]

    def __iter__(self) -> Generator[BackgroundTurn, None, None]:
        yield from list(self._jobs.values())

    def get(self, named: str | None) -> BackgroundTurn:
        """The one whose id begins with *named*; None: the only one that runs, or the latest.

        Raises:
            UsageError: there is none, or several.
        """
        if named is None:
            found = [job for job in self if not job.done] or list(self)[-1:]
            if not found:
                raise UsageError(
                    "this kernel started no background turn; `%%agent --background` starts one"
                )
        else:
            found = [job for job in self if job.id.startswith(named)]
            if not found:
                raise UsageError(
                    f"this kernel started no background turn {named!r}; `%agent jobs` lists them"
                )
        if len(found) > 1:
            raise UsageError(f"say which one: {', '.join(job.id for job in found)}")
        return found[0]

    def close(self) -> None:
        """Stop those that run, and wait a little for their ends."""
        running = [job for job in self if not job.done]
        for job in running:
            job.cancel()
        if running:
            loop.run_sync(_all_over, running)


async def _all_over(jobs: Iterable[BackgroundTurn]) -> None:
    ends = [asyncio.ensure_future(job._wait()) for job in jobs]
    await asyncio.wait(ends, timeout=CLOSE_SECONDS)
    for end in ends:
        end.cancel()


def is_background(turn: Turn) -> bool:
    """Whether *turn* was started in the background, perhaps by an earlier process."""
    return bool(turn.metadata.get("background"))
