"""Run a lesson live in a browser, answer its cards, and keep outputs, model calls and decisions.

    PYTHONPATH=tests .venv/bin/python -m support.record_lesson notebooks/quickstart.ipynb

Afterwards the lesson replays anywhere.  Record again when a cell, or anything that is part of a
prompt, has changed; the old recordings of the notebook are dropped first.

Every card is allowed once, unless the metadata of its cell say in ``record`` what is done in its
outputs instead, in order:

    {"click": BUTTON}    {"check": LABEL}    {"fill": TEXT}    {"fill": TEXT, "label": LABEL}

What a cell with the tag ``nbval-ignore-output`` shows differs from run to run.  It is not kept,
unless its metadata say ``"record": "keep"``.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from playwright.sync_api import Locator

from op_jupyter.cli.jupyter_server import running_server
from op_jupyter.cli.lesson import clear_outputs
from op_jupyter.cli.notebook_page import NotebookPage, running_browser

IGNORED: Final = "nbval-ignore-output"
KEEP: Final = "keep"
ALLOW: Final = {"click": "Allow once"}
TURN_SECONDS: Final = 180.0
LOOK_MS: Final = 100


def main() -> None:
    """Record the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", type=Path, nargs="+", metavar="notebook")
    for path in parser.parse_args().notebooks:
        record(path.absolute())


def record(path: Path) -> None:
    """Run all cells of *path* in place, and write its cassette beside it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    metadata = notebook["metadata"]
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    clear_outputs(notebook)
    write(path, notebook)
    path.with_suffix(".cassette").unlink(missing_ok=True)
    with (
        TemporaryDirectory() as home,
        running_server(
            path.parent,
            home=Path(home) / "jupyter",
            env={"OPENPROGRAM_REPLAY": "record", "OPENPROGRAM_HOME": f"{home}/sessions"},
        ) as server,
        running_browser() as browser,
    ):
        page = NotebookPage(browser, server, path.name)
        for number, cell in enumerate(cells):
            print(f"record: {path.name}: {cell['id']}", flush=True)
            run(page, number, cell["metadata"].get("record"))
        page.save()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"] = metadata  # the page adds what this machine has installed
    for cell in notebook["cells"]:
        tidy(cell)
    write(path, notebook)


def run(page: NotebookPage, number: int, planned: Any) -> None:
    """Run one cell, and do what is *planned* in its outputs."""
    steps = list(planned) if isinstance(planned, list) else None
    deadline = monotonic() + TURN_SECONDS
    page.start(number)
    while not page.is_done(number):
        if monotonic() > deadline:
            raise SystemExit(f"cell {number} is not done; still to do: {steps}")
        outputs = page.outputs(number)
        if steps is None:
            do(outputs, ALLOW)
        elif steps and do(outputs, steps[0]):
            steps.pop(0)
        page.page.wait_for_timeout(LOOK_MS)
    if steps:
        raise SystemExit(f"cell {number} ended before it was asked: {steps}")
    if error := page.error(number).strip():
        raise SystemExit(f"cell {number} failed: {error}")


def do(outputs: Locator, step: Mapping[str, str]) -> bool:
    """Do one step, if what it is about is there already."""
    match step:
        case {"click": name}:
            found = outputs.get_by_role("button", name=name)
        case {"check": label} | {"label": label}:
            found = outputs.get_by_label(label, exact=True)
        case _:
            found = outputs.locator("textarea")
    if found.count() == 0 or not found.last.is_visible() or found.last.is_disabled():
        return False
    if "click" in step:
        found.last.click()
    elif "check" in step:
        found.last.check()
    else:
        found.last.fill(step["fill"])
    return True


def tidy(cell: dict[str, Any]) -> None:
    """Take out what only this run knows."""
    cell["metadata"].pop("execution", None)
    for output in cell.get("outputs", ()):
        if "metadata" in output:
            output["metadata"] = {}  # ids of this very run
    if "outputs" in cell:  # a note that was taken back leaves an empty display
        cell["outputs"] = [output for output in cell["outputs"] if output.get("data", True)]
    ignored = IGNORED in cell["metadata"].get("tags", ())
    if ignored and cell["metadata"].get("record") != KEEP:
        cell["outputs"] = []


def write(path: Path, notebook: Mapping[str, Sequence[Any] | Any]) -> None:
    """Write *notebook* as Jupyter does."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
