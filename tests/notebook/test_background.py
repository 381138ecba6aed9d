"""``%%agent --background``: a job to look at, to wait for and to cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from engine.harness import FailingStore
from shells import Model, Shell

from op_jupyter.engine import loop
from op_jupyter.errors import Busy, TurnCancelled, TurnFailed, UsageError
from op_jupyter.notebook.background import BackgroundTurn
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.result import TurnResult
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import HANG, Gate, call, reply

WORK = "%%agent --background\nWork on it"


def begin(shell: Shell, cell: str = WORK) -> BackgroundTurn:
    job = shell.value(cell)
    assert isinstance(job, BackgroundTurn)
    return job


@contextmanager
def once_waiting(notebook: Notebook, do: Callable[[], object]) -> Iterator[None]:
    """Have *do* called as soon as the cell that is run inside lends its thread."""

    def let_go() -> None:
        until = time.monotonic() + 10
        while not notebook.lent.waiting and time.monotonic() < until:
            time.sleep(0.001)
        do()

    lets_go = threading.Thread(target=let_go)
    lets_go.start()
    yield
    lets_go.join()


def test_the_cell_returns_at_once_and_the_job_gives_the_result(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    gate = Gate()
    model.answers([gate, *reply("Done.")])
    job = begin(shell)
    assert job.status == "running" and not job.done
    assert repr(job).startswith("<background turn: ") and job.id not in repr(job)
    assert shell.value("1 + 1") == 2
    gate.open()
    result = job.result()
    assert isinstance(result, TurnResult) and str(result) == "Done."
    assert (job.status, job.done, result.turn_id) == ("completed", True, job.id)
    assert job.progress == "OpenProgram: completed · 1 step"
    assert notebook.session.dag.turns[job.id].metadata["background"] is True


def test_a_job_can_be_awaited_and_kept_under_a_name(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Done."))
    begin(shell, "%%agent --background -o job\nWork on it")
    assert str(shell.value("await job")) == "Done."
    assert str(shell.value("job.result()")) == "Done."


def test_a_job_that_fails_says_so_when_it_is_waited_for(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply(call("look", {})))
    job = begin(shell, "%%agent --background --max-steps 1\nWork on it")
    with pytest.raises(TurnFailed, match="max_model_calls"):
        job.result()
    assert job.status == "failed"


@pytest.mark.parametrize("writes", [0, 1])
def test_a_job_that_cannot_be_stored_does_not_run_for_ever(
    notebook: Notebook, shell: Shell, model: Model, writes: int
) -> None:
    model.answers(reply("Done."), reply("Never seen."))
    shell.value("%%agent\nA first one, which names the session")
    recorder = notebook.session.recorder
    recorder.reopened(FailingStore(recorder.store, writes))  # type: ignore[arg-type]
    job = begin(shell)
    with pytest.raises(TurnFailed, match="persistence_error"):
        job.result()
    assert (job.status, job.done) == ("failed", True)
    assert shell.says("%agent jobs").count("running") == 0


def test_a_job_can_be_cancelled_once(notebook: Notebook, shell: Shell, model: Model) -> None:
    gate = Gate()
    model.answers([gate, HANG])
    job = begin(shell)
    gate.wait_reached()
    assert job.cancel()
    with pytest.raises(TurnCancelled):
        job.result()
    assert not job.cancel()
    assert "over already" in shell.says(f"%agent cancel {job.id}")


def test_the_commands_list_wait_for_and_cancel_it(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    assert "no background turns" in shell.says("%agent jobs")
    assert isinstance(shell.error("%agent wait"), UsageError)
    gate, hang = Gate(), Gate()
    model.answers([gate, *reply("Done.")], [hang, HANG])
    first = begin(shell)
    assert f"{first.id}: running" in shell.says("%agent jobs")
    gate.open()
    assert shell.says("%agent wait") == "Done."
    second = begin(shell)
    hang.wait_reached()
    assert "being stopped" in shell.says("%agent cancel")
    assert isinstance(shell.error(f"%agent wait {second.id}"), TurnCancelled)
    listed = shell.says("%agent jobs")
    assert f"{first.id}: completed" in listed and f"{second.id}: cancelled" in listed
    assert isinstance(shell.error("%agent wait nothing"), UsageError)


SUBMIT = """
import threading
from concurrent.futures import ThreadPoolExecutor

from op_jupyter import agentic_function, submit

begun, go_on, threads = threading.Event(), threading.Event(), ThreadPoolExecutor(1)


@agentic_function
def held(what: str) -> str:
    \"\"\"Wait.\"\"\"
    begun.set()
    assert go_on.wait(10)
    return f"{what} is over"


sent = submit(held, "it", executor=threads)
begun.wait(10)
"""


def test_the_commands_list_wait_for_and_cancel_what_was_submitted(
    notebook: Notebook, shell: Shell
) -> None:
    assert shell.value(SUBMIT)
    sent = shell.value("sent")
    assert f"{sent.id}: running, held" in shell.says("%agent jobs")
    assert "runs in a thread" in shell.says(f"%agent cancel {sent.id}")
    queued = shell.value('submit(held, "that", executor=threads)')
    assert isinstance(shell.error("%agent wait"), UsageError)  # which one?
    assert "being stopped" in shell.says(f"%agent cancel {queued.id}")
    with once_waiting(notebook, shell.value("go_on.set")):
        assert shell.says(f"%agent wait {sent.id}") == "it is over"
    assert f"{sent.id}: completed, held" in shell.says("%agent jobs")
    assert "is over: completed; `%agent show" in str(shell.error(f"%agent wait {sent.id}"))


def test_the_next_cell_waits_for_it_and_another_background_turn_is_refused(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    gate = Gate()
    model.answers([gate, *reply("Done.")], reply("And that."))
    job = begin(shell)
    assert isinstance(shell.error("%%agent --background\nAnd this"), Busy)

    with once_waiting(notebook, gate.open):
        assert str(shell.value("%%agent\nAnd this")) == "And that."
    assert job.status == "completed"
    assert "Done." in model.sent()  # it stands behind the answer that it waited for


def test_it_goes_on_while_the_notebook_works_in_a_new_session(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    gate = Gate()
    model.answers([gate, *reply("Done.")], reply("Beside it."))
    job = begin(shell)
    gate.wait_reached()
    assert str(shell.value("%%agent --fresh\nAnd this")) == "Beside it."
    assert job.status == "running" and job.session_id != notebook.session.session_id
    assert f"{job.id}: running" in shell.says("%agent jobs")
    gate.open()
    assert str(job.result()) == "Done."
    assert shell.says(f"%agent resume {job.session_id}")
    assert len(notebook.session.dag.turns) == 1


def test_it_can_work_in_another_session_which_is_let_go_at_its_end(
    notebook: Notebook, shell: Shell, model: Model, store: MemoryStore
) -> None:
    other = store.create_session("other")
    gate = Gate()
    model.answers([gate, *reply("There.")], reply("Here."))
    job = begin(shell, f"%%agent --background --session {other}\nWork on it")
    gate.wait_reached()
    assert str(shell.value("%%agent\nAnd you?")) == "Here."
    gate.open()
    assert str(job.result()) == "There." and job.session_id == other
    store.open(other).close()  # nobody holds it any more


def test_where_nobody_can_answer_a_question_is_denied_at_once(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply(call("write_file", {"path": ".env", "text": "x"})), reply("Asked."))
    job = begin(shell)
    result = job.result()
    assert str(result) == "Asked."
    (node,) = [n for n in result.nodes if n.name == "write_file"]
    assert node.status == "denied" and "To allow it" in str(node.output)


def test_unloading_stops_what_runs_in_the_background(
    notebook: Notebook, shell: Shell, model: Model, store: MemoryStore
) -> None:
    gate = Gate()
    model.answers([gate, HANG])
    job = begin(shell)
    gate.wait_reached()
    session_id = job.session_id
    notebook.jobs.close()
    assert job.status == "cancelled"
    assert loop.on_background_loop() is False
    assert store.load(session_id).turns[job.id].status == "cancelled"


def test_a_job_of_a_process_that_died_is_listed_as_interrupted(
    notebook: Notebook, shell: Shell, model: Model, store: MemoryStore
) -> None:
    gate = Gate()
    model.answers([gate, HANG])
    job = begin(shell)
    gate.wait_reached()
    session_id = job.session_id
    store.crash()
    assert store.open(session_id).dag.turns[job.id].status == "interrupted"
