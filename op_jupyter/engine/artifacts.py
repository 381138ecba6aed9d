"""Numbers that an attempt left in tables: ``metrics.csv`` and the like, read with suspicion."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from op_jupyter.core.attempts import artifacts_of, nodes_of
from op_jupyter.store.files import read_file
from op_jupyter.tools.gate import real_path

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession

MAX_BYTES: Final = 1_000_000
MAX_METRICS: Final = 100
MAX_NAME_CHARS: Final = 100
_NAME: Final = re.compile(r"(?:.*[._-])?metrics\.(csv|tsv)", re.IGNORECASE)


def metrics_of(session: AgentSession, turn_id: str) -> dict[str, float]:
    """The numbers in the first row of each table of metrics that the turn made, by column.

    A file that is none, is too large, or cannot be read has none.
    """
    found: dict[str, float] = {}
    workspace = real_path(session.workspace)  # as the paths of artifacts are
    for artifact in artifacts_of(nodes_of(session.dag, session.dag.turns[turn_id])):
        path = Path(artifact.path)
        named = _NAME.fullmatch(path.name)
        if named is not None and path.is_relative_to(workspace):
            found |= _read(path, "\t" if named[1].lower() == "tsv" else ",")
    return dict(list(found.items())[:MAX_METRICS])


def _read(path: Path, delimiter: str) -> dict[str, float]:
    try:
        text = read_file(str(path), MAX_BYTES).decode("utf-8-sig")
        row = next(csv.DictReader(io.StringIO(text), delimiter=delimiter), {})
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    numbers = {name: _number(value) for name, value in row.items()}
    return {
        name: number
        for name, number in numbers.items()
        if isinstance(name, str) and _is_name(name) and number is not None
    }


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable()


def _number(value: object) -> float | None:
    """*value* as a finite number, if it is one."""
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None
