"""Which recording comes nearest to a request, and which words differ."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from op_jupyter.core.keys import canonical_json
from op_jupyter.core.visible import visible

_CONTEXT_WORDS: Final = 6
_MOST_LINES: Final = 24
_CONTEXT_CHARS: Final = 60
_SIGN_CHARS: Final = len("- ")
_LONGEST_LINE: Final = 160
_MOST_COMPARED: Final = 1_000
"""Lines in which moved ones are looked for; the time for that grows with their square."""


def nearest(
    wanted: Mapping[str, Any], recorded: Iterable[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The canonical request of *recorded* that shares most words with *wanted*."""
    words = _words(wanted)
    return max(recorded, key=lambda other: _likeness(words, _words(other)), default=None)


def difference(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The changed words as a unified diff, cut to what a person reads."""
    lines = _changed_lines(list(request_lines(recorded)), list(request_lines(wanted)))
    shown = [visible(line[:_LONGEST_LINE]) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"… and {len(lines) - _MOST_LINES} more changed lines")
    return "\n".join(["--- recorded", "+++ now", *shown])


def title(request: Mapping[str, Any]) -> str:
    """What a canonical request asks, in a few words."""
    last = request["messages"][-1] if request["messages"] else {"content": []}
    text = " ".join(" ".join(_block_lines(block)) for block in last["content"])
    text = visible(" ".join(text.split()))
    return text if len(text) <= 60 else text[:59] + "…"


def _words(request: Mapping[str, Any]) -> Counter[str]:
    return Counter(word for line in request_lines(request) for word in line.split())


def _likeness(words: Counter[str], others: Counter[str]) -> float:
    total = sum((words | others).values())
    return sum((words & others).values()) / total if total else 1.0


def request_lines(request: Mapping[str, Any]) -> Iterator[str]:
    """*request* as lines of text, each with where it stands."""
    yield f"model: {request['model']}"
    yield from _prefixed("system", request["system"].splitlines())
    for tool in request["tools"]:
        yield f"tool {tool['name']}: {canonical_json(tool)}"
    for message in request["messages"]:
        for block in message["content"]:
            yield from _prefixed(message["role"], _block_lines(block))
    if "response_schema" in request:
        yield f"format: {canonical_json(request['response_schema'])}"


def reply_lines(content: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The content of a recorded reply as lines of text."""
    return (line for block in content for line in _block_lines(block))


def _prefixed(where: str, lines: Iterable[str]) -> Iterator[str]:
    return (f"{where}: {line}" for line in lines)


def _block_lines(block: Mapping[str, Any]) -> list[str]:
    match block["type"]:
        case "text":
            lines: list[str] = block["text"].splitlines()
            return lines
        case "tool_use":
            return [f"calls {block['name']} {canonical_json(block['arguments'])}"]
        case "tool_result":
            inner = [line for part in block["content"] for line in _block_lines(part)]
            return [f"result {block['state']}: {line}" for line in inner or [""]]
        case kind:
            return [f"{kind} {block.get('sha256', '')}"]


def _changed_lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    start = _same_start(old, new)
    end = _same_start(old[start:][::-1], new[start:][::-1])
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) == len(new) > _MOST_COMPARED:
        different = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
        return [line for a, b in different for line in _replaced([a], [b])]
    matcher = difflib.SequenceMatcher(a=old[:_MOST_COMPARED], b=new[:_MOST_COMPARED])
    changed: list[str] = []
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        if tag != "equal":
            changed += _replaced(old[a1:a2], new[b1:b2])
    return [*changed, *_replaced(old[_MOST_COMPARED:], new[_MOST_COMPARED:])]


def _replaced(removed: Sequence[str], added: Sequence[str]) -> list[str]:
    if len(removed) == len(added):
        pairs = [_around_change(a, b) for a, b in zip(removed, added, strict=True)]
        removed, added = [a for a, _ in pairs], [b for _, b in pairs]
    return [f"- {line}" for line in removed] + [f"+ {line}" for line in added]


def _same_start(old: Sequence[str], new: Sequence[str]) -> int:
    """How many items both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _around_change(old: str, new: str) -> tuple[str, str]:
    """Both lines, cut to the words that differ and a few around them."""
    a, b = old.split(" "), new.split(" ")
    start = _same_start(a, b)
    end = _same_start(a[start:][::-1], b[start:][::-1])
    return _in_sight(_window(a, start, end), _window(b, start, end))


def _in_sight(old: str, new: str) -> tuple[str, str]:
    """Both lines, cut where their difference would lie beyond what is shown of a line.

    A word is as long as its author likes: JSON and Chinese, for instance, know no spaces.
    """
    place = _same_start(old, new)
    fit = max(len(old), len(new)) <= _LONGEST_LINE - _SIGN_CHARS
    if fit or place <= _LONGEST_LINE // 2:
        return old, new
    begin = place - _CONTEXT_CHARS
    return f"… {old[begin:]}", f"… {new[begin:]}"


def _window(words: Sequence[str], start: int, end: int) -> str:
    first = max(0, start - _CONTEXT_WORDS)
    last = min(len(words), len(words) - end + _CONTEXT_WORDS)
    shown = " ".join(words[first:last])
    return ("… " if first else "") + shown + (" …" if last < len(words) else "")
