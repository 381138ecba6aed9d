"""Libraries are loaded before a model's first call can change a file.

The folder of a notebook or script is on Python's path before what is installed.  A file
``git.py`` there, which a model may write without asking, would run in place of the library
that is imported on first use.
"""

from __future__ import annotations

import contextlib
import importlib
from functools import cache
from typing import Final

from op_jupyter.store.git import load_git
from op_jupyter.store.objects import GitRefused
from op_jupyter.tools.threads import in_thread

_ON_FIRST_USE: Final = (
    *("gitdb.db", "tree_sitter", "tree_sitter_bash", "markdown_it", "nh3"),
    *("jsonschema_rs", "yaml", "cloudpickle"),
)
"""What is imported late to keep the start fast, and may be needed after a call."""


async def libraries_are_loaded() -> None:
    """Load what is not loaded yet; once in a process, about 0.3 s."""
    if not _load.cache_info().currsize:
        await in_thread(_load)


@cache
def _load() -> None:
    with contextlib.suppress(GitRefused):  # the store says so when it needs git
        load_git()
    for name in _ON_FIRST_USE:
        importlib.import_module(name)
