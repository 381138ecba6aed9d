"""The cassette of this notebook: recorded model calls and decisions."""

from __future__ import annotations

import argparse
from typing import Final

from op_jupyter.errors import UsageError
from op_jupyter.notebook.commands.base import Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.views.cassettes import details, overview, summary, unused
from op_jupyter.views.text import count

_ACTIONS: Final = ("list", "show", "check", "prune")


@command(
    "cassette",
    flag("action", nargs="?", choices=_ACTIONS, default="list", help="What to do (default: list)."),
    flag("key", nargs="?", help="With show: the request's key, or a unique beginning of it."),
)
def cassette(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Inspect the recordings of this notebook, and remove unused ones.

    list: everything recorded; show KEY: one request and its replies; check: what this kernel has
    not used so far; prune: remove that. Restart the kernel and run all cells before check or prune.
    """
    replay = notebook.service().replay
    if replay is None:
        raise UsageError("nothing is recorded or replayed here; `--replay` and its settings say so")
    kept = replay.cassette
    assert isinstance(kept, FileCassette)
    contents = kept.contents()
    if args.action == "show":
        if args.key is None:
            raise UsageError("show which request? `%agent cassette` lists their keys")
        return Said(details(contents, args.key))
    head = f"{kept.name} ({replay.mode}): {summary(contents)}"
    if args.action == "list":
        return Said(f"{head}\n{overview(contents)}")
    used = kept.used
    if used is None:
        raise UsageError(
            "workers have used it as well, and do not tell this kernel; "
            "`op-jupyter cassette check NOTEBOOK` runs the notebook and finds out"
        )
    stale = unused(contents, used)
    if args.action == "prune":
        kept.keep_only(used)
        return Said(f"{kept.name}: {count(stale, 'recording')} removed")
    return Said(f"{head}; {count(stale, 'recording')} not used\n{overview(contents, used)}")
