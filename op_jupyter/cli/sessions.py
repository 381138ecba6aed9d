"""What `op-jupyter sessions` and `op-jupyter show` print: stored sessions, read without a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.output import print_json, print_table
from op_jupyter.core.attempts import nodes_by_turn
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.updates import node_view
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.engine.service import ALL, Service
from op_jupyter.store.base import SessionInfo
from op_jupyter.views.details import details_text
from op_jupyter.views.text import count, one_line, visible
from op_jupyter.views.words import LOOKS

_TITLE_CHARS: Final = 60
_LABEL_CHARS: Final = 70
_COLUMNS: Final = ("session", "last used (UTC)", "turns", "status", "title")


def list_sessions(limit: int | None, *, all_kinds: bool = False, as_json: bool = False) -> None:
    """Print the sessions, the newest first; archived and sub-agents' ones with *all_kinds*."""
    listed = default_service().list_sessions(
        limit or ALL, archived=None if all_kinds else False, sub_agents=all_kinds
    )
    if as_json:
        print_json(listed)
    elif listed:
        print_table(_COLUMNS, [_row(info) for info in listed])
    else:
        print("There are no sessions yet; a %%agent cell creates the first one.")


def _row(info: SessionInfo) -> tuple[str, ...]:
    when = info.updated_at[:16].replace("T", " ")
    title = one_line(info.title, _TITLE_CHARS)
    status = info.status if info.status == "archived" else info.last_status
    return info.id, when, count(info.turns, "turn"), status, title


def archive(named: str, *, undo: bool) -> None:
    """Leave a session out of lists, or list it again.

    Raises:
        UnknownSession: there is none.
        SessionLocked: another process has it open for writing.
    """
    service = default_service()
    wanted = service.find(named)
    if undo:
        service.unarchive(wanted)
        print(f"{wanted} is listed again")
    else:
        service.archive(wanted)
        print(f"{wanted} is archived; `op-jupyter archive {wanted} --undo` reverts that")


def session_text(service: Service, session_id: str) -> str:
    """Where a session is, and its turns with their nodes.

    Raises:
        UnknownSession: there is none; names those that look alike.
    """
    dag = service.graph(session_id)
    lines = [visible(f"session {session_id}")]
    if (folder := service.path(session_id)) is not None:
        lines.append(f"folder  {folder}")
    nodes = nodes_by_turn(dag)
    for turn in dag.turns.values():
        lines += ["", _turn_line(turn), *_node_lines(dag, nodes.get(turn.id, ()))]
    return "\n".join(lines)


def _turn_line(turn: Turn) -> str:
    why = f" ({turn.failure['code']})" if turn.failure else ""
    return f"{turn.id}  {turn.status}{why}  {one_line(turn.subject, _LABEL_CHARS)}"


def _node_lines(dag: Dag, nodes: Sequence[Node]) -> Iterator[str]:
    width = max((len(node.id) for node in nodes), default=0)
    for node in nodes:
        view = node_view(node)
        indent = "  " * len(dag.call_path(node.caller))
        word = LOOKS.get(node.status, ("", node.status))[1]
        name = view["kind"] if node.role == "user" else f"{view['kind']} {visible(node.name)}"
        label = one_line(view["label"], _LABEL_CHARS)
        yield f"  {node.id.ljust(width)}  {indent}{name} [{word}]  {label}".rstrip()


def node_text(service: Service, session_id: str, node_id: str) -> str:
    """One node: what went in and what came out.

    Raises:
        UnknownSession, UnknownNode: there is none.
    """
    return details_text(*service.node(session_id, node_id))


def prompts_text(service: Service, session_id: str, node_id: str | None = None) -> str:
    """What a model call was sent; without *node_id*, all of them in order.

    Raises:
        UnknownSession, UnknownNode: there is none.
        UsageError: the node is no model call.
    """
    with service.reading(session_id) as session:
        asked = (
            [session.dag.node(node_id)]
            if node_id is not None
            else [node for node in session.dag if node.role == "llm"]
        )
        texts = [_prompt(session.dag, node, session.read_blob) for node in asked]
    return visible("\n\n".join(texts)) or "No model was asked in this session."


def _prompt(dag: Dag, node: Node, read_blob: Callable[[str], bytes]) -> str:
    request, proven = request_of(dag, node.id, read_blob)
    doubt = "" if proven else " (not proven: it no longer hashes to what was sent)"
    return f"=== {node.id}{doubt}\n{prompt_text(request)}"


def show_json(service: Service, session_id: str) -> None:
    """Print what a session is, its messages and its attempts, as JSON."""
    print_json(
        {
            "session": service.get_session(session_id),
            "messages": service.get_messages(session_id, ALL),
            "attempts": service.get_attempts(session_id),
        }
    )


def print_found(service: Service, query: str, limit: int, *, as_json: bool) -> None:
    """Print what a search finds, the best first."""
    hits = service.search(query, limit)
    if as_json:
        print_json(hits)
    elif hits:
        rows = [(h.session_id, h.at[:16].replace("T", " "), h.role, h.snippet) for h in hits]
        print_table(("session", "when (UTC)", "who", "text"), rows)
    else:
        print("Nothing was found.")
