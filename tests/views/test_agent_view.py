"""The widget's Python side: it sends what it is fed, and hands clicks over."""

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets
import pytest
from views import stories
from views.stories import Story

from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.updates import Envelope, Snapshot
from op_jupyter.views.agent_view import AgentView
from op_jupyter.views.model import TurnModel

Wire = dict[str, Any]


class Page(AgentView):
    """A view whose messages the test reads instead of a browser."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Wire] = []

    def send(self, content: Wire, buffers: object = None) -> None:
        self.sent.append(content)

    def says(self, **content: Any) -> None:
        """A message from the browser, the way ipywidgets delivers it."""
        data = {"method": "custom", "content": content}
        self._handle_msg({"content": {"data": data}, "buffers": []})

    def of_kind(self, kind: str) -> list[Wire]:
        return [message for message in self.sent if message["kind"] == kind]


@pytest.fixture
def page() -> Page:
    return Page()


def feed(page: Page, story: Story) -> None:
    for envelope in story.updates:
        page.feed(envelope)


def test_it_is_an_ordinary_widget_with_a_constant_repr(page: Page) -> None:
    assert isinstance(page, ipywidgets.DOMWidget)
    assert repr(page) == "<agent turn: live where widgets are shown>"
    assert page._repr_mimebundle_()[0]["text/plain"] == "<agent turn: live where widgets are shown>"


def test_it_stands_in_a_box_beside_other_widgets(page: Page) -> None:
    box = ipywidgets.VBox([ipywidgets.Label("before"), page])
    assert box.get_state()["children"][1] == f"IPY_MODEL_{page.model_id}"


def test_every_render_is_answered_with_the_whole_turn(page: Page) -> None:
    page.attach()
    feed(page, stories.running())
    assert not page.ready.is_set()
    page.says(kind="ready")
    page.says(kind="ready")
    assert page.ready.is_set()
    assert [m["state"] for m in page.of_kind("snapshot")] == [page.turn(), page.turn()]
    page.finish()


def test_a_view_whose_output_was_cleared_is_lost_until_a_page_shows_it(page: Page) -> None:
    page.attach()
    page.says(kind="removed", cleared=True)
    assert not page.lost  # it was never there
    page.says(kind="ready")
    page.says(kind="removed", cleared=False)  # its tab was closed: it may come back
    assert not page.lost
    page.says(kind="removed", cleared=True)
    assert page.lost
    assert page.of_kind("who")
    page.says(kind="here")  # another page shows it as well
    assert not page.lost
    page.says(kind="removed", cleared=True)
    page.says(kind="ready")
    assert not page.lost
    page.finish()


# -- giving way to what stays

STAYS = {"text/plain": "the answer"}


def test_a_view_that_no_page_shows_is_freed_at_once(page: Page) -> None:
    page.leave(STAYS)
    assert page.comm is None
    assert page.sent == []


def test_a_view_is_freed_once_its_page_says_that_it_is_gone(page: Page) -> None:
    page.attach()
    page.says(kind="ready")
    page.finish()
    page.says(kind="removed")  # scrolled out of sight, or its tab was closed: it may come back
    page.leave(STAYS)
    assert page.comm is not None
    assert page.of_kind("leave") == []  # the page replaces the display by itself
    page.says(kind="removed")
    assert page.comm is None


@pytest.mark.parametrize("before", [True, False])
def test_a_page_that_was_loaded_again_is_told_what_stays(page: Page, before: bool) -> None:
    page.attach()
    page.says(kind="ready")
    if before:
        page.says(kind="ready")
    page.finish()
    page.leave(STAYS, {"openprogram": {"turn_id": "t1"}})
    if not before:
        page.says(kind="ready")
    assert page.of_kind("leave") == [
        {
            "kind": "leave",
            "model_id": page.model_id,
            "data": STAYS,
            "metadata": {"openprogram": {"turn_id": "t1"}},
        }
    ]


def test_views_that_no_page_gives_back_do_not_pile_up() -> None:
    pages = [Page() for _ in range(30)]
    for page in pages:
        page.says(kind="ready")
        page.leave(STAYS)
    assert sum(page.comm is not None for page in pages) == 8
    assert pages[-1].comm is not None


def test_a_click_reaches_the_callback_once(page: Page) -> None:
    heard: list[tuple[str, PermissionAnswer]] = []
    page.attach(on_decide=lambda *answer: heard.append(answer))
    feed(page, stories.asking(stories.request("c1")))
    page.says(kind="decide", id="c1", answer="allow", arguments=None, message="")
    page.says(kind="decide", id="c1", answer="deny")
    assert heard == [("c1", PermissionAnswer("allow", "click"))]
    page.finish()


def test_stop_reaches_the_callback(page: Page) -> None:
    heard: list[str] = []
    page.attach(on_cancel=lambda: heard.append("stop"))
    page.says(kind="cancel")
    assert heard == ["stop"]
    page.finish()


def test_details_and_actions_are_offered_only_when_somebody_takes_them(page: Page) -> None:
    page.attach()
    page.says(kind="ready")
    page.says(kind="details", id="n1")
    page.says(kind="node_action", action="fork", id="n1")
    snapshot = page.of_kind("snapshot")[0]
    assert (snapshot["details"], snapshot["actions"]) == (False, [])
    assert len(page.sent) == 1
    page.finish()


def test_details_and_notes_come_back_to_the_page(page: Page) -> None:
    page.attach(
        on_details=lambda node_id: {"input": node_id, "output": "\ud800"},
        on_node_action=lambda action, node_id: f"{action} {node_id}",
        node_actions=["fork"],
    )
    page.says(kind="details", id="n1")
    page.says(kind="node_action", action="fork", id="n1")
    page.says(kind="node_action", action="rewind", id="n1")
    assert page.sent == [
        {"kind": "details", "id": "n1", "input": "n1", "output": "\ufffd"},
        {"kind": "note", "id": "n1", "action": "fork", "text": "fork n1"},
    ]
    page.finish()


@pytest.mark.parametrize(
    "content", [{}, {"kind": "what"}, {"kind": "decide"}, {"kind": "details", "id": 3}]
)
def test_messages_that_make_no_sense_do_nothing(page: Page, content: Wire) -> None:
    page.attach(on_details=lambda _: pytest.fail("asked"))
    page.says(**content)
    page._receive(page, "not a mapping", [])
    assert page.sent == []
    page.finish()


class Session:
    """As much of a session as a view sees."""

    def __init__(self, runtime: Wire, sequence: int = 0) -> None:
        self.listeners: list[Callable[[Envelope], None]] = []
        self.runtime, self.sequence = runtime, sequence

    def subscribe(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def snapshot(self) -> Snapshot:
        return Snapshot("s1", self.sequence, "auto", "none", self.runtime)


RUNNING = {
    "state": "running",
    "turn_id": "t1",
    "subject": "x",
    "client_request_id": "r1",
    "phase": "running_model",
    "step": 1,
    "draft": "so far",
    "reasoning": "",
    "tool_calls": [],
    "permission": None,
    "plan": [],
    "started_at_ms": 1,
}
ENDED = {"state": "terminal", "turn_id": "t0", "outcome": {"status": "completed"}, "plan": []}


def test_a_running_turn_is_joined_and_left_at_the_end(page: Page) -> None:
    session = Session(RUNNING, 7)
    page.attach(subscribe=session.subscribe, snapshot=session.snapshot)
    story = Story()
    story.sequence = 7
    page.feed(story.text(", and on").updates[0])
    assert page.turn()["draft"] == "so far, and on"
    page.finish()
    assert session.listeners == []


def test_an_earlier_turn_that_has_ended_is_not_taken_for_the_next_one(page: Page) -> None:
    session = Session(ENDED, 7)
    page.attach(subscribe=session.subscribe, snapshot=session.snapshot, client_request_id="r1")
    assert page.turn()["turn_id"] is None
    story = Story()
    story.sequence = 7
    feed(page, story.start())
    assert page.turn()["turn_id"] == "t1"
    page.finish()


def test_the_saved_words_stay_small_and_say_how_it_ended(page: Page) -> None:
    page.attach()
    assert page.state == {"status": "running"}
    story = Story().start().finish("x" * 100_000)
    feed(page, story)
    page.finish()
    assert page.state["status"] == "completed"
    assert len(str(page.state)) < 5000


def test_expiring_tells_the_page_and_refuses_clicks(page: Page) -> None:
    page.attach(on_decide=lambda *_: pytest.fail("answered"))
    feed(page, stories.asking(stories.request("c1")))
    page.expire()
    page.says(kind="decide", id="c1", answer="allow")
    assert page.sent[-1] == {"kind": "expire"}
    assert page.state["status"] == "interrupted"
    page.finish()


def test_feeding_from_many_threads_loses_nothing_of_the_order(page: Page) -> None:
    page.attach()
    story = Story().start().text(*("x" for _ in range(300)))
    lock, waiting = threading.Lock(), list(story.updates)

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                page.feed(waiting.pop(0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page.finish()
    replayed = TurnModel()
    for message in page.of_kind("updates"):
        for item in message["items"]:
            replayed.apply(item)
    assert replayed.state == page.turn()
    assert replayed.state["draft"] == "x" * 300
