"""One turn folded from its updates: replaying equals loading, in Python and in the browser."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from views import stories
from views.stories import Story
from views.strategies import updates
from views.twins import Twins

from op_jupyter.core.live import LiveState
from op_jupyter.core.updates import Envelope, Update
from op_jupyter.views.model import TurnModel, is_over, outcome_word

Wire = dict[str, Any]


def folded(story: list[Wire] | Story) -> TurnModel:
    model = TurnModel()
    for envelope in story.updates if isinstance(story, Story) else story:
        model.apply(envelope)
    return model


def test_the_text_between_tool_calls_is_kept_as_a_note_until_the_answer_is_there() -> None:
    story = Story().start().text("Let me ", "look.").tell("draft_cleared")
    assert folded(story).state["cleared"] == "Let me look."
    story.call("c1", "python", "{}").text("Done")
    assert (folded(story).state["notes"], folded(story).state["draft"]) == (
        ["Let me look."],
        "Done",
    )
    story.tell("draft_cleared").finish("Done.")
    assert folded(story).state["answer"] == "Done."
    assert folded(story).state["cleared"] == ""


def test_a_call_keeps_the_answer_of_its_card() -> None:
    story = stories.asking(stories.request("c1"))
    story.tell("permission_resolved", id="c1", answer="allow", how="click")
    state = folded(story).state
    assert state["permission"] is None
    assert state["resolved"]["request"]["tool"] == "python"
    assert (state["calls"][0]["answer"], state["calls"][0]["how"]) == ("allow", "click")


def test_an_answer_to_another_card_leaves_the_open_one() -> None:
    story = stories.asking(stories.request("c1"))
    story.tell("permission_resolved", id="older", answer="deny", how="click")
    assert folded(story).state["permission"]["id"] == "c1"


def test_the_end_closes_the_card_and_drops_the_draft() -> None:
    state = folded(stories.asking(stories.request("c1")).text("half").finish(status="cancelled"))
    assert is_over(state.state)
    assert state.state["permission"] is None
    assert state.state["draft"] == ""


def test_a_denied_turn_is_told_as_denied() -> None:
    story = Story().start().finish(status="failed", code="permission_denied")
    assert outcome_word(folded(story).state) == "denied"
    assert outcome_word(folded(Story().start()).state) == "running"


def test_output_while_a_tool_runs_is_bounded_by_lines() -> None:
    story = Story().start().tell("tool_call_started", id="c", name="python", arguments="{}")
    story.tell("tool_call_progress", id="c", text="a").tell("tool_call_progress", id="c", text="b")
    assert folded(story).state["calls"][0]["progress"] == "a\nb\n"
    for index in range(500):
        story.tell("tool_call_progress", id="c", text=f"{index}\n")
    progress = folded(story).state["calls"][0]["progress"]
    assert progress.endswith("499\n")
    assert progress.count("\n") < 200


def test_a_turn_that_runs_already_is_joined_from_the_sessions_snapshot() -> None:
    story = stories.running()
    live = LiveState()
    for wire in story.updates:
        update = Update(wire["kind"], wire["data"])
        live.apply(Envelope("s1", "t1", wire["sequence"], wire["occurred_at_ms"], update))
    nodes = [w["data"] for w in story.updates if w["kind"] == "node_appended"]
    joined = TurnModel.from_session(
        {"session_id": "s1", "last_update_sequence": story.sequence, "runtime": live.to_json()},
        nodes,
    )
    whole = folded(story)
    story.text(" more").tell("plan_updated", steps=[])
    for wire in story.updates:
        joined.apply(wire)
        whole.apply(wire)
    for key in ("status", "phase", "step", "draft", "plan", "permission", "started_at_ms"):
        assert joined.state[key] == whole.state[key], key
    assert [n["id"] for n in joined.state["nodes"]] == [n["id"] for n in whole.state["nodes"]]
    states = [(call["id"], call["state"]) for call in joined.state["calls"]]
    assert sorted(states) == sorted((c["id"], c["state"]) for c in whole.state["calls"])


@given(told=updates(), cut=st.integers(0, 60))
def test_a_snapshot_and_the_updates_after_it_equal_all_updates(told: list[Wire], cut: int) -> None:
    whole = folded(told)
    joined = TurnModel(folded(told[:cut]).to_json())
    for envelope in told:  # those before the snapshot are known, and dropped
        joined.apply(envelope)
    assert joined.state == whole.state


@settings(max_examples=80, deadline=None)
@given(told=updates(), cut=st.integers(0, 60))
def test_the_browser_folds_the_same_turn(twins: Twins, told: list[Wire], cut: int) -> None:
    whole = folded(told).state
    assert twins("fold", told) == whole
    snapshot = folded(told[:cut]).to_json()
    assert twins("foldFrom", {"state": snapshot, "items": told}) == whole
