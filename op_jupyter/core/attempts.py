"""A session as a service tells of it: attempts, each one try at answering a prompt, and messages.

An attempt is a turn of the graph, and a message is a node of it; nothing here is stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.backups import steps_from_json
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.updates import bounded
from op_jupyter.core.values import dataclass

AttemptStatus: TypeAlias = Literal[
    "pending", "running", "waiting_user", "completed", "failed", "cancelled", "interrupted"
]
SAID_BY: Final = "said_by"
"""Metadata of a message that no attempt answers: the role that said it."""
OTHER_ROLES: Final = ("assistant", "system")
_SUMMARY_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that an attempt made or changed, as it was at the end of the call that did."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at answering one prompt.

    Attributes:
        parent_attempt_id: the attempt that it follows in the conversation: the try before it,
            or for a rerun, what came before that.
        summary: the beginning of the answer, of a completed one.
        error: why there is no answer: code and message; "" for a completed one.
        metrics: numbers from tables that it produced.
    """

    id: str
    session_id: str
    parent_attempt_id: str | None
    prompt: str
    status: AttemptStatus
    summary: str = ""
    error: str = ""
    started_at: str = ""
    finished_at: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Sequence[Artifact] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said.

    Attributes:
        role: ``user``, ``assistant`` or ``system``.
        linked_attempt_id: the attempt that it began, or that it is the reply of.
        metadata: of a reply, ``status``, ``usage`` and ``metrics``.
    """

    id: str
    session_id: str
    role: str
    content: str
    created_at: str
    linked_attempt_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def attempts_of(dag: Dag, live: Mapping[str, AttemptStatus] | None = None) -> list[Attempt]:
    """All attempts, in the order in which they began.

    *live*: what their owner knows of those that run, by id.
    """
    nodes, known = nodes_by_turn(dag), live or {}
    return [
        _attempt(dag, turn, nodes.get(turn.id, ()), known.get(turn.id))
        for turn in dag.turns.values()
        if is_attempt(turn)
    ]


def nodes_by_turn(dag: Dag) -> dict[str, list[Node]]:
    """The nodes of each turn, in order."""
    found: dict[str, list[Node]] = {}
    for node in dag:
        if node.turn_id is not None:
            found.setdefault(node.turn_id, []).append(node)
    return found


def nodes_of(dag: Dag, turn: Turn) -> list[Node]:
    """The nodes of an attempt, in order, without a look at the rest of the graph."""
    prompt = prompt_of(dag, turn)
    pending = [] if prompt is None else [prompt]
    found = []
    while pending:
        node = pending.pop()
        found.append(node)
        after = (*dag.followers(node.id), *dag.children(node.id))
        pending += [n for n in after if n.turn_id == turn.id]
    return sorted(found, key=lambda node: node.seq)


def is_attempt(turn: Turn) -> bool:
    """Whether *turn* is a try at answering a prompt."""
    return turn.kind == "agent"


def _attempt(dag: Dag, turn: Turn, nodes: Iterable[Node], live: AttemptStatus | None) -> Attempt:
    status: AttemptStatus = turn.status
    if turn.status == "running" and live is not None:
        status = live
    prompt = prompt_of(dag, turn)
    return Attempt(
        turn.id,
        dag.session_id,
        _attempt_before(dag, turn),
        turn.subject if prompt is None else text_of(prompt),
        status,
        bounded(answer_of(dag, turn), _SUMMARY_CHARS, 0) if turn.status == "completed" else "",
        error_of(turn),
        turn.started_at,
        turn.finished_at,
        _metrics(turn),
        artifacts_of(nodes),
    )


def messages_of(dag: Dag) -> Iterator[Message]:
    """What was said, in order: prompts, replies with the status of their attempt, and notes."""
    last = {turn.id: id_ for id_, turn in _ends(dag)}
    for node in dag:
        turn = dag.turns.get(node.turn_id or "")
        if SAID_BY in node.metadata:
            yield Message(node.id, dag.session_id, said_by(node), text_of(node), node.created_at)
        elif turn is None or not is_attempt(turn):
            continue
        elif is_prompt(node):
            yield Message(node.id, dag.session_id, "user", text_of(node), node.created_at, turn.id)
        if turn is not None and last.get(turn.id) == node.id and turn.status != "running":
            yield _reply(dag, turn)


def _ends(dag: Dag) -> Iterator[tuple[str, Turn]]:
    """The last node of each attempt, with the attempt."""
    last: dict[str, str] = {}
    for node in dag:
        if node.turn_id is not None:
            last[node.turn_id] = node.id
    for turn_id, node_id in last.items():
        turn = dag.turns.get(turn_id)
        if turn is not None and is_attempt(turn):
            yield node_id, turn


def _reply(dag: Dag, turn: Turn) -> Message:
    answer = dag.nodes.get(str(turn.metadata.get("answer")))
    content = answer_of(dag, turn) if turn.status == "completed" else error_of(turn)
    usage = {k: turn.metadata[k] for k in ("input_tokens", "output_tokens") if k in turn.metadata}
    metadata: dict[str, Any] = {"status": turn.status, "usage": usage}
    if metrics := _metrics(turn):
        metadata["metrics"] = metrics
    return Message(
        f"{turn.id}-reply" if answer is None else answer.id,
        dag.session_id,
        "assistant",
        content,
        turn.finished_at or "",
        turn.id,
        metadata,
    )


def is_prompt(node: Node) -> bool:
    """Whether *node* is what a person asked; not a sub-agent's message, nor a question."""
    marks = node.metadata
    return node.role == "user" and not (
        SAID_BY in marks or marks.get("agent") or marks.get("kind") == "question"
    )


def said_by(node: Node) -> str:
    """The role of a message that no attempt answers; what is not known is ``system``."""
    role = node.metadata.get(SAID_BY)
    return role if role in OTHER_ROLES else "system"


def prompt_of(dag: Dag, turn: Turn) -> Node | None:
    """The node of what a person asked in *turn*."""
    found = (n for n in dag.followers(turn.base) if n.turn_id == turn.id and is_prompt(n))
    return next(found, None)


def text_of(node: Node) -> str:
    """All text of a prompt; the skills that were sent before it are not part of it."""
    skills = node.metadata.get("skills")
    blocks = node.input if isinstance(node.input, list) else []
    said = blocks[len(skills) :] if isinstance(skills, list) else blocks
    return "".join(_text(block) for block in said)


def answer_of(dag: Dag, turn: Turn) -> str:
    """The answer of *turn*; "" when there is none."""
    answer = dag.nodes.get(str(turn.metadata.get("answer")))
    output = None if answer is None else answer.output
    if isinstance(output, str):
        return output
    blocks = output.get("content") if isinstance(output, Mapping) else None
    return "".join(map(_text, blocks)) if isinstance(blocks, list) else ""


def error_of(turn: Turn) -> str:
    """Why *turn* has no answer, in one sentence; "" when it has one, or still runs."""
    if turn.status in ("completed", "running"):
        return ""
    failure = turn.failure or {}
    if not failure:
        return f"the attempt was {turn.status}"
    return f"{failure.get('code', turn.status)}: {failure.get('message', '')}"


def artifacts_of(nodes: Iterable[Node]) -> tuple[Artifact, ...]:
    """The files that the calls of a turn made or changed and that are still there, by path."""
    found: dict[str, Artifact] = {}
    for node in nodes:
        if not (kept := node.metadata.get("files")):
            continue
        try:
            steps = steps_from_json(kept)
        except ValueError:
            continue  # recorded by something else; what cannot be read names no file
        for step in steps:
            found.pop(step.path, None)
            if step.after is not None and step.after.kind == "file":
                found[step.path] = Artifact(step.path, step.after.size, step.after.sha256)
    return tuple(found[path] for path in sorted(found))


def _attempt_before(dag: Dag, turn: Turn) -> str | None:
    current = turn.base
    while current is not None and (node := dag.nodes.get(current)) is not None:
        before = dag.turns.get(node.turn_id or "")
        if before is not None and is_attempt(before):
            return before.id
        current = node.predecessor
    return None


def _metrics(turn: Turn) -> dict[str, float]:
    kept = turn.metadata.get("metrics")
    if not isinstance(kept, Mapping):
        return {}
    return {str(k): float(v) for k, v in kept.items() if isinstance(v, int | float)}


def _text(block: Any) -> str:
    if isinstance(block, Mapping) and block.get("type") == "text":
        return str(block.get("text", ""))
    return ""
