"""What the fake Messages service answers: replies, their faults, and the bytes of a stream."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from op_jupyter.core.values import dataclass

Fault: TypeAlias = Literal[
    "",
    "drop",  # the connection is reset before the headers, as with a stale keep-alive
    "abort",  # the connection is reset in the middle of the body
    "close",  # the connection ends in the middle of the body
    "eof",  # the body ends cleanly, too early
    "error",  # an `error` event, as an overloaded service sends in a running stream
    "malformed",  # an event that is not JSON
    "nested",  # an event that nests too deeply to be read
    "bad_order",  # a delta for a block that never began
    "unknown",  # an event type from the future; harmless
    "bad_tool",  # tool arguments that are not JSON
    "two_stops",  # a second message_stop
    "no_stop_reason",  # the message ends without saying why
    "no_start",  # the first event is missing
    "html",  # status 200 and a web page, as a captive portal answers
    "hang",  # silence for ever
    "hold",  # silence until the test calls `release`
]

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
HTML_PAGE: Final = "<html><body>Please log in</body></html>"


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer.

    Attributes:
        blocks: content blocks in the service's own JSON; see `text`, `tool`, `thinking`.
        stop: stop reason; by default ``tool_use`` when there is a tool block, else ``end_turn``.
        stop_details: what a refusal says about itself.
        status: an HTTP status other than 200 answers with an error instead of a stream.
        error_type, error_message, error_code: of that error, and of the ``error`` fault; the
            type follows from the status by default.
        page: raw text in place of the JSON error, as a proxy on the way would send.
        headers: added to the response.
        fault: what goes wrong in the stream, before event number *at* (from 0), or after the
            last one.
        cut: with ``abort``, ``close`` and ``eof``: bytes of the stream that are still sent,
            in place of *at*.
        delay: seconds before every event.
        ttft: seconds before the response headers.
        usage: overrides of the counted usage.
    """

    blocks: Sequence[Mapping[str, Any]] = ({"type": "text", "text": "ok"},)
    stop: str = ""
    stop_details: Mapping[str, Any] | None = None
    status: int = 200
    error_type: str = ""
    error_message: str = "scripted error"
    error_code: str = ""
    page: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault = ""
    at: int = 4
    cut: int | None = None
    delay: float = 0
    ttft: float = 0
    usage: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fault not in get_args(Fault):
            raise ValueError(f"no fault {self.fault!r}; faults are {', '.join(get_args(Fault))}")

    @property
    def stop_reason(self) -> str:
        """*stop*, or what follows from the blocks."""
        asks_for_tool = any(block["type"] == "tool_use" for block in self.blocks)
        return self.stop or ("tool_use" if asks_for_tool else "end_turn")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reply:
        """A reply from a control request; an unknown word is an error."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(data.keys() - known):
            raise ValueError(f"a reply has no {', '.join(unknown)}; it has {', '.join(known)}")
        return cls(**data)


def text(content: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": content}


def tool(name: str, /, *, id: str = "toolu_01", **arguments: Any) -> dict[str, Any]:  # noqa: A002 -- the wire's word
    """A tool_use block."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def thinking(content: str) -> dict[str, Any]:
    """A thinking block with the signature that the fake will want back."""
    return {"type": "thinking", "thinking": content, "signature": sign(content)}


def redacted_thinking(data: str) -> dict[str, Any]:
    """A redacted_thinking block."""
    return {"type": "redacted_thinking", "data": data}


def sign(content: str) -> str:
    """The fake's signature of a thinking block."""
    return "sig_" + hashlib.sha256(content.encode()).hexdigest()[:24]


def estimate_tokens(value: Any) -> int:
    """The fake's idea of how many tokens *value* is."""
    return tokens_of(json.dumps(value))


def tokens_of(told: str) -> int:
    """The same, of a value as JSON."""
    return len(told) // 4 + 1


def error_json(reply: Reply, request_id: str = "") -> dict[str, Any]:
    """The error body (or event) that *reply* describes."""
    kind = reply.error_type or _ERROR_TYPES.get(reply.status, "api_error")
    error: dict[str, Any] = {"type": kind, "message": reply.error_message}
    if reply.error_code:
        error["details"] = {"error_code": reply.error_code}
    return {"type": "error", "error": error, **({"request_id": request_id} if request_id else {})}


def message_json(reply: Reply, model: str, message_id: str, usage: Mapping[str, Any]) -> Any:
    """The whole message, as a request without streaming gets it."""
    return {
        **_envelope(model, message_id, {**usage, "output_tokens": estimate_tokens(reply.blocks)}),
        "content": [dict(block) for block in reply.blocks],
        "stop_reason": reply.stop_reason,
        "stop_details": reply.stop_details,
    }


def events(
    reply: Reply, model: str = "claude-opus-5-5", message_id: str = "msg_1", usage: Any = None
) -> Iterator[dict[str, Any]]:
    """The events of a stream without any fault, in the service's order."""
    counted = {**(usage or {"input_tokens": 10}), "output_tokens": 1, **reply.usage}
    if reply.fault != "no_start":
        yield {"type": "message_start", "message": _envelope(model, message_id, counted)}
    for index, block in enumerate(reply.blocks):
        start, deltas = _split(block, broken=reply.fault == "bad_tool")
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop_reason = None if reply.fault == "no_stop_reason" else reply.stop_reason
    delta = {"stop_reason": stop_reason, "stop_sequence": None, "stop_details": reply.stop_details}
    total = {**counted, "output_tokens": estimate_tokens(reply.blocks), **reply.usage}
    yield {"type": "message_delta", "delta": delta, "usage": total}
    yield {"type": "message_stop"}
    if reply.fault == "two_stops":
        yield {"type": "message_stop"}


def frame(event: Mapping[str, Any]) -> bytes:
    """*event* on the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def stream_bytes(reply: Reply, **values: Any) -> bytes:
    """The whole body of the stream, for tests that cut it."""
    return b"".join(frame(event) for event in events(reply, **values))


def _envelope(model: str, message_id: str, usage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "service_tier": "standard",
            **usage,
        },
    }


def _split(block: Mapping[str, Any], *, broken: bool) -> tuple[dict[str, Any], list[Any]]:
    """The empty block that opens a content block, and the deltas that fill it."""
    start = copy.deepcopy(dict(block))
    match block["type"]:
        case "text":
            start["text"] = ""
            return start, [{"type": "text_delta", "text": p} for p in _pieces(block["text"], 8)]
        case "tool_use":
            start["input"] = {}
            raw = '{"city": Paris!!}' if broken else json.dumps(block["input"])
            pieces = ["", *_pieces(raw, 9)]
            return start, [{"type": "input_json_delta", "partial_json": p} for p in pieces]
        case "thinking":
            start["thinking"] = start["signature"] = ""
            pieces = _pieces(block["thinking"], 12)
            deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces]
            return start, [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
        case _:
            return start, []


def _pieces(content: str, size: int) -> list[str]:
    return [content[i : i + size] for i in range(0, len(content), size)]
