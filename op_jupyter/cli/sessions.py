"""What `op-jupyter sessions` and `op-jupyter show` print: stored sessions, read without a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from op_jupyter.bootstrap import default_store
from op_jupyter.cli.output import print_json, print_table
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.updates import node_view
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.store.base import SessionInfo, Store
from op_jupyter.views.details import details_text
from op_jupyter.views.text import count, one_line, visible
from op_jupyter.views.words import LOOKS

_TITLE_CHARS: Final = 60
_LABEL_CHARS: Final = 70
_ALL: Final = 1_000_000
_COLUMNS: Final = ("session", "last used (UTC)", "turns", "status", "title")


def list_sessions(limit: int | None = None, *, as_json: bool = False) -> None:
    """Print the sessions, the newest first."""
    listed = default_store().sessions(_ALL if limit is None else limit)
    if as_json:
        print_json(listed)
    elif listed:
        print_table(_COLUMNS, [_row(info) for info in listed])
    else:
        print("There are no sessions yet; a %%agent cell makes the first.")


def _row(info: SessionInfo) -> tuple[str, ...]:
    when = info.updated_at[:16].replace("T", " ")
    title = one_line(info.title, _TITLE_CHARS)
    return info.id, when, count(info.turns, "turn"), info.last_status, title


def session_text(store: Store, session_id: str) -> str:
    """Where a session is, and its turns with their nodes.

    Raises:
        UnknownSession: there is none; names those that look alike.
    """
    dag = store.load(session_id)
    lines = [visible(f"session {session_id}")]
    if (folder := store.path(session_id)) is not None:
        lines.append(f"folder  {folder}")
    for turn in dag.turns.values():
        lines += ["", _turn_line(turn), *_node_lines(dag, turn)]
    return "\n".join(lines)


def _turn_line(turn: Turn) -> str:
    why = f" ({turn.failure['code']})" if turn.failure else ""
    return f"{turn.id}  {turn.status}{why}  {one_line(turn.subject, _LABEL_CHARS)}"


def _node_lines(dag: Dag, turn: Turn) -> Iterator[str]:
    nodes = [node for node in dag if node.turn_id == turn.id]
    width = max((len(node.id) for node in nodes), default=0)
    for node in nodes:
        view = node_view(node)
        indent = "  " * len(dag.call_path(node.caller))
        word = LOOKS.get(node.status, ("", node.status))[1]
        name = view["kind"] if node.role == "user" else f"{view['kind']} {visible(node.name)}"
        label = one_line(view["label"], _LABEL_CHARS)
        yield f"  {node.id.ljust(width)}  {indent}{name} [{word}]  {label}".rstrip()


def node_text(store: Store, session_id: str, node_id: str) -> str:
    """One node: what went in and what came out.

    Raises:
        UnknownSession, UnknownNode: there is none.
    """
    graph = store.load(session_id)
    node = graph.node(node_id)
    return details_text(node, graph.decision_of(node))


def prompts_text(store: Store, session_id: str, node_id: str | None = None) -> str:
    """What a model call was sent; without *node_id*, all of them in order.

    Raises:
        UnknownSession, UnknownNode: there is none.
        UsageError: the node is no model call.
    """
    session = store.open(session_id, "read")
    try:
        asked = (
            [session.dag.node(node_id)]
            if node_id is not None
            else [node for node in session.dag if node.role == "llm"]
        )
        texts = [_prompt(session.dag, node, session.read_blob) for node in asked]
    finally:
        session.close()
    return visible("\n\n".join(texts)) or "No model was asked in this session."


def _prompt(dag: Dag, node: Node, read_blob: Callable[[str], bytes]) -> str:
    request, proven = request_of(dag, node.id, read_blob)
    doubt = "" if proven else " (not proven: it no longer hashes to what was sent)"
    return f"=== {node.id}{doubt}\n{prompt_text(request)}"
