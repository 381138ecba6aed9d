"""What the model is told of the notebook before each of its calls."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from op_jupyter.engine.session import AgentSession, WorldSource
from op_jupyter.engine.worktrees import worktree_section
from op_jupyter.engine.world_state import (
    WorldState,
    agents_md_section,
    mode_section,
    skills_section,
    workspace_section,
)
from op_jupyter.notebook.identity import notebook_id
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.variables import variables_section


def world_of(
    notebook: Notebook,
    session: AgentSession,
    *,
    small: bool,
    without_skills: Collection[str] = (),
) -> WorldSource:
    """The sections for *session*; a *small* model is told of restarts alone."""
    kernel = {"kernel": lambda: restart_section(notebook.restarts)}
    if small:
        return WorldState(kernel)
    return WorldState(
        {
            "workspace": lambda: workspace_section(session.workspace),
            "worktree": lambda: worktree_section(session.worktree),
            "notebook": lambda: notebook_id(notebook.shell).name,
            "agents_md": lambda: agents_md_section(session.workspace, Path.home()),
            "skills": lambda: skills_section(notebook.skills.read(), without_skills),
            "permissions": lambda: mode_section(session.permission_mode),
            "variables": lambda: variables_section(notebook.shell),
            **kernel,
        }
    )


def restart_section(restarts: int) -> str:
    """Why earlier turns speak of variables that are not there; empty in the first kernel."""
    if not restarts:
        return ""
    return (
        f"The kernel was restarted (restart {restarts} of this session). Variables, imports and "
        "open files of the turns before are gone, and nothing was run again: check what exists "
        "before you use it."
    )
