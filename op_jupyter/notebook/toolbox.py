"""The tools that a notebook offers: its own, and functions of the user's namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.memory_tools import RECALL, REMEMBER, memory_tools
from op_jupyter.engine.plan_tool import UpdatePlan
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ToolNotFound
from op_jupyter.notebook.namespace import PythonTool
from op_jupyter.notebook.variables import InspectTool
from op_jupyter.tools.base import Tool
from op_jupyter.tools.files import file_tools
from op_jupyter.tools.functions import as_tool
from op_jupyter.tools.shell import ShellTool
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.notebook.notebook import Notebook

NO_TOOLS = "none"


SHELL: Final = "shell"
EXTRA: Final = (SHELL, REMEMBER, RECALL)
"""Tools that are there when they are asked for: `%agent tools +shell`."""


def default_tools(
    shell: Any, session: AgentSession, extra: Sequence[str] = (), others: Sequence[Tool] = ()
) -> Toolset:
    """What the agent gets unless told otherwise, the *extra* tools, and *others* after them."""
    python = PythonTool(shell, redact=session.recorder.clean)
    return Toolset(
        [
            python,
            InspectTool(shell),
            *file_tools(),
            UpdatePlan(),
            *agent_tools(),
            *(extra_tool(name, session) for name in dict.fromkeys(extra)),
        ],
    ).plus(others)


def extra_tool(name: str, session: AgentSession) -> Tool:
    """One of `EXTRA`, for *session*.

    Raises:
        ToolNotFound: there is none of that name.
        UsageError: it cannot be had in this session.
    """
    if name not in EXTRA:
        raise ToolNotFound(f"there is no extra tool {name!r}; there are: {', '.join(EXTRA)}")
    if name != SHELL:
        return memory_tools(session)[name]
    store = session.store_path
    tool = ShellTool(() if store is None else (store.parent,))
    session.sandbox = tool.sandbox.words
    return tool


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
    variables = notebook.shell.user_ns
    return Toolset([_tool(name, offered, variables, session) for name in names])


def _tool(name: str, offered: Toolset, variables: dict[str, Any], session: AgentSession) -> Tool:
    if (tool := offered.get(name)) is not None:
        return tool
    if name in EXTRA:  # to name it is to ask for it
        return extra_tool(name, session)
    if callable(function := variables.get(name)):
        return as_tool(function)
    if name in variables:
        kind = type(variables[name]).__name__
        raise ToolNotFound(f"{name!r} is a {kind} in this notebook; a tool has to be a function")
    raise ToolNotFound(
        f"{offered.unknown(name)}. A function of the notebook is one, too, once it is defined"
    )
