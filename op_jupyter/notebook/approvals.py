"""How a question reaches a person, and how the answer comes back, in a notebook.

In this order: a recorded decision; the host's handler; nobody can answer (``allow_stdin`` is
false): denied at once, with the rule that would allow it; a page that said ``ready``: a click; no
such page within two seconds: ``input()`` on the thread that holds the cell, beside which a click
still counts.  A click never comes through this file: it resolves the actor's card, and calls the
asker off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Final, Protocol

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import Question, QuestionAnswer
from op_jupyter.engine import hooks
from op_jupyter.engine.asking import NOBODY, Check, HeadlessAsker, ask_by_text, host_decision
from op_jupyter.errors import CannotAsk
from op_jupyter.notebook.frontend import FrontEnd
from op_jupyter.notebook.in_sight import kept_in_sight
from op_jupyter.tools.base import MainThread

READY_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.02


class CellThread(MainThread, Protocol):
    """The thread that holds the cell."""

    def clicks(self) -> AbstractAsyncContextManager[None]:
        """While inside, a click comes through although a cell runs."""

    def read(self, prompt: str) -> str:
        """``input()``, while which clicks come through.  Main thread."""

    async def caught_up(self) -> None:
        """Wait until it has done what it was given so far, unless no cell waits."""


class Card(Protocol):
    """Where a question is shown, for as long as it waits."""

    def show(self, request: PermissionRequest) -> None:
        """Put it before the person, unless it is there already.  Main thread.

        Called again when no page shows it any more.
        """

    def is_seen(self) -> bool:
        """Whether a page shows it, so that a click can come."""

    @property
    def place(self) -> str:
        """The id of the widget that shows it; "" while there is none."""

    def done(self) -> None:
        """Take away what `show` put there.  Any thread."""


class Decisions(Protocol):
    """Decisions of an earlier run, for the identical tool and arguments."""

    def recall(self, request: PermissionRequest) -> PermissionAnswer | None:
        """What was decided then, or None."""

    def keep(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Record *answer* for a later run, if this run is recorded."""


class Questions(Protocol):
    """The ways to ask what the program asks; see `notebook.questions`."""

    @property
    def can_ask(self) -> bool: ...

    async def question(self, question: Question, check: Check) -> QuestionAnswer: ...


class NotebookAsker:
    """The chain of ways to ask.

    Args:
        front: what the front end can do, asked anew for each question.
        main_thread: where ``input()`` and displays belong.
        card: where a click can come from.
        decisions: of an earlier run; None: nothing is replayed.
        ready_seconds: how long a page may take to say that it shows the card.
        questions: asks what the program asks; None: nobody is asked.
        parked: no cell waits, so a question waits for a click or a command, for ever.
        tell: is told at which place a question is shown.
    """

    def __init__(
        self,
        front: Callable[[], FrontEnd],
        main_thread: CellThread,
        card: Card,
        *,
        decisions: Decisions | None = None,
        ready_seconds: float = READY_SECONDS,
        questions: Questions | None = None,
        parked: bool = False,
        tell: Callable[[PermissionRequest, str], None] = lambda request, place: None,
    ) -> None:
        self._front = front
        self._main_thread = main_thread
        self._card = card
        self._decisions = decisions
        self._patience = ready_seconds
        self._questions = questions
        self._parked = parked
        self._tell = tell

    @property
    def interactive(self) -> bool:
        """Whether an answer can come at all."""
        decided = self._decisions is not None or hooks.permission_handler() is not None
        return decided or self._front().can_answer

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """The answer; waits for ever when it is a click that will come."""
        recorded = None if self._decisions is None else self._decisions.recall(request)
        if recorded is not None:
            return recorded
        if (decided := await host_decision(request)) is not None:
            return decided
        front = self._front()
        if not front.can_answer:
            return await HeadlessAsker().decide(request)
        if self._parked:
            self._tell(request, self._card.place)
            await asyncio.Event().wait()
        if not front.shows_widgets:
            return await self._ask_by_text(request, "terminal")
        try:
            # Before the card is shown: what the page says of it at once must not be missed.
            async with self._main_thread.clicks():
                await self._show(request)
                if await self._is_seen():
                    async with kept_in_sight(self._card.is_seen, lambda: self._show(request)):
                        await asyncio.Event().wait()
                # A page may come late, or be another client's: a click calls this off.
                return await self._ask_by_text(request, "stdin")
        finally:
            self._card.done()

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Keep what was decided, for a later run."""
        if self._decisions is not None:
            self._decisions.keep(request, answer)

    @property
    def can_ask(self) -> bool:
        """Whether a question of the program's can get an answer."""
        return self._questions is not None and self._questions.can_ask

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """What is answered to a question of the program's."""
        if self._questions is None:
            raise CannotAsk(NOBODY)
        return await self._questions.question(question, check)

    async def _show(self, request: PermissionRequest) -> None:
        await self._main_thread.run(lambda: self._card.show(request))
        self._tell(request, self._card.place)

    async def _is_seen(self) -> bool:
        deadline = monotonic() + self._patience
        while not self._card.is_seen():
            if monotonic() >= deadline:
                self._patience = 0.0  # nor will it be there for the next question
                return False
            await asyncio.sleep(_LOOK_SECONDS)  # `ready` comes on the thread of the messages
        return True

    async def _ask_by_text(self, request: PermissionRequest, how: str) -> PermissionAnswer:
        return await self._main_thread.run(
            lambda: ask_by_text(request, how, self._main_thread.read)
        )
