"""A whole session as a document: Markdown, a page of HTML, a notebook.

What people, models and tools wrote is shown and never obeyed: no script, no address that a page
would fetch, no markup of theirs but a model's Markdown, which is sanitised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from op_jupyter.core.attempts import nodes_by_turn
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.views.static_html import static_bundle, turn_html
from op_jupyter.views.stored_turn import prompt_text_of, stored_state
from op_jupyter.views.text import count, fenced, one_line, storable, visible
from op_jupyter.views.words import (
    arguments_text,
    call_status,
    failure_text,
    plan_mark,
    stable,
    summary_line,
)

_TITLE_CHARS: Final = 200
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "overflow-wrap:anywhere}pre{white-space:pre-wrap}h2{font-size:1.1rem}"
    ".prompt{white-space:pre-wrap;border-left:4px solid #888;padding-left:1rem}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#8bf}}"
)
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def to_markdown(dag: Dag) -> str:
    """The session as Markdown, HTML of other people's taken apart."""
    parts = [f"# {_escaped(_title(dag))}", _about(dag)]
    for number, (turn, nodes) in enumerate(_with_nodes(dag), 1):
        parts += [f"## {number}. {_escaped(one_line(turn.subject, _TITLE_CHARS))}"]
        parts += _turn_markdown(dag, turn, nodes)
    return "\n\n".join(part for part in parts if part) + "\n"


def _turn_markdown(dag: Dag, turn: Turn, nodes: Sequence[Node]) -> Iterator[str]:
    state = stored_state(dag, turn, nodes)
    yield fenced(visible(prompt_text_of(dag, turn)))
    for step in state["plan"]:
        yield f"- {plan_mark(str(step['status']))} {_escaped(stable(str(step['text'])))}"
    for call in state["calls"]:
        yield f"**{_escaped(visible(call['name']))}**: {call_status(call)}"
        for text in (arguments_text(call["arguments"]), stable(call["text"])):
            if text:
                yield fenced(text)
    yield _inert(visible(state["answer"]).strip()) or _escaped(failure_text(state))
    yield f"*{_escaped(summary_line(state))}*"


def to_html(dag: Dag) -> str:
    """The session as one page that needs nothing else, and fetches nothing."""
    title = escape(_title(dag))
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{title}</h1>\n<p>{escape(_about(dag))}</p>",
    ]
    for number, (turn, nodes) in enumerate(_with_nodes(dag), 1):
        prompt = escape(visible(prompt_text_of(dag, turn)))
        subject = escape(one_line(turn.subject, _TITLE_CHARS))
        parts.append(f'<section id="turn-{number}">\n<h2>{number}. {subject}</h2>')
        parts.append(f'<div class="prompt">{prompt}</div>')
        parts.append(f"{turn_html(stored_state(dag, turn, nodes))}\n</section>")
    return "\n".join([*parts, "</body>\n</html>"]) + "\n"


def to_notebook(dag: Dag) -> str:
    """The session as a notebook: each prompt a cell, with the turn as its output."""
    cells = [
        _cell("markdown", f"# {_escaped(_title(dag))}\n\n{_about(dag)}"),
        _cell("code", "%load_ext openprogram"),
    ]
    for turn, nodes in _with_nodes(dag):
        prompt = visible(prompt_text_of(dag, turn))
        if turn.kind != "agent":
            cells.append(_cell("markdown", fenced(prompt)))
            prompt = ""
        bundle = {k: _as_lines(v) for k, v in static_bundle(stored_state(dag, turn, nodes)).items()}
        shown = {"output_type": "display_data", "data": bundle, "metadata": {}}
        cells.append(_cell("code", f"%%agent\n{prompt}" if prompt else "", [shown]))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    numbered = [{"id": f"cell-{n}", **cell} for n, cell in enumerate(cells)]
    document = {
        "cells": numbered,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(storable(document), ensure_ascii=False, indent=1) + "\n"


def _cell(kind: str, source: str, outputs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": _as_lines(source)}
    return (
        cell if kind == "markdown" else cell | {"execution_count": None, "outputs": outputs or []}
    )


def _as_lines(value: Any) -> Any:
    return value.splitlines(keepends=True) if isinstance(value, str) else value


def _turns(dag: Dag) -> list[Turn]:
    """What people want to read: prompts and calls, not that the line was moved."""
    return [turn for turn in dag.turns.values() if turn.kind in ("agent", "call")]


def _with_nodes(dag: Dag) -> list[tuple[Turn, Sequence[Node]]]:
    nodes = nodes_by_turn(dag)
    return [(turn, nodes.get(turn.id, ())) for turn in _turns(dag)]


def _title(dag: Dag) -> str:
    return one_line(str(dag.meta.get("title", "")), _TITLE_CHARS) or f"Session {dag.session_id}"


def _about(dag: Dag) -> str:
    when = one_line(str(dag.meta.get("created_at", "")), 16).replace("T", " ")
    begun = f", begun {when} UTC" if when else ""
    return f"Session {dag.session_id}, {count(len(_turns(dag)), 'turn')}{begun}."


_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()#+!|<>&~-])")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_FENCE: Final = re.compile(r"^(`{3,}|~{3,})", re.MULTILINE)
_EMBED: Final = re.compile(r"!\[")


def _escaped(text: str) -> str:
    """*text* that means nothing in Markdown."""
    return _MARKUP.sub(r"\\\1", text)


def _inert(markdown: str) -> str:
    """A model's Markdown without HTML of its own, and with images as links.

    Inside its code blocks the signs stay as they are: there they mean nothing.
    """
    lines, fence = [], ""
    for line in markdown.split("\n"):
        found = _FENCE.match(line.lstrip())
        if found and (not fence or found[1].startswith(fence)):
            fence = "" if fence else found[1]
            lines.append(line)
        else:
            lines.append(line if fence else _EMBED.sub("[", _TAG.sub("&lt;", line)))
    return "\n".join([*lines, fence] if fence else lines)
