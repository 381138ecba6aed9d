"""Where Claude Code's program is, and the package that talks to it; neither is started here."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LIBRARY: Final = "claude_agent_sdk"
ENVIRONMENT: Final = "OPENPROGRAM_CLAUDE"
"""Names another program to use than the one that the package brings."""

_PROGRAM: Final = "claude"


def has_library() -> bool:
    """Whether the optional package is there."""
    return importlib.util.find_spec(LIBRARY) is not None


def bundled_program() -> Path | None:
    """The program that comes with the package, where its wheel brings one."""
    spec = importlib.util.find_spec(LIBRARY)
    if spec is None or not spec.submodule_search_locations:
        return None
    bundled = Path(spec.submodule_search_locations[0]) / "_bundled" / _PROGRAM
    return bundled if bundled.is_file() else None


def find_program(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The program to use, if it can be run: the one that is named, the package's, or ``claude``
    on the path."""
    named = environ.get(ENVIRONMENT)
    found = Path(named).expanduser() if named else bundled_program() or _on_the_path()
    return found if found is not None and can_run(found) else None


def can_run(program: Path) -> bool:
    """Whether this is a file that may be started."""
    return program.is_file() and os.access(program, os.X_OK)


def is_usable(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Claude Code can be asked, as far as that is seen without starting it."""
    return has_library() and find_program(environ) is not None


def _on_the_path() -> Path | None:
    found = shutil.which(_PROGRAM)
    return None if found is None else Path(found)
