"""A message is built from a whole, well-ordered stream or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from op_jupyter.core.messages import (
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from op_jupyter.errors import ProtocolError, Refused
from op_jupyter.providers.response_assembly import Assembly
from op_jupyter.testing.message_stream import Reply, events, text, thinking, tool

BLOCKS = [thinking("hm, let me see"), text("I will add."), tool("add", a=1, b=2)]
WHOLE = list(events(Reply(BLOCKS)))
MESSAGE = Message(
    "assistant",
    (
        OpaqueBlock(thinking("hm, let me see")),
        TextBlock("I will add."),
        ToolUseBlock("toolu_01", "add", '{"a": 1, "b": 2}'),
    ),
)


def assemble(stream):
    assembly = Assembly()
    for event in stream:
        assembly.feed(event)
    return assembly.finish()


def test_a_whole_stream_is_a_message():
    assert assemble(WHOLE).message == MESSAGE


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_no_beginning_of_a_stream_is_a_message(length):
    assembly = Assembly()
    shown = [delta for event in WHOLE[:length] if (delta := assembly.feed(event)) is not None]
    with pytest.raises(ProtocolError) as caught:
        assembly.finish()
    assert caught.value.semantic_output is bool(shown)
    assert caught.value.retryable is not bool(shown)


@pytest.mark.parametrize(
    "index", [i for i, e in enumerate(WHOLE) if e["type"] not in ("content_block_delta", "ping")]
)
def test_a_stream_that_lacks_or_repeats_one_of_its_joints_is_no_message(index):
    with pytest.raises(ProtocolError):
        assemble(WHOLE[:index] + WHOLE[index + 1 :])
    if WHOLE[index]["type"] != "message_delta":  # which may come several times
        with pytest.raises(ProtocolError):
            assemble(WHOLE[: index + 1] + WHOLE[index:])


@given(st.permutations(WHOLE))
def test_a_shuffled_stream_is_the_message_or_an_error(shuffled):
    try:
        message = assemble(shuffled).message
    except ProtocolError:
        return
    assert [type(b) for b in message.content] == [type(b) for b in MESSAGE.content]


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
kinds = st.sampled_from(sorted({event["type"] for event in WHOLE}))
words = ("text", "thinking", "signature", "id", "name", "input", "stop_reason", "stop_details")
inner_kinds = st.sampled_from(["text", "thinking", "tool_use", "text_delta", "signature_delta"])
parts = st.fixed_dictionaries(
    {}, optional={"type": inner_kinds | junk, **dict.fromkeys(words, junk)}
)
names = ("message", "index", "content_block", "delta", "usage")
garbage = st.fixed_dictionaries({"type": kinds | junk}, optional=dict.fromkeys(names, parts | junk))


@settings(max_examples=150)
@given(st.lists(garbage | st.sampled_from(WHOLE), max_size=8))
def test_garbage_is_never_anything_but_a_protocol_error(stream):
    with pytest.raises((ProtocolError, Refused)):
        assemble([*WHOLE[:1], *stream])


def test_several_thinking_pieces_are_shown_and_joined():
    assembly = Assembly()
    deltas = [delta for event in WHOLE if (delta := assembly.feed(event)) is not None]
    pieces = [d.text for d in deltas if isinstance(d, ThinkingDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == "hm, let me see"


def test_a_server_that_sends_the_whole_input_at_once_is_understood():
    start = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    stream = [
        {"type": "message_start", "message": {"usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    assert assemble(stream).message.tool_uses == (ToolUseBlock("t1", "add", '{"a": 1}'),)


def test_a_block_of_a_later_version_is_kept_as_it_is():
    block = {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
    stream = [
        *WHOLE[:1],
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
        {"type": "message_stop"},
    ]
    done = assemble(stream)
    assert done.message.content == (OpaqueBlock({**block, "input": {"query": "x"}}),)
    assert done.stop_reason == "pause_turn"
