"""What a turn works with: the tools that are offered to the model."""

from __future__ import annotations

import argparse

from op_jupyter.errors import UsageError
from op_jupyter.notebook.commands.base import Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag


@command(
    "tools",
    flag(
        "changes",
        kind="extra tool",
        nargs="?",
        help="+NAME offers one more (shell), -NAME no longer does.",
    ),
    verbatim=True,
)
def tools(notebook: Notebook, args: argparse.Namespace) -> Said:
    """List the tools that are offered; +shell offers the shell, too, and -shell no longer."""
    from op_jupyter.notebook.toolbox import extra_tool

    session = notebook.session
    notebook.connect_servers(session)
    extra = list(session.dag.meta.get("extra_tools", ()))
    changes = (args.changes or "").split()
    for change in changes:
        sign, name = change[0], change[1:]
        if sign not in "+-":
            raise UsageError(f"write +{change} to offer it, -{change} to offer it no longer")
        extra_tool(name, session)
        extra = [*(kept for kept in extra if kept != name), *([name] if sign == "+" else ())]
    if changes:
        session.recorder.set_meta(extra_tools=extra)
        notebook.offer_tools(session)
    lines = [f"tools: {', '.join(session.tools.names)}", f"sandbox: {session.sandbox}"]
    return Said("\n".join([*lines, *notebook.servers.problems]))
