"""What a session tells its listeners while it runs: updates, and the snapshot they join.

A listener that takes a snapshot and then every update with a higher sequence has seen
everything.  An update's size never depends on the size of the session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.nodes import Node
from op_jupyter.core.values import dataclass

VERSION: Final = 1
RING_SIZE: Final = 512

UpdateKind: TypeAlias = Literal[
    "turn_started",
    "phase_changed",
    "text_delta",
    "reasoning_delta",
    "draft_cleared",
    "tool_call_started",
    "tool_call_progress",
    "tool_call_finished",
    "permission_requested",
    "permission_resolved",
    "plan_updated",
    "turn_finished",
    "node_appended",
    "node_updated",
]


@dataclass(frozen=True, slots=True)
class Update:
    """One thing that happened; *data* is plain JSON, its members by kind:

    ``turn_started``          subject, client_request_id, session_title
    ``phase_changed``         phase, step
    ``text_delta``            text
    ``reasoning_delta``       text
    ``draft_cleared``         (nothing): the draft became a stored message, or was dropped
    ``tool_call_started``     id, name, arguments (JSON text), node_id, phase
    ``tool_call_progress``    id, text
    ``tool_call_finished``    id, name, state, text (bounded), node_id, edited
    ``permission_requested``  the members of `PermissionRequest.to_json`
    ``permission_resolved``   id, answer, how
    ``plan_updated``          steps: [{text, status}]
    ``turn_finished``         status, text, code, message, usage, steps, seconds
    ``node_appended``         `node_view` of the node
    ``node_updated``          id, and those members of `node_view` that may have changed
    """

    kind: UpdateKind
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An update with its place in the session's sequence (from 1, no gaps)."""

    session_id: str
    turn_id: str | None
    sequence: int
    occurred_at_ms: int
    update: Update
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """The wire form, as the views read it."""
        return {
            "version": self.version,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "sequence": self.sequence,
            "occurred_at_ms": self.occurred_at_ms,
            "kind": self.update.kind,
            "data": dict(self.update.data),
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The session as its owner sees it now.

    *runtime* is ``{"state": "idle"}``, or ``{"state": "running", "turn_id", "subject",
    "client_request_id", "phase", "step", "draft", "reasoning", "tool_calls", "permission",
    "plan", "started_at_ms"}``, or ``{"state": "terminal", "turn_id", "outcome", "plan"}``.
    """

    session_id: str
    last_update_sequence: int
    permission_mode: str
    sandbox: str
    runtime: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {
            "version": VERSION,
            "session_id": self.session_id,
            "last_update_sequence": self.last_update_sequence,
            "permission_mode": self.permission_mode,
            "sandbox": self.sandbox,
            "runtime": dict(self.runtime),
        }


LABEL_CHARS: Final = 120


def clip(text: str, limit: int = LABEL_CHARS) -> str:
    """The first line of *text*, at most *limit* characters, cut ones marked with an ellipsis."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= limit and line == text.strip() else line[: limit - 1] + "…"


def node_view(node: Node) -> dict[str, Any]:
    """What the DAG views show of a node: constant size, plain JSON.

    Members: id, seq, role, kind (user | model | function | tool | summary), name, label,
    status, caller, predecessor, turn_id, and for finished model calls input_tokens,
    output_tokens; for anything finished ``seconds``.
    """
    view: dict[str, Any] = {
        "id": node.id,
        "seq": node.seq,
        "role": node.role,
        "kind": _KINDS.get(node.role) or _shown_kind(node),
        "name": node.name,
        "label": clip(str(node.metadata.get("label", ""))),
        "status": node.status,
        "caller": node.caller,
        "predecessor": node.predecessor,
        "turn_id": node.turn_id,
    }
    for key, source in _COUNTS.items():
        if source in node.metadata:
            view[key] = node.metadata[source]
    return view


def _shown_kind(node: Node) -> str:
    """A sub-agent's task is shown as what it is to its parent: a call."""
    kind = str(node.metadata.get("kind", "function"))
    return "function" if kind == "agent" else kind


_KINDS: Final = {"user": "user", "llm": "model"}
_COUNTS: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "seconds": "seconds",
}


def bounded(text: str, head: int, tail: int, where: str = "") -> str:
    """*text* with its middle cut out and marked, when it is longer than *head* + *tail*.

    *where* the whole can be found; `kept_places` reads it back.
    """
    if len(text) <= head + tail:
        return text
    cut = len(text) - head - tail
    marker = f"\n… {cut} characters cut{'; whole: ' + where if where else ''} …\n"
    return text[:head] + marker + (text[-tail:] if tail else "")


def kept_places(text: str) -> tuple[str, ...]:
    """Where the wholes of what was cut out of *text* can be found, as its marks say."""
    marks = _MARK.findall(text)
    return tuple(dict.fromkeys(place for mark in marks for place in _PLACE.findall(mark)))


_MARK: Final = re.compile(r"characters cut; whole: (.+?) …")
_PLACE: Final = re.compile(r"context/blobs/[0-9a-f]{64}")


Updates: TypeAlias = Sequence[Envelope]
