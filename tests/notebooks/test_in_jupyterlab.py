"""The lessons stay green after JupyterLab ran and saved them.  Part of `make matrix`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from notebooks.harness import LESSONS, nbval, shown
from playwright.sync_api import Browser
from support.jupyter_tree import tree_environment

from op_jupyter.cli.jupyter_server import JupyterServer, running_server
from op_jupyter.cli.notebook_page import NotebookPage, running_browser

pytestmark = pytest.mark.timeout(600)
LESSON_SECONDS = 240
# As JupyterLab 4.4 does it: cells that are out of sight are not in the page.
WINDOWED = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "full"}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """JupyterLab on a copy of the lessons; each run is a replay."""
    folder = tmp_path_factory.mktemp("lab")
    lessons = folder / "notebooks"
    shutil.copytree(LESSONS, lessons, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    env = {
        "HOME": str(folder),
        "OPENPROGRAM_CONFIG": os.devnull,
        "OPENPROGRAM_HOME": str(folder / "sessions"),
        "OPENPROGRAM_LOCAL_MODEL": str(folder / "none.gguf"),
        "OPENPROGRAM_CLAUDE": str(folder / "none"),
        "OPENPROGRAM_REPLAY": "replay",
        **tree_environment(folder / ".tree"),
    }
    home = folder / ".jupyter-test"
    with running_server(lessons, home=home, env=env, settings=WINDOWED) as running:
        yield running


@pytest.mark.parametrize("name", sorted(path.name for path in LESSONS.glob("*.ipynb")))
def test_a_lesson_that_jupyterlab_ran_and_saved_passes_nbval(
    server: JupyterServer, browser: Browser, attempts: Path, name: str
) -> None:
    path = server.folder / name
    before = json.loads(path.read_text("utf-8"))
    cells = len(code_cells(before))
    page = NotebookPage(browser, server, name)
    for index in range(cells):
        page.run(index, seconds=LESSON_SECONDS)
    page.save()
    page.close()

    saved = json.loads(path.read_text("utf-8"))
    counts = [cell["execution_count"] for cell in code_cells(saved)]
    assert counts == list(range(1, cells + 1))
    assert "widget-view" not in path.read_text("utf-8")
    assert shown(saved) == shown(before)
    done = nbval(server.folder, attempts, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert page.errors == []
    assert not attempts.exists()


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that can be run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
