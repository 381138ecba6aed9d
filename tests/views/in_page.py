"""What the live view costs in a real browser, for whoever measures it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from views.conftest import CHROMIUM
from views.harness import CHROMIUM_ARGS, ViewPage
from views.stories import Story

from op_jupyter.views.model import TurnModel

# Until the frame is through: what is asked for after the view's own callback runs after it.
_DELIVER = """async (text) => {
  window.deliver(JSON.parse(text));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}"""
_WORK = frozenset({"ScriptDuration", "RecalcStyleDuration", "LayoutDuration"})


def has_browser() -> bool:
    """Whether Chromium is installed."""
    return Path(CHROMIUM).exists()


@contextmanager
def browser_page() -> Iterator[Any]:
    """A page of a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser.new_page(viewport={"width": 880, "height": 900})
        browser.close()


class Clock:
    """Processor time that scripts, styles and layout took in the page.

    Not the time of a clock on the wall: what else the machine does has no part in it.
    """

    def __init__(self, page: Any) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self) -> float:
        """So far."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(sum(each["value"] for each in metrics if each["name"] in _WORK))


def turn_of(nodes: int) -> Story:
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
    """What a page gets when it is opened late."""
    model = TurnModel()
    for envelope in story.updates:
        model.apply(envelope)
    return model.to_json()


class Painted:
    """The graph of *nodes* nodes, in *page*."""

    def __init__(self, page: Any, nodes: int) -> None:
        self._page = page
        self._story = turn_of(nodes)
        self._state = state_of(self._story)
        self._clock = Clock(page)
        self._numbers = count()

    def first_paint(self) -> float:
        """Seconds from an empty page to all of it."""
        snapshot = {"kind": "snapshot", "state": self._state, "now_ms": 0, "expired": False}
        ViewPage(self._page).leave()
        return self._seconds(snapshot)

    def frames(self, updates: int) -> list[float]:
        """Seconds in the page of each of *updates* frames: a node more, one that ends, words."""
        view = ViewPage(self._page)
        view.load(self._state)
        taken = [self._seconds(self._update()) for _ in range(updates)]
        view.leave()
        return taken

    def _update(self) -> dict[str, Any]:
        story, number = self._story, next(self._numbers)
        story.updates.clear()
        story.node(f"x{number}", "tool", "python", "one more", caller="n1", status="running")
        story.tell("node_updated", id=f"x{max(0, number - 1)}", status="completed", seconds=0.1)
        story.text("a few more words of the answer ")
        return {"kind": "updates", "items": story.updates}

    def _seconds(self, message: dict[str, Any]) -> float:
        before = self._clock.seconds()
        self._page.evaluate(_DELIVER, json.dumps(message))
        return self._clock.seconds() - before


def painted_ms(page: Any, nodes: int) -> dict[str, float]:
    """Milliseconds in the page: the first paint, and the median frame of forty updates."""
    graph = Painted(page, nodes)
    return {
        "paint_ms": graph.first_paint() * 1e3,
        "frame_ms": statistics.median(graph.frames(40)) * 1e3,
    }
