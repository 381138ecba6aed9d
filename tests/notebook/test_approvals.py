"""Who answers when something asks, in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from time import monotonic
from typing import Any, TypeVar

import pytest

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.engine.asking import ask_by_text, permission_question
from op_jupyter.engine.hooks import set_permission_handler
from op_jupyter.notebook.approvals import NotebookAsker
from op_jupyter.notebook.frontend import FrontEnd

T = TypeVar("T")
NOTEBOOK = FrontEnd("kernel", can_answer=True)
HEADLESS = FrontEnd("kernel", can_answer=False)
TERMINAL = FrontEnd("terminal", can_answer=True)


def request(**changes: Any) -> PermissionRequest:
    values: dict[str, Any] = {
        "id": "call-1",
        "turn_id": "turn-1",
        "tool": "python",
        "effect": "execute",
        "arguments": {"code": "shutil.rmtree('data')"},
        "reason": "running code asks in this mode",
        "mode": "accept_edits",
        "rule": "python(*)",
        "dangers": ("deletes a folder",),
        "display": {"kind": "code", "language": "python", "code": "shutil.rmtree('data')"},
    }
    return PermissionRequest(**{**values, **changes})


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

    def __init__(self, *, seen: bool = False) -> None:
        self.seen = seen
        self.log: list[str] = []
        self.shown = asyncio.Event()

    def show(self, request: PermissionRequest) -> None:
        self.log.append(f"show {request.id}")
        self.shown.set()

    def is_seen(self) -> bool:
        return self.seen

    def done(self) -> None:
        self.log.append("done")


class Recorded:
    def __init__(self, answer: PermissionAnswer | None) -> None:
        self._answer = answer
        self.kept: list[tuple[PermissionRequest, PermissionAnswer]] = []

    def recall(self, request: PermissionRequest) -> PermissionAnswer | None:
        return self._answer

    def keep(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        self.kept.append((request, answer))


def never(prompt: str) -> str:
    raise AssertionError(f"nobody may be asked by text: {prompt}")


def asker(
    front: FrontEnd, card: FakeCard, *, read: Callable[[str], str] = never, **options: Any
) -> NotebookAsker:
    return NotebookAsker(lambda: front, Here(read), card, **options)


async def test_nobody_there_denies_at_once_and_names_the_rule() -> None:
    ask = asker(HEADLESS, FakeCard())
    assert not ask.interactive
    answer = await ask.decide(request())
    assert (answer.answer, answer.how) == ("deny_message", "policy")
    assert "python(*)" in answer.message


async def test_a_page_that_is_there_is_waited_for_without_a_limit() -> None:
    card = FakeCard(seen=True)
    ask = asker(NOTEBOOK, card, tell=lambda _, place: card.log.append(place))
    asking = asyncio.ensure_future(ask.decide(request()))
    await asyncio.wait([asking], timeout=0.1)
    assert not asking.done()
    assert card.log == ["show call-1", "widget-1"]
    asking.cancel()  # a click resolved the card
    await asyncio.wait([asking])
    assert card.log == ["show call-1", "widget-1", "done"]


async def test_a_card_whose_output_was_cleared_is_shown_again() -> None:
    card = FakeCard(seen=True)
    asking = asyncio.ensure_future(asker(NOTEBOOK, card).decide(request()))
    async with asyncio.timeout(10):
        await card.shown.wait()
        card.shown.clear()
        card.seen = False
        await card.shown.wait()
    assert card.log == ["show call-1", "show call-1"]
    assert not asking.done()
    asking.cancel()
    await asyncio.wait([asking])
    assert card.log[-1] == "done"


async def test_without_a_page_it_asks_by_text() -> None:
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "y"

    ask = asker(NOTEBOOK, FakeCard(), read=read, ready_seconds=0.05)
    assert await ask.decide(request()) == PermissionAnswer("allow", "stdin")
    assert "shutil.rmtree('data')" in prompts[0]
    assert "deletes a folder" in prompts[0]


async def test_a_page_that_never_came_is_not_waited_for_again() -> None:
    ask = asker(NOTEBOOK, FakeCard(), read=lambda _: "y", ready_seconds=0.3)
    started = monotonic()
    for _ in range(50):
        assert (await ask.decide(request())).answer == "allow"
    assert monotonic() - started < 5


async def test_a_terminal_is_asked_by_text_and_shows_no_card() -> None:
    card = FakeCard()
    answer = await asker(TERMINAL, card, read=lambda _: "n").decide(request())
    assert answer == PermissionAnswer("deny", "terminal")
    assert card.log == []


async def test_a_recorded_decision_is_used_without_asking_anybody() -> None:
    recorded = PermissionAnswer("allow", "recording")
    ask = asker(HEADLESS, FakeCard(), decisions=Recorded(recorded))
    assert ask.interactive
    assert await ask.decide(request()) is recorded


async def test_what_was_answered_is_recorded() -> None:
    recorded = Recorded(None)
    click = PermissionAnswer("allow", "click")
    asker(NOTEBOOK, FakeCard(), decisions=recorded).answered(request(), click)
    assert recorded.kept == [(request(), click)]


async def test_a_host_decides_before_any_other_way_and_may_leave_it_to_them() -> None:
    said: list[Any] = ["allow", PermissionAnswer("deny_message", "", message="no"), None]

    async def decide(asked: PermissionRequest) -> Any:
        return said.pop(0)

    set_permission_handler(decide)
    try:
        ask = asker(HEADLESS, FakeCard())
        assert ask.interactive
        assert await ask.decide(request()) == PermissionAnswer("allow", "handler")
        assert (await ask.decide(request())).message == "no"
        assert (await ask.decide(request())).how == "policy"
    finally:
        set_permission_handler(None)


async def test_no_recorded_decision_and_nobody_there_is_a_denial() -> None:
    ask = asker(HEADLESS, FakeCard(), decisions=Recorded(None))
    assert (await ask.decide(request())).how == "policy"


@pytest.mark.parametrize(
    ("said", "answer", "message"),
    [
        ("y", "allow", ""),
        (" YES ", "allow", ""),
        ("s", "allow_session", ""),
        ("n", "deny", ""),
        ("", "deny", ""),
        ("use a copy of the data", "deny_message", "use a copy of the data"),
    ],
)
def test_a_line_of_text_is_an_answer(said: str, answer: str, message: str) -> None:
    got = ask_by_text(request(), "stdin", lambda _: said)
    assert (got.answer, got.message, got.how) == (answer, message, "stdin")


def test_without_a_rule_the_session_answer_allows_once_and_is_not_offered() -> None:
    asked = request(rule="")
    assert ask_by_text(asked, "stdin", lambda _: "s").answer == "allow"
    assert "for this session" not in permission_question(asked)


def test_the_end_of_input_denies() -> None:
    def closed(_: str) -> str:
        raise EOFError

    assert ask_by_text(request(), "terminal", closed).answer == "deny"


def test_arguments_are_shown_in_full() -> None:
    asked = request(display={"kind": "json"}, arguments={"path": "a.txt", "text": "x" * 3000})
    assert "x" * 3000 in permission_question(asked)


async def test_a_parked_question_waits_although_no_page_has_shown_it() -> None:
    card = FakeCard(seen=False)
    told: list[str] = []
    ask = asker(
        NOTEBOOK, card, ready_seconds=0.0, parked=True, tell=lambda _, place: told.append(place)
    )
    asking = asyncio.ensure_future(ask.decide(request()))
    await asyncio.sleep(0)
    assert ask.interactive and not asking.done() and card.log == []
    assert told == ["widget-1"]
    asking.cancel()


async def test_a_parked_question_where_nobody_can_answer_is_denied() -> None:
    asker = NotebookAsker(lambda: HEADLESS, Here(never), FakeCard(), parked=True)
    assert not asker.interactive
    assert (await asker.decide(request())).answer == "deny_message"
