"""What the real Messages service refuses, as far as clients trip over it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

from op_jupyter.core.values import dataclass
from op_jupyter.testing.message_stream import estimate_tokens, sign, text, tokens_of

API_KEY: Final = "sk-ant-test-key-0123456789"
"""The key the fake accepts unless told otherwise."""

_Body: TypeAlias = Mapping[str, Any]
_FIELDS: Final = frozenset(
    {
        *("cache_control", "container", "max_tokens", "messages", "metadata", "model"),
        *("output_config", "service_tier", "stop_sequences", "stream", "system"),
        *("temperature", "thinking", "tool_choice", "tools", "top_k", "top_p"),
    }
)
_BETA_FIELDS: Final = {"context_management": "context-management-"}
"""Fields that a feature in the ``anthropic-beta`` header allows."""

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_BREAKPOINTS: Final = 4
_LOOK_BACK: Final = 20
_MIN_CACHED_TOKENS: Final = 1024


class Violation(NamedTuple):
    """An error answer."""

    status: int
    error_type: str
    message: str


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """What this service accepts.

    Attributes:
        api_key: the one right key.
        auth: header styles it reads: ``bearer``, ``x-api-key`` or both.
        models: known models; empty: any.
        context_tokens: window; counted by `estimate_tokens`.
        max_output_tokens: largest ``max_tokens``.
        sampling: takes ``temperature`` and the like in spite of the API version, as the
            compatible servers do.
    """

    api_key: str = API_KEY
    auth: Sequence[str] = ("bearer", "x-api-key")
    models: Sequence[str] = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
    context_tokens: int = 200_000
    max_output_tokens: int = 128_000
    sampling: bool = False


def violation(
    body: _Body,
    headers: Mapping[str, str],
    rules: ServiceRules,
    paused: Sequence[Sequence[_Body]] = (),
) -> Violation | None:
    """Why the service refuses the request, or None.

    Args:
        headers: with lower-case names.
        paused: answers that stopped for a pause; one of them may end the conversation.
    """
    return _check_auth(headers, rules) or next(_refusals(body, headers, rules, paused), None)


def _check_auth(headers: Mapping[str, str], rules: ServiceRules) -> Violation | None:
    given = []
    if "bearer" in rules.auth and "authorization" in headers:
        given.append(headers["authorization"].removeprefix("Bearer "))
    if "x-api-key" in rules.auth and "x-api-key" in headers:
        given.append(headers["x-api-key"])
    if not given:
        return Violation(401, "authentication_error", "x-api-key header is required")
    if rules.api_key not in given:
        return Violation(401, "authentication_error", "invalid x-api-key")
    return None


def _refusals(
    body: _Body,
    headers: Mapping[str, str],
    rules: ServiceRules,
    paused: Sequence[Sequence[_Body]],
) -> Iterator[Violation]:
    if rules.models and body.get("model") not in rules.models:
        yield Violation(404, "not_found_error", f"model: {body.get('model')}")
    for message in _malformed(body, headers, rules, paused):
        yield Violation(400, "invalid_request_error", message)


def _malformed(
    body: _Body,
    headers: Mapping[str, str],
    rules: ServiceRules,
    paused: Sequence[Sequence[_Body]],
) -> Iterator[str]:
    betas = headers.get("anthropic-beta", "").split(",")
    allowed = {n for n, beta in _BETA_FIELDS.items() if any(b.startswith(beta) for b in betas)}
    for name in sorted(body.keys() - _FIELDS - allowed):
        yield f"{name}: Extra inputs are not permitted"
    if "max_tokens" not in body:
        yield "max_tokens: Field required"
        return
    if body["max_tokens"] > rules.max_output_tokens:
        yield (
            f"max_tokens: {body['max_tokens']} > {rules.max_output_tokens}, which is the maximum"
            f" allowed number of output tokens for {body['model']}"
        )
    is_new = headers.get("anthropic-version", "") >= "2026"
    if is_new and not rules.sampling and {"temperature", "top_p", "top_k"} & body.keys():
        yield "temperature, top_p and top_k are not supported"
    yield from _malformed_tools(body.get("tools", ()))
    for block in _blocks(body.get("system", ())):
        if not block["text"]:
            yield "system: text content blocks must be non-empty"
    yield from _malformed_messages(body.get("messages") or (), paused)
    if len(breakpoints(body)) > _MAX_BREAKPOINTS:
        yield (
            f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided."
            f" Found {len(breakpoints(body))}."
        )
    if (size := estimate_tokens(body)) > rules.context_tokens:
        yield f"prompt is too long: {size} tokens > {rules.context_tokens} maximum"


def _malformed_tools(tools: Sequence[_Body]) -> Iterator[str]:
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."
    for index, tool in enumerate(tools):
        if not _TOOL_NAME.fullmatch(tool["name"]):
            yield f"tools.{index}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{index}.input_schema.type: Input should be 'object'"


def _malformed_messages(
    messages: Sequence[_Body], paused: Sequence[Sequence[_Body]]
) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
        return
    waiting: list[str] = []
    for index, message in enumerate(messages):
        blocks = _blocks(message["content"])
        if not blocks:
            yield f"messages.{index}: all messages must have non-empty content"
        yield from _malformed_results(index, blocks, waiting)
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        yield from _malformed_blocks(index, blocks)
    *_, last = [m for m in messages if m["role"] != "system"] or messages
    if last["role"] != "user" and not _is_paused(_blocks(last["content"]), paused):
        yield "The conversation must end with a user message."


def _is_paused(blocks: Sequence[_Body], paused: Sequence[Sequence[_Body]]) -> bool:
    return any(_plain(blocks)[-len(said) :] == list(said) for said in paused if said)


def _malformed_results(
    index: int, blocks: Sequence[_Body], waiting: Sequence[str]
) -> Iterator[str]:
    leading = []
    for block in blocks:
        if block["type"] != "tool_result":
            break
        leading.append(block["tool_use_id"])
    if missing := [id for id in waiting if id not in leading]:  # noqa: A001 -- the wire's word
        yield (
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks"
            f" immediately after: {', '.join(missing)}."
        )
    results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    if extra := [id for id in results if id not in waiting]:  # noqa: A001 -- the wire's word
        yield (
            f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks:"
            f" {', '.join(extra)}."
        )
    if len(set(results)) < len(results):
        yield f"messages.{index}: each tool_use must have a single result"


def _malformed_blocks(index: int, blocks: Sequence[_Body]) -> Iterator[str]:
    for block in blocks:
        match block["type"]:
            case "text" if not block["text"]:
                yield "messages: text content blocks must be non-empty"
            case "text" if not block["text"].strip():
                yield "messages: text content blocks must contain non-whitespace text"
            case "thinking" if block["signature"] != sign(block["thinking"]):
                yield f"messages.{index}: Invalid `signature` in `thinking` block"
            case "tool_use" if not isinstance(block["input"], dict):
                yield f"messages.{index}: tool_use.input: Input should be a valid dictionary"
            case "tool_result" if block.get("is_error") and not block.get("content"):
                yield f"messages.{index}: content cannot be empty if `is_error` is true"
            case "tool_result":
                yield from _malformed_blocks(index, _blocks(block.get("content", ())))


def _blocks(content: Any) -> list[Any]:
    return [text(content)] if isinstance(content, str) else list(content)


def breakpoints(body: _Body) -> list[int]:
    """Positions, among all blocks of the prompt in order, that carry ``cache_control``."""
    return [i for i, block in enumerate(_prompt(body)) if "cache_control" in block]


def _prompt(body: _Body) -> list[Any]:
    """Tools, system and messages as one list: the order in which the service caches them."""
    messages = [b for m in body.get("messages", ()) for b in _blocks(m["content"])]
    return [*body.get("tools", ()), *_blocks(body.get("system", ())), *messages]


class PromptCache:
    """The service's prompt cache: prefixes that ended at a breakpoint of an earlier request."""

    def __init__(self) -> None:
        self._written: set[str] = set()

    def usage(self, body: _Body) -> dict[str, int]:
        """Count *body*'s input as read from, written to or passing the cache; remember it."""
        told = [json.dumps(block) for block in _plain(_prompt(body))]
        sizes = [0, *accumulate(tokens_of(text) for text in told)]  # of the first 0, 1, ... blocks
        prints = list(_fingerprints(told))
        ends = [m + 1 for m in breakpoints(body) if sizes[m + 1] >= _MIN_CACHED_TOKENS]
        read = max((self._longest_known(prints, end) for end in ends), default=0)
        self._written.update(prints[end] for end in ends)
        written = max(read, *ends, 0)
        return {
            "cache_read_input_tokens": sizes[read],
            "cache_creation_input_tokens": sizes[written] - sizes[read],
            "input_tokens": sizes[-1] - sizes[written],
        }

    def _longest_known(self, prints: Sequence[str], end: int) -> int:
        looked_at = range(end, max(end - _LOOK_BACK, 0), -1)
        return next((size for size in looked_at if prints[size] in self._written), 0)


def _fingerprints(told: Sequence[str]) -> Iterator[str]:
    """Of the first 0, 1, ... of those blocks."""
    digest = hashlib.sha256()
    yield digest.hexdigest()
    for block in told:
        digest.update(block.encode() + b"\0")
        yield digest.hexdigest()


def _plain(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]
