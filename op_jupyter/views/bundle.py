"""The widget's one ES module and its style sheet, put together from the files in ``static/``.

Each part is an ES module of its own, so that tests and the lab extension can import it alone.
Joining them takes no tool: parts come in the order of their imports, share one scope, and
lose their ``import`` lines and ``export`` words.
"""

from __future__ import annotations

import hashlib
import json
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


_LOADER: Final = """\
const place = Symbol.for("op-jupyter %s");
async function load(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}
async function render({ model, el }) {
  const source = model.get("source");
  if (source) globalThis[place] ??= load(source);
  if (!globalThis[place]) {
    el.textContent = model.get("state")?.answer ?? "";
    return undefined;
  }
  model.set("source", "");
  return (await globalThis[place]).render({ model, el });
}
export default { render };
"""
_STYLED: Final = """
const sheet = document.createElement("style");
sheet.textContent = %s;
document.head.append(sheet);
"""


def styled(module: str) -> str:
    """*module*, which then brings the style sheet along."""
    return module + _STYLED % json.dumps(css())


def loader(source: str) -> str:
    """The module of one widget: it draws with the module *source*, its trait of that name.

    A page keeps every module that it ever loaded, and anywidget loads one for each widget; and
    JupyterLab keeps what each widget was sent.  So the page loads *source* once for all turns,
    and each widget forgets it then, in the page.  Only its last words are left to a page that
    has neither a kernel nor another widget.
    """
    return _LOADER % hashlib.sha256(source.encode()).hexdigest()[:16]


@cache
def esm() -> str:
    """The module that draws a turn: no import, one default export."""
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
