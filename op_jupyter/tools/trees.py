"""A folder with all that is in it, as a move takes it: bounded, and no link is followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from op_jupyter.tools.disk import ToolFailure

ENTRIES: Final = 500
"""Most files and folders in a folder that one call moves: each has to be judged and kept."""
BYTES: Final = 64 * 1024 * 1024


def inner_paths(folder: Path) -> list[Path]:
    """The paths, relative to *folder*, of everything in it; none when it is no folder.

    Raises:
        ToolFailure: that is more than one call moves, or cannot be kept.
        OSError: a folder in it cannot be looked into.
    """
    if folder.is_symlink() or not folder.is_dir():
        return []
    found: list[Path] = []
    size, waiting = 0, [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                found.append(_named(entry, folder))
                size += entry.stat(follow_symlinks=False).st_size
                if len(found) > ENTRIES or size > BYTES:
                    raise ToolFailure(
                        f"{folder.name} holds more than {ENTRIES} files and folders or "
                        f"{BYTES // 1024 // 1024} MB; move its parts one by one, or use code"
                    )
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
    return sorted(found)


def _named(entry: os.DirEntry[str], folder: Path) -> Path:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        raise ToolFailure(
            f"{folder.name} holds a name that is not UTF-8 and could not be put back; use code"
        ) from None
    return Path(entry.path).relative_to(folder)
