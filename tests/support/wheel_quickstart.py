"""Run the quickstart of an installed wheel in JupyterLab and Notebook 7, and print what they show.

Runs with the Python of the environment that is looked at, so that nothing of a clone takes part:

    ENVIRONMENT/bin/python -I wheel_quickstart.py LESSONS PATH

LESSONS is a folder that `op-jupyter lessons` made; PATH is the search path of what is started.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser

import op_jupyter
from op_jupyter.cli.jupyter_server import App, JupyterServer, running_server
from op_jupyter.cli.lesson import FOLLOW_UP, QUESTION, code_cells
from op_jupyter.cli.notebook_page import NotebookPage, running_browser

KERNELS: Mapping[App, str] = {"notebook": "openprogram", "lab": "python3"}


def main() -> None:
    """Print a JSON document: where the package is, and what each front end shows."""
    folder, path = Path(sys.argv[1]), sys.argv[2]
    env = {
        "PATH": path,
        "OPENPROGRAM_REPLAY": "replay",
        "OPENPROGRAM_HOME": str(folder / ".sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
    }
    shown: dict[str, object] = {"package": op_jupyter.__file__}
    # One server has the pages of both front ends; Notebook comes first, because it stumbles over
    # what JupyterLab leaves in the user's workspace.
    with (
        running_server(folder, "notebook", home=folder / ".jupyter", env=env) as server,
        running_browser() as browser,
    ):
        for app, kernel in KERNELS.items():
            shown[app] = look(browser, replace(server, app=app), kernel)
    print(json.dumps(shown))


def look(browser: Browser, server: JupyterServer, kernel: str) -> dict[str, object]:
    """What the quickstart shows, run from its first cell to its last."""
    name = f"{server.app}.ipynb"
    text = (server.folder / "quickstart.ipynb").read_text(encoding="utf-8")
    (server.folder / name).write_text(text, encoding="utf-8")
    cells = code_cells(json.loads(text))
    page = NotebookPage(browser, server, name, kernel)
    for number in cells.values():
        page.run(number)
    if picture := os.environ.get("PICTURES"):
        page.screenshot(Path(picture) / f"{server.app}.png")
    question = page.outputs(cells[QUESTION])
    shown = {
        "address": page.page.url,
        "answers": [page.text(cells[each]) for each in (QUESTION, FOLLOW_UP)],
        "graph": question.get_by_role("option").all_inner_texts(),
        "drawings": question.locator("svg").count(),
        "problems": [*page.errors, *filter(None, map(page.error, cells.values()))],
    }
    page.close()
    return shown


if __name__ == "__main__":
    main()
