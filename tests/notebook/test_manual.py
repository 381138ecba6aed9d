"""``docs/magics.md`` is what the parsers say, and every magic and flag is on it."""

from __future__ import annotations

from pathlib import Path

from shells import Shell

from op_jupyter.notebook.cell_flags import agent_cell
from op_jupyter.notebook.commands import COMMANDS, TOPICS
from op_jupyter.notebook.commands.manual import page
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flags_of

PAGE = Path(__file__).parents[2] / "docs" / "magics.md"
MAKE = (
    'python -c "from op_jupyter.notebook.commands import TOPICS, manual; '
    "print(manual.page(TOPICS.items()), end='')\" > docs/magics.md"
)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(TOPICS.items()), MAKE


def test_every_command_and_flag_is_on_the_page_with_what_it_does() -> None:
    text = page(TOPICS.items())
    for word, command in COMMANDS.items():
        assert f"### `%agent {word}" in text
        for flag in command.flags:
            assert flag.options["help"].replace("|", "\\|") in text
    for flag in flags_of(agent_cell):
        assert f"`{', '.join(flag.names)}" in text
    assert "| `on_rerun` | `'fork'` |" in text


def test_help_prints_it(notebook: Notebook, shell: Shell) -> None:
    assert shell.says("%agent help --markdown") == page(TOPICS.items())
