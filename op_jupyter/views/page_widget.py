"""A widget that gives way to static content, in pages that were loaded again as well.

A page replaces a display's content by itself, unless it was loaded after the display was made:
then it no longer knows where that is.  There the widget's own JavaScript does it
(`static/leave.js`), when the kernel says what stays.  So a widget is free only once a page has
said that it is gone, or when so many others have been left behind that nobody looks at it.

Where its output is cleared meanwhile, the page says so, and whoever needs it can show it again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import anywidget

from op_jupyter.views.text import storable

_LEFT_BEHIND: Final = 8


class PageWidget(anywidget.AnyWidget):
    """What a page shows for a while, and then what stays.

    Attributes:
        ready: set while a page shows it, as far as is known; only then can somebody click.
    """

    # Those that wait for a page to say that they are gone; front ends may never do so.
    _left_behind: ClassVar[deque[PageWidget]] = deque()

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.ready = threading.Event()
        self._stays: dict[str, Any] | None = None
        self._was_shown = False
        self._reloaded = False
        self.on_msg(self._receive)

    def close(self) -> None:
        """Close it, and the layout that ipywidgets gave it, which is a widget with a comm too."""
        layout = self.layout
        super().close()
        if layout is not None:
            layout.close()

    @property
    def lost(self) -> bool:
        """Whether the page that showed it does so no more, and its notebook has no place for it."""
        return self._was_shown and not self.ready.is_set()

    def leave(self, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Say what stays: the MIME bundle *content*; before the display itself is replaced."""
        if not self.ready.is_set():
            self.close()
            return
        self._stays = {
            "kind": "leave",
            "model_id": self.model_id,
            "data": storable(dict(content)),
            "metadata": dict(metadata or {}),
        }
        if self._reloaded:
            self.send(self._stays)
        self._left_behind.append(self)
        while len(self._left_behind) > _LEFT_BEHIND:
            self._left_behind.popleft().close()

    def hear(self, content: Mapping[str, Any]) -> None:
        """Take one message of the page's; on any thread, so: hand over, nothing else."""
        raise NotImplementedError

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        if not isinstance(content, dict):
            return
        if content.get("kind") == "ready":
            self._reloaded, self._was_shown = self._was_shown, True
            self.ready.set()
        elif content.get("kind") == "here":
            self.ready.set()
        self.hear(content)
        if self._stays is None:
            if content.get("kind") == "removed" and content.get("cleared") is True:
                self.ready.clear()
                self.send({"kind": "who"})  # another page may show it as well: it says "here"
            return
        if content.get("kind") == "ready":
            self.send(self._stays)
        elif content.get("kind") == "removed":
            self.close()
