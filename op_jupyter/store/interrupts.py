"""Ctrl-C waits while a change is made: half of one would be worse than a late interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Uninterrupted:
    """Holds SIGINT back in the main thread, and lets it through at the end.

    An interrupt would otherwise come out of an fsync that has just succeeded: on disk the
    record would be there, in the graph it would not.
    """

    __slots__ = ("_caught", "_handler")

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._caught = False

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._catch)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._caught:
                self._handler(signal.SIGINT, None)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self._caught = True
