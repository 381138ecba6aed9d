"""``%%agent`` and ``%agent``: lines parsed, work handed on, what came back shown."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import no_var_expand

from op_jupyter.config.settings import CHOICES
from op_jupyter.notebook.background import BackgroundTurn
from op_jupyter.notebook.commands import Said, run_command
from op_jupyter.notebook.display import put
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import (
    HelpWanted,
    arguments,
    flag,
    names_list,
    parse,
    positive,
    variable_name,
)
from op_jupyter.notebook.result import TurnResult


@arguments(
    "%agent",  # the help's usage line adds the first %
    flag("--session", kind="session", metavar="ID", help="Run this cell in another session."),
    flag("--fresh", action="store_true", help="Begin a new session with this cell."),
    flag("--model", kind="model", metavar="M", help="Ask this model."),
    flag("--provider", kind="provider", metavar="P", help="Ask this model service."),
    flag(
        "--mode",
        choices=CHOICES["mode"],
        help="What runs without asking, from now on in this session.",
    ),
    flag(
        "--tools",
        kind="tool",
        metavar="A,B",
        type=names_list,
        help="Offer these tools alone, functions of the notebook among them; or none.",
    ),
    flag(
        "--skill",
        kind="skill",
        metavar="A,B",
        type=names_list,
        default=(),
        help="Send these skills along, before the prompt.",
    ),
    flag(
        "--no-skill",
        kind="skill",
        metavar="A,B",
        type=names_list,
        default=(),
        help="Do not tell the model of these skills in this turn.",
    ),
    flag("--max-steps", metavar="N", type=positive, help="Most model calls of the turn."),
    flag(
        "--budget",
        metavar="TOKENS",
        type=positive,
        help="Most tokens of the turn, sent and received: no model call begins beyond them.",
    ),
    flag("--replay", choices=CHOICES["replay"], help="Record model calls, or play them."),
    flag("-o", "--output", metavar="VAR", type=variable_name, help="Keep the result under a name."),
    flag(
        "--worktree",
        kind="worktree",
        metavar="NAME",
        nargs="?",
        const="",
        help="Work in a git worktree of the repository; one that is there, or a new one.",
    ),
    flag(
        "--background",
        action="store_true",
        help="Go on with the next cell; the value is a job to wait for, or to cancel.",
    ),
    flag("--quiet", action="store_true", help="Show nothing; return the result alone."),
)
def agent_cell() -> None:
    """Let the agent work on the cell below, which is the prompt, byte for byte.

    {{name}}, {{name.attribute}} and {{name["key"]}} stand for variables of the notebook.
    The value of the cell is the result; `str(result)` is the answer.
    """


class AgentMagic:
    """The two magics of one notebook."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def register(self) -> None:
        """Make them the shell's ``%%agent`` and ``%agent``."""
        self._notebook.shell.register_magic_function(self.cell, "cell", "agent")
        self._notebook.shell.register_magic_function(self.line, "line", "agent")

    @no_var_expand
    def cell(self, line: str, cell: str) -> TurnResult | BackgroundTurn | None:
        """Run the cell as a prompt."""
        try:
            args = parse(agent_cell, line)
        except HelpWanted as wanted:
            _say(Said(str(wanted)))
            return None
        # On first use, with the tools and their schemas: loading the extension stays quick.
        from op_jupyter.notebook.cell import CellOptions, run_cell

        values: dict[str, Any] = vars(args)
        values.pop("help", None)
        return run_cell(self._notebook, CellOptions(**values), self._body(line, cell))

    cell.__doc__ = agent_cell.__doc__

    @no_var_expand
    def line(self, line: str) -> None:
        """Sessions, history and permissions; `%agent help` lists what there is."""
        try:
            said = run_command(self._notebook, line)
        except HelpWanted as wanted:
            said = Said(str(wanted))
        _say(said)

    def _body(self, line: str, cell: str) -> str:
        """The prompt as it was typed: IPython adds a line end and takes ``>>>`` away."""
        head, line_end, body = self._notebook.raw_cell.lstrip().partition("\n")
        if line_end and head.startswith("%%agent") and head.removeprefix("%%agent").strip() == line:
            return body
        return cell


def _say(said: Said) -> None:
    content = {"text/plain": said.text}
    if said.html:
        content["text/html"] = said.html
    put(content, metadata=said.metadata)
