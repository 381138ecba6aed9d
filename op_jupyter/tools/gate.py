"""From a tool and its arguments to what the permission gate judges.

Symlinks are resolved here, so that the rules in `core` need no disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from op_jupyter.core.danger import CodeReading, read_code
from op_jupyter.core.paths import PathUse, Places
from op_jupyter.core.permissions import GateCall
from op_jupyter.core.rules import Rule, literal_folder, moved_pattern
from op_jupyter.tools.base import CallDescription, Tool
from op_jupyter.tools.shell_grammar import read_line, read_script


def gate_call(tool: Tool, arguments: Mapping[str, Any], workspace: Path) -> GateCall:
    """The call as the gate sees it."""
    told = tool.describe(arguments, workspace)
    return GateCall(
        tool.spec.name,
        tool.effect,
        arguments,
        tool.trusted,
        tuple(_uses(told)),
        told.code,
        told.language,
        _reading(told, workspace),
        told.diff,
        told.undo,
    )


def places_of(workspace: Path, protected: Sequence[Path] = ()) -> Places:
    """Where things are on this machine, for `core.permissions.decide`."""
    return Places(real_path(workspace), real_path(Path.home()), tuple(map(real_path, protected)))


def real_path(path: Path) -> Path:
    """*path* with every symlink resolved; what does not exist keeps its name."""
    return Path(os.path.realpath(path))


def under_real_names(rule: Rule, places: Places) -> Iterator[Rule]:
    """*rule*, and if it denies, the same of where the folder that it names really is."""
    yield rule
    if rule.kind == "allow" or rule.covers_everything or rule.pattern is None:
        return
    folder, rest = literal_folder(rule.pattern, places)
    if "\0" in folder:  # code, which is no path
        return
    real = os.path.realpath(folder)
    if real != folder:
        yield replace(rule, pattern=moved_pattern(real, rest))


def _reading(told: CallDescription, workspace: Path) -> CodeReading | None:
    """What the code of a call would do, its paths resolved as they are now."""
    if told.language == "python":
        reading = read_code(told.code, read_line, told.known)
    elif told.language == "shell":
        reading = read_script(told.code)
    else:
        return None
    places = places_of(workspace)
    touches = (replace(t, real=_real_name(t.path, places)) for t in reading.touches)
    return replace(reading, touches=tuple(touches))


def _real_name(path: str, places: Places) -> str:
    try:
        return str(real_path(Path(places.absolute(path))))
    except ValueError:  # half a character: no file can be called that
        return ""


def _uses(told: CallDescription) -> Iterator[PathUse]:
    for paths, write in ((told.paths_read, False), (told.paths_written, True)):
        for path in paths:
            yield PathUse(real_path(path), Path(os.path.normpath(path)), write)
    for path in told.entries_written:
        entry = real_path(path.parent) / path.name
        yield PathUse(entry, Path(os.path.normpath(path)), write=True)
