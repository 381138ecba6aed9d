"""Few messages for much text, prompt ones for everything else."""

import json
from typing import Any

import pytest
from views.stories import Story

from op_jupyter.views.batching import INTERVAL, TEXT_PIECES, TEXT_WAIT, Batcher

QUICK = 4


def text(sequence: int, piece: str = "a") -> dict[str, Any]:
    return Story().tell("text_delta", text=piece).updates[0] | {"sequence": sequence}


def other(sequence: int) -> dict[str, Any]:
    return Story().tell("plan_updated", steps=[]).updates[0] | {"sequence": sequence}


def after_quick_texts() -> tuple[Batcher, float]:
    """A batcher that has sent its first few texts, and the time."""
    batcher, now = Batcher(), 100.0
    for sequence in range(1, QUICK + 1):
        batcher.add(text(sequence), now)
        batcher.take(now)
        now += 1
    return batcher, now


def test_nothing_waits_at_first() -> None:
    assert Batcher().due_at() is None
    assert Batcher().take(0.0) == []


def test_the_first_words_go_at_once() -> None:
    batcher = Batcher()
    batcher.add(text(1), 5.0)
    due = batcher.due_at()
    assert due is not None
    assert due <= 5.0


def test_later_text_waits_for_company_but_never_longer_than_a_second() -> None:
    batcher, now = after_quick_texts()
    batcher.add(text(10), now)
    assert batcher.due_at() == now + TEXT_WAIT
    for sequence in range(11, 11 + TEXT_PIECES):
        batcher.add(text(sequence), now)
    due = batcher.due_at()
    assert due is not None
    assert due <= now


def test_anything_else_does_not_wait_and_takes_the_text_along() -> None:
    batcher, now = after_quick_texts()
    batcher.add(text(10, "one "), now)
    batcher.add(text(11, "two"), now)
    batcher.add(other(12), now)
    due = batcher.due_at()
    assert due is not None
    assert due <= now
    items = batcher.take(now)
    assert [(item["kind"], item["sequence"]) for item in items] == [
        ("text_delta", 11),
        ("plan_updated", 12),
    ]
    assert items[0]["data"] == {"text": "one two"}


def test_two_messages_keep_their_distance() -> None:
    batcher = Batcher()
    batcher.add(other(1), 1.0)
    batcher.take(1.0)
    batcher.add(other(2), 1.001)
    assert batcher.due_at() == 1.0 + INTERVAL


def test_lines_of_one_tool_are_joined_and_those_of_two_are_not() -> None:
    batcher, story = Batcher(), Story()
    for call in ("a", "a", "b"):
        story.tell("tool_call_progress", id=call, text=call)
    for envelope in story.updates:
        batcher.add(envelope, 0.0)
    assert [item["data"] for item in batcher.take(0.0)] == [
        {"id": "a", "text": "a\na"},
        {"id": "b", "text": "b"},
    ]


def test_what_was_fed_is_not_changed_by_joining() -> None:
    batcher, first = Batcher(), text(1, "a")
    batcher.add(first, 0.0)
    batcher.add(text(2, "b"), 0.0)
    assert first["data"] == {"text": "a"}


def stream(tokens: int, tokens_a_second: float) -> list[list[dict[str, Any]]]:
    """The messages of an answer of that length at that speed."""
    story = Story().start().phase("running_model", 1)
    story.text(*(f"token{index} " for index in range(tokens)))
    story.tell("draft_cleared").finish("the answer")
    batcher, now, sent = Batcher(), 0.0, []
    for envelope in story.updates:
        arrival = now + 1 / tokens_a_second
        while (due := batcher.due_at()) is not None and due <= arrival:
            sent.append(batcher.take(max(now, due)))
        now = arrival
        batcher.add(envelope, now)
    return [*sent, batcher.take(now)]


@pytest.mark.parametrize("tokens_a_second", [25, 60, 500, 1e6])
def test_two_thousand_tokens_take_at_most_a_hundred_messages_and_a_megabyte(
    tokens_a_second: float,
) -> None:
    sent = stream(2000, tokens_a_second)
    assert len(sent) <= 100
    wire = [json.dumps({"kind": "updates", "items": items}) for items in sent]
    assert sum(map(len, wire)) <= 1_000_000
    texts = [i["data"]["text"] for items in sent for i in items if i["kind"] == "text_delta"]
    assert "".join(texts) == "".join(f"token{index} " for index in range(2000))
