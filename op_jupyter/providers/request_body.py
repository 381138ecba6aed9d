"""From our `ModelRequest` to the body of a Messages request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from op_jupyter.core.keys import canonical_json, nests_deeper
from op_jupyter.core.messages import (
    Block,
    ImageBlock,
    Message,
    ModelRequest,
    OpaqueBlock,
    ResultState,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    block_to_json,
    merge_consecutive,
)
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.providers.structured import format_instruction

_DEEPEST: Final = 100
_CACHE: Final = {"type": "ephemeral"}
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STATE_WORDS: Final[dict[ResultState, str]] = {
    "success": "",
    "error": "",
    "denied": "[denied]",
    "interrupted": "[interrupted]",
}
"""The API knows only ``is_error``; the other states are said in words before the content."""
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def request_body(
    request: ModelRequest,
    profile: EndpointProfile,
    native_schema: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON to send (by `body_bytes`), without ``stream`` and the profile's `extra_body`.

    The answer's format is *native_schema* where the service can be held to it; without it a
    `response_schema` is asked for in words.

    The stable prefix (tools, system) and the conversation carry cache breakpoints, so the next
    call of the conversation reads everything up to here from the cache.
    """
    messages = _api_messages(request.messages, keep_thinking=profile.supports_thinking)
    body: dict[str, Any] = {
        "model": request.model or profile.default_model,
        "max_tokens": min(request.max_tokens, profile.max_output_tokens),
        "messages": messages,
    }
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system}]
    if request.tools:
        body["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": dict(t.input_schema)}
            for t in request.tools
        ]
    if profile.thinking is not None:
        body["thinking"] = dict(profile.thinking)
    if native_schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": native_schema}}
    elif request.response_schema is not None and messages:
        instruction = format_instruction(request.response_schema)
        messages[-1]["content"].append({"type": "text", "text": instruction})
    if profile.supports_cache:
        _set_breakpoints(body)
    return body


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """*body* as it is sent, with half characters, which UTF-8 cannot carry, replaced.

    It is written first and looked at only when that fails: looking at each text takes ten times
    as long.
    """
    try:
        return _encode(body).encode()
    except (UnicodeEncodeError, TypeError):
        return _encode(without_surrogates(body)).encode()


def _api_messages(messages: Sequence[Message], *, keep_thinking: bool) -> list[dict[str, Any]]:
    kept = [_sendable_part(message, keep_thinking) for message in messages]
    return [
        {"role": m.role, "content": [_api_block(b) for b in m.content]}
        for m in merge_consecutive(kept)
    ]


def _sendable_part(message: Message, keep_thinking: bool) -> Message:
    for block in message.content:
        if not _is_sendable(block, keep_thinking):
            break
    else:  # nearly always
        return message
    content = tuple([b for b in message.content if _is_sendable(b, keep_thinking)])
    return Message(message.role, content)


def _is_sendable(block: Block, keep_thinking: bool) -> bool:
    if isinstance(block, TextBlock):
        return bool(block.text.strip())  # the service refuses blank text
    if isinstance(block, OpaqueBlock):
        return keep_thinking or block.payload.get("type") not in _THINKING
    return True


def _api_block(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():  # nearly all
            return {"type": "text", "text": block.text}
        case ToolUseBlock():
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": parse_arguments(block.arguments),
            }
        case ToolResultBlock():
            return _api_result(block)
        case _:
            return block_to_json(block)


def parse_arguments(raw: str) -> dict[str, Any]:
    """The object that *raw* says, or ``{}``.

    The service takes back only an object, and one that JSON can write.  What the model wrote
    instead is not lost: the result that follows is the error that quotes it.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
        canonical_json(value)  # a number such as 1e999 is read as an infinity
    except (ValueError, RecursionError):
        return {}
    fits = isinstance(value, dict) and not nests_deeper(value, _DEEPEST)
    return value if fits else {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _api_result(block: ToolResultBlock) -> dict[str, Any]:
    content = [part for part in block.content if _is_sendable(part, keep_thinking=True)]
    word = _STATE_WORDS[block.state]
    if word:
        content = _prefixed(word, content)
    if block.state != "success" and not content:
        content = [TextBlock("The call failed without a message.")]
    return {
        "type": "tool_result",
        "tool_use_id": block.tool_use_id,
        "content": [block_to_json(part) for part in content],
        **({} if block.state == "success" else {"is_error": True}),
    }


def _prefixed(word: str, content: Sequence[TextBlock | ImageBlock]) -> list[TextBlock | ImageBlock]:
    if content and isinstance(content[0], TextBlock):
        return [TextBlock(f"{word} {content[0].text}"), *content[1:]]
    return [TextBlock(word), *content]


def _set_breakpoints(body: dict[str, Any]) -> None:
    """Mark the ends of the tools, of the system prompt, and of the two newest messages of a user.

    Four are the most that a service takes.  The tools have a mark of their own because functions
    add to the system prompt; the message before the last because a service looks only so many
    blocks back from a mark for what it knows.
    """
    spoken = [m["content"] for m in body["messages"] if m["role"] == "user"]
    for blocks in (body.get("tools"), body.get("system"), *spoken[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = dict(_CACHE)


def without_surrogates(value: Any) -> Any:
    """*value* with lone surrogates, which UTF-8 cannot carry, replaced."""
    match value:
        case str():
            return _LONE_SURROGATE.sub("�", value)
        case Mapping():
            return {without_surrogates(k): without_surrogates(v) for k, v in value.items()}
        case Iterable():
            return [without_surrogates(item) for item in value]
        case _:
            return value
