"""Turns in the background, and sub-agents."""

from __future__ import annotations

import argparse
from typing import Final, Protocol

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.engine.agent_tools import agent_line
from op_jupyter.engine.loop import run_sync
from op_jupyter.errors import UsageError
from op_jupyter.notebook.background import is_background
from op_jupyter.notebook.commands.base import LABEL_CHARS, Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.views.text import one_line, visible


@command("agents")
def agents(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """List the sub-agents of this session, with their sessions."""
    listed = run_sync(notebook.session.sub_agents)
    lines = [f"{agent_line(agent, node)} (session {agent.session_id})" for agent, node in listed]
    return Said(visible("\n".join(lines)) or "There are no sub-agents in this session.")


@command("jobs")
def jobs(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """List background turns and submitted calls of this kernel and this session."""
    live = {job.id: job for job in notebook.jobs}
    lines = [f"{job.id}: {job.status}, {job.progress}" for job in live.values()]
    stored = [turn for turn in notebook.session.dag.turns.values() if is_background(turn)]
    lines += [
        f"{turn.id}: {turn.status}, {one_line(turn.subject, LABEL_CHARS)}"
        for turn in stored
        if turn.id not in live
    ]
    lines += [
        f"{job_id}: {node.status}, {node.name} {one_line(str(node.metadata['label']), LABEL_CHARS)}"
        for job_id, node in _submitted(notebook.session.dag).items()
    ]
    return Said(
        visible("\n".join(lines)) or "There are no background turns and no submitted calls."
    )


_JOB: Final = flag("id", kind="job", nargs="?", help="Which one, if several are running.")


@command("wait", _JOB)
def wait(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Wait for a background turn or a submitted call, and show its result."""
    return Said(visible(str(_job(notebook, args.id).result())))


@command("cancel", _JOB)
def cancel(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Stop a background turn or a submitted call; what it has done is kept."""
    job = _job(notebook, args.id)
    if job.cancel():
        return Said("It is being stopped.")
    over = job.status != "running"
    return Said(
        f"It was over already: {job.status}." if over else "It runs in a thread, to its end."
    )


class _Job(Protocol):
    """What the commands do with either kind."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> str: ...

    def cancel(self) -> bool: ...

    def result(self) -> object: ...


def _job(notebook: Notebook, named: str | None) -> _Job:
    """The one whose id begins with *named*; None: the only one that runs, or the latest turn.

    Raises:
        UsageError: there is none, or several.
    """
    sent = [job for job_id, job in notebook.session.sent.items() if job_id.startswith(named or "")]
    running: list[_Job] = [*sent, *(job for job in notebook.jobs if not job.done)]
    if sent and named is None and len(running) > 1:
        raise UsageError(f"say which one: {', '.join(job.id for job in running)}")
    if len(sent) > 1:
        raise UsageError(f"say which one: {', '.join(job.id for job in sent)}")
    if sent:
        return sent[0]
    over = {
        job_id: node
        for job_id, node in _submitted(notebook.session.dag).items()
        if named and job_id.startswith(named)
    }
    if over:
        job_id, node = over.popitem()
        raise UsageError(f"{job_id} is over: {node.status}; `%agent show {node.id}` shows it")
    return notebook.jobs.get(named)


def _submitted(dag: Dag) -> dict[str, Node]:
    """The calls that `submit` sent off, by the ids of the jobs."""
    return {str(node.metadata["job"]): node for node in dag if "job" in node.metadata}
