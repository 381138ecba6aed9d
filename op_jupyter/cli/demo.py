"""`op-jupyter demo`: the quickstart, opened for a person or played from start to end."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import webbrowser
from collections.abc import Mapping
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.drive import (
    CARD_PICTURE,
    END_PICTURE,
    DemoFailed,
    NbclientPlayer,
    browser_player,
    play,
)
from op_jupyter.cli.jupyter_server import running_server
from op_jupyter.cli.lesson import TOOL, Lesson, prepare_lesson
from op_jupyter.cli.notebook_page import find_browser
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.local_model import install
from op_jupyter.views.static_html import MIME_TYPE

# Live, whatever this shell is set to; the model is the lesson's own choice.
_LIVE: Final = {"OPENPROGRAM_REPLAY": "off", "OPENPROGRAM_MODEL": "", "OPENPROGRAM_MODE": ""}
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_NEEDED: Final = {
    "jupyterlab": '"op-jupyter[lab]"',
    "xllamacpp": '"op-jupyter[local]"',
    "pandas": "pandas",
}


def run_demo(out: Path, *, csv: Path | None = None, headless: bool = False) -> None:
    """Open the lesson in JupyterLab until interrupted, or play it and say what came of it.

    Raises:
        ConfigurationError: something that it needs is missing.
        DemoFailed: played, it did not go as it should.
    """
    _check_packages()
    folder = out.absolute()
    if headless:
        _play(prepare_lesson(folder, csv))
    else:
        lesson = prepare_lesson(folder, csv, keep=True)
        install()
        _open(lesson)


def _check_packages() -> None:
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise ConfigurationError(f"the demo needs more packages: pip install {' '.join(missing)}")


class _Clock:
    """Tells what happens, and when."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def tell(self, line: str) -> None:
        print(f"demo {time.monotonic() - self._started:5.1f} s  {line}", flush=True)


# --- for a person -------------------------------------------------------------------------


def _open(lesson: Lesson) -> None:
    with running_server(lesson.folder, env=_LIVE) as server:
        address = server.page(lesson.name)
        print(f"The lesson is open at\n\n    {address}\n\nStop with Ctrl-C.", flush=True)
        if _has_display():
            webbrowser.open(address)
        try:
            server.process.wait()
        except KeyboardInterrupt:
            print(f"Stopped. The notebook is {lesson.path}")


def _has_display() -> bool:
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


# --- played -------------------------------------------------------------------------------


def _play(lesson: Lesson) -> None:
    tell = _Clock().tell
    for stale in (CARD_PICTURE, END_PICTURE):
        (lesson.folder / stale).unlink(missing_ok=True)
    install(progress=tell)
    try:
        find_browser()
    except ConfigurationError as error:
        tell(f"{error.message}; running the cells without a browser and without pictures")
        tell(f"nobody can click there: the rule `allow {TOOL}` stands in for the card")
        with NbclientPlayer(lesson, _LIVE) as player:
            session_id = play(player, tell)
    else:
        with browser_player(lesson, _LIVE, tell, lesson.folder) as player:
            session_id = play(player, tell)
            if not player.clicks:
                raise DemoFailed("no card asked for permission")
    turns = turns_of(lesson.read())
    html = _write_html(lesson)
    _report(lesson, session_id, turns, html)
    check_answers(turns)


def turns_of(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a saved notebook shows of its turns, in order."""
    bundles = [
        output["data"][MIME_TYPE]
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if MIME_TYPE in output.get("data", {})
    ]
    return [json.loads(b) if isinstance(b, str) else b for b in bundles]


def _write_html(lesson: Lesson) -> Path:
    import nbformat
    from nbconvert import HTMLExporter

    notebook = nbformat.read(lesson.path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if cell["cell_type"] == "code":
            # A message that was taken back leaves an output without content.
            cell["outputs"] = [out for out in cell["outputs"] if out.get("data") != {}]
    body, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    path = lesson.path.with_suffix(".html")
    path.write_text(body, encoding="utf-8")
    return path


def _report(lesson: Lesson, session_id: str, turns: list[dict[str, Any]], html: Path) -> None:
    print()
    for turn in turns:
        calls = ", ".join(f"{call['name']} -> {call['result']}" for call in turn["calls"])
        print(f"answer   {turn['answer_markdown']}")
        print(f"         ({turn['status']}; {calls or 'no tool was called'})")
    print(f"session  {session_id}")
    print(f"history  git -C {default_service().path(session_id)} log --stat")
    pictures = [lesson.folder / name for name in (CARD_PICTURE, END_PICTURE)]
    written = [lesson.path, html, *(path for path in pictures if path.exists())]
    print(f"written  {lesson.folder}: {', '.join(path.name for path in written)}", flush=True)


def check_answers(turns: list[dict[str, Any]]) -> None:
    """Whether each answer holds the number that the tool computed for it.

    Raises:
        DemoFailed: one does not, or the tool was not called; the message says which.
    """
    if len(turns) != 2:
        raise DemoFailed(f"the notebook shows {len(turns)} turns, not 2")
    for turn in turns:
        answer = turn["answer_markdown"]
        if turn["status"] != "completed":
            raise DemoFailed(f"a turn ended as {turn['status']}: {answer}")
        computed = [call for call in turn["calls"] if call["name"] == TOOL]
        if not computed:
            raise DemoFailed(f"the model did not call {TOOL}; it answered {answer!r}")
        if not any(holds_number(answer, call["result"]) for call in computed):
            results = ", ".join(repr(call["result"]) for call in computed)
            raise DemoFailed(
                f"{TOOL} computed {results}, but that number is not in the answer {answer!r}"
            )


def holds_number(text: str, result: str) -> bool:
    """Whether the last number in *result* stands in *text*, however it is written there."""
    computed = _numbers(result)
    return bool(computed) and computed[-1] in _numbers(text)


def _numbers(text: str) -> list[Decimal]:
    return [Decimal(found.replace(",", "")) for found in _NUMBER.findall(text)]
