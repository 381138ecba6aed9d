"""Background turns in a real kernel: parked questions, late pages, and a process that dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel.harness import Cell, Kernel
from kernel.page import Page
from kernel.test_questions import ASK, QuestionPage

from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

ONE_KERNEL = pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)


def begin(kernel: Kernel, prompt: str, name: str = "job") -> Cell:
    """Start a background turn from a front end that can answer; its cell ends at once."""
    code = f"%%agent --background -o {name}\n{prompt}"
    return kernel.finish(kernel.send(code, allow_stdin=True))


def test_a_question_is_parked_and_a_page_that_is_opened_late_answers_it(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(
        Reply([text("Let me look. "), tool("python", code="print('ran', 6 * 7)")]),
        Reply([text("It is 42.")]),
    )
    cell = begin(notebook, "Work on it")
    assert cell.status == "ok", cell.reply
    # Other cells run, and see that it waits.
    waits = notebook.check(
        "import time\n"
        "until = time.monotonic() + 30\n"
        "from op_jupyter.engine.context import current_session\n"
        "session = current_session().agent\n"
        "while not session.pending_cards() and time.monotonic() < until:\n"
        "    time.sleep(0.01)\n"
        "print(len(session.pending_cards()), job.status)"
    )
    assert waits == "1 running"
    assert "waits  toolu_01: python" in shown(notebook.run("%agent permissions"))

    # The page was opened late: it sees the state so far, the card among it.
    page = Page(notebook, cell)
    page.say_ready()
    (snapshot, *_) = page.received("snapshot")
    assert snapshot["state"]["status"] == "running"
    card = page.card()
    page.send({"kind": "node_action", "action": "rewind", "id": page.nodes()["user"]})
    notebook.wait_for(lambda: any(page.received("note")), "what will happen")

    # The next cell waits for it; stopping the wait does not stop the turn.
    nxt = notebook.send("%%agent\nAnd now?", allow_stdin=True)
    notebook.wait_for(lambda: "comes first" in shown(nxt), "why it waits")
    notebook.interrupt()
    assert "the background turn goes on" in str(notebook.finish(nxt).reply)
    assert notebook.check("print(job.status)") == "running"
    fake.script(Reply([text("And that.")]))
    nxt = notebook.send("%%agent\nAnd now?", allow_stdin=True)
    notebook.wait_for(lambda: "comes first" in shown(nxt), "why it waits")

    # The page answers while that cell waits.  What was asked of the node is done in between.
    page.decide(card, "allow")
    assert "And that." in shown(notebook.finish(nxt)) and "comes first" not in shown(nxt)
    assert cell.stdout == "ran 42\n" and nxt.stdout == ""  # each output in its own cell
    finished = page.updates("turn_finished")
    assert [data["status"] for data in finished] == ["completed"]
    notebook.wait_for(lambda: "It is 42." in shown(cell), "what stays in the cell")
    assert "at its beginning" in shown(cell)
    assert "Work on it" not in str(fake.requests[-1].body["messages"])
    assert notebook.check("print(job.result())").endswith("It is 42.")

    # One that nobody answers in time is denied, the model is told, and the turn goes on.
    notebook.check("%config AgentMagics.answer_timeout = '0.3'")
    fake.script(Reply([tool("python", code="print('never')")]), Reply([text("Then not.")]))
    assert begin(notebook, "Work on it again").status == "ok"
    assert notebook.check("print(job.result())").endswith("Then not.")
    told = str(fake.requests[-1].body["messages"][-1])
    assert "nobody answered within 0.3 seconds" in told
    assert notebook.check("print(len(session.pending_cards()))") == "0"


PAINT = """
def paint() -> str:
    "Paint it."
    which, sure = ask("Which?", ["red", "blue"]), confirm("Sure?")
    tone = form("How?", {"type": "object", "properties": {"tone": {"type": "string"}}})
    return f"{which} {sure} {tone}"
"""


class NextQuestion(QuestionPage):
    """The form of a question that is not among *seen*, whatever cell runs by then."""

    def __init__(self, kernel: Kernel, seen: set[str]) -> None:
        self._kernel, self._subshell = kernel, None
        kernel.wait_for(lambda: bool(self._new(seen)), "the next question")
        self.comm = self._new(seen)[0]
        seen.add(self.comm)

    def _new(self, seen: set[str]) -> list[str]:
        opened = {
            comm: messages[0]["content"].get("data", {}).get("state", {})
            for comm, messages in self._kernel.comms.items()
        }
        return [c for c, state in opened.items() if "question" in state and c not in seen]


@ONE_KERNEL
def test_questions_of_a_background_turn_are_answered_in_the_page(
    notebook: Kernel, fake: FakeMessages
) -> None:
    notebook.check(f"{ASK}\n{PAINT}")
    fake.script(Reply([tool("paint", id="toolu_1")]), Reply([text("Done.")]))
    code = "%%agent --background --tools paint -o job\nPaint it"
    cell = notebook.finish(notebook.send(code, allow_stdin=True))
    turn = Page(notebook, cell)
    turn.say_ready()
    turn.decide(turn.card(), "allow")
    seen: set[str] = set()
    for answer in ("red", True, {"tone": "warm"}):
        page = NextQuestion(notebook, seen)
        page.answer(page.say_ready(), answer)
    assert notebook.check("print(job.result())").endswith("Done.")
    assert "red True {'tone': 'warm'}" in str(fake.requests[-1].body["messages"][-1])


def shown(cell: Cell) -> str:
    return "\n".join(d["data"].get("text/plain", "") for d in cell.displays)


@ONE_KERNEL
def test_a_turn_whose_process_dies_is_interrupted_and_one_that_it_ends_with_is_cancelled(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    fake.script(Reply([text("never the end")], fault="hang", at=4))
    begin(notebook, "Work on it")
    turn_id = notebook.check("print(job.id)")
    session_id = notebook.check("print(job.session_id)")
    fake.wait_held()
    notebook.kill()
    notebook.restart()
    notebook.check("%load_ext op_jupyter")
    notebook.check(f"%agent resume {session_id}")
    assert f"{turn_id}: interrupted" in shown(notebook.run("%agent jobs"))
    assert len(fake.requests) == 1
    fake.script(Reply([text("never the end")], fault="hang", at=4))
    begin(notebook, "Work on it again")
    fake.wait_held()
    notebook.leave()
    first, second = SessionStore(root_path=tmp_path / "sessions").load(session_id).turns.values()
    assert first.id == turn_id
    assert first.status == "interrupted" and first.metadata["background"] is True
    assert second.status == "cancelled"
