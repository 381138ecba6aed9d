"""Acceptance lines 1 to 5, 8, 9 and 13: the loop of model calls and tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from op_jupyter.core.messages import TextBlock, message_from_json
from op_jupyter.engine import loop
from op_jupyter.engine.session import AgentSession
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from tests.engine.harness import (
    DENY,
    FailingStore,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    assert_sound,
    kinds,
    results_in,
    run,
    start_in_background,
    states,
    texts,
    tool_nodes,
)

NOT_EXECUTED = "tool was not executed because the turn already terminated"
"""What the model is told, in these words: it is part of the contract."""


def goes_on(session: AgentSession) -> ScriptedProvider:
    """Whatever came before, the next turn works and its request can be sent."""
    provider = ScriptedProvider(reply("next"))
    outcome = run(session, provider, prompt="and now?")
    assert (outcome.status, outcome.text) == ("completed", "next")
    assert_sendable(provider.requests[0])
    return provider


def test_a01_no_tool_call_is_one_model_call_and_completed(session: AgentSession) -> None:
    provider = ScriptedProvider(reply("hello there"))
    outcome = run(session, provider, [FakeTool()])
    assert (outcome.status, outcome.text, outcome.steps) == ("completed", "hello there", 1)
    assert len(provider.requests) == 1
    assert [n.role for n in session.dag] == ["user", "llm"]
    assert [t.status for t in session.dag.turns.values()] == ["completed"]
    assert kinds(session)[-1] == "turn_finished"
    assert_sound(session)


def test_a02_model_result_model_final(session: AgentSession) -> None:
    provider = ScriptedProvider(
        reply("Let me see. ", call("look", {"what": "sky"}, id="c1")), reply("blue")
    )
    tool = FakeTool(act=lambda a: f"the {a['what']} is blue")
    outcome = run(session, provider, [tool])
    assert (outcome.status, outcome.text, outcome.steps) == ("completed", "blue", 2)
    assert tool.calls == [{"what": "sky"}]
    first, second = provider.requests
    assert second.system == first.system and second.tools == first.tools
    assert second.messages[: len(first.messages)] == first.messages
    asked, told = second.messages[len(first.messages) :]
    assert asked.text == "Let me see. " and [u.id for u in asked.tool_uses] == ["c1"]
    (result,) = told.content
    assert result.tool_use_id == "c1" and result.state == "success"  # type: ignore[union-attr]
    assert result.content == (TextBlock("the sky is blue"),)  # type: ignore[union-attr]
    assert_sound(session)


def test_a03_several_calls_keep_their_order_in_store_updates_and_request(
    session: AgentSession,
) -> None:
    ids = ["z", "a", "m", "b"]
    provider = ScriptedProvider(
        reply(*(call("look", {"what": i}, id=i) for i in ids)), reply("done")
    )
    running: list[str] = []

    def act(arguments: Any) -> str:
        """All earlier results are stored, in order, when a call begins."""
        assert [n.metadata["tool_call_id"] for n in tool_nodes(session) if n.output] == running
        running.append(arguments["what"])
        return str(arguments["what"])

    run(session, provider, [FakeTool(act=act)])
    assert running == ids
    stored = [n for n in session.dag if n.metadata.get("kind") == "tool"]
    assert [n.metadata["tool_call_id"] for n in stored] == ids
    assert [n.metadata["done_seq"] for n in stored] == sorted(
        n.metadata["done_seq"] for n in stored
    )
    for kind in ("tool_call_started", "tool_call_finished"):
        told = [e for e in session.replay_updates(0) or () if e.update.kind == kind]
        assert [e.update.data["id"] for e in told] == ids
    assert [r.tool_use_id for r in results_in(provider)] == ids
    assert [r.content for r in results_in(provider)] == [(TextBlock(i),) for i in ids]
    assert_sound(session)


BAD_CALLS = {
    "unknown tool": (call("fly", {}), ["ToolNotFound", "'fly'", "look"]),
    "malformed JSON": (call("look", '{"what": '), ["InvalidArguments", "JSON"]),
    "no object": (call("look", "[1]"), ["InvalidArguments", "object"]),
    "wrong type": (call("look", {"what": 3}), ["InvalidArguments", "what"]),
    "unknown field": (call("look", {"where": "x"}), ["InvalidArguments", "where"]),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a04_a_call_that_cannot_run_is_a_result_and_the_loop_goes_on(
    session: AgentSession, case: str
) -> None:
    asked, says = BAD_CALLS[case]
    tool = FakeTool(effect="execute")
    asker = ScriptedAsker()
    provider = ScriptedProvider(reply(asked), reply("sorry"))
    outcome = run(session, provider, [tool], asker=asker)
    assert (outcome.status, outcome.text) == ("completed", "sorry")
    assert tool.calls == [] and asker.requests == []
    (result,) = results_in(provider)
    assert result.state == "error"
    assert all(word in texts(session)[0] for word in says), texts(session)
    assert result.content == (TextBlock(texts(session)[0]),)
    assert_sendable(provider.requests[1])
    assert_sound(session)


def test_a05_a_tool_error_is_in_the_next_request_as_an_error(session: AgentSession) -> None:
    def fail(arguments: Any) -> Any:
        raise OSError("disk on fire")

    provider = ScriptedProvider(
        reply(call("look", {}, id="c1"), call("see", {}, id="c2")), reply("oh")
    )
    assert run(session, provider, [FakeTool(act=fail), FakeTool("see")]).text == "oh"
    failed, fine = results_in(provider)
    assert (failed.tool_use_id, failed.state) == ("c1", "error")
    assert "disk on fire" in failed.content[0].text  # type: ignore[union-attr]
    assert (fine.tool_use_id, fine.state) == ("c2", "success")
    assert_sound(session)


SAME = {
    "same": ['{"what":"a"}'] * 3,
    "white space": ['{"what":  "a"}', '{"what":"a"}', '{ "what" : "a" }'],
    "key order": ['{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":1,"b":2}'],
    "not JSON": ["{oops"] * 3,
}


@pytest.mark.parametrize("steps", ["one response", "across steps"])
@pytest.mark.parametrize("case", SAME)
@pytest.mark.parametrize("name", ["look", "no_such_tool"])
def test_a08_the_third_same_call_in_a_row_is_not_run(
    session: AgentSession, case: str, steps: str, name: str
) -> None:
    asked = [call(name, raw) for raw in SAME[case]]
    scripts = [reply(*asked)] if steps == "one response" else [reply(c) for c in asked]
    tool = FakeTool()
    outcome = run(session, ScriptedProvider(*scripts), [tool])
    assert (outcome.status, outcome.code) == ("failed", "doom_loop")
    assert len(tool_nodes(session)) == 3 and len(tool.calls) <= 2
    assert texts(session)[2] == f"doom loop detected for tool '{name}'"
    assert not any("doom loop" in text for text in texts(session)[:2])
    assert_sound(session)
    goes_on(session)


@pytest.mark.parametrize("other", [call("look", {"what": "b"}), call("see", {"what": "a"})])
def test_a08_another_call_in_between_resets_the_count(session: AgentSession, other: Any) -> None:
    same = call("look", {"what": "a"})
    order = [same, same, other, same, same, other, same, same]
    tools = [FakeTool(), FakeTool("see")]
    provider = ScriptedProvider(reply(*order[:3]), *(reply(c) for c in order[3:]), reply("ok"))
    assert run(session, provider, tools).status == "completed"
    assert len(tools[0].calls) + len(tools[1].calls) == len(order)


def test_a08_a_new_turn_counts_anew(session: AgentSession) -> None:
    for _ in range(2):
        provider = ScriptedProvider(reply(*[call("look", {})] * 2), reply("ok"))
        assert run(session, provider, [FakeTool()]).status == "completed"


@pytest.mark.parametrize("limit", [1, 3])
def test_a09_at_the_limit_n_requests_were_sent_and_the_last_results_are_stored(
    session: AgentSession, limit: int
) -> None:
    provider = ScriptedProvider(
        *(
            reply(call("look", {"what": f"{n}a"}), call("look", {"what": f"{n}b"}))
            for n in range(limit)
        )
    )
    tool = FakeTool()
    outcome = run(session, provider, [tool], max_steps=limit)
    assert (outcome.status, outcome.code, outcome.steps) == ("failed", "max_model_calls", limit)
    assert len(provider.requests) == limit and len(tool.calls) == 2 * limit
    assert states(session) == ["succeeded"] * 2 * limit
    assert_sound(session)
    after = goes_on(session)
    assert len(results_in(after)) == 2 * limit


def test_a09_the_limit_is_twenty_unless_said_otherwise(session: AgentSession) -> None:
    provider = ScriptedProvider(*(reply(call("look", {"what": str(n)})) for n in range(20)))
    assert run(session, provider, [FakeTool()]).code == "max_model_calls"
    assert len(provider.requests) == 20


# --- 13: the mates of a call that ends the turn

MATES = [call("look", {"what": w}, id=w) for w in "abcd"]


def assert_mates_cancelled(session: AgentSession, first_states: list[str]) -> None:
    """In the model's order: what was decided, then the rest, not run."""
    nodes = tool_nodes(session)
    assert [n.metadata["tool_call_id"] for n in nodes] == list("abcd")
    rest = 4 - len(first_states)
    assert states(session) == first_states + ["cancelled"] * rest
    assert texts(session)[len(first_states) :] == [NOT_EXECUTED] * rest
    told = [e for e in session.replay_updates(0) or () if e.update.kind == "tool_call_finished"]
    assert [e.update.data["id"] for e in told] == list("abcd")
    after = goes_on(session)
    assert [r.tool_use_id for r in results_in(after)] == list("abcd")
    assert [r.state for r in results_in(after)][len(first_states) :] == ["interrupted"] * rest


def test_a13_deny_gives_the_mates_cancelled_results(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    outcome = run(session, ScriptedProvider(reply(*MATES)), [tool], asker=ScriptedAsker([DENY]))
    assert outcome.code == "permission_denied" and tool.calls == []
    assert_mates_cancelled(session, ["denied"])


def test_a13_cancel_gives_the_mates_cancelled_results(session: AgentSession) -> None:
    tool = FakeTool(gate=Gate())
    turn_id, job = start_in_background(session, ScriptedProvider(reply(*MATES)), [tool])
    assert tool.gate is not None
    tool.gate.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    assert len(tool.calls) == 1
    assert_mates_cancelled(session, ["cancelled"])


def test_a13_a_doom_loop_gives_the_mates_cancelled_results(session: AgentSession) -> None:
    same = call("look", {"what": "same"})
    provider = ScriptedProvider(
        reply(same),
        reply(same),
        reply(call("look", {"what": "same"}, id="a"), *MATES[1:]),
    )
    tool = FakeTool()
    assert run(session, provider, [tool]).code == "doom_loop"
    last = [n for n in session.dag if n.role == "llm"][-1]
    mates = session.dag.children(last.id)
    assert [n.metadata["tool_call_id"] for n in mates] == list("abcd")
    assert [n.output["state"] for n in mates] == ["failed", *["cancelled"] * 3]
    assert [n.output["content"][0]["text"] for n in mates[1:]] == [NOT_EXECUTED] * 3
    assert len(tool.calls) == 2
    goes_on(session)


def test_a13_a_result_that_cannot_be_stored_gives_the_mates_cancelled_results(
    store: MemoryStore,
) -> None:
    opened = FailingStore(store.open(store.create_session("s2")), 10**6)
    session = AgentSession(opened)  # type: ignore[arg-type]

    class OneFailure(FakeTool):
        async def run(self, arguments: Any, context: Any) -> Any:
            opened.left = 0  # the next write, which is the result, is refused
            return await super().run(arguments, context)

    def only_once() -> bool:
        opened.left -= 1
        refused = opened.left == -1
        if refused:
            opened.left = 10**6
        return refused

    opened.refuses = only_once  # type: ignore[method-assign]  # this disk recovers
    tool = OneFailure()
    outcome = run(session, ScriptedProvider(reply(*MATES)), [tool])
    assert (outcome.status, outcome.code) == ("failed", "persistence_error")
    assert len(tool.calls) == 1
    nodes = tool_nodes(session)
    assert [n.metadata["tool_call_id"] for n in nodes] == list("abcd")
    assert nodes[0].output is None and nodes[0].status == "error"
    assert [n.output["state"] for n in nodes[1:]] == ["cancelled"] * 3
    assert [n.output["content"][0]["text"] for n in nodes[1:]] == [NOT_EXECUTED] * 3
    after = goes_on(session)
    results = results_in(after)
    assert [r.tool_use_id for r in results] == list("abcd")
    assert {r.state for r in results} == {"interrupted"}
    assert message_from_json(session.dag.spine()[1].output).tool_uses
