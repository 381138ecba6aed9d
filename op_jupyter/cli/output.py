"""What commands print: tables for people, plain columns for pipes, JSON for programs.

This is the one module that imports rich.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Final

from op_jupyter.views.text import storable, visible

_GAP: Final = 3
"""Columns of the terminal between two of a table."""
_LEAST_FOR_TEXT: Final = 10
"""Columns of the terminal that the last one of a table needs."""


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(storable(value), indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """*rows* under *columns*; where no person looks, without the heads and never cut.

    The first column holds ids and stays whole, also where a table has no room.
    """
    shown = [[visible(cell) for cell in row] for row in rows]
    if is_person() and _print_rich(columns, shown):
        return
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def is_person() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """A table for people; False: the terminal is too narrow for one."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    room = console.width - sum(widths[:-1]) - _GAP * len(columns)
    if room < _LEAST_FOR_TEXT:
        return False
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        # As `Text`, for what people and models wrote is no markup.
        cells = [*map(Text, row)]
        cells[-1].truncate(room, overflow="ellipsis")  # the table would cut every column
        table.add_row(*cells)
    console.print(table)
    return True
