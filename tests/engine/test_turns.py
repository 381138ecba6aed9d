"""The turn loop: what is stored, in which order, and what the model is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from op_jupyter.core.messages import TextBlock, TextDelta
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.turn import NOT_EXECUTED
from op_jupyter.engine import loop, registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import (
    Busy,
    ContextOverflow,
    EmptyInput,
    PermissionNotPending,
    ProviderConnectionError,
    ReloadRequired,
    TurnNotActive,
)
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import HANG, Gate, ScriptedProvider, call, reply
from tests.engine.harness import (
    ALLOW,
    DENY,
    FailingStore,
    FakeTool,
    ScriptedAsker,
    kinds,
    results_in,
    run,
    start_in_background,
    states,
    texts,
    tool_nodes,
    wait_phase,
)


def test_no_tool_call_is_one_model_call_and_completes(session: AgentSession) -> None:
    provider = ScriptedProvider(reply("hello there"))
    outcome = run(session, provider)
    assert (outcome.status, outcome.text, outcome.steps) == ("completed", "hello there", 1)
    assert len(provider.requests) == 1
    assert [n.role for n in session.dag.spine()] == ["user", "llm"]


def test_the_result_is_in_the_next_request_and_the_answer_ends_the_turn(
    session: AgentSession,
) -> None:
    provider = ScriptedProvider(reply(call("look", {"what": "sky"})), reply("blue"))
    tool = FakeTool(act=lambda a: f"the {a['what']} is blue")
    assert run(session, provider, [tool]).text == "blue"
    (result,) = results_in(provider)
    assert result.content == (TextBlock("the sky is blue"),)
    assert kinds(session)[0] == "turn_started" and kinds(session)[-1] == "turn_finished"


def test_several_calls_keep_their_order_everywhere(session: AgentSession) -> None:
    asked = [call("look", {"what": w}, id=f"id{w}") for w in "abc"]
    provider = ScriptedProvider(reply(*asked), reply("done"))
    run(session, provider, [FakeTool(act=lambda a: a["what"])])
    assert texts(session) == ["a", "b", "c"]
    finished = [
        e.update.data["id"]
        for e in session.replay_updates(0) or ()
        if e.update.kind == "tool_call_finished"
    ]
    assert finished == ["ida", "idb", "idc"]
    assert [r.tool_use_id for r in results_in(provider)] == ["ida", "idb", "idc"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (call("fly", {}), "ToolNotFound"),
        (call("look", "{not json"), "InvalidArguments"),
        (call("look", "[1]"), "InvalidArguments"),
        (call("look", {"what": 3}), "what"),
        (call("look", {"where": "x"}), "where"),
    ],
)
def test_a_call_that_cannot_run_is_a_result_and_the_loop_goes_on(
    session: AgentSession, asked: Any, says: str
) -> None:
    tool = FakeTool()
    provider = ScriptedProvider(reply(asked), reply("sorry"))
    assert run(session, provider, [tool]).status == "completed"
    assert tool.calls == []
    (result,) = results_in(provider)
    assert result.state == "error" and says in result.content[0].text  # type: ignore[union-attr]


def test_a_tool_error_reaches_the_model(session: AgentSession) -> None:
    def fail(arguments: Any) -> Any:
        raise OSError("disk on fire")

    provider = ScriptedProvider(reply(call("look", {})), reply("oh"))
    assert run(session, provider, [FakeTool(act=fail)]).status == "completed"
    (result,) = results_in(provider)
    assert result.state == "error" and "disk on fire" in result.content[0].text  # type: ignore[union-attr]


def test_a_tool_that_hangs_past_its_timeout_is_an_error_result(session: AgentSession) -> None:
    tool = FakeTool(timeout=0.01, gate=Gate())
    provider = ScriptedProvider(reply(call("look", {})), reply("gave up"))
    assert run(session, provider, [tool]).text == "gave up"
    assert "TimedOut" in texts(session)[0]


def test_allow_runs_this_call_only_and_changed_arguments_ask_again(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    asker = ScriptedAsker([ALLOW, ALLOW])
    provider = ScriptedProvider(
        reply(call("look", {"what": "a"})), reply(call("look", {"what": "b"})), reply("ok")
    )
    assert run(session, provider, [tool], asker=asker).status == "completed"
    assert [r.arguments for r in asker.requests] == [{"what": "a"}, {"what": "b"}]
    assert len(session.dag.decisions) == 2


def test_allow_for_the_session_adds_exactly_the_rule_that_was_shown(session: AgentSession) -> None:
    asker = ScriptedAsker([PermissionAnswer("allow_session", "click")])
    provider = ScriptedProvider(
        reply(call("look", {"what": "a"})), reply(call("look", {"what": "b"})), reply("ok")
    )
    run(session, provider, [FakeTool(effect="execute")], asker=asker)
    assert len(asker.requests) == 1
    assert session.rules["allow"] == [asker.requests[0].rule]
    assert session.remove_rule(asker.requests[0].rule)


def test_deny_ends_the_turn_and_gives_the_mates_cancelled_results(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    asked = [call("look", {"what": w}) for w in "abc"]
    outcome = run(session, ScriptedProvider(reply(*asked)), [tool], asker=ScriptedAsker([DENY]))
    assert (outcome.status, outcome.code) == ("failed", "permission_denied")
    assert tool.calls == []
    assert states(session) == ["denied", "cancelled", "cancelled"]
    assert texts(session)[1:] == [NOT_EXECUTED] * 2


def test_deny_with_a_message_tells_the_model_and_goes_on(session: AgentSession) -> None:
    asker = ScriptedAsker([PermissionAnswer("deny_message", "click", message="use the cache")])
    provider = ScriptedProvider(reply(call("look", {})), reply("I used the cache"))
    outcome = run(session, provider, [FakeTool(effect="execute")], asker=asker)
    assert outcome.text == "I used the cache"
    (result,) = results_in(provider)
    assert result.state == "denied" and "use the cache" in result.content[0].text  # type: ignore[union-attr]


def test_edited_arguments_run_and_both_sets_are_kept(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    asker = ScriptedAsker([PermissionAnswer("allow", "click", arguments={"what": "safe"})])
    provider = ScriptedProvider(reply(call("look", {"what": "risky"})), reply("ok"))
    run(session, provider, [tool], asker=asker)
    assert tool.calls == [{"what": "safe"}]
    (node,) = tool_nodes(session)
    assert node.input == {"what": "risky"}
    assert node.metadata["permission"]["edited"] == {"what": "safe"}
    (result,) = results_in(provider)
    assert "changed the arguments" in result.content[0].text  # type: ignore[union-attr]


def test_edited_arguments_must_still_fit_the_tool(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    asker = ScriptedAsker([PermissionAnswer("allow", "click", arguments={"what": 7})])
    run(session, ScriptedProvider(reply(call("look", {})), reply("ok")), [tool], asker=asker)
    assert tool.calls == [] and "edited arguments" in texts(session)[0]


def test_with_nobody_to_ask_the_call_is_denied_at_once_and_names_the_rule(
    session: AgentSession,
) -> None:
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {})), reply("cannot"))
    asker = ScriptedAsker(interactive=False)
    assert run(session, provider, [tool], asker=asker).status == "completed"
    assert tool.calls == [] and asker.requests == []
    assert "%agent allow" in texts(session)[0]


@pytest.mark.parametrize(
    "calls",
    [
        [call("look", {"what": "a"})] * 3,
        [call("look", '{"what":  "a"}'), call("look", '{"what":"a"}'), call("look", {"what": "a"})],
        [call("fly", {})] * 3,
        [call("look", "{oops")] * 3,
    ],
    ids=["same", "spacing", "unknown tool", "not json"],
)
def test_the_third_same_call_in_a_row_is_not_run(session: AgentSession, calls: list[Any]) -> None:
    tool = FakeTool()
    outcome = run(session, ScriptedProvider(*(reply(c) for c in calls)), [tool])
    assert (outcome.status, outcome.code) == ("failed", "doom_loop")
    assert len(tool.calls) <= 2
    assert "doom loop detected" in texts(session)[-1]


def test_another_call_in_between_resets_the_doom_loop(session: AgentSession) -> None:
    names = ["a", "a", "b", "a", "a"]
    provider = ScriptedProvider(*(reply(call("look", {"what": n})) for n in names), reply("ok"))
    assert run(session, provider, [FakeTool()]).status == "completed"


def test_at_the_limit_the_last_tools_still_run(session: AgentSession) -> None:
    provider = ScriptedProvider(*(reply(call("look", {"what": str(n)})) for n in range(2)))
    tool = FakeTool()
    outcome = run(session, provider, [tool], max_steps=2)
    assert (outcome.code, len(provider.requests), len(tool.calls)) == ("max_model_calls", 2, 2)
    assert states(session) == ["succeeded", "succeeded"]


@pytest.mark.parametrize(
    "script",
    [
        [TextDelta("half")],
        [*reply("one"), *reply("two")],
        [TextDelta("half"), ProviderConnectionError("cut")],
        [TextDelta("half"), ValueError("garbage")],
        reply(call("look", {}), stop_reason="max_tokens"),
    ],
    ids=["no end", "two ends", "cut", "garbage", "cut tool call"],
)
def test_a_broken_stream_is_never_a_message_and_runs_no_tool(
    session: AgentSession, script: Any
) -> None:
    tool = FakeTool()
    outcome = run(session, ScriptedProvider(script), [tool])
    assert outcome.status == "failed" and outcome.code in ("model_error", "model_protocol_error")
    assert tool.calls == [] and tool_nodes(session) == []
    (node,) = [n for n in session.dag if n.role == "llm"]
    assert node.status == "error" and node.output is None
    assert run(session, ScriptedProvider(reply("fine"))).text == "fine"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_turn_gets_its_end_whatever_foreign_code_raises(
    session: AgentSession, error: BaseException
) -> None:
    outcome = run(session, ScriptedProvider([error]))
    (turn,) = session.dag.turns.values()
    assert (outcome.status, turn.status) == ("cancelled", "cancelled")
    assert type(error).__name__ in outcome.message
    assert run(session, ScriptedProvider(reply("fine"))).text == "fine"


@pytest.mark.parametrize("where", ["first event", "mid-stream", "approval", "tool"])
def test_cancel_leaves_truthful_results_and_a_usable_session(
    session: AgentSession, where: str
) -> None:
    gate = Gate()
    tool = FakeTool(effect="execute" if where == "approval" else "read", gate=gate)
    scripts = {
        "first event": [gate, HANG],
        "mid-stream": [TextDelta("half"), gate, HANG],
        "approval": reply(call("look", {}), call("look", {"what": "b"})),
        "tool": reply(call("look", {}), call("look", {"what": "b"})),
    }
    turn_id, job = start_in_background(session, ScriptedProvider(scripts[where]), [tool])
    if where == "approval":
        loop.run_sync(wait_phase, session, "waiting_permission")
    else:
        gate.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    assert session.dag.turns[turn_id].status == "cancelled"
    assert not [n for n in session.dag if n.status == "running"]
    if where in ("approval", "tool"):
        assert states(session) == ["cancelled", "cancelled"]
        assert texts(session)[1] == NOT_EXECUTED
    provider = ScriptedProvider(reply("next"))
    assert run(session, provider).text == "next"
    assert all("half" not in m.text for m in provider.requests[0].messages)


def test_the_same_request_id_never_runs_twice_also_after_reopening(store: MemoryStore) -> None:
    session = registry.acquire(store, store.create_session("s2"))
    provider = ScriptedProvider(reply("once"))
    assert run(session, provider, client_request_id="r1").text == "once"
    assert run(session, provider, client_request_id="r1").text == "once"
    registry.release(session)
    again = registry.acquire(store, "s2")
    assert run(again, provider, client_request_id="r1").text == "once"
    registry.release(again)
    assert len(provider.requests) == 1


def test_commands_check_their_moment(session: AgentSession) -> None:
    with pytest.raises(EmptyInput):
        run(session, ScriptedProvider(), prompt=" \n")
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(reply(call("look", {}, id="c1")), reply("ok"))
    turn_id, job = start_in_background(session, provider, [tool], client_request_id="r1")
    loop.run_sync(wait_phase, session, "waiting_permission")
    with pytest.raises(Busy):
        run(session, ScriptedProvider(), client_request_id="r2")
    with pytest.raises(TurnNotActive):
        loop.run_sync(session.cancel_turn, "other")
    with pytest.raises(TurnNotActive):
        loop.run_sync(session.resolve_permission, "other", "c1", ALLOW)
    with pytest.raises(PermissionNotPending):
        loop.run_sync(session.resolve_permission, turn_id, "c9", ALLOW)
    assert session.snapshot().runtime["permission"]["id"] == "c1"
    loop.run_sync(session.resolve_permission, turn_id, "c1", ALLOW)
    assert job.future.result(5).text == "ok"
    with pytest.raises(TurnNotActive):
        loop.run_sync(session.resolve_permission, turn_id, "c1", ALLOW)
    session.require_reload("test")
    with pytest.raises(ReloadRequired):
        run(session, ScriptedProvider())


def test_the_second_click_on_a_card_is_refused(session: AgentSession) -> None:
    tool = FakeTool(effect="execute", gate=Gate())
    provider = ScriptedProvider(reply(call("look", {}, id="c1")), reply("ok"))
    turn_id, job = start_in_background(session, provider, [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")
    loop.run_sync(session.resolve_permission, turn_id, "c1", ALLOW)
    with pytest.raises(PermissionNotPending):
        loop.run_sync(session.resolve_permission, turn_id, "c1", DENY)
    assert tool.gate is not None
    tool.gate.open()
    assert job.future.result(5).status == "completed"


def test_a_missing_result_becomes_the_same_text_each_time(store: MemoryStore) -> None:
    session = registry.acquire(store, store.create_session("s3"))
    tool = FakeTool(gate=Gate())
    start_in_background(session, ScriptedProvider(reply(call("look", {}))), [tool])
    assert tool.gate is not None
    tool.gate.wait_reached()
    store.crash()
    registry.release(session)
    again = registry.acquire(store, "s3")
    tool.gate.open()
    assert [t.status for t in again.dag.turns.values()] == ["interrupted"]
    sent = []
    for _ in range(2):
        provider = ScriptedProvider(reply("ok"))
        run(again, provider)
        sent.append(results_in(provider)[0])
    assert sent[0] == sent[1]
    told = "Tool result unavailable: the previous turn ended before a durable result was recorded."
    assert sent[0].content == (TextBlock(told),)
    assert sent[0].state == "interrupted"
    registry.release(again)


def test_a_fork_takes_the_place_of_the_earlier_turn(session: AgentSession) -> None:
    run(session, ScriptedProvider(reply("first")), prompt="one")
    run(session, ScriptedProvider(reply("second")), prompt="two")
    provider = ScriptedProvider(reply("other second"))
    (first_user, first_llm, second_user, _) = session.dag.spine()
    run(session, provider, prompt="two again", base=second_user.predecessor)
    line = session.dag.spine()
    assert line[:2] == [first_user, first_llm] and len(line) == 4
    assert line[2].predecessor == second_user.predecessor
    prompt = [m.text for m in provider.requests[0].messages]
    assert prompt == ["one", "first", "two again"]
    assert second_user.id in session.dag.nodes


def test_world_state_is_told_once_and_again_when_it_changes(session: AgentSession) -> None:
    world = {"variables": "df: DataFrame 3x2"}
    provider = ScriptedProvider(reply("a"), reply("b"), reply("c"))
    for prompt in ("one", "two"):
        run(session, provider, prompt=prompt, world=lambda: world)
    world["variables"] = "df: DataFrame 4x2"
    run(session, provider, prompt="three", world=lambda: world)
    counts = ["\n".join(m.text for m in r.messages).count("<variables>") for r in provider.requests]
    assert counts == [1, 1, 2]
    assert provider.requests[-1].messages[-1].text.endswith("three")


def test_an_unreadable_world_fails_the_turn_before_any_model_call(session: AgentSession) -> None:
    def world() -> Mapping[str, str]:
        raise OSError("gone")

    provider = ScriptedProvider(reply("never"))
    outcome = run(session, provider, world=world)
    assert outcome.code == "world_state_error" and provider.requests == []


def test_a_listener_that_raises_is_dropped_and_harms_nobody(session: AgentSession) -> None:
    seen: list[int] = []

    def bad(envelope: Any) -> None:
        raise RuntimeError("listener broke")

    session.subscribe(bad)
    session.subscribe(lambda e: seen.append(e.sequence))
    assert run(session, ScriptedProvider(reply("ok"))).status == "completed"
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.parametrize("allowed", range(12))
def test_a_store_failure_at_any_write_keeps_every_promise(store: MemoryStore, allowed: int) -> None:
    inner = store.open(store.create_session("s4"))
    failing = FailingStore(inner, allowed)
    session = AgentSession(failing)  # type: ignore[arg-type]
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(
        reply(call("look", {"what": "a"}), call("look", {"what": "b"})), reply("ok")
    )
    outcome = run(session, provider, [tool], asker=ScriptedAsker([ALLOW, ALLOW]))
    stored_answers = [n for n in inner.dag if n.role == "llm" and n.status == "completed"]
    if outcome.status == "failed":
        assert outcome.code == "persistence_error"
    if not stored_answers:
        assert tool.calls == []
    if allowed < 2:
        assert provider.requests == []
    assert len(provider.requests) < 2 or len(states(session)) == 2
    failing.left = 100
    assert run(session, ScriptedProvider(reply("again"))).text == "again"


def test_everything_shown_of_the_graph_was_stored_before(store: MemoryStore) -> None:
    opened = store.open(store.create_session("s5"))
    session = AgentSession(opened)
    missing: list[str] = []

    def check(envelope: Any) -> None:
        if envelope.update.kind in ("node_appended", "node_updated"):
            node = store.load("s5").nodes.get(envelope.update.data["id"])
            if node is None or node.status != envelope.update.data["status"]:
                missing.append(envelope.update.data["id"])

    session.subscribe(check)
    run(session, ScriptedProvider(reply(call("look", {})), reply("ok")), [FakeTool()])
    assert missing == []


def test_a_prompt_that_does_not_fit_the_window_does_not_block_the_session(
    session: AgentSession,
) -> None:
    run(session, ScriptedProvider(reply("first")), prompt="one")
    overflow = ContextOverflow("the request is larger than the context window")
    outcome = run(session, ScriptedProvider([overflow]), prompt="far too long")
    assert outcome.code == "model_error"
    provider = ScriptedProvider(reply("second"))
    assert run(session, provider, prompt="two").text == "second"
    assert [m.text for m in provider.requests[0].messages] == ["one", "first", "two"]
    assert [n.metadata["label"] for n in session.dag if n.role == "user"][1] == "far too long"
