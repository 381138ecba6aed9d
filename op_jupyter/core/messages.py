"""What passes between us and a model: content blocks, messages, requests, deltas.

The JSON of blocks and messages is that of the Anthropic Messages API, so a stored
assistant message goes back to the service unchanged (thinking signatures included).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.keys import Json
from op_jupyter.core.values import dataclass

MessageRole: TypeAlias = Literal["user", "assistant"]
StopReason: TypeAlias = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image, base64 encoded."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class OpaqueBlock:
    """A block that is stored and sent back exactly as received (thinking and the like)."""

    payload: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ToolUseBlock:
    """The model asks for a tool call.  *arguments* is the raw JSON text, perhaps malformed."""

    id: str
    name: str
    arguments: str


ResultState: TypeAlias = Literal["success", "error", "denied", "interrupted"]
"""What the model is told of a result (3-turns: the mapping of states)."""


@dataclass(frozen=True, slots=True)
class ToolResultBlock:
    """The one result of a tool call."""

    tool_use_id: str
    content: tuple[TextBlock | ImageBlock, ...]
    state: ResultState = "success"


Block: TypeAlias = TextBlock | ImageBlock | OpaqueBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: MessageRole
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(b.text for b in self.content if isinstance(b, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls, in the model's order."""
        return tuple([b for b in self.content if isinstance(b, ToolUseBlock)])


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; *input_schema* is JSON Schema of an object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a request goes on at a provider that keeps the conversation itself.

    Attributes:
        exchange: names the loop of model and tool calls that the request is part of.
        folder: where the provider's own tools work.
        resume: the provider's own id of the conversation to go on with; None: a new one, and
            the request tells everything.
        lasting: the conversation will be gone on with after the exchange.
    """

    exchange: str
    folder: str
    resume: str | None = None
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, whole and provider-independent.

    *session_key* and *continuation* say where it stands, the second to providers that keep the
    conversation themselves; neither is part of what is sent, nor of a recording's key.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    response_schema: Mapping[str, Any] | None = None
    session_key: str = ""
    continuation: Continuation | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call; *input_tokens* is the total, cached ones included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseStarted:
    """The model began a tool call; it may run only after `ResponseDone`."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The complete response.  Exactly one, and last; nothing is built from anything less."""

    message: Message
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    details: Mapping[str, Json] = field(default_factory=dict)


ModelDelta: TypeAlias = TextDelta | ThinkingDelta | ToolUseStarted | ResponseDone

MISSING_RESULT: Final = (
    "Tool result unavailable: the previous turn ended before a durable result was recorded."
)
"""Stands in for a result that was never stored; the same bytes each time (3-turns)."""


def block_to_json(block: Block) -> dict[str, Any]:
    """*block* in the words of the Messages API."""
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            source = {"type": "base64", "media_type": block.media_type, "data": block.data}
            return {"type": "image", "source": source}
        case OpaqueBlock():
            return dict(block.payload)
        case ToolUseBlock():
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "arguments": block.arguments,
            }
        case ToolResultBlock():
            return {
                "type": "tool_result",
                "tool_use_id": block.tool_use_id,
                "content": [block_to_json(b) for b in block.content],
                "state": block.state,
            }


def block_from_json(data: Mapping[str, Any]) -> Block:
    """Inverse of `block_to_json`; a block of an unknown type is kept as it is."""
    match data.get("type"):
        case "text":
            return TextBlock(data["text"])
        case "image":
            return ImageBlock(data["source"]["media_type"], data["source"]["data"])
        case "tool_use":
            return ToolUseBlock(data["id"], data["name"], data["arguments"])
        case "tool_result":
            parts = tuple(block_from_json(b) for b in data["content"])
            content = tuple(b for b in parts if isinstance(b, TextBlock | ImageBlock))
            return ToolResultBlock(data["tool_use_id"], content, data["state"])
        case _:
            return OpaqueBlock(dict(data))


def message_to_json(message: Message) -> dict[str, Any]:
    """*message* as plain JSON; tool arguments stay raw text (see `ToolUseBlock`)."""
    return {"role": message.role, "content": [block_to_json(b) for b in message.content]}


def message_from_json(data: Mapping[str, Any]) -> Message:
    """Inverse of `message_to_json`."""
    return Message(data["role"], tuple(block_from_json(b) for b in data["content"]))


def request_to_json(request: ModelRequest) -> dict[str, Any]:
    """The whole of *request* that decides the answer: what `sha256` and recordings key on."""
    return {
        "model": request.model,
        "system": request.system,
        "messages": [message_to_json(m) for m in request.messages],
        "tools": [tool_to_json(tool) for tool in request.tools],
        "max_tokens": request.max_tokens,
        "response_schema": (
            None if request.response_schema is None else dict(request.response_schema)
        ),
    }


def tool_to_json(tool: ToolSpec) -> dict[str, Any]:
    """*tool* as plain JSON."""
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
    }


def user_text(text: str) -> Message:
    """A user message of one text block."""
    return Message("user", (TextBlock(text),))


def merge_consecutive(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with neighbours of one role joined, as the Messages API wants turns to alternate.

    Tool results move to the front of their message: the API asks for them first.
    """
    merged: list[Message] = []
    for message in messages:
        if not message.content:
            continue
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, merged[-1].content + message.content)
        else:
            merged.append(message)
    return tuple([_results_first(m) for m in merged])


def _results_first(message: Message) -> Message:
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            break
    else:  # most of them, so no list is made
        return message
    results = [b for b in message.content if isinstance(b, ToolResultBlock)]
    others = [b for b in message.content if not isinstance(b, ToolResultBlock)]
    return Message(message.role, (*results, *others))
