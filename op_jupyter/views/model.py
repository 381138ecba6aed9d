"""One turn as the views show it: a pure fold of the session's updates.

The state is plain JSON, so it is also the snapshot for a page that loads late.
`static/fold.js` is the same fold in the browser; a test holds the two together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from op_jupyter.views.text import storable

_PROGRESS_LINES: Final = 200
State = dict[str, Any]


def new_state() -> State:
    """A turn of which nothing is known yet.

    ``draft`` is what the model is writing; ``cleared`` the draft before, whose fate is open;
    ``notes`` what it said between tool calls; ``answer`` how the turn ended in words.
    ``resolved`` is the last card once it is answered.
    """
    return {
        "version": 1,
        "sequence": 0,
        "session_id": "",
        "turn_id": None,
        "subject": "",
        "status": "starting",
        "phase": "starting",
        "step": 0,
        "started_at_ms": None,
        "draft": "",
        "cleared": "",
        "notes": [],
        "reasoning": "",
        "answer": "",
        "calls": [],
        "plan": [],
        "permission": None,
        "resolved": None,
        "nodes": [],
        "outcome": None,
    }


class TurnModel:
    """The state of one turn, fed one update at a time."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.state: State = copy.deepcopy(dict(state)) if state is not None else new_state()
        self._nodes = {node["id"]: node for node in self.state["nodes"]}
        self._calls = {call["id"]: call for call in self.state["calls"]}

    @classmethod
    def from_session(
        cls, snapshot: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]] = ()
    ) -> TurnModel:
        """The turn that a session's snapshot (`core.updates.Snapshot.to_json`) is in.

        *nodes* are the `node_view` of the turn's nodes so far, which no snapshot carries.
        """
        model = cls()
        runtime = snapshot["runtime"]
        state = model.state
        state["sequence"] = snapshot["last_update_sequence"]
        state["session_id"] = snapshot["session_id"]
        state["turn_id"] = runtime.get("turn_id")
        state["plan"] = [dict(step) for step in runtime.get("plan") or ()]
        for node in nodes:
            model._node_appended(dict(node), None)
        if runtime["state"] == "running":
            model._join_running(runtime)
        elif runtime["state"] == "terminal":
            model._turn_finished(dict(runtime["outcome"]), None)
        return model

    def _join_running(self, runtime: Mapping[str, Any]) -> None:
        self.state |= {
            "status": "running",
            "subject": runtime.get("subject", ""),
            "phase": runtime.get("phase", "starting"),
            "step": runtime.get("step", 0),
            "started_at_ms": runtime.get("started_at_ms"),
            "draft": runtime.get("draft", ""),
            "reasoning": runtime.get("reasoning", ""),
            "permission": runtime.get("permission"),
        }
        for call in runtime.get("tool_calls") or ():
            self._tool_call_started(dict(call), None)
            if call.get("state") not in (None, "running"):
                self._tool_call_finished(dict(call), None)

    def apply(self, envelope: Mapping[str, Any]) -> bool:
        """Fold one envelope (its wire form) in; False: it was known, or says nothing new."""
        state = self.state
        if envelope["sequence"] <= state["sequence"]:
            return False
        state["sequence"] = envelope["sequence"]
        state["session_id"] = envelope["session_id"]
        state["turn_id"] = state["turn_id"] or envelope["turn_id"]
        handler = _HANDLERS.get(envelope["kind"])
        if handler is None:
            return False
        handler(self, storable(dict(envelope["data"])), envelope["occurred_at_ms"])
        return True

    def to_json(self) -> State:
        """A copy of the state."""
        return copy.deepcopy(self.state)

    # -- one handler for each kind of update

    def _turn_started(self, data: State, at_ms: int | None) -> None:
        self.state |= {
            "status": "running",
            "phase": "starting",
            "subject": data.get("subject", ""),
            "started_at_ms": at_ms,
        }

    def _phase_changed(self, data: State, _at_ms: int | None) -> None:
        self.state["phase"] = data["phase"]
        self.state["step"] = data.get("step", self.state["step"])
        if data["phase"] == "running_tools":
            self._keep_note()

    def _text_delta(self, data: State, _at_ms: int | None) -> None:
        self._keep_note()
        self.state["draft"] += data["text"]

    def _reasoning_delta(self, data: State, _at_ms: int | None) -> None:
        self.state["reasoning"] += data["text"]

    def _draft_cleared(self, _data: State, _at_ms: int | None) -> None:
        self.state["cleared"] = self.state["draft"]
        self.state["draft"] = ""
        self.state["reasoning"] = ""

    def _keep_note(self) -> None:
        """The cleared draft was a message of its own: more follows it."""
        if self.state["cleared"]:
            self.state["notes"].append(self.state["cleared"])
            self.state["cleared"] = ""

    def _call(self, call_id: str) -> State:
        call = self._calls.get(call_id)
        if call is None:
            call = {
                "id": call_id,
                "name": "",
                "arguments": "",
                "node_id": None,
                "phase": "",
                "state": "running",
                "progress": "",
                "text": "",
                "edited": False,
                "answer": None,
                "how": None,
                "started_at_ms": None,
                "seconds": None,
            }
            self._calls[call_id] = call
            self.state["calls"].append(call)
        return call

    def _tool_call_started(self, data: State, at_ms: int | None) -> None:
        self._keep_note()
        call = self._call(data["id"])
        call |= {key: data[key] for key in ("name", "arguments", "phase") if key in data}
        call["node_id"] = data.get("node_id") or call["node_id"]
        if call["started_at_ms"] is None:
            call["started_at_ms"] = at_ms

    def _tool_call_progress(self, data: State, _at_ms: int | None) -> None:
        call = self._call(data["id"])
        lines = (call["progress"] + as_lines(data["text"])).split("\n")
        call["progress"] = "\n".join(lines[-_PROGRESS_LINES:])

    def _tool_call_finished(self, data: State, at_ms: int | None) -> None:
        call = self._call(data["id"])
        call |= {
            "state": data["state"],
            "text": data.get("text", ""),
            "edited": bool(data.get("edited")),
            "progress": "",
            "name": data.get("name") or call["name"],
            "node_id": data.get("node_id") or call["node_id"],
        }
        if at_ms is not None and call["started_at_ms"] is not None:
            call["seconds"] = max(0, at_ms - call["started_at_ms"]) / 1000
        resolved = self.state["resolved"]
        if resolved is not None and resolved["id"] == data["id"]:
            self.state["resolved"] = None

    def _permission_requested(self, data: State, _at_ms: int | None) -> None:
        self.state["permission"] = data
        self.state["resolved"] = None

    def _permission_resolved(self, data: State, _at_ms: int | None) -> None:
        request = self.state["permission"]
        if request is not None and request["id"] == data["id"]:
            self.state["permission"] = None
            self.state["resolved"] = {
                "id": data["id"],
                "answer": data["answer"],
                "how": data.get("how"),
                "request": request,
            }
        call = self._calls.get(data["id"])
        if call is not None:
            call |= {"answer": data["answer"], "how": data.get("how")}

    def _plan_updated(self, data: State, _at_ms: int | None) -> None:
        self.state["plan"] = data["steps"]

    def _turn_finished(self, data: State, _at_ms: int | None) -> None:
        self.state |= {
            "status": data["status"],
            "phase": data["status"],
            "answer": data.get("text", ""),
            "draft": "",
            "cleared": "",
            "reasoning": "",
            "permission": None,
            "resolved": None,
            "outcome": {
                "code": data.get("code"),
                "message": data.get("message", ""),
                "usage": data.get("usage"),
                "steps": data.get("steps", self.state["step"]),
                "seconds": data.get("seconds"),
            },
        }

    def _node_appended(self, data: State, _at_ms: int | None) -> None:
        known = self._nodes.get(data["id"])
        if known is not None:
            known |= data
            return
        self._nodes[data["id"]] = data
        self.state["nodes"].append(data)

    def _node_updated(self, data: State, _at_ms: int | None) -> None:
        known = self._nodes.get(data["id"])
        if known is not None:
            known |= data


_HANDLERS: Final[dict[str, Callable[[TurnModel, State, int | None], None]]] = {
    "turn_started": TurnModel._turn_started,
    "phase_changed": TurnModel._phase_changed,
    "text_delta": TurnModel._text_delta,
    "reasoning_delta": TurnModel._reasoning_delta,
    "draft_cleared": TurnModel._draft_cleared,
    "tool_call_started": TurnModel._tool_call_started,
    "tool_call_progress": TurnModel._tool_call_progress,
    "tool_call_finished": TurnModel._tool_call_finished,
    "permission_requested": TurnModel._permission_requested,
    "permission_resolved": TurnModel._permission_resolved,
    "plan_updated": TurnModel._plan_updated,
    "turn_finished": TurnModel._turn_finished,
    "node_appended": TurnModel._node_appended,
    "node_updated": TurnModel._node_updated,
}


def as_lines(text: str) -> str:
    """*text* with its last line ended, so that the next piece starts on one of its own."""
    return text if text.endswith("\n") else text + "\n"


def is_over(state: Mapping[str, Any]) -> bool:
    """Whether the turn has ended."""
    return state["outcome"] is not None


def outcome_word(state: Mapping[str, Any]) -> str:
    """``completed``, ``failed``, ``denied``, ``cancelled`` or ``interrupted``; else ``running``."""
    outcome = state["outcome"]
    if outcome is None:
        return "running"
    return "denied" if outcome["code"] == "permission_denied" else str(state["status"])
