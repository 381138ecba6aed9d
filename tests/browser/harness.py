"""A notebook of a test in a real browser, its model played by the fake Messages service."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page
from support.code_cells import write_notebook
from support.jupyter_tree import tree_environment

from op_jupyter.cli.jupyter_server import App, JupyterServer, running_server
from op_jupyter.cli.notebook_page import NotebookPage
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / ".envs" / "share" / "jupyter"
SUBSHELLS = os.environ.get("OPENPROGRAM_TEST_SUBSHELLS", "")
"""Where JupyterLab sends comm messages: disabled, perComm, perCommTarget; "": as it comes."""
CORE_KERNELS = [
    f"op-{version}"
    for version in os.environ.get("OPENPROGRAM_TEST_KERNELS", "6.30.1,newest").split(",")
]
"""The kernels that the core of the scenarios runs on."""
_KERNEL_SETTINGS = "@jupyterlab/apputils-extension/kernels-settings"
NEWEST = "op-newest" if (KERNELS / "kernels" / "op-newest").is_dir() else "python3"
CHROMIUM = shutil.which("chromium")

LOAD = "%load_ext openprogram\n%config AgentMagics.resume = 'never'\n%agent new"
FUNCTION = '''\
calls = []

def column_stat(column: str, statistic: str) -> str:
    """Compute a statistic of a column.

    Args:
        column: name of the column.
        statistic: mean or max.
    """
    calls.append((column, statistic))
    return {"mean": "4201.75", "max": "6300"}[statistic]
'''
QUESTION = "%%agent --tools column_stat\nWhat is the mean of body_mass_g?"
FOLLOW_UP = "%%agent --tools column_stat\nAnd the maximum?"


@contextmanager
def served(folder: Path, app: App, fake: FakeMessages) -> Iterator[JupyterServer]:
    """A server whose kernels ask *fake*, and keep their sessions in *folder*."""
    env = {
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "HOME": str(folder),
        "OPENPROGRAM_CONFIG": os.devnull,
        "OPENPROGRAM_HOME": str(folder / "sessions"),
        "OPENPROGRAM_PROVIDER": "anthropic",
        "OPENPROGRAM_MODEL": "",
        "OPENPROGRAM_MODE": "",
        "OPENPROGRAM_REPLAY": "off",
        **tree_environment(folder / ".tree", KERNELS),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    settings = {} if not SUBSHELLS else {_KERNEL_SETTINGS: {"commsOverSubshells": SUBSHELLS}}
    home = folder / ".jupyter-test"
    with running_server(folder, app, home=home, env=env, settings=settings) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Turn:
    """What the page shows of the turn of one cell, live or saved."""

    page: NotebookPage
    cell: int

    @property
    def live(self) -> Locator:
        """The widget, while there is one."""
        return self.page.outputs(self.cell).locator(".opv[data-status]")

    @property
    def card(self) -> Locator:
        """The permission card."""
        return self.page.outputs(self.cell).locator(".opv-card")

    @property
    def rows(self) -> Locator:
        """The rows of the graph."""
        return self.page.outputs(self.cell).get_by_role("option")

    @property
    def saved(self) -> Locator:
        """What stays at the end, drawn by the lab extension."""
        return self.page.cell(self.cell).locator(".op-saved-turn")

    def allow(self) -> None:
        """Click the card's Allow."""
        self.card.get_by_role("button", name="Allow once").click()

    def deny(self) -> None:
        """Click the card's Deny."""
        self.card.get_by_role("button", name="Deny", exact=False).first.click()


class Pages:
    """The open notebooks of one server, one for each kernel, used by one scenario at a time."""

    def __init__(self, browser: Browser, server: JupyterServer) -> None:
        self._browser = browser
        self._server = server
        self._free: dict[tuple[str, str], NotebookPage] = {}
        self._taken: dict[tuple[str, str], NotebookPage] = {}

    @property
    def taken(self) -> list[NotebookPage]:
        """Those that the scenario took."""
        return list(self._taken.values())

    def take(self, name: str, sources: Sequence[str], kernel: str) -> NotebookPage:
        """A page whose notebook begins with *sources*; cells of other scenarios may follow."""
        page = self._free.pop((name, kernel), None)
        if page is None:
            file = f"{name}-{kernel}.ipynb"
            write_notebook(self._server.folder / file, sources)
            page = NotebookPage(self._browser, self._server, file, kernel)
        self._taken[name, kernel] = page
        return page

    def give_back(self, *, failed: bool) -> list[str]:
        """Keep what can be used again, and close the rest; the errors that the pages raised.

        *failed*: nobody knows what the scenario left there, so that nothing is kept.
        """
        errors: list[str] = []
        taken, self._taken = self._taken, {}
        for key, page in taken.items():
            errors += page.errors
            if failed or page.errors:
                page.close()
            else:
                page.wait_idle()
                self._free[key] = page
        return errors

    def close(self) -> None:
        """Close what is open."""
        for page in self._free.values():
            page.close()


@dataclass
class Desk:
    """Everything a scenario needs: a server, a browser, and the model's part to write."""

    server: JupyterServer
    browser: Browser
    fake: FakeMessages
    pictures: Path
    pages: Pages

    def saved(self, page: NotebookPage) -> dict[str, Any]:
        """The notebook of *page* as it is on disk."""
        notebook: dict[str, Any] = json.loads((self.server.folder / page.notebook).read_text())
        return notebook

    @contextmanager
    def reading(self, name: str) -> Iterator[Page]:
        """Open a notebook that names no kernel, without one."""
        page = self.browser.new_page(viewport={"width": 1280, "height": 1000})
        try:
            without_kernel(page, self.server, f"{name}.ipynb")
            yield page
        finally:
            page.close(run_before_unload=False)

    @contextmanager
    def without_extension(self) -> Iterator[None]:
        """Pages that open meanwhile have the lab extension disabled."""
        file = self.server.folder / ".tree" / "etc" / "jupyter" / "labconfig" / "page_config.json"
        before = file.read_text()
        disabled = {"disabledExtensions": {"op-jupyter-labextension": True}}
        file.write_text(json.dumps({**json.loads(before), **disabled}))
        try:
            yield
        finally:
            file.write_text(before)

    def picture(self, page: NotebookPage, name: str) -> None:
        """Keep a picture of the page."""
        page.screenshot(self.pictures / f"{name}-{self.server.app}.png")


_OUTPUTS = """
() => [...document.querySelectorAll(".jp-Dialog, .jp-Notebook .jp-Cell")].map(found => {
  const outputs = [...found.querySelectorAll(".jp-OutputArea-output")].map(output =>
    `${output.dataset.mimeType}: ${JSON.stringify(output.innerText.slice(0, 200))}`);
  return found.matches(".jp-Dialog") ? `dialog: ${found.innerText}`
    : `cell ${found.dataset.windowedListIndex}: ${outputs.join(" | ")}`;
})
"""


def condition(page: NotebookPage) -> str:
    """What can be told of a page in which a test failed."""
    lines = [f"kernel: {page.kernel()}", *page.page.evaluate(_OUTPUTS), *page.console]
    return "\n".join(lines)


def without_kernel(page: Page, server: JupyterServer, notebook: str) -> None:
    """Open *notebook*, which names no kernel: the front end asks for one, the answer is none."""
    page.goto(server.page(notebook))
    page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
    page.locator(".jp-CodeCell").first.wait_for()


def armed(page: NotebookPage) -> None:
    """Wait until keys decide on the card in focus: one that was pressed before was not meant."""
    page.settle()  # the moment counts from when the card can be seen
    now = page.page.evaluate("performance.now()")
    page.page.wait_for_function("now => performance.now() - now > 260", arg=now)


def sent_texts(body: dict[str, Any]) -> list[str]:
    """All texts that a request to the model holds, in order; tool results included."""
    found: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            inner = block.get("content", []) if block["type"] == "tool_result" else [block]
            if isinstance(inner, str):
                found.append(inner)
                continue
            found += [part["text"] for part in inner if part["type"] == "text"]
    return found
