"""Compaction: a summary that stands for named nodes of the conversation.

The nodes stay in the graph.  A summary node on the line takes the place of what it covers when
a prompt is rendered (`core.prompt`); on a line that does not hold the summary, rewound to
before it, the originals are told again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.values import dataclass
from op_jupyter.errors import UsageError

HEADINGS: Final = (
    "Request and intent",
    "Key concepts",
    "Files and code",
    "Errors and fixes",
    "Decisions",
    "User messages and constraints",
    "Pending",
    "Current work",
    "Next safe action",
)
TRIES: Final = 3
WORTHWHILE: Final = 4
"""A summary is written by itself only when it covers at least a quarter of the request: one that
hardly makes room would be written again before every call."""
MOST_CHARS: Final = 24_000

_HEADING: Final = re.compile(r"^##[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a summary covers, and what stays as it is.

    Attributes:
        covers: ids of the nodes that the summary stands for, oldest first.
        keeps: ids of nodes of the line that are still told word for word, oldest first.
        late: ids of bare calls that were running; told after the summary once they have ended.
    """

    covers: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


def is_summary(node: Node) -> bool:
    """Whether *node* is a summary that stands for others."""
    return node.metadata.get("kind") == "summary" and node.status == "completed"


def visible_line(dag: Dag, base: str | None) -> list[Node]:
    """The conversation up to *base* as a prompt shows it: from the newest summary on.

    Takes as long as that is, however long the session is.
    """
    line: list[Node] = []
    while base is not None:
        node = dag.node(base)
        line.append(node)
        if is_summary(node):
            break
        base = node.predecessor
    line.reverse()
    return line


def select(dag: Dag, base: str | None, keep_from: str | None = None) -> Selection:
    """What to cover of the line up to *base*.

    *keep_from*: the prompt that is being worked on; it stays, and so does what the model has
    not seen yet: the newest response with its results, and what was said since.
    """
    covers: list[str] = []
    keeps: list[str] = []
    line = visible_line(dag, base)
    told = [node for shown in line for node in (*kept_nodes(dag, shown), shown)]
    newest = next((n.id for n in reversed(line) if n.role == "llm" and n.output is not None), None)
    seen_prompt = seen_newest = False
    for node in told:
        seen_prompt = seen_prompt or node.id == keep_from
        seen_newest = seen_newest or node.id == newest
        unseen = node.role in ("llm", "user") and seen_newest
        keep = seen_prompt and (node.id == keep_from or unseen)
        (keeps if keep else covers).append(node.id)
    late = [i for node in told if node.id not in keeps for i in _running_beside(dag, node)]
    return Selection(tuple(covers), tuple(keeps), tuple(late))


def kept_nodes(dag: Dag, summary: Node) -> list[Node]:
    """The nodes that a *summary* leaves as they are; none for any other node."""
    return [dag.node(i) for i in summary.input["keeps"]] if is_summary(summary) else []


def late_nodes(dag: Dag, summary: Node) -> list[Node]:
    """The calls that ran while that *summary* was written."""
    return [dag.node(i) for i in summary.input["late"]] if is_summary(summary) else []


def _running_beside(dag: Dag, node: Node) -> list[str]:
    beside = [*late_nodes(dag, node), *dag.followers(node.id)]
    if node.predecessor is None:
        beside += dag.followers(None)
    return [n.id for n in beside if n.status == "running" and _is_call(dag, n)]


def _is_call(dag: Dag, node: Node) -> bool:
    turn = dag.turns.get(node.turn_id or "")
    return turn is not None and turn.kind == "call"


def bare_call(dag: Dag, node_id: str) -> Turn | None:
    """The turn of the call outside of any conversation that *node_id* belongs to; None: of none.

    Raises:
        UnknownNode: there is no such node.
    """
    outer = dag.call_path(node_id)[0]
    return dag.turns[str(outer.turn_id)] if _is_call(dag, outer) else None


def instruction(limit_chars: int, problem: str = "") -> str:
    """What the model is asked for, at the end of the conversation; *problem*: of the last try."""
    headings = "\n".join(f"## {heading}" for heading in HEADINGS)
    again = f"\nYour last summary was no use: {problem}. Write it again.\n" if problem else ""
    return (
        "Stop here and write a summary of this conversation, which will take its place: what you "
        "do not write down is forgotten. Do not call tools, do not answer the last message.\n"
        f"{again}\n"
        "Write Markdown with exactly these nine headings, in this order, each once, each with at "
        f"least one line below it (write `none` where there is nothing), at most {limit_chars:,} "
        f"characters in all:\n\n{headings}\n\n"
        "Be exact: names, paths, signatures, numbers, error messages. Quote what the person asked "
        "for and every limit they set. Under `Next safe action` name one step that can be taken "
        "without repeating anything that has an effect."
    )


def problem_of(text: str, limit_chars: int) -> str:
    """What is wrong with *text* as a summary; "" when nothing is."""
    if len(text) > limit_chars:
        return f"it has {len(text):,} characters, at most {limit_chars:,} fit"
    parts = _HEADING.split(text)
    found = [_plain(title) for title in parts[1::2]]
    wanted = [_plain(heading) for heading in HEADINGS]
    if missing := [h for h, plain in zip(HEADINGS, wanted, strict=True) if plain not in found]:
        return f"the heading {missing[0]!r} is missing"
    if found != wanted:
        return "the headings are not the nine asked for, in their order, each once"
    empty = [h for h, body in zip(HEADINGS, parts[2::2], strict=True) if not body.strip()]
    return f"there is nothing below {empty[0]!r}" if empty else ""


def _plain(title: str) -> str:
    return re.sub(r"[^a-z]+", " ", title.casefold()).strip()


def summary_message(summary: Node) -> str:
    """A summary as it is told in place of what it covers."""
    count = len(summary.input["covers"])
    return (
        f"This conversation was longer; {count} earlier entries are replaced by the summary that "
        f"you wrote of them. Nothing of it has to be done again.\n\n{summary.output}"
    )


def checkpoint_of(summary: Node) -> dict[str, Any]:
    """The record that makes *summary* count: from then on it has to be on the line."""
    return {
        "node": summary.id,
        "turn_id": summary.turn_id,
        "head": summary.predecessor,
        "covers": list(summary.input["covers"]),
    }


def rewind_target(dag: Dag, node_id: str) -> str | None:
    """The node that the conversation ends with after a rewind to *node_id*; None: the start.

    For whatever ran in a bare call, which hangs beside the line, that is where the line ended
    when the call began.

    Raises:
        UnknownNode: there is no such node.
        UsageError: it is a call inside the conversation.
    """
    node = dag.node(node_id)
    if (bare := bare_call(dag, node_id)) is not None:
        return bare.base
    if node.caller is not None:
        outer = dag.call_path(node_id)[0]
        raise UsageError(
            f"node {node_id!r} is a call inside the conversation; name a prompt, an answer or a "
            f"summary; {outer.id!r} is the one that it belongs to"
        )
    if node.role == "user" or is_summary(node):
        return node.predecessor
    return node.id


def not_installed(dag: Dag) -> str | None:
    """The summary that is stored but not on the line, as when its writer died in between.

    Only of the newest turn: whoever went on since, or went back, did so without it.
    """
    if not dag.checkpoints:
        return None
    newest: Mapping[str, Any] = dag.checkpoints[-1]
    turn = next((t for t in reversed(dag.turns.values()) if t.kind != "call"), None)
    if turn is None or turn.id != newest.get("turn_id") or dag.head != newest.get("head"):
        return None
    node = dag.nodes.get(str(newest.get("node")))
    return node.id if node is not None and is_summary(node) else None


def size_bytes(dag: Dag, node_ids: Iterable[str]) -> int:
    """About how much these nodes of the line, with the results of their tools, say in a prompt."""
    size = 0
    for node_id in node_ids:
        node = dag.node(node_id)
        said = [node.output] if is_summary(node) else [node.input, node.output]
        said += [child.output for child in dag.children(node_id) if not is_summary(node)]
        size += sum(len(canonical_json(each).encode("utf-8", "surrogatepass")) for each in said)
    return size


def summary_chars(context_tokens: int, output_tokens: int) -> int:
    """The most characters that a summary may have in a window of that size."""
    return max(1, min(MOST_CHARS, 3 * output_tokens, context_tokens // 2))
