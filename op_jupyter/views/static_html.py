"""What stays in the saved notebook: a turn as text, HTML and JSON, without kernel or script.

The same turn gives the same bytes in every run: no ids, times, addresses or costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from op_jupyter.core.updates import bounded
from op_jupyter.views.layout import Layout
from op_jupyter.views.markdown import to_html
from op_jupyter.views.model import outcome_word
from op_jupyter.views.svg import graph_svg
from op_jupyter.views.terminal import graph_lines
from op_jupyter.views.text import count, visible
from op_jupyter.views.words import (
    arguments_preview,
    arguments_text,
    call_status,
    failure_text,
    plan_mark,
    plan_progress,
    stable,
    summary_line,
    with_call_labels,
)

MIME_TYPE: Final = "application/vnd.openprogram.turn+json"
_HEAD_CHARS: Final = 8_000
_TAIL_CHARS: Final = 2_000
# Styles only add comfort: every one may be removed.
_LINE: Final = "1px solid rgba(128,128,128,.4)"
_FRAME: Final = (
    f"border:{_LINE};border-radius:2px;padding:8px 12px 0;overflow-wrap:anywhere;overflow:hidden"
)
_FOLD: Final = f"border-top:{_LINE};padding:4px 0"
_LIST: Final = "list-style:none;margin:4px 0 8px;padding-left:16px"
_BOX: Final = "background:rgba(128,128,128,.12);padding:4px 8px;margin:4px 0;overflow:auto"


def static_bundle(state: Mapping[str, Any], afterwards: Sequence[str] = ()) -> dict[str, Any]:
    """The MIME bundle of a turn (`views.model.TurnModel.to_json`).

    *afterwards*: what was done at its end because the person asked for it, in lines of text.
    """
    return {
        "text/plain": plain_text(state, afterwards),
        "text/html": turn_html(state, afterwards),
        MIME_TYPE: turn_json(state, afterwards),
    }


def plain_text(state: Mapping[str, Any], afterwards: Sequence[str] = ()) -> str:
    """The answer, or why there is none, and one line of summary."""
    said = visible(state["answer"]).strip() or failure_text(state)
    ends = _ends(state, afterwards)
    return f"{said}\n\n{ends}" if said else ends


def _ends(state: Mapping[str, Any], afterwards: Sequence[str]) -> str:
    return "\n".join([summary_line(state), *map(visible, afterwards)])


def turn_json(state: Mapping[str, Any], afterwards: Sequence[str] = ()) -> dict[str, Any]:
    """The turn for the lab extension, which draws it interactively."""
    return {
        "version": 1,
        "answer_markdown": visible(state["answer"]).strip() or failure_text(state),
        "status": outcome_word(state),
        "summary": _ends(state, afterwards),
        "graph": {"nodes": graph_nodes(with_call_labels(state))},
        "calls": [
            {
                "name": visible(call["name"]),
                "arguments": _cut(arguments_text(call["arguments"])),
                "result": _cut(stable(call["text"])),
                "status": call_status(call),
            }
            for call in state["calls"]
        ],
        **({"plan": _plan_steps(state)} if state["plan"] else {}),
    }


def _plan_steps(state: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"text": stable(step["text"]), "status": step["status"]} for step in state["plan"]]


def graph_nodes(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The nodes numbered from 1, with the ends of the edges that are drawn."""
    layout = Layout()
    number: dict[str, int] = {}
    rows = []
    for node in nodes:
        number[node["id"]] = len(number) + 1
        rows.append((node, layout.add(node)))
    return [
        {
            "id": number[node["id"]],
            "role": node["role"],
            "kind": "function" if node["kind"] == "summary" else node["kind"],
            "name": visible(node["name"]),
            "label": stable(node["label"]),
            "status": node["status"],
            "row": row.row,
            "lane": row.lane,
            "predecessor": None if row.after is None else number[row.after],
            "caller": None if row.caller is None else number[row.caller],
        }
        for node, row in rows
    ]


def turn_html(state: Mapping[str, Any], afterwards: Sequence[str] = ()) -> str:
    """The turn as HTML that reads well with every style removed."""
    answer = to_html(state["answer"])
    failure = "" if state["answer"].strip() else failure_text(state)
    parts = [
        f'<div style="overflow-x:auto">\n{answer}</div>' if answer else "",
        f"<p>{escape(failure)}</p>" if failure else "",
        _plan(state),
        *(_call(call) for call in state["calls"]),
        _graph(with_call_labels(state)),
        f'<p style="{_FOLD};margin:0"><small>{_last_lines(state, afterwards)}</small></p>',
    ]
    inside = "\n".join(part for part in parts if part)
    return f'<div style="{_FRAME}">\n{inside}\n</div>'


def _last_lines(state: Mapping[str, Any], afterwards: Sequence[str]) -> str:
    return escape(_ends(state, afterwards)).replace("\n", "<br>")


def _plan(state: Mapping[str, Any]) -> str:
    if not state["plan"]:
        return ""
    items = "\n".join(
        f"<li>{escape(plan_mark(step['status']))} {escape(step['text'])}</li>"
        for step in _plan_steps(state)
    )
    title = f"Plan, {plan_progress(state['plan'])}"
    return (
        f'<details open style="{_FOLD}"><summary>{title}</summary>\n'
        f'<ol style="{_LIST}">\n{items}\n</ol>\n</details>'
    )


def _call(call: Mapping[str, Any]) -> str:
    preview = escape(arguments_preview(call["name"], call["arguments"]))
    shown = f" <code>{preview}</code>" if preview else ""
    arguments = _cut(arguments_text(call["arguments"]))
    result = _cut(stable(call["text"]))
    boxes = [
        f'<small>{label}</small>\n<pre style="{_BOX}">{escape(text)}</pre>'
        for label, text in (("Arguments", arguments), ("Result", result))
        if text
    ]
    inside = "\n".join(boxes) or "<p>No arguments, no result.</p>"
    return (
        f'<details style="{_FOLD}"><summary><b>{escape(visible(call["name"]))}</b>{shown}: '
        f"{escape(call_status(call))}</summary>\n{inside}\n</details>"
    )


def _graph(nodes: Sequence[Mapping[str, Any]]) -> str:
    if not nodes:
        return ""
    title = f"Graph, {count(len(nodes), 'node')}"
    drawing = graph_svg(nodes, title="Graph of the turn, oldest first")
    scroller = f'<div style="overflow-x:auto">\n{drawing}\n</div>'
    # Where a page lets no drawing through: notebooks that are not trusted, and some web pages.
    lines = escape("\n".join(graph_lines(nodes)))
    words = f'<summary>The graph as text</summary>\n<pre style="{_BOX}">{lines}</pre>'
    inside = f"{scroller}\n<details>{words}\n</details>"
    return f'<details open style="{_FOLD}"><summary>{title}</summary>\n{inside}\n</details>'


def _cut(text: str) -> str:
    return bounded(text, _HEAD_CHARS, _TAIL_CHARS)
