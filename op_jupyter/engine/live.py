"""A turn while it runs: the one thing that `engine.session` and `engine.steps` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Final

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.turn import Outcome, Phase, may_follow
from op_jupyter.core.updates import Update
from op_jupyter.core.values import dataclass
from op_jupyter.engine.recorder import Recorder

if TYPE_CHECKING:
    from op_jupyter.engine.session import TurnStart

KEEP_HEAD: Final = "KEEP_HEAD"
"""As the base of a turn: go on from the head, whatever it is by then."""


@dataclass(slots=True)
class PendingCard:
    """A permission card that waits for its answer."""

    request: PermissionRequest
    answer: asyncio.Future[PermissionAnswer]


@dataclass(slots=True, eq=False)
class LiveTurn:
    """In memory only; a snapshot shows it, a restart forgets it.

    Attributes:
        start: what a person's turn was started with, for its sub-agents.
        abandoned: it has to stop because its session is being closed.
    """

    id: str
    recorder: Recorder
    visible: bool = True
    client_request_id: str | None = None
    phase: Phase = Phase.STARTING
    step: int = 0
    pending: PendingCard | None = None
    start: TurnStart | None = None
    begun: bool = False
    cancelling: bool = False
    abandoned: bool = False
    task: asyncio.Task[Outcome] | None = None
    outcome: Outcome | None = None
    on_cancel: list[Callable[[], None]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, phase: Phase) -> None:
        """Go to *phase* and say so.

        Raises:
            RuntimeError: the table in `core.turn` has no such transition: a fault of ours.
        """
        if phase is self.phase:
            return
        # The calls of an invisible turn may overlap, so its phases follow no order.
        if self.visible and not may_follow(self.phase, phase):
            raise RuntimeError(f"turn {self.id}: no way from {self.phase.value} to {phase.value}")
        self.phase = phase
        self.publish(Update("phase_changed", {"phase": phase.value, "step": self.step}))

    def cancel(self) -> None:
        """Have the turn stop where it is.  One that has not begun stops as soon as it does."""
        self.cancelling = True
        for stop in tuple(self.on_cancel):
            stop()
        # Cancelling a task before its first step would end it with nothing stored or told.
        if self.begun and self.task is not None:
            self.task.cancel()

    def abandon(self) -> None:
        """Have the turn stop because nobody owns it any more."""
        self.abandoned = True
        self.cancel()

    def publish(self, update: Update) -> None:
        """Show something of this turn; a bare call shows its nodes and cards alone."""
        if self.visible or update.kind.startswith("permission"):
            self.recorder.publish(self.id, update)
