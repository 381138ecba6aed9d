"""Short summaries of tables and arrays, whatever library they come from.

No library is imported for it: a value can only be a DataFrame when pandas is loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from op_jupyter.core.values import dataclass

HEAD_ROWS: Final = 5
LISTED_COLUMNS: Final = 30
HEAD_COLUMNS: Final = 10
CELL_CHARS: Final = 40
COUNTED_CELLS: Final = 1_000_000
"""Missing values are counted up to this size; counting more would be felt."""

Cell = Callable[[Any], str]


def loaded(module: str, name: str) -> type | None:
    """The class of that name, when its module has been imported by someone."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def is_a(value: Any, module: str, name: str) -> bool:
    """Whether *value* is an instance of a class, without importing its module."""
    found = loaded(module, name)
    return found is not None and isinstance(value, found)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    dtype: str
    missing: int | None = None

    def __str__(self) -> str:
        missing = f" ({self.missing} missing)" if self.missing else ""
        return f"{self.name}: {self.dtype}{missing}"


@dataclass(frozen=True, slots=True)
class _Table:
    """What every kind of table is reduced to."""

    kind: str
    rows: int
    width: int
    columns: Sequence[_Column]
    head: Sequence[tuple[str, ...]]
    index: str = ""


def describe_table(value: Any, cell: Cell) -> str | None:
    """Some lines about a table or array: shape, types, first values; None: it is neither."""
    if is_a(value, "pandas", "DataFrame"):
        return _table_text(_pandas_table(value, cell))
    if is_a(value, "polars", "DataFrame"):
        return _table_text(_polars_table(value, cell))
    if is_a(value, "pandas", "Series") or is_a(value, "polars", "Series"):
        return _series_text(value, cell)
    if is_a(value, "pandas", "Index"):
        return (
            f"{_kind(value)}, {len(value)} values, {value.dtype}: {_first(value, len(value), cell)}"
        )
    if is_a(value, "numpy", "ndarray"):
        return f"{brief_table(value)}: {_first(value.flat, value.size, cell)}"
    return brief_table(value)


def brief_table(value: Any) -> str | None:
    """One line about a table or array; None: it is neither."""
    if is_a(value, "pandas", "DataFrame") or is_a(value, "polars", "DataFrame"):
        rows, columns = value.shape
        dtypes = list(value.dtypes)
        named = [f"{n} {d}" for n, d in zip(list(value.columns)[:8], dtypes, strict=False)]
        more = ", …" if columns > 8 else ""
        return f"{_kind(value)} {rows} × {columns} ({', '.join(named)}{more})"
    if is_a(value, "pandas", "Series") or is_a(value, "polars", "Series"):
        name = "" if value.name is None else f" {value.name!r}"
        return f"{_kind(value)}{name}, {len(value)} values, {value.dtype}"
    return _array_line(value)


def _array_line(value: Any) -> str | None:
    """Anything with a shape and a dtype: arrays of numpy, torch, jax and others."""
    if isinstance(value, type) or is_a(value, "numpy", "generic"):
        return None
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if not isinstance(shape, tuple) or dtype is None or not all(isinstance(n, int) for n in shape):
        return None
    return f"{_kind(value)}, shape {tuple(shape)}, {dtype}"


def _kind(value: Any) -> str:
    return type(value).__name__


# --- pandas and polars ------------------------------------------------------------------


def _pandas_table(frame: Any, cell: Cell) -> _Table:
    rows, count = frame.shape
    counted = rows * count <= COUNTED_CELLS
    columns = [
        _Column(
            _label(name),
            str(frame.dtypes.iloc[i]),
            int(frame.iloc[:, i].isna().sum()) if counted else None,
        )
        for i, name in enumerate(frame.columns[:LISTED_COLUMNS])
    ]
    head = frame.iloc[:HEAD_ROWS, :HEAD_COLUMNS]
    index = "" if is_a(frame.index, "pandas", "RangeIndex") else _index_line(frame.index)
    labels = [_label(label) for label in head.index] if index else [""] * len(head)
    lines = [
        (label, *(_cell(item, cell) for item in row))
        for label, row in zip(labels, head.itertuples(index=False, name=None), strict=True)
    ]
    return _Table(_kind(frame), rows, count, columns, lines, index)


def _index_line(index: Any) -> str:
    names = [str(name) for name in index.names if name is not None]
    return f"index: {', '.join(names) or 'unnamed'} ({getattr(index, 'dtype', 'mixed')})"


def _polars_table(frame: Any, cell: Cell) -> _Table:
    rows, count = frame.shape
    columns = [
        _Column(name, str(frame.dtypes[i]), int(frame[name].null_count()))
        for i, name in enumerate(frame.columns[:LISTED_COLUMNS])
    ]
    head = [
        ("", *(_cell(item, cell) for item in row[:HEAD_COLUMNS]))
        for row in frame.head(HEAD_ROWS).rows()
    ]
    return _Table(_kind(frame), rows, count, columns, head)


def _table_text(table: _Table) -> str:
    lines = [f"{table.kind}, {table.rows} rows × {table.width} columns"]
    lines += [table.index] if table.index else []
    lines += [f"  {column}" for column in table.columns]
    if hidden := table.width - len(table.columns):
        lines.append(f"  … {hidden} more columns")
    if table.head and table.columns:
        lines.append(f"first {len(table.head)} rows:" if len(table.head) > 1 else "first row:")
        header = ("", *(column.name for column in table.columns[:HEAD_COLUMNS]))
        lines += _aligned([header, *table.head])
    return "\n".join(lines)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _series_text(series: Any, cell: Cell) -> str:
    size = len(series)
    nulls = getattr(series, "null_count", None)
    missing = int(nulls() if nulls else series.isna().sum()) if size <= COUNTED_CELLS else 0
    told = f", {missing} missing" if missing else ""
    head = series.head(HEAD_ROWS * 2)
    return f"{brief_table(series)}{told}: {_first(head, size, cell)}"


def _first(values: Iterable[Any], size: int, cell: Cell) -> str:
    limit = HEAD_ROWS * 2
    shown = [_cell(item, cell) for item, _ in zip(values, range(limit), strict=False)]
    return ", ".join(shown) + (", …" if size > limit else "")


def _cell(value: Any, cell: Cell) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else cell(value)
    text = " ".join(text.split())
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 1] + "…"


def _label(label: Any) -> str:
    text = " ".join(str(label).split())
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 1] + "…"
