"""Who answers when a program asks, in a notebook, and what the cell keeps of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import pytest

from op_jupyter.core.questions import Question, QuestionAnswer, checked_answer
from op_jupyter.engine.asking import ScriptAsker
from op_jupyter.errors import CannotAsk
from op_jupyter.notebook.frontend import FrontEnd
from op_jupyter.notebook.questions import NotebookQuestions

T = TypeVar("T")
NOTEBOOK = FrontEnd("kernel", can_answer=True)
HEADLESS = FrontEnd("kernel", can_answer=False)
TERMINAL = FrontEnd("terminal", can_answer=True)
QUESTION = Question("q1", "s1", "t1", "ask", "Which?", ("red", "blue"))


class Here:
    """A main thread that is this one."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self.read = read

    async def caught_up(self) -> None:
        pass

    async def run(self, function: Callable[[], T]) -> T:
        return function()

    def clicks(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class FakeCard:
    place = "widget-1"

    def __init__(self, answer: QuestionAnswer | None = None) -> None:
        self._answer = answer
        self.log: list[Any] = []

    def show(self, question: Question, check: Any) -> None:
        self.log.append("show")

    def is_seen(self) -> bool:
        return self._answer is not None

    async def answer(self) -> QuestionAnswer:
        if self._answer is None:
            await asyncio.Event().wait()
        assert self._answer is not None
        return self._answer

    def keep(self, question: Question, answer: QuestionAnswer | None) -> None:
        self.log.append(answer if answer is None else answer.value)


class Recorded:
    def __init__(self, answer: QuestionAnswer | None) -> None:
        self._answer = answer
        self.kept: list[QuestionAnswer] = []

    def recall_answer(self, question: Question) -> QuestionAnswer | None:
        return self._answer

    def keep_answer(self, question: Question, answer: QuestionAnswer) -> None:
        self.kept.append(answer)


def never(prompt: str) -> str:
    raise AssertionError(f"nobody may be asked by text: {prompt}")


def questions(
    front: FrontEnd, card: FakeCard, *, read: Callable[[str], str] = never, **options: Any
) -> NotebookQuestions:
    values = {"ready_seconds": 0.0, **options}
    return NotebookQuestions(lambda: front, Here(read), lambda: card, **values)


async def put(asked: NotebookQuestions) -> QuestionAnswer:
    return await asked.question(QUESTION, lambda said: checked_answer(QUESTION, said))


async def test_a_page_that_shows_the_form_answers_it() -> None:
    card = FakeCard(QuestionAnswer("red", "click"))
    assert (await put(questions(NOTEBOOK, card))).value == "red"
    assert card.log == ["show", "red"]


async def test_others_are_told_of_it_while_it_waits_for_the_page_alone() -> None:
    told: list[Any] = []

    @contextmanager
    def waiting(question: Question, place: str) -> Iterator[None]:
        told.append((question.id, place))
        yield
        told.append("gone")

    await put(questions(NOTEBOOK, FakeCard(QuestionAnswer("red", "click")), waiting=waiting))
    assert told == [("q1", "widget-1"), "gone"]
    await put(questions(NOTEBOOK, FakeCard(), read=lambda prompt: "2", waiting=waiting))
    assert len(told) == 2


async def test_without_a_page_there_is_a_line_of_text_and_the_cell_keeps_it() -> None:
    card = FakeCard()
    answer = await put(questions(NOTEBOOK, card, read=lambda prompt: "2"))
    assert answer == QuestionAnswer("blue", "stdin")
    assert card.log == ["show", "blue"]


class FakeTerminal(ScriptAsker):
    can_ask = True

    async def question(self, question: Question, check: Any) -> QuestionAnswer:
        return QuestionAnswer(check("own words"), "terminal")


async def test_a_terminal_is_asked_by_text_alone() -> None:
    card = FakeCard()
    answer = await put(questions(TERMINAL, card, terminal=FakeTerminal()))
    assert answer == QuestionAnswer("own words", "terminal")
    assert card.log == []
    assert not questions(TERMINAL, card).can_ask  # here there is none


async def test_the_end_of_input_declines() -> None:
    def closed(prompt: str) -> str:
        raise EOFError

    answer = await put(questions(NOTEBOOK, FakeCard(), read=closed))
    assert answer.declined and answer.value is None


async def test_nobody_there_is_an_error_at_once() -> None:
    card = FakeCard()
    asked = questions(HEADLESS, card)
    assert not asked.can_ask
    with pytest.raises(CannotAsk):
        await put(asked)
    assert card.log == []


async def test_a_recorded_answer_is_used_where_nobody_is_and_shown_as_it_was() -> None:
    card = FakeCard()
    asked = questions(HEADLESS, card, answers=Recorded(QuestionAnswer("red", "recording")))
    assert asked.can_ask
    assert (await put(asked)).value == "red"
    assert card.log == ["red"]


async def test_a_question_that_was_not_recorded_asks_and_is_kept() -> None:
    recorded = Recorded(None)
    card = FakeCard(QuestionAnswer("red", "click"))
    await put(questions(NOTEBOOK, card, answers=recorded))
    assert recorded.kept == [QuestionAnswer("red", "click")]
    with pytest.raises(CannotAsk):
        await put(questions(HEADLESS, FakeCard(), answers=Recorded(None)))


async def test_a_turn_in_the_background_asks_the_page_alone() -> None:
    class Slow(FakeCard):
        def is_seen(self) -> bool:
            return False

    card = Slow(QuestionAnswer("red", "click"))
    assert (await put(questions(NOTEBOOK, card, parked=True))).value == "red"
    in_terminal = questions(TERMINAL, FakeCard(), parked=True, terminal=FakeTerminal())
    assert not in_terminal.can_ask
    with pytest.raises(CannotAsk):
        await put(in_terminal)


async def test_a_question_that_is_called_off_leaves_a_note_in_the_cell() -> None:
    class Waiting(FakeCard):
        def is_seen(self) -> bool:
            return True

        async def answer(self) -> QuestionAnswer:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    card = Waiting()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await put(questions(NOTEBOOK, card))
    assert card.log == ["show", None]
