"""Committing, off the critical path: a queue of what happened, and the thread that works it off.

A commit that fails never fails anything else: it stays at the head of the queue, `behind`
says why, and it is tried again with the next turn, at `flush`, or at the next opening.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, Protocol

from op_jupyter.errors import StoreError
from op_jupyter.store.events import SHARED_CALLS, Event, is_call, shared

SHARED_SECONDS: Final = 1.0


class Applies(Protocol):
    """Whoever knows how to write events into a repository."""

    def apply(self, events: Sequence[Event]) -> None:
        """Write *events*, which go into one commit; safe to repeat after an error."""


class Committer:
    """Owner of the queue and the thread of one open session."""

    def __init__(self, history: Applies, interval: float = SHARED_SECONDS) -> None:
        """*interval*: seconds that bare calls may wait for others to share a commit with."""
        self._history = history
        self._interval = interval
        self._queue: deque[Event] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failed: tuple[Event, ...] = ()
        self._working = False
        self._stalled = False
        self._gathering = False  # the thread looks at the clock by itself
        self._waiting = 0
        self._stopping = False
        self._then: Callable[[], None] | None = None
        self.behind = ""

    def submit(self, *events: Event) -> None:
        """Have *events* written, soon."""
        if not events:
            return
        with self._changed:
            self._queue.extend(events)
            self._stalled = False
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="op-jupyter-commits", daemon=True
                )
                self._thread.start()
            if not (self._gathering and self._is_worth_waiting()):
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until the queue is empty or its head has failed, once more."""
        with self._changed:
            self._waiting += 1
            self._stalled = self._thread is None or not self._thread.is_alive()
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle)
            self._waiting -= 1

    def abandon(self) -> None:
        """End the thread after what it is doing; the rest is found at the next opening."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def leave(self, then: Callable[[], None]) -> None:
        """Write what can be written, then do *then*; nobody waits for that, or uses this again."""
        with self._changed:
            self._then = then
            self._changed.notify_all()
            alive = self._thread is not None and self._thread.is_alive()
        if not alive:
            then()

    def _is_idle(self) -> bool:
        return not self._working and (self._stalled or self._stopping or not self._queue)

    def _run(self) -> None:
        try:
            self._work()
        finally:
            with self._changed:
                self._thread, self._stalled = None, True
                self._changed.notify_all()
                then = self._then
            if then is not None:
                then()

    def _work(self) -> None:
        while batch := self._next_batch():
            behind = "the last commit is missing: the thread that commits has died"
            try:
                self._history.apply(batch)
                behind = ""
            except (StoreError, OSError) as exc:
                behind = f"the last commit is missing: {exc}"
            finally:
                self._done(batch, behind)

    def _done(self, batch: tuple[Event, ...], behind: str) -> None:
        with self._changed:
            self.behind = behind
            self._stalled = bool(behind)
            self._working = False
            self._failed = batch if behind else ()
            if not behind:
                for _ in batch:
                    self._queue.popleft()
            self._changed.notify_all()

    def _next_batch(self) -> tuple[Event, ...]:
        """What to write next; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or (self._queue and not self._stalled))
            deadline = monotonic() + self._interval
            self._gathering = True
            while (
                not self._failed
                and self._is_worth_waiting()
                and (left := deadline - monotonic()) > 0
            ):
                self._changed.wait(left)
            self._gathering = False
            if self._is_over():
                return ()
            self._working = True
            # The same once more, not with others: some of it may have been done.
            return self._failed or shared(self._queue)

    def _is_over(self) -> bool:
        left = self._then is not None and (self._stalled or not self._queue)
        return self._stopping or left

    def _is_worth_waiting(self) -> bool:
        """Only a few bare calls are there, more may come, and nobody waits."""
        return (
            not self._waiting
            and not self._failed
            and not self._stopping
            and self._then is None
            and len(self._queue) < SHARED_CALLS
            and all(map(is_call, self._queue))
        )
