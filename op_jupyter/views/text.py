"""Text from models and tools, made safe to look at: nothing invisible, nothing that reorders.

`static/text.js` does the same in the browser; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any, Final

from op_jupyter.core.visible import visible as visible

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


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


def fenced(text: str) -> str:
    """*text* as a block of Markdown that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
