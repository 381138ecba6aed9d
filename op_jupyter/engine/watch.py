"""What a session's own updates mean on the bus: they are passed on, and attempts are told of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from op_jupyter.core.attempts import error_of, is_prompt, text_of
from op_jupyter.core.turn import Phase
from op_jupyter.core.updates import Envelope
from op_jupyter.engine.event_bus import EventBus
from op_jupyter.engine.session import AgentSession

_WAITING: Final = frozenset({Phase.STARTING.value, Phase.PENDING.value})
_ENDS: Final = frozenset({"completed", "failed", "cancelled"})


class _Translator:
    """The listener to one session."""

    def __init__(self, session: AgentSession, bus: EventBus) -> None:
        self._session = session
        self._bus = bus
        self._turn: str | None = None
        self._created = self._started = False

    def __call__(self, envelope: Envelope) -> None:
        """Pass one update on, and what it means for its attempt."""
        kind, data = envelope.update.kind, envelope.update.data
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


class Watches:
    """The sessions whose updates go to a bus, each counted: it may be watched for several ends."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._watched: dict[AgentSession, tuple[int, Callable[[], None]]] = {}

    def begin(self, session: AgentSession) -> None:
        """Pass the updates of *session* on, from now on."""
        with self._lock:
            count, end = self._watched.get(session, (0, None))
            if end is None:
                end = session.subscribe(_Translator(session, self._bus))
            self._watched[session] = count + 1, end

    def end(self, session: AgentSession) -> None:
        """Undo one `begin`."""
        with self._lock:
            if session not in self._watched:
                return
            count, end = self._watched.pop(session)
            if count > 1:
                self._watched[session] = count - 1, end
            else:
                end()
