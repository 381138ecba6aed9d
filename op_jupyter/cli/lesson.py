"""The quickstart as a folder to run in: a copy of the lesson, or the same cells for a CSV."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import op_jupyter
from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError
from op_jupyter.store.whole_file import write_whole

TOOL: Final = "column_stat"
_NAME: Final = "quickstart.ipynb"
_DATA: Final = "data/penguins.csv"
_COLUMN: Final = "body_mass_g"
_SEPARATORS: Final = (",", ";", "\t", "|")
_ENCODINGS: Final = ("utf-8", "latin-1")
_USUAL: Final = {"sep": ",", "decimal": ".", "encoding": "utf-8"}
_SAMPLE_ROWS: Final = 1000
_LONG: Final = 100_000

# Cells of the lesson, by their ids.
LOAD: Final = "load"
SETUP: Final = (LOAD, "data", "function")
QUESTION: Final = "question"
STATUS: Final = "status"
FOLLOW_UP: Final = "follow-up"


@dataclass(frozen=True, slots=True)
class Lesson:
    """A notebook in a folder of its own, ready to run.

    Attributes:
        cells: number of each code cell, by cell id.
    """

    folder: Path
    name: str
    cells: Mapping[str, int]

    @property
    def path(self) -> Path:
        """The notebook."""
        return self.folder / self.name

    def read(self) -> dict[str, Any]:
        """The notebook's JSON as it is now."""
        notebook: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return notebook


def prepare_lesson(folder: Path, csv: Path | None = None, *, keep: bool = False) -> Lesson:
    """Put the lesson into *folder*; with *csv*, the same cells ask about that file.

    *keep* leaves a notebook alone that is there already.

    Raises:
        ConfigurationError: the folder cannot be written, or the CSV cannot be used.
    """
    source = lesson_folder()
    notebook = json.loads((source / _NAME).read_text(encoding="utf-8"))
    clear_outputs(notebook)
    data = source / _DATA
    name = _NAME
    if csv is not None:
        table = read_table(csv)
        data, name = csv, f"{csv.stem}.ipynb"
        ask_about(notebook, table)
    path = folder / name
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        if data.resolve() != (folder / "data" / data.name).resolve():
            shutil.copyfile(data, folder / "data" / data.name)
        if not (keep and path.exists()):
            text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            write_whole(path, text.encode("utf-8"), mode=0o644)
    except OSError as error:
        raise ConfigurationError(f"the demo cannot be written to {folder}: {error}") from error
    return Lesson(folder, name, code_cells(notebook))


def lesson_folder() -> Path:
    """Where the lessons are: in the source tree, or where the wheel put them."""
    source = Path(op_jupyter.__file__).parents[1] / "notebooks"
    for place in (source, *_installed()):
        if (place / _NAME).is_file():
            return place
    raise ConfigurationError(
        "the lessons are missing; install op-jupyter again, from a wheel or a whole clone"
    )


def _installed() -> Iterator[Path]:
    """Where the wheel put them: in the environment, in the user's folder, wherever pip was told."""
    with suppress(PackageNotFoundError):
        for file in distribution("op-jupyter").files or ():
            if file.name == _NAME:
                yield Path(str(file.locate())).resolve().parent


def code_cells(notebook: Mapping[str, Any]) -> dict[str, int]:
    """The number of each code cell, by cell id."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return {cell["id"]: number for number, cell in enumerate(code)}


def clear_outputs(notebook: Mapping[str, Any]) -> None:
    """Make the notebook one that has not run."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None


# --- another CSV --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file that pandas can read.

    Attributes:
        options: what `pandas.read_csv` needs beside the path.
        column: the numeric column to ask about.
    """

    path: Path
    options: Mapping[str, str]
    column: str


def read_table(path: Path) -> Table:
    """How to read a CSV, and which column to ask about.

    Raises:
        ConfigurationError: it cannot be read, or has no column of numbers.
    """
    import pandas

    for encoding in _ENCODINGS:
        try:
            with path.open(encoding=encoding, newline="") as file:
                header = file.readline()
            readings = [_reading(path, header, encoding, decimal) for decimal in (".", ",")]
        except UnicodeDecodeError:
            continue
        except (OSError, ValueError, pandas.errors.ParserError) as error:
            raise ConfigurationError(
                f"{path} cannot be read as a CSV: {str(error).strip()}"
            ) from error
        options, frame = max(readings, key=lambda r: len(r[1].select_dtypes("number").columns))
        return Table(path, options, numeric_column(frame, path))
    raise ConfigurationError(f"{path} cannot be read as a CSV: it is no text")


def _reading(path: Path, header: str, encoding: str, decimal: str) -> tuple[dict[str, str], Any]:
    import pandas

    separator = max(_SEPARATORS, key=header.count)
    wanted = {"sep": separator, "decimal": decimal, "encoding": encoding}
    options = {name: value for name, value in wanted.items() if value != _USUAL[name]}
    return options, pandas.read_csv(path, nrows=_SAMPLE_ROWS, **options)  # type: ignore[call-overload]


def numeric_column(frame: Any, path: Path) -> str:
    """The column to ask about: measured numbers that are short, under a name that is easy to say.

    A tiny model now and then drops a digit of a long number.

    Raises:
        ConfigurationError: there is no such column.
    """
    numbers = [
        str(name) for name in frame.select_dtypes("number").columns if frame[name].notna().any()
    ]
    if not numbers:
        raise ConfigurationError(
            f"{path} has no column of numbers; its columns are "
            f"{', '.join(map(str, frame.columns)) or 'none'}"
        )

    def cost(name: str) -> tuple[bool, bool, bool]:
        values = frame[name]
        is_long = bool(values.abs().max() >= _LONG)
        return _is_running_number(values), is_long, not _is_simple(name)

    return min(numbers, key=cost)


def _is_running_number(values: Any) -> bool:
    return bool(len(values) > 1 and (values.diff().iloc[1:] == 1).all())


def _is_simple(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*", name) is not None


def ask_about(notebook: Mapping[str, Any], table: Table) -> None:
    """Change the cells so that they load *table* and ask about its column."""
    extra = "".join(f", {name}={value!r}" for name, value in table.options.items())
    changes = {
        f'"{_DATA}"': json.dumps(f"data/{table.path.name}", ensure_ascii=False) + extra,
        _COLUMN: table.column,
    }
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            for old, new in changes.items():
                source = source.replace(old, new)
            cell["source"] = source
    notebook["cells"][:] = [
        cell
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" or "penguin" not in "".join(cell["source"]).lower()
    ]
