"""Write what the lessons show anew, from their recordings, when only the looks have changed.

    .venv/bin/python tests/support/refresh_lessons.py notebooks/*.ipynb

Nothing is recorded: a cell whose prompt has changed fails here, and needs `record_lesson`.
"""

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Refresh the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", type=Path, nargs="+")
    for path in parser.parse_args().notebooks:
        print(f"refresh: {path.name}: {refresh(path.absolute())} displays changed", flush=True)


def refresh(path: Path) -> int:
    """Replay *path* and replace what its displays hold; how many changed."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    with TemporaryDirectory() as home:
        (Path(home) / "none.toml").touch()
        os.environ |= {
            "OPENPROGRAM_REPLAY": "replay",
            "OPENPROGRAM_HOME": home,
            "OPENPROGRAM_CONFIG": os.devnull,
        }
        replayed = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        resources = {"metadata": {"path": str(path.parent)}}
        NotebookClient(replayed, resources=resources, allow_errors=True).execute()
    fresh = json.loads(nbformat.writes(replayed))  # type: ignore[no-untyped-call]
    pairs = zip(saved["cells"], fresh["cells"], strict=True)
    changed = sum(_take(old, new) for cell, again in pairs for old, new in _displays(cell, again))
    path.write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return changed


def _displays(cell: dict[str, Any], again: dict[str, Any]) -> list[tuple[Any, Any]]:
    """What the cell's displays hold, as saved and as replayed."""
    old, new = (
        [output["data"] for output in each.get("outputs", ()) if "data" in output]
        for each in (cell, again)
    )
    if not old:
        return []
    if len(old) != len(new):
        source = "".join(cell["source"]).splitlines()
        raise SystemExit(f"refresh: other displays than were recorded, in the cell {source[:2]}")
    return list(zip(old, new, strict=True))


def _take(old: dict[str, Any], new: dict[str, Any]) -> bool:
    differs = old != new
    old.clear()
    old.update(new)
    return differs


if __name__ == "__main__":
    main()
