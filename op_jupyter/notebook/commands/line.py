"""What happened in the session, and where its conversation goes on."""

from __future__ import annotations

import argparse

from op_jupyter.core.compaction import rewind_target
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.engine.undo import changed_since, told
from op_jupyter.errors import TurnFailed, UsageError
from op_jupyter.notebook.commands.base import Said, call_there, command, find_node, node_line
from op_jupyter.notebook.commands.files import UNDO_FLAGS, undo_these
from op_jupyter.notebook.display import shown_while_running
from op_jupyter.notebook.frontend import detect
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.views.details import details_text
from op_jupyter.views.text import count, visible


@command("history")
def history(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """Show the conversation: prompts and answers, with the ids for `show` and `rewind`."""
    spine = notebook.session.dag.spine()
    if not spine:
        return Said("Nothing has happened in this session yet.")
    width = max(len(node.id) for node in spine)
    return Said("\n".join(f"{node.id:<{width}}  {node_line(node)}" for node in spine))


@command("dag")
def dag(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """Draw the graph of everything that ran in this session."""
    from op_jupyter.views.session_bundle import session_bundle

    bundle = session_bundle(notebook.session.dag)
    return Said(bundle.pop("text/plain"), others=bundle)


@command(
    "show",
    flag(
        "node",
        nargs="?",
        kind="node",
        help="Id of the node, or a unique beginning; default: the newest model call.",
    ),
    flag("--prompt", action="store_true", help="Show what the model was sent."),
)
def show(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Show the input and output of a node, or the prompt of a model call."""
    session = notebook.session
    node = find_node(session.dag, args.node) if args.node else _newest_call(session.dag)
    if args.prompt:
        request, proven = request_of(session.dag, node.id, session.store.read_blob)
        doubt = "" if proven else "(not proven: it no longer hashes to what was sent)\n"
        return Said(visible(doubt + prompt_text(request)))
    return Said(details_text(node, session.dag.decision_of(node)))


def _newest_call(graph: Dag) -> Node:
    for node in reversed(list(graph)):
        if node.role == "llm":
            return node
    raise UsageError("no model has been asked in this session yet, so there is none to show")


@command(
    "compact",
    flag("--model", kind="model", metavar="M", help="Have this model write the summary."),
    flag("--provider", kind="provider", metavar="P", help="Have this provider write it."),
)
def compact(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Replace the conversation with a summary; `rewind` to the summary restores it."""
    session = notebook.session
    runtime = notebook.service(provider=args.provider).runtime
    start = CompactionStart(runtime, session.tools, args.model)
    with shown_while_running(session, detect(notebook.shell)):
        turn_id, outcome = run_sync(session.compact, start)
        tip = session.dag.head  # what was asked for in the view may lead elsewhere
    if outcome.status != "completed":
        code = outcome.code or "failed"
        raise TurnFailed(f"{code}: {outcome.message}", code=code, turn_id=turn_id)
    summary = session.dag.node(str(tip))
    covered = count(len(summary.input["covers"]), "node")
    return Said(
        f"A summary stands for {covered} now. `%agent rewind {summary.id}` takes it back.\n\n"
        f"{visible(outcome.text)}"
    )


@command(
    "rewind",
    flag(
        "node",
        kind="spine",
        help="Id of a prompt, answer, summary or cell's call, or a unique beginning of it.",
    ),
    flag("--files", action="store_true", help="Restore the files as they were then, too."),
    *UNDO_FLAGS,
)
def rewind(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Go back to before a prompt or after an answer; the rest is kept as a branch."""
    session = notebook.session
    node, left = find_node(session.dag, args.node), session.dag.head
    rewind_target(session.dag, node.id)  # refuses what is no part of the conversation
    files = ""
    if args.files:
        undone = undo_these(session, changed_since(session, node.id), args)
        files = f"\n{told(undone)}"
        if undone.denied:
            return Said(f"The conversation stays as it is.{files}")
    target = run_sync(session.rewind, node.id)
    if target == left:
        return Said(f"The conversation already ends there.{files}")
    where = "at its beginning" if target is None else f"after {node_line(session.dag.node(target))}"
    there = call_there(session.dag, node.id)
    return Said(
        f"The conversation goes on {where}{there}\nWhat came later ended with {left}.{files}"
    )
