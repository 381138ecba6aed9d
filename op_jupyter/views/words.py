"""How states are told in words: the same words in every view and in the commands."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.core.updates import node_view
from op_jupyter.views.model import is_over, outcome_word
from op_jupyter.views.text import count, one_line, visible

# status: (icon, word)
LOOKS: Final = {
    "completed": ("ok", "done"),
    "succeeded": ("ok", "done"),
    "error": ("failed", "failed"),
    "failed": ("failed", "failed"),
    "denied": ("denied", "denied"),
    "running": ("running", "running"),
    "waiting": ("waiting", "waiting"),
    "cancelled": ("cancelled", "cancelled"),
    "interrupted": ("interrupted", "interrupted"),
    "outcome_unknown": ("interrupted", "outcome unknown"),
}
ANSWERS: Final = {
    "allow": "allowed once",
    "allow_session": "allowed for this session",
    "deny": "denied",
    "deny_message": "denied with a message",
}
_DEEPEST: Final = 100
_PREVIEW_CHARS: Final = 100
# Addresses in the `repr` of objects change from run to run.
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]{4,}\b")


def stable(text: str) -> str:
    """*text* ready to be saved: visible, and without the memory addresses of a `repr`."""
    return _ADDRESS.sub("at 0x…", visible(text))


def call_status(call: Mapping[str, Any]) -> str:
    """How a tool call ended, with the answer on its card: ``done, allowed once``."""
    word = LOOKS.get(call["state"], ("", visible(str(call["state"]))))[1]
    if call["answer"] not in ANSWERS or call["state"] == "denied":
        return word
    edited = "edited and " if call["edited"] else ""
    return f"{word}, {edited}{ANSWERS[call['answer']]}"


def summary_line(state: Mapping[str, Any]) -> str:
    """The turn in one stable line: no ids, no times, no costs."""
    word = outcome_word(state)
    code = state["outcome"]["code"] if is_over(state) and word == "failed" else None
    parts = [f"OpenProgram: {word}" + (f" ({code})" if code else "")]
    steps = state["outcome"]["steps"] if is_over(state) else state["step"]
    if steps:
        parts.append(count(steps, "step"))
    if state["calls"]:
        parts.append(_calls_part(state["calls"]))
    answers = Counter(call["answer"] for call in state["calls"])
    parts += [f"{answers[key]} {words}" for key, words in ANSWERS.items() if answers[key]]
    return visible(" · ".join(parts))


def _calls_part(calls: list[Mapping[str, Any]]) -> str:
    text = count(len(calls), "tool call")
    ends = Counter(LOOKS.get(call["state"], ("", "unknown"))[1] for call in calls)
    notable = [f"{ends[word]} {word}" for word in ("failed", "cancelled") if ends[word]]
    return ", ".join([text, *notable])


def failure_text(state: Mapping[str, Any]) -> str:
    """Why a turn has no answer; empty when it has one, or still runs."""
    if not is_over(state) or state["status"] == "completed":
        return ""
    message = stable(state["outcome"]["message"])
    for identifier in _identifiers(state):
        message = message.replace(identifier, "…")
    word = outcome_word(state)
    return f"The turn was {word}." if word == "cancelled" else message or f"The turn {word}."


def _identifiers(state: Mapping[str, Any]) -> list[str]:
    """Ids that a message may name, longest first; short ones could be plain words."""
    found = {state["session_id"], state["turn_id"] or ""}
    found |= {item["id"] for item in (*state["nodes"], *state["calls"])}
    return sorted((each for each in found if len(each) >= 6), key=lambda each: (-len(each), each))


def _arguments(text: str) -> dict[str, Any] | None:
    if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
        return None  # reading and writing it again would need as many calls within each other
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _depth(text: str) -> int:
    """How deep brackets are nested; those in strings are counted as well."""
    steps = (1 if char in "[{" else -1 for char in text if char in "[{]}")
    return max(accumulate(steps), default=0)


def arguments_text(arguments: str) -> str:
    """Raw arguments for reading: code as code, else indented JSON, else as they came."""
    values = _arguments(arguments)
    if values is None:
        return stable(arguments)
    if len(values) == 1 and (text := values.get("code", values.get("command"))) is not None:
        return stable(str(text))
    return stable(json.dumps(values, ensure_ascii=False, indent=2)) if values else ""


def arguments_preview(name: str, arguments: str) -> str:
    """Raw arguments in one short line."""
    values = _arguments(arguments)
    if values is None:
        return one_line(stable(arguments), _PREVIEW_CHARS)
    match list(values.items()):
        case [(_, list(items))]:
            return count(len(items), "step" if name == "update_plan" else "item")
        case [("code" | "command", text)]:
            return one_line(stable(str(text)).strip().replace("\n", "; "), _PREVIEW_CHARS)
        case pairs:
            shown = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in pairs)
            return one_line(stable(", ".join(shown)), _PREVIEW_CHARS)


_BOXES: Final = {"completed": "☑", "done": "☑", "in_progress": "▶"}


def plan_mark(status: str) -> str:
    """A step of a plan as a box, for text."""
    return _BOXES.get(status, "☐")


def plan_progress(steps: Sequence[Mapping[str, Any]]) -> str:
    """How many steps of a plan are done: ``2 of 3``."""
    return f"{sum(step['status'] in ('completed', 'done') for step in steps)} of {len(steps)}"


def with_call_labels(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turn's nodes; a tool call is labelled with its arguments in short, not as raw JSON."""
    labels = {
        call["node_id"]: arguments_preview(call["name"], call["arguments"])
        for call in state["calls"]
    }
    return [{**node, "label": labels.get(node["id"], node["label"])} for node in state["nodes"]]


def session_nodes(dag: Dag) -> list[dict[str, Any]]:
    """The `node_view` of a session's nodes, labelled like those of a turn."""
    return [_labelled(node_view(node), node) for node in dag]


def _labelled(view: dict[str, Any], node: Node) -> dict[str, Any]:
    if view["kind"] == "tool" and isinstance(node.input, Mapping):
        arguments = json.dumps(dict(node.input), ensure_ascii=False, default=str)
        view["label"] = arguments_preview(node.name, arguments)
    return view
