"""One node in full, as readable text: what the details panel and `%agent show` print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from op_jupyter.core.nodes import Node
from op_jupyter.core.updates import bounded

_HEAD_CHARS: Final = 16_000
_TAIL_CHARS: Final = 4_000


def node_details(node: Node) -> dict[str, str]:
    """``input`` and ``output`` of *node*, bounded."""
    return {
        "input": _bounded(_call_text(node) if node.role == "code" else readable(_said(node))),
        "output": _bounded(_error_text(node) or readable(node.output)),
    }


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
