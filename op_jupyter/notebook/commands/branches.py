"""Other ways that the conversation could go: a branch of its own, and how two of them differ."""

from __future__ import annotations

import argparse

from op_jupyter.core.diff import unified_diff
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.engine.loop import run_sync
from op_jupyter.errors import GraphError, UsageError
from op_jupyter.notebook.commands.base import Said, call_there, command, find_node, node_line
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.views.details import details_text, node_details
from op_jupyter.views.text import count, visible


@command(
    "fork",
    flag(
        "node",
        kind="spine",
        nargs="?",
        help="A prompt or a cell's call (the branch starts before it), or an answer (after it); "
        "default: here.",
    ),
    flag("--name", metavar="NAME", help="Name of the branch; default: fork-2, fork-3, ..."),
)
def fork(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Start a new branch of the conversation; the current one is kept."""
    session = notebook.session
    node_id = None if args.node is None else find_node(session.dag, args.node).id
    left, tip = session.dag.active_branch, session.dag.head
    try:
        name = run_sync(session.fork, node_id, args.name)
    except GraphError as error:
        raise UsageError(error.message) from None
    head = session.dag.head
    where = "at its beginning" if head is None else f"after {node_line(session.dag.node(head))}"
    ended = "has nothing yet" if tip is None else f"ends with {tip}"
    there = call_there(session.dag, node_id)
    return Said(f"On branch {name} now, {where}{there}\nBranch {left} {ended}.")


@command(
    "diff",
    flag("a", kind="line", help="A branch, turn or node, or a unique beginning of its id."),
    flag("b", kind="line", help="What to compare it with."),
)
def diff(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Compare two branches from where they diverge, or any two nodes."""
    graph = notebook.session.dag
    a, b = (_named(graph, name) for name in (args.a, args.b))
    if not (_on_a_line(a) and _on_a_line(b)):
        one, other = (details_text(node, graph.decision_of(node)) for node in (a, b))
        return Said(visible(_difference(one, other, args.a, args.b)))
    lines = [graph.spine(node.id) for node in (a, b)]
    shared = 0
    for left, right in zip(*lines, strict=False):
        if left.id != right.id:
            break
        shared += 1
    one, other = (_told(line[shared:]) for line in lines)
    begun = (
        f"They share {count(shared, 'node')}, up to {node_line(lines[0][shared - 1])}"
        if shared
        else "They share nothing."
    )
    return Said(visible(f"{begun}\n{_difference(one, other, args.a, args.b)}"))


def _named(graph: Dag, name: str) -> Node:
    if (tip := graph.branches.get(name)) is not None:
        return graph.node(tip)
    if name in graph.branches:
        raise UsageError(f"branch {name!r} has nothing yet")
    turns = [turn_id for turn_id in graph.turns if turn_id.startswith(name)]
    turn = name if name in graph.turns else turns[0] if len(turns) == 1 else None
    if turn is None:
        return find_node(graph, name)
    line = [node for node in graph if node.turn_id == turn and _on_a_line(node)]
    if not line:
        raise UsageError(f"turn {turn!r} has no node to compare")
    return line[-1]


def _on_a_line(node: Node) -> bool:
    return node.caller is None and node.metadata.get("kind") != "function"


def _told(nodes: list[Node]) -> str:
    """What was said, without ids and times, which differ in any case."""
    parts = []
    for node in nodes:
        details = node_details(node)
        said = details["input"] if node.role == "user" else details["output"] or details["input"]
        parts.append(f"{'you' if node.role == 'user' else node.name}:\n{said}\n")
    return "\n".join(parts)


def _difference(a: str, b: str, name_a: str, name_b: str) -> str:
    difference = unified_diff(a, b, name_b)
    if not difference:
        return "They say the same."
    first, _, rest = difference.partition("\n")
    assert first.startswith("--- ")
    return f"--- {name_a}\n{rest}"
