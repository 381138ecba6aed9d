"""``%%agent`` and ``%agent``: lines parsed, work handed on, what came back shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.magic import no_var_expand

from op_jupyter.notebook.background import BackgroundTurn
from op_jupyter.notebook.cell_flags import agent_cell
from op_jupyter.notebook.display import put
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import HelpWanted, parse
from op_jupyter.notebook.result import TurnResult


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
            _say(str(wanted))
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
        # On first use as well: forty commands, and what they alone need.
        from op_jupyter.notebook.commands import run_command

        try:
            said = run_command(self._notebook, line)
        except HelpWanted as wanted:
            _say(str(wanted))
        else:
            _say(said.text, said.others, said.metadata)

    def _body(self, line: str, cell: str) -> str:
        """The prompt as it was typed: IPython adds a line end and takes ``>>>`` away.

        Of a call by a program, which need not be in a cell, it is *cell*.
        """
        raw = self._notebook.raw_cell
        head, line_end, body = raw.lstrip().partition("\n")
        if not line_end or head.removeprefix("%%agent").strip() != line:
            return cell
        made_of_it = self._notebook.shell.transform_cell(raw)
        return body if made_of_it.strip() == _call(line, cell) else cell


def _call(line: str, cell: str) -> str:
    """What IPython makes of a cell that is this magic."""
    return f"get_ipython().run_cell_magic('agent', {line!r}, {cell!r})"


def _say(
    text: str, others: Mapping[str, str] | None = None, metadata: Mapping[str, Any] | None = None
) -> None:
    put({"text/plain": text, **(others or {})}, metadata=metadata or {})
