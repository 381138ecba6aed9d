"""Questions of a program's in real kernels: a page, ``input()``, and nobody there."""

from __future__ import annotations

from typing import Any

import pytest
from kernel.harness import Cell, Kernel
from kernel.page import Page

from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

ASK = "from openprogram import ask, can_ask, confirm, form"


class QuestionPage(Page):
    """The front end's side of a question's form."""

    @staticmethod
    def _view_of(cell: Cell) -> str | None:
        found = [c for c in cell.of("comm_open") if "question" in c["data"].get("state", {})]
        return str(found[-1]["comm_id"]) if found else None

    def say_ready(self) -> dict[str, Any]:
        """The page has rendered the form; its question."""
        self.send({"kind": "ready"})
        self._kernel.wait_for(lambda: any(self.received("open")), "the kernel to know it")
        (opened,) = [m for m in self._kernel.comms[self.comm] if "state" in m["content"]["data"]]
        question: dict[str, Any] = opened["content"]["data"]["state"]["question"]
        return question

    def answer(self, question: dict[str, Any], value: Any) -> None:
        """Press Answer."""
        self.send({"kind": "answer", "id": question["id"], "value": value})


def sent(kernel: Kernel, code: str, *, allow_stdin: bool = True) -> Cell:
    return kernel.send(f"{ASK}\n{code}", allow_stdin=allow_stdin)


def texts(cell: Cell) -> list[str]:
    return [shown["data"].get("text/plain", "") for shown in cell.displays]


ASYNC = "import asyncio\nprint(await ask.aio('Which?', ['red', 'blue']))"
SYNC = "print(ask('Which?', ['red', 'blue']))"
THREAD = """
import asyncio
print(await asyncio.to_thread(ask, 'Which?', ['red', 'blue']))
"""


ONE_KERNEL = pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)


def test_a_form_in_the_page_answers_while_the_cell_runs(notebook: Kernel) -> None:
    for code in (SYNC, ASYNC, THREAD):
        cell = sent(notebook, code)
        page = QuestionPage(notebook, cell)
        question = page.say_ready()
        assert (question["prompt"], question["options"]) == ("Which?", ["red", "blue"])
        page.answer({"id": "another"}, "red")
        page.answer(question, "")
        notebook.wait_for(lambda page=page: any(page.received("problem")), "what is wrong")
        page.answer(question, "blue")
        page.answer(question, "red")
        notebook.finish(cell)
        assert (cell.status, cell.stdout) == ("ok", "blue\n")
        assert texts(cell) == ["Which?\n→ blue"]
        assert cell.stderr == "" and notebook.input_requests == []


@ONE_KERNEL
def test_a_tool_of_a_turn_asks_in_the_page_and_both_ways_out_end_well(
    notebook: Kernel, fake: FakeMessages
) -> None:
    notebook.check(
        f"{ASK}\ndef paint() -> str:\n    \"Paint it.\"\n    return ask('Which?', ['red', 'blue'])"
    )
    fake.script(Reply([tool("paint", id="toolu_1")]), Reply([text("Done.")]))
    cell = notebook.send("%%agent --tools paint\nPaint it", allow_stdin=True)
    turn = Page(notebook, cell)
    turn.say_ready()
    turn.decide(turn.card(), "allow")
    page = QuestionPage(notebook, cell)
    page.answer(page.say_ready(), "red")
    notebook.finish(cell)
    assert cell.status == "ok"
    assert "red" in str(fake.requests[-1].body["messages"][-1])
    assert "Which?\n→ red" in texts(cell)

    declined = sent(notebook, "confirm('Go on?')")
    page = QuestionPage(notebook, declined)
    page.send({"kind": "decline", "id": page.say_ready()["id"]})
    notebook.finish(declined)
    assert declined.error == "UserDeclined"
    assert texts(declined) == ["Go on?\n→ (declined)"]

    stopped = sent(notebook, SYNC)
    QuestionPage(notebook, stopped).say_ready()
    notebook.interrupt()
    notebook.finish(stopped)
    assert stopped.error == "KeyboardInterrupt"
    assert texts(stopped) == ["Which?\n→ (no answer)"]
    assert notebook.check("print(1)") == "1"


@ONE_KERNEL
def test_without_a_page_a_question_is_asked_by_input_or_replayed_or_not_at_all(
    notebook: Kernel,
) -> None:
    cell = sent(notebook, SYNC)
    notebook.wait_for(lambda: bool(notebook.input_requests), "input()")
    assert "1. red" in notebook.input_requests[0]["content"]["prompt"]
    notebook.client.input("2")
    notebook.finish(cell)
    assert (cell.status, cell.stdout) == ("ok", "blue\n")
    assert texts(cell) == ["Which?\n→ blue"]

    typed_or_clicked = sent(notebook, SYNC)
    notebook.wait_for(lambda: len(notebook.input_requests) == 2, "input()")
    page = QuestionPage(notebook, typed_or_clicked)  # it came late
    page.answer(page.say_ready(), "red")
    notebook.finish(typed_or_clicked)
    assert (typed_or_clicked.status, typed_or_clicked.stdout) == ("ok", "red\n")
    assert texts(typed_or_clicked) == ["Which?\n→ red"]

    late = sent(notebook, "print(ask('Which?', timeout=2.5, default='none'))")
    notebook.wait_for(lambda: len(notebook.input_requests) == 3, "input()")
    notebook.finish(late)
    assert (late.status, late.stdout) == ("ok", "none\n")

    recording = "%config AgentMagics.cassette = 'asked.cassette'\n%config AgentMagics.replay = "
    notebook.check(f"{recording}'record'")
    recorded = sent(notebook, SYNC)
    page = QuestionPage(notebook, recorded)
    page.answer(page.say_ready(), "red")
    notebook.finish(recorded)
    notebook.check(f"{recording}'replay'")
    replayed = sent(notebook, SYNC, allow_stdin=False)
    notebook.finish(replayed)
    assert (replayed.status, replayed.stdout) == ("ok", "red\n")
    assert texts(replayed) == texts(recorded) == ["Which?\n→ red"]
    notebook.check(f"{recording}'off'")

    nobody = sent(notebook, "print(can_ask())\nask('Which?', default='red')", allow_stdin=False)
    notebook.finish(nobody)
    assert (nobody.error, nobody.stdout) == ("CannotAsk", "False\n")
    assert texts(nobody) == []
