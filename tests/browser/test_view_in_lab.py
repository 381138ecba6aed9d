"""The live view in JupyterLab and Notebook: keys, focus, a lost kernel, the saved form."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from op_jupyter.cli.jupyter_server import JupyterServer

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


def write_notebook(path: Path, *sources: str) -> None:
    cells = [
        {
            "cell_type": "code",
            "id": f"c{index}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for index, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(
        json.dumps(
            {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
        )
    )


def wait_until(page: Page, is_so: Callable[[], bool]) -> None:
    for _ in range(400):
        if is_so():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not become so")


class Notebook:
    """An open notebook, and the keys that drive it."""

    def __init__(self, page: Page, server: JupyterServer, name: str) -> None:
        self.page = page
        self.server = server
        page.goto(server.page(f"{name}.ipynb"))
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
        expect(page.locator(".jp-Notebook")).to_be_visible()
        wait_until(page, self.has_idle_kernel)

    def has_idle_kernel(self) -> bool:
        found: list[dict[str, Any]] = self.server.request("GET", "sessions")
        return bool(found) and all(s["kernel"]["execution_state"] == "idle" for s in found)

    def run(self, index: int) -> None:
        self.page.locator(".jp-Cell .cm-content").nth(index).click()
        self.page.keyboard.press("Control+Enter")

    @property
    def cells(self) -> int:
        return self.page.locator(".jp-Notebook .jp-CodeCell").count()

    def output(self, index: int) -> str:
        return self.page.locator(".jp-CodeCell").nth(index).locator(".jp-OutputArea").inner_text()


@pytest.fixture(scope="module")
def notebook(server: JupyterServer, browser: Browser) -> Iterator[Notebook]:
    """One page for each front end; every test shows a new view in it."""
    write_notebook(server.folder / "turn.ipynb", SETUP, ASK, TELL, END, FREED)
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    notebook = Notebook(page, server, "turn")
    yield notebook
    page.close(run_before_unload=False)
    for session in server.request("GET", "sessions"):
        server.request("DELETE", f"sessions/{session['id']}")


def ask(notebook: Notebook) -> None:
    notebook.run(0)
    expect(notebook.page.locator(".opv-hd")).to_contain_text("Running", timeout=30_000)
    notebook.run(1)
    expect(notebook.page.locator(".opv-card")).to_be_visible(timeout=30_000)


def test_keys_on_the_card_answer_it_and_never_edit_the_notebook(notebook: Notebook) -> None:
    ask(notebook)
    page = notebook.page
    before = notebook.cells
    page.get_by_role("button", name="Deny", exact=True).focus()
    now = page.evaluate("performance.now()")
    page.wait_for_function("now => performance.now() - now > 260", arg=now)  # see the card's tests
    page.keyboard.press("s")
    expect(page.locator(".opv-drawer")).to_contain_text("adds this rule")
    page.keyboard.press("Escape")
    page.keyboard.press("b")  # inserts a cell below, outside the card
    page.keyboard.press("x")  # cuts the cell, outside the card
    page.keyboard.press("d")
    page.keyboard.press("d")  # deletes the cell, outside the card
    expect(page.locator(".opv-card")).to_contain_text("denied: sent")
    assert notebook.cells == before
    notebook.run(2)
    expect(page.locator(".jp-CodeCell").nth(2)).to_contain_text("['deny'] True")


def test_escape_gives_the_keyboard_back_to_the_notebook(notebook: Notebook) -> None:
    ask(notebook)
    page = notebook.page
    page.get_by_role("button", name="Deny", exact=True).focus()
    page.keyboard.press("Escape")
    before = notebook.cells
    page.keyboard.press("b")
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(before + 1)
    page.keyboard.press("d")
    page.keyboard.press("d")
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(before)


def test_the_notebook_is_saved_by_its_key_while_the_card_has_the_focus(notebook: Notebook) -> None:
    ask(notebook)
    page = notebook.page
    file = notebook.server.folder / "turn.ipynb"
    page.get_by_role("button", name="Deny", exact=True).focus()
    for place in ("button", "textarea"):
        before = file.stat().st_mtime_ns

        def is_saved(
            before: int = before,
        ) -> bool:  # the key does nothing during a save
            page.keyboard.press("Control+s")
            page.wait_for_timeout(50)
            return file.stat().st_mtime_ns > before

        wait_until(page, is_saved)
        assert page.evaluate("document.activeElement.localName") == place
        page.keyboard.press("m")  # opens the place for a message; what is typed there stays there
    expect(page.locator(".opv-drawer textarea")).to_have_value("m")


def test_arrow_keys_in_the_graph_stay_in_the_graph(notebook: Notebook) -> None:
    ask(notebook)
    page = notebook.page
    page.get_by_role("listbox", name="Graph of this turn").focus()
    page.keyboard.press("End")
    expect(page.locator(".opv-row[aria-selected=true]")).to_contain_text("python")
    expect(page.get_by_label("Node details")).to_contain_text("in k")
    assert page.evaluate("document.activeElement.className") == "opv-graph"


def test_a_restarted_kernel_leaves_an_expired_card(notebook: Notebook) -> None:
    ask(notebook)
    page = notebook.page
    page.get_by_role("button", name="Deny", exact=True).focus()
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.keyboard.press("0")
    page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    expect(page.locator(".opv-card")).to_contain_text("expired", timeout=30_000)
    assert page.locator(".opv-card button").count() == 0
    notebook.run(2)  # the new kernel is up, and knows nothing of the view
    expect(page.locator(".jp-CodeCell").nth(2)).to_contain_text("NameError", timeout=30_000)


def test_the_view_gives_way_to_the_saved_form(notebook: Notebook) -> None:
    ask(notebook)
    page = notebook.page
    notebook.run(3)
    output = page.locator(".jp-CodeCell").first.locator(".jp-OutputArea")
    expect(output).to_contain_text("OpenProgram: completed", timeout=30_000)
    expect(output.locator("strong").first).to_have_text("answer")
    expect(page.locator(".opv-hd")).to_have_count(0)
    notebook.run(4)
    expect(page.locator(".jp-CodeCell").nth(4)).to_contain_text("freed: True")
