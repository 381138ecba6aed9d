"""What commands print: tables for people, plain columns for pipes, JSON for programs.

This is the one module that imports rich.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from op_jupyter.views.text import storable, visible


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(storable(value), indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """*rows* under *columns*; where no person looks, without the heads and never cut.

    The first column holds ids and stays whole.
    """
    if is_person():
        _print_rich(columns, rows)
        return
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def is_person() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(column, no_wrap=True, overflow="ellipsis" if last else "fold")
    for row in rows:
        # As `Text`, for what people and models wrote is no markup.
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console(file=sys.stdout).print(table)
