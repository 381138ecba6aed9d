"""When updates go to the browser, and in what bundles: the decisions, without clock or thread.

At most 20 messages a second.  Text alone may wait longer, so that a long answer takes few
messages: the first pieces go at once, then 24 pieces or a second's worth together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from op_jupyter.core.values import dataclass
from op_jupyter.views.model import as_lines

INTERVAL: Final = 0.05
"""Seconds between two messages, at least."""
TEXT_PIECES: Final = 24
TEXT_WAIT: Final = 1.0
"""Seconds that text alone may wait."""
_QUICK_TEXTS: Final = 4
_DELTAS: Final = frozenset({"text_delta", "reasoning_delta", "tool_call_progress"})

Item = dict[str, Any]


@dataclass(slots=True)
class Batcher:
    """Updates that wait to be sent; neighbouring pieces of one text are joined."""

    _items: list[Item] = field(default_factory=list)
    _pieces: int = 0
    _urgent: bool = False
    _since: float = 0.0
    _last_sent: float = float("-inf")
    _quick_left: int = _QUICK_TEXTS

    def add(self, envelope: Mapping[str, Any], now: float) -> None:
        """Take one envelope in its wire form."""
        if not self._items:
            self._since = now
        item = {
            "sequence": envelope["sequence"],
            "turn_id": envelope["turn_id"],
            "session_id": envelope["session_id"],
            "occurred_at_ms": envelope["occurred_at_ms"],
            "kind": envelope["kind"],
            "data": dict(envelope["data"]),
        }
        if item["kind"] in _DELTAS:
            self._pieces += 1
        else:
            self._urgent = True
        if self._items and _joinable(self._items[-1], item):
            _join(self._items[-1], item)
        else:
            self._items.append(item)

    def due_at(self) -> float | None:
        """When the waiting updates should go; None: nothing waits."""
        if not self._items:
            return None
        earliest = self._last_sent + INTERVAL
        if self._urgent or self._pieces >= TEXT_PIECES or self._quick_left:
            return earliest
        return max(earliest, self._since + TEXT_WAIT)

    def take(self, now: float) -> list[Item]:
        """All waiting updates, to be sent as one message now."""
        items, self._items = self._items, []
        if items:
            self._last_sent = now
            if self._pieces and not self._urgent and self._quick_left:
                self._quick_left -= 1
        self._pieces, self._urgent = 0, False
        return items


def _joinable(one: Item, other: Item) -> bool:
    return (
        one["kind"] == other["kind"]
        and one["kind"] in _DELTAS
        and one["data"].get("id") == other["data"].get("id")
    )


def _join(one: Item, other: Item) -> None:
    before = one["data"]["text"]
    if one["kind"] == "tool_call_progress":
        before = as_lines(before)
    one["data"]["text"] = before + other["data"]["text"]
    one["sequence"] = other["sequence"]
