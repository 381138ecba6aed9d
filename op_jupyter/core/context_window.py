"""Keeping a request inside the model's window.

Works on the messages of one request; what is stored is never changed by it.  Everything here
is a pure function, and doing it twice changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import (
    MISSING_RESULT,
    Block,
    ImageBlock,
    Message,
    ModelRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    merge_consecutive,
    request_to_json,
)
from op_jupyter.core.updates import bounded, kept_places
from op_jupyter.core.values import dataclass

PRUNE_OVER_CHARS: Final = 8_192
PRUNE_HEAD_CHARS: Final = 4_096
PRUNE_TAIL_CHARS: Final = 1_024
RESULT_TOKENS: Final = 8_000
"""The most of one result that is ever sent."""
COMPACTION_SHARE: Final = 0.85
BYTES_PER_TOKEN: Final = 4
IMAGE_TOKENS: Final = 1_600
"""What services count for an image of usual size; its base64 says nothing about that."""
MOST_OUTPUT_TOKENS: Final = 8_192
LEAST_SHRUNK_CHARS: Final = 256

_MARKER_CHARS: Final = 60
_MOST_PLACES: Final = 4
_Change: TypeAlias = Callable[[ToolResultBlock], ToolResultBlock]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that is ready to be sent.

    Attributes:
        data: its canonical JSON, of which its sha256 is made.
        tokens: the local estimate of its size.
    """

    request: ModelRequest
    data: bytes
    tokens: int


def measured(request: ModelRequest) -> Fitted:
    """*request* with its estimate: four bytes a token, a constant for each image."""
    data = canonical_json(request_to_json(request)).encode("utf-8", "surrogatepass")
    images = [len(b.data) for m in request.messages for b in _images(m.content)]
    size = len(data) - sum(images)
    return Fitted(request, data, size // BYTES_PER_TOKEN + IMAGE_TOKENS * len(images))


def output_tokens(context_tokens: int, most: int) -> int:
    """How much of the window is kept free for the answer: at most a quarter of it."""
    return max(1, min(MOST_OUTPUT_TOKENS, most, context_tokens // 4))


def line_tokens(context_tokens: int, reserved_output: int, correction: int = 0) -> int:
    """The local estimate from which a request is too large.

    *correction*: tokens that the service counted beyond the local estimate, when it last said.
    """
    return max(0, int(COMPACTION_SHARE * (context_tokens - reserved_output)) - correction)


def correction(estimated: int, reported: int) -> int:
    """What to add to estimates, from one request that was *estimated* and then counted.

    A count that is far off the estimate is no count of this request (some servers report only
    a part), so it moves the estimate by half at most, or to twice of it.
    """
    if reported <= 0:
        return 0
    return max(estimated // 2, min(reported, 2 * estimated)) - estimated


def fit(request: ModelRequest, line: int) -> Fitted:
    """*request* with well-formed, capped results; old ones pruned when it reaches the *line*."""
    messages = normalise(cap_results(request.messages))
    fitted = measured(replace(request, messages=messages))
    if fitted.tokens < line:
        return fitted
    pruned = prune_results(messages)
    return fitted if pruned == messages else measured(replace(request, messages=pruned))


def shrink(request: ModelRequest, limit: int) -> Fitted:
    """*request*, made to fit under *limit* tokens by force: for the request for a summary.

    First long texts lose their middle, ever shorter, then the oldest messages go.  The first
    and the last message stay whatever happens.
    """
    fitted = measured(replace(request, messages=prune_results(request.messages)))
    longest = 16_384
    while fitted.tokens >= limit and longest >= LEAST_SHRUNK_CHARS:
        shorter = tuple(_shorten(m, longest) for m in fitted.request.messages[:-1])
        messages = (*shorter, *fitted.request.messages[-1:])
        fitted = measured(replace(fitted.request, messages=messages))
        longest //= 2
    while fitted.tokens >= limit and len(fitted.request.messages) > 2:
        first, *others = fitted.request.messages
        kept = normalise([first, *others[max(1, len(others) // 4) :]])
        fitted = measured(replace(fitted.request, messages=merge_consecutive(kept)))
    return fitted


def cap_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with every tool result held under `RESULT_TOKENS`."""
    return tuple([_map_results(m, _capped) for m in messages])


def prune_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with large tool results cut, except those of the newest response."""
    last_asked = max(
        (i for i, m in enumerate(messages) if m.role == "assistant" and m.tool_uses), default=-1
    )
    return tuple(m if i > last_asked else _map_results(m, _pruned) for i, m in enumerate(messages))


def normalise(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* in which each tool call has its one result, in order, right after it.

    A result that is missing becomes the constant text; one that no call asked for is left out.
    """
    whole: list[Message] = []
    waiting: tuple[str, ...] = ()
    for message in messages:
        if message.role == "assistant":
            if waiting:
                whole.append(Message("user", tuple(map(missing_result, waiting))))
            whole.append(message)
            waiting = tuple(use.id for use in message.tool_uses)
            continue
        answered = _answered(message, waiting)
        if answered.content:
            whole.append(answered)
        waiting = ()
    if waiting:
        whole.append(Message("user", tuple(map(missing_result, waiting))))
    return tuple(whole)


def missing_result(tool_use_id: str) -> ToolResultBlock:
    """What stands for a result that was never stored; the same bytes each time."""
    return ToolResultBlock(tool_use_id, (TextBlock(MISSING_RESULT),), "interrupted")


def _answered(message: Message, waiting: Sequence[str]) -> Message:
    """*message* of a user with exactly the results of the calls that are *waiting*, first."""
    given = [b for b in message.content if isinstance(b, ToolResultBlock)]
    if not given and not waiting:
        return message
    if [b.tool_use_id for b in given] == list(waiting) and (
        message.content[: len(given)] == tuple(given)
    ):
        return message
    first: dict[str, ToolResultBlock] = {}
    for block in given:
        first.setdefault(block.tool_use_id, block)
    results = [first.get(call) or missing_result(call) for call in waiting]
    others = [b for b in message.content if not isinstance(b, ToolResultBlock)]
    return Message(message.role, (*results, *others))


def _map_results(message: Message, change: _Change) -> Message:
    if not [b for b in message.content if isinstance(b, ToolResultBlock)]:
        return message
    blocks = tuple(change(b) if isinstance(b, ToolResultBlock) else b for b in message.content)
    return message if blocks == message.content else Message(message.role, blocks)


def _pruned(block: ToolResultBlock) -> ToolResultBlock:
    text = _text_of(block)
    if len(text) <= PRUNE_OVER_CHARS:
        return block
    return _with_text(block, _cut(text, PRUNE_HEAD_CHARS, PRUNE_TAIL_CHARS))


def _capped(block: ToolResultBlock) -> ToolResultBlock:
    limit = RESULT_TOKENS * BYTES_PER_TOKEN
    text = _text_of(block)
    # No character takes more than four bytes: most texts need not be encoded to be known short.
    if 4 * len(text) <= limit or len(text.encode("utf-8", "surrogatepass")) <= limit:
        return block
    room = limit - _MARKER_CHARS - PRUNE_TAIL_CHARS * 4 - len(_told(kept_places(text)))
    head = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
    return _with_text(block, _cut(text, len(head), PRUNE_TAIL_CHARS))


def _cut(text: str, head: int, tail: int) -> str:
    """`bounded`; where the whole of an earlier cut is kept is still told when its mark goes."""
    if len(text) <= head + tail:
        return text
    left = {*kept_places(text[:head]), *kept_places(text[-tail:])}
    return bounded(text, head, tail, _told([p for p in kept_places(text) if p not in left]))


def _told(places: Sequence[str]) -> str:
    return ", ".join(places[:_MOST_PLACES])


def _text_of(block: ToolResultBlock) -> str:
    return "\n".join(b.text for b in block.content if isinstance(b, TextBlock))


def _with_text(block: ToolResultBlock, text: str) -> ToolResultBlock:
    """*block* with one *text* in place of all its texts; its images follow."""
    images = (b for b in block.content if isinstance(b, ImageBlock))
    return replace(block, content=(TextBlock(text), *images))


def _shorten(message: Message, longest: int) -> Message:
    """*message* with texts of at most about *longest* characters, and no images."""

    def shorter(block: Block) -> Block:
        match block:
            case TextBlock(text):
                return TextBlock(_cut(text, longest * 3 // 4, longest // 4))
            case ImageBlock():
                return TextBlock("[image]")
            case ToolResultBlock():
                text = _text_of(block) or "[image]"
                kept = (TextBlock(_cut(text, longest * 3 // 4, longest // 4)),)
                return replace(block, content=kept)
            case ToolUseBlock(arguments=raw) if len(raw) > longest:
                cut = {"cut": bounded(raw, longest * 3 // 4, longest // 4)}
                return replace(block, arguments=canonical_json(cut))
            case _:
                return block

    return Message(message.role, tuple(map(shorter, message.content)))


def _images(blocks: Sequence[Block]) -> list[ImageBlock]:
    found: list[ImageBlock] = []
    for block in blocks:
        if isinstance(block, ImageBlock):
            found.append(block)
        elif isinstance(block, ToolResultBlock):
            found += [b for b in block.content if isinstance(b, ImageBlock)]
    return found
