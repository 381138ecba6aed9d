"""`op-jupyter lessons`: a copy of the lessons, to run in and to change."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from op_jupyter.cli.lesson import lesson_folder
from op_jupyter.errors import ConfigurationError

_NOT_PART: Final = (".", "__")
_OUTWARD: Final = re.compile(r"\[([^\[\]\n]+)\]\(\.\./[^)\n]*\)")
"""A link to a page of the source tree; a copy of the lessons does not have it beside it."""
_TEXTS: Final = (".ipynb", ".md")


def copy_lessons(folder: Path) -> None:
    """Copy lessons, recordings and data into *folder*; what is there already stays as it is.

    Raises:
        ConfigurationError: the folder cannot be written, or the lessons are missing.
    """
    source = lesson_folder()
    if folder.resolve().is_relative_to(source.resolve()):
        raise ConfigurationError(f"the lessons come from {source}; name a folder outside of it")
    kept = []
    try:
        for path in _files(source):
            target = folder / path.relative_to(source)
            if target.exists():
                kept.append(target)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(path, target)
    except OSError as error:
        raise ConfigurationError(f"the lessons cannot be written to {folder}: {error}") from error
    if kept:
        print(f"{len(kept)} files existed already and were kept.")
    print(
        f"The lessons are in {folder}; begin with quickstart.ipynb. To replay without a model:\n\n"
        f"    OPENPROGRAM_REPLAY=replay jupyter lab {shlex.quote(str(folder))}"
    )


def _files(source: Path) -> Iterator[Path]:
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if path.is_file() and not any(part.startswith(_NOT_PART) for part in parts):
            yield path


def _copy(path: Path, target: Path) -> None:
    if path.suffix in _TEXTS:
        text = path.read_text(encoding="utf-8")
        target.write_text(_OUTWARD.sub(r"\1", text), encoding="utf-8")
    else:
        shutil.copyfile(path, target)
