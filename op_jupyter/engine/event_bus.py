"""One bus for everybody who listens: what happens in all sessions, numbered for each of them.

Publishing never waits for anybody.  Each subscription has a bounded queue of its own; one that
falls behind is dropped with a line in the log, as is a listener that raises.  The newest events
of a session are kept for whoever comes later, until the session is deleted.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Self

from op_jupyter.core.values import dataclass

log = logging.getLogger(__name__)

KEPT: Final = 512
"""Events of one session that are kept for replay."""
KEPT_SESSIONS: Final = 256
"""Sessions of which events are kept; of others, what happened longest ago is forgotten first."""
BEHIND: Final = 2_048
"""So many events may wait for a subscriber before it is dropped."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a session.

    Attributes:
        sequence: its place among the events of the session, from 1 and without gaps.
        kind: ``session.created``, ``message.received``, ``attempt.created``,
            ``attempt.started``, ``attempt.completed``, ``attempt.failed``,
            ``attempt.cancelled``, ``mcp.warning``, or a kind of `core.updates.Update`.
        data: plain JSON; ``attempt_id`` where it belongs to one.
    """

    session_id: str
    sequence: int
    occurred_at_ms: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {
            "session_id": self.session_id,
            "sequence": self.sequence,
            "occurred_at_ms": self.occurred_at_ms,
            "kind": self.kind,
            "data": dict(self.data),
        }


class Subscription:
    """Events for one subscriber, to be iterated in a thread of its own.

    Attributes:
        missed: there were events after the sequence asked for that are no longer kept.
        dropped: it fell behind and was dropped.
    """

    def __init__(self, bus: EventBus, session_id: str | None, limit: int) -> None:
        self.session_id = session_id
        self.missed = False
        self.dropped = False
        self._bus = bus
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._limit = limit
        self._over = False

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None when it was closed, or after *timeout* seconds without one."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if event is None:
            self._queue.put(None)  # whoever asks again is told again
        return event

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get()) is not None:
            yield event

    def close(self) -> None:
        """No more events; safe to call twice."""
        self._bus._remove(self)
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _put(self, event: Event) -> bool:
        """Add *event*; False: there is no more room."""
        if self._queue.qsize() >= self._limit:
            self.dropped = True
            self._end()
            return False
        self._queue.put(event)
        return True

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._queue.put(None)


class EventBus:
    """The bus of one process.  Safe to use from any thread."""

    def __init__(
        self, clock: Callable[[], float], *, kept: int = KEPT, behind: int = BEHIND
    ) -> None:
        self._clock = clock
        self._kept = kept
        self._behind = behind
        self._lock = threading.Lock()
        self._sequences: dict[str, int] = {}
        self._buffers: dict[str, deque[Event]] = {}
        self._subscriptions: list[Subscription] = []

    def publish(self, session_id: str, kind: str, data: Mapping[str, Any]) -> Event:
        """Give the event the session's next number and hand it to every subscriber."""
        with self._lock:
            sequence = self._sequences[session_id] = self._sequences.get(session_id, 0) + 1
            event = Event(session_id, sequence, int(self._clock() * 1000), kind, data)
            self._buffer(session_id).append(event)
            for subscription in tuple(self._subscriptions):
                wanted = subscription.session_id in (None, session_id)
                if wanted and not subscription._put(event):
                    self._subscriptions.remove(subscription)
                    log.warning(
                        "a subscriber to events fell %d behind and was dropped", self._behind
                    )
            return event

    def subscribe(self, session_id: str | None = None, *, after: int | None = None) -> Subscription:
        """Events from now on; of one session, those after sequence *after* first."""
        with self._lock:
            subscription = Subscription(self, session_id, self._behind)
            if session_id is not None and after is not None:
                events = self._after(session_id, after)
                subscription.missed = events is None
                for event in events or ():
                    subscription._put(event)
            self._subscriptions.append(subscription)
            return subscription

    def listen(
        self, listener: Callable[[Event], None], session_id: str | None = None
    ) -> Subscription:
        """Call *listener* with each event, on a thread of its own; closing ends that.

        One that raises is dropped, with a line in the log.
        """
        subscription = self.subscribe(session_id)
        threading.Thread(
            target=_feed, args=(subscription, listener), name="openprogram-events", daemon=True
        ).start()
        return subscription

    def replay(self, session_id: str, after: int = 0) -> list[Event] | None:
        """The kept events after sequence *after*; None when they are no longer all there."""
        with self._lock:
            return self._after(session_id, after)

    def free(self, session_id: str) -> None:
        """Forget a session that was deleted, and end the subscriptions to it."""
        with self._lock:
            self._sequences.pop(session_id, None)
            self._buffers.pop(session_id, None)
            ended = [s for s in self._subscriptions if s.session_id == session_id]
            for subscription in ended:
                self._subscriptions.remove(subscription)
                subscription._end()

    def _buffer(self, session_id: str) -> deque[Event]:
        """The events of a session, which is now the one of which something was last told."""
        kept = self._buffers.pop(session_id, None)
        if kept is None:
            kept = deque(maxlen=self._kept)
            while len(self._buffers) >= KEPT_SESSIONS:
                del self._buffers[next(iter(self._buffers))]
        self._buffers[session_id] = kept
        return kept

    def _after(self, session_id: str, after: int) -> list[Event] | None:
        kept = self._buffers.get(session_id, ())
        if after >= self._sequences.get(session_id, 0):
            return []
        if not kept or kept[0].sequence > after + 1:
            return None
        return [event for event in kept if event.sequence > after]

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)


def _feed(subscription: Subscription, listener: Callable[[Event], None]) -> None:
    for event in subscription:
        try:
            listener(event)
        except Exception:  # a listener is foreign code, and must never fail anything of ours
            log.warning("a listener to events raised and was dropped", exc_info=True)
            subscription.close()
            return
