"""The widget's one ES module and its style sheet, put together from the files in ``static/``.

Each part is an ES module of its own, so that tests and the lab extension can import it alone.
Joining them takes no tool: parts come in the order of their imports, share one scope, and
lose their ``import`` lines and ``export`` words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

PARTS: Final = (
    *("text", "dom", "leave", "icons", "words", "highlight", "inline", "markdown"),
    *("layout", "fold", "shapes", "graph", "details", "arguments", "card", "calls"),
    *("header", "view"),
)
QUESTION_PARTS: Final = ("text", "dom", "leave", "icons", "question")
_IMPORT: Final = re.compile(r'^import [^;]*? from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?!default)", re.MULTILINE)
_COMMENT: Final = re.compile(r"^ *//.*\n", re.MULTILINE)


@cache
def esm() -> str:
    """The module that the page loads: no import, one default export."""
    return joined(PARTS)


@cache
def question_esm() -> str:
    """The module of a question's form."""
    return joined(QUESTION_PARTS)


def joined(names: Iterable[str]) -> str:
    """The named parts in one scope."""
    static = files(__package__) / "static"
    parts = ((static / f"{name}.js").read_text("utf-8") for name in names)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", part))) for part in parts)


@cache
def css() -> str:
    """The style sheet; colours are the host's, with fallbacks."""
    return (files(__package__) / "static" / "agent_view.css").read_text("utf-8")
