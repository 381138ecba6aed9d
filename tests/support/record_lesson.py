"""Run a lesson live in a browser, click its cards, and keep outputs, model calls and decisions.

    PYTHONPATH=tests .venv/bin/python -m support.record_lesson notebooks/quickstart.ipynb

Afterwards the lesson replays anywhere.  Record again when a cell, or anything that is part of a
prompt, has changed; the old recordings of the notebook are dropped first.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from op_jupyter.cli.drive import browser_player
from op_jupyter.cli.lesson import Lesson, clear_outputs, code_cells

IGNORED = "nbval-ignore-output"


def main() -> None:
    """Record the notebook that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", type=Path)
    record(parser.parse_args().notebook.absolute())


def record(path: Path) -> None:
    """Run all cells of *path* in place, and write its cassette beside it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    metadata = notebook["metadata"]
    clear_outputs(notebook)
    write(path, notebook)
    path.with_suffix(".cassette").unlink(missing_ok=True)
    lesson = Lesson(path.parent, path.name, code_cells(notebook))
    with TemporaryDirectory() as home:
        env = {"OPENPROGRAM_REPLAY": "record", "OPENPROGRAM_HOME": home}
        with browser_player(lesson, env, say) as player:
            for cell in lesson.cells:
                player.run(cell)
            player.save()
    notebook = lesson.read()
    notebook["metadata"] = metadata  # the page adds what this machine has installed
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output["metadata"] = {}  # ids of this very run
        if IGNORED in cell["metadata"].get("tags", ()):
            cell["outputs"] = []  # differs from machine to machine
    write(path, notebook)


def write(path: Path, notebook: object) -> None:
    """Write *notebook* as Jupyter does."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"record: {line}", flush=True)


if __name__ == "__main__":
    main()
