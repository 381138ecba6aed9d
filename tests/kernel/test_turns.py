"""Whole turns in real kernels: clicks, the stop button, order, restarts, and nobody there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kernel.harness import Cell, Kernel
from kernel.page import Page

from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

STOPPED_WITHIN = 1.0
ONE_KERNEL = pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)
"""For what a new process does: the version of the kernel has no part in it."""


def asks_for_python(code: str, number: int = 1) -> Reply:
    use = tool("python", id=f"toolu_{number}", code=code)
    return Reply([text("Let me look. "), use])


def agent(kernel: Kernel, prompt: str, *, flags: str = "", cell_id: str | None = None) -> Cell:
    """Send a %%agent cell from a front end that can answer."""
    return kernel.send(f"%%agent {flags}\n{prompt}", allow_stdin=True, cell_id=cell_id)


def final(cell: Cell) -> str:
    """The text that the cell shows at the end."""
    return "\n".join(d["data"].get("text/plain", "") for d in cell.displays)


@pytest.mark.parametrize("way", ["main", "subshell"])
def test_a_click_allows_the_call_and_its_output_is_in_the_cell(
    notebook: Kernel, fake: FakeMessages, ipykernel: str, way: str
) -> None:
    if way == "subshell" and ipykernel.startswith("6."):
        pytest.skip("ipykernel 6 has no subshells")
    subshell = notebook.new_subshell() if way == "subshell" else None
    notebook.check("price = [3, 4, 5]")
    fake.script(asks_for_python("print('the sum is', sum(price))"), Reply([text("It is 12.")]))
    cell = agent(notebook, "What is the sum?")
    page = Page(notebook, cell, subshell=subshell)
    page.say_ready()
    card = page.card()
    assert card["arguments"] == {"code": "print('the sum is', sum(price))"}
    page.decide(card, "allow")
    notebook.finish(cell)
    assert cell.status == "ok"
    assert cell.stdout == "the sum is 12\n"
    assert "the sum is 12" in str(fake.requests[-1].body["messages"][-1])
    assert final(cell).startswith("It is 12.")
    assert len(cell.displays) == 1
    assert cell.stderr == ""


def test_deny_fails_the_turn_and_nothing_runs(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("ran = True"))
    cell = agent(notebook, "Do it")
    page = Page(notebook, cell)
    page.say_ready()
    page.decide(page.card(), "deny")
    notebook.finish(cell)
    assert cell.error == "TurnFailed"
    assert notebook.check("print('ran' in globals())") == "False"


def test_two_cards_of_a_turn_edited_and_answered_with_a_message(
    notebook: Kernel, fake: FakeMessages
) -> None:
    notebook.check("price = [3, 4, 5]")
    fake.script(
        asks_for_python("print('asked', len(price))"),
        asks_for_python("price.clear()", 2),
        Reply([text("I left it.")]),
    )
    cell = agent(notebook, "What is the sum?")
    page = Page(notebook, cell)
    page.say_ready()
    page.decide(page.card(1), "allow", arguments={"code": "print('edited', sum(price))"})
    page.decide(page.card(2), "deny_message", message="Leave the prices alone.")
    notebook.finish(cell)
    assert (cell.status, cell.stdout) == ("ok", "edited 12\n")
    told = str(fake.requests[-1].body["messages"])
    assert "edited 12" in told and "changed the arguments" in told
    assert "Leave the prices alone." in told
    assert notebook.check("print(price)") == "[3, 4, 5]"
    assert final(cell).startswith("I left it.")


def test_stale_and_double_clicks_are_harmless(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("1"), asks_for_python("print('second')", 2), Reply([text("Done.")]))
    cell = agent(notebook, "Do it twice")
    page = Page(notebook, cell)
    page.say_ready()
    first = page.card(1)
    for _ in range(3):
        page.decide(first, "allow")
    second = page.card(2)
    page.decide(first, "deny")
    page.decide({"id": "no-such-call"}, "deny")
    page.decide(second, "allow")
    page.decide(second, "deny")
    notebook.finish(cell)
    assert cell.status == "ok"
    assert cell.stdout.endswith("second\n")


def test_a_page_that_is_reloaded_sees_the_card_again(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("print('ran')"), Reply([text("Done.")]))
    cell = agent(notebook, "Do it")
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    before = len(list(page.received("snapshot")))
    notebook.request("comm_info_request", {})  # what a new page asks first
    page.send({"kind": "ready"})
    notebook.wait_for(lambda: len(list(page.received("snapshot"))) > before, "the state again")
    assert list(page.received("snapshot"))[-1]["state"]["permission"]["id"] == card["id"]
    page.decide(card, "allow")
    assert notebook.finish(cell).status == "ok"


def test_the_view_tells_more_of_a_node_when_asked(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("print('ran')"), Reply([text("Done.")]))
    cell = agent(notebook, "Do it")
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    nodes = page.nodes()
    page.send({"kind": "details", "id": nodes["user"]})
    page.send({"kind": "node_action", "action": "show_prompt", "id": nodes["llm"]})
    page.send({"kind": "details", "id": "no-such-node"})
    notebook.wait_for(lambda: any(page.received("note")), "the prompt")
    (details, *_) = page.received("details")
    assert "Do it" in details["input"]
    (note,) = page.received("note")
    assert "--- user" in note["text"]
    page.decide(card, "allow")
    assert notebook.finish(cell).status == "ok"


@ONE_KERNEL
def test_what_is_asked_of_a_node_is_done_when_the_turn_ends(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    writes = tool("write_file", id="toolu_1", path="made.txt", text="made")
    fake.script(Reply([writes]), asks_for_python("1", 2), Reply([text("Done.")]))
    cell = agent(notebook, "Do it", flags="--mode accept_edits")
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    nodes = [node for s in page.received("snapshot") for node in s["state"]["nodes"]]
    nodes += page.updates("node_appended")
    prompt = next(node["id"] for node in nodes if node["kind"] == "user")
    wrote = next(node["id"] for node in nodes if node["name"] == "write_file")
    page.send({"kind": "details", "id": wrote})
    notebook.wait_for(lambda: any(page.received("details")), "the details")
    assert next(page.received("details"))["changes"] == ["made.txt"]
    page.send({"kind": "node_action", "action": "undo", "id": wrote})
    page.send({"kind": "node_action", "action": "rewind", "id": prompt})
    notebook.wait_for(lambda: len(list(page.received("note"))) == 2, "what will happen")
    assert (tmp_path / "made.txt").read_text() == "made"

    page.decide(card, "allow")
    assert notebook.finish(cell).status == "ok"

    assert "at its beginning" in final(cell) and "made.txt" in final(cell)
    assert not (tmp_path / "made.txt").exists()
    fake.script(Reply([text("Again.")]))
    notebook.finish(agent(notebook, "Start over"))
    assert "Do it" not in str(fake.requests[-1].body["messages"])


def test_the_view_s_own_stop_button_cancels_the_turn(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("1"))
    cell = agent(notebook, "Do it")
    page = Page(notebook, cell)
    page.say_ready()
    page.card()
    page.send({"kind": "cancel"})
    assert notebook.finish(cell).error == "TurnCancelled"
    next_turn_works(notebook, fake)


# -- the stop button


def stop(kernel: Kernel, cell: Cell) -> None:
    """Press it, and check everything that has to hold afterwards."""
    pressed = time.monotonic()
    kernel.interrupt()
    kernel.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    assert cell.reply is not None
    assert len(cell.reply["content"]["traceback"]) == 1
    assert cell.done_at - pressed < STOPPED_WITHIN
    status = "op_jupyter.current_session().agent.dag.turns.values()"
    statuses = kernel.check(f"import op_jupyter\nprint([t.status for t in {status}])")
    assert statuses.endswith("'cancelled']")
    assert "'running'" not in statuses


def next_turn_works(kernel: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply([text("Still here.")]))
    after = kernel.finish(agent(kernel, "Are you there?"))
    assert after.status == "ok"
    assert "Still here." in final(after)
    assert "late" not in final(after)


def test_stop_before_the_first_token(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply([text("late")], ttft=60))
    cell = agent(notebook, "Hello")
    fake.wait_requests(1, timeout=60)
    stop(notebook, cell)
    next_turn_works(notebook, fake)


def test_stop_while_the_answer_streams(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply([text("word " * 400)], delay=0.2))
    cell = agent(notebook, "Hello")
    page = Page(notebook, cell)
    page.say_ready()
    notebook.wait_for(lambda: bool(page.updates("text_delta")), "the first words")
    stop(notebook, cell)
    next_turn_works(notebook, fake)


def test_stop_while_code_runs(notebook: Kernel, fake: FakeMessages) -> None:
    notebook.run("%agent allow python(*)", allow_stdin=True)
    fake.script(asks_for_python("import time\nprint('begun', flush=True)\ntime.sleep(600)"))
    cell = agent(notebook, "Hello")
    notebook.wait_for(lambda: "begun" in cell.stdout, "the code to run")
    stop(notebook, cell)
    next_turn_works(notebook, fake)


def test_stop_while_a_card_waits(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("1"))
    cell = agent(notebook, "Hello")
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    stop(notebook, cell)
    page.decide(card, "allow")  # too late
    next_turn_works(notebook, fake)


def test_stop_while_it_asks_by_text(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("1"))
    cell = agent(notebook, "Hello")
    notebook.wait_for(lambda: bool(notebook.input_requests), "the question")
    stop(notebook, cell)
    next_turn_works(notebook, fake)


def test_a_second_stop_is_harmless(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply([text("late")], ttft=60))
    cell = agent(notebook, "Hello")
    fake.wait_requests(1, timeout=60)
    notebook.interrupt()
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    next_turn_works(notebook, fake)


def test_stop_in_a_plain_call_is_recorded_as_cancelled(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(Reply([text("late")], ttft=60))
    cell = notebook.send("from op_jupyter import llm\nllm('Hello')", allow_stdin=True)
    fake.wait_requests(1, timeout=60)
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    statuses = notebook.check(
        "from op_jupyter import current_session\n"
        "print([t.status for t in current_session().agent.dag.turns.values()])"
    )
    assert statuses == "['cancelled']"


@ONE_KERNEL
def test_stop_while_a_value_is_looked_at(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    """Its ``__repr__`` runs in the cell's own thread for a call, and beside it for a turn."""
    looked_at = tmp_path / "looked-at"
    notebook.check(
        "import pathlib, time\nfrom op_jupyter import agentic_function\n"
        "class Slow:\n    def __repr__(self):\n"
        f"        pathlib.Path({str(looked_at)!r}).touch()\n        time.sleep(600)\n"
        "@agentic_function\ndef read(value):\n    'Read it.'\n"
        "slow = Slow()"
    )
    cell = notebook.send("read(slow)", allow_stdin=True)
    notebook.wait_for(looked_at.exists, "the look at the argument")
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    nodes = "[(n.name, n.status) for n in op_jupyter.current_session().agent.dag]"
    assert notebook.check(f"import op_jupyter\nprint({nodes})") == "[('read', 'cancelled')]"
    looked_at.unlink()
    cell = agent(notebook, "Hello")
    notebook.wait_for(looked_at.exists, "the look at the variable")
    stop(notebook, cell)
    assert fake.requests == []
    notebook.check("del slow")
    next_turn_works(notebook, fake)


# -- order


def test_run_all_keeps_its_order(notebook: Kernel, fake: FakeMessages) -> None:
    words = ["One.", "Two.", "Three.", "Four.", "Five."]
    comms_before = len(notebook.request("comm_info_request", {})["comms"])
    fake.script(asks_for_python("seen = ['tool']"), *(Reply([text(word)]) for word in words))
    cells = [
        agent(notebook, "First"),
        notebook.send("seen.append('cell'); print(seen)", allow_stdin=True),
        *(agent(notebook, prompt) for prompt in ("Second", "Third", "Fourth", "Fifth")),
        notebook.send("print('last')", allow_stdin=True),
    ]
    page = Page(notebook, cells[0])
    page.say_ready()
    page.decide(page.card(), "allow")
    for cell in cells:
        assert notebook.finish(cell).status == "ok"
    ends = [cell.done_at for cell in cells]
    assert ends == sorted(ends)
    assert cells[1].stdout == "['tool', 'cell']\n"
    # What the one page saw may wait for that page to go, a view and its layout; no other is left.
    comms = notebook.request("comm_info_request", {})["comms"]
    assert len(comms) <= comms_before + 2
    answers = [final(cell).strip().split("\n")[0] for cell in (cells[0], *cells[2:6])]
    assert answers == words
    told = str(fake.requests[-1].body["messages"])
    assert [told.index(word) for word in words[:4]] == sorted(told.index(w) for w in words[:4])


def test_stop_ends_run_all(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("1"))
    cell = agent(notebook, "First")
    queued = [agent(notebook, "Second"), notebook.send("print('never')", allow_stdin=True)]
    page = Page(notebook, cell)
    page.say_ready()
    page.card()
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    assert [notebook.finish(each).status for each in queued] == ["aborted", "aborted"]
    next_turn_works(notebook, fake)


def test_a_failed_turn_ends_run_all(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply(status=400, error_message="no such thing"))
    cell = agent(notebook, "First")
    queued = notebook.send("print('never')", allow_stdin=True)
    assert notebook.finish(cell).error == "TurnFailed"
    assert notebook.finish(queued).status == "aborted"
    assert cell.reply is not None
    assert len(cell.reply["content"]["traceback"]) == 1


# -- restart


@pytest.mark.parametrize("ipykernel", ["6.30.1", "newest"], indirect=True)
def test_a_session_goes_on_after_a_restart(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply([text("Nice to meet you, Ada.")]))
    notebook.finish(agent(notebook, "My name is Ada.", cell_id="a"))
    show = "from op_jupyter import current_session\nprint(current_session().session_id)"
    session_id = notebook.check(show)
    notebook.restart()
    ready = notebook.run("%load_ext op_jupyter", allow_stdin=True)
    offered = ready.of("display_data")[0]["metadata"]["openprogram"]["earlier_session_id"]
    assert offered == session_id
    assert session_id not in final(ready)
    notebook.run(f"%agent resume {session_id}", allow_stdin=True)
    fake.script(Reply([text("Ada.")]))
    notebook.finish(agent(notebook, "What is my name?", cell_id="b"))
    assert notebook.check(show) == session_id
    first, *others = fake.requests[-1].body["messages"]
    assert "My name is Ada." in str(first)
    assert "Nice to meet you, Ada." in str(others)
    assert "kernel was restarted" in str(others)


@ONE_KERNEL
def test_the_first_turn_after_a_restart_offers_the_earlier_session(
    notebook: Kernel, fake: FakeMessages
) -> None:
    notebook.finish(agent(notebook, "My name is Ada."))
    notebook.restart()
    notebook.run("%load_ext op_jupyter", allow_stdin=True)
    first = notebook.finish(agent(notebook, "What is my name?"))
    assert "%agent resume" in str(first.of("display_data")[0]["data"])
    assert first.displays[0]["data"] == {}  # no trace in the saved notebook
    assert "Ada" not in str(fake.requests[-1].body["messages"])
    second = notebook.finish(agent(notebook, "And now?"))
    assert "%agent resume" not in str(second.of("display_data"))


@ONE_KERNEL
def test_a_killed_kernel_leaves_a_session_that_goes_on(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(Reply([text("Nice to meet you, Ada.")]), Reply([text("late")], ttft=60))
    notebook.finish(agent(notebook, "My name is Ada."))
    cell = agent(notebook, "And I am 36.")
    page = Page(notebook, cell)
    page.say_ready()
    fake.wait_requests(2, timeout=60)
    notebook.kill()
    notebook.restart()
    # The old page is still there: what is clicked in it reaches nothing, and harms nothing.
    page.send({"kind": "decide", "id": "toolu_1", "answer": "allow"})
    notebook.run("%load_ext op_jupyter", allow_stdin=True)
    resumed = notebook.run("%agent resume", allow_stdin=True)
    assert "2 turns" in final(resumed)
    assert "interrupted" in final(resumed)
    assert len(fake.requests) == 2  # nothing was asked by itself
    fake.script(Reply([text("Ada, 36.")]))
    assert notebook.finish(agent(notebook, "Who am I?")).status == "ok"
    assert "And I am 36." in str(fake.requests[-1].body["messages"])


# -- who can answer


def test_nobody_there_is_denied_at_once_and_shows_one_display(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(asks_for_python("1"), Reply([text("I may not.")]))
    cell = notebook.run("%%agent\nDo it", allow_stdin=False)
    assert cell.status == "ok"
    assert "python(*)" in str(fake.requests[-1].body["messages"][-1])
    (shown,) = cell.of("display_data")
    assert shown["data"]["text/plain"].startswith("I may not.")
    assert cell.of("update_display_data") == []
    assert cell.of("comm_open") == []
    assert cell.stderr == ""


def test_a_front_end_without_widgets_is_asked_by_text(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("print('ran')"), Reply([text("Done.")]))
    cell = agent(notebook, "Do it")
    notebook.wait_for(lambda: bool(notebook.input_requests), "the question")
    prompt = notebook.input_requests[0]["content"]["prompt"]
    assert "print('ran')" in prompt
    notebook.answer_input("y")
    notebook.finish(cell)
    assert cell.stdout == "ran\n"
    # A console knows no updates of displays: the answer is a display of its own.
    assert "Done." in str(cell.of("display_data")[-1]["data"]["text/plain"])


BUTTON = """
import ipywidgets
from op_jupyter import agent
button, said = ipywidgets.Button(), []
button.on_click(lambda _: said.append(agent("Do it")))
print(button.model_id)
"""


@ONE_KERNEL
def test_behind_a_button_nobody_is_asked_as_no_cell_waits(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(asks_for_python("1"), Reply([text("I may not.")]))
    button = notebook.check(BUTTON, allow_stdin=True)
    clicked = notebook.widget_event(button, {"event": "click"})
    notebook.wait_for(lambda: clicked in notebook.idle, "the end of the callback")
    assert notebook.check("print(said)") == "['I may not.']"
    assert "python(*)" in str(fake.requests[-1].body["messages"][-1])


# -- other ways to run


def test_a_plain_call_shows_a_card_while_it_waits_and_no_longer(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    writes = tool("write_file", id="toolu_0", path="made.txt", text="made")
    fake.script(Reply([writes]), asks_for_python("print('ran')"), Reply([text("Done.")]))
    cell = notebook.send(
        "%agent mode accept_edits\nfrom op_jupyter import agent\nprint(agent('Do it'))",
        allow_stdin=True,
    )
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    (shown,) = page.received("snapshot")
    assert set(shown["actions"]) == {"fork", "rewind", "show_prompt", "undo"}
    wrote = next(n["id"] for n in shown["state"]["nodes"] if n["name"] == "write_file")
    page.send({"kind": "node_action", "action": "undo", "id": wrote})
    notebook.wait_for(lambda: any(page.received("note")), "what will happen")
    page.decide(card, "allow")
    notebook.finish(cell)
    assert cell.stdout.endswith("ran\nDone.\n")
    mode, gone, _ = (d["data"] for d in cell.displays)
    assert (mode["text/plain"], gone) == ("mode: accept_edits", {})
    assert "made.txt" in final(cell)  # done at the end of the cell, as was asked
    assert not (tmp_path / "made.txt").exists()


def test_a_call_from_a_thread_lands_in_its_cell_and_in_the_session(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(Reply([text("From a thread.")]))
    cell = notebook.run(
        "import asyncio\nfrom op_jupyter import llm, current_session\n"
        "print(await asyncio.to_thread(llm, 'Hello'))\n"
        "print(len(current_session().agent.dag.turns))"
    )
    assert cell.stdout == "From a thread.\n1\n"


def test_an_async_cell_can_ask_too(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("print('ran')"), Reply([text("Done.")]))
    cell = notebook.send(
        "from op_jupyter import agent\nprint(await agent.aio('Do it'))", allow_stdin=True
    )
    page = Page(notebook, cell)
    page.say_ready()
    page.decide(page.card(), "allow")
    notebook.finish(cell)
    assert cell.stdout == "ran\nDone.\n"


def test_stop_ends_an_async_cell(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(Reply([text("late")], ttft=60))
    cell = notebook.send("from op_jupyter import llm\nawait llm.aio('Hello')", allow_stdin=True)
    fake.wait_requests(1, timeout=60)
    notebook.interrupt()
    notebook.finish(cell, timeout=30)
    assert cell.error in ("CancelledError", "KeyboardInterrupt")
    next_turn_works(notebook, fake)


def test_a_plot_of_the_python_tool_is_in_the_cell(notebook: Kernel, fake: FakeMessages) -> None:
    notebook.run("%agent allow python(*)", allow_stdin=True)
    picture = "from IPython.display import Image\nImage(bytes.fromhex('89504e470d0a1a0a'))"
    fake.script(asks_for_python(picture), Reply([text("Done.")]))
    cell = notebook.run("%%agent\nDraw", allow_stdin=False)
    assert any("image/png" in d["data"] for d in cell.displays)


def test_a_cell_in_a_subshell_runs_a_turn_too(
    notebook: Kernel, fake: FakeMessages, ipykernel: str
) -> None:
    if ipykernel.startswith("6."):
        pytest.skip("ipykernel 6 has no subshells")
    notebook.run("%agent allow python(*)", allow_stdin=True)
    fake.script(asks_for_python("print('ran')"), Reply([text("Done.")]))
    cell = notebook.send("%%agent\nDo it", subshell=notebook.new_subshell())
    notebook.finish(cell)
    assert cell.status == "ok"
    assert "Done." in final(cell)
    assert "ran" in str(fake.requests[-1].body["messages"][-1])


def test_a_kernel_that_shuts_down_says_nothing_on_its_way_out(
    notebook: Kernel, capfd: pytest.CaptureFixture[str]
) -> None:
    notebook.run("%agent allow look", allow_stdin=True)
    notebook.leave()
    assert "Traceback" not in capfd.readouterr().err


def test_unloading_leaves_a_kernel_that_works(notebook: Kernel) -> None:
    notebook.run("%unload_ext op_jupyter")
    assert notebook.check("print(6 * 7)") == "42"
    assert notebook.run("%agent status").status == "error"
    notebook.run("%load_ext op_jupyter")
    assert notebook.run("%agent status").status == "ok"
