"""From the events of a Messages stream to one whole message, or to an error.

A message is built only when a stop reason and an end of message were seen, in the right
order, once.  Everything less is a `ProtocolError`; no half message leaves this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeVar, cast, get_args

from op_jupyter.core.messages import (
    Block,
    Message,
    ModelDelta,
    OpaqueBlock,
    ResponseDone,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
    ToolUseStarted,
    Usage,
)
from op_jupyter.core.values import dataclass
from op_jupyter.errors import ProtocolError, Refused
from op_jupyter.providers.request_body import parse_arguments

T = TypeVar("T")

_STOP_REASONS: Final = frozenset(get_args(StopReason))
_CUT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})


@dataclass(slots=True)
class _Draft:
    """One content block while it grows."""

    payload: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    signature: str = ""
    is_open: bool = True

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Assembly:
    """Takes events one by one and gives the deltas to show; `finish` gives the message."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._message: Mapping[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._stop_reason = ""
        self._stop_details: Mapping[str, Any] = {}
        self._ended = False
        self.semantic_output = False
        """Text, thinking or a tool call has begun to arrive."""

    @property
    def has_started(self) -> bool:
        """The first event was seen."""
        return self._message is not None

    @property
    def is_complete(self) -> bool:
        """The end of the message was seen."""
        return self._ended

    def feed(self, event: Mapping[str, Any]) -> ModelDelta | None:
        """Take one event; what there is to show of it, if anything.

        Raises:
            ProtocolError: the event cannot come here, or is not what its type says.
        """
        kind = self._text(event, "type")
        if self._ended:
            raise self._broken(f"{kind} after the end of the message")
        if kind == "message_start":
            self._start(event)
            return None
        if kind not in _HANDLERS:
            return None  # an event of a later API version
        if self._message is None:
            raise self._broken(f"{kind} before message_start")
        return _HANDLERS[kind](self, event)

    def finish(self) -> ResponseDone:
        """The whole message.

        Raises:
            ProtocolError: the stream ended too early, or its parts contradict each other.
            Refused: the model declined to answer.
        """
        if self._message is None or not self._ended:
            raise self._broken("the stream ended before the message did", retryable=True)
        if self._stop_reason not in _STOP_REASONS:
            raise self._broken(f"stop reason {self._stop_reason or None!r}")
        if self._stop_reason == "refusal":
            raise self._refused()
        message = Message("assistant", tuple(self._blocks()))
        self._check_tools(message)
        return ResponseDone(
            message,
            cast("StopReason", self._stop_reason),
            _total(self._usage),
            model=str(self._message.get("model", "")),
            details={"message_id": str(self._message.get("id", ""))},
        )

    # --- events ---------------------------------------------------------------------------

    def _start(self, event: Mapping[str, Any]) -> None:
        if self._message is not None:
            raise self._broken("a second message_start")
        self._message = self._value(event, "message", dict)
        self._add_usage(self._message)

    def _start_block(self, event: Mapping[str, Any]) -> ModelDelta | None:
        index = self._value(event, "index", int)
        if index != len(self._drafts):
            raise self._broken(f"block {index} begins, {len(self._drafts)} was due")
        payload = self._value(event, "content_block", dict)
        draft = _Draft(payload)
        self._drafts.append(draft)
        match payload.get("type"):
            case "text":
                return self._grow(draft, TextDelta(self._text(payload, "text")))
            case "thinking":
                draft.signature = self._text(payload, "signature")
                return self._grow(draft, ThinkingDelta(self._text(payload, "thinking")))
            case "tool_use":
                self._value(payload, "id", str)
                self.semantic_output = True
                return ToolUseStarted(index, self._value(payload, "name", str))
            case _:
                self.semantic_output = True
                return None

    def _grow_block(self, event: Mapping[str, Any]) -> ModelDelta | None:
        draft = self._open_draft(event)
        delta = self._value(event, "delta", dict)
        match delta.get("type"):
            case "text_delta":
                return self._grow(draft, TextDelta(self._value(delta, "text", str)))
            case "thinking_delta":
                return self._grow(draft, ThinkingDelta(self._value(delta, "thinking", str)))
            case "signature_delta":
                draft.signature = self._value(delta, "signature", str)
            case "input_json_delta":
                draft.pieces.append(self._value(delta, "partial_json", str))
        return None

    def _grow(self, draft: _Draft, delta: TextDelta | ThinkingDelta) -> ModelDelta | None:
        if not delta.text:
            return None
        draft.pieces.append(delta.text)
        self.semantic_output = True
        return delta

    def _stop_block(self, event: Mapping[str, Any]) -> None:
        self._open_draft(event).is_open = False

    def _change_message(self, event: Mapping[str, Any]) -> None:
        delta = self._value(event, "delta", dict)
        self._stop_reason = self._text(delta, "stop_reason") or self._stop_reason
        details = delta.get("stop_details")
        self._stop_details = details if isinstance(details, Mapping) else {}
        self._add_usage(event)

    def _stop_message(self, _event: Mapping[str, Any]) -> None:
        if any(draft.is_open for draft in self._drafts):
            raise self._broken("the message ended inside a block")
        self._ended = True

    def _open_draft(self, event: Mapping[str, Any]) -> _Draft:
        index = self._value(event, "index", int)
        if not 0 <= index < len(self._drafts) or not self._drafts[index].is_open:
            raise self._broken(f"{event['type']} for block {index}, which is not open")
        return self._drafts[index]

    def _add_usage(self, event: Mapping[str, Any]) -> None:
        """Usage is cumulative: later numbers replace earlier ones."""
        usage = event.get("usage")
        if isinstance(usage, Mapping):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    # --- the message ----------------------------------------------------------------------

    def _blocks(self) -> list[Block]:
        return [block for draft in self._drafts if (block := _finished(draft)) is not None]

    def _check_tools(self, message: Message) -> None:
        if message.tool_uses and self._stop_reason in _CUT:
            raise self._broken(
                f"a tool call was cut off ({self._stop_reason}); no tool runs."
                " Allow more output tokens or ask for less at once"
            )
        if bool(message.tool_uses) != (self._stop_reason == "tool_use"):
            count = len(message.tool_uses)
            raise self._broken(f"{count} tool calls, but the stop reason is {self._stop_reason}")

    def _refused(self) -> Refused:
        category = self._stop_details.get("category")
        reason = f" ({category})" if category else ""
        return Refused(
            f"the model declined to answer{reason}; rephrase the request or use another model",
            category=category,
            details=dict(self._stop_details),
            semantic_output=self.semantic_output,
        )

    def _value(self, data: Mapping[str, Any], name: str, kind: type[T]) -> T:
        value = data.get(name)
        if not isinstance(value, kind):
            raise self._broken(f"{data.get('type')} without a proper {name}")
        return value

    def _text(self, data: Mapping[str, Any], name: str) -> str:
        """A text that may be missing."""
        return "" if data.get(name) is None else self._value(data, name, str)

    def _broken(self, what: str, *, retryable: bool = False) -> ProtocolError:
        return ProtocolError(
            f"the model service sent a broken response: {what}",
            retryable=retryable and not self.semantic_output,
            semantic_output=self.semantic_output,
        )


_HANDLERS: Final = {
    "content_block_start": Assembly._start_block,
    "content_block_delta": Assembly._grow_block,
    "content_block_stop": Assembly._stop_block,
    "message_delta": Assembly._change_message,
    "message_stop": Assembly._stop_message,
}


def _finished(draft: _Draft) -> Block | None:
    payload = draft.payload
    match payload.get("type"):
        case "text":
            return TextBlock(draft.text) if draft.text else None
        case "thinking":
            return OpaqueBlock({**payload, "thinking": draft.text, "signature": draft.signature})
        case "tool_use":
            return ToolUseBlock(payload["id"], payload["name"], _raw_arguments(draft))
        case _ if draft.pieces:
            return OpaqueBlock({**payload, "input": parse_arguments(draft.text)})
        case _:
            return OpaqueBlock(payload)


def _raw_arguments(draft: _Draft) -> str:
    """What the model wrote; some servers send the whole input with the block's start."""
    return draft.text or json.dumps(draft.payload.get("input") or {})


def _total(usage: Mapping[str, Any]) -> Usage:
    read = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_count(usage, "input_tokens") + read + written,
        output_tokens=_count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0
