"""A notebook of cells that have not run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_notebook(path: Path, sources: Sequence[str]) -> None:
    """Write a notebook of code cells, one for each of *sources*."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {},
            "execution_count": None,
            "source": source,
            "outputs": [],
        }
        for number, source in enumerate(sources)
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    path.write_text(json.dumps(notebook), encoding="utf-8")
