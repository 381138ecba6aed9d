"""What Tab offers after ``%agent`` and ``%%agent``, in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from op_jupyter.errors import OpenProgramError
from op_jupyter.notebook.cell_flags import agent_cell
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import Flag, flags_of
from op_jupyter.providers.catalog import known_providers
from op_jupyter.tools.worktrees import Repository

_LISTED: Final = 50
_NODES: Final = 200
"""The newest so many: a list that nobody can read through helps nobody."""


def complete_line(notebook: Notebook, typed: str) -> list[str]:
    """What may stand at the end of a ``%agent`` line; *typed* reaches to the cursor."""
    from op_jupyter.notebook.commands import COMMANDS  # not before somebody types one

    words, current = _split(typed)
    if not words:
        return list(COMMANDS)
    command = COMMANDS.get(words[0])
    return [] if command is None else _after(notebook, command.flags, words[1:], current)


def complete_cell(notebook: Notebook, typed: str) -> list[str]:
    """What may stand at the end of a ``%%agent`` line."""
    words, current = _split(typed)
    return _after(notebook, flags_of(agent_cell), words, current)


def _after(notebook: Notebook, flags: Sequence[Flag], words: list[str], current: str) -> list[str]:
    """What may follow *words*: a flag's value, a flag, or the next word that has its place."""
    named = {name: each for each in flags if not each.positional for name in each.names}
    if words and (waiting := named.get(words[-1])) is not None and waiting.takes_value:
        return _values(notebook, waiting)
    places = [each for each in flags if each.positional]
    if current.startswith("-") or not places:
        return _names(flags)
    filled = _places_filled(named, words)
    return _values(notebook, places[filled]) if filled < len(places) else _names(flags)


def _places_filled(named: dict[str, Flag], words: list[str]) -> int:
    values = {i + 1 for i, word in enumerate(words) if word in named and named[word].takes_value}
    return sum(not word.startswith("-") and i not in values for i, word in enumerate(words))


def _split(typed: str) -> tuple[list[str], str]:
    """The whole words after the magic's name, and the one that is being typed."""
    words = typed.split()
    current = "" if typed.endswith((" ", "\t")) else words.pop()
    return words[1:], current


def _names(flags: Iterable[Flag]) -> list[str]:
    return [name for each in flags for name in each.names if name.startswith("--")]


def _values(notebook: Notebook, flag: Flag) -> list[str]:
    if choices := flag.options.get("choices"):
        return list(choices)
    read = _VALUES.get(flag.kind)
    if read is None:
        return []
    try:
        return list(read(notebook))
    except OpenProgramError:  # no session can be opened; Tab is not the place to say so
        return []


def _sessions(notebook: Notebook) -> Iterable[str]:
    listed = notebook.stored.list_sessions(_LISTED, archived=None, sub_agents=True)
    return [info.id for info in listed]


def _models(notebook: Notebook) -> Iterable[str]:
    """The models of the settings, and those that were asked in this session."""
    configured = notebook.config.settings()
    served = [name for endpoint in configured.endpoints.values() for name in endpoint.models]
    asked = [node.name for node in notebook.session.dag if node.role == "llm"]
    return dict.fromkeys(name for name in (configured.get("model"), *served, *asked) if name)


def _providers(notebook: Notebook) -> Iterable[str]:
    return known_providers(notebook.config.settings().endpoints)


def _tools(notebook: Notebook) -> Iterable[str]:
    variables = notebook.shell.user_ns
    functions = (n for n, v in variables.items() if callable(v) and not n.startswith("_"))
    return [*notebook.session.tools.names, *functions, "none"]


def _extra_tools(notebook: Notebook) -> Iterable[str]:
    from op_jupyter.notebook.toolbox import EXTRA  # with all schemas, so not before it is needed

    offered = notebook.session.tools.names
    return [f"{'-' if name in offered else '+'}{name}" for name in EXTRA]


def _nodes(notebook: Notebook) -> Iterable[str]:
    return [node.id for node in notebook.session.dag][-_NODES:]


def _spine(notebook: Notebook) -> Iterable[str]:
    return [node.id for node in notebook.session.dag.spine()][-_NODES:]


def _worktrees(notebook: Notebook) -> Iterable[str]:
    return [each.name for each in Repository(notebook.session.workspace).worktrees()]


def _skills(notebook: Notebook) -> Iterable[str]:
    return [skill.name for skill in notebook.skills.read().skills]


_VALUES: Final[dict[str, Callable[[Notebook], Iterable[str]]]] = {
    "session": _sessions,
    "node": _nodes,
    "spine": _spine,
    "line": lambda notebook: [*notebook.session.dag.branches, *_spine(notebook)],
    "turn": lambda notebook: list(notebook.session.dag.turns),
    "job": lambda notebook: [*(job.id for job in notebook.jobs), *notebook.session.sent],
    "card": lambda notebook: [card.id for card in notebook.session.pending_cards()],
    "rule": lambda notebook: [
        rule for listed in notebook.session.rules.values() for rule in listed
    ],
    "model": _models,
    "provider": _providers,
    "tool": _tools,
    "extra tool": _extra_tools,
    "skill": _skills,
    "worktree": _worktrees,
}
"""How the values are listed that a flag's `kind` names."""


def completers(notebook: Notebook) -> dict[str, Callable[[Any, Any], list[str]]]:
    """The hooks for IPython, by the word that a line begins with."""
    return {
        "%agent": lambda _shell, event: complete_line(notebook, event.text_until_cursor),
        "%%agent": lambda _shell, event: complete_cell(notebook, event.text_until_cursor),
    }
