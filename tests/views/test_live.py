"""A live turn between session and page: few bytes, nothing lost, one answer a card."""

import json
import threading
from typing import Any

import pytest
from views import stories
from views.stories import Story

from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.updates import Envelope, Update
from op_jupyter.views.live import LiveTurn
from op_jupyter.views.model import TurnModel

Wire = dict[str, Any]


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def live_turn() -> tuple[LiveTurn, list[Wire], Clock]:
    sent: list[Wire] = []
    clock = Clock()
    return LiveTurn(sent.append, clock=clock, wall_clock=lambda: 5.0), sent, clock


def feed(turn: LiveTurn, story: Story | list[Wire]) -> None:
    for envelope in story.updates if isinstance(story, Story) else story:
        turn.feed(envelope)


def test_the_bytes_of_an_update_do_not_depend_on_the_size_of_the_graph() -> None:
    def bytes_of_next_node(before: int) -> int:
        turn, sent, _ = live_turn()
        story = Story().start()
        for index in range(before):
            story.node(f"a{index:05}", "tool", "python", caller="m")
        feed(turn, story)
        turn.flush()
        story.at_ms, story.sequence = 9_000_000, 90_000
        turn.feed(story.node("b00000", "tool", "python", caller="m").updates[-1])
        turn.flush()
        return len(json.dumps(sent[-1]))

    assert bytes_of_next_node(10) == bytes_of_next_node(2000)


def test_only_the_turn_that_is_followed_is_shown() -> None:
    turn, _, _ = live_turn()
    turn.follow(client_request_id="r1")
    other = Story(turn_id="t0").start()
    other.updates[0]["data"]["client_request_id"] = "another"
    feed(turn, other.text("not ours"))
    ours = Story(turn_id="t1")
    ours.sequence = 10
    feed(turn, ours.start().text("ours"))
    feed(turn, [{**other.updates[1], "sequence": 99}])
    assert (turn.state()["turn_id"], turn.state()["draft"]) == ("t1", "ours")


def test_envelopes_and_their_wire_form_are_the_same_to_it() -> None:
    turn, _, _ = live_turn()
    update = Update("turn_started", {"subject": "x", "client_request_id": "r"})
    turn.feed(Envelope("s1", "t1", 1, 1000, update))
    assert turn.state()["subject"] == "x"


def test_a_page_that_loads_late_gets_the_whole_turn_after_what_waited() -> None:
    turn, sent, _ = live_turn()
    feed(turn, stories.running())
    turn.send_snapshot()
    assert [message["kind"] for message in sent] == ["updates", "snapshot"]
    page = TurnModel(sent[1]["state"])
    for item in sent[0]["items"]:
        page.apply(item)
    assert page.state == turn.state()
    assert sent[1]["now_ms"] == 5000


def test_what_is_fed_while_a_snapshot_is_taken_is_not_lost() -> None:
    story = Story().start().text("one ", "two ", "three")
    turn, _, _ = live_turn()
    turn.hold()
    feed(turn, story.updates[:1])
    snapshot = TurnModel()
    for envelope in story.updates[:3]:
        snapshot.apply(envelope)
    feed(turn, story.updates[1:])
    turn.join(snapshot)
    assert turn.state()["draft"] == "one two three"


def test_lone_surrogates_never_reach_the_wire() -> None:
    turn, sent, _ = live_turn()
    feed(turn, Story().start("\ud800").text("a\udc00b"))
    turn.send_snapshot()
    for message in sent:
        json.dumps(message, ensure_ascii=False).encode("utf-8")


def click(call_id: str = "c1", answer: str = "allow", **more: Any) -> Wire:
    return {"kind": "decide", "id": call_id, "answer": answer, **more}


def asking() -> LiveTurn:
    turn, _, _ = live_turn()
    feed(turn, stories.asking(stories.request("c1")))
    return turn


def test_a_click_is_taken_once() -> None:
    turn = asking()
    assert turn.take_decision(click()) == ("c1", PermissionAnswer("allow", "click"))
    assert turn.take_decision(click(answer="deny")) is None


def test_a_card_for_an_id_that_is_used_again_takes_a_click_of_its_own() -> None:
    turn = asking()
    assert turn.take_decision(click()) is not None
    asked_again = next(
        u
        for u in reversed(stories.asking(stories.request("c1")).updates)
        if u["kind"] == "permission_requested"
    )
    turn.feed({**asked_again, "sequence": 1_000})
    assert turn.take_decision(click(answer="deny")) == ("c1", PermissionAnswer("deny", "click"))


def test_an_edit_and_a_message_travel_with_the_answer() -> None:
    edited = asking().take_decision(click(arguments={"code": "2"}))
    assert edited == ("c1", PermissionAnswer("allow", "click", {"code": "2"}))
    denied = asking().take_decision(click(answer="deny_message", message="use a copy"))
    assert denied == ("c1", PermissionAnswer("deny_message", "click", None, "use a copy"))


@pytest.mark.parametrize(
    "content",
    [
        click("older"),
        click(answer="yes"),
        click(answer=None),
        click(answer=["allow"]),
        click(arguments=["rm"]),
        click(message=3),
        click(answer="deny_message"),
        click(answer="deny_message", message="  "),
        {"kind": "decide"},
        {"kind": "decide", "id": ["c1"], "answer": "allow"},
    ],
)
def test_stale_and_malformed_clicks_decide_nothing(content: Wire) -> None:
    turn = asking()
    assert turn.take_decision(content) is None
    assert turn.take_decision(click()) is not None


def test_an_expired_card_takes_no_answer() -> None:
    turn = asking()
    turn.expire()
    assert turn.take_decision(click()) is None


def test_the_pacer_sends_from_its_own_thread_and_close_sends_the_rest() -> None:
    sent: list[tuple[str, Wire]] = []
    first = threading.Event()

    def send(message: Wire) -> None:
        sent.append((threading.current_thread().name, message))
        first.set()

    turn = LiveTurn(send)
    turn.start_pacing()
    story = Story().start()
    feed(turn, story)
    assert first.wait(5)
    for envelope in story.text("the ", "rest").updates[1:]:
        turn.feed(envelope)
    turn.close()
    assert sent[0][0] == "op-jupyter-view"
    told = [item["sequence"] for _, message in sent for item in message["items"]]
    assert told == sorted(told)
    assert told[-1] == story.sequence
    turn.feed(story.text("too late").updates[-1])
    turn.flush()
    assert [i["sequence"] for _, m in sent for i in m["items"]] == told
