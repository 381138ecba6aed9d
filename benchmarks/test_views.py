"""What the live view costs: its first paint, a frame for each update, and the bytes on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright
from views.conftest import CHROMIUM
from views.harness import CHROMIUM_ARGS, ViewPage
from views.stories import Story, node

from op_jupyter.views.batching import Batcher
from op_jupyter.views.bundle import css, esm
from op_jupyter.views.live import LiveTurn
from op_jupyter.views.model import TurnModel

FIRST_PAINT_SECONDS = 1.0  # of 2,000 nodes
FRAME_SECONDS, UPDATES = 0.016, 40
TOKENS, MOST_MESSAGES, MOST_BYTES = 2_000, 100, 1_000_000

# Until the frame is through: what is asked for after the view's own callback runs after it.
_DELIVER = """async (text) => {
  window.deliver(JSON.parse(text));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}"""


_WORK = frozenset({"ScriptDuration", "RecalcStyleDuration", "LayoutDuration"})


class Clock:
    """Processor time that scripts, styles and layout took in the page.

    Not the time of a clock on the wall: what else the machine does has no part in it.
    """

    def __init__(self, page: Any) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self) -> float:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return sum(each["value"] for each in metrics if each["name"] in _WORK)


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed: python3 tests/support/prepare.py chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser.new_page(viewport={"width": 880, "height": 900})
        browser.close()


def turn(nodes: int) -> Story:
    """A turn with that many nodes, every second one a tool call of the model before it."""
    story = Story().start().phase("running_tools", 1).node("n0", "user", "user", "go")
    for number in range(1, nodes, 2):
        before = f"n{max(0, number - 2)}"
        story.node(f"n{number}", "model", "model", f"step {number}", predecessor=before)
        name, arguments = f"n{number + 1}", json.dumps({"code": f"print({number})\n" * 5})
        story.node(name, "tool", "python", arguments, caller=f"n{number}")
        story.call(f"c{number}", "python", arguments, f"{number}\n" * 5, node_id=name)
    return story


def state_of(story: Story) -> dict[str, Any]:
    model = TurnModel()
    for envelope in story.updates:
        model.apply(envelope)
    return model.to_json()


@pytest.mark.parametrize("nodes", [100, 1_000, 2_000, 5_000])
def test_first_paint(page: Any, nodes: int, benchmark: Any) -> None:
    snapshot = {"kind": "snapshot", "state": state_of(turn(nodes)), "now_ms": 0, "expired": False}
    text, clock, took = json.dumps(snapshot), Clock(page), []

    def paint() -> None:
        before = clock.seconds()
        page.evaluate(_DELIVER, text)
        took.append(clock.seconds() - before)

    benchmark.pedantic(paint, setup=lambda: ViewPage(page).leave(), rounds=3)
    benchmark.extra_info["seconds in the page"] = [round(seconds, 3) for seconds in took]
    assert nodes > 2_000 or min(took) <= FIRST_PAINT_SECONDS


@pytest.mark.parametrize("nodes", [100, 1_000, 5_000])
def test_a_frame_for_each_update(page: Any, nodes: int, benchmark: Any) -> None:
    story = turn(nodes)
    view = ViewPage(page)
    view.load(state_of(story))
    clock, numbers = Clock(page), count()

    def update() -> None:
        story.updates.clear()
        number = next(numbers)
        story.node(f"x{number}", "tool", "python", "one more", caller="n1", status="running")
        story.tell("node_updated", id=f"x{max(0, number - 1)}", status="completed", seconds=0.1)
        story.text("a few more words of the answer ")
        page.evaluate(_DELIVER, json.dumps({"kind": "updates", "items": story.updates}))

    before = clock.seconds()
    benchmark.pedantic(update, rounds=UPDATES)
    each = (clock.seconds() - before) / UPDATES
    view.leave()
    benchmark.extra_info["milliseconds in the page"] = round(each * 1000, 2)
    assert each <= FRAME_SECONDS


def test_the_bytes_of_an_update_do_not_grow_with_the_graph(benchmark: Any) -> None:
    def size(nodes: int) -> int:
        sent: list[Any] = []
        live = LiveTurn(sent.append)
        story = turn(nodes)
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
