"""Putting permission cards up: one at a time, and the first answer counts."""

from __future__ import annotations

import asyncio

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.turn import Phase
from op_jupyter.core.updates import Update
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.live import LiveTurn, PendingCard
from op_jupyter.engine.settling import note_end
from op_jupyter.errors import SessionStateError


class Cards:
    """The cards of one session."""

    def __init__(self) -> None:
        self._lock: asyncio.Lock | None = None

    def attention(self) -> asyncio.Lock:
        """To be held while the person is asked: one thing at a time.  Background loop only."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def ask(
        self, turn: LiveTurn, request: PermissionRequest, asker: Asker, timeout: float | None
    ) -> PermissionAnswer:
        """Put a card up, one at a time, and return the first answer that comes.

        After *timeout* seconds without any it is a denial; None: it waits.
        """
        async with self.attention():
            loop = asyncio.get_running_loop()
            card = turn.pending = PendingCard(request, loop.create_future())
            before = turn.phase
            turn.enter(Phase.WAITING_PERMISSION)
            turn.publish(Update("permission_requested", request.to_json()))
            asking = loop.create_task(asker.decide(request))
            answer: PermissionAnswer | None = None
            try:
                await asyncio.wait(
                    {card.answer, asking},
                    timeout=timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                answer = _answer(card, asking, timeout)
                return answer
            finally:
                asking.add_done_callback(note_end)  # one that is called off may fail
                asking.cancel()
                turn.pending = None
                said = "cancelled" if answer is None else answer.answer
                how = "" if answer is None else answer.how
                resolved = {"id": request.id, "answer": said, "how": how}
                turn.publish(Update("permission_resolved", resolved))
                if answer is not None:
                    turn.enter(before)


def _answer(
    card: PendingCard, asking: asyncio.Task[PermissionAnswer], timeout: float | None
) -> PermissionAnswer:
    if card.answer.done():
        return card.answer.result()
    if asking.done():
        return _asked(asking)
    late = f"denied: nobody answered within {timeout:g} seconds"
    return PermissionAnswer("deny_message", "timeout", message=late)


def _asked(asking: asyncio.Task[PermissionAnswer]) -> PermissionAnswer:
    """What was answered; a way to ask that broke is nobody who could answer.

    Raises:
        SessionStateError: it is not broken, but cannot work as things are.
    """
    error = asking.exception()
    if error is None or isinstance(error, SessionStateError):
        return asking.result()
    why = f"denied: asking for permission failed with {type(error).__name__}: {error}"
    return PermissionAnswer("deny_message", "policy", message=why)
