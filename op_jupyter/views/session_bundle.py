"""The graph of a whole session as one display, for every kind of front end."""

from __future__ import annotations

from typing import Final

from op_jupyter.core.graph import Dag
from op_jupyter.views.svg import session_svg
from op_jupyter.views.terminal import session_lines
from op_jupyter.views.text import fenced

NOTHING_YET: Final = "Nothing has happened in this session yet."


def session_bundle(dag: Dag) -> dict[str, str]:
    """The MIME bundle: rows of text, the same as Markdown, and a drawing."""
    if not len(dag):
        return {"text/plain": NOTHING_YET}
    lines = "\n".join(session_lines(dag))
    drawing = f'<div style="overflow-x:auto">{session_svg(dag)}</div>'
    return {"text/plain": lines, "text/markdown": fenced(lines), "text/html": drawing}
