"""The line to the lab extension: which session this is, what waits for an answer, and answers.

One comm, opened when a cell runs for somebody who can answer.  It carries the whole state, which
is small, so that a page that was reloaded, or a second one, needs nothing of the past.  Without
the lab extension nobody listens, and nothing changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

from comm import create_comm
from comm.base_comm import BaseComm

from op_jupyter.core.permissions import PermissionRequest
from op_jupyter.core.questions import Question
from op_jupyter.core.updates import Envelope, clip
from op_jupyter.engine.loop import submit
from op_jupyter.engine.session import AgentSession

COMM_TARGET: Final = "openprogram"
_TELLING: Final = frozenset(
    {"turn_started", "turn_finished", "permission_requested", "permission_resolved"}
)


class Notices:
    """What pages are told of the sessions of one kernel.  Safe to use from any thread.

    Args:
        current: the notebook's session; None while there is none.
        create: opens a comm, given ``target_name`` and ``data``.
    """

    def __init__(
        self,
        current: Callable[[], AgentSession | None],
        create: Callable[..., BaseComm] = create_comm,
    ) -> None:
        self._current = current
        self._create = create
        self._lock = threading.RLock()  # guards everything below, and keeps messages in order
        self._comm: BaseComm | None = None
        self._followed: WeakSet[AgentSession] = WeakSet()
        self._closed = False
        self._refused = False
        self._cards: dict[tuple[str, str], tuple[AgentSession, dict[str, Any]]] = {}
        self._questions: dict[str, dict[str, Any]] = {}
        self._ended = ""  # the turn that ended last: a reason to look at the stored sessions again
        self._told: dict[str, Any] | None = None

    def open(self, *, again: bool = True) -> None:
        """Have a line to the pages, now that there may be one; told what is news if there is.

        Not *again*: a page that refused it is left in peace, as each try is an error in its log.
        """
        with self._lock:
            if self._comm is not None:
                self.tell()
            elif not self._closed and (again or not self._refused):
                self._told = self._state()
                comm = self._create(target_name=COMM_TARGET, data=self._told)
                comm.on_msg(self._receive)
                comm.on_close(lambda _message: self._lose(comm))
                self._comm = comm

    def follow(self, session: AgentSession) -> None:
        """Tell of the cards of *session*, too."""
        with self._lock:
            if session in self._followed:
                return
            self._followed.add(session)
        # Outside of the lock: updates come while the publisher holds its own.
        session.subscribe(lambda envelope: self._feed(session, envelope))

    def placed(self, request: PermissionRequest, place: str) -> None:
        """Tell that the card of *request* is in the output with the widget *place*."""
        key = (request.turn_id, request.id)
        with self._lock:
            session, card = self._cards.get(key, (None, {}))
            if session is not None and place:
                self._cards[key] = (session, {**card, "place": place})
                self.tell()

    @contextmanager
    def asking(self, question: Question, place: str) -> Iterator[None]:
        """Tell of *question* while inside; its form is the output that *place* names."""
        told = {
            "id": question.id,
            "turn_id": question.turn_id,
            "prompt": clip(question.prompt),
            "place": place,
        }
        self._ask(question.id, told)
        try:
            yield
        finally:
            self._ask(question.id, None)

    def _ask(self, question_id: str, told: dict[str, Any] | None) -> None:
        with self._lock:
            if told is None:
                self._questions.pop(question_id, None)
            elif not self._closed:
                self._questions[question_id] = told
            self.tell()

    def tell(self) -> None:
        """Send the state, if it is news."""
        with self._lock:
            state = self._state()
            if self._comm is not None and state != self._told:
                self._told = state
                self._comm.send(state)

    def close(self) -> None:
        """Tell no more."""
        with self._lock:
            self._closed = True
            self._cards.clear()
            self._questions.clear()
            comm, self._comm = self._comm, None
        if comm is not None:
            comm.close()

    def _state(self) -> dict[str, Any]:
        from op_jupyter.views.text import storable

        session = self._current()
        state = {
            "kind": "state",
            "session_id": "" if session is None else session.session_id,
            "turns": 0 if session is None else len(session.dag.turns),
            "ended": self._ended,
            "cards": [card for _, card in self._cards.values()],
            "questions": list(self._questions.values()),
        }
        storable_state: dict[str, Any] = storable(state)
        return storable_state

    def _feed(self, session: AgentSession, envelope: Envelope) -> None:
        """An update of a session, on the publishing thread."""
        update, turn_id = envelope.update, envelope.turn_id or ""
        if update.kind not in _TELLING:
            return
        with self._lock:
            if self._closed:
                return
            match update.kind:
                case "permission_requested":
                    self._cards[turn_id, update.data["id"]] = (session, dict(update.data))
                case "permission_resolved":
                    self._cards.pop((turn_id, update.data["id"]), None)
                case "turn_finished":
                    self._ended = turn_id
                    for key in [key for key in self._cards if key[0] == turn_id]:
                        del self._cards[key]
            self.tell()

    # -- from a page

    def _receive(self, message: Mapping[str, Any]) -> None:
        data = message["content"]["data"]
        match data:
            case {"kind": "hello"}:
                with self._lock:
                    if self._comm is not None:
                        self._comm.send(self._state())
            case {"kind": "decide", "turn_id": str(turn_id), "id": str(call_id)}:
                self._decide(turn_id, call_id, data)

    def _decide(self, turn_id: str, call_id: str, data: Mapping[str, Any]) -> None:
        from op_jupyter.views.live import read_answer

        answer = read_answer(data)
        with self._lock:
            session, _ = self._cards.get((turn_id, call_id), (None, None))
        if session is not None and answer is not None:
            # The first answer wins; a later one finds no card that waits.
            submit(session.resolve_permission, turn_id, call_id, answer)

    def _lose(self, comm: BaseComm) -> None:
        with self._lock:
            if self._comm is comm:
                self._comm, self._refused = None, True  # a page that does not know us
