"""The tools that a notebook offers: its own, and functions of the user's namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.plan_tool import UpdatePlan
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ToolNotFound
from op_jupyter.notebook.namespace import PythonTool
from op_jupyter.notebook.variables import InspectTool
from op_jupyter.tools.base import Tool
from op_jupyter.tools.files import file_tools
from op_jupyter.tools.functions import as_tool
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.notebook.notebook import Notebook

NO_TOOLS = "none"


def default_tools(shell: Any, session: AgentSession) -> Toolset:
    """What the agent gets unless told otherwise."""
    python = PythonTool(shell, redact=session.recorder.clean)
    return Toolset(
        [python, InspectTool(shell), *file_tools(), UpdatePlan(), *agent_tools()],
    )


def chosen_tools(notebook: Notebook, session: AgentSession, names: Sequence[str] | None) -> Toolset:
    """The tools of these names; functions of the notebook are among them, and ask.

    Raises:
        ToolNotFound: a name is neither a tool's nor a function's.
        ToolDefinitionError: a function cannot be a tool; says what to change.
    """
    names = notebook.config.tools if names is None else names
    offered = session.tools
    if not names:
        return offered
    if list(names) == [NO_TOOLS]:
        return Toolset(())
    return Toolset([_tool(name, offered, notebook.shell.user_ns) for name in names])


def _tool(name: str, offered: Toolset, variables: dict[str, Any]) -> Tool:
    if (tool := offered.get(name)) is not None:
        return tool
    if callable(function := variables.get(name)):
        return as_tool(function)
    if name in variables:
        kind = type(variables[name]).__name__
        raise ToolNotFound(f"{name!r} is a {kind} in this notebook; a tool has to be a function")
    raise ToolNotFound(
        f"{offered.unknown(name)}. A function of the notebook is one, too, once it is defined"
    )
