"""What Tab offers after ``%agent`` and ``%%agent``, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from op_jupyter.errors import OpenProgramError
from op_jupyter.notebook.commands import COMMANDS
from op_jupyter.notebook.magics import agent_cell
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import Flag, flags_of
from op_jupyter.tools.worktrees import Repository

_LISTED: Final = 50


def complete_line(notebook: Notebook, typed: str) -> list[str]:
    """What may stand at the end of a ``%agent`` line; *typed* reaches to the cursor."""
    words, current = _split(typed)
    if not words:
        return list(COMMANDS)
    command = COMMANDS.get(words[0])
    if command is None:
        return []
    flags = flags_of(command)
    if current.startswith("-"):
        return _names(flags)
    arguments = [name for each in flags for name in each.names if not name.startswith("-")]
    return _values(notebook, f"{words[0]} {arguments[0]}") if arguments else []


def complete_cell(notebook: Notebook, typed: str) -> list[str]:
    """What may stand at the end of a ``%%agent`` line."""
    words, _ = _split(typed)
    flags = flags_of(agent_cell)
    last = words[-1] if words else ""
    for each in flags:
        if last in each.names and takes_value(each):
            return list(each.options.get("choices") or _values(notebook, each.names[-1]))
    return _names(flags)


def takes_value(flag: Flag) -> bool:
    """Whether something has to follow it."""
    return "action" not in flag.options


def _split(typed: str) -> tuple[list[str], str]:
    """The whole words after the magic's name, and the one that is being typed."""
    words = typed.split()
    current = "" if typed.endswith((" ", "\t")) else words.pop()
    return words[1:], current


def _names(flags: Iterable[Flag]) -> list[str]:
    return [name for each in flags for name in each.names if name.startswith("--")]


def _values(notebook: Notebook, what: str) -> list[str]:
    read = _VALUES.get(what)
    if read is None:
        return []
    try:
        return list(read(notebook))
    except OpenProgramError:  # no session can be opened; Tab is not the place to say so
        return []


def _sessions(notebook: Notebook) -> Iterable[str]:
    return [info.id for info in notebook.store.sessions(_LISTED)]


def _tools(notebook: Notebook) -> Iterable[str]:
    variables = notebook.shell.user_ns
    functions = (n for n, v in variables.items() if callable(v) and not n.startswith("_"))
    return [*notebook.session.tools.names, *functions, "none"]


def _worktrees(notebook: Notebook) -> Iterable[str]:
    return [each.name for each in Repository(notebook.session.workspace).worktrees()]


def _skills(notebook: Notebook) -> Iterable[str]:
    return [skill.name for skill in notebook.skills.read().skills]


_VALUES: Final[dict[str, Callable[[Notebook], Iterable[str]]]] = {
    "resume id": _sessions,
    "show node": lambda notebook: [node.id for node in notebook.session.dag],
    "rewind node": lambda notebook: [node.id for node in notebook.session.dag.spine()],
    "forget rule": lambda notebook: [
        r for listed in notebook.session.rules.values() for r in listed
    ],
    "approve id": lambda notebook: [card.id for card in notebook.session.pending_cards()],
    "reject id": lambda notebook: [card.id for card in notebook.session.pending_cards()],
    "undo turn": lambda notebook: list(notebook.session.dag.turns),
    "mode mode": lambda _notebook: ("read_only", "accept_edits", "auto"),
    "worktree action": lambda _notebook: ("merge", "drop"),
    "--worktree": _worktrees,
    "--session": _sessions,
    "--tools": _tools,
    "--skill": _skills,
    "--no-skill": _skills,
}


def completers(notebook: Notebook) -> dict[str, Callable[[Any, Any], list[str]]]:
    """The hooks for IPython, by the word that a line begins with."""
    return {
        "%agent": lambda _shell, event: complete_line(notebook, event.text_until_cursor),
        "%%agent": lambda _shell, event: complete_cell(notebook, event.text_until_cursor),
    }
