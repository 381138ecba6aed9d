"""What a session's own updates mean on the bus: they are passed on, and attempts are told of."""

from __future__ import annotations

from typing import Any, Final

from op_jupyter.core.attempts import error_of, is_prompt, text_of
from op_jupyter.core.turn import Phase
from op_jupyter.core.updates import Envelope
from op_jupyter.engine.event_bus import EventBus
from op_jupyter.engine.session import AgentSession

_WAITING: Final = frozenset({Phase.STARTING.value, Phase.PENDING.value})
_ENDS: Final = frozenset({"completed", "failed", "cancelled"})


def watch(session: AgentSession, bus: EventBus, *, is_new: bool) -> None:
    """Tell *bus* of *session* as long as it is open; *is_new*: nothing is stored of it yet."""
    session.subscribe(_Translator(session, bus, is_new))


class _Translator:
    """The listener to one session."""

    def __init__(self, session: AgentSession, bus: EventBus, is_new: bool) -> None:
        self._session = session
        self._bus = bus
        self._is_new = is_new
        self._turn: str | None = None
        self._created = self._started = False

    def __call__(self, envelope: Envelope) -> None:
        """Pass one update on, and what it means for its attempt."""
        kind, data = envelope.update.kind, envelope.update.data
        if self._is_new:
            self._is_new = False
            self._publish(
                "session.created", None, {"title": self._session.dag.meta.get("title", "")}
            )
        if kind == "turn_started":
            self._turn, self._created, self._started = envelope.turn_id, False, False
        self._publish(kind, envelope.turn_id, data)
        if envelope.turn_id is None or envelope.turn_id != self._turn:
            return
        if kind == "node_appended" and not self._created:
            self._prompt(envelope.turn_id, data["id"])
        elif kind == "phase_changed" and data["phase"] not in _WAITING | _ENDS:
            self._start(envelope.turn_id)
        elif kind == "turn_finished" and self._created:
            self._end(envelope.turn_id, data)

    def _prompt(self, turn_id: str, node_id: str) -> None:
        node = self._session.dag.nodes.get(node_id)
        if node is not None and is_prompt(node):
            self._created = True
            said = {"message_id": node_id, "role": "user", "content": text_of(node)}
            self._publish("message.received", turn_id, said)
            self._publish("attempt.created", turn_id, {"prompt": text_of(node)})

    def _start(self, turn_id: str) -> None:
        if self._created and not self._started:
            self._started = True
            self._publish("attempt.started", turn_id, {})

    def _end(self, turn_id: str, data: Any) -> None:
        turn = self._session.dag.turns.get(turn_id)
        failed = f"{data['code']}: {data['message']}" if data["code"] else data["message"]
        error = "" if data["status"] == "completed" else failed
        if turn is not None:
            error = error_of(turn) or error
        summary = data["text"] if data["status"] == "completed" else ""
        said = {"status": data["status"], "summary": summary, "error": error}
        self._publish(f"attempt.{data['status']}", turn_id, said)

    def _publish(self, kind: str, turn_id: str | None, data: Any) -> None:
        about = {} if turn_id is None else {"attempt_id": turn_id}
        self._bus.publish(self._session.session_id, kind, {**data, **about})
