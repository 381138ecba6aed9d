"""Requests are made to fit on a copy, by pure rules that change nothing the second time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from op_jupyter.core.context_window import (
    IMAGE_TOKENS,
    cap_results,
    correction,
    fit,
    line_tokens,
    measured,
    normalise,
    output_tokens,
    prune_results,
    shrink,
)
from op_jupyter.core.messages import (
    MISSING_RESULT,
    Block,
    ImageBlock,
    Message,
    ModelRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    user_text,
)
from op_jupyter.core.updates import bounded

RESULT_BYTES = 32_000
"""8,000 tokens: the most of one result that is ever sent."""


def asks(*ids: str) -> Message:
    return Message("assistant", tuple(ToolUseBlock(i, "look", "{}") for i in ids))


def result(call: str, text: str = "seen") -> ToolResultBlock:
    return ToolResultBlock(call, (TextBlock(text),))


def gives(*blocks: Block) -> Message:
    return Message("user", blocks)


def text_of(message: Message) -> str:
    [block] = message.content
    assert isinstance(block, ToolResultBlock)
    [part] = block.content
    assert isinstance(part, TextBlock)
    return part.text


texts = st.one_of(
    st.text(max_size=20),
    st.builds(
        lambda word, times: word * times,
        st.sampled_from(["a", "é", "漢", "😀"]),
        st.sampled_from([8_192, 8_193, 33_000]),
    ),
)
ids = st.sampled_from(["a", "b", "c"])
results = st.builds(
    ToolResultBlock,
    ids,
    st.lists(
        st.one_of(texts.map(TextBlock), st.just(ImageBlock("image/png", "AAAA"))), max_size=3
    ).map(tuple),
)
histories = st.lists(
    st.one_of(
        st.lists(ids, max_size=2, unique=True).map(lambda found: asks(*found)),
        st.lists(st.one_of(results, texts.map(TextBlock)), max_size=3).map(lambda b: gives(*b)),
    ),
    max_size=6,
).map(tuple)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_each_rule_is_pure_and_changes_nothing_the_second_time(
    history: tuple[Message, ...],
) -> None:
    before = repr(history)
    for rule in (prune_results, cap_results, normalise):
        once = rule(history)
        assert rule(once) == once
        assert repr(history) == before
        assert rule(history) == once


@settings(max_examples=60, deadline=None)
@given(histories)
def test_what_is_sent_has_one_result_for_each_call_right_after_it(
    history: tuple[Message, ...],
) -> None:
    fitted = fit(ModelRequest("m", history), 10_000)
    assert fit(fitted.request, 10_000) == fitted
    messages = fitted.request.messages
    for index, message in enumerate(messages):
        given_results = [b for b in message.content if isinstance(b, ToolResultBlock)]
        asked = messages[index - 1].tool_uses if index else ()
        if message.role == "user":
            assert [b.tool_use_id for b in given_results] == [use.id for use in asked]
        for block in given_results:
            size = sum(len(b.text.encode()) for b in block.content if isinstance(b, TextBlock))
            assert size <= RESULT_BYTES
    if messages and messages[-1].role == "assistant":
        assert not messages[-1].tool_uses


def test_a_missing_result_is_the_constant_text_and_a_stray_one_goes() -> None:
    mended = normalise([asks("a", "b"), gives(result("b"), result("x"), TextBlock("and?"))])
    assert mended[1] == gives(
        ToolResultBlock("a", (TextBlock(MISSING_RESULT),), "interrupted"),
        result("b"),
        TextBlock("and?"),
    )


def test_large_old_results_are_cut_to_their_ends_and_those_of_the_newest_response_are_not() -> None:
    large = "h" * 4_096 + "m" * 5_000 + "t" * 1_024
    exact = "x" * 8_192
    history = (asks("a"), gives(result("a", large)), asks("b"), gives(result("b", large)))
    pruned = prune_results(history)
    kept = text_of(pruned[1])
    assert kept.startswith("h" * 4_096 + "\n…") and kept.endswith("…\n" + "t" * 1_024)
    assert "5000 characters cut" in kept
    assert pruned[2:] == history[2:]
    assert prune_results([gives(result("a", exact)), asks("b")])[0] == gives(result("a", exact))


def test_a_result_of_8000_tokens_is_sent_whole_and_one_that_is_longer_is_cut() -> None:
    whole, longer = gives(result("a", "x" * RESULT_BYTES)), gives(result("a", "x" * 32_001))
    assert cap_results([whole]) == (whole,)
    (cut,) = cap_results([longer])
    assert "characters cut" in text_of(cut) and len(text_of(cut)) <= RESULT_BYTES


PLACES = [f"context/blobs/{digit * 64}" for digit in "0123456789"]


def test_where_the_whole_of_a_result_is_kept_survives_every_cut() -> None:
    stored = bounded("h" * 30_000 + "t" * 30_000, 24_000, 6_000, PLACES[0])
    history = [asks("a"), gives(result("a", stored)), asks("b"), gives(result("b"))]
    pruned = text_of(prune_results(history)[1])
    assert f"\n… {len(stored) - 5_120} characters cut; whole: {PLACES[0]} …\n" in pruned
    assert prune_results(prune_results(history)) == prune_results(history)

    capped = text_of(cap_results([gives(result("a", "漢" * 9_000 + stored))])[0])
    assert f"whole: {PLACES[0]} …" in capped
    assert len(capped.encode()) <= RESULT_BYTES

    shrunk = shrink(ModelRequest("m", tuple(history)), 400).request
    assert f"whole: {PLACES[0]} …" in text_of(shrunk.messages[1])


def test_a_mark_that_is_still_there_is_not_told_twice_and_many_are_told_in_part() -> None:
    early = bounded("x" * 9_000, 100, 100, PLACES[0]) + "y" * 20_000
    many = "".join(bounded("x" * 9_000, 2_000, 100, place) for place in PLACES)
    for text, count in ((early, 1), (many, 2 + 4)):
        history = [gives(result("a", text)), asks("b")]
        pruned = text_of(prune_results(history)[0])
        assert sum(pruned.count(place) for place in PLACES) <= count
        assert PLACES[0] in pruned


def test_pruning_waits_for_the_line() -> None:
    history = (asks("a"), gives(result("a", "x" * 9_000)), asks("b"), gives(result("b")))
    request = ModelRequest("m", history)
    size = measured(request).tokens
    assert fit(request, size + 1).request == request
    assert fit(request, size).tokens < size


def test_the_estimate_counts_bytes_and_takes_an_image_for_what_services_count() -> None:
    small = measured(ModelRequest("m", (user_text("ab"),))).tokens
    assert measured(ModelRequest("m", (user_text("ab" + "漢" * 400),))).tokens == small + 300
    picture = gives(TextBlock("ab"), ImageBlock("image/png", "A" * 4_000_000))
    assert small < measured(ModelRequest("m", (picture,))).tokens < small + IMAGE_TOKENS + 100


def test_the_line_is_85_percent_of_the_window_with_the_answer_reserved_once() -> None:
    assert line_tokens(200_000, 8_192) == int(0.85 * (200_000 - 8_192))
    assert line_tokens(200_000, 8_192, correction=1_000) == int(0.85 * (200_000 - 8_192)) - 1_000


def test_a_small_window_keeps_three_quarters_for_the_question() -> None:
    assert output_tokens(200_000, 8_192) == 8_192
    assert output_tokens(4_096, 8_192) == 1_024
    assert output_tokens(4_096, 256) == 256
    assert line_tokens(4_096, output_tokens(4_096, 8_192)) > 2_500


def test_reported_usage_corrects_the_estimate_within_reason() -> None:
    assert correction(1_000, 1_300) == 300
    assert correction(1_000, 800) == -200
    assert correction(1_000, 0) == 0
    assert correction(1_000, 10) == -500
    assert correction(1_000, 10**9) == 1_000


def test_a_request_for_a_summary_fits_whatever_stands_in_it() -> None:
    words: list[Message] = []
    for number in range(60):
        call = f"c{number}"
        words += [user_text("question " * 500), asks(call), gives(result(call, "r" * 30_000))]
    arguments = ToolUseBlock("big", "write", '{"text": "' + "y" * 100_000 + '"}')
    words += [Message("assistant", (arguments,)), gives(result("big"), TextBlock("summarise"))]
    request = ModelRequest("m", tuple(words))
    for limit in (50_000, 5_000, 1_000):
        fitted = shrink(request, limit)
        assert fitted.tokens < limit
        last = fitted.request.messages[-1]
        assert last.content[-1] == TextBlock("summarise")
        assert fitted.request.messages == normalise(fitted.request.messages)
    assert shrink(request, 10**9).request == replace(
        request, messages=prune_results(request.messages)
    )


def test_what_cannot_fit_at_all_keeps_its_first_and_last_message() -> None:
    request = ModelRequest("m", (user_text("x" * 5_000), asks("a"), gives(result("a"))))
    messages: Any = shrink(request, 1).request.messages
    assert messages[0].role == "user" and len(messages) >= 1
