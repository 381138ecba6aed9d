"""A turn and its graph as plain lines, for terminals and other places without HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.views.layout import Layout
from op_jupyter.views.svg import old_nodes
from op_jupyter.views.text import one_line, visible
from op_jupyter.views.words import (
    LOOKS,
    arguments_preview,
    call_status,
    session_nodes,
    stable,
)

_MARKS: Final = {"user": "o", "model": "*", "function": "f", "tool": "t", "summary": "s"}
_LABEL_CHARS: Final = 60


def call_line(call: Mapping[str, Any]) -> str:
    """One tool call: name, arguments in short, how it ended."""
    preview = arguments_preview(call["name"], call["arguments"])
    return f"[{visible(call['name'])}] {preview}: {call_status(call)}"


def graph_lines(nodes: Iterable[Mapping[str, Any]], *, old: Collection[str] = ()) -> list[str]:
    """The graph, a row a line, each in its lane; *old* rows are in brackets."""
    shown = {node["id"]: node for node in nodes}
    layout = Layout()
    for node in shown.values():
        layout.add(node)
    width = max((row.lane for row in layout.rows), default=0) * 2 + 3
    lines = []
    for row in layout.rows:
        first = shown[row.id]
        lane = f"{'  ' * row.lane}{_MARKS.get(row.kind, '?')}".ljust(width)
        tag = f" ×{len(row.members)}" if len(row.members) > 1 else " (fork)" if row.forked else ""
        label = one_line(stable(first["label"]), _LABEL_CHARS)
        word = LOOKS.get(row.status, ("", row.status))[1]
        told = "" if row.kind == "user" and word == "done" else f"  [{word}]"
        text = f"{one_line(first['name'], _LABEL_CHARS)}{tag}{'  ' + label if label else ''}{told}"
        lines.append(lane + (f"({text})" if row.id in old else text))
    return lines


def session_lines(dag: Dag) -> list[str]:
    """The graph of a whole session; what the active line has left behind is in brackets."""
    return graph_lines(session_nodes(dag), old=old_nodes(dag))
