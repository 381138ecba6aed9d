"""A turn that is over, as the views show it, from what is stored of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import Usage, message_from_json
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.plan import UPDATE_PLAN
from op_jupyter.core.prices import spent
from op_jupyter.core.turn import Outcome
from op_jupyter.core.updates import Update, bounded, node_view
from op_jupyter.views.model import State, TurnModel

_SHOWN_CHARS: Final = 2_000
_ARGUMENTS_CHARS: Final = 100_000


def stored_turn(dag: Dag, turn: Turn, outcome: Outcome) -> State:
    """The state that a view of *turn* ended with; what only passed by (drafts) is not in it."""
    model = TurnModel()
    updates = _updates(dag, turn, outcome)
    for sequence, update in enumerate(updates, start=1):
        model.apply(
            {
                "sequence": sequence,
                "session_id": dag.session_id,
                "turn_id": turn.id,
                "kind": update.kind,
                "data": dict(update.data),
                "occurred_at_ms": None,
            }
        )
    return model.to_json()


def _updates(dag: Dag, turn: Turn, outcome: Outcome) -> Iterator[Update]:
    nodes = [node for node in dag if node.turn_id == turn.id]
    yield Update("turn_started", {"subject": turn.subject})
    for node in nodes:
        yield Update("node_appended", node_view(node))
        if node.metadata.get("kind") == "tool":
            yield from _call(dag, node)
        elif node.role == "llm" and node.caller is None and node.output is not None:
            said = message_from_json(node.output)
            if said.tool_uses and said.text:
                yield Update("text_delta", {"text": said.text})
                yield Update("draft_cleared")
    yield Update("turn_finished", _end(nodes, turn, outcome))


def _call(dag: Dag, node: Node) -> Iterator[Update]:
    call_id = str(node.metadata.get("tool_call_id", node.id))
    about = {"id": call_id, "name": node.name, "node_id": node.id}
    arguments = bounded(canonical_json(node.input), _ARGUMENTS_CHARS, 0)
    yield Update("tool_call_started", {**about, "arguments": arguments})
    decision = dag.decision_of(node) or {}
    answered = {"id": call_id, "answer": decision.get("answer"), "how": decision.get("how")}
    if decision.get("how") not in (None, "mode", "rule"):
        yield Update("permission_resolved", answered)
    output = node.output if isinstance(node.output, dict) else {}
    blocks = output.get("content", ())
    text = "".join(b["text"] for b in blocks if b["type"] == "text")
    shown = bounded(text, _SHOWN_CHARS, _SHOWN_CHARS // 2)
    ended = {"state": output.get("state", "failed"), "text": shown, "edited": "edited" in decision}
    yield Update("tool_call_finished", {**about, **ended})
    if node.name == UPDATE_PLAN and ended["state"] == "succeeded":
        yield Update("plan_updated", {"steps": node.input["steps"]})


def _end(nodes: list[Node], turn: Turn, outcome: Outcome) -> dict[str, object]:
    usage = _total(nodes)
    return {
        "status": outcome.status,
        "text": outcome.text,
        "code": outcome.code,
        "message": outcome.message,
        "steps": turn.metadata.get("steps", outcome.steps),
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "seconds": _seconds(turn),
    }


def _total(nodes: list[Node]) -> Usage:
    parts = [each.usage for each in spent(nodes)]
    return Usage(sum(p.input_tokens for p in parts), sum(p.output_tokens for p in parts))


def _seconds(turn: Turn) -> float | None:
    if not turn.started_at or not turn.finished_at:
        return None
    took = datetime.fromisoformat(turn.finished_at) - datetime.fromisoformat(turn.started_at)
    return round(took.total_seconds(), 1)
