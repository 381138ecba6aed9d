"""Icons of the saved graph: 16 px grid, 1.5 px stroke, in the colour of the text around them.

`static/icons.js` holds the same shapes for the live view; a test compares them.
"""

from __future__ import annotations

from typing import Final

# "c cx cy r" a circle, "r x y size" a square with round corners, anything else a path.
ICONS: Final[dict[str, tuple[str, ...]]] = {
    "user": ("c 8 5.5 2.5", "M3 13.5c.6-2.7 2.5-4 5-4s4.4 1.3 5 4"),
    "model": (
        "r 4.5 4.5 7",
        "M6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
    ),
    "function": (
        "M6 2.5c-1.5 0-2 .6-2 2v1.7c0 .9-.5 1.5-1.5 1.8 1 .3 1.5.9 1.5 1.8v1.7c0 1.4.5 2 2 2",
        "M10 2.5c1.5 0 2 .6 2 2v1.7c0 .9.5 1.5 1.5 1.8-1 .3-1.5.9-1.5 1.8v1.7c0 1.4-.5 2-2 2",
    ),
    "tool": (
        "M13.5 4.7a3.3 3.3 0 0 1-4.3 4l-4.4 4.5a1.4 1.4 0 0 1-2-2l4.5-4.4a3.3 3.3 0 0 1 "
        "4-4.3L9.5 4.3l.4 1.8 1.8.4z",
    ),
    "summary": ("M3 4h10M3 8h10M3 12h6",),
    "ok": ("M3 8.5l3.2 3.2L13 4.8",),
    "running": ("M8 2.5a5.5 5.5 0 1 1-5.5 5.5",),
    "waiting": ("c 8 8 5.5", "M6.5 6v4M9.5 6v4"),
    "failed": ("M4 4l8 8M12 4l-8 8",),
    "denied": ("c 8 8 5.5", "M4.2 4.2l7.6 7.6"),
    "cancelled": ("r 4 4 8",),
    "interrupted": ("M2 8h3.5l1-3M9.5 11l1-3H14M9 3.5L7 12.5",),
}


def shapes(name: str) -> str:
    """The SVG elements of that icon."""
    return "".join(_element(spec) for spec in ICONS[name])


def _element(spec: str) -> str:
    match spec.split(" "):
        case ["c", cx, cy, radius]:
            return f'<circle cx="{cx}" cy="{cy}" r="{radius}"/>'
        case ["r", x, y, size]:
            return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="1"/>'
        case _:
            return f'<path d="{spec}"/>'
