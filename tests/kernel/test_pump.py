"""Clicks reach a cell that blocks, on every supported ipykernel, and nothing else is disturbed."""

from __future__ import annotations

import pytest
from kernel.harness import Cell, Kernel

SETUP = """
import concurrent.futures, threading
from comm import create_comm
from op_jupyter.notebook.main_thread import LentThread
from op_jupyter.notebook.pump import open_pump

clicked, threads = threading.Event(), []
def on_message(message):
    threads.append(threading.current_thread().name)
    clicked.set()
def new_comm():
    clicked.clear()
    comm = create_comm(target_name="probe")
    comm.on_msg(on_message)
    return comm
lent = LentThread(get_ipython().kernel)
assert lent.why_no_clicks() == "", lent.why_no_clicks()
def wait_for_click():
    future = concurrent.futures.Future()
    def watch():
        clicked.wait()
        future.set_result(None)
    threading.Thread(target=watch, daemon=True).start()
    lent.wait(future)
def wait_for_five():
    while len(threads) < 5:
        clicked.clear()
        wait_for_click()
"""
WAIT = "comm = new_comm(); print('waiting', flush=True); wait_for_click(); print('clicked')"


@pytest.fixture
def pumping(kernel: Kernel) -> Kernel:
    kernel.check(SETUP)
    return kernel


def waiting_cell(kernel: Kernel, code: str = WAIT) -> tuple[Cell, str]:
    cell = kernel.send(code)
    kernel.wait_for(lambda: "waiting" in cell.stdout, "the cell to wait")
    return cell, list(kernel.comms)[-1]


def test_a_click_ends_the_cell_that_waits_for_it(pumping: Kernel) -> None:
    cell, comm = waiting_cell(pumping)
    pumping.comm_message(comm, {"event": "click"})
    pumping.finish(cell)
    assert cell.status == "ok"
    assert cell.stdout.split() == ["waiting", "clicked"]


def test_a_click_sent_to_a_subshell_ends_the_cell_as_well(pumping: Kernel, ipykernel: str) -> None:
    if ipykernel.startswith("6."):
        pytest.skip("ipykernel 6 has no subshells")
    subshell = pumping.new_subshell()
    cell, comm = waiting_cell(pumping)
    pumping.comm_message(comm, {"event": "click"}, subshell=subshell)
    pumping.finish(cell)
    assert cell.status == "ok"


def test_the_page_sees_idle_for_each_click_while_the_cell_runs(pumping: Kernel) -> None:
    cell, comm = waiting_cell(pumping, WAIT.replace("wait_for_click()", "wait_for_five()"))
    sent = [pumping.comm_message(comm, {"event": n}) for n in range(4)]
    pumping.wait_for(lambda: set(sent) <= pumping.idle, "idle for each of four messages")
    assert not cell.finished
    pumping.comm_message(comm, {"event": "last"})
    pumping.finish(cell)


def test_queued_cells_run_afterwards_and_in_order(pumping: Kernel) -> None:
    cell, comm = waiting_cell(pumping)
    queued = [pumping.send(f"print('cell', {n})") for n in range(3)]
    info = pumping.request("comm_info_request", {})
    assert comm in info["comms"]
    assert not any(later.messages for later in queued)
    pumping.comm_message(comm, {"event": "click"})
    for later in queued:
        pumping.finish(later)
    ends = [cell.done_at, *(later.done_at for later in queued)]
    assert ends == sorted(ends)
    counts = [later.reply["content"]["execution_count"] for later in queued if later.reply]
    assert counts == sorted(counts)
    assert [later.stdout for later in queued] == ["cell 0\n", "cell 1\n", "cell 2\n"]


def test_stop_ends_the_wait_aborts_queued_cells_and_leaves_a_working_kernel(
    pumping: Kernel,
) -> None:
    cell, _ = waiting_cell(pumping)
    queued = pumping.send("print('never')")
    pumping.request("comm_info_request", {})
    pumping.interrupt()
    pumping.finish(cell, timeout=10.0)
    pumping.finish(queued)
    assert cell.error == "KeyboardInterrupt"
    assert queued.status == "aborted"
    assert pumping.check("print(6 * 7)") == "42"
    again, comm = waiting_cell(pumping)
    pumping.comm_message(comm, {"event": "click"})
    assert pumping.finish(again).status == "ok"


def test_output_after_a_click_still_lands_in_the_cell(pumping: Kernel) -> None:
    cell, comm = waiting_cell(pumping, WAIT + "; display({'text/plain': 'shown'}, raw=True)")
    pumping.comm_message(comm, {"event": "click"})
    pumping.finish(cell)
    assert [d["data"] for d in cell.displays] == [{"text/plain": "shown"}]
    assert "clicked" in cell.stdout


def test_stop_always_works_however_often_it_is_pressed(pumping: Kernel) -> None:
    """An interrupt that is raised at a random place can be lost; see `notebook.interrupts`."""
    for _ in range(25):
        cell, _ = waiting_cell(pumping)
        pumping.request("comm_info_request", {})
        pumping.interrupt()
        pumping.finish(cell, timeout=5.0)
        assert cell.error == "KeyboardInterrupt"
    assert pumping.check("print('alive')") == "alive"


@pytest.mark.parametrize("missing", ["_publish_status", "_parent_ident"])
def test_without_the_private_api_there_is_a_plain_wait_that_says_why(
    pumping: Kernel, missing: str
) -> None:
    said = pumping.check(
        "kernel = get_ipython().kernel\n"
        "names = [n for n in dir(type(kernel)) + list(vars(kernel))]\n"
        f"names = [n for n in names if n != {missing!r}]\n"
        "class Older:\n"
        "    def __getattr__(self, name):\n"
        f"        if name == {missing!r}: raise AttributeError(name)\n"
        "        return getattr(kernel, name)\n"
        "print(open_pump(Older(), lent.interrupts).reason)"
    )
    assert said == f"this ipykernel has no kernel.{missing}"
