"""Answers of an earlier run, in front of any other way to ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import Question, QuestionAnswer
from op_jupyter.engine import hooks
from op_jupyter.engine.asking import Asker, Check, ScriptAsker


class Recorded(Protocol):
    """What an earlier run was answered, for the identical call or question."""

    def recall(self, request: PermissionRequest) -> PermissionAnswer | None: ...

    def keep(self, request: PermissionRequest, answer: PermissionAnswer) -> None: ...

    def recall_answer(self, question: Question) -> QuestionAnswer | None: ...

    def keep_answer(self, question: Question, answer: QuestionAnswer) -> None: ...


class RecordedAsker:
    """Asker that gives recorded answers, and lets *inner* ask for the others and keeps them.

    *recorded* is called when it is first needed; None from it: nothing is recorded or replayed.
    """

    def __init__(self, inner: Asker, recorded: Callable[[], Recorded | None]) -> None:
        self._inner = inner
        self._recorded = cache(recorded)

    @property
    def interactive(self) -> bool:
        """Whether an answer can come at all."""
        return self._recorded() is not None or self._inner.interactive

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """What was decided then, or is now."""
        recorded = self._recorded()
        answer = None if recorded is None else recorded.recall(request)
        return answer or await self._inner.decide(request)

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Keep what was decided, for a later run."""
        if (recorded := self._recorded()) is not None:
            recorded.keep(request, answer)
        self._inner.answered(request, answer)

    @property
    def can_ask(self) -> bool:
        """Whether a question can get an answer."""
        return self._recorded() is not None or self._inner.can_ask

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """What was answered then, or is now."""
        recorded = self._recorded()
        answer = None if recorded is None else recorded.recall_answer(question)
        if answer is not None:
            return answer
        answer = await self._inner.question(question, check)
        if recorded is not None:
            recorded.keep_answer(question, answer)
        return answer


def script_asker() -> Asker:
    """Who answers where no host runs the program: the recording, or whoever is at the terminal."""
    return RecordedAsker(ScriptAsker(), hooks.recorded_answers)
