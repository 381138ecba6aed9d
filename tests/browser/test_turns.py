"""A turn in JupyterLab and in Notebook 7: the card, the graph, the answer, and every way out."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from browser.harness import (
    CORE_KERNELS,
    FOLLOW_UP,
    FUNCTION,
    KERNELS,
    LOAD,
    NEWEST,
    QUESTION,
    Desk,
    Turn,
    armed,
    sent_texts,
)
from op_jupyter.cli.notebook_page import NotebookPage
from op_jupyter.testing.fake_messages import Reply, text, tool

MEAN = Reply([tool("column_stat", id="toolu_01", column="body_mass_g", statistic="mean")])
ANSWER = Reply([text("The mean of body_mass_g is **4201.75**.")])
UNFINISHED = Reply([text("The mean of body_mass_g is 4201.75.")], fault="hold", at=3)
MAXIMUM = Reply([text("The maximum is **6300**.")])
QUESTION_CELL = (
    "from openprogram import ask\ncolour = ask('Which colour?', ['red', 'blue'])\nprint(colour)"
)
FORM_CELL = """\
from pydantic import BaseModel
from openprogram import form

class Trip(BaseModel):
    city: str
    days: int

print(form("Your trip?", Trip))
"""
LESSON = [
    LOAD,
    FUNCTION,
    QUESTION,
    "print(calls)",
    FOLLOW_UP,
    "%agent status",
    "%load_ext openprogram",
    QUESTION_CELL,
    FORM_CELL,
]
LOADING, DEFINING, ASKING, CALLS, ASKING_ON, STATUS, LOADING_AGAIN, CHOOSING, FILLING = range(9)
LAST = len(LESSON) - 1


def begin(desk: Desk, *replies: Reply, kernel: str = NEWEST) -> NotebookPage:
    """Take the notebook's page, begin a session in it, define the function."""
    desk.fake.script(*replies)
    page = desk.pages.take("lesson", LESSON, kernel)
    page.run(LOADING)
    page.run(DEFINING)
    return page


def ask(page: NotebookPage) -> Turn:
    """Run the asking cell up to its card."""
    page.start(ASKING)
    turn = Turn(page, ASKING)
    expect(turn.card.or_(page.ended(ASKING))).to_be_attached(timeout=30_000)
    assert not page.is_done(ASKING), page.text(ASKING)
    return turn


def ask_on(page: NotebookPage, cell: int = ASKING_ON) -> Turn:
    """Run the following question, which needs no card."""
    page.run(cell)
    turn = Turn(page, cell)
    expect(turn.saved).to_contain_text("The maximum is 6300.")
    return turn


# The core runs in both front ends, on the oldest and the newest kernel; the rest once.
LAB = pytest.mark.parametrize("server", ["lab"], indirect=True, scope="package")
NOTEBOOK = pytest.mark.parametrize("server", ["notebook"], indirect=True, scope="package")


@pytest.mark.parametrize("kernel", CORE_KERNELS)
def test_a_click_in_a_running_cell_lets_the_turn_go_on(desk: Desk, kernel: str) -> None:
    if not (KERNELS / "kernels" / kernel).is_dir():
        pytest.skip(f"no kernel {kernel}: python3 tests/support/prepare.py kernels")
    page = begin(desk, MEAN, ANSWER, kernel=kernel)

    turn = ask(page)
    expect(turn.rows).to_have_count(3)
    desk.picture(page, f"card-{kernel}")
    assert page.prompt(ASKING) == "[*]:"
    expect(turn.card).to_contain_text("body_mass_g")
    turn.allow()
    page.wait_done(ASKING)

    expect(turn.saved).to_contain_text("The mean of body_mass_g is 4201.75.")
    expect(turn.live).to_have_count(0)
    expect(turn.rows).to_have_count(4)
    assert "4201.75" in sent_texts(desk.fake.requests[1].body)
    assert page.run(CALLS).strip() == "[('body_mass_g', 'mean')]"


def test_after_a_restart_the_session_goes_on_by_its_id(desk: Desk) -> None:
    page = begin(desk, MEAN, ANSWER, MAXIMUM)
    ask(page).allow()
    page.wait_done(ASKING)
    session_id = re.search(r"session\s+(nb-\S+)", page.run(STATUS))
    assert session_id is not None

    page.restart_kernel()
    page.run(LOADING_AGAIN)
    resume = page.insert_below(LAST, f"%agent resume {session_id[1]}")
    assert "1 turn" in page.run(resume)
    page.run(DEFINING)
    ask_on(page)

    sent = "\n".join(sent_texts(desk.fake.requests[-1].body))
    expected = ["What is the mean of body_mass_g?", "4201.75", "**4201.75**", "And the maximum?"]
    positions = [sent.index(words) for words in expected]
    assert positions == sorted(positions)


def test_a_card_survives_a_reload_of_the_page_and_what_stays_is_saved(desk: Desk) -> None:
    page = begin(desk, MEAN, ANSWER)
    ask(page)
    page.save()
    assert "widget-view" in json.dumps(desk.saved(page)["cells"][ASKING]["outputs"])

    page.reload()
    turn = Turn(page, ASKING)
    turn.card.wait_for()
    desk.picture(page, "reloaded-card")
    turn.allow()

    assert page.run(CALLS).strip() == "[('body_mass_g', 'mean')]"  # queued behind the turn
    expect(turn.saved).to_contain_text("The mean of body_mass_g is 4201.75.")
    expect(turn.live).to_have_count(0)
    page.save()
    saved = desk.saved(page)
    (output,) = saved["cells"][ASKING]["outputs"]
    html = "".join(output["data"]["text/html"])
    assert "The mean of body_mass_g is <strong>4201.75</strong>" in html
    assert "application/vnd.jupyter.widget-view+json" not in output["data"]
    assert set(output["metadata"]["openprogram"]) == {"session_id", "turn_id"}


@LAB
def test_a_card_whose_output_was_cleared_comes_back_and_so_does_the_answer(desk: Desk) -> None:
    page = begin(desk, MEAN, ANSWER)
    turn = ask(page)
    first = turn.live.element_handle()

    page.page.locator(".lm-MenuBar-item", has_text="Edit").click()
    page.page.locator(".lm-Menu-item", has_text="Clear Outputs of All Cells").click()
    page.page.wait_for_function("view => !view.isConnected", arg=first)
    turn.allow()

    expect(turn.saved).to_contain_text("The mean of body_mass_g is 4201.75.")
    expect(turn.live).to_have_count(0)
    page.wait_idle()
    page.save()
    (output,) = desk.saved(page)["cells"][ASKING]["outputs"]
    assert "4201.75" in "".join(output["data"]["text/plain"])


def test_stop_ends_a_turn_whose_card_waits(desk: Desk) -> None:
    page = begin(desk, MEAN, MAXIMUM)
    turn = ask(page)

    page.stop()
    page.wait_done(ASKING)

    assert "KeyboardInterrupt" in page.error(ASKING)
    assert len(page.error(ASKING).splitlines()) == 1
    expect(turn.saved).to_contain_text("cancelled")
    expect(turn.live).to_have_count(0)
    assert page.run(CALLS).strip() == "[]"
    ask_on(page)


@LAB
def test_stop_ends_a_turn_that_is_writing(desk: Desk) -> None:
    page = begin(desk, UNFINISHED, MAXIMUM)
    page.start(ASKING)
    desk.fake.wait_held()
    turn = Turn(page, ASKING)
    turn.live.wait_for()

    page.stop()
    page.wait_done(ASKING)
    desk.fake.wait_idle()

    assert "KeyboardInterrupt" in page.error(ASKING)
    expect(turn.saved).to_contain_text("cancelled")
    ask_on(page)


@NOTEBOOK
def test_the_stop_in_the_view_ends_the_turn(desk: Desk) -> None:
    page = begin(desk, MEAN, MAXIMUM)
    turn = ask(page)

    turn.live.get_by_role("button", name="Stop").click()
    page.wait_done(ASKING)

    expect(turn.saved).to_contain_text("cancelled")
    assert page.run(CALLS).strip() == "[]"
    ask_on(page)


@LAB
def test_deny_ends_the_turn_and_runs_nothing(desk: Desk) -> None:
    page = begin(desk, MEAN, MAXIMUM)
    turn = ask(page)

    turn.deny()
    page.wait_done(ASKING)

    expect(turn.saved).to_contain_text("denied")
    assert len(page.error(ASKING).splitlines()) == 1
    assert page.run(CALLS).strip() == "[]"
    ask_on(page)


@NOTEBOOK
def test_deny_with_a_message_lets_the_model_answer_to_it(desk: Desk) -> None:
    page = begin(desk, MEAN, MAXIMUM)
    turn = ask(page)

    turn.card.get_by_role("button", name="Deny with message").click()
    turn.card.get_by_role("textbox").fill("Take the maximum instead.")
    turn.card.get_by_role("button", name="Deny and send").click()
    page.wait_done(ASKING)

    expect(turn.saved).to_contain_text("The maximum is 6300.")
    assert "Take the maximum instead." in "\n".join(sent_texts(desk.fake.requests[1].body))
    assert page.run(CALLS).strip() == "[]"


@LAB
def test_a_whole_turn_with_two_cards_needs_the_keyboard_alone(desk: Desk) -> None:
    second = Reply([tool("column_stat", id="toolu_02", column="body_mass_g", statistic="max")])
    page = begin(desk, MEAN, second, MAXIMUM)
    turn, keyboard = Turn(page, ASKING), page.page.keyboard
    focused = page.page.locator(":focus")

    def wait_for_card(number: int) -> None:
        expect(page.outputs(ASKING).locator(".opv-call")).to_have_count(number)
        expect(focused).to_have_attribute("data-answer", "deny")
        armed(page)

    keyboard.press("Escape")
    keyboard.press("ArrowDown")  # from the cell that ran last
    keyboard.press("Control+Enter")
    wait_for_card(1)
    keyboard.press("a")
    wait_for_card(2)
    keyboard.press("Tab")
    keyboard.press("Enter")
    expect(focused).to_be_editable()
    keyboard.type("The mean is enough.")
    keyboard.press("Control+s")
    keyboard.press("Tab")
    expect(focused).to_have_text("Deny and send")
    desk.picture(page, "keyboard")
    keyboard.press("Enter")

    expect(turn.saved).to_contain_text("The maximum is 6300.")
    assert "The mean is enough." in "\n".join(sent_texts(desk.fake.requests[2].body))
    assert page.run(CALLS).strip() == "[('body_mass_g', 'mean')]"


@LAB
def test_a_saved_notebook_shows_its_turns_without_a_kernel(desk: Desk) -> None:
    page = begin(desk, MEAN, ANSWER)
    ask(page).allow()
    page.wait_done(ASKING)
    page.save()
    notebook = desk.saved(page)
    notebook["cells"] = notebook["cells"][: ASKING + 1]
    notebook["metadata"] = {}  # names no kernel, so that the page asks for one: none
    (desk.server.folder / "saved.ipynb").write_text(json.dumps(notebook))

    assert "application/vnd.jupyter.widget-view+json" not in json.dumps(notebook)
    with desk.reading("saved") as reopened:
        turn = reopened.locator(".op-saved-turn")
        expect(turn).to_contain_text("The mean of body_mass_g is 4201.75.")
        expect(turn.get_by_role("option")).to_have_count(4)
        assert "model not found" not in reopened.locator(".jp-Notebook").inner_text().lower()

    # Without the lab extension, first as a stranger's notebook, then as one's own.
    with desk.without_extension(), desk.reading("saved") as reopened:
        shown = reopened.locator('.jp-OutputArea-output [data-mime-type="text/html"]').or_(
            reopened.locator('.jp-OutputArea-output[data-mime-type="text/html"]')
        )
        expect(shown).to_contain_text("The mean of body_mass_g is 4201.75.")
        expect(reopened.locator(".op-saved-turn")).to_have_count(0)
        lines = [line.strip() for line in shown.inner_text().splitlines()]  # of the drawing
        assert 'column_stat – column="body_mass_g", statistic="mean" (done)' in lines
        shown.get_by_text("The graph as text").click()
        expect(shown.locator("details details pre")).to_contain_text("column_stat")
        reopened.screenshot(path=desk.pictures / "saved-untrusted.png")
        desk.server.request("POST", "contents/saved.ipynb/trust")
        reopened.reload()
        reopened.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
        drawing = shown.get_by_role("img", name="Graph of the turn")
        expect(drawing).to_be_visible()
        expect(shown.locator("strong")).to_have_text("4201.75")
        cell = reopened.locator(".jp-CodeCell").nth(ASKING)
        expect(cell.locator(".jp-OutputArea-output")).to_have_count(1)
        reopened.screenshot(path=desk.pictures / "saved-without-extension.png")

    exported, _ = HTMLExporter().from_notebook_node(nbformat.reads(json.dumps(notebook), 4))
    page_of_text = desk.browser.new_page(java_script_enabled=False)
    page_of_text.set_content(exported)
    expect(page_of_text.locator("strong", has_text="4201.75")).to_be_visible()
    expect(page_of_text.get_by_role("img", name="Graph of the turn")).to_be_visible()
    page_of_text.screenshot(path=desk.pictures / "saved-nbconvert.png")
    page_of_text.close()


# -- questions of a program's


def test_a_question_is_answered_by_keyboard_and_its_text_is_saved(desk: Desk) -> None:
    page = begin(desk)

    page.start(CHOOSING)
    asked = page.outputs(CHOOSING).locator("form.opv-question")
    expect(asked).to_be_visible()
    desk.picture(page, "question")
    asked.get_by_label("red").focus()
    asked.page.keyboard.press("ArrowDown")
    asked.page.keyboard.press("Enter")
    page.wait_done(CHOOSING)
    expect(asked).to_have_count(0)
    expect(page.outputs(CHOOSING).first).to_contain_text("→ blue")
    expect(page.outputs(CHOOSING).last).to_have_text("blue")

    page.start(FILLING)
    trip = page.outputs(FILLING).locator("form.opv-question")
    trip.get_by_label("City").fill("Rome")
    # Would delete the cell if the notebook heard it.
    trip.get_by_label("Days").press_sequentially("dd")
    trip.get_by_role("button", name="Answer").click()
    expect(trip.locator(".opv-problem")).to_contain_text("whole number")
    trip.get_by_label("Days").fill("3")
    trip.get_by_label("Days").press("Enter")
    page.wait_done(FILLING)
    expect(page.outputs(FILLING).last).to_contain_text("city='Rome' days=3")

    page.save()
    saved = desk.saved(page)
    texts = json.dumps(saved["cells"][CHOOSING]["outputs"], ensure_ascii=False)
    assert "Which colour?" in texts and "→ blue" in texts
    assert "widget-view" not in texts
