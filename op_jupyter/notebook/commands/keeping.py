"""Keeping sessions in order, and on other machines, from a notebook."""

from __future__ import annotations

import argparse

from op_jupyter.core.visible import visible
from op_jupyter.errors import SessionActive, UsageError
from op_jupyter.notebook.commands.base import Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.store.doctor import examined_text
from op_jupyter.store.sync import synced_text


def _named(notebook: Notebook, given: str | None) -> str:
    """*given*, or the notebook's session once something is stored of it."""
    session_id = given or notebook.session.session_id
    if given is None and notebook.stored.path(session_id) is None:
        raise UsageError("nothing of this session is stored yet; a %%agent cell makes it")
    return session_id


@command(
    "doctor",
    flag("id", kind="session", nargs="?", help="Which session; default: this one."),
    flag("--repair", action="store_true", help="Repair what can be; what is replaced is kept."),
)
def doctor(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Check a session for damage; changes nothing without --repair."""
    wanted = _named(notebook, args.id)
    upkeep = notebook.stored.upkeep
    examined = upkeep.examine(wanted)
    before = examined.findings
    if args.repair and before:
        if wanted == notebook.session.session_id:
            raise SessionActive(
                "this notebook has the session open: `%agent new`, then "
                f"`%agent doctor {wanted} --repair`, then `%agent resume {wanted}`"
            )
        examined = upkeep.mend(wanted)
    repaired = [finding for finding in before if finding not in examined.findings]
    return Said(visible(examined_text(examined, repaired)))


@command("gc")
def gc(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """Pack the git repository of this session to save disk space."""
    wanted = _named(notebook, None)
    before, after = notebook.stored.upkeep.pack(wanted)
    return Said(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


@command(
    "push",
    flag("remote", help="A local folder or an ssh address."),
    flag("id", kind="session", nargs="?", help="Which session; default: this one."),
)
def push(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Push a session to another git repository; if it continued there, both lines are kept."""
    wanted = _named(notebook, args.id)
    return Said(visible(synced_text(notebook.stored.upkeep.push(wanted, args.remote))))


@command(
    "pull",
    flag("remote", help="A local folder or an ssh address."),
    flag("id", nargs="?", help="Which session; default: all of them."),
)
def pull(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Pull sessions from another git repository; continue one with `%agent resume ID`."""
    upkeep = notebook.stored.upkeep
    wanted: list[str | None] = [args.id] if args.id else [*upkeep.pushed(args.remote)] or [None]
    if notebook.begun in wanted:
        raise SessionActive(
            f"this notebook has {notebook.begun} open: `%agent new`, then pull it, then "
            f"`%agent resume {notebook.begun}`"
        )
    return Said(visible("\n".join(synced_text(upkeep.pull(args.remote, each)) for each in wanted)))
