"""What ``%agent WORD`` does: one table of commands, each a function with a parser and a manual."""

from __future__ import annotations

import argparse
import difflib
from typing import Final

from op_jupyter.errors import UsageError
from op_jupyter.notebook.commands import (
    branches,
    files,
    jobs,
    keeping,
    line,
    offers,
    permissions,
    recordings,
    sessions,
)
from op_jupyter.notebook.commands.base import Command, Said, command
from op_jupyter.notebook.commands.manual import page
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import description_of, flag, parse
from op_jupyter.notebook.substitution import filled_in

__all__ = ["COMMANDS", "TOPICS", "Command", "Said", "run_command"]


def run_command(notebook: Notebook, typed: str) -> Said:
    """Run the command that *typed* names; an empty line asks for the status.

    ``{{name}}`` stands for a variable, as in a prompt, but not in a permission rule.

    Raises:
        UsageError: there is no such command, or it is used wrongly.
        SubstitutionError: there is no such variable.
        HelpWanted: ``--help`` was asked for.
    """
    word, _, rest = typed.strip().partition(" ")
    word = "help" if word in ("-h", "--help") else word or "status"
    wanted = COMMANDS.get(word)
    if wanted is None:
        near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
        meant = f" (did you mean `%agent {near[0]}`?)" if near else ""
        raise UsageError(
            f"%agent has no command {word!r}{meant}; `%agent help` lists them. To send a prompt, "
            "write it under %%agent in a cell of its own"
        )
    rest = rest.strip()
    if wanted.verbatim and rest and rest != "-h" and not rest.startswith("--"):
        return wanted(notebook, argparse.Namespace(**{wanted.flags[0].names[0]: rest}))
    return wanted(notebook, parse(wanted, filled_in(rest, notebook.shell.user_ns)))


@command(
    "help",
    flag("--markdown", action="store_true", help="Print the whole reference as Markdown."),
)
def show_help(_notebook: Notebook, args: argparse.Namespace) -> Said:
    """List the commands."""
    if args.markdown:
        return Said(page(TOPICS.items()))
    lines = []
    for topic, listed in TOPICS.items():
        lines += ["", topic, *(f"  %agent {each.word:<12} {summary(each)}" for each in listed)]
    return Said(
        "Write a prompt under %%agent in a cell of its own (`%%agent --help` shows its flags).\n"
        + "\n".join(lines)
        + "\n\n%agent WORD --help explains one of them."
    )


def summary(wanted: Command) -> str:
    """The first line of its manual."""
    return description_of(wanted).strip().split("\n", 1)[0]


TOPICS: Final[dict[str, tuple[Command, ...]]] = {
    "Sessions": (
        sessions.status,
        sessions.sessions,
        sessions.search,
        sessions.export,
        sessions.memory,
        sessions.new,
        sessions.resume,
    ),
    "What happened": (line.history, line.dag, line.show),
    "The conversation": (line.compact, line.rewind, branches.fork, branches.diff),
    "Files": (files.undo, files.worktrees, files.worktree),
    "Agents and turns": (jobs.agents, jobs.jobs, jobs.wait, jobs.cancel),
    "Maintenance and transfer": (keeping.doctor, keeping.gc, keeping.push, keeping.pull),
    "Permissions": (
        permissions.mode,
        permissions.allow,
        permissions.deny,
        permissions.forget,
        permissions.permissions,
        permissions.approve,
        permissions.reject,
    ),
    "Model, tools and cost": (offers.model, offers.provider, offers.tools, offers.cost),
    "Recordings": (recordings.cassette,),
    "Help": (show_help,),
}
COMMANDS: Final[dict[str, Command]] = {
    each.word: each for commands in TOPICS.values() for each in commands
}
