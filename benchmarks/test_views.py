"""What the live view costs: its first paint, a frame for each update, and the bytes on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from views.harness import ViewPage
from views.in_page import Painted, browser_page, has_browser, state_of, turn_of
from views.stories import Story, node

from op_jupyter.views.batching import Batcher
from op_jupyter.views.bundle import css, esm
from op_jupyter.views.live import LiveTurn

FIRST_PAINT_SECONDS = 1.0  # of 2,000 nodes
FRAME_SECONDS, UPDATES = 0.016, 40
TOKENS, MOST_MESSAGES, MOST_BYTES = 2_000, 100, 1_000_000


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    if not has_browser():
        pytest.skip("chromium is not installed: python3 tests/support/prepare.py chromium")
    with browser_page() as opened:
        yield opened


@pytest.mark.parametrize("nodes", [100, 1_000, 2_000, 5_000])
def test_first_paint(page: Any, nodes: int, benchmark: Any) -> None:
    graph = Painted(page, nodes)
    took: list[float] = []
    benchmark.pedantic(lambda: took.append(graph.first_paint()), rounds=3)
    benchmark.extra_info["seconds in the page"] = [round(seconds, 3) for seconds in took]
    assert nodes > 2_000 or min(took) <= FIRST_PAINT_SECONDS


@pytest.mark.parametrize("nodes", [100, 1_000, 5_000])
def test_a_frame_for_each_update(page: Any, nodes: int, benchmark: Any) -> None:
    graph = Painted(page, nodes)
    frames = benchmark.pedantic(lambda: graph.frames(UPDATES), rounds=1)
    each = sum(frames) / UPDATES
    benchmark.extra_info["milliseconds in the page"] = round(each * 1000, 2)
    assert each <= FRAME_SECONDS


def test_the_bytes_of_an_update_do_not_grow_with_the_graph(benchmark: Any) -> None:
    def size(nodes: int) -> int:
        sent: list[Any] = []
        live = LiveTurn(sent.append)
        story = turn_of(nodes)
        for envelope in story.updates:
            live.feed(envelope)
        live.flush()
        sent.clear()
        live.feed({**story.updates[-1], "sequence": 1_000_000, **_one_more()})
        live.flush()
        return len(json.dumps(sent))

    sizes = benchmark.pedantic(lambda: {nodes: size(nodes) for nodes in (100, 1_000, 5_000)})
    benchmark.extra_info["bytes"] = sizes
    assert max(sizes.values()) - min(sizes.values()) <= 8  # a number may have more digits


def _one_more() -> dict[str, Any]:
    return {"kind": "node_appended", "data": node("more", "tool", "python", "x", caller="n1")}


def test_the_messages_of_a_streamed_answer(page: Any, benchmark: Any) -> None:
    """2,000 tokens at 100 a second, by a clock of its own; counted where they arrive."""
    view = ViewPage(page)
    view.load(state_of(Story().start()))
    messages: list[str] = []

    def stream() -> None:
        batcher, now = Batcher(), 0.0
        for envelope in (
            Story().start().phase("running_model", 1).text(*["token "] * TOKENS).updates
        ):
            now += 0.01
            batcher.add(envelope, now)
            if (due := batcher.due_at()) is not None and due <= now:
                messages.append(json.dumps({"kind": "updates", "items": batcher.take(now)}))
        messages.append(json.dumps({"kind": "updates", "items": batcher.take(now)}))
        for message in messages:
            page.evaluate("(text) => window.deliver(JSON.parse(text))", message)

    benchmark.pedantic(stream, rounds=1)
    view.settle()
    assert page.locator(".opv-md").inner_text().count("token") == TOKENS
    view.leave()
    size = sum(map(len, [*messages, esm(), css()]))  # each view brings its module along
    benchmark.extra_info |= {"messages": len(messages), "bytes": size}
    assert len(messages) <= MOST_MESSAGES and size <= MOST_BYTES
