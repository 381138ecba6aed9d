"""Text from models and tools, made safe to look at: nothing invisible, nothing that reorders.

`static/text.js` does the same in the browser; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any, Final

# Control characters other than tab and newline; marks that reorder, join or hide text; tags.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """*text* with control, bidi and zero-width characters written out as ``[U+202E]``.

    Carriage returns of line ends are dropped; lone surrogates become U+FFFD.
    """
    plain = _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n"))
    return _HIDDEN.sub(lambda found: f"[U+{ord(found.group()):04X}]", plain)


def storable(value: Any) -> Any:
    """JSON *value* without lone surrogates, which no message to a browser can carry."""
    match value:
        case str():
            return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
        case dict():
            return {storable(key): storable(item) for key, item in value.items()}
        case list() | tuple():
            return [storable(item) for item in value]
        case _:
            return value


def one_line(text: str, limit: int) -> str:
    """*text* on one line, white space collapsed, cut with an ellipsis after *limit* characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def count(number: int, noun: str) -> str:
    """*number* and *noun* in the singular or plural: ``1 step``, ``2 steps``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
