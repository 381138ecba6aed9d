"""The form's Python side, and what stays of a question in the notebook."""

from __future__ import annotations

from typing import Any

import ipywidgets
import pytest

from op_jupyter.core.questions import Question
from op_jupyter.views.question_view import QuestionView, question_bundle

Wire = dict[str, Any]


class Page(QuestionView):
    """A form whose messages the test reads instead of a browser."""

    def __init__(self) -> None:
        self.sent: list[Wire] = []
        self.heard: list[Any] = []
        question = Question("q1", "s1", "t1", "ask", "Which?", ("red", "blue")).to_json()
        super().__init__(question, self.take, lambda: self.heard.append("declined"))

    def take(self, said: Any) -> str:
        self.heard.append(said)
        return "" if said == "red" else "choose red"

    def send(self, content: Wire, buffers: object = None) -> None:
        self.sent.append(content)


def says(page: Page, content: Any) -> None:
    data = {"method": "custom", "content": content}
    page._handle_msg({"content": {"data": data}, "buffers": []})


def test_it_is_an_ordinary_widget_that_knows_when_a_page_shows_it() -> None:
    page = Page()
    assert isinstance(page, ipywidgets.DOMWidget)
    assert repr(page) == "<question: Which?>"
    assert not page.ready.is_set()
    says(page, {"kind": "ready"})
    assert page.ready.is_set()
    assert page.sent == [{"kind": "open", "place": page.model_id}]


def test_a_page_that_was_loaded_again_is_told_what_stays() -> None:
    page = Page()
    says(page, {"kind": "ready"})
    says(page, {"kind": "ready"})
    page.leave({"text/plain": "red"})
    assert page.comm is not None
    assert (page.sent[-1]["kind"], page.sent[-1]["data"]) == ("leave", {"text/plain": "red"})
    says(page, {"kind": "removed"})
    assert page.comm is None


def test_an_answer_is_taken_or_said_to_be_wrong() -> None:
    page = Page()
    says(page, {"kind": "answer", "id": "q1", "value": "green"})
    says(page, {"kind": "answer", "id": "q1", "value": "red"})
    assert page.sent == [{"kind": "problem", "text": "choose red"}, {"kind": "taken"}]
    says(page, {"kind": "decline", "id": "q1"})
    assert page.heard == ["green", "red", "declined"]


@pytest.mark.parametrize(
    "content",
    [None, 3, [], {}, {"kind": "answer"}, {"kind": "answer", "id": "q2", "value": "red"}, "ready"],
)
def test_messages_that_make_no_sense_are_dropped(content: Any) -> None:
    page = Page()
    says(page, content)
    assert (page.sent, page.heard) == ([], [])


def test_the_saved_question_is_inert_text_and_always_the_same() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    bundle = question_bundle(hostile, f"two\nlines {hostile}")
    assert "<script" not in bundle["text/html"]
    assert "[U+202E]" in bundle["text/plain"]
    assert bundle == question_bundle(hostile, f"two\nlines {hostile}")
    assert question_bundle("Which?", "red") == {
        "text/plain": "Which?\n→ red",
        "text/html": "<p>Which?<br>→ <b>red</b></p>",
    }
