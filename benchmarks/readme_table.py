"""The table of measurements in README, made of ``docs/benchmarks.json``.

python benchmarks/readme_table.py     writes it again; `make bench` does so by itself
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
FOUND: Final = ROOT / "docs" / "benchmarks.json"
BEGIN: Final = "<!-- measured: python benchmarks/readme_table.py -->"
END: Final = "<!-- /measured -->"
OURS: Final = "op-jupyter"

ROWS: Final[Mapping[str, str]] = {
    "store a node, 1,000 of them": "append + update, 1,000 nodes",
    "bytes on disk for each byte of text, 200 turns": "bytes on disk against text, 200 turns",
    "a turn, without the request itself": "a turn beyond the bare request",
    "reopen after a kill, and get the next answer": (
        "reopen after a kill and get the next answer, 50 turns"
    ),
    "200 calls over 4 workers, against the ideal": (
        "200 calls of 20 ms over 4 workers, against the ideal"
    ),
    "load the extension in a kernel": "load the extension in a kernel",
}
"""What a row is called in README, and in the benchmarks."""


def shown(value: float, unit: str) -> str:
    """Two digits, or whole numbers from 100 on; milliseconds as seconds from 1,000 on."""
    unit = unit.partition(" ")[0]
    if unit == "ms" and value >= 1_000:
        value, unit = value / 1_000, "s"
    if value >= 99.5:
        return f"{value:,.0f} {unit}"
    digits = f"{value:#.2g}".removesuffix(".")
    return f"{digits} {unit}"


def systems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who was measured, ours first, in the order of the rows."""
    named = dict.fromkeys([OURS, *(name for row in rows for name in row["values"])])
    return [name for name in named if name != "limit"]


def measured(found: Mapping[str, Any]) -> str:
    """The part of README between the marks.

    Raises:
        KeyError: a row that README shows was not measured.
    """
    rows = {row["title"]: row for row in found["rows"]}
    titles = systems(found["rows"])
    lines = ["| | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    for called, title in ROWS.items():
        row = rows[title]
        cells = [
            shown(statistics.median(row["values"][name]), row["unit"])
            if row["values"].get(name)
            else "–"
            for name in titles
        ]
        lines.append(f"| {called} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rewritten(readme: str, found: Mapping[str, Any]) -> str:
    """*readme* with the table of *found*.

    Raises:
        ValueError: the marks are not there.
    """
    part = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.S)
    text, count = part.subn(lambda _: f"{BEGIN}\n{measured(found)}\n{END}", readme)
    if count != 1:
        raise ValueError(f"README has {count} parts between {BEGIN} and {END}, not one")
    return text


def main() -> None:
    """Write the table again."""
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    README.write_text(rewritten(README.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
