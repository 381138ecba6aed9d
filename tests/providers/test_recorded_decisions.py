"""Recorded decisions on permission cards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import Question, QuestionAnswer
from op_jupyter.core.recording import Folders
from op_jupyter.core.redact import Redactor
from op_jupyter.providers.recorded_decisions import RecordedDecisions
from op_jupyter.store.cassettes import FileCassette

HERE = Folders.of(workspace=Path("/home/ada/proj"), home=Path("/home/ada"))
THERE = Folders.of(workspace=Path("/srv/ci/work"), home=Path("/srv/ci"))
REQUEST = PermissionRequest(
    "call_1", "turn_1", "write", "write", {"path": "/home/ada/proj/a"}, "why", "accept_edits", ""
)
MOVED = replace(REQUEST, id="call_9", turn_id="turn_7", arguments={"path": "/srv/ci/work/a"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lesson.cassette"


def decisions(path, mode, folders=HERE, **values):
    return RecordedDecisions(FileCassette(path), mode, folders=folders, **values)


@pytest.mark.parametrize("how", ["click", "stdin", "terminal", "handler"])
def test_a_persons_answer_is_recalled_for_the_same_call_on_another_machine(path, how):
    decisions(path, "record").keep(REQUEST, PermissionAnswer("allow", how))
    assert decisions(path, "replay", THERE).recall(MOVED) == PermissionAnswer("allow", "recording")


def test_other_arguments_or_another_tool_ask(path):
    decisions(path, "record").keep(REQUEST, PermissionAnswer("allow", "click"))
    replay = decisions(path, "replay")
    assert replay.recall(replace(REQUEST, arguments={"path": "/home/ada/proj/b"})) is None
    assert replay.recall(replace(REQUEST, tool="edit")) is None


def test_edited_arguments_and_messages_are_recalled_too(path):
    edited = PermissionAnswer("allow", "click", {"path": "/home/ada/proj/b"})
    refused = PermissionAnswer("deny_message", "click", message="use b")
    record = decisions(path, "record")
    record.keep(REQUEST, edited)
    record.keep(REQUEST, refused)
    replay = decisions(path, "replay", THERE)
    assert replay.recall(MOVED).arguments == {"path": "/srv/ci/work/b"}
    assert replay.recall(MOVED).message == "use b"


@pytest.mark.parametrize("how", ["policy", "timeout", "rule", "recording"])
def test_what_no_person_decided_is_not_recorded(path, how):
    decisions(path, "record").keep(REQUEST, PermissionAnswer("deny", how))
    assert not path.exists()


@pytest.mark.parametrize("mode", ["replay", "off"])
def test_nothing_is_recorded_unless_asked_for(path, mode):
    decisions(path, mode).keep(REQUEST, PermissionAnswer("allow", "click"))
    assert not path.exists()


@pytest.mark.parametrize("mode", ["record", "off"])
def test_nothing_is_recalled_unless_asked_for(path, mode):
    decisions(path, "record").keep(REQUEST, PermissionAnswer("allow", "click"))
    assert decisions(path, mode).recall(REQUEST) is None


def test_auto_recalls_what_is_there_and_records_what_is_not(path):
    auto = decisions(path, "auto")
    assert auto.recall(REQUEST) is None
    auto.keep(REQUEST, PermissionAnswer("allow", "click"))
    assert decisions(path, "auto").recall(REQUEST).how == "recording"


def test_secrets_are_not_recorded(path):
    secret = "correct-horse-battery"
    redactor = Redactor([secret])
    request = replace(REQUEST, arguments={"code": f"login('{secret}')"})
    decisions(path, "record", redactor=redactor).keep(request, PermissionAnswer("allow", "click"))
    assert secret not in path.read_text(encoding="utf-8")
    assert decisions(path, "replay", redactor=redactor).recall(request) is not None


# -- answers to questions

QUESTION = Question("q1", "s1", "t1", "ask", "Delete /home/ada/proj/a?", ("yes", "no"))


@pytest.mark.parametrize("how", ["click", "stdin", "terminal"])
def test_an_answer_is_recalled_for_the_same_question_on_another_machine(path, how):
    said = QuestionAnswer({"path": "/home/ada/proj/b", "parts": [1, None]}, how)
    decisions(path, "record").keep_answer(QUESTION, said)

    same = replace(QUESTION, id="q7", turn_id="t9", prompt="Delete /srv/ci/work/a?")
    recalled = decisions(path, "replay", THERE).recall_answer(same)

    assert recalled.value == {"path": "/srv/ci/work/b", "parts": [1, None]}
    assert (recalled.how, recalled.declined) == ("recording", False)
    assert "/home/ada" not in path.read_text()


def test_another_question_asks(path):
    decisions(path, "record").keep_answer(QUESTION, QuestionAnswer("yes", "click"))
    replay = decisions(path, "replay")
    for other in ({"prompt": "Delete it?"}, {"options": ("yes",)}, {"multi": True}):
        assert replay.recall_answer(replace(QUESTION, **other)) is None
    assert decisions(path, "record").recall_answer(QUESTION) is None


def test_declining_and_answers_in_a_row_are_recalled(path):
    record = decisions(path, "record")
    record.keep_answer(QUESTION, QuestionAnswer(how="click", declined=True))
    record.keep_answer(QUESTION, QuestionAnswer("yes", "click"))
    replay = decisions(path, "replay")
    assert replay.recall_answer(QUESTION) == QuestionAnswer(None, "recording", declined=True)
    assert replay.recall_answer(QUESTION).value == "yes"


def test_a_secret_in_an_answer_is_not_recorded(path):
    record = decisions(path, "record", redactor=Redactor(["hunter2hunter2"]))
    record.keep_answer(QUESTION, QuestionAnswer("it is hunter2hunter2", "click"))
    assert "hunter2" not in path.read_text()
