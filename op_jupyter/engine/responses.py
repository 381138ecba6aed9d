"""What a model answered, made fit to be stored and sent back.

A service takes a conversation back only when its tool calls have ids and names of the shape it
gives out itself, each id once.  One odd call would make every later request of the session
invalid, so it is put right before the message is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Final

from op_jupyter.core.messages import Block, ModelRequest, ResponseDone, ToolUseBlock
from op_jupyter.errors import ProtocolError, Refused

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_ODD_NAME: Final = 64


def check_response(done: ResponseDone) -> None:
    """Whether *done* is an answer at all.

    Raises:
        Refused: the model declined.
        ProtocolError: it is no message of a model, or its tool calls may be cut off.
    """
    if done.message.role != "assistant":
        raise ProtocolError(
            f"the response is a message of the {done.message.role}; it was dropped",
            semantic_output=True,
        )
    if done.stop_reason == "refusal":
        raise Refused("the model declined to answer; ask in another way", semantic_output=True)
    if done.message.tool_uses and done.stop_reason != "tool_use":
        raise ProtocolError(
            f"the response asks for tools but stopped for {done.stop_reason!r}; no tool ran",
            semantic_output=True,
        )


def sound_calls(
    done: ResponseDone, request: ModelRequest, tools: Container[str], new_id: Callable[[str], str]
) -> ResponseDone:
    """*done*, the answer to *request*, with tool calls that can be sent back.

    An id that is odd, or was used before, is replaced by a *new_id*; a name that no tool of
    *tools* has and no service would take back is written in plain characters.
    """
    if not done.message.tool_uses:
        return done
    used = {use.id for message in request.messages for use in message.tool_uses}

    def sound(block: Block) -> Block:
        if not isinstance(block, ToolUseBlock):
            return block
        fits = _ID.fullmatch(block.id) is not None and block.id not in used
        call_id = block.id if fits else new_id("call")
        used.add(call_id)
        return ToolUseBlock(call_id, _sound_name(block.name, tools), block.arguments)

    content = tuple(sound(block) for block in done.message.content)
    return replace(done, message=replace(done.message, content=content))


def _sound_name(name: str, tools: Container[str]) -> str:
    if name in tools or _NAME.fullmatch(name):
        return name
    plain = _ODD.sub("_", name[:_LONGEST_ODD_NAME]) or "unnamed"
    return f"{plain}_" if plain in tools else plain
