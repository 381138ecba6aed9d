"""The text of a cassette: JSON documents made for reviews and merges.

An empty line stands between documents.  Their order follows from their content alone, so the
same recordings are the same bytes, and two branches that add recordings usually merge; a
conflict is solved by keeping both sides.

    {"cassette": 1, "provider": "local"}     version, and the provider recorded with last
    {"provider": "local", "can": {...}}      what that provider can do
    {"shared": "9f3a02bc", "value": ...}     a system prompt or a set of tools, told once
    {"request": "0f2c...", "after": "77ab...", "messages": [...], "replies": [...]}
    {"decision": "python", "arguments": {...}, "answers": [...]}

A conversation is told once: *after* names the request whose messages, and its reply (the
first, or number N of ``key#N``), come before this one's.  A text of several lines is
``{"¶": [line, ...]}``.  Keys are computed from the content when it is read, so changing a
recorded word changes the request that it answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from op_jupyter.core.keys import canonical_json, sha256
from op_jupyter.core.recording import Recording, reply_in_history, request_key
from op_jupyter.errors import FormatTooNew

VERSION: Final = 1
_LINES: Final = "¶"
_SHARED: Final = ("system", "tools")
_BLANK: Final = re.compile(r"\s*")


class Unreadable(ValueError):
    """The text is no cassette; *position* in characters."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(slots=True)
class Exchange:
    """A canonical request and the replies recorded for it."""

    request: Mapping[str, Any]
    replies: list[Recording]


@dataclass(slots=True)
class Decision:
    """A tool call that was put on a card, and the answers it got."""

    tool: str
    arguments: Mapping[str, Any]
    answers: list[Mapping[str, Any]]


@dataclass(slots=True)
class Contents:
    """Everything in a cassette, by key."""

    provider: str | None = None
    providers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)


def decision_key(tool: str, arguments: Mapping[str, Any]) -> str:
    """Identifies a tool call among the decisions."""
    return canonical_json([tool, arguments])


# --- writing ------------------------------------------------------------------------------


def encode(contents: Contents) -> str:
    """The text of *contents*."""
    documents = _documents(contents)
    return "\n".join(_to_text(document) for document in documents)


def _to_text(document: Mapping[str, Any]) -> str:
    return json.dumps(_fold(document), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _documents(contents: Contents) -> Iterator[dict[str, Any]]:
    header: dict[str, Any] = {"cassette": VERSION}
    if contents.provider is not None:
        header["provider"] = contents.provider
    yield header
    for name, can in sorted(contents.providers.items()):
        yield {"provider": name, "can": dict(can)}
    exchanges = sorted(contents.exchanges.items(), key=lambda item: _place(item[1].request))
    shared = {
        _short_hash(exchange.request[name]): exchange.request[name]
        for _, exchange in exchanges
        for name in _SHARED
        if exchange.request[name]
    }
    for name, value in sorted(shared.items()):
        yield {"shared": name, "value": value}
    yield from _exchange_documents(exchanges)
    for _, decision in sorted(contents.decisions.items()):
        yield {
            "decision": decision.tool,
            "arguments": dict(decision.arguments),
            "answers": [dict(answer) for answer in decision.answers],
        }


def _place(request: Mapping[str, Any]) -> tuple[list[str], str]:
    """Sorts the requests of a conversation together, each after those it goes on from."""
    return [canonical_json(message) for message in request["messages"]], canonical_json(request)


def _exchange_documents(exchanges: Sequence[tuple[str, Exchange]]) -> Iterator[dict[str, Any]]:
    links = _Links()
    for key, exchange in exchanges:
        request = exchange.request
        messages = request["messages"]
        after, known = links.longest(messages)
        document: dict[str, Any] = {"request": key}
        if after:
            document["after"] = after
        document["model"] = request["model"]
        document |= {name: _short_hash(request[name]) for name in _SHARED if request[name]}
        if "response_schema" in request:
            document["response_schema"] = request["response_schema"]
        document["messages"] = messages[known:]
        document["replies"] = [_reply_json(reply) for reply in exchange.replies]
        links.add(key, exchange)
        yield document


class _Links:
    """The conversations told so far, to find the one that another goes on from."""

    def __init__(self) -> None:
        self._ends: dict[str, str] = {}

    def add(self, key: str, exchange: Exchange) -> None:
        for number, reply in enumerate(exchange.replies, start=1):
            end = sha256([*exchange.request["messages"], reply_in_history(reply)])
            self._ends.setdefault(end, key if number == 1 else f"{key}#{number}")

    def longest(self, messages: Sequence[Any]) -> tuple[str, int]:
        """The name of the longest known beginning of *messages*, and its length."""
        for length in range(len(messages) - 1, 0, -1):
            if name := self._ends.get(sha256(messages[:length])):
                return name, length
        return "", 0


def _reply_json(reply: Recording) -> dict[str, Any]:
    return {
        "stop_reason": reply.stop_reason,
        "model": reply.model,
        "usage": dict(reply.usage),
        "content": [dict(block) for block in reply.content],
    }


def _short_hash(value: Any) -> str:
    return sha256(value)[:8]


def _fold(value: Any) -> Any:
    """*value* with every text of several lines as a list of lines."""
    if isinstance(value, str):
        return {_LINES: value.split("\n")} if "\n" in value else value
    if isinstance(value, Mapping):
        folded = {key: _fold(item) for key, item in value.items()}
        return {_LINES: folded} if folded.keys() == {_LINES} else folded
    if isinstance(value, list | tuple):
        return [_fold(item) for item in value]
    return value


# --- reading ------------------------------------------------------------------------------


def decode(text: str) -> Contents:
    """Inverse of `encode`.

    Raises:
        Unreadable: *text* is no cassette, or a damaged one.
        FormatTooNew: a newer version wrote it.
    """
    contents = Contents()
    shared: dict[str, Any] = {}
    told: dict[str, list[Any]] = {}
    for position, document in _parse(text):
        try:
            _take(document, contents, shared, told)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Unreadable(f"a recording cannot be understood ({error!r})", position) from error
    return contents


def _parse(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    decoder = json.JSONDecoder()
    position = _skip_blank(text, 0)
    while position < len(text):
        try:
            document, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise Unreadable(error.msg, error.pos) from error
        if not isinstance(document, dict):
            raise Unreadable("a recording has to be an object", position)
        yield position, _unfold(document)
        position = _skip_blank(text, end)


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _take(
    document: dict[str, Any],
    contents: Contents,
    shared: dict[str, Any],
    told: dict[str, list[Any]],
) -> None:
    match document:
        case {"cassette": version}:
            if int(version) > VERSION:
                raise FormatTooNew(
                    f"recorded by a newer version (format {version}); update op-jupyter",
                    version=int(version),
                )
            contents.provider = document.get("provider")
        case {"provider": name, "can": can}:
            contents.providers[name] = dict(can)
        case {"shared": name, "value": value}:
            shared[name] = value
        case {"request": name}:
            _take_exchange(name, document, contents, shared, told)
        case {"decision": tool, "arguments": arguments, "answers": answers}:
            key = decision_key(tool, arguments)
            contents.decisions[key] = Decision(tool, arguments, list(answers))
        case _:
            raise ValueError(f"neither request nor decision, but {', '.join(document)}")


def _take_exchange(
    name: str,
    document: dict[str, Any],
    contents: Contents,
    shared: dict[str, Any],
    told: dict[str, list[Any]],
) -> None:
    before = told[document["after"]] if "after" in document else []
    messages = [*before, *document["messages"]]
    request: dict[str, Any] = {
        "model": document["model"],
        "system": shared[document["system"]] if "system" in document else "",
        "tools": shared[document["tools"]] if "tools" in document else [],
        "messages": messages,
    }
    if "response_schema" in document:
        request["response_schema"] = document["response_schema"]
    replies = [_reply_from_json(reply) for reply in document["replies"]]
    contents.exchanges[request_key(request)] = Exchange(request, replies)
    for number, reply in enumerate(replies, start=1):
        told[name if number == 1 else f"{name}#{number}"] = [*messages, reply_in_history(reply)]


def _reply_from_json(data: Mapping[str, Any]) -> Recording:
    return Recording(
        [dict(block) for block in data["content"]],
        data["stop_reason"],
        data.get("model", ""),
        {name: int(count) for name, count in data.get("usage", {}).items()},
    )


def _unfold(value: Any) -> Any:
    """Inverse of `_fold`."""
    if isinstance(value, dict):
        if value.keys() == {_LINES}:
            inner = value[_LINES]
            return "\n".join(inner) if isinstance(inner, list) else _unfold_members(inner)
        return _unfold_members(value)
    if isinstance(value, list):
        return [_unfold(item) for item in value]
    return value


def _unfold_members(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _unfold(item) for key, item in value.items()}
