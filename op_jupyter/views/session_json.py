"""A whole stored session as JSON: what the lab extension lists and draws without a kernel.

The form is that of a saved turn (`views.static_html.turn_json`), so that one renderer draws both.
A saved turn holds no ids; a stored session is looked at where it lives, so its nodes tell theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Turn
from op_jupyter.views.static_html import graph_nodes
from op_jupyter.views.text import count, one_line, visible
from op_jupyter.views.words import LOOKS, session_nodes

_SUBJECT_CHARS: Final = 200


def session_json(dag: Dag) -> dict[str, Any]:
    """*dag* in the form of a saved turn, with ``turns``, and the real ids of its nodes."""
    nodes = session_nodes(dag)
    return {
        "version": 1,
        "answer_markdown": "",
        "status": _status(dag),
        "summary": f"{count(len(dag.turns), 'turn')} · {count(len(nodes), 'node')}",
        "graph": {
            "nodes": [
                {**drawn, **_measured(node), "node_id": node["id"], "turn_id": node["turn_id"]}
                for node, drawn in zip(nodes, graph_nodes(nodes), strict=True)
            ]
        },
        "calls": [],
        "turns": [_turn_json(turn) for turn in dag.turns.values()],
    }


def _status(dag: Dag) -> str:
    turn = next(reversed(dag.turns.values()), None)
    return LOOKS.get(turn.status, ("", turn.status))[1] if turn else ""


def _measured(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: node[key] for key in ("seconds", "input_tokens", "output_tokens") if key in node}


def _turn_json(turn: Turn) -> dict[str, str]:
    return {
        "id": turn.id,
        "subject": one_line(turn.subject, _SUBJECT_CHARS),
        "status": LOOKS.get(turn.status, ("", turn.status))[1],
        "failure": visible(str(turn.failure.get("message", ""))) if turn.failure else "",
        "started_at": turn.started_at,
        "finished_at": turn.finished_at or "",
    }
