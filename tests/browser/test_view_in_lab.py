"""The live view in JupyterLab and Notebook: keys, focus, a lost kernel, the saved form."""

import pytest
from playwright.sync_api import Request, expect

from browser.harness import Pages, armed
from op_jupyter.cli.notebook_page import NotebookPage

SETUP = """\
from IPython.display import display
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.views.agent_view import AgentView
from op_jupyter.views.static_html import static_bundle
from views import stories

heard = []
view = AgentView()
view.attach(
    on_decide=lambda call, answer: heard.append(answer.answer),
    on_cancel=lambda: heard.append("stop"),
    on_details=lambda node: {"input": "in " + node, "output": "out"},
)
shown = display(view, display_id=True)
"""
ASK = """\
for envelope in stories.asking(stories.dangerous_request()).updates:
    view.feed(envelope)
"""
TELL = "print(heard, view.ready.is_set())"
END = """\
from views.stories import Story
end = Story(); end.sequence = 1000
view.feed(end.finish("The **answer**").updates[0])
view.finish()
view.leave(static_bundle(view.turn()))
shown.update(static_bundle(view.turn()), raw=True)
"""
FREED = "print('freed:', view.comm is None)"


SETTING_UP, ASKING, TELLING, ENDING, FREEING = range(5)


@pytest.fixture
def notebook(borrowed: Pages) -> NotebookPage:
    """One page for each front end; every test shows a new view in it."""
    return borrowed.take("turn", [SETUP, ASK, TELL, END, FREED], "python3")


def ask(notebook: NotebookPage) -> None:
    notebook.run(SETTING_UP)  # to its end: what an earlier test showed is gone
    expect(notebook.page.locator(".opv-hd")).to_contain_text("Running")
    notebook.run(ASKING)
    expect(notebook.page.locator(".opv-card")).to_be_visible()


def cells(notebook: NotebookPage) -> int:
    return notebook.page.locator(".jp-Notebook .jp-CodeCell").count()


def test_keys_on_the_card_answer_it_and_never_edit_the_notebook(notebook: NotebookPage) -> None:
    ask(notebook)
    page = notebook.page
    before = cells(notebook)
    page.get_by_role("button", name="Deny", exact=True).focus()
    armed(notebook)
    page.keyboard.press("s")
    expect(page.locator(".opv-drawer")).to_contain_text("adds this rule")
    page.keyboard.press("Escape")
    page.keyboard.press("b")  # inserts a cell below, outside the card
    page.keyboard.press("x")  # cuts the cell, outside the card
    page.keyboard.press("d")
    page.keyboard.press("d")  # deletes the cell, outside the card
    expect(page.locator(".opv-card")).to_contain_text("denied: sent")
    assert cells(notebook) == before
    assert "['deny'] True" in notebook.run(TELLING)


def test_escape_gives_the_keyboard_back_to_the_notebook(notebook: NotebookPage) -> None:
    ask(notebook)
    page = notebook.page
    page.get_by_role("button", name="Deny", exact=True).focus()
    page.keyboard.press("Escape")
    before = cells(notebook)
    page.keyboard.press("b")
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(before + 1)
    page.keyboard.press("d")
    page.keyboard.press("d")
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(before)


def test_the_notebook_is_saved_by_its_key_while_the_card_has_the_focus(
    notebook: NotebookPage,
) -> None:
    ask(notebook)
    page = notebook.page
    saves: list[Request] = []
    page.on("request", lambda asked: saves.append(asked) if asked.method == "PUT" else None)
    page.get_by_role("button", name="Deny", exact=True).focus()
    for place in ("button", "textarea"):
        before = len(saves)
        while len(saves) == before:  # the key does nothing during a save
            page.keyboard.press("Control+s")
            page.wait_for_timeout(50)
        assert page.evaluate("document.activeElement.localName") == place
        page.keyboard.press("m")  # opens the place for a message; what is typed there stays there
    expect(page.locator(".opv-drawer textarea")).to_have_value("m")


def test_arrow_keys_in_the_graph_stay_in_the_graph(notebook: NotebookPage) -> None:
    ask(notebook)
    page = notebook.page
    page.get_by_role("listbox", name="Graph of this turn").focus()
    page.keyboard.press("End")
    expect(page.locator(".opv-row[aria-selected=true]")).to_contain_text("python")
    expect(page.get_by_label("Node details")).to_contain_text("in k")
    assert page.evaluate("document.activeElement.className") == "opv-graph"


def test_a_restarted_kernel_leaves_an_expired_card(notebook: NotebookPage) -> None:
    ask(notebook)
    page = notebook.page
    page.get_by_role("button", name="Deny", exact=True).focus()
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.keyboard.press("0")
    page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    expect(page.locator(".opv-card")).to_contain_text("expired")
    assert page.locator(".opv-card button").count() == 0
    notebook.wait_restarted()
    assert "NameError" in notebook.run(TELLING)  # the new kernel knows nothing of the view


def test_the_view_gives_way_to_the_saved_form(notebook: NotebookPage) -> None:
    ask(notebook)
    page = notebook.page
    notebook.run(ENDING)
    output = page.locator(".jp-CodeCell").first.locator(".jp-OutputArea")
    expect(output).to_contain_text("OpenProgram: completed")
    expect(output.locator("strong").first).to_have_text("answer")
    expect(page.locator(".opv-hd")).to_have_count(0)
    while "freed: True" not in notebook.run(FREEING):  # once the page has said that it let go
        page.wait_for_timeout(50)
