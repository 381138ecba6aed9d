"""A conversation that outgrows the window: a summary takes its place, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.compaction import HEADINGS, is_summary, not_installed, problem_of
from op_jupyter.core.context_window import measured
from op_jupyter.core.messages import ModelRequest, TextBlock, ToolResultBlock, Usage
from op_jupyter.core.turn import Outcome
from op_jupyter.engine import loop, registry
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.prompts import request_of
from op_jupyter.engine.runtime import Runtime, llm
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_context import session_context
from op_jupyter.errors import (
    Busy,
    ContextOverflow,
    ReloadRequired,
    SessionActive,
    StoreError,
    TurnNotActive,
    UnknownNode,
    UsageError,
)
from op_jupyter.providers.base import Capabilities
from op_jupyter.store.base import StoreStatus
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import HANG, Gate, Script, ScriptedProvider, call
from op_jupyter.testing.providers import reply as reply_counted
from op_jupyter.tools.toolset import toolset_of
from tests.engine.harness import (
    FailingStore,
    FakeTool,
    assert_sendable,
    assert_sound,
    kinds,
    run,
    start_in_background,
    turn_start,
    wait_phase,
)

WINDOW = Capabilities("scripted", "scripted-model", context_tokens=8_192, max_output_tokens=1_024)


def overflow() -> ContextOverflow:
    return ContextOverflow("the request is larger than the context window")


def reply(*content: Any, usage: Usage | None = None, **options: Any) -> Script:
    """A response of a service that counts no tokens, unless *usage* is given."""
    return reply_counted(*content, usage=usage or Usage(), **options)


def summary(word: str = "none") -> str:
    return "\n\n".join(f"## {heading}\n{word}" for heading in HEADINGS)


def is_for_summary(request: ModelRequest) -> bool:
    block = request.messages[-1].content[-1]
    return isinstance(block, TextBlock) and "exactly these nine headings" in block.text


def model(*scripts: Script, summaries: Callable[[], Script] | None = None) -> ScriptedProvider:
    """Plays *scripts*, and writes a summary whenever it is asked for one."""
    write = summaries or (lambda: reply(summary("it was about penguins")))
    provider = ScriptedProvider(capabilities=WINDOW)
    waiting = list(scripts)

    def answer(request: ModelRequest) -> Script:
        return write() if is_for_summary(request) else waiting.pop(0)

    provider._default = answer
    return provider


def compact(session: AgentSession, provider: ScriptedProvider, **options: Any) -> Outcome:
    start = CompactionStart(Runtime(provider=provider, max_retries=0), **options)
    return loop.run_sync(session.compact, start)[1]


def rewind(session: AgentSession, node_id: str) -> str | None:
    return loop.run_sync(session.rewind, node_id)


def said(request: ModelRequest) -> list[str]:
    return [b.text for m in request.messages for b in m.content if isinstance(b, TextBlock)]


def summaries(session: AgentSession) -> list[Any]:
    return [n for n in session.dag if n.metadata.get("kind") == "summary"]


def long_turns(session: AgentSession, count: int = 3) -> ScriptedProvider:
    """So many turns that the next one reaches the line."""
    provider = model(*(reply("x" * 8_750) for _ in range(count)))
    for number in range(count):
        run(session, provider, prompt=f"question {number}")
    return provider


# -- by hand


def test_a_summary_takes_the_place_of_all_before_it(session: AgentSession) -> None:
    provider = model(reply("first"), reply("second"), reply("third"))
    run(session, provider, prompt="one")
    run(session, provider, prompt="two")
    outcome = compact(session, provider)
    assert (outcome.status, outcome.text) == ("completed", summary("it was about penguins"))
    [node] = summaries(session)
    assert session.dag.head == node.id
    assert node.input["covers"] == [n.id for n in session.dag.spine(node.predecessor)]
    run(session, provider, prompt="three")
    told = said(provider.requests[-1])
    assert len(told) == 2 and told[1] == "three"
    assert "it was about penguins" in told[0] and "one" not in told[0].split()
    assert_sound(session)
    for request in provider.requests:
        assert_sendable(request)


def test_a_compaction_is_a_turn_of_its_own_with_its_checkpoint(session: AgentSession) -> None:
    provider = model(reply("first"))
    run(session, provider)
    compact(session, provider)
    turn = list(session.dag.turns.values())[-1]
    assert (turn.kind, turn.status) == ("compaction", "completed")
    [node] = summaries(session)
    assert node.turn_id == turn.id
    [checkpoint] = session.dag.checkpoints
    assert checkpoint["node"] == node.id and checkpoint["covers"] == node.input["covers"]
    phases = [
        e.update.data["phase"]
        for e in session.replay_updates(0) or ()
        if e.update.kind == "phase_changed" and e.turn_id == turn.id
    ]
    assert phases == ["compacting"]
    assert kinds(session)[-1] == "turn_finished"


def test_a_prompt_looks_at_nothing_before_the_summary(session: AgentSession) -> None:
    """What a step costs does not grow with the session: not even a look at an old node."""
    provider = model(*(reply("answer") for _ in range(4)), reply("last"))
    for number in range(4):
        run(session, provider, prompt=f"question {number}")
    compact(session, provider)
    for covered in summaries(session)[0].input["covers"]:
        del session.dag.nodes[covered]
    assert run(session, provider, [FakeTool()], prompt="and now?").text == "last"


def test_a_second_summary_covers_the_first(session: AgentSession) -> None:
    provider = model(reply("first"), reply("second"), reply("third"))
    run(session, provider)
    compact(session, provider)
    run(session, provider)
    compact(session, provider)
    first, second = summaries(session)
    assert second.input["covers"][0] == first.id
    run(session, provider, prompt="three")
    assert len(said(provider.requests[-1])) == 2
    assert_sound(session)


def test_there_has_to_be_something_to_compact(session: AgentSession) -> None:
    with pytest.raises(UsageError, match="no answer yet"):
        compact(session, model())
    provider = model(reply("first"))
    run(session, provider)
    compact(session, provider)
    with pytest.raises(UsageError, match="no answer yet"):
        compact(session, provider)
    assert len(summaries(session)) == 1


def test_a_tiny_model_is_not_compacted_because_its_window_never_fills(
    session: AgentSession,
) -> None:
    can = Capabilities("local", "tiny", context_tokens=4_096, max_output_tokens=256, small=True)
    provider = ScriptedProvider(*(reply("x" * 10_000) for _ in range(6)), capabilities=can)
    for _ in range(6):
        assert run(session, provider).status == "completed"
    with pytest.raises(UsageError, match="too small to write a summary"):
        compact(session, provider)
    assert summaries(session) == []


def test_a_provider_that_keeps_the_conversation_makes_room_by_itself(
    session: AgentSession,
) -> None:
    run(session, model(reply("first")))
    provider = ScriptedProvider(capabilities=Capabilities("sdk", "m", has_session=True))
    with pytest.raises(UsageError, match="keeps the conversation itself"):
        compact(session, provider)


# -- what the model writes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "heading 'Request and intent' is missing"),
        (summary().replace("## Pending\n", ""), "heading 'Pending' is missing"),
        (summary() + "\n## Pending\nnone", "not the nine"),
        (
            summary().replace("## Decisions\nnone", "## Decisions\n  \n"),
            "nothing below 'Decisions'",
        ),
        (summary("x" * 2_000), "characters"),
    ],
)
def test_a_summary_has_nine_filled_headings_and_a_limit(text: str, problem: str) -> None:
    assert problem in problem_of(text, 10_000)


def test_headings_may_be_written_a_little_differently() -> None:
    assert problem_of(summary().replace("## Files and code", "##  files and CODE: ##"), 8_100) == ""


def test_an_unusable_summary_is_asked_for_again_with_what_was_wrong(session: AgentSession) -> None:
    bad: list[Script] = [reply("no headings"), reply(call("look", {})), reply(summary())]
    provider = model(reply("first"), summaries=lambda: bad.pop(0))
    run(session, provider)
    assert compact(session, provider, tools=toolset_of([FakeTool()])).status == "completed"
    asked = [r.messages[-1].content[-1] for r in provider.requests[1:]]
    assert [getattr(b, "text", "").count("no use") for b in asked] == [0, 1, 1]
    [node] = summaries(session)
    tries = [n for n in session.dag if n.caller == node.id]
    assert [n.status for n in tries] == ["error", "error", "completed"]
    assert_sound(session)


def test_after_three_tries_the_line_is_as_it_was(session: AgentSession) -> None:
    provider = model(reply("first"), reply("next"), summaries=lambda: reply("no"))
    run(session, provider)
    head = session.dag.head
    outcome = compact(session, provider)
    assert (outcome.status, outcome.code) == ("failed", "compaction_error")
    assert session.dag.head == head and len(provider.requests) == 4
    assert [n.status for n in summaries(session)] == ["error"]
    assert run(session, provider).text == "next"
    assert_sound(session)


def test_a_cut_off_summary_is_no_summary(session: AgentSession) -> None:
    provider = model(reply("first"), summaries=lambda: reply(summary(), stop_reason="max_tokens"))
    run(session, provider)
    assert compact(session, provider).code == "compaction_error"


# -- by itself


def test_a_turn_that_reaches_the_line_is_compacted_and_goes_on(session: AgentSession) -> None:
    provider = long_turns(session)
    provider = model(reply("done"))
    outcome = run(session, provider, prompt="and now?")
    assert (outcome.status, outcome.text) == ("completed", "done")
    assert [is_for_summary(r) for r in provider.requests] == [True, False]
    told = said(provider.requests[-1])
    assert len(told) == 2 and told[1] == "and now?"
    phases = [
        e.update.data["phase"]
        for e in session.replay_updates(0) or ()
        if e.update.kind == "phase_changed"
    ]
    assert phases[-3:] == ["running_model", "compacting", "running_model"]
    assert_sound(session)


def test_the_newest_response_and_its_results_stay_as_they_are(session: AgentSession) -> None:
    tool = FakeTool(act=lambda arguments: arguments["what"] * 8_100)
    provider = model(*(reply(call("look", {"what": letter})) for letter in "abcd"), reply("done"))
    assert run(session, provider, [tool], prompt="look at all").text == "done"
    after = next(
        r for i, r in enumerate(provider.requests) if i and is_for_summary(provider.requests[i - 1])
    )
    assert said(after)[1:] == ["look at all"]
    results = [b for m in after.messages for b in m.content if isinstance(b, ToolResultBlock)]
    assert [b.content[0].text[0] for b in results] == ["c"]  # type: ignore[union-attr]
    assert len(results[0].content[0].text) == 8_100  # type: ignore[union-attr]
    assert len(tool.calls) == 4
    assert_sound(session)
    for request in provider.requests:
        assert_sendable(request)


def test_a_step_is_compacted_once_at_most(session: AgentSession) -> None:
    long_turns(session)
    provider = model([overflow()])
    outcome = run(session, provider, prompt="and now?")
    assert outcome.code == "model_error"
    assert [is_for_summary(r) for r in provider.requests] == [True, False]
    assert run(session, model(reply("fine")), prompt="again").text == "fine"


def test_a_clear_overflow_is_compacted_and_asked_again_once(session: AgentSession) -> None:
    run(session, model(reply("x" * 3_500)), prompt="one")
    provider = model([overflow()], reply("done"))
    outcome = run(session, provider, prompt="two")
    assert (outcome.status, outcome.text) == ("completed", "done")
    assert [is_for_summary(r) for r in provider.requests] == [False, True, False]
    assert_sound(session)


def test_an_overflow_after_the_first_words_is_not_compacted(session: AgentSession) -> None:
    run(session, model(reply("x" * 3_500)), prompt="one")
    half = [*reply("half an answer")[:1], overflow()]
    provider = model(half)
    assert run(session, provider, prompt="two").code == "model_error"
    assert summaries(session) == []


def test_a_request_for_a_summary_that_overflows_is_made_smaller(session: AgentSession) -> None:
    long_turns(session, 2)
    tries: list[Script] = [[overflow()], reply(summary())]
    provider = model([overflow()], reply("done"), summaries=lambda: tries.pop(0))
    outcome = run(session, provider, prompt="and now?")
    assert (outcome.status, outcome.text) == ("completed", "done"), outcome
    sizes = [len(str(r.messages)) for r in provider.requests if is_for_summary(r)]
    assert sizes[1] < sizes[0]
    assert_sound(session)


def test_no_usable_summary_fails_the_turn_by_name_and_the_session_goes_on(
    session: AgentSession,
) -> None:
    long_turns(session)
    useless = model(summaries=lambda: reply("no"))
    outcome = run(session, useless, prompt="and now?")
    assert (outcome.status, outcome.code) == ("failed", "compaction_error")
    assert [is_for_summary(request) for request in useless.requests] == [True] * 3
    assert run(session, model(reply("fine")), prompt="again").text == "fine"
    assert_sound(session)


@pytest.mark.parametrize("window", [1_500, 4_096, 32_768])
def test_a_long_session_fits_a_window_of_any_size(session: AgentSession, window: int) -> None:
    chance = random.Random(window)
    largest = 0

    def answer(request: ModelRequest) -> Script:
        nonlocal largest
        largest = max(largest, measured(request).tokens + request.max_tokens)
        if is_for_summary(request):
            return reply(summary())
        if chance.random() < 0.5:
            return reply(call("look", {"what": str(chance.random())}))
        return reply("y" * chance.randint(10, window // 4))

    can = Capabilities("scripted", "m", context_tokens=window)
    provider = ScriptedProvider(default=answer, capabilities=can)
    tool = FakeTool(act=lambda _: "r" * chance.randint(10, window))
    for _ in range(12):
        prompt = "q" * chance.randint(10, window // 3)
        assert run(session, provider, [tool], prompt=prompt).status == "completed"
    assert largest <= window and summaries(session)
    for request in provider.requests:
        assert_sendable(request)
    assert_sound(session)


def test_reported_usage_moves_the_line(session: AgentSession) -> None:
    def asked(counted: int) -> int:
        run(session, model(reply("x" * 13_300, usage=Usage(counted, 5))), prompt="go " * 3_000)
        provider = model(reply("done"))
        assert run(session, provider, prompt="short").text == "done"
        rewind(session, session.dag.spine()[0].id)
        return len(provider.requests)

    assert asked(0) == 1
    assert asked(3_500) == 2


def test_the_tokens_of_a_summary_are_counted_with_the_turn(session: AgentSession) -> None:
    long_turns(session)
    provider = model(
        reply("done", usage=Usage(7, 3)), summaries=lambda: reply(summary(), usage=Usage(20, 10))
    )
    assert run(session, provider, prompt="and now?").usage == Usage(27, 13)


# -- cancel, and the wrong moment


def test_a_cancelled_compaction_leaves_the_line_as_it_was(session: AgentSession) -> None:
    run(session, model(reply("first")))
    head = session.dag.head
    provider = model(summaries=lambda: [HANG])

    async def scene() -> Outcome:
        start = CompactionStart(Runtime(provider=provider, max_retries=0))
        job = asyncio.ensure_future(session.compact(start))
        await wait_phase(session, "compacting")
        turn_id = session.active_turn_id
        assert turn_id is not None
        assert session.snapshot().runtime["state"] == "running"
        with pytest.raises(Busy):
            await session.start_turn(turn_start(provider))
        with pytest.raises(SessionActive):
            await session.compact(start)
        with pytest.raises(SessionActive):
            await session.rewind(str(head))
        with pytest.raises(SessionActive):
            await session.reload()
        with pytest.raises(TurnNotActive):
            await session.cancel_turn("another")
        await session.cancel_turn(turn_id)
        return (await job)[1]

    assert loop.run_sync(scene).status == "cancelled"
    assert session.dag.head == head
    assert [n.status for n in summaries(session)] == ["cancelled"]
    assert_sound(session)
    assert run(session, model(reply("next"))).text == "next"


def test_a_turn_cancelled_while_it_compacts_is_cancelled(session: AgentSession) -> None:
    long_turns(session)
    head = session.dag.head
    gate = Gate()
    provider = model(summaries=lambda: [gate])
    turn_id, job = start_in_background(session, provider, prompt="and now?")
    gate.wait_reached()
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result().status == "cancelled"
    assert session.dag.spine()[-2].id == head
    assert_sound(session)


@pytest.mark.parametrize("command", ["compact", "rewind"])
def test_only_an_idle_session_can_be_compacted_or_rewound(
    session: AgentSession, command: str
) -> None:
    run(session, model(reply("first")), prompt="one")
    head = str(session.dag.head)
    gate = Gate()
    provider = model([gate, *reply("done")])
    _, job = start_in_background(session, provider)
    gate.wait_reached()
    with pytest.raises(SessionActive):
        compact(session, provider) if command == "compact" else rewind(session, head)
    gate.open()
    assert job.future.result().text == "done"
    assert len(session.dag.turns) == 2


# -- rewind


def test_rewinding_to_before_a_summary_brings_the_originals_back(session: AgentSession) -> None:
    provider = model(reply("first"), reply("second"), reply("third"))
    run(session, provider, prompt="one")
    before = session.dag.head
    compact(session, provider)
    [node] = summaries(session)
    run(session, provider, prompt="two")
    left = session.dag.head
    assert rewind(session, node.id) == before
    run(session, provider, prompt="three")
    assert said(provider.requests[-1]) == ["one", "first", "three"]
    assert left in session.dag.branches.values(), "the line that was left keeps its branch"
    assert session.dag.turns[[*session.dag.turns][-2]].kind == "rewind"
    assert_sound(session)


def test_rewinding_to_an_answer_keeps_it_and_to_a_prompt_takes_it_back(
    session: AgentSession,
) -> None:
    provider = model(reply("first"), reply("second"), reply("third"), reply("fourth"))
    run(session, provider, prompt="one")
    run(session, provider, prompt="two")
    one, first, two, _ = session.dag.spine()
    assert rewind(session, two.id) == first.id
    run(session, provider, prompt="three")
    assert said(provider.requests[-1]) == ["one", "first", "three"]
    assert rewind(session, first.id) == first.id
    assert rewind(session, one.id) is None
    run(session, provider, prompt="four")
    assert said(provider.requests[-1]) == ["four"]
    assert len(session.dag.followers(None)) == 2
    assert_sound(session)


def test_rewinding_to_where_the_line_ends_changes_nothing(session: AgentSession) -> None:
    run(session, model(reply("first")))
    turns = len(session.dag.turns)
    assert rewind(session, str(session.dag.head)) == session.dag.head
    assert len(session.dag.turns) == turns


def test_only_a_node_of_the_conversation_can_be_rewound_to(session: AgentSession) -> None:
    run(session, model(reply(call("look", {})), reply("done")), [FakeTool()])
    tool = next(n for n in session.dag if n.metadata.get("kind") == "tool")
    with pytest.raises(UsageError, match=str(tool.caller)):
        rewind(session, tool.id)
    with pytest.raises(UnknownNode):
        rewind(session, "nothing")
    assert list(session.dag.branches) == ["main"]


# -- bare calls beside the line


def test_a_bare_call_before_a_summary_is_covered_and_one_after_it_is_told(
    store: MemoryStore,
) -> None:
    provider = model(reply("first"), reply("aside"), reply("later"), reply("second"))
    with session_context("s1", store=store, runtime=Runtime(provider=provider)) as handle:
        session = handle.agent
        run(session, provider, prompt="one")
        llm("before")
        compact(session, provider)
        llm("after")
        run(session, provider, prompt="two")
        assert said(provider.requests[-1])[1:] == ["after", "later", "two"]
        assert_sound(session)


def test_a_bare_call_that_ran_meanwhile_is_told_once_it_has_ended(store: MemoryStore) -> None:
    gate = Gate()
    provider = model(reply("first"), [gate, *reply("late answer")], reply("second"))
    with session_context("s1", store=store, runtime=Runtime(provider=provider)) as handle:
        session = handle.agent
        run(session, provider, prompt="one")
        job = loop.submit(llm.aio, "late")
        gate.wait_reached()
        compact(session, provider)
        gate.open()
        job.future.result()
        run(session, provider, prompt="two")
        assert said(provider.requests[-1])[1:] == ["late", "late answer", "two"]
        assert_sound(session)


# -- stored, but not in its place


class Stuck:
    """An open session whose line cannot be moved while it is *stuck*."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.stuck = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set_head(self, node_id: str | None) -> None:
        if self.stuck:
            raise StoreError("disk full")
        self._inner.set_head(node_id)


def test_a_summary_that_is_not_in_its_place_asks_for_a_reload_which_puts_it_there(
    store: MemoryStore,
) -> None:
    inner = store.open(store.create_session("s1"))
    session = AgentSession(Stuck(inner))  # type: ignore[arg-type]
    session.reloads_with(lambda: store.open("s1"))
    provider = model(reply("first"), reply("second"))
    run(session, provider, prompt="one")
    outcome = compact(session, provider)
    assert (outcome.status, outcome.code) == ("failed", "chat_state_error")
    for attempt in (
        lambda: run(session, provider),
        lambda: compact(session, provider),
        lambda: rewind(session, str(session.dag.head)),
    ):
        with pytest.raises(ReloadRequired):
            attempt()
    loop.run_sync(session.reload)
    [node] = summaries(session)
    assert session.dag.head == node.id and not session.reload_required
    assert run(session, provider, prompt="two").text == "second"
    assert said(provider.requests[-1])[1:] == ["two"]
    assert_sound(session)
    session.close()


def test_a_session_on_disk_is_reloaded_in_place(tmp_path: Path) -> None:
    store = SessionStore(root_path=tmp_path)
    session = registry.acquire(store, store.create_session())
    provider = model(reply("first"), reply("second"))
    run(session, provider, prompt="one")
    session.require_reload("a test")
    heard: list[str] = []
    session.subscribe(lambda envelope: heard.append(envelope.update.kind))
    loop.run_sync(session.reload)
    assert run(session, provider, prompt="two").text == "second"
    assert said(provider.requests[-1]) == ["one", "first", "two"]
    assert heard[0] == "turn_started", "whoever listened before still hears"
    registry.release(session)
    assert len(store.load(session.session_id).turns) == 2


def test_a_store_that_writes_nothing_more_asks_for_a_reload(store: MemoryStore) -> None:
    inner = store.open(store.create_session("s1"))

    class Broken:
        status = StoreStatus(read_only="the disk failed")

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    session = AgentSession(Broken())  # type: ignore[arg-type]
    session.reloads_with(lambda: store.open("s1"))
    provider = model(reply("first"))
    with pytest.raises(ReloadRequired, match="the disk failed"):
        run(session, provider)
    loop.run_sync(session.reload)
    assert run(session, provider).text == "first"
    session.close()


@pytest.mark.parametrize("allowed", range(9))
def test_a_store_failure_at_any_write_of_a_compaction_loses_nothing(
    store: MemoryStore, allowed: int
) -> None:
    inner = store.open(store.create_session("s1"))
    failing = FailingStore(inner, 100)
    session = AgentSession(failing)  # type: ignore[arg-type]
    session.reloads_with(lambda: store.open("s1"))
    provider = model(reply("first"), reply("second"))
    run(session, provider, prompt="one")
    failing.left = allowed
    outcome = compact(session, provider)
    assert outcome.status == ("completed" if allowed == 8 else "failed")
    assert outcome.code in (None, "persistence_error", "chat_state_error")
    failing.left = 100
    loop.run_sync(session.reload)
    assert run(session, provider, prompt="two").text == "second"
    told = said(provider.requests[-1])
    assert told[-1] == "two" and ("first" in told) is not is_summary(session.dag.spine()[2])
    assert_sound(session)
    session.close()


def test_opening_puts_a_summary_in_its_place_that_its_process_did_not_live_to(
    store: MemoryStore,
) -> None:
    inner = store.open(store.create_session("s1"))
    session = AgentSession(Stuck(inner))  # type: ignore[arg-type]
    provider = model(reply("first"))
    run(session, provider, prompt="one")
    compact(session, provider)
    store.crash()
    again = registry.acquire(store, "s1")
    assert is_summary(again.dag.node(str(again.dag.head)))
    assert not_installed(again.dag) is None
    registry.release(again)


def test_who_went_back_to_before_a_summary_stays_there_when_it_is_opened_again(
    store: MemoryStore,
) -> None:
    session = registry.acquire(store, store.create_session("s1"))
    provider = model(reply("first"))
    run(session, provider, prompt="one")
    before = session.dag.head
    compact(session, provider)
    rewind(session, summaries(session)[0].id)
    registry.release(session)
    again = registry.acquire(store, "s1")
    assert again.dag.head == before
    registry.release(again)


def test_the_prompts_of_a_compacted_session_render_again_after_reopening(
    store: MemoryStore,
) -> None:
    session = registry.acquire(store, store.create_session("s1"))
    long_turns(session)
    run(session, model(reply("done")), prompt="and now?")
    registry.release(session)
    again = registry.acquire(store, "s1")
    asked = [n.id for n in again.dag if n.role == "llm"]
    assert all(request_of(again.dag, i, again.store.read_blob)[1] for i in asked)
    registry.release(again)


def test_a_line_that_went_back_to_before_a_summary_gets_one_of_its_own(
    session: AgentSession,
) -> None:
    provider = model(*(reply(f"answer {number}") for number in range(5)))
    run(session, provider, prompt="one")
    first = session.dag.head or ""
    run(session, provider, prompt="two")
    compact(session, provider)
    [earlier] = summaries(session)
    rewind(session, first)
    run(session, provider, prompt="another two")
    compact(session, provider)
    later = summaries(session)[-1]
    assert earlier.id not in later.input["covers"]
    assert session.dag.head == later.id
    run(session, provider, prompt="three")
    assert len(said(provider.requests[-1])) == 2
    rewind(session, later.id)
    run(session, provider, prompt="four")
    assert "another two" in said(provider.requests[-1])
    assert_sound(session)
    for request in provider.requests:
        assert_sendable(request)


def test_a_doom_loop_is_noticed_across_a_summary(session: AgentSession) -> None:
    long_turns(session)
    looking, again = FakeTool("look"), call("look", {"what": "x"})
    provider = model(reply(again), reply(again), reply(again))
    outcome = run(session, provider, [looking], prompt="z" * 3_000)
    assert len(summaries(session)) == 1
    assert (outcome.code, len(looking.calls)) == ("doom_loop", 2)
    assert_sound(session)
