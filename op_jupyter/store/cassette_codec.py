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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256 as sha256_of
from itertools import accumulate
from typing import Any, Final

from op_jupyter.core.keys import canonical_json, sha256
from op_jupyter.core.recording import (
    Recording,
    check_decision,
    check_recording,
    check_request,
    reply_in_history,
    request_key,
)
from op_jupyter.errors import FormatTooNew

VERSION: Final = 1
MOST_MESSAGES: Final = 1_000_000
"""Most messages in all requests together: *after* lets a small file tell enormous conversations."""
_LINES: Final = "¶"
_SHARED: Final = ("system", "tools")
_BLANK: Final = re.compile(r"\s*")


class Unreadable(ValueError):
    """The text is no cassette; *position* in characters."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass
class Exchange:
    """A canonical request and the replies recorded for it."""

    request: Mapping[str, Any]
    replies: list[Recording]

    @cached_property
    def place(self) -> tuple[list[str], str]:
        """Sorts the requests of a conversation together, each after those it goes on from."""
        return [canonical_json(m) for m in self.request["messages"]], canonical_json(self.request)

    @cached_property
    def beginnings(self) -> list[str]:
        """A name for the first message, for the first two, and so on."""
        return list(accumulate(self.place[0], _longer, initial=""))[1:]


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
    exchanges = sorted(contents.exchanges.items(), key=lambda item: item[1].place)
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


def _exchange_documents(exchanges: Sequence[tuple[str, Exchange]]) -> Iterator[dict[str, Any]]:
    links = _Links()
    for key, exchange in exchanges:
        request = exchange.request
        messages = request["messages"]
        after, known = links.longest(exchange)
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
        asked = exchange.beginnings[-1] if exchange.beginnings else ""
        for number, reply in enumerate(exchange.replies, start=1):
            end = _longer(asked, canonical_json(reply_in_history(reply)))
            self._ends.setdefault(end, key if number == 1 else f"{key}#{number}")

    def longest(self, exchange: Exchange) -> tuple[str, int]:
        """The name of the longest known beginning of its messages, and its length."""
        for length in range(len(exchange.beginnings) - 1, 0, -1):
            if name := self._ends.get(exchange.beginnings[length - 1]):
                return name, length
        return "", 0


def _longer(beginning: str, message: str) -> str:
    """The name of a conversation that goes on from *beginning* with *message*."""
    return sha256_of(f"{beginning}\n{message}".encode("utf-8", "surrogatepass")).hexdigest()


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
    told = _Told()
    for position, document in _parse(text):
        try:
            _take(_unfold(document), contents, shared, told)
        except RecursionError:
            raise Unreadable("a recording is nested too deeply", position) from None
        except KeyError as error:
            raise Unreadable(f"a recording names or lacks {error}", position) from error
        except (TypeError, AttributeError, ValueError) as error:
            raise Unreadable(f"a recording cannot be understood ({error})", position) from error
    return contents


def _parse(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    position = _skip_blank(text, 0)
    while position < len(text):
        try:
            document, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise Unreadable(error.msg, error.pos) from error
        except RecursionError:
            raise Unreadable("a recording is nested too deeply", position) from None
        except ValueError as error:  # a name that stands twice, or a number without end
            raise Unreadable(str(error), position) from error
        if not isinstance(document, dict):
            raise Unreadable("a recording has to be an object", position)
        yield position, document
        position = _skip_blank(text, end)


def _object(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a merge that ran two recordings into one is noticed here."""
    made: dict[str, Any] = {}
    for name, value in members:
        if name in made:
            raise ValueError(f"{name[:80]!r} stands twice in one recording")
        made[name] = value
    return made


class _Told:
    """The conversations read so far, by the name that *after* calls them."""

    def __init__(self) -> None:
        self._messages: dict[str, list[Any]] = {}
        self._count = 0

    def upto(self, name: str) -> list[Any]:
        if name not in self._messages:
            raise ValueError(f"after {name[:80]!r} means no recording above this one")
        return self._messages[name]

    def add(self, name: str, messages: list[Any]) -> None:
        self._count += len(messages)
        if self._count > MOST_MESSAGES:
            raise ValueError(f"the conversations have more than {MOST_MESSAGES:,} messages")
        self._messages[name] = messages


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _take(
    document: dict[str, Any],
    contents: Contents,
    shared: dict[str, Any],
    told: _Told,
) -> None:
    match document:
        case {"cassette": int(version)}:
            if version > VERSION:
                raise FormatTooNew(
                    f"recorded by a newer version (format {version}); update op-jupyter",
                    version=version,
                )
            contents.provider = document.get("provider")
        case {"provider": str(name), "can": dict(can)}:
            contents.providers[name] = can
        case {"shared": str(name), "value": value}:
            shared[name] = value
        case {"request": str(name)}:
            _take_exchange(name, document, contents, shared, told)
        case {"decision": str(tool), "arguments": dict(arguments), "answers": list(answers)}:
            for answer in answers:
                check_decision(answer)
            key = decision_key(tool, arguments)
            contents.decisions[key] = Decision(tool, arguments, answers)
        case _:
            raise ValueError(f"neither request nor decision, but {', '.join(document)[:80]}")


def _take_exchange(
    name: str,
    document: dict[str, Any],
    contents: Contents,
    shared: dict[str, Any],
    told: _Told,
) -> None:
    before = told.upto(document["after"]) if "after" in document else []
    if not isinstance(document["messages"], list):
        raise ValueError("the messages are no list")
    messages = [*before, *document["messages"]]
    request: dict[str, Any] = {
        "model": document["model"],
        "system": shared[document["system"]] if "system" in document else "",
        "tools": shared[document["tools"]] if "tools" in document else [],
        "messages": messages,
    }
    if "response_schema" in document:
        request["response_schema"] = document["response_schema"]
    check_request(request)
    replies = [_reply_from_json(reply) for reply in document["replies"]]
    contents.exchanges[request_key(request)] = Exchange(request, replies)
    for number, reply in enumerate(replies, start=1):
        end = [*messages, reply_in_history(reply)]
        told.add(name if number == 1 else f"{name}#{number}", end)


def _reply_from_json(data: Mapping[str, Any]) -> Recording:
    recording = Recording(
        [dict(block) for block in data["content"]],
        data["stop_reason"],
        data.get("model", ""),
        dict(data.get("usage", {})),
    )
    check_recording(recording)
    return recording


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
