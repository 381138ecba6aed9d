"""The stop button, while the main thread is lent to a turn.

An interrupt that is raised wherever the thread happens to be can be lost (inside a destructor
Python only prints it) or cut a hand-over in two, and then the cell, or the kernel, hangs.  So it
is noted, and raised by `Interrupts.check` where the wait is whole.  Code that is not ours (the
`python` tool, a widget's callback) is interrupted at once: that is what `Interrupts.call` is for.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections import deque
from collections.abc import Callable
from time import sleep
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

T = TypeVar("T")
Wanted: TypeAlias = "Callable[[], bool]"

_TAKES_A_LOCK: Final = threading.Condition.__enter__.__code__
"""Raised in there once the lock is taken, an interrupt would leave it locked: nothing has been
entered yet that could be left.  ``print(flush=True)`` in a kernel comes through there, and the
thread that sends all output would wait for that lock for ever."""
_MOMENT_SECONDS: Final = 0.01


class Interrupts:
    """SIGINT as a note.  Main thread only; may be entered again inside itself."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._outer: list[bool] = []
        self._previous: Any = None
        self._noted = False
        self._raise_at_once = False
        self._calls = 0
        self._kicks: deque[Wanted] = deque()
        self._kicked: list[Wanted] = []

    def __enter__(self) -> Self:
        if not self._outer:
            self._noted = False
            self._previous = signal.getsignal(signal.SIGINT)
            if self._previous is not None:  # else C code installed it: it could not be put back
                signal.signal(signal.SIGINT, self._arrive)
        self._outer.append(self._raise_at_once)
        self._raise_at_once = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._raise_at_once = self._outer.pop()
        if self._outer or self._previous is None:
            return
        signal.signal(signal.SIGINT, self._previous)
        if self._noted and kind is None and callable(self._previous):
            self._previous(signal.SIGINT, None)

    @property
    def noted(self) -> bool:
        """Whether an interrupt came since the outermost entry, or since `clear`."""
        return self._noted

    def check(self) -> None:
        """Raise the interrupt that was noted.  It stays noted: stop means stop, on every level."""
        self._kicked = [wanted for wanted in self._kicked if wanted()]
        if self._noted or self._kicked:
            raise KeyboardInterrupt

    def clear(self) -> None:
        """Forget it; what has to be done about it is being done."""
        self._noted = False

    def call(self, function: Callable[[], T]) -> T:
        """Call *function*, in which an interrupt is raised at once."""
        outer = self._raise_at_once
        self._calls += 1
        try:
            self._raise_at_once = True
            self.check()
            return function()
        finally:
            self._raise_at_once = outer

    def kick(self, wanted: Wanted) -> None:
        """From any thread: interrupt what the main thread is calling, while *wanted* says so.

        Nothing is noted: this stops a call, not the wait around it.
        """
        self._kicks.append(wanted)
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)

    def _arrive(self, _number: int, frame: FrameType | None) -> None:
        if self._kicks:
            wanted = self._kicks.popleft()
            if not wanted():
                return
            # Kept: what is interrupted now may only be something inside of what is meant.
            self._kicked.append(wanted)
        else:
            self._noted = True
        self._wake()
        if not self._raise_at_once:
            return
        if frame is None or frame.f_code is not _TAKES_A_LOCK:
            raise KeyboardInterrupt
        # Not by a class of `threading`: its conditions are what must not be touched here.
        _thread.start_new_thread(self._kick_in_a_moment, (self._calls,))

    def _kick_in_a_moment(self, number: int) -> None:
        def wanted() -> bool:
            return self._raise_at_once and self._calls == number

        sleep(_MOMENT_SECONDS)
        if wanted():
            self.kick(wanted)
