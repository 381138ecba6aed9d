"""What every command is made of: what it says, and how it is looked up and run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol, TypeAlias

from op_jupyter.core.compaction import bare_call
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.core.values import dataclass
from op_jupyter.errors import UnknownNode
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import Flag, arguments
from op_jupyter.views.details import node_details
from op_jupyter.views.text import count, one_line, visible
from op_jupyter.views.words import LOOKS

LABEL_CHARS: Final = 70


@dataclass(frozen=True, slots=True)
class Said:
    """What a command shows: text for every front end, and perhaps more, by MIME type."""

    text: str
    others: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


Run: TypeAlias = Callable[[Notebook, argparse.Namespace], Said]


class Command(Protocol):
    """A function that `command` decorated: its docstring and its flags are its manual."""

    word: str
    parser: argparse.ArgumentParser
    flags: tuple[Flag, ...]
    verbatim: bool

    def __call__(self, notebook: Notebook, args: argparse.Namespace, /) -> Said:
        """Do it."""


def command(word: str, *flags: Flag, verbatim: bool = False) -> Callable[[Run], Command]:
    """Make a function ``%agent word``; it returns what it says, and prints nothing.

    Args:
        verbatim: what follows is the one argument as it was typed: a permission rule may
            hold code, with quotes and spaces of its own.
    """

    def decorate(function: Run) -> Command:
        made: Any = arguments(f"agent {word}", *flags)(function)
        made.word, made.verbatim = word, verbatim
        decorated: Command = made
        return decorated

    return decorate


def named(session_id: str) -> dict[str, Any]:
    """The id for the output's metadata, where it breaks no rerun."""
    return {"openprogram": {"session_id": session_id}}


def find_node(graph: Dag, name: str) -> Node:
    """The node with that id, or the only one whose id begins so.

    Raises:
        UnknownNode: there is none, or more than one.
    """
    found = [node for node in graph if node.id.startswith(name)]
    if len(found) == 1 or name in graph.nodes:
        return graph.nodes.get(name) or found[0]
    if not found:
        return graph.node(name)
    raise UnknownNode(
        f"{count(len(found), 'node')} begin with {name!r}: "
        f"{', '.join(node.id for node in found[:5])}",
        node_id=name,
    )


def call_there(graph: Dag, node_id: str | None) -> str:
    """What is to be said where a line goes on that a call of a cell hangs beside, or nothing."""
    bare = None if node_id is None else bare_call(graph, node_id)
    if bare is None:
        return ""
    label = one_line(bare.subject, LABEL_CHARS)
    return f"\nThere a cell called {label}, which the conversation goes on to know of."


def node_line(node: Node) -> str:
    """Who said what, in one line."""
    word = LOOKS.get(node.status, ("", node.status))[1]
    told = "" if node.status == "completed" else f" [{word}]"
    if node.role == "user":
        who = visible(node.name) if node.metadata.get("agent") else "you"
        return f"{who}: {one_line(node_details(node)['input'], LABEL_CHARS)}"
    said = node_details(node)["output"] or node_details(node)["input"]
    return f"{visible(node.name)}{told}: {one_line(said, LABEL_CHARS)}"
