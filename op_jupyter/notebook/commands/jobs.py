"""Turns in the background, and sub-agents."""

from __future__ import annotations

import argparse
from typing import Final

from op_jupyter.engine.agent_tools import agent_line
from op_jupyter.engine.loop import run_sync
from op_jupyter.notebook.background import is_background
from op_jupyter.notebook.commands.base import LABEL_CHARS, Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.views.text import one_line, visible


@command("agents")
def agents(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """List the sub-agents of this session, and the sessions that they work in."""
    listed = run_sync(notebook.session.sub_agents)
    lines = [f"{agent_line(agent, node)} (session {agent.session_id})" for agent, node in listed]
    return Said(visible("\n".join(lines)) or "There are no sub-agents in this session.")


@command("jobs")
def jobs(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """List the background turns: of this kernel, and of earlier ones in this session."""
    live = {job.id: job for job in notebook.jobs}
    lines = [f"{job.id}: {job.status}, {job.progress}" for job in live.values()]
    stored = [turn for turn in notebook.session.dag.turns.values() if is_background(turn)]
    lines += [
        f"{turn.id}: {turn.status}, {one_line(turn.subject, LABEL_CHARS)}"
        for turn in stored
        if turn.id not in live
    ]
    return Said("\n".join(lines) or "There are no background turns.")


_JOB: Final = flag("id", kind="job", nargs="?", help="Which one; needed when several run.")


@command("wait", _JOB)
def wait(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Wait for the end of a background turn, and show its answer."""
    return Said(visible(str(notebook.jobs.get(args.id).result())))


@command("cancel", _JOB)
def cancel(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Stop a background turn; what it did so far is kept."""
    job = notebook.jobs.get(args.id)
    return Said("It is being stopped." if job.cancel() else f"It was over already: {job.status}.")
