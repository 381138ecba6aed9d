"""What the model is told about the world, section by section.

A section is sampled before every model call and told only when it changed (`engine.steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from op_jupyter.core.permissions import PermissionMode

LISTED: Final = 40
_MODE_TEXT: Final[Mapping[PermissionMode, str]] = {
    "read_only": "read_only: reading runs at once, everything else asks the person",
    "accept_edits": "accept_edits: file edits in the workspace run, running code asks the person",
    "auto": "auto: code and edits run, dangerous things ask the person",
}


class WorldState:
    """Named sections, each from a function that reads it now."""

    def __init__(self, sections: Mapping[str, Callable[[], str]]) -> None:
        self._sections = dict(sections)

    def __call__(self) -> dict[str, str]:
        """Every section as it is now; empty ones are left out."""
        return {name: text for name, read in self._sections.items() if (text := read())}


def workspace_section(workspace: Path) -> str:
    """The folder that the tools work in, and what stands in it.

    Raises:
        OSError: the folder cannot be read.
    """
    names = sorted(
        entry.name + ("/" if entry.is_dir() else "")
        for entry in workspace.iterdir()
        if not entry.name.startswith(".")
    )
    more = f"\n… and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{workspace}\n" + "\n".join(names[:LISTED]) + more


def mode_section(mode: PermissionMode) -> str:
    """What runs without asking."""
    return _MODE_TEXT[mode]
