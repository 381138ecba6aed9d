"""What Tab offers."""

from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter
from shells import Model, Shell

from op_jupyter.notebook.cell_flags import agent_cell
from op_jupyter.notebook.commands import COMMANDS
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flags_of
from op_jupyter.testing.providers import reply

EVERY_WORD = {
    *COMMANDS,
    *(
        name
        for command in (*COMMANDS.values(), agent_cell)
        for f in flags_of(command)
        for name in f.names
    ),
    *("read_only", "accept_edits", "auto", "record", "replay", "off"),
    *("python", "inspect", "my_function"),
}


def offered(shell: Shell, line: str) -> list[str]:
    with provisionalcompleter():
        return [c.text for c in shell.ip.Completer.completions(line, len(line))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%agent st", ["status"]),
        ("%agent se", ["search", "sessions"]),
        ("%agent show --pr", ["--prompt"]),
        ("%agent mode acc", ["accept_edits"]),
        ("%%agent --max", ["--max-steps"]),
        ("%%agent --quiet --mo", ["--mode", "--model"]),
        ("%%agent --mode read", ["read_only"]),
        ("%%agent --replay a", ["auto"]),
        ("%%agent --tools pyth", ["python"]),
        ("%%agent --tools my_f", ["my_function"]),
    ],
)
def test_words_flags_and_values(
    notebook: Notebook, shell: Shell, line: str, expected: list[str]
) -> None:
    shell.value("def my_function():\n    pass")
    # IPython mixes in what it finds by itself.
    assert sorted(word for word in offered(shell, line) if word in EVERY_WORD) == sorted(expected)


def test_an_unknown_command_has_no_completions_of_ours(notebook: Notebook, shell: Shell) -> None:
    assert not {"status", "--help"} & set(offered(shell, "%agent nothing s"))


def test_ids_of_sessions_and_nodes(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("Four."))
    result = shell.value("%%agent\nHello")
    assert offered(shell, "%agent resume nb") == [result.session_id]
    assert offered(shell, "%%agent --session nb") == [result.session_id]
    assert offered(shell, "%agent show user") == [result.nodes[0].id]


def test_other_lines_are_completed_as_before(notebook: Notebook, shell: Shell) -> None:
    shell.value("agent_count = 1")
    assert offered(shell, "agent_co") == ["agent_count"]
    assert "%timeit" in offered(shell, "%time")
