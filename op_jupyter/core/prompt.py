"""What the model is told: the docstring rule, and the history rendered from the DAG.

A prompt is a pure function of the graph *as of* a seq and of the few parameters in `Shown`,
so the prompt of every model call can be rendered again from what is stored.

Layout of a request:
    system     the session's constant system prompt, then the function's ``system=``
    history    the conversation up to the base, then each caller's line
    this call  the frame's header (call path, docstring, arguments: exactly once), what the
               frame did so far, then the content
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final

from op_jupyter.core.attempts import SAID_BY, said_by
from op_jupyter.core.compaction import (
    is_summary,
    kept_nodes,
    late_nodes,
    summary_message,
    visible_line,
)
from op_jupyter.core.context_window import missing_result
from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import (
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    block_from_json,
    block_to_json,
    merge_consecutive,
    message_from_json,
)
from op_jupyter.core.nodes import Node
from op_jupyter.core.turn import MODEL_STATE
from op_jupyter.core.values import dataclass

SYSTEM_PROMPT: Final = (
    "You work inside a person's Python program, usually a Jupyter notebook. "
    "When tools are offered, use them to find facts instead of guessing; say what you did and "
    "what you found, briefly. When a function calls you, follow its instructions and answer "
    "with the requested value alone."
)


_one_line: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
_indented: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, indent=2).encode


@dataclass(frozen=True, slots=True)
class _World:
    """Changed sections of the world state; they stand before the prompt they came with."""

    sections: Mapping[str, str]


Entry = tuple[Message | _World, ...]


@dataclass(frozen=True, slots=True)
class FrameView:
    """One running function as a prompt sees it.

    *id* marks what ran inside it (``metadata.frame``); *recorded_id* is the node its children
    hang on (None: none is recorded), *header* is "" for a bare call.
    """

    id: str
    recorded_id: str | None = None
    line: str = ""
    header: str = ""
    expose: str = "io"


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that decides a rendered history, in constant size per call depth.

    *callers* and *subcalls* bound the entries before and inside the frame; None: no bound.
    *own* is the last model call of the very loop that asks now: its steps come last, whole.

    *kept*: the provider keeps the conversation, up to the node *known* of it, and is told only
    what is new.
    """

    base: str | None
    as_of: int
    frames: tuple[FrameView, ...] = ()
    callers: int | None = None
    subcalls: int | None = None
    own: str | None = None
    kept: bool = False
    known: str | None = None


@dataclass(frozen=True, slots=True)
class CallInput:
    """What one model call adds to the conversation; stored as the ``input`` of its node."""

    content: tuple[Block, ...] = ()
    world: Mapping[str, str] = field(default_factory=dict)


def call_line(name: str, arguments: Mapping[str, Any]) -> str:
    """How a direct call stands in the history: ``name({"arg": value})``."""
    return f"{name}({_one_line(arguments)})"


def frame_header(path: Sequence[str], docstring: str, arguments: Mapping[str, Any]) -> str:
    """Where we are, what the function is for (its whole docstring), and its arguments."""
    parts = [f"Call path: {' → '.join(path)}"]
    if docstring:
        parts.append(docstring)
    if arguments:
        lines = [f"  {_one_line(name)}: {_inner(arguments[name])}" for name in sorted(arguments)]
        parts.append("Arguments:\n{\n" + ",\n".join(lines) + "\n}")
    return "\n\n".join(parts)


def _inner(value: Any) -> str:
    """*value* as a member of an object that is indented by two.

    Only what holds others takes more than a line, and the part of `json` that knows of lines is
    ten times as slow: most arguments are texts and numbers.
    """
    if isinstance(value, Mapping | list | tuple):
        return _indented(value).replace("\n", "\n  ")
    return _one_line(value)


def value_text(value: Any) -> str:
    """A return value as an assistant's text."""
    return value if isinstance(value, str) and value else canonical_json(value)


def world_text(sections: Mapping[str, str]) -> str:
    """Changed sections of the world state as one message text.

    By name, as the store keeps members: rendered again, it has to be the same text.
    """
    return "\n\n".join(
        f"<{name}>\n{_inside_of(name, text)}\n</{name}>" for name, text in sorted(sections.items())
    )


def _inside_of(name: str, text: str) -> str:
    """*text* that cannot end its section: a file's content is no word of ours."""
    return text.replace(f"</{name}>", f"< /{name}>")


def render_messages(dag: Dag, shown: Shown, call: CallInput) -> tuple[Message, ...]:
    """The messages of one request."""
    if shown.kept:
        return _news(dag, shown, call)
    before = [e for e in (*_spine_entries(dag, shown), *_caller_entries(dag, shown)) if e]
    told = [m for entry in _last(before, shown.callers) for m in entry]
    told = _from_a_user(told)
    if shown.frames:
        frame = shown.frames[-1]
        if frame.header:
            told.append(_user(TextBlock(frame.header)))
        own = _loop_to(dag, shown.own, frame.id)
        inside = _frame_entries(dag, frame, shown.as_of, {node.id for node in own})
        told.extend(m for entry in _last(inside, shown.subcalls) for m in entry)
        told.extend(m for node in own for m in _exchange(dag, node, shown.as_of))
    told.extend(_input_messages(call))
    return merge_consecutive(_placed(told))


def remember_history(dag: Dag, base: str | None) -> None:
    """Render now what every prompt that follows *base* tells of *dag*, for all copies of it."""
    for _ in _spine_entries(dag, Shown(base, dag.last_seq)):
        pass


def _news(dag: Dag, shown: Shown, call: CallInput) -> tuple[Message, ...]:
    """What a provider that keeps the conversation was not told yet."""
    told: list[Message | _World] = []
    if shown.own is not None:
        step = dag.node(shown.own)
        if message_from_json(step.output).tool_uses:
            told.extend(_exchange(dag, step, shown.as_of)[-1:])
    else:
        line = dag.spine(shown.base) if shown.base is not None else []
        seen = next((i for i, node in enumerate(line) if node.id == shown.known), -1)
        prompts = (node for node in line[seen + 1 :] if node.role == "user")
        told.extend(_spoken(node) for node in prompts)
        if shown.frames and shown.frames[-1].header:
            told.append(_user(TextBlock(shown.frames[-1].header)))
    told.extend(_input_messages(call))
    return merge_consecutive(_placed(told))


def current_world(dag: Dag, base: str | None) -> dict[str, str]:
    """The world state as the conversation up to *base* last told it.

    What only stood before a summary is not known any more, and has to be told again.
    """
    seen: dict[str, str] = {}
    for shown in visible_line(dag, base):
        for node in (*kept_nodes(dag, shown), shown):
            if node.role == "llm" and isinstance(node.input, Mapping):
                seen.update(node.input.get("world") or {})
    return seen


def call_input_to_json(call: CallInput) -> dict[str, Any]:
    """*call* as the ``input`` of an llm node."""
    data: dict[str, Any] = {}
    if call.content:
        data["content"] = [block_to_json(b) for b in call.content]
    if call.world:
        data["world"] = dict(call.world)
    return data


def call_input_from_json(data: Mapping[str, Any] | None) -> CallInput:
    """Inverse of `call_input_to_json`."""
    data = data or {}
    content = tuple(block_from_json(b) for b in data.get("content", ()))
    return CallInput(content, dict(data.get("world", {})))


def result_block(tool_use_id: str, node: Node | None) -> ToolResultBlock:
    """The result that a tool call's node stands for; the constant text when there is none."""
    if node is None or not isinstance(node.output, Mapping) or "state" not in node.output:
        return missing_result(tool_use_id)
    blocks = (block_from_json(b) for b in node.output["content"])
    content = tuple(b for b in blocks if not isinstance(b, ToolResultBlock))
    return ToolResultBlock(tool_use_id, content, MODEL_STATE[node.output["state"]])  # type: ignore[arg-type]


# -- entries: the messages that belong together, one group for each thing that happened


def _spine_entries(dag: Dag, shown: Shown) -> Iterator[Entry]:
    line = visible_line(dag, shown.base)
    if not line or not is_summary(line[0]):
        yield from _direct_entries(dag.followers(None), dag, shown)
    for node in line:
        if is_summary(node):
            yield (_user(TextBlock(summary_message(node))),)
            for kept in kept_nodes(dag, node):
                yield from _line_entries(dag, kept, shown)
            yield from _direct_entries(late_nodes(dag, node), dag, shown)
            yield from _direct_entries(dag.followers(node.id), dag, shown)
        else:
            yield from _line_entries(dag, node, shown)


def _line_entries(dag: Dag, node: Node, shown: Shown) -> Iterator[Entry]:
    if node.role == "user":
        yield (_spoken(node),)
    elif node.role == "llm" and _finished(node, shown.as_of):
        yield _remembered(_exchange, dag, node, shown.as_of)
    yield from _direct_entries(dag.followers(node.id), dag, shown)


def _spoken(node: Node) -> Message:
    """A prompt, or a message that somebody else left in the conversation, with who said it."""
    blocks = [block_from_json(b) for b in node.input]
    if SAID_BY not in node.metadata:
        return _user(*blocks)
    return _user(TextBlock(f"[message of role {said_by(node)}]\n"), *blocks)


def _direct_entries(nodes: Iterable[Node], dag: Dag, shown: Shown) -> Iterator[Entry]:
    """The bare calls among *nodes*, which follow a node of the line.

    What runs now is told elsewhere, and what ran inside a hidden function nowhere.
    """
    running = {frame.id for frame in shown.frames}
    for node in _without_steps(dag, nodes):
        if node.metadata.get("frame") not in running or _is_question(node):
            yield _remembered(_direct_entry, dag, node, shown.as_of)


def _direct_entry(dag: Dag, node: Node, as_of: int) -> Entry:
    if not _finished(node, as_of) or not _is_bare_call(dag, node):
        return ()
    if node.role == "code" and node.metadata.get("frame") is None:
        return _call_entry(dag, node, as_of)
    if not node.metadata.get("bare"):
        return ()
    if _is_question(node):
        return _question_entry(node)
    if not _is_first(node):
        return ()
    return _loop_entry(dag, _whole_steps(dag, _loop_from(dag, node), as_of), as_of)


def _remembered(make: Callable[[Dag, Node, int], Entry], dag: Dag, node: Node, as_of: int) -> Entry:
    """What *make* makes of *node*, which was made before if nothing has changed since."""
    entry: Entry | None = dag.recall(make.__name__, node, as_of)
    if entry is None:
        entry = make(dag, node, as_of)
        dag.remember(make.__name__, node, as_of, entry)
    return entry


def _is_bare_call(dag: Dag, node: Node) -> bool:
    turn = dag.turns.get(node.turn_id or "")
    return turn is not None and turn.kind == "call"


def _loop_from(dag: Dag, node: Node) -> list[Node]:
    """The model calls of one bare ``llm`` or ``agent`` call, *node* its first."""
    loop = [node]
    frame = node.metadata.get("frame")
    while same := [n for n in _next(dag, loop[-1]) if n.metadata.get("frame") == frame]:
        loop.append(same[0])
    return loop


def _is_first(node: Node) -> bool:
    """Whether a loop begins with that model call; one in a step follows nothing."""
    return node.caller is None or node.predecessor is None


def _next(dag: Dag, node: Node) -> list[Node]:
    if node.caller is None:
        return dag.followers(node.id)
    return [n for n in dag.children(node.caller) if n.predecessor == node.id]


def _without_steps(dag: Dag, nodes: Iterable[Node]) -> Iterator[Node]:
    """*nodes*, and in place of each `traced` step what it called: prompts do not know steps."""
    for node in nodes:
        if node.metadata.get("traced"):
            yield from _without_steps(dag, dag.children(node.id))
        else:
            yield node


def _loop_to(dag: Dag, last: str | None, frame_id: str) -> list[Node]:
    """The model calls of the loop that runs in that frame, up to *last*."""
    loop: list[Node] = []
    while last is not None and (node := dag.node(last)).metadata.get("frame") == frame_id:
        loop.append(node)
        last = node.predecessor
    return loop[::-1]


def _loop_entry(dag: Dag, loop: Sequence[Node], as_of: int) -> Entry:
    return tuple(message for node in loop for message in _exchange(dag, node, as_of))


def _whole_steps(dag: Dag, loop: Sequence[Node], as_of: int) -> Sequence[Node]:
    """The steps of *loop* up to the first that was still under way."""
    return list(takewhile(lambda node: _is_whole(dag, node, as_of), loop))


def _is_whole(dag: Dag, node: Node, as_of: int) -> bool:
    """Whether that step, its tools too, had ended as of that seq."""
    if not _finished(node, as_of):
        return False
    asked = message_from_json(node.output).tool_uses
    done = [c for c in dag.children(node.id) if _is_tool(c) and _finished(c, as_of)]
    return len(done) == len(asked)


def _caller_entries(dag: Dag, shown: Shown) -> Iterator[Entry]:
    """The callers of the innermost frame, outermost first: their lines, and what they expose."""
    for frame in shown.frames[:-1]:
        if not frame.line:
            continue
        yield (_user(TextBlock(frame.line)),)
        yield from _exposed(dag, frame.id, frame.recorded_id, frame.expose, shown.as_of)


def _call_entry(dag: Dag, node: Node, as_of: int) -> Entry:
    """A finished direct call: its line, what its ``expose`` lets through, its value."""
    messages: list[Message | _World] = [_user(TextBlock(call_line(node.name, node.input or {})))]
    expose = str(node.metadata.get("expose", "io"))
    for entry in _exposed(dag, node.id, node.id, expose, as_of):
        messages.extend(entry)
    if node.status == "error":
        error = node.metadata.get("error", {})
        said = f"raised {error.get('type', 'an error')}: {error.get('message', '')}"
    else:
        said = value_text(node.output)
    messages.append(Message("assistant", (TextBlock(said),)))
    return tuple(messages)


def _question_entry(node: Node) -> Entry:
    """What the program asked the person, and what came of it."""
    about = node.metadata.get("question", {})
    lines = [f"The program asked the person: {about.get('prompt', '')}"]
    if about.get("options"):
        lines.append(f"Options: {', '.join(about['options'])}")
    match node.status, node.metadata.get("how"):
        case "completed", "timeout":
            said = "Nobody answered in time."
        case "completed", _:
            said = f"The person answered: {value_text(node.output)}"
        case "denied", _:
            said = "The person chose not to answer."
        case _:
            said = "There was no answer."
    return (_user(TextBlock("\n".join([*lines, said]))),)


def _exposed(
    dag: Dag, frame_id: str, recorded_id: str | None, expose: str, as_of: int
) -> Iterator[Entry]:
    if expose in ("llm", "full"):
        yield from _inside(dag, frame_id, recorded_id, as_of, calls=expose == "full")


def _frame_entries(dag: Dag, frame: FrameView, as_of: int, own: Collection[str]) -> list[Entry]:
    """What the running frame did so far; it always sees its own replies."""
    return _inside(dag, frame.id, frame.recorded_id, as_of, calls=True, but=own)


def _inside(
    dag: Dag,
    frame_id: str,
    recorded_id: str | None,
    as_of: int,
    *,
    calls: bool,
    but: Collection[str] = (),
) -> list[Entry]:
    """What happened in a frame, in the order in which it ended: loops, and calls if wanted."""
    ended: list[tuple[int, Entry]] = []
    loops: dict[str | None, list[Node]] = {}  # by their last node
    for node in _without_steps(dag, dag.children(recorded_id)):
        if node.metadata.get("frame") != frame_id or node.id in but or _is_tool(node):
            continue
        if node.role == "user":
            if calls and _is_question(node) and _finished(node, as_of):
                ended.append((_done_seq(node), _question_entry(node)))
        elif node.role == "llm":
            loops[node.id] = [*loops.pop(node.predecessor, ()), node]
        elif calls and _finished(node, as_of):
            ended.append((_done_seq(node), _call_entry(dag, node, as_of)))
    whole = (_whole_steps(dag, loop, as_of) for loop in loops.values())
    ended.extend((_done_seq(steps[-1]), _loop_entry(dag, steps, as_of)) for steps in whole if steps)
    return [entry for _, entry in sorted(ended, key=itemgetter(0))]


def _exchange(dag: Dag, node: Node, as_of: int) -> Entry:
    """A model call: what it was told, what it answered, and the results of its tool calls."""
    reply = message_from_json(node.output) if isinstance(node.output, Mapping) else None
    messages = list(_input_messages(call_input_from_json(node.input)))
    if reply is None:
        return tuple(messages)
    messages.append(reply)
    if reply.tool_uses:
        done = {
            child.metadata["tool_call_id"]: child
            for child in dag.children(node.id)
            if "tool_call_id" in child.metadata and _finished(child, as_of)
        }
        messages.append(_user(*(result_block(u.id, done.get(u.id)) for u in reply.tool_uses)))
    return tuple(messages)


def _input_messages(call: CallInput) -> Iterator[Message | _World]:
    if call.world:
        yield _World(call.world)
    if call.content:
        yield _user(*call.content)


def _finished(node: Node, as_of: int) -> bool:
    """Whether a prompt as of that seq saw *node* end in a way worth telling."""
    if node.status in ("running", "interrupted") or _done_seq(node) > as_of:
        return False
    if node.role == "llm":
        return node.status == "completed"
    if node.role == "user":
        return node.status in ("completed", "denied", "error")
    return _is_tool(node) or node.status in ("completed", "error")


def _is_question(node: Node) -> bool:
    return node.metadata.get("kind") == "question"


def _is_tool(node: Node) -> bool:
    return node.metadata.get("kind") == "tool"


def _done_seq(node: Node) -> int:
    return int(node.metadata.get("done_seq", node.seq))


def _user(*blocks: Block) -> Message:
    return Message("user", blocks)


def _last(entries: Sequence[Entry], limit: int | None) -> Sequence[Entry]:
    return entries if limit is None else entries[max(0, len(entries) - limit) :]


def _from_a_user(told: list[Message | _World]) -> list[Message | _World]:
    """*told* from the first message that a user said: the Messages API wants one first."""
    for index, message in enumerate(told):
        if isinstance(message, _World) or (message.role == "user" and not _only_results(message)):
            return told[index:]
    return []


def _placed(told: Sequence[Message | _World]) -> list[Message]:
    """The messages, each world state in front of the prompt it came with: a prompt comes last."""
    messages: list[Message] = []
    for message in told:
        if isinstance(message, Message):
            messages.append(message)
            continue
        world = _user(TextBlock(world_text(message.sections)))
        after_prompt = messages and messages[-1].role == "user" and not _only_results(messages[-1])
        messages.insert(len(messages) - 1 if after_prompt else len(messages), world)
    return messages


def _only_results(message: Message) -> bool:
    return all(isinstance(b, ToolResultBlock) for b in message.content)
