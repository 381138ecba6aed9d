"""A turn as the views show it, from what is stored of it: for exports, long after its page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from op_jupyter.core.attempts import answer_of, prompt_of, text_of
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.plan import UPDATE_PLAN
from op_jupyter.core.turn import NOT_EXECUTED
from op_jupyter.core.updates import node_view
from op_jupyter.views.details import readable
from op_jupyter.views.model import State, new_state


def stored_state(dag: Dag, turn: Turn, nodes: Sequence[Node]) -> State:
    """The state of *turn* with its *nodes*, as `TurnModel` would have it after the last update."""
    calls = [node for node in nodes if node.metadata.get("kind") == "tool"]
    state = new_state()
    state |= {
        "session_id": dag.session_id,
        "turn_id": turn.id,
        "subject": turn.subject,
        "status": turn.status,
        "phase": turn.status,
        "answer": answer_of(dag, turn) if turn.status == "completed" else "",
        "calls": [_call(dag, node) for node in calls],
        "plan": _plan(calls),
        "nodes": [node_view(node) for node in nodes],
    }
    if turn.status != "running":
        state["outcome"] = _outcome(turn)
    return state


def prompt_text_of(dag: Dag, turn: Turn) -> str:
    """What was asked, or called."""
    prompt = prompt_of(dag, turn)
    return turn.subject if prompt is None else text_of(prompt)


def _outcome(turn: Turn) -> dict[str, Any]:
    failure = turn.failure or {}
    steps = turn.metadata.get("steps")
    return {
        "code": failure.get("code"),
        "message": str(failure.get("message", "")),
        "usage": None,
        "steps": steps if isinstance(steps, int) else 0,
        "seconds": None,
    }


def _call(dag: Dag, node: Node) -> dict[str, Any]:
    output = node.output if isinstance(node.output, Mapping) else {}
    decision = dag.decision_of(node) or {}
    asked = isinstance(answer := decision.get("answer"), str) and "waited_seconds" in decision
    return {
        "id": str(node.metadata.get("tool_call_id", node.id)),
        "name": node.name,
        "arguments": json.dumps(node.input, ensure_ascii=False, default=str),
        "node_id": node.id,
        "phase": "",
        "state": str(output.get("state", _STATES.get(node.status, "running"))),
        "progress": "",
        "text": readable(node.output) or (NOT_EXECUTED if node.status == "cancelled" else ""),
        "edited": "edited" in decision,
        "answer": answer if asked else None,
        "how": decision.get("how"),
        "started_at_ms": None,
        "seconds": None,
    }


_STATES = {"interrupted": "outcome_unknown", "cancelled": "cancelled", "denied": "denied"}


def _plan(calls: list[Node]) -> list[dict[str, Any]]:
    """The last plan that was accepted."""
    for node in reversed(calls):
        accepted = isinstance(node.output, Mapping) and node.output.get("state") == "succeeded"
        if node.name == UPDATE_PLAN and accepted and isinstance(node.input, Mapping):
            steps = node.input.get("steps")
            if isinstance(steps, list) and all(map(_is_step, steps)):
                return steps
    return []


def _is_step(step: Any) -> bool:
    return isinstance(step, Mapping) and all(
        isinstance(step.get(name), str) for name in ("text", "status")
    )
