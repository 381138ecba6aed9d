"""How a question of the program's reaches a person in a notebook, and what the cell keeps of it.

In this order: a recorded answer; nobody can answer: `CannotAsk` at once; a page that said
``ready``: its form; no such page within two seconds: ``input()`` on the thread that holds the
cell, or the form if a page comes late.  In the saved notebook the question and its answer stay,
as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias

from op_jupyter.core.questions import Question, QuestionAnswer
from op_jupyter.engine.asking import NOBODY, Asker, Check, ScriptAsker, ask_in_text
from op_jupyter.errors import CannotAsk
from op_jupyter.notebook.approvals import READY_SECONDS, CellThread
from op_jupyter.notebook.frontend import FrontEnd
from op_jupyter.notebook.in_sight import kept_in_sight

_LOOK_SECONDS: Final = 0.02


class QuestionCard(Protocol):
    """Where one question is shown."""

    def show(self, question: Question, check: Check) -> None:
        """Put it before the person.  Main thread.

        Called again when no page shows it any more.
        """

    def is_seen(self) -> bool:
        """Whether a page shows it, so that an answer can come."""

    @property
    def place(self) -> str:
        """How a page finds it among its outputs; once it is shown."""

    async def answer(self) -> QuestionAnswer:
        """What the page answers; waits for it."""

    def keep(self, question: Question, answer: QuestionAnswer | None) -> None:
        """Leave question and answer (None: none came) as text, where it was shown.  Any thread."""


class Answers(Protocol):
    """Answers of an earlier run, for the identical question."""

    def recall_answer(self, question: Question) -> QuestionAnswer | None:
        """What was answered then, or None."""

    def keep_answer(self, question: Question, answer: QuestionAnswer) -> None:
        """Record *answer* for a later run, if this run is recorded."""


Waiting: TypeAlias = Callable[[Question, str], AbstractContextManager[None]]
"""Told of a question and its card's `place`; entered for as long as the question waits there."""


class NotebookQuestions:
    """The chain of ways to ask.

    Args:
        front: what the front end can do, asked anew for each question.
        main_thread: where ``input()`` and displays belong.
        new_card: makes the place where a question is shown.
        answers: of an earlier run; None: nothing is replayed.
        ready_seconds: how long a page may take to say that it shows the question.
        parked: no cell waits, so a question waits for the page alone.
        terminal: asks where the front end is a terminal.  It waits in a thread of its own, so a
            cell that awaits the answer gets it as well.
        waiting: who else is told while a question waits for a page.
    """

    def __init__(
        self,
        front: Callable[[], FrontEnd],
        main_thread: CellThread,
        new_card: Callable[[], QuestionCard],
        *,
        answers: Answers | None = None,
        ready_seconds: float = READY_SECONDS,
        parked: bool = False,
        terminal: Asker | None = None,
        waiting: Waiting = lambda _question, _place: nullcontext(),
    ) -> None:
        self._front = front
        self._main_thread = main_thread
        self._new_card = new_card
        self._answers = answers
        self._patience = ready_seconds
        self._parked = parked
        self._terminal: Asker = terminal or ScriptAsker()
        self._waiting = waiting

    @property
    def can_ask(self) -> bool:
        """Whether an answer can come at all."""
        return self._answers is not None or self._reaches_somebody(self._front())

    def _reaches_somebody(self, front: FrontEnd) -> bool:
        if front.shows_widgets or not front.can_answer:
            return front.can_answer
        return not self._parked and self._terminal.can_ask

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """The answer; see `engine.asking.Asker`."""
        front = self._front()
        if self._answers is not None:
            recorded = self._answers.recall_answer(question)
            if recorded is not None:
                return await self._shown(front, question, recorded)
        if not self._reaches_somebody(front):
            raise CannotAsk(NOBODY)
        if not front.shows_widgets:
            await self._main_thread.caught_up()  # what it writes there comes first
            answer = await self._terminal.question(question, check)
        else:
            answer = await self._by_page(question, check)
        if self._answers is not None:
            self._answers.keep_answer(question, answer)
        return answer

    async def _shown(
        self, front: FrontEnd, question: Question, answer: QuestionAnswer
    ) -> QuestionAnswer:
        """*answer*, leaving in the cell what the recorded run left there."""
        if front.kind == "kernel":
            card = self._new_card()
            await self._main_thread.run(lambda: card.keep(question, answer))
        return answer

    async def _by_page(self, question: Question, check: Check) -> QuestionAnswer:
        card = self._new_card()
        try:
            answer = await self._from_page(card, question, check)
        except BaseException:
            card.keep(question, None)  # at once: the main thread may not wait any more
            raise
        # There, what is shown belongs to the cell and not to the click that is being handled.
        await self._main_thread.run(lambda: card.keep(question, answer))
        return answer

    async def _from_page(
        self, card: QuestionCard, question: Question, check: Check
    ) -> QuestionAnswer:
        async def show() -> None:
            await self._main_thread.run(lambda: card.show(question, check))

        # Before it is shown: what the page says of it at once must not be missed.
        async with self._main_thread.clicks():
            await show()
            if self._parked or await self._is_seen(card):
                with self._waiting(question, card.place):
                    if self._parked:
                        return await card.answer()
                    async with kept_in_sight(card.is_seen, show):
                        return await card.answer()
            # A page may come late, or be another client's.
            return await _first(card.answer(), self._by_text(question, check))

    async def _by_text(self, question: Question, check: Check) -> QuestionAnswer:
        read = self._main_thread.read
        return await self._main_thread.run(lambda: ask_in_text(question, "stdin", read, check))

    async def _is_seen(self, card: QuestionCard) -> bool:
        deadline = monotonic() + self._patience
        while not card.is_seen():
            if monotonic() >= deadline:
                self._patience = 0.0  # nor will it be there for the next question
                return False
            await asyncio.sleep(_LOOK_SECONDS)  # `ready` comes on the thread of the messages
        return True


async def _first(*ways: Coroutine[Any, Any, QuestionAnswer]) -> QuestionAnswer:
    """What the first of them gives; the others are called off."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
