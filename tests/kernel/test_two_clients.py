"""Two clients of one kernel, as when a console is opened beside a notebook."""

from __future__ import annotations

import pytest
from kernel.harness import Kernel
from kernel.page import Page
from kernel.test_turns import agent, asks_for_python, final, next_turn_works

from op_jupyter.testing.fake_messages import FakeMessages, Reply, text

OLDEST_AND_NEWEST = pytest.mark.parametrize("ipykernel", ["6.30.1", "newest"], indirect=True)


@OLDEST_AND_NEWEST
def test_while_a_card_waits_another_client_waits_its_turn_and_may_answer_first(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(asks_for_python("x = 6 * 7; print('ran')"), Reply([text("Done.")]))
    cell = agent(notebook, "Do it")
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    with notebook.beside() as console:  # a busy kernel tells it what kernel it is
        typing = console.send("print('typed', input('name? '), x)", allow_stdin=True)
        status = console.send("%agent status")
        line = "%agent sta"
        completing = console.post("complete_request", {"code": line, "cursor_pos": len(line)})
        decision = {"kind": "decide", "id": card["id"], "answer": "allow"}
        clicked = console.widget_event(page.comm, decision)
        console.wait_for(lambda: clicked in console.idle, "the click to be taken")
        page.decide(card, "deny")  # too late
        assert notebook.finish(cell).status == "ok"
        console.wait_for(lambda: bool(console.input_requests), "its own question")
        console.answer_input("Ada")
        assert console.finish(typing).stdout == "typed Ada 42\n"
        assert "session" in final(console.finish(status))
        assert "status" in console.reply_to(completing, "complete_request")["matches"]
    assert (cell.stdout, cell.stderr) == ("ran\n", "")
    assert final(cell).startswith("Done.")
    assert notebook.input_requests == []


@OLDEST_AND_NEWEST
def test_a_client_that_leaves_with_a_question_open_does_not_keep_a_page_from_answering(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(asks_for_python("print('ran')"), Reply([text("Done.")]))
    with notebook.beside() as console:
        asked = agent(console, "Do it")
        cell = notebook.watch(asked)
        console.wait_for(lambda: bool(console.input_requests), "the question in the console")
    page = Page(notebook, cell)
    page.say_ready()
    page.decide(page.card(), "allow")
    notebook.wait_for(lambda: cell.id in notebook.idle, "the end of the cell")
    assert cell.stdout == "ran\n"
    assert notebook.input_requests == []
    next_turn_works(notebook, fake)


@pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)
def test_another_client_stops_a_turn_that_waits(notebook: Kernel, fake: FakeMessages) -> None:
    fake.script(asks_for_python("1"))
    cell = agent(notebook, "Do it")
    page = Page(notebook, cell)
    page.say_ready()
    page.card()
    with notebook.beside() as console:
        message = console.client.session.msg("interrupt_request", {})
        console.client.control_channel.send(message)
        assert notebook.finish(cell).error == "KeyboardInterrupt"
    next_turn_works(notebook, fake)
