"""What the ambient session promises to whoever calls in it."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from op_jupyter import Runtime, SessionStore, agentic_function, llm, session_context
from op_jupyter.core.keys import canonical_json
from op_jupyter.engine import registry
from op_jupyter.errors import ConfigurationError, StoreError, UsageError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from tests.engine.harness import FakeTool, assert_sound, run, start_in_background, texts
from tests.support.faulty_files import FaultyFileSystem


@agentic_function
async def think(topic: str) -> str:
    """Think about a topic."""
    return await llm.aio(topic)


@agentic_function
def classify(topic: str) -> str:
    """Classify a topic."""
    return llm(topic)


def in_session(store: Any, provider: ScriptedProvider) -> session_context:
    return session_context("s1", store=store, runtime=Runtime(provider=provider))


def answering() -> ScriptedProvider:
    return ScriptedProvider(default=lambda request: reply("so"))


def test_tasks_and_threads_of_a_function_hang_under_it_in_its_turn(store: MemoryStore) -> None:
    @agentic_function
    async def spread() -> list[str]:
        """Spread work over tasks and threads."""
        task = asyncio.create_task(think("a task"))
        in_thread = asyncio.to_thread(classify, "a thread")
        return [*await asyncio.gather(think("beside"), think("each other"), in_thread), await task]

    with in_session(store, answering()) as handle:
        assert asyncio.run(spread()) == ["so"] * 4
        dag = handle.agent.dag
        assert_sound(handle.agent)
    (top,) = dag.children(None)
    names = [node.name for node in dag.children(top.id)]
    assert sorted(names) == ["classify", "think", "think", "think"]
    assert {node.turn_id for node in dag} == {top.turn_id}


def test_a_task_that_is_cancelled_records_its_call_as_cancelled(store: MemoryStore) -> None:
    async def stop_it() -> None:
        task = asyncio.create_task(think("for ever"))
        await asyncio.to_thread(gate.wait_reached)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    gate = Gate()
    with in_session(store, ScriptedProvider([gate, reply("late")])) as handle:
        asyncio.run(stop_it())
        ended = [(node.role, node.status) for node in handle.agent.dag]
        (turn,) = handle.agent.dag.turns.values()
    assert ended == [("code", "cancelled"), ("llm", "cancelled")]
    assert turn.status == "cancelled"


def test_a_bare_call_beside_a_running_turn_is_never_refused(store: MemoryStore) -> None:
    gate = Gate()
    tool = FakeTool(gate=gate, effect="read")
    provider = ScriptedProvider(reply(call("look", {})), reply("done"))
    with in_session(store, answering()) as handle:
        turn_id, job = start_in_background(handle.agent, provider, [tool])
        gate.wait_reached()
        head = handle.agent.dag.head
        assert classify("meanwhile") == "so"
        gate.open()
        assert job.future.result(30).text == "done"
        (beside,) = [node for node in handle.agent.dag if node.name == "classify"]
        assert_sound(handle.agent)
    assert beside.predecessor == head
    assert beside.turn_id != turn_id


def test_an_answer_says_where_it_came_from_and_its_node_what_it_took(store: MemoryStore) -> None:
    with in_session(store, answering()) as handle:
        answer = llm("hello")
        node = handle.agent.dag.node(answer.node_id)
    assert (answer.session_id, answer.turn_id) == (handle.session_id, node.turn_id)
    assert {
        "gen_ai.response.model",
        "gen_ai.response.finish_reasons",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "attempts",
        "seconds",
    } <= set(node.metadata)


def test_a_new_session_is_named_with_its_prefix_and_keeps_who_made_it(store: MemoryStore) -> None:
    made: dict[str, Any] = {"agent_id": "helper", "source": "test"}
    runtime = Runtime(provider=answering())
    with session_context(store=store, runtime=runtime, id_prefix="nightly", **made) as handle:
        classify("owls")
        assert handle.created and re.fullmatch("nightly-[0-9a-f]{12}", handle.session_id)
    with session_context(handle.session_id, store=store, id_prefix="other", source="cli") as again:
        assert not again.created and again.session_id == handle.session_id
        assert made.items() <= again.agent.dag.meta.items()


def test_without_a_provider_calls_are_recorded_until_one_needs_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENPROGRAM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENPROGRAM_CONFIG", os.devnull)
    monkeypatch.setenv("OPENPROGRAM_LOCAL_MODEL", str(tmp_path / "nowhere"))
    monkeypatch.setenv("OPENPROGRAM_CLAUDE", str(tmp_path / "nowhere"))
    here = Path.cwd()

    @agentic_function
    def prepare(topic: str) -> str:
        """Prepare, without any model."""
        assert Path.cwd() == here
        return topic

    store = SessionStore(root_path=tmp_path / "sessions")
    with session_context("s1", store=store) as handle:
        assert handle.runtime is None
        assert not (tmp_path / "sessions" / "s1").exists()
        assert prepare("owls") == "owls"
        with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
            classify("owls")
    stored = [(node.name, node.status) for node in store.load("s1")]
    assert stored == [("prepare", "completed"), ("classify", "error")]
    with session_context("s1", store=store) as again:  # the lock is free
        assert not again.created


def test_what_a_prompt_is_rendered_from_does_not_grow_with_the_session(store: MemoryStore) -> None:
    with in_session(store, answering()) as handle:
        for number in range(30):
            classify(f"topic {number:02}")
        sizes = [len(canonical_json(n.reads)) for n in handle.agent.dag if n.role == "llm"]
        assert_sound(handle.agent)
    assert len(sizes) == 30
    assert max(sizes) - min(sizes) <= 8  # of numbers that get another digit


def test_a_block_in_a_turn_that_is_over_leaves_nothing_that_says_it_runs(
    store: MemoryStore,
) -> None:
    runtime = Runtime(provider=answering())
    with session_context("s1", store=store, runtime=runtime) as handle:
        for _ in range(2):
            with session_context("s1", store=store, runtime=runtime, turn_id="t1"):
                assert llm("hello") == "so"
        handle.agent.check_idle("do it")
        assert handle.agent.dag.turns["t1"].status == "completed"


def test_a_block_in_a_turn_that_somebody_else_began_does_not_end_it(store: MemoryStore) -> None:
    def look(_arguments: Any) -> str:
        turn_id = handle.agent.active_turn_id
        with session_context(
            "s1", store=store, runtime=Runtime(provider=answering()), turn_id=turn_id
        ):
            return handle.agent.dag.turns[turn_id].status

    with in_session(store, answering()) as handle:
        provider = ScriptedProvider(reply(call("look", {})), reply("done"))
        outcome = run(handle.agent, provider, [FakeTool(act=look)])
        assert (outcome.status, outcome.text) == ("completed", "done")
        assert texts(handle.agent) == ["running"]
        assert_sound(handle.agent)


def test_a_session_whose_turn_cannot_be_begun_is_let_go_and_taken_anew(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    store = SessionStore(tmp_path, files=files)
    files.arm(1, forever=True)
    entering = session_context(
        "s1", store=store, runtime=Runtime(provider=answering()), turn_id="t1"
    )
    with pytest.raises(StoreError):
        entering.__enter__()
    assert registry.live(store, "s1") is None
    files.disarm()
    with entering as handle:
        assert llm("hello") == "so"
    assert store.load("s1").turns["t1"].status == "completed"
    assert handle.agent.store.closed


def test_what_ended_a_block_is_not_masked_by_a_disk_that_refuses_its_end(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    store = SessionStore(tmp_path, files=files)
    with (
        pytest.raises(ValueError, match="mine") as caught,
        session_context("s1", store=store, runtime=Runtime(provider=answering()), turn_id="t1"),
    ):
        llm("hello")
        files.arm(1, forever=True)
        raise ValueError("mine")
    assert any("could not record" in note for note in caught.value.__notes__)
    assert registry.live(store, "s1") is None


def test_a_thread_that_leaves_a_session_does_not_take_the_main_thread_out_of_it(
    store: MemoryStore,
) -> None:
    def come_and_go() -> None:
        with session_context("s1", store=store, runtime=runtime):
            pass

    def stray() -> None:
        with pytest.raises(UsageError, match="stands in no session"):
            llm("hello")
        refused.append(True)

    refused: list[bool] = []
    runtime = Runtime(provider=answering())
    with session_context("s1", store=store):
        pass
    with session_context("s1", store=store, runtime=runtime):
        for work in (come_and_go, stray):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert refused == [True]


def test_a_session_cannot_be_entered_in_a_folder_that_is_gone(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigurationError, match="the current folder is gone"):
        in_session(store, answering()).__enter__()
    monkeypatch.chdir(tmp_path)
    with in_session(store, answering()):
        assert llm("hello") == "so"
