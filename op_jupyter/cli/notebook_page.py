"""A notebook in a browser, driven as a person drives it: JupyterLab and Notebook 7."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.cli.jupyter_server import JupyterServer
from op_jupyter.errors import ConfigurationError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS: Final = (
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_PATIENCE_MS: Final = 30_000
_POLL_SECONDS: Final = 0.1
_CONSOLE_LINES: Final = 40
_DRAWN_MS: Final = 50  # until cells that come into sight are drawn, about
_NOTEBOOK_7_ALWAYS_RAISES: Final = "reading 'schema'"

# A prompt goes from `[*]` to `[n]` when its cell ends. The number alone tells nothing: after a
# restart a cell has its old one until it runs again, and may then get the same.
_WATCH: Final = """
cell => {
  cell.dataset.run = "asked";
  const look = () => {
    const prompt = cell.querySelector(".jp-InputArea-prompt")?.textContent ?? "";
    if (prompt.includes("*")) cell.dataset.run = "running";
    else if (cell.dataset.run === "running") { cell.dataset.run = "done"; watcher.disconnect(); }
  };
  const watcher = new MutationObserver(look);
  watcher.observe(cell, { childList: true, characterData: true, subtree: true });
}
"""

_IS_IN_OUTPUT: Final = "() => Boolean(document.activeElement?.closest('.jp-OutputArea'))"
_FRAMES: Final = """
() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
"""

# A page may draw only the cells in sight, as JupyterLab 4.4 does; they are counted among all cells.
# Tells whether one is drawn; otherwise scrolls towards it, while there is a way to go.
_BRING: Final = """
place => {
  const cells = document.querySelectorAll(".jp-Notebook .jp-Cell[data-windowed-list-index]");
  const drawn = [...cells].filter(cell => cell.getBoundingClientRect().height > 0)
    .map(cell => Number(cell.dataset.windowedListIndex));
  const scroller = document.querySelector(".jp-Notebook .jp-WindowedPanel-outer");
  if (drawn.includes(place)) return "drawn";
  if (drawn.length === 0 || !scroller) return "not drawn";
  const before = scroller.scrollTop;
  const step = scroller.clientHeight / 2;
  scroller.scrollTop += place < Math.min(...drawn) ? -step : step;
  return scroller.scrollTop === before ? "not drawn" : "nearer";
}
"""


def find_browser() -> str:
    """Path of a Chromium that can be driven.

    Raises:
        ConfigurationError: there is none, or the package that drives it is missing.
    """
    try:
        import playwright.sync_api  # noqa: F401 -- optional, and a third of a second
    except ImportError:
        raise ConfigurationError("playwright is not installed: pip install playwright") from None
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise ConfigurationError("no Chromium on the path: apt-get install chromium")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless Chromium with an empty profile.

    Raises:
        ConfigurationError: there is none, or it does not start.
    """
    path = find_browser()
    from playwright.sync_api import Error, sync_playwright

    arguments = [*_ARGUMENTS, "--no-sandbox"] if os.geteuid() == 0 else [*_ARGUMENTS]
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=arguments)
        except Error as error:
            reason = str(error).splitlines()[0]
            raise ConfigurationError(f"{path} does not start: {reason}") from error
        try:
            yield browser
        finally:
            browser.close()


class NotebookPage:
    """An open notebook with its kernel.  Cells are code cells, counted from 0.

    Attributes:
        page: Playwright's page, for what is not covered here.
        errors: errors that the page raised, but for the one that Notebook 7 always raises.
        console: the last warnings and errors in its console.
    """

    def __init__(
        self,
        browser: Browser,
        server: JupyterServer,
        notebook: str,
        kernel: str = "python3",
        *,
        width: int = 1280,
        height: int = 1000,
    ) -> None:
        self.server = server
        self.notebook = notebook
        self.errors: list[str] = []
        self.console: deque[str] = deque(maxlen=_CONSOLE_LINES)
        self._places = _code_cells(server.folder / notebook)
        self._kernel_id = server.start_kernel(notebook, kernel)
        self.page: Page = browser.new_page(viewport={"width": width, "height": height})
        self.page.set_default_timeout(_PATIENCE_MS)
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("console", lambda said: self._note_line(said.type, said.text))
        self.page.goto(server.page(notebook))
        self._wait_until_ready()

    def _note(self, error: str) -> None:
        if _NOTEBOOK_7_ALWAYS_RAISES not in error:
            self.errors.append(error)

    def _note_line(self, kind: str, text: str) -> None:
        if kind in ("warning", "error"):
            self.console.append(f"{kind}: {text}")

    def _wait_until_ready(self) -> None:
        self.cell(0).locator(".jp-InputArea-prompt").wait_for()
        self._wait_for_kernel(lambda kernel: kernel["connections"] >= 1)
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status]").first.wait_for(
            state="attached"
        )

    def _wait_for_kernel(self, happened: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        while not happened(self.kernel()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the kernel is not as expected: {self.kernel()}")
            self.page.wait_for_timeout(_POLL_SECONDS * 1000)

    # -- looking

    def kernel(self) -> dict[str, Any]:
        """What the server knows of the kernel: ``execution_state``, ``connections``, ..."""
        kernel: dict[str, Any] = self.server.request("GET", f"kernels/{self._kernel_id}")
        return kernel

    def cell(self, index: int) -> Locator:
        """Code cell number *index*, drawn by now if it is there and the notebook is in front."""
        place = self._place(index)
        while self.page.evaluate(_BRING, place) == "nearer":
            self.page.wait_for_timeout(_DRAWN_MS)
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{place}"]')

    def _place(self, index: int) -> int:
        """The number of a code cell among all cells; those behind the known ones are code."""
        behind = index - len(self._places) + 1
        return self._places[index] if behind <= 0 else self._places[-1] + behind

    def outputs(self, index: int) -> Locator:
        """The outputs of a cell; never its source, so that a text found here was printed."""
        return self.cell(index).locator(".jp-OutputArea-output")

    def text(self, index: int) -> str:
        """All text of a cell's outputs, once what came of them is drawn."""
        self.settle()
        return "\n".join(self.outputs(index).all_inner_texts())

    def error(self, index: int) -> str:
        """What a cell shows in red: its error, and what it wrote to stderr."""
        self.settle()
        shown = self.cell(index).locator('[data-mime-type="application/vnd.jupyter.stderr"]')
        return "\n".join(shown.all_inner_texts())

    def prompt(self, index: int) -> str:
        """What stands beside a cell: ``[ ]:``, ``[*]:`` or ``[3]:``."""
        return self.cell(index).locator(".jp-InputArea-prompt").inner_text().strip()

    # -- doing

    def settle(self) -> None:
        """Wait for two frames: the page draws in one what came before it."""
        self.page.evaluate(_FRAMES)

    def select(self, index: int) -> None:
        """Select a cell in command mode."""
        prompt = self._drawn(index).locator(".jp-InputArea-prompt")
        prompt.scroll_into_view_if_needed()
        prompt.click()
        if self.page.evaluate(_IS_IN_OUTPUT):  # a click on the prompt does not take the focus away
            self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Escape")

    def _drawn(self, index: int) -> Locator:
        """A cell that is in the page, which an opening page draws one after the other."""
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        while (cell := self.cell(index)).count() == 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.notebook} shows no code cell {index}")
            self.page.wait_for_timeout(_POLL_SECONDS * 1000)
        return cell

    def start(self, index: int) -> None:
        """Run a cell, without waiting for its end."""
        self.select(index)
        self.cell(index).evaluate(_WATCH)
        self.page.keyboard.press("Control+Enter")

    def is_done(self, index: int) -> bool:
        """Whether a cell that `start` ran has ended."""
        return self.cell(index).get_attribute("data-run") == "done"

    def ended(self, index: int) -> Locator:
        """The cell, once it has ended after `start` ran it."""
        return self.cell(index).and_(self.page.locator('[data-run="done"]'))

    def wait_done(self, index: int, seconds: float = _PATIENCE_MS / 1000) -> None:
        """Wait for the end of a cell that `start` ran."""
        self.ended(index).wait_for(state="attached", timeout=seconds * 1000)

    def run(self, index: int, seconds: float = _PATIENCE_MS / 1000) -> str:
        """Run a cell to its end and return the text of its outputs."""
        self.start(index)
        self.wait_done(index, seconds)
        return self.text(index)

    def insert_below(self, index: int, source: str) -> int:
        """Type a new cell below *index* and return its number."""
        self.select(index)
        self.page.keyboard.press("b")
        above = [self._place(number) for number in range(index + 1)]
        below = [place + 1 for place in self._places[index + 1 :]]
        self._places = [*above, above[-1] + 1, *below]
        active = self.page.locator(".jp-mod-active")
        self.cell(index + 1).and_(active).wait_for()
        # By a click: JupyterLab 4.4 is so slow to give focus to a new cell that Enter is lost.
        self.cell(index + 1).locator(".cm-content").click()
        self.cell(index + 1).locator(".cm-focused").wait_for()  # typed before, it would be lost
        self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Escape")
        return index + 1

    def stop(self) -> None:
        """Press the notebook's stop button."""
        self.page.locator('[data-command="notebook:interrupt-kernel"]').first.click()

    def restart_kernel(self) -> None:
        """Restart the kernel by the notebook's own button and wait until it is back."""
        self.page.locator('[data-command="notebook:restart-kernel"]').first.click()
        with self.page.expect_response(lambda response: "/restart" in response.url):
            self.page.locator(".jp-Dialog").locator(".jp-mod-accept").click()
        self.wait_restarted()

    def wait_restarted(self) -> None:
        """Wait until a kernel that was told to restart is back.

        What it is sent before the page has heard of that is lost.
        """
        self.wait_idle()
        self.page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').first.wait_for(
            state="attached"
        )

    def wait_idle(self) -> None:
        """Wait until nothing runs in the kernel."""
        self._wait_for_kernel(lambda kernel: kernel["execution_state"] == "idle")

    def save(self) -> None:
        """Save the notebook and wait until it is on disk."""
        file = self.server.folder / self.notebook
        before = file.stat().st_mtime_ns
        self.page.locator('[data-command="docmanager:save"]').first.click()
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        while file.stat().st_mtime_ns == before or not _is_whole(file):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{file} was not saved")
            self.page.wait_for_timeout(_POLL_SECONDS * 1000)

    def reload(self) -> None:
        """Reload the page; the kernel runs on.

        JupyterLab brings the notebook of the address to the front when all else is restored: what
        is clicked before may be undone.
        """
        self.page.reload()
        self._wait_until_ready()
        self.page.wait_for_load_state("networkidle")

    def screenshot(self, path: Path) -> None:
        """Take a picture of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path)

    def close(self) -> None:
        """Leave the page and end the kernel."""
        self.page.close(run_before_unload=False)
        self.server.request("DELETE", f"kernels/{self._kernel_id}")


def _code_cells(notebook: Path) -> list[int]:
    """The places of the code cells among all cells."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [place for place, cell in enumerate(cells) if cell["cell_type"] == "code"]


def _is_whole(notebook: Path) -> bool:
    """Whether a notebook is on disk to its end: the server empties the file before it writes."""
    try:
        json.loads(notebook.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True
