"""The graph as SVG that stands alone: presentation attributes, inlined icons, readable text.

Text takes the page's own colour, so that it can be read on light and on dark.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from html import escape
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.views.icons import shapes
from op_jupyter.views.layout import Layout, Row
from op_jupyter.views.text import one_line
from op_jupyter.views.words import LOOKS, session_nodes, stable

_ROW: Final = 28
_LANE: Final = 26
_PAD: Final = 18
_TOP: Final = 8
_RADIUS: Final = 8
_GUTTER_LANES: Final = 6
_WIDTH: Final = 760
_STATE_WIDTH: Final = 96
_PLAIN: Final = ' fill="currentColor"'
_MUTED: Final = ' fill="currentColor" opacity="0.7"'
_ROLE_COLOURS: Final = {
    "user": "currentColor",
    "model": "#1976d2",
    "function": "#0097a7",
    "summary": "#0097a7",
    "tool": "#7a7a7a",
}
_STATUS_COLOURS: Final = {
    "done": "#388e3c",
    "running": "#1976d2",
    "waiting": "#e67700",
    "failed": "#d32f2f",
    "denied": "#d32f2f",
}
_GREY: Final = "#7a7a7a"
# JupyterLab drops the tags of a drawing and keeps its words where a notebook is not trusted.  So
# there are marks between them that are not drawn, and after each row a tag that is nothing in a
# drawing and a block of its own on such a page.
_ROW_END: Final = "<figcaption></figcaption>"


def graph_svg(
    nodes: Iterable[Mapping[str, Any]], *, old: Collection[str] = (), title: str = "Graph"
) -> str:
    """Draw *nodes* (`core.updates.node_view`), in order; rows whose node is *old* are grey."""
    shown = {node["id"]: node for node in nodes}
    layout = Layout()
    for node in shown.values():
        layout.add(node)
    lanes = max(1, len(layout.lanes))
    gutter = lanes * _LANE + 12
    width = _WIDTH + max(0, lanes - _GUTTER_LANES) * _LANE
    height = 2 * _TOP + len(layout.rows) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        *_guides(layout),
        *(edge for row in layout.rows for edge in _edges(layout, row)),
        *(_row(row, shown[row.id], row.id in old, gutter, width) for row in layout.rows),
        "</svg>",
    ]
    return "\n".join(parts)


def session_svg(dag: Dag) -> str:
    """Draw a whole session; what the active line has left behind is grey."""
    return graph_svg(session_nodes(dag), old=old_nodes(dag), title="Graph of the session")


def old_nodes(dag: Dag) -> set[str]:
    """Ids of the nodes that the active line does not lead through."""
    spine = {node.id for node in dag.spine()}
    old: set[str] = set()
    for node in dag:  # in order of seq: callers come before what they call
        if node.caller is not None:
            left = node.caller in old
        elif node.role == "code":
            left = node.id not in spine and node.predecessor not in spine | {None}
        else:
            left = node.id not in spine
        if left:
            old.add(node.id)
    return old


def _x(row: Row) -> int:
    return _PAD + row.lane * _LANE


def _y(row: Row) -> int:
    return _TOP + row.row * _ROW + _ROW // 2


def _guides(layout: Layout) -> Iterable[str]:
    """A faint line down each lane, broken where a node stands."""
    bottom = 2 * _TOP + len(layout.rows) * _ROW - 4
    for lane in range(len(layout.lanes)):
        x = _PAD + lane * _LANE
        path, at = "", 4
        for y in (_y(row) for row in layout.rows if row.lane == lane):
            path += f"M{x} {at}V{max(at, y - _RADIUS - 2)}"
            at = y + _RADIUS + 2
        yield f'<path d="{path}M{x} {at}V{bottom}" stroke="{_GREY}" opacity="0.25" fill="none"/>'


def _edges(layout: Layout, row: Row) -> Iterable[str]:
    after = layout.row_of(row.after) if row.after else None
    caller = layout.row_of(row.caller) if row.caller else None
    if after is not None:
        yield _comes_after(after, row)
    if caller is not None:
        yield _called_by(caller, row)


def _comes_after(before: Row, row: Row) -> str:
    """Solid, in the lane's centre, with an arrow."""
    x1, y1, x2, y2 = _x(before), _y(before), _x(row), _y(row)
    if x1 == x2:
        path = f"M{x1} {y1 + _RADIUS}V{y2 - _RADIUS - 5}"
    else:
        side = 1 if x2 > x1 else -1
        path = (
            f"M{x1 + side * 4} {y1 + _RADIUS}v1q0 4 {side * 4} 4H{x2 - side * 5}"
            f"q{side * 5} 0 {side * 5} 5V{y2 - _RADIUS - 5}"
        )
    arrow = f"M{x2 - 3.5} {y2 - _RADIUS - 6}h7l-3.5 5z"
    return (
        f'<path d="{path}" fill="none" stroke="{_GREY}" stroke-width="1.5"/>'
        f'<path d="{arrow}" fill="{_GREY}"/>'
    )


def _called_by(caller: Row, row: Row) -> str:
    """Dashed, in the gutter right of the caller's lane, with a dot at the caller."""
    x1, y1, x2, y2 = _x(caller), _y(caller), _x(row), _y(row)
    colour, trunk, start = _ROLE_COLOURS["model"], x1 + _LANE // 2, x1 + _RADIUS + 1
    path = f"M{start} {y1}H{trunk - 3}q3 0 3 3V{y2 - 4}q0 4 4 4H{x2 - _RADIUS - 1}"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" '
        f'stroke-dasharray="3 3"/><circle cx="{start}" cy="{y1}" r="2.5" fill="{colour}"/>'
    )


def _row(row: Row, first: Mapping[str, Any], old: bool, gutter: int, width: int) -> str:
    y = _y(row)
    icon, word = LOOKS.get(row.status, ("interrupted", row.status))
    state_x = width - _STATE_WIDTH
    lines = [_glyph(row, word, old)]
    x = gutter + 4
    name = _cut(first["name"], state_x - x - 60, 7.4)
    muted = _MUTED if old else _PLAIN
    lines.append(_text(x, y, name, f'{muted} font-family="monospace" font-weight="600"'))
    x += round(_width(name, 7.4)) + 8
    times = len(row.members)
    tag = f"×{times}" if times > 1 else ("fork" if row.forked else "")
    if tag:
        lines.append(_tag(x, y, tag))
        x += round(_width(tag, 7.0)) + 18
    label = _loop_text(row) if times > 1 else stable(first["label"])
    if label := _cut(label, state_x - x - 8, 6.6):
        lines.append(_text(x, y, label, _MUTED, before="– "))
    if row.kind != "user" or word != "done":
        colour = _STATUS_COLOURS.get(word, _GREY)
        lines.append(_icon(icon, state_x, y - 7, 14, colour))
        lines.append(_text(state_x + 18, y, word, _PLAIN, before="(", after=")"))
    lines.append(_ROW_END)
    return "\n".join(line for line in lines if line)


def _loop_text(row: Row) -> str:
    if row.status == "completed":
        return "loop, all done"
    counts = sorted((status, number) for status, number in row.statuses.items() if number)
    told = (f"{number} {LOOKS.get(status, ('', status))[1]}" for status, number in counts)
    return f"loop, {', '.join(told)}"


def _glyph(row: Row, word: str, old: bool) -> str:
    """The shape tells the role, the icon repeats it."""
    x, y = _x(row), _y(row)
    shape = {
        "user": f'<circle cx="{x}" cy="{y}" r="{_RADIUS}"/>',
        "function": f'<path d="M{x - 9} {y}l4.5-8h9l4.5 8l-4.5 8h-9z"/>',
    }.get(row.kind)
    if shape is None:
        corner = ' rx="4"' if row.kind == "model" else ""
        shape = f'<rect x="{x - _RADIUS}" y="{y - _RADIUS}" width="16" height="16"{corner}/>'
    if word in ("cancelled", "interrupted"):
        shape = shape.replace("/>", ' stroke-dasharray="2 2"/>')
    colour = _GREY if old else _ROLE_COLOURS.get(row.kind, _GREY)
    if word in ("failed", "denied"):
        colour = _STATUS_COLOURS[word]
    return (
        f'<g fill="none" stroke="{colour}" stroke-width="1.5">{shape}</g>'
        f"{_icon(row.kind, x - 6, y - 6, 12, colour)}"
    )


def _icon(name: str, x: int, y: int, size: int, colour: str) -> str:
    return (
        f'<g transform="translate({x} {y}) scale({size / 16:g})" fill="none" stroke="{colour}" '
        f'stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round">{shapes(name)}</g>'
    )


def _text(x: int, y: int, text: str, attributes: str, *, before: str = "", after: str = "") -> str:
    """*text* at a place; *before* and *after* it, what is not drawn."""
    if not text:
        return ""
    words = f"{_undrawn(before)}{escape(text)}{_undrawn(after)}"
    return f'<text x="{x}" y="{y + 4}"{attributes}>{words}</text>'


def _undrawn(mark: str) -> str:
    return f'<tspan display="none">{mark}</tspan>' if mark else ""


def _tag(x: int, y: int, text: str) -> str:
    width = round(_width(text, 7.0)) + 10
    return (
        f'<rect x="{x}" y="{y - 8}" width="{width}" height="16" rx="2" fill="none" '
        f'stroke="{_GREY}"/><text x="{x + width / 2:g}" y="{y + 4}" text-anchor="middle" '
        f'font-size="11" font-weight="600" fill="currentColor">{escape(text)}</text>'
    )


def _width(text: str, per_char: float) -> float:
    """About how wide *text* is drawn; no font is known here, so rather too wide."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return (len(text) + wide) * per_char


def _cut(text: str, room: float, per_char: float) -> str:
    line = one_line(text, 400)
    if _width(line, per_char) <= room:
        return line
    while line and _width(line, per_char) > room - per_char:
        line = line[:-1]
    return line.rstrip() + "…" if line else ""
