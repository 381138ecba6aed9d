"""One live turn between the session and its page: keep the state, send it on in batches.

Knows no widget: it is given a function that sends, and `agent_view` is that function's owner.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from op_jupyter.core.permissions import Answer, PermissionAnswer
from op_jupyter.core.updates import Envelope
from op_jupyter.views.batching import Batcher
from op_jupyter.views.model import State, TurnModel
from op_jupyter.views.text import storable

Send = Callable[[dict[str, Any]], None]

_ANSWERS: Final = frozenset({"allow", "allow_session", "deny", "deny_message"})


class LiveTurn:
    """The state of the turn on this side of the wire, and what is still to be sent.

    Every method may be called from any thread.  *send* is called by one thread at a time,
    never while the caller of `feed` waits.
    """

    def __init__(
        self,
        send: Send,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()  # guards everything below
        self._sending = threading.Lock()  # keeps messages in order; taken before _lock
        self._wake = threading.Condition(self._lock)
        self._model = TurnModel()
        self._batcher = Batcher()
        self._turn_id: str | None = None
        self._client_request_id: str | None = None
        self._handed_over: set[str] = set()
        self._held: list[Mapping[str, Any]] | None = None
        self._expired = False
        self._closed = False
        self._pacer: threading.Thread | None = None
        self.extras: dict[str, Any] = {}

    def follow(self, *, turn_id: str | None = None, client_request_id: str | None = None) -> None:
        """Show only that turn; with neither, the first one that starts from now on."""
        with self._lock:
            self._turn_id = turn_id
            self._client_request_id = client_request_id

    def hold(self) -> None:
        """Keep what is fed until `join`: a snapshot is being taken."""
        with self._lock:
            self._held = []

    def join(self, model: TurnModel | None) -> None:
        """Start from *model*, if given, and go on with what was held meanwhile."""
        with self._lock:
            if model is not None:
                self._model = model
                self._turn_id = model.state["turn_id"]
            held, self._held = self._held or [], None
            for wire in held:
                self._take(wire)

    def state(self) -> State:
        """A copy of the turn's state so far."""
        with self._lock:
            return self._model.to_json()

    def feed(self, envelope: Envelope | Mapping[str, Any]) -> None:
        """Take one update of the session; those of other turns are dropped."""
        wire = envelope.to_json() if isinstance(envelope, Envelope) else envelope
        with self._lock:
            if self._held is not None:
                self._held.append(wire)
            else:
                self._take(wire)

    def _take(self, wire: Mapping[str, Any]) -> None:
        if self._closed or not self._is_ours(wire) or not self._model.apply(wire):
            return
        if wire["kind"] == "permission_requested":
            self._handed_over.discard(wire["data"]["id"])  # a service may use an id again
        self._batcher.add({**wire, "data": storable(dict(wire["data"]))}, self._clock())
        self._wake.notify()

    def _is_ours(self, wire: Mapping[str, Any]) -> bool:
        if self._turn_id is None and wire["kind"] == "turn_started":
            request = self._client_request_id
            if request is None or wire["data"].get("client_request_id") == request:
                self._turn_id = wire["turn_id"]
        return self._turn_id is not None and wire["turn_id"] == self._turn_id

    # -- towards the page

    def start_pacing(self) -> None:
        """Send what is fed from now on from a thread, at the batcher's pace.

        The thread carries the caller's context, so that what it sends belongs to this cell.
        """
        with self._lock:
            if self._pacer is not None or self._closed:
                return
            context = contextvars.copy_context()
            self._pacer = threading.Thread(
                target=context.run, args=(self._pace,), name="op-jupyter-view", daemon=True
            )
        self._pacer.start()

    def _pace(self) -> None:
        while self._wait_until_due():
            self.flush()

    def _wait_until_due(self) -> bool:
        """Sleep until something should be sent; False once closed."""
        with self._lock:
            while not self._closed:
                due = self._batcher.due_at()
                left = None if due is None else due - self._clock()
                if left is not None and left <= 0:
                    return True
                self._wake.wait(left)
            return False

    def flush(self) -> None:
        """Send everything that waits, now."""
        with self._sending:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            items = self._batcher.take(self._clock())
        if items:
            self._send({"kind": "updates", "items": items})

    def send_snapshot(self) -> None:
        """Send the whole state, after everything that waits."""
        with self._sending:
            self._flush()
            with self._lock:
                message = {
                    "kind": "snapshot",
                    "state": self._model.to_json(),
                    "now_ms": int(self._wall_clock() * 1000),
                    "expired": self._expired,
                    **self.extras,
                }
            self._send(message)

    def send(self, message: dict[str, Any]) -> None:
        """Send something that is no update."""
        with self._sending:
            self._send(storable(message))

    def expire(self) -> None:
        """Say that nobody will take an answer any more."""
        with self._lock:
            self._expired = True
        self.flush()
        self.send({"kind": "expire"})

    def close(self) -> None:
        """Send the rest and stop; what is fed later is dropped."""
        with self._lock:
            self._closed = True
            self._wake.notify_all()
            pacer = self._pacer
        if pacer is not None and pacer is not threading.current_thread():
            pacer.join(timeout=2.0)
        self.flush()

    # -- from the page

    def take_decision(self, content: Mapping[str, Any]) -> tuple[str, PermissionAnswer] | None:
        """The answer in a click, once for each open card; None: stale, doubled or malformed."""
        answer = read_answer(content)
        call_id = content.get("id")
        with self._lock:
            request = self._model.state["permission"]
            if answer is None or self._expired or request is None or request["id"] != call_id:
                return None
            if call_id in self._handed_over:
                return None
            self._handed_over.add(call_id)
        return call_id, answer


def read_answer(content: Mapping[str, Any]) -> PermissionAnswer | None:
    """The answer in a message of a page's card; None: it is malformed."""
    answer, arguments = content.get("answer"), content.get("arguments")
    message = content.get("message") or ""
    well_formed = (
        isinstance(answer, str)
        and answer in _ANSWERS
        and isinstance(arguments, dict | None)
        and isinstance(message, str)
        and (bool(message.strip()) or answer != "deny_message")
    )
    if not well_formed:
        return None
    return PermissionAnswer(cast("Answer", answer), "click", arguments, message)
