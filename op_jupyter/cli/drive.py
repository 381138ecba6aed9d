"""Play the lesson from start to end, with a kernel restart in its middle.

The story is told once; it is played in a headless browser, where somebody clicks the card, or
through nbclient, where nobody can: there an explicit rule allows the tool.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from op_jupyter.cli.jupyter_server import running_server
from op_jupyter.cli.lesson import FOLLOW_UP, LOAD, QUESTION, SETUP, STATUS, TOOL, Lesson
from op_jupyter.cli.notebook_page import NotebookPage, running_browser
from op_jupyter.errors import OpenProgramError

Tell = Callable[[str], None]

CARD_PICTURE: Final = "card.png"
END_PICTURE: Final = "answer.png"
_TURN_SECONDS: Final = 180.0
_LOOK_MS: Final = 100
_HEIGHT: Final = 1400  # the card and the graph below it fit into one picture
_SESSION_ID: Final = re.compile(r"\bnb-[A-Za-z0-9._-]*[A-Za-z0-9]")


class DemoFailed(OpenProgramError):
    """The lesson did not go as it should; the message says where."""


class Player(Protocol):
    """Runs cells of the lesson, by their ids."""

    def run(self, cell: str) -> str:
        """Run a cell to its end and return what it printed.

        Raises:
            DemoFailed: it failed.
        """

    def run_below(self, cell: str, source: str) -> None:
        """Put a new cell below *cell* and run it."""

    def restart(self) -> None:
        """Give the notebook another kernel."""

    def save(self) -> None:
        """Write the notebook with its outputs."""


def play(player: Player, tell: Tell) -> str:
    """Ask, restart the kernel, resume by id, ask on; return the session's id.

    Raises:
        DemoFailed: a cell failed.
    """
    for cell in (*SETUP, QUESTION):
        player.run(cell)
    tell("the first question is answered")
    session_id = session_id_in(player.run(STATUS))
    player.restart()
    tell(f"restarted the kernel; resuming session {session_id}")
    player.run(LOAD)
    player.run_below(LOAD, f"%agent resume {session_id}")
    for cell in (*SETUP[1:], FOLLOW_UP):
        player.run(cell)
    tell("the second question is answered")
    player.save()
    return session_id


def session_id_in(text: str) -> str:
    """The session id that `%agent status` printed.

    Raises:
        DemoFailed: there is none.
    """
    found = _SESSION_ID.search(text)
    if found is None:
        raise DemoFailed(f"%agent status named no session: {text!r}")
    return found.group()


# --- in a browser -------------------------------------------------------------------------


@contextmanager
def browser_player(
    lesson: Lesson, env: Mapping[str, str], tell: Tell, pictures: Path | None = None
) -> Iterator[BrowserPlayer]:
    """A player with a server and a browser of its own.

    Args:
        env: added to the environment of the kernel.
        pictures: folder for pictures of the first card and of the end.

    Raises:
        ConfigurationError: there is no browser, or Jupyter does not start.
    """
    with (
        TemporaryDirectory(prefix="op-jupyter-demo-") as home,
        running_server(lesson.folder, home=Path(home), env=env) as server,
        running_browser() as browser,  # gone before the server, which waits for its pages
    ):
        tell(f"JupyterLab runs at {server.url}; opening it in a headless browser")
        page = NotebookPage(browser, server, lesson.name, height=_HEIGHT)
        yield BrowserPlayer(lesson, page, tell, pictures)


class BrowserPlayer:
    """A player that uses JupyterLab as a person does, and allows what a card asks for.

    Attributes:
        clicks: cards that were answered.
    """

    def __init__(
        self, lesson: Lesson, page: NotebookPage, tell: Tell, pictures: Path | None
    ) -> None:
        self.clicks = 0
        self._page = page
        self._tell = tell
        self._pictures = pictures
        self._numbers = dict(lesson.cells)

    def run(self, cell: str) -> str:
        return self._run(self._numbers[cell])

    def run_below(self, cell: str, source: str) -> None:
        added = self._page.insert_below(self._numbers[cell], source)
        self._numbers = {name: number + (number >= added) for name, number in self._numbers.items()}
        self._run(added)

    def restart(self) -> None:
        self._page.restart_kernel()

    def save(self) -> None:
        self._page.save()
        if self._pictures is not None:
            self._page.screenshot(self._pictures / END_PICTURE)
        if self._page.errors:
            raise DemoFailed(f"the page raised an error: {self._page.errors[0]}")

    def _run(self, number: int) -> str:
        deadline = time.monotonic() + _TURN_SECONDS
        self._page.start(number)
        while not self._page.is_done(number):
            if time.monotonic() > deadline:
                raise DemoFailed(f"code cell {number} is not done after {_TURN_SECONDS:.0f} s")
            self._allow(number)
            self._page.page.wait_for_timeout(_LOOK_MS)
        if error := self._page.error(number).strip():
            raise DemoFailed(f"code cell {number} failed: {error.splitlines()[-1]}")
        return self._page.text(number)

    def _allow(self, number: int) -> None:
        button = self._page.outputs(number).get_by_role("button", name="Allow once")
        if button.count() == 0 or button.first.is_disabled():
            return
        if self._pictures is not None and not self.clicks:
            self._page.outputs(number).last.scroll_into_view_if_needed()
            self._page.screenshot(self._pictures / CARD_PICTURE)
        button.first.click()
        self.clicks += 1
        self._tell("a card asked for permission while the cell ran; clicked Allow")


# --- without one --------------------------------------------------------------------------


class NbclientPlayer:
    """A player for machines without a browser: nobody can click, so a rule allows the tool."""

    def __init__(self, lesson: Lesson, env: Mapping[str, str]) -> None:
        import nbformat
        from nbclient import NotebookClient

        self._lesson = lesson
        self._new_cell = nbformat.v4.new_code_cell
        self._notebook: Any = nbformat.read(lesson.path, as_version=4)  # type: ignore[no-untyped-call]
        self._env = {**os.environ, **env}
        self._client = NotebookClient(
            self._notebook,
            timeout=int(_TURN_SECONDS),
            kernel_name="python3",
            resources={"metadata": {"path": str(lesson.folder)}},
        )
        self._allowed = False
        self._kernel: Any = None

    def __enter__(self) -> NbclientPlayer:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        self._kernel = self._client.setup_kernel(env=self._env)
        self._kernel.__enter__()

    def _stop(self) -> None:
        self._kernel.__exit__(None, None, None)

    def run(self, cell: str) -> str:
        found = next(c for c in self._notebook.cells if c["id"] == cell)
        printed = self._run(found)
        if cell == LOAD and not self._allowed:
            self._allowed = True  # kept with the session, so once is enough
            self.run_below(LOAD, f"%agent allow {TOOL}")
        return printed

    def run_below(self, cell: str, source: str) -> None:
        place = next(i for i, c in enumerate(self._notebook.cells) if c["id"] == cell)
        added = self._new_cell(source)  # type: ignore[no-untyped-call]
        self._notebook.cells.insert(place + 1, added)
        self._run(added)

    def restart(self) -> None:
        self._stop()
        self._start()

    def save(self) -> None:
        import nbformat

        nbformat.write(self._notebook, self._lesson.path)  # type: ignore[no-untyped-call]

    def _run(self, cell: Any) -> str:
        from nbclient.exceptions import CellExecutionError

        try:
            self._client.execute_cell(cell, self._notebook.cells.index(cell))
        except CellExecutionError as error:
            raise DemoFailed(f"the cell {cell['source']!r} failed: {error.evalue}") from None
        texts = [output.get("text", "") for output in cell["outputs"]]
        texts += [output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
        return "\n".join(texts)
