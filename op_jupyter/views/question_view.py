"""A question of the program's as a form in the page, and what stays of it in the notebook.

The page sends what was typed or chosen, the kernel says what is wrong with it or takes it: the
first answer that fits is the one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import anywidget
import traitlets

from op_jupyter.views.bundle import css, question_esm
from op_jupyter.views.text import storable, visible

OnAnswer = Callable[[Any], str]
"""Takes what the page sends and says what is wrong with it; "" when it is taken."""


class QuestionView(anywidget.AnyWidget):
    """One question, shown until it is closed.

    Attributes:
        ready: set once a page has shown it; only then can somebody answer.
        question: `core.questions.Question.to_json`.
    """

    _esm = question_esm()
    _css = css()
    question = traitlets.Dict().tag(sync=True)

    def __init__(
        self, question: Mapping[str, Any], on_answer: OnAnswer, on_decline: Callable[[], None]
    ) -> None:
        super().__init__(question=storable(dict(question)))
        self.ready = threading.Event()
        self._reloaded = False
        self._on_answer = on_answer
        self._on_decline = on_decline
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return "<question>"

    def close(self) -> None:
        """Free the widget, unless a page that was reloaded shows it.

        Such a page no longer knows where the display's final content belongs.
        """
        if not self._reloaded:
            super().close()

    # from the page; on the main thread or a subshell's

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        if not isinstance(content, dict):
            return
        if content.get("kind") == "ready":
            self._reloaded = self.ready.is_set()
            self.ready.set()
            self.send({"kind": "open"})
        if content.get("id") != self.question["id"]:
            return
        match content.get("kind"):
            case "answer":
                problem = self._on_answer(content.get("value"))
                self.send({"kind": "problem", "text": problem} if problem else {"kind": "taken"})
            case "decline":
                self._on_decline()
                self.send({"kind": "taken"})


def question_bundle(prompt: str, answer: str) -> dict[str, Any]:
    """Question and answer for the saved notebook: the same bytes for the same words."""
    asked, said = visible(prompt).strip(), visible(answer).strip()
    return {
        "text/plain": f"{asked}\n→ {said}",
        "text/html": f"<p>{_lines(asked)}<br>→ <b>{_lines(said)}</b></p>",
    }


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")
