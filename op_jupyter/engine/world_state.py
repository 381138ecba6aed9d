"""What the model is told about the world, section by section.

A section is sampled before every model call and told only when it changed (`engine.steps`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from op_jupyter.core.paths import looks_like_credentials, may_hold_secrets
from op_jupyter.core.permissions import PermissionMode
from op_jupyter.core.skills import SkillSet, catalog
from op_jupyter.core.updates import bounded

NOTHING: Final = "(nothing any more)"
"""What is told of a section that had something to tell before."""
LISTED: Final = 40
LOOKED_AT: Final = 2_000
"""Entries of the workspace that are looked at; a folder with more is only told to be large."""
NAME_CHARS: Final = 120
AGENTS_MD: Final = "AGENTS.md"
AGENTS_MD_CHARS: Final = 16_000
_AGENTS_MD_BYTES: Final = 8 * AGENTS_MD_CHARS
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_MODE_TEXT: Final[Mapping[PermissionMode, str]] = {
    "read_only": "read_only: reading runs at once, everything else asks the person",
    "accept_edits": "accept_edits: file edits in the workspace run, running code asks the person",
    "auto": "auto: code and edits run, dangerous things ask the person",
}


class UnreadableSection(Exception):
    """A section that is needed could not be read; the turn fails by its name."""

    def __init__(self, section: str, error: Exception) -> None:
        super().__init__(f"the section {section!r} of the world state cannot be read: {error}")
        self.section = section


class WorldState:
    """Named sections, each from a function that reads it now."""

    def __init__(self, sections: Mapping[str, Callable[[], str]]) -> None:
        self._sections = dict(sections)

    def __call__(self) -> dict[str, str]:
        """Every section as it is now; "" is one that has nothing to tell.

        Raises:
            UnreadableSection: one could not be read.
        """
        return {name: _read(name, read) for name, read in self._sections.items()}


def _read(name: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except Exception as error:  # whatever a source raises fails the turn by name
        raise UnreadableSection(name, error) from error


def workspace_section(workspace: Path) -> str:
    """The folder that the tools work in, and what stands in it.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(workspace) as entries:
        looked_at = list(islice(entries, LOOKED_AT + 1))
    names = sorted(
        _one_line(entry.name) + ("/" if os.path.isdir(entry) else "")  # no link raises
        for entry in looked_at[:LOOKED_AT]
        if not entry.name.startswith(".")
    )
    lines = [str(workspace), *names[:LISTED]]
    if len(looked_at) > LOOKED_AT:
        lines.append(f"… and very many more: there are over {LOOKED_AT} entries")
    elif len(names) > LISTED:
        lines.append(f"… and {len(names) - LISTED} more")
    return "\n".join(lines)


def _one_line(name: str) -> str:
    """A file's name, which may hold anything, as a part of one line."""
    plain = _CONTROL.sub("\ufffd", name)
    return plain if len(plain) <= NAME_CHARS else plain[: NAME_CHARS - 1] + "…"


def agents_md_section(workspace: Path, home: Path) -> str:
    """The nearest ``AGENTS.md`` from the workspace up; "" when there is none.

    The search ends with the folder of the repository (the one that holds ``.git``) or with the
    home folder, and does not leave a workspace that is in neither.

    Raises:
        OSError: it is there and cannot be read, or is a link to secrets.
    """
    for folder in _searched(workspace, home):
        path = folder / AGENTS_MD
        if os.path.isfile(path):
            return f"{path}:\n{_told(path)}"
    return ""


def _searched(workspace: Path, home: Path) -> list[Path]:
    folders = [workspace, *workspace.parents]
    for number, folder in enumerate(folders):
        if folder == home or os.path.lexists(folder / ".git"):
            return folders[: number + 1]
    return [workspace]


def _told(path: Path) -> str:
    real = Path(os.path.realpath(path))
    if looks_like_credentials(real) or may_hold_secrets(real):
        raise PermissionError(f"{path} is a link to {real}, which may hold secrets")
    with path.open("rb") as file:
        text = file.read(_AGENTS_MD_BYTES).decode("utf-8", "replace")
    return bounded(text.strip(), AGENTS_MD_CHARS * 3 // 4, AGENTS_MD_CHARS // 4)


def skills_section(skills: SkillSet, without: Collection[str] = ()) -> str:
    """The catalog of skills; those in *without* are not told of."""
    return catalog(skills.skills, without)


def mode_section(mode: PermissionMode) -> str:
    """What runs without asking."""
    return _MODE_TEXT[mode]
