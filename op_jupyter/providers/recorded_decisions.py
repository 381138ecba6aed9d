"""Decisions on permission cards and answers to questions, recorded beside the model calls, so that
a lesson that asks something runs where nobody can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import Question, QuestionAnswer
from op_jupyter.core.recording import Folders, map_texts
from op_jupyter.core.redact import Redactor, Redacts
from op_jupyter.providers.recorded import Cassette, ReplayMode

_BY_A_PERSON: Final = frozenset({"click", "stdin", "terminal", "handler"})


class RecordedDecisions:
    """Decisions kept in *cassette*: recalled for the identical tool and arguments only."""

    def __init__(
        self,
        cassette: Cassette,
        mode: ReplayMode,
        *,
        folders: Folders,
        redactor: Redacts | None = None,
    ) -> None:
        self._cassette = cassette
        self._mode = mode
        self._folders = folders
        self._redactor = redactor or Redactor()

    def recall(self, request: PermissionRequest) -> PermissionAnswer | None:
        """What was decided on this call in the recorded run; None: ask."""
        if self._mode not in ("replay", "auto"):
            return None
        kept = self._cassette.find_decision(request.tool, self._clean(request.arguments))
        if kept is None:
            return None
        edited = kept.get("arguments")
        return PermissionAnswer(
            kept["answer"],
            "recording",
            None if edited is None else map_texts(edited, self._folders.show),
            kept.get("message", ""),
        )

    def keep(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Record *answer* if a person gave it; in ``auto`` only those that were not recalled."""
        if self._mode not in ("record", "auto") or answer.how not in _BY_A_PERSON:
            return
        kept: dict[str, Any] = {"answer": answer.answer}
        if answer.arguments is not None:
            kept["arguments"] = self._clean(answer.arguments)
        if answer.message:
            kept["message"] = self._redactor.text(self._folders.hide(answer.message))
        self._cassette.record_decision(request.tool, self._clean(request.arguments), kept)

    def recall_answer(self, question: Question) -> QuestionAnswer | None:
        """What was answered to this very question in the recorded run; None: ask."""
        if self._mode not in ("replay", "auto"):
            return None
        kept = self._cassette.find_decision(question.kind, self._clean(question.subject))
        if kept is None:
            return None
        declined = kept.get("answer") == "declined"
        value = map_texts(kept.get("value"), self._folders.show)
        return QuestionAnswer(None if declined else value, "recording", declined)

    def keep_answer(self, question: Question, answer: QuestionAnswer) -> None:
        """Record *answer* if a person gave it; in ``auto`` only those that were not recalled."""
        if self._mode not in ("record", "auto") or answer.how not in _BY_A_PERSON:
            return
        kept: dict[str, Any] = {"answer": "declined"}
        if not answer.declined:
            value = map_texts(answer.value, self._folders.hide)
            kept = {"answer": "answered", "value": self._redactor.json(value)}
        self._cassette.record_decision(question.kind, self._clean(question.subject), kept)

    def _clean(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        hidden: dict[str, Any] = map_texts(dict(arguments), self._folders.hide)
        return self._redactor.json(hidden)
