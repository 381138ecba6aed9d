"""Ctrl-C waits while a change is made: half of one would be worse than a late interrupt."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

# One of these stands around every record.  What `signal` wraps around the functions of this
# module, to turn numbers into enums and back, costs ten times as much as they do.
_get_handler: Final = _signal.getsignal
_set_handler: Final = _signal.signal
_SIGINT: Final = int(signal.SIGINT)


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
            handler = _get_handler(_SIGINT)
            if callable(handler):
                self._handler = handler
                _set_handler(_SIGINT, self._catch)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            _set_handler(_SIGINT, self._handler)
            if self._caught:
                self._handler(signal.SIGINT, None)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self._caught = True
