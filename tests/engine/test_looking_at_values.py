"""Code of a value that runs when it is looked at, and takes its time: nobody else waits for it."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from op_jupyter import agent, agentic_function, agentic_map, carry, llm, submit, traced
from op_jupyter.engine import loop, registry
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_context import session_context
from op_jupyter.engine.world_state import WorldState
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.base import ToolOutput
from op_jupyter.tools.summaries import AT_ONCE, brief_value, is_seen_at_once
from tests.engine.harness import (
    ALLOW,
    FakeTool,
    ScriptedAsker,
    assert_sound,
    run,
    start_in_background,
    states,
)

PATIENCE = 20.0


class Slow:
    """Whoever looks at it waits until somebody says `go_on`."""

    def __init__(self) -> None:
        self.looked_at = threading.Event()
        self.released = threading.Event()

    def __repr__(self) -> str:
        self.looked_at.set()
        self.released.wait(PATIENCE)
        return "<slow>"

    def __enter__(self) -> None:
        """While it is being looked at; it must not hold up those who report a failure, either."""
        if not self.looked_at.wait(PATIENCE):
            self.released.set()
        assert not self.released.is_set()

    def __exit__(self, *error: object) -> None:
        self.released.set()


class Stopped:
    """The stop button is pressed while somebody looks at it."""

    def __repr__(self) -> str:
        signal.raise_signal(signal.SIGINT)
        return "<never>"


@dataclasses.dataclass
class Holder:
    inner: Any


class Property:
    @property
    def __class__(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        return object


@pytest.fixture
def slow() -> Iterator[Slow]:
    value = Slow()
    yield value
    value.released.set()


def in_session(store: MemoryStore, *answers: str) -> session_context:
    provider = ScriptedProvider(*map(reply, answers))
    return session_context("s1", store=store, runtime=Runtime(provider=provider))


def keep(before: int, value: Any, after: int = 1) -> int:
    """Keep it."""
    return 1


async def keep_async(before: int, value: Any, after: int = 1) -> int:
    """Keep it."""
    return 1


WRAPS = pytest.mark.parametrize("wrap", [agentic_function, traced])


@WRAPS
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Stopped, "Stopped"),
        (lambda: [Stopped()], "list"),
        (lambda: Holder(Stopped()), "Holder"),
        (Property, "Property"),
    ],
)
def test_the_stop_button_ends_the_look_at_an_argument_and_the_call_is_on_record(
    store: MemoryStore, wrap: Any, make: Callable[[], Any], kind: str
) -> None:
    entered: list[int] = []

    def enter(before: int, value: Any, after: int = 1) -> None:
        """Enter."""
        entered.append(before)

    with in_session(store, "still here") as handle:
        with pytest.raises(KeyboardInterrupt):
            wrap(enter)(7, make())
        (node,) = handle.agent.dag
        (turn,) = handle.agent.dag.turns.values()
        assert (node.status, turn.status, entered) == ("cancelled", "cancelled", [])
        assert node.input == {"before": 7, "value": f"{kind} (looking at it was interrupted)"}
        assert node.metadata["error"]["type"] == "KeyboardInterrupt"
        assert llm("are you there?") == "still here"
        assert_sound(handle.agent)


@WRAPS
def test_the_stop_button_ends_the_look_at_a_result(store: MemoryStore, wrap: Any) -> None:
    def give_stopped() -> Any:
        """Give it."""
        return Stopped()

    with in_session(store) as handle:
        with pytest.raises(KeyboardInterrupt):
            wrap(give_stopped)()
        assert [n.status for n in handle.agent.dag] == ["cancelled"]
        assert_sound(handle.agent)


@WRAPS
def test_a_second_stop_ends_it_where_the_program_runs_a_loop_of_its_own(
    store: MemoryStore, wrap: Any
) -> None:
    """The first one, `asyncio.run` keeps for the next ``await``."""

    class Twice(Stopped):
        def __repr__(self) -> str:
            signal.raise_signal(signal.SIGINT)
            return super().__repr__()

    with in_session(store) as handle:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(wrap(keep_async)(1, Twice()))
        assert [n.status for n in handle.agent.dag] == ["cancelled"]
        assert_sound(handle.agent)


def test_the_stop_button_before_anything_is_sent_to_a_worker_sends_nothing(
    store: MemoryStore,
) -> None:
    with in_session(store) as handle:
        with pytest.raises(KeyboardInterrupt):
            submit(keep, 1, Stopped())
        with pytest.raises(KeyboardInterrupt):
            agentic_map(keep, [Stopped()])
        assert len(handle.agent.dag) == 0


# -- others go on


def others_go_on(store: MemoryStore) -> None:
    """Another session, on the same loop, has a whole turn."""
    session = registry.acquire(store, store.create_session("other"))
    try:
        assert run(session, ScriptedProvider(reply("hello"))).text == "hello"
    finally:
        registry.release(session)


def test_a_call_in_a_thread_that_looks_at_its_argument_holds_up_nobody(
    store: MemoryStore, slow: Slow
) -> None:
    with in_session(store, "hello") as handle, ThreadPoolExecutor(1) as threads:
        work = threads.submit(carry(agentic_function(keep)), 1, slow)
        with slow:
            assert llm("meanwhile") == "hello"
            others_go_on(store)
        assert work.result(PATIENCE) == 1
        (node,) = [n for n in handle.agent.dag if n.role == "code"]
        assert node.input["value"] == "<slow>"


@WRAPS
@pytest.mark.parametrize("which", ["argument", "result"])
def test_a_coroutine_on_the_shared_loop_that_looks_holds_up_nobody_and_can_be_cancelled(
    store: MemoryStore, slow: Slow, wrap: Any, which: str
) -> None:
    async def give(before: int, value: Any) -> Any:
        """Give a slow one."""
        return slow

    argument = which == "argument"
    called = wrap(keep_async if argument else give)

    async def several() -> None:
        await asyncio.gather(*(called(n, slow if argument else "") for n in range(3)))

    with in_session(store) as handle:
        job = loop.submit(several)
        with slow:
            others_go_on(store)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                job.future.result(PATIENCE)
        assert [n.status for n in handle.agent.dag] == ([] if argument else ["cancelled"] * 3)
        assert_sound(handle.agent)


def test_a_coroutine_on_the_shared_loop_records_what_it_saw(store: MemoryStore, slow: Slow) -> None:
    slow.released.set()

    @agentic_function
    async def same(value: Any) -> Any:
        """Return it."""
        return value

    with in_session(store) as handle:
        assert loop.run_sync(same, slow) is slow
        (node,) = handle.agent.dag
    assert (node.input, node.output) == ({"value": "<slow>"}, "<slow>")


class Unspeakable(Exception):
    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self._slow = slow

    def __str__(self) -> str:
        return repr(self._slow)


def slow_tools(slow: Slow) -> dict[str, Any]:
    def plain() -> Any:
        """Look."""
        return slow

    async def later() -> Any:
        """Look."""
        return [slow]

    def fails() -> Any:
        """Look."""
        raise Unspeakable(slow)

    @agentic_function
    async def agentic() -> Any:
        """Look."""
        return slow

    foreign = FakeTool("foreign", act=lambda _: ToolOutput((), value=slow))
    return {"plain": plain, "later": later, "fails": fails, "agentic": agentic, "foreign": foreign}


@pytest.mark.parametrize("kind", ["plain", "later", "fails", "agentic", "foreign"])
def test_a_tool_whose_result_takes_time_to_look_at_holds_up_nobody_and_can_be_cancelled(
    session: AgentSession, store: MemoryStore, slow: Slow, kind: str
) -> None:
    provider = ScriptedProvider(reply(call(kind, {})), reply("never"))
    tool = slow_tools(slow)[kind]
    turn_id, job = start_in_background(session, provider, [tool], asker=ScriptedAsker([ALLOW]))
    with slow:
        others_go_on(store)
        loop.run_sync(session.cancel_turn, turn_id)
        assert job.future.result(PATIENCE).status == "cancelled"
    assert states(session) == ["cancelled"]
    assert_sound(session)


def test_such_a_result_arrives_when_it_has_been_looked_at(store: MemoryStore, slow: Slow) -> None:
    slow.released.set()
    provider = ScriptedProvider(reply(call("plain", {})), reply("seen"))
    with session_context("s1", store=store, runtime=Runtime(provider=provider)):
        assert agent("look", tools=[slow_tools(slow)["plain"]]) == "seen"
    assert "<slow>" in str(provider.requests[1].messages)


def test_a_variable_that_takes_time_to_look_at_holds_up_nobody_and_the_turn_can_be_cancelled(
    session: AgentSession, store: MemoryStore, slow: Slow
) -> None:
    world = WorldState({"variables": lambda: brief_value(slow)})
    turn_id, job = start_in_background(session, ScriptedProvider(reply("never")), world=world)
    with slow:
        others_go_on(store)
        loop.run_sync(session.cancel_turn, turn_id)
        assert job.future.result(PATIENCE).status == "cancelled"
    assert_sound(session)
    provider = ScriptedProvider(reply("ok"))
    assert run(session, provider, world=world).text == "ok"
    assert "<slow>" in str(provider.requests[0].messages)


def test_the_world_is_read_in_the_context_of_the_turn(session: AgentSession) -> None:
    variable = contextvars.ContextVar("variable", default="nothing")
    variable.set("something")
    run(session, ScriptedProvider(reply("ok")), world=WorldState({"notebook": variable.get}))
    (told,) = [n.input["world"] for n in session.dag if n.role == "llm"]
    assert told == {"notebook": "something"}


class Text(str):
    """It may have code of its own."""


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "at_once"),
    [
        (None, True),
        ({"a": [1, 2.5, ("b", b"c", True)]}, True),
        ([0] * (AT_ONCE - 1), True),
        ([0] * AT_ONCE, False),
        ([[0] * 100] * 100, False),
        (dict.fromkeys(range(AT_ONCE)), False),
        ([object()], False),
        ({Text("key"): 1}, False),
        ({1, 2}, False),
        (ENDLESS, False),
    ],
)
def test_what_is_looked_at_without_a_thread_is_small_and_plain(value: Any, at_once: bool) -> None:
    assert is_seen_at_once(value) is at_once
