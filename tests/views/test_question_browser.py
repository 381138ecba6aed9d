"""A question's form in a real browser: mouse or keyboard alone, and one answer taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page
from views.harness import QuestionPage

from op_jupyter.core.questions import Question, fields_of

pytestmark = pytest.mark.browser
Open = Callable[[Question], QuestionPage]
TRIP = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"], "description": "where to"},
        "tags": {"type": "array", "items": {"enum": ["sea", "snow"]}},
        "days": {"type": "integer"},
        "pets": {"type": "boolean", "default": True},
        "more": {"type": "object"},
    },
    "required": ["city", "days"],
}


def question(**values: Any) -> Question:
    return Question(
        **{"id": "q1", "session_id": "s", "turn_id": "t", "kind": "ask", "prompt": "?", **values}
    )


@pytest.fixture
def open_question(shared_page: Page) -> Iterator[Open]:
    opened: list[QuestionPage] = []

    def open_one(asked: Question) -> QuestionPage:
        opened.append(QuestionPage(shared_page, asked.to_json()))
        return opened[-1]

    yield open_one
    for view in opened:
        view.leave()
    assert [problem for view in opened for problem in view.problems] == []


def answers(view: QuestionPage) -> list[Any]:
    return [message["value"] for message in view.sent if message["kind"] == "answer"]


def test_free_text_is_sent_with_enter_and_shift_enter_is_a_new_line(open_question: Open) -> None:
    view = open_question(question(prompt="Which colour?"))
    assert view.sent == [{"kind": "ready"}]
    box = view.page.get_by_role("textbox", name="Answer")
    assert box.evaluate("box => box === document.activeElement")
    view.page.keyboard.type("red")
    view.page.keyboard.press("Shift+Enter")
    view.page.keyboard.type("blue")
    view.page.keyboard.press("Enter")
    assert answers(view) == ["red\nblue"]
    assert box.is_disabled()


def test_one_option_is_chosen_with_the_keyboard_alone(open_question: Open) -> None:
    view = open_question(question(options=("red", "blue", "<b>")))
    view.page.keyboard.press("Space")
    view.page.keyboard.press("ArrowDown")
    view.page.keyboard.press("Enter")
    view.page.keyboard.press("Enter")
    assert answers(view) == ["blue"]
    assert view.page.locator("label", has_text="<b>").count() == 1


def test_own_words_take_the_place_of_an_option(open_question: Open) -> None:
    view = open_question(question(options=("red", "blue")))
    view.page.get_by_label("red").check()
    view.page.get_by_label("In your own words").fill("green")
    assert not view.page.get_by_label("red").is_checked()
    view.page.get_by_role("button", name="Answer").click()
    assert answers(view) == ["green"]


def test_without_own_words_there_is_no_place_for_them(open_question: Open) -> None:
    view = open_question(question(options=("red", "blue"), allow_custom=False))
    assert view.page.get_by_role("textbox").count() == 0


def test_several_options_are_checkboxes(open_question: Open) -> None:
    view = open_question(question(options=("red", "blue", "green"), multi=True))
    view.page.get_by_label("red").check()
    view.page.get_by_label("green").check()
    view.page.get_by_label("In your own words").fill("grey")
    view.page.get_by_role("button", name="Answer").click()
    assert answers(view) == [["red", "green", "grey"]]


def test_what_is_wrong_is_said_and_can_be_put_right(open_question: Open) -> None:
    view = open_question(question())
    view.page.keyboard.press("Enter")
    view.deliver({"kind": "problem", "text": "the answer is empty"})
    alert = view.page.locator(".opv-problem")
    assert (alert.get_attribute("role"), alert.inner_text()) == ("alert", "the answer is empty")
    view.page.keyboard.type("red")
    view.page.keyboard.press("Enter")
    view.deliver({"kind": "taken"})
    assert answers(view) == ["", "red"]
    assert view.page.get_by_role("status").inner_text() == "answered"


def test_an_answer_given_in_another_page_closes_the_form(open_question: Open) -> None:
    view = open_question(question(options=("red",)))
    view.deliver({"kind": "taken"})
    assert view.page.get_by_role("button", name="Answer").is_disabled()
    assert answers(view) == []


@pytest.mark.parametrize(("default", "expected"), [(True, True), (False, False)])
def test_yes_or_no_has_the_default_focused(
    open_question: Open, default: bool, expected: bool
) -> None:
    view = open_question(question(kind="confirm", default=default))
    view.page.keyboard.press("Enter")
    view.page.get_by_role("button", name="Yes").click(force=True)
    assert answers(view) == [expected]


def test_declining_is_a_button_and_escape_decides_nothing(open_question: Open) -> None:
    view = open_question(question())
    view.page.keyboard.press("Escape")
    assert view.sent == [{"kind": "ready"}]
    view.page.get_by_role("button", name="Decline").click()
    assert view.sent[-1] == {"kind": "decline", "id": "q1"}


def test_a_form_has_a_control_for_each_field(open_question: Open) -> None:
    view = open_question(question(kind="form", prompt="Your trip?", fields=fields_of(TRIP)))
    title = view.page.locator("legend", has_text="city")
    assert title.evaluate("e => e.getBoundingClientRect().width") > 20  # to be seen
    view.page.get_by_label("Oslo").check()
    view.page.get_by_label("snow").check()
    view.page.get_by_label("days").fill("3")
    assert view.page.get_by_label("pets").is_checked()
    view.page.get_by_label("more").fill("{}")
    view.page.get_by_label("days").press("Enter")
    sent = {"city": "Oslo", "tags": ["snow"], "days": "3", "pets": "yes", "more": "{}"}
    assert answers(view) == [sent]


def test_the_form_is_labelled_and_announced_and_suppresses_notebook_keys(
    open_question: Open,
) -> None:
    hostile = "Which?<img src=x onerror=alert(1)>\u202e"
    view = open_question(question(prompt=hostile, options=("a",)))
    assert view.page.get_by_role("form").count() == 1
    assert view.page.locator("img").count() == 0
    assert "[U+202E]" in view.page.get_by_role("heading", level=3).inner_text()
    assert "Which?" in view.page.locator("[role=alert].opv-sr").inner_text()
    bare = "input:not([data-lm-suppress-shortcuts]), textarea:not([data-lm-suppress-shortcuts])"
    assert view.page.locator(bare).count() == 0
