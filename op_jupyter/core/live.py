"""The live state of a session, folded from its updates: what a snapshot shows.

`apply` is the only place that says what an update means for the live state.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from op_jupyter.core.updates import Envelope
from op_jupyter.core.values import dataclass

RESULT_CHARS = 2_000


@dataclass(slots=True)
class LiveState:
    """What is going on now; forgotten when the process ends."""

    turn: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    ended_turn_id: str | None = None
    plan: list[Any] = field(default_factory=list)

    def apply(self, envelope: Envelope) -> None:
        """Fold one update in."""
        data = envelope.update.data
        kind = envelope.update.kind
        if kind == "turn_started":
            self._begin(envelope)
        if self.turn is None or self.turn["turn_id"] != envelope.turn_id:
            return
        match kind:
            case "phase_changed":
                self.turn["phase"], self.turn["step"] = data["phase"], data["step"]
            case "text_delta":
                self.turn["draft"] += data["text"]
            case "reasoning_delta":
                self.turn["reasoning"] += data["text"]
            case "draft_cleared":
                self.turn["draft"] = self.turn["reasoning"] = ""
            case "tool_call_started":
                self.turn["tool_calls"] = [
                    c for c in self.turn["tool_calls"] if c["id"] != data["id"]
                ] + [{**data, "state": None, "text": ""}]
            case "tool_call_finished":
                for call in self.turn["tool_calls"]:
                    if call["id"] == data["id"]:
                        call.update(state=data["state"], text=data["text"][:RESULT_CHARS])
            case "permission_requested":
                self.turn["permission"] = dict(data)
            case "permission_resolved":
                self.turn["permission"] = None
            case "plan_updated":
                self.plan = list(data["steps"])
            case "turn_finished":
                self.outcome, self.ended_turn_id, self.turn = dict(data), envelope.turn_id, None

    def _begin(self, envelope: Envelope) -> None:
        self.outcome, self.plan = None, []
        self.turn = {
            "turn_id": envelope.turn_id,
            "subject": envelope.update.data["subject"],
            "client_request_id": envelope.update.data["client_request_id"],
            "phase": "starting",
            "step": 0,
            "draft": "",
            "reasoning": "",
            "tool_calls": [],
            "permission": None,
            "started_at_ms": envelope.occurred_at_ms,
        }

    def to_json(self) -> dict[str, Any]:
        """The ``runtime`` member of a `Snapshot`."""
        if self.turn is not None:
            calls = [dict(c) for c in self.turn["tool_calls"]]
            return {"state": "running", **self.turn, "tool_calls": calls, "plan": self.plan}
        if self.outcome is not None:
            return {
                "state": "terminal",
                "turn_id": self.ended_turn_id,
                "outcome": self.outcome,
                "plan": self.plan,
            }
        return {"state": "idle"}
