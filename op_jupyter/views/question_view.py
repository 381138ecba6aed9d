"""A question of the program's as a form in the page, and what stays of it in the notebook.

The page sends what was typed or chosen, the kernel says what is wrong with it or takes it: the
first answer that fits is the one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Final

import traitlets

from op_jupyter.views.bundle import loader, question_esm, styled
from op_jupyter.views.page_widget import PageWidget
from op_jupyter.views.text import one_line, storable, visible

_SHOWN_CHARS: Final = 100

OnAnswer = Callable[[Any], str]
"""Takes what the page sends and says what is wrong with it; "" when it is taken."""


class QuestionView(PageWidget):
    """One question, shown until it is closed.

    Attributes:
        question: `core.questions.Question.to_json`.
        source: what draws it.
    """

    source = traitlets.Unicode(styled(question_esm())).tag(sync=True)
    _esm = loader(styled(question_esm()))
    question = traitlets.Dict().tag(sync=True)

    def __init__(
        self, question: Mapping[str, Any], on_answer: OnAnswer, on_decline: Callable[[], None]
    ) -> None:
        super().__init__(question=storable(dict(question)))
        self._on_answer = on_answer
        self._on_decline = on_decline

    def __repr__(self) -> str:
        return f"<question: {one_line(str(self.question['prompt']), _SHOWN_CHARS)}>"

    # from the page; on the main thread or a subshell's

    def hear(self, content: Mapping[str, Any]) -> None:
        """See `PageWidget`."""
        if content.get("kind") == "ready":
            self.send({"kind": "open", "place": self.model_id})
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
