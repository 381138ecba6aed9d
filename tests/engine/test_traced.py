"""`@traced` steps, and the threads that `carry` takes along."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from op_jupyter import agentic_function, carry, llm, session_context, traced
from op_jupyter.core.nodes import Node
from op_jupyter.engine import context
from op_jupyter.engine.runtime import Runtime, agent
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ToolDefinitionError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import assert_sound


@traced
def load(path: str, rows: int = 3) -> list[int]:
    """Read some rows."""
    return list(range(rows))


@traced(name="settle")
async def settle_later(n: int) -> int:
    return n + 1


@traced
def ask_about(topic: str) -> str:
    return llm(f"about {topic}")


@agentic_function
def research(topic: str) -> str:
    """Research a topic."""
    first = ask_about(topic)
    return llm(f"after {first}")


def in_session(store: MemoryStore, provider: ScriptedProvider) -> session_context:
    return session_context("s1", store=store, runtime=Runtime(provider=provider))


def tree(session: AgentSession, caller: str | None = None) -> list[Any]:
    """Names of nodes, each with what it called."""
    return [(n.name, *tree(session, n.id)) for n in session.dag.children(caller)]


def test_a_traced_call_is_a_node_with_its_arguments_and_its_value(store: MemoryStore) -> None:
    with in_session(store, ScriptedProvider()) as handle:
        assert load("a.csv") == [0, 1, 2]
        (node,) = handle.agent.dag
    assert (node.role, node.name, node.status) == ("code", "load", "completed")
    assert (node.input, node.output) == ({"path": "a.csv", "rows": 3}, [0, 1, 2])
    assert node.metadata["seconds"] >= 0


async def test_an_async_step_is_recorded_alike(store: MemoryStore) -> None:
    async with in_session(store, ScriptedProvider()) as handle:
        assert await settle_later(1) == 2
        (node,) = handle.agent.dag
    assert (node.name, node.output, node.status) == ("settle", 2, "completed")


def test_a_step_that_raises_is_recorded_as_an_error(store: MemoryStore) -> None:
    @traced
    def broken() -> None:
        raise ValueError("no")

    with in_session(store, ScriptedProvider()) as handle:
        with pytest.raises(ValueError, match="no"):
            broken()
        (node,) = handle.agent.dag
    assert (node.status, node.metadata["error"]["type"]) == ("error", "ValueError")


def test_without_a_session_a_step_is_the_plain_function() -> None:
    assert load("a.csv", rows=1) == [0]
    assert context.current_frame() is None
    assert load.__name__ == "load" and load.__doc__ == "Read some rows."


def prompts(provider: ScriptedProvider) -> list[Any]:
    return [request.messages for request in provider.requests]


def test_steps_change_no_prompt_in_a_function_and_at_top_level(store: MemoryStore) -> None:
    """The same program with and without `traced` sends the same, and hangs on other nodes."""

    def program(mark: Any) -> list[Any]:
        @mark  # type: ignore[untyped-decorator]
        def asking(topic: str) -> str:
            return llm(f"about {topic}")

        @mark  # type: ignore[untyped-decorator]
        def both(topic: str) -> str:
            return asking(topic) + agent("use it", tools=[look])

        @agentic_function
        def inner(topic: str) -> str:
            """Look closer."""
            return llm(topic)

        @agentic_function
        def research(topic: str) -> str:
            """Research."""
            both(topic)
            inner(topic)
            return llm("and?")

        provider = ScriptedProvider(default=answer)
        with session_context(store=store, runtime=Runtime(provider=provider)) as handle:
            research("owls")
            both("bats")
            mark(inner)("cats") if mark is plain else mark(lambda: inner("cats"))()
            llm("what did we say?")
            assert_sound(handle.agent)
        return prompts(provider)

    def plain(function: Any) -> Any:
        return function

    assert program(traced) == program(plain)


def look(what: str = "") -> str:
    """Look at something."""
    return "seen"


def answer(request: Any) -> Any:
    """Use the tool once, when there is one; then say which answer this is."""
    used = any(message.tool_uses for message in request.messages[-2:])
    if request.tools and not used:
        return reply(call("look", {}, id=f"c{len(request.messages)}"))
    return reply(f"answer {len(request.messages)}")


def test_what_a_step_calls_hangs_on_the_step(store: MemoryStore) -> None:
    provider = ScriptedProvider(default=lambda request: reply("so"))
    with in_session(store, provider) as handle:
        research("owls")
        ask_about("bats")
        assert tree(handle.agent) == [
            ("research", ("ask_about", ("scripted-model",)), ("scripted-model",)),
            ("ask_about", ("scripted-model",)),
        ]
        assert_sound(handle.agent)


def test_a_function_sees_what_it_was_told_inside_a_step(store: MemoryStore) -> None:
    provider = ScriptedProvider(reply("they fly"), reply("done"))
    with in_session(store, provider):
        research("owls")
    (last,) = provider.requests[-1:]
    assert [m.role for m in last.messages] == ["user", "assistant", "user"]
    assert "Call path: research\n" in str(last.messages[0].content[0].text)  # type: ignore[union-attr]


def timed(function: Any) -> Any:
    """A plain decorator, as many libraries have one."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@traced
@timed
async def ask_later(topic: str) -> str:
    await asyncio.sleep(0)
    return str(await llm.aio(f"about {topic}"))


async def test_a_call_whose_coroutine_is_awaited_later_lasts_until_then(store: MemoryStore) -> None:
    provider = ScriptedProvider(default=lambda request: reply("so"))
    async with in_session(store, provider) as handle:
        waiting = [ask_later(str(n)) for n in range(3)]
        assert context.current_frame() is None
        assert [n.status for n in handle.agent.dag] == ["running"] * 3
        assert await asyncio.gather(*waiting) == ["so"] * 3
        assert await ask_later("four") == "so"
        assert context.current_frame() is None
        assert tree(handle.agent) == [("ask_later", ("scripted-model",))] * 4
        steps = [n for n in handle.agent.dag if n.name == "ask_later"]
        assert [(n.output, n.status) for n in steps] == [("so", "completed")] * 4
        assert all(t.status == "completed" for t in handle.agent.dag.turns.values())
        assert_sound(handle.agent)


def test_it_may_be_awaited_in_another_thread(store: MemoryStore) -> None:
    provider = ScriptedProvider(default=lambda request: reply("so"))
    with in_session(store, provider) as handle:
        waiting = ask_later("owls")
        in_thread(lambda: asyncio.run(waiting))
        assert tree(handle.agent) == [("ask_later", ("scripted-model",))]
        assert_sound(handle.agent)


async def test_a_coroutine_that_fails_or_is_cancelled_or_dropped_ends_its_call(
    store: MemoryStore,
) -> None:
    @traced
    @timed
    async def waits(error: Exception | None) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    async with in_session(store, ScriptedProvider()) as handle:
        with pytest.raises(ValueError, match="no"):
            await waits(ValueError("no"))
        task = asyncio.create_task(waits(None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.warns(RuntimeWarning, match=r"waits' was never awaited"):
            waits(None)
        said = [(n.status, n.metadata["error"]["type"]) for n in handle.agent.dag]
    assert said == [
        ("error", "ValueError"),
        ("cancelled", "CancelledError"),
        ("cancelled", "CancelledError"),
    ]


def test_a_generator_that_another_decorator_hides_is_refused_when_it_comes(
    store: MemoryStore,
) -> None:
    @traced
    @timed
    def numbers() -> Any:
        yield 1

    with in_session(store, ScriptedProvider()) as handle:
        with pytest.raises(ToolDefinitionError, match="numbers returned a generator"):
            numbers()
        (node,) = handle.agent.dag
    assert node.status == "error"


def test_generators_cannot_be_traced() -> None:
    with pytest.raises(ToolDefinitionError, match="@traced cannot record"):

        @traced
        def numbers() -> Any:
            yield 1


# -- threads


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_carry_takes_session_turn_runtime_and_caller_into_a_plain_thread(
    store: MemoryStore,
) -> None:
    @agentic_function
    def spread() -> str:
        """Spread."""
        ask = carry(ask_about)
        in_thread(lambda: ask("owls"))
        in_thread(lambda: ask("bats"))
        return "done"

    provider = ScriptedProvider(default=lambda request: reply("so"))
    with in_session(store, provider) as handle:
        spread()
        assert tree(handle.agent) == [
            ("spread", *[("ask_about", ("scripted-model",))] * 2),
        ]
        (turn,) = handle.agent.dag.turns
        assert {n.turn_id for n in handle.agent.dag} == {turn}


def test_what_is_carried_may_run_many_times_at_once(store: MemoryStore) -> None:
    met = threading.Barrier(4, timeout=10)

    @carry
    def work() -> None:
        met.wait()
        assert context.current_session() is None

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not met.broken


def test_in_a_notebook_a_plain_thread_stands_in_the_notebooks_session(store: MemoryStore) -> None:
    provider = ScriptedProvider(reply("so"))
    with in_session(store, provider) as handle:
        context.install(handle)
        try:
            in_thread(lambda: ask_about("owls"))
        finally:
            context.install(None)
        nodes: list[Node] = list(handle.agent.dag)
    assert [(n.name, n.caller is None) for n in nodes] == [
        ("ask_about", True),
        ("scripted-model", False),
    ]


def test_a_context_that_was_unbound_on_purpose_stays_so(store: MemoryStore) -> None:
    found: list[Any] = []

    def unbound() -> None:
        tokens = context.bind(None, None, None)
        found.append(context.current_session())
        context.unbind(tokens)

    with in_session(store, ScriptedProvider()) as handle:
        context.install(handle)
        try:
            in_thread(unbound)
        finally:
            context.install(None)
    assert found == [None]
