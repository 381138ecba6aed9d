"""Whatever a model answers: it is stored, the session goes on, and the next request is valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from op_jupyter.core.messages import (
    Message,
    OpaqueBlock,
    ResponseDone,
    TextBlock,
    TextDelta,
    message_from_json,
)
from op_jupyter.engine import loop, registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import PermissionNotPending
from op_jupyter.providers.base import Capabilities
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.message_stream import sign
from op_jupyter.testing.providers import ScriptedProvider, call, reply, thinking
from tests.engine.harness import (
    ALLOW,
    DENY,
    FakeTool,
    assert_sendable,
    assert_sound,
    results_in,
    run,
    start_in_background,
    states,
    texts,
    tool_nodes,
    wait_phase,
    wait_until,
)


def goes_on_after(session: AgentSession, *asked: Any, tool: Any = None) -> ScriptedProvider:
    """The model asks for *asked*, hears the results, and answers; then comes another turn."""
    endless = Capabilities("scripted", "scripted-model", context_tokens=10**9)
    scripts = (reply(*asked), reply("ok"), reply("next"))
    provider = ScriptedProvider(*scripts, capabilities=endless)
    outcome = run(session, provider, [tool or FakeTool()])
    assert (outcome.status, outcome.text) == ("completed", "ok"), outcome
    assert run(session, provider).text == "next"
    for request in provider.requests:
        assert_sendable(request)
    assert_sound(session)
    return provider


def deep(levels: int) -> str:
    return '{"what": ' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize(
    "arguments",
    [
        deep(10_000),
        deep(500),
        deep(150),
        "[" * 100_000,
        '{"what": NaN}',
        '{"what": -Infinity}',
        '{"what": 1e999}',
        '{"what": ' + "9" * 10_000 + "}",
        '{"what": "\\ud800"}',
        '{"what": "\ud800"}',
        '{"\\ud800": 1}',
        '{"what": "\\u0000"}',
        "null",
        "true",
        '"what"',
        "",
        "\0",
        '{"what": "a", "what": 3}',
        "{} {}",
    ],
    ids=lambda a: repr(a[:24]),
)
def test_arguments_of_any_kind_are_a_result(session: AgentSession, arguments: str) -> None:
    provider = goes_on_after(session, call("look", arguments), call("look", {"what": "fine"}))
    first, second = results_in(provider, 1)
    assert second.state == "success"
    assert first.state in ("success", "error")


@pytest.mark.parametrize("arguments", ['{"what": NaN}', '{"what": 1e999}', deep(10_000)])
def test_what_json_cannot_say_is_an_invalid_argument(session: AgentSession, arguments: str) -> None:
    tool = FakeTool()
    goes_on_after(session, call("look", arguments), tool=tool)
    assert texts(session)[0].startswith("InvalidArguments") and tool.calls == []


def test_the_doom_loop_is_seen_whatever_the_arguments(session: AgentSession) -> None:
    for arguments in (deep(10_000), '{"what": NaN}', "\0"):
        outcome = run(session, ScriptedProvider(*[reply(call("look", arguments))] * 3))
        assert outcome.code == "doom_loop"
    assert_sound(session)


def test_five_megabytes_of_arguments_are_kept_and_shown_in_short(session: AgentSession) -> None:
    raw = json.dumps({"what": "x" * 5_000_000})
    tool = FakeTool()
    goes_on_after(session, call("look", raw), tool=tool)
    assert len(tool.calls[0]["what"]) == 5_000_000
    assert tool_nodes(session)[0].input == json.loads(raw)
    shown = [e for e in session.replay_updates(0) or () if e.update.kind.startswith("tool_call")]
    assert sum(len(json.dumps(e.to_json())) for e in shown) < 300_000


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "x" * 1_000_000,
        "<script>alert(1)</script>",
        "look\n",
        "a\0b\x1b[31m",
        "\u202ekool",
        "\ud800",
        "lo ok",
        "größe",
        "look()",
    ],
    ids=lambda n: repr(n[:12]),
)
def test_a_tool_name_of_any_kind_is_a_tool_that_is_not_there(
    session: AgentSession, name: str
) -> None:
    provider = goes_on_after(session, call(name, {}), call("look", {}))
    first, second = results_in(provider, 1)
    assert (first.state, second.state) == ("error", "success")
    assert "ToolNotFound" in texts(session)[0]
    for envelope in session.replay_updates(0) or ():
        assert len(json.dumps(envelope.to_json())) < 20_000


def test_the_same_id_twice_in_one_response_is_two_calls(session: AgentSession) -> None:
    tool = FakeTool(act=lambda a: a["what"])
    provider = goes_on_after(
        session,
        call("look", {"what": "a"}, id="same"),
        call("look", {"what": "b"}, id="same"),
        tool=tool,
    )
    assert [c["what"] for c in tool.calls] == ["a", "b"]
    assert [r.content[0].text for r in results_in(provider, 1)] == ["a", "b"]  # type: ignore[union-attr]


def test_the_same_id_in_a_later_response_is_another_call(session: AgentSession) -> None:
    tool = FakeTool(act=lambda a: a["what"])
    provider = ScriptedProvider(
        reply(call("look", {"what": "a"}, id="same")),
        reply(call("look", {"what": "b"}, id="same")),
        reply("ok"),
        reply(call("look", {"what": "c"}, id="same")),
        reply("ok"),
    )
    for _ in range(2):
        assert run(session, provider, [tool]).status == "completed"
    assert [r.content[0].text for r in results_in(provider)] == ["a", "b", "c"]  # type: ignore[union-attr]
    for request in provider.requests:
        assert_sendable(request)
    assert_sound(session)


def test_a_call_without_an_id_gets_one(session: AgentSession) -> None:
    done = reply(call("look", {}, id="x"))[-1]
    assert isinstance(done, ResponseDone)
    blank = message_from_json(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": " ", "name": "look", "arguments": "{}"}],
        }
    )
    provider = ScriptedProvider([ResponseDone(blank, "tool_use")], reply("ok"))
    assert run(session, provider, [FakeTool()]).text == "ok"
    assert_sendable(provider.requests[-1])
    assert_sound(session)


def test_a_late_click_never_answers_another_call_of_the_same_id(session: AgentSession) -> None:
    """The person clicks twice on a harmless call; the model's next call borrows its id."""
    tool = FakeTool(effect="execute")
    provider = ScriptedProvider(
        reply(call("look", {"what": "safe"}, id="c1")),
        reply(call("look", {"what": "dangerous"}, id="c1")),
    )
    turn_id, job = start_in_background(session, provider, [tool])
    loop.run_sync(wait_phase, session, "waiting_permission")
    (first,) = session.pending_cards()
    loop.run_sync(session.resolve_permission, turn_id, first.id, ALLOW)

    loop.run_sync(wait_until, session, lambda: session.pending_cards() not in ([], [first]))
    with pytest.raises(PermissionNotPending):
        loop.run_sync(session.resolve_permission, turn_id, first.id, ALLOW)
    (second,) = session.pending_cards()
    loop.run_sync(session.resolve_permission, turn_id, second.id, DENY)
    assert job.future.result(5).code == "permission_denied"
    assert tool.calls == [{"what": "safe"}]


@pytest.mark.parametrize(
    "content",
    [
        (),
        ("",),
        ("  \n",),
        (thinking("hm", signature=sign("hm")),),
        (thinking("hm", signature=sign("hm")), ""),
        ("\ud800 half a character",),
        ("a\0b \u202e \x1b[31m",),
        (OpaqueBlock({"type": "redacted_thinking", "data": "x"}), "and text"),
    ],
    ids=["nothing", "empty text", "blank", "thinking", "thinking, empty", "half", "odd", "opaque"],
)
def test_an_answer_of_any_kind_completes_the_turn(session: AgentSession, content: Any) -> None:
    provider = ScriptedProvider(reply(*content), reply("next"), reply("and on"))
    assert run(session, provider).status == "completed"
    assert run(session, provider).text == "next"
    assert run(session, provider).text == "and on"
    for request in provider.requests:
        assert_sendable(request)
    assert_sound(session)


def opaque(value: Any) -> OpaqueBlock:
    return OpaqueBlock({"type": "thinking", "thinking": "", "signature": "s", "extra": value})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [float("nan"), nested(300), object()], ids=["nan", "deep", "?"])
def test_a_message_that_cannot_be_stored_fails_the_turn_and_nothing_runs(
    session: AgentSession, value: Any
) -> None:
    tool = FakeTool()
    provider = ScriptedProvider(reply(opaque(value), call("look", {})), reply("next"))
    outcome = run(session, provider, [tool])
    assert outcome.status == "failed" and tool.calls == []
    assert_sound(session)
    assert run(session, provider).text == "next"
    assert_sound(session)


def test_one_step_with_tools_runs_them_and_ends_at_the_limit(session: AgentSession) -> None:
    tool = FakeTool()
    outcome = run(session, ScriptedProvider(reply(call("look", {}))), [tool], max_steps=1)
    assert (outcome.code, states(session)) == ("max_model_calls", ["succeeded"])
    assert "1 model call" in outcome.message and "1 model calls" not in outcome.message
    assert_sound(session)


def test_a_model_that_pauses_for_ever_reaches_the_limit(session: AgentSession) -> None:
    provider = ScriptedProvider(*[reply("still at it", stop_reason="pause_turn")] * 5)
    outcome = run(session, provider, max_steps=5)
    assert (outcome.code, len(provider.requests)) == ("max_model_calls", 5)
    assert_sound(session)


def test_a_pause_without_content_goes_on(session: AgentSession) -> None:
    provider = ScriptedProvider(reply(stop_reason="pause_turn"), reply("done"))
    assert run(session, provider).text == "done"
    assert_sound(session)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_an_answer_that_was_cut_off_is_kept_and_the_next_turn_follows_it(
    session: AgentSession, reason: Any
) -> None:
    provider = ScriptedProvider(reply("half an ans", stop_reason=reason), reply("next"))
    assert run(session, provider).text == "half an ans"
    node = session.dag.node(session.dag.head or "")
    assert node.metadata["gen_ai.response.finish_reasons"] == [reason]
    assert run(session, provider).text == "next"
    assert_sound(session)


def test_a_refusal_is_no_answer(session: AgentSession) -> None:
    outcome = run(session, ScriptedProvider(reply("I", stop_reason="refusal")))
    assert (outcome.status, outcome.code) == ("failed", "model_error")
    assert "declined" in outcome.message
    assert_sound(session)


def test_text_deltas_that_differ_from_the_message_do_not_count(session: AgentSession) -> None:
    done = ResponseDone(Message("assistant", (TextBlock("the truth"),)), "end_turn")
    assert run(session, ScriptedProvider([TextDelta("a lie"), done])).text == "the truth"


def test_a_user_message_as_answer_is_refused(session: AgentSession) -> None:
    done = ResponseDone(Message("user", (TextBlock("do as I say"),)), "end_turn")
    outcome = run(session, ScriptedProvider([done], reply("next")))
    assert outcome.code == "model_protocol_error"
    assert_sound(session)


def test_a_session_with_all_of_this_opens_again(store: MemoryStore) -> None:
    provider = ScriptedProvider(
        reply("\ud800", call("", "\0"), call("x" * 10_000, deep(400)), call("look", '{"a": NaN}')),
        reply(),
        reply("next"),
    )
    first = registry.acquire(store, store.create_session("hostile"))
    run(first, provider, [FakeTool()])
    store.crash()
    registry.release(first)
    again = registry.acquire(store, "hostile")
    assert run(again, provider).text == "next"
    assert_sendable(provider.requests[-1])
    assert_sound(again)
    registry.release(again)
