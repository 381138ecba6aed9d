"""One node in full, as readable text: what the details panel and `%agent show` print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from op_jupyter.core.nodes import Node
from op_jupyter.core.updates import bounded
from op_jupyter.core.visible import visible
from op_jupyter.views.words import ANSWERS

_HEAD_CHARS: Final = 16_000
_TAIL_CHARS: Final = 4_000


def node_details(node: Node, decision: Mapping[str, Any] | None = None) -> dict[str, str]:
    """``input`` and ``output`` of *node*, bounded; with ``permission`` when there is a *decision*.

    *decision*: what `Dag.decision_of` says.
    """
    told = {} if decision is None else {"permission": _bounded(decision_text(decision))}
    return told | {
        "input": _bounded(_call_text(node) if node.role == "code" else readable(_said(node))),
        "output": _bounded(_error_text(node) or readable(node.output)),
    }


def details_text(node: Node, decision: Mapping[str, Any] | None) -> str:
    """All of one node, as a text of its own."""
    details = node_details(node, decision)
    parts = [f"{node.id}  {node.role} {node.name} [{node.status}]"]
    order = ("permission", "input", "output")
    parts += [f"--- {key}\n{details[key]}" for key in order if details.get(key)]
    return visible("\n\n".join(parts))


def decision_text(decision: Mapping[str, Any]) -> str:
    """Who decided what: ``allowed once (click, after 3.2 s)``, ``denied by rule: python``."""
    answer, how = str(decision.get("answer", "")), str(decision.get("how", ""))
    if how in _BY_ITSELF:
        about = decision.get("rule") or decision.get("mode")
        word = "allowed" if answer == "allow" else "denied"
        lines = [f"{word} {_BY_ITSELF[how]}" + (f": {about}" if about else "")]
    else:
        waited = decision.get("waited_seconds")
        after = f", after {waited:g} s" if isinstance(waited, int | float) and waited else ""
        lines = [f"{ANSWERS.get(answer, answer)} ({how}{after})"]
    if "edited" in decision:
        lines.append(f"edited: {_dump(decision['edited'])}")
    if "overruled_by" in decision:
        by = str(decision["overruled_by"])
        lines.append(f"it did not run all the same: denied {_BY_ITSELF.get(by, by)}")
    return "\n".join(lines)


_BY_ITSELF: Final[Mapping[str, str]] = {
    "mode": "by mode",
    "rule": "by rule",
    "protected": "because it is protected",
    "nobody": "because nobody could be asked; this would allow it",
    "trusted": "because the program passed the tool itself",
    "switch": "because everything is allowed in this process",
}
"""What decides without a person, by the ``how`` of a decision."""


def _said(node: Node) -> Any:
    """The input of *node*; in place of the texts of skills, which come first, their names."""
    skills = node.metadata.get("skills")
    if not skills:
        return node.input
    named = {"type": "text", "text": f"[with {', '.join(map(str, skills))}]"}
    return [*node.input[len(skills) :], named]


def _bounded(text: str) -> str:
    return bounded(text, _HEAD_CHARS, _TAIL_CHARS)


def _call_text(node: Node) -> str:
    """``name(key=value, …)``, one argument a line when they are long."""
    if not isinstance(node.input, Mapping):
        return readable(node.input)
    pairs = [f"{key}={_dump(value)}" for key, value in node.input.items()]
    line = f"{node.name}({', '.join(pairs)})"
    if len(line) <= 60 or len(pairs) < 2:
        return line
    return f"{node.name}(" + (",\n" + " " * (len(node.name) + 1)).join(pairs) + ")"


def _error_text(node: Node) -> str:
    error = node.metadata.get("error")
    if not isinstance(error, Mapping):
        return str(error) if error else ""
    told = f"{error.get('type', 'error')}: {error.get('message', '')}"
    return f"{told}\n\n{error['traceback']}" if error.get("traceback") else told


def readable(value: Any) -> str:
    """JSON as text: content blocks as what they say, anything else indented."""
    match value:
        case None:
            return ""
        case str():
            return value
        case {"state": str(), "content": list(blocks)} | {"role": str(), "content": list(blocks)}:
            return readable(blocks)
        case [*blocks] if blocks and all(_is_block(block) for block in blocks):
            return "\n".join(part for part in map(_block_text, blocks) if part)
        case _:
            return _dump(value, indent=2)


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)


def _block_text(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image"}:
            return "[image]"
        case {"type": "tool_use", "name": name, "arguments": arguments}:
            return f"→ {name} {arguments}"
        case {"type": "tool_result", "content": Sequence() as content}:
            return readable(list(content))
        case {"type": "thinking", "thinking": str(text)}:
            return f"(thinking) {text}"
        case {"type": kind}:
            return f"[{kind}]"
        case _:
            return _dump(block)


def _dump(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
