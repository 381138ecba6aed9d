"""What a tool returned, made fit to be stored and sent: well-formed, and bounded as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.core.turn import MODEL_STATE, ToolState
from op_jupyter.core.updates import bounded
from op_jupyter.tools.base import ToolOutput
from op_jupyter.tools.summaries import JSON_CHARS, to_json_value

Part: TypeAlias = TextBlock | ImageBlock

HEAD_CHARS: Final = 24_000
TAIL_CHARS: Final = 6_000
MOST_TEXTS: Final = 16
MOST_IMAGES: Final = 8
IMAGES_CHARS: Final = 8_000_000
"""The most of all images of one result, in base64; services take 32 MB for a whole request."""


def text_output(state: ToolState, text: str) -> ToolOutput:
    """A result that is one text."""
    return ToolOutput((TextBlock(text),), state)


def accepted(output: object) -> ToolOutput:
    """*output*, whatever a tool returned, as a well-formed result."""
    if (problem := _problem(output)) is not None:
        return text_output("failed", f"the tool returned {problem}, which is no tool output")
    assert isinstance(output, ToolOutput)
    # Twice the usual room, so that what was cut before is not cut again.
    return ToolOutput(
        tuple(output.content), output.state, to_json_value(output.value, 2 * JSON_CHARS)
    )


def _problem(output: object) -> str | None:
    if not isinstance(output, ToolOutput):
        return type(output).__name__
    if not isinstance(output.state, str) or output.state not in MODEL_STATE:
        return f"state {output.state!r:.40}"
    if not isinstance(output.content, tuple | list):
        return f"content of type {type(output.content).__name__}"
    return next((found for part in output.content if (found := _part_problem(part))), None)


def _part_problem(part: Any) -> str | None:
    match part:
        case TextBlock(str()) | ImageBlock(str(), str()):
            return None
        case TextBlock() | ImageBlock():
            return f"{type(part).__name__} of something that is no text"
        case _:
            return f"content that holds {type(part).__name__}"


def bounded_content(content: Sequence[Part], keep: Callable[[str], str]) -> tuple[Part, ...]:
    """*content*, cut to what one result may hold.

    *keep* stores a text that is cut, whole, and returns where it can be found.
    """
    images = [part for part in content if isinstance(part, ImageBlock)]
    texts = [part.text for part in content if isinstance(part, TextBlock)]
    fitting = _fitting(images)
    if len(fitting) == len(images) and _fit(texts):
        return tuple(content)
    left_out = len(images) - len(fitting)
    told: list[Part] = []
    if texts:
        whole = "\n".join(texts)
        where = "" if _fit([whole]) else keep(whole)
        told.append(TextBlock(bounded(whole, HEAD_CHARS, TAIL_CHARS, where)))
    told += fitting
    if left_out:
        what = "1 image was" if left_out == 1 else f"{left_out} images were"
        told.append(TextBlock(f"[{what} left out: too many, or too large, for one result]"))
    return tuple(told)


def _fit(texts: Sequence[str]) -> bool:
    return len(texts) <= MOST_TEXTS and sum(map(len, texts)) <= HEAD_CHARS + TAIL_CHARS


def _fitting(images: Sequence[ImageBlock]) -> list[ImageBlock]:
    room = IMAGES_CHARS
    fitting: list[ImageBlock] = []
    for image in images:
        if len(fitting) < MOST_IMAGES and len(image.data) <= room:
            fitting.append(image)
            room -= len(image.data)
    return fitting
