"""The plan of a turn: checked, stored, and only then shown."""

from __future__ import annotations

from typing import Any

import pytest

from op_jupyter.core.plan import MOST_STEPS, STEP_CHARS, problem_of_plan
from op_jupyter.engine.plan_tool import UpdatePlan
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import StoreError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.views.model import TurnModel
from tests.engine.harness import FakeTool, assert_sound, kinds, run, texts, tool_nodes


def step(text: str = "look", status: str = "pending") -> dict[str, str]:
    return {"text": text, "status": status}


def plan_call(*steps: Any) -> Any:
    return call("update_plan", {"steps": list(steps)})


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], ""),
        ([step()] * MOST_STEPS, ""),
        ([step()] * (MOST_STEPS + 1), "steps: 129 are too many"),
        ([step("x" * STEP_CHARS)], ""),
        ([step("x" * (STEP_CHARS + 1))], "steps.0.text: 1025 characters"),
        ([step(), step(" ")], "steps.1.text"),
        ([step(status="done")], "steps.0.status: it has to be one of pending"),
        ([step(status="in_progress"), step(status="completed")], ""),
        ([step(status="in_progress")] * 2, "more than one is in_progress"),
        ([{"text": "a"}], "steps.0: it has to be an object with text and status"),
        (["a"], "steps.0: it has to be an object"),
        ([{"text": 1, "status": "pending"}], "steps.0.text"),
        ([{"text": "a", "status": ["pending"]}], "steps.0.status"),
        ("a", "steps: it has to be a list"),
    ],
)
def test_a_plan_has_few_short_steps_and_at_most_one_in_progress(steps: Any, problem: str) -> None:
    found = problem_of_plan({"steps": steps})
    assert problem in found and bool(found) == bool(problem)


def test_the_whole_plan_is_replaced_and_shown_with_the_turn(session: AgentSession) -> None:
    first, second = [step("a"), step("b")], [step("a", "completed"), step("c", "in_progress")]
    provider = ScriptedProvider(reply(plan_call(*first)), reply(plan_call(*second)), reply("done"))
    assert run(session, provider, [UpdatePlan()]).text == "done"
    shown = [
        e.update.data["steps"]
        for e in session.replay_updates(0) or ()
        if e.update.kind == "plan_updated"
    ]
    assert shown == [first, second]
    assert texts(session) == ["plan updated: 0 of 2 done", "plan updated: 1 of 2 done"]
    snapshot = session.snapshot().to_json()
    assert snapshot["runtime"]["plan"] == second
    assert TurnModel.from_session(snapshot).state["plan"] == second
    assert_sound(session)


def test_it_asks_nobody_and_a_deny_rule_still_holds(session: AgentSession) -> None:
    session.add_rule("deny", "update_plan")
    provider = ScriptedProvider(reply(plan_call(step())), reply("done"))
    assert run(session, provider, [UpdatePlan()]).text == "done"
    assert "plan_updated" not in kinds(session)
    assert "permission_requested" not in kinds(session)
    assert tool_nodes(session)[0].status == "denied"


def test_a_plan_that_is_wrong_changes_nothing_and_the_model_goes_on(session: AgentSession) -> None:
    good, bad = step("a"), step("b", "half")
    provider = ScriptedProvider(reply(plan_call(good)), reply(plan_call(bad)), reply("done"))
    assert run(session, provider, [UpdatePlan()]).text == "done"
    assert texts(session)[1].startswith("InvalidArguments: steps.0.status")
    assert session.snapshot().runtime["plan"] == [good]


def test_a_plan_is_stored_before_it_is_shown(session: AgentSession) -> None:
    early: list[str] = []

    def check(envelope: Any) -> None:
        if envelope.update.kind == "plan_updated":
            early.extend(n.id for n in tool_nodes(session) if n.status != "completed")

    session.subscribe(check)
    run(session, ScriptedProvider(reply(plan_call(step())), reply("ok")), [UpdatePlan()])
    assert early == [] and "plan_updated" in kinds(session)


def test_a_plan_that_cannot_be_stored_is_not_shown(store: MemoryStore) -> None:
    inner = store.open(store.create_session("s1"))

    class Refuses:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def update(self, node_id: str, **fields: Any) -> Any:
            if node_id.startswith("tool") and fields.get("status") == "completed":
                raise StoreError("disk full")
            return inner.update(node_id, **fields)

    session = AgentSession(Refuses())  # type: ignore[arg-type]
    outcome = run(session, ScriptedProvider(reply(plan_call(step()))), [UpdatePlan()])
    assert outcome.code == "persistence_error"
    assert "plan_updated" not in kinds(session)
    session.close()


def test_a_tool_of_the_same_name_shows_no_plan(session: AgentSession) -> None:
    look = FakeTool("update_plan")
    run(session, ScriptedProvider(reply(call("update_plan", {})), reply("ok")), [look])
    assert "plan_updated" not in kinds(session)


def test_a_new_turn_begins_without_a_plan(session: AgentSession) -> None:
    provider = ScriptedProvider(reply(plan_call(step())), reply("ok"), reply("next"))
    run(session, provider, [UpdatePlan()])
    run(session, provider, [UpdatePlan()])
    assert session.snapshot().runtime["plan"] == []
