"""How turns ended: from an error, and from what is stored."""

from __future__ import annotations

from op_jupyter.core.compaction import is_summary
from op_jupyter.core.graph import Dag
from op_jupyter.core.messages import message_from_json
from op_jupyter.core.nodes import Turn, TurnStatus
from op_jupyter.core.turn import Outcome
from op_jupyter.errors import TurnCancelled


def status_of(error: BaseException | None) -> TurnStatus:
    """The status of a turn that ended with *error*."""
    if error is None:
        return "completed"
    cancelled = isinstance(error, TurnCancelled) or not isinstance(error, Exception)
    return "cancelled" if cancelled else "failed"


def stored_outcome(dag: Dag, turn: Turn) -> Outcome:
    """The outcome of a turn that is over, from what is stored."""
    failure = turn.failure or {}
    if turn.status == "completed":
        answer = dag.nodes.get(str(turn.metadata.get("answer")))
        if answer is not None and is_summary(answer):
            return Outcome("completed", text=str(answer.output))
        said = answer.output if answer is not None and answer.role == "llm" else None
        return Outcome("completed", text="" if said is None else message_from_json(said).text)
    if turn.status == "cancelled":
        return Outcome("cancelled", message="the turn was cancelled")
    message = str(failure.get("message", f"the turn is {turn.status}"))
    return Outcome("failed", code=failure.get("code", "actor_stopped"), message=message)
