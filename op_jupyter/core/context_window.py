"""Keeping a request inside the model's window.

Works on the messages of one request; what is stored is never changed by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import (
    Message,
    ModelRequest,
    TextBlock,
    ToolResultBlock,
    request_to_json,
)
from op_jupyter.core.updates import bounded

PRUNE_OVER_CHARS: Final = 8_192
PRUNE_HEAD_CHARS: Final = 4_096
PRUNE_TAIL_CHARS: Final = 1_024
RESULT_LIMIT_CHARS: Final = 32_000
"""8,000 tokens at four characters each: the most of one result that is ever sent."""
COMPACTION_SHARE: Final = 0.85
BYTES_PER_TOKEN: Final = 4


def estimate_tokens(request: ModelRequest) -> int:
    """Tokens of *request*, by the rule of four bytes a token."""
    return len(canonical_json(request_to_json(request)).encode()) // BYTES_PER_TOKEN


def line_tokens(context_tokens: int, reserved_output: int) -> int:
    """The estimate from which old results are pruned."""
    return int(COMPACTION_SHARE * (context_tokens - reserved_output))


def cap_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with every tool result held under the limit for one result."""
    return tuple(
        _map_results(m, RESULT_LIMIT_CHARS - PRUNE_TAIL_CHARS, PRUNE_TAIL_CHARS) for m in messages
    )


def prune_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with large tool results cut, except those of the newest response."""
    last_asked = max(
        (i for i, m in enumerate(messages) if m.role == "assistant" and m.tool_uses), default=-1
    )
    return tuple(
        m if i > last_asked else _map_results(m, PRUNE_HEAD_CHARS, PRUNE_TAIL_CHARS)
        for i, m in enumerate(messages)
    )


def fit(request: ModelRequest, context_tokens: int) -> ModelRequest:
    """*request* with results capped, and pruned when it would pass the compaction line."""
    request = replace(request, messages=cap_results(request.messages))
    if estimate_tokens(request) < line_tokens(context_tokens, request.max_tokens):
        return request
    return replace(request, messages=prune_results(request.messages))


def _map_results(message: Message, head: int, tail: int) -> Message:
    if not any(isinstance(b, ToolResultBlock) for b in message.content):
        return message
    blocks = tuple(
        _cut(b, head, tail) if isinstance(b, ToolResultBlock) else b for b in message.content
    )
    return Message(message.role, blocks)


def _cut(block: ToolResultBlock, head: int, tail: int) -> ToolResultBlock:
    if sum(len(b.text) for b in block.content if isinstance(b, TextBlock)) <= PRUNE_OVER_CHARS:
        return block
    content = tuple(
        TextBlock(bounded(b.text, head, tail)) if isinstance(b, TextBlock) else b
        for b in block.content
    )
    return replace(block, content=content)
