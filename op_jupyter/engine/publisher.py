"""Numbers updates and hands them to listeners; never waits for one.

The sequence of a session is given out here alone, from 1 and without gaps.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from op_jupyter.core.live import LiveState
from op_jupyter.core.updates import RING_SIZE, Envelope, Update

Listener: TypeAlias = Callable[[Envelope], None]

log = logging.getLogger(__name__)


class Publisher:
    """One session's stream of updates.  Safe to use from any thread."""

    def __init__(self, session_id: str, clock: Callable[[], float]) -> None:
        self._session_id = session_id
        self._clock = clock
        self._lock = threading.RLock()
        self._sequence = 0
        self._ring: deque[Envelope] = deque(maxlen=RING_SIZE)
        self._listeners: list[Listener] = []
        self._live = LiveState()

    def publish(self, turn_id: str | None, update: Update) -> Envelope:
        """Give *update* the next number and hand it to every listener, in order."""
        with self._lock:
            self._sequence += 1
            envelope = Envelope(
                self._session_id, turn_id, self._sequence, int(self._clock() * 1000), update
            )
            self._ring.append(envelope)
            self._live.apply(envelope)
            for listener in tuple(self._listeners):
                self._hand_over(listener, envelope)
            return envelope

    def _hand_over(self, listener: Listener, envelope: Envelope) -> None:
        try:
            listener(envelope)
        except Exception:  # a listener is foreign code, and must never fail the turn
            log.warning(
                "a listener of session %s raised and was dropped", self._session_id, exc_info=True
            )
            self._listeners.remove(listener)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* with each update from now on; returns what ends that.

        It is called on the publishing thread and has to be quick.
        """
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def replay(self, after: int) -> list[Envelope] | None:
        """The updates after sequence *after*; None when they are no longer all there."""
        with self._lock:
            if after >= self._sequence:
                return []
            if not self._ring or self._ring[0].sequence > after + 1:
                return None
            return [e for e in self._ring if e.sequence > after]

    def live(self) -> tuple[int, dict[str, Any]]:
        """The last sequence, and the live state as it was right then."""
        with self._lock:
            return self._sequence, copy.deepcopy(self._live.to_json())
