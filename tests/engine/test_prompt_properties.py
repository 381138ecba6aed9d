"""For any program: the docstring rule holds, and every prompt renders again as it was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from op_jupyter.core.compaction import HEADINGS
from op_jupyter.core.keys import sha256
from op_jupyter.core.messages import request_to_json
from op_jupyter.engine import loop
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.prompts import request_of
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_context import session_context
from op_jupyter.errors import UsageError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import ScriptedProvider, reply
from tests.engine.harness import assert_sendable, turn_start
from tests.engine.programs import Agent, Call, World, operations

LIGHT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def turns() -> st.SearchStrategy[Agent]:
    calls = st.builds(Call, st.lists(operations(), max_size=2).map(tuple))
    return st.builds(Agent, st.lists(calls, max_size=2).map(tuple))


steps = st.one_of(
    st.tuples(st.just("play"), operations()),
    st.tuples(st.just("turn"), turns()),
    st.tuples(st.just("move"), st.integers(0, 5)),
    st.tuples(st.just("rewind"), st.integers(0, 5)),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
)
programs = st.lists(steps, min_size=1, max_size=5)


def play_turn(world: World, session: AgentSession, op: Agent) -> None:
    tools = [world.function(tool, is_tool=True) for tool in op.tools]
    prompt = world.prompt("turn", [t.name for t in tools])
    start = turn_start(world.provider, tools, prompt=prompt)
    for tool in start.tools:
        tool.trusted = True  # type: ignore[misc]
    loop.run_sync(session.run_turn, start)


def move_head(session: AgentSession, index: int) -> None:
    line = session.dag.spine()
    session.store.set_head(line[index % len(line)].id if line else None)


def rewind(session: AgentSession, index: int) -> None:
    if line := session.dag.spine():
        loop.run_sync(session.rewind, line[index % len(line)].id)


def compact(world: World, session: AgentSession) -> None:
    """Replace the conversation by a summary, when there is an answer to replace."""
    summary = "\n".join(f"## {heading}\nnone" for heading in HEADINGS)
    writer = ScriptedProvider(reply(summary))
    with suppress(UsageError):
        start = CompactionStart(Runtime(provider=writer))
        assert loop.run_sync(session.compact, start)[1].status == "completed"
    world.provider.requests.extend(writer.requests)


def assert_prompts_render_again(world: World, session: AgentSession) -> None:
    asked = [n for n in session.dag if n.role == "llm"]
    again = [request_of(session.dag, n.id, session.store.read_blob) for n in asked]
    assert all(proven for _, proven in again)
    sent = Counter(sha256(request_to_json(r)) for r in world.provider.requests)
    assert sent == Counter(n.reads["sha256"] for n in asked if n.reads is not None)
    assert sent == Counter(sha256(request_to_json(r)) for r, _ in again)
    forgetful = session.dag.copy()  # nothing of it was rendered before; the newest come first now
    anew = [request_of(forgetful, n.id, session.store.read_blob) for n in reversed(asked)]
    assert anew == again[::-1]


class Opened:
    """A session that can be left, or lost, and opened again."""

    def __init__(self, store: Any, drop: Callable[[AgentSession], None]) -> None:
        self.lost = False
        self._store, self._drop = store, drop
        self._stack = ExitStack()
        self.world = World(self.lose)
        self._enter()

    def _enter(self) -> None:
        runtime = Runtime(provider=self.world.provider, max_retries=0)
        context = session_context("s1", store=self._store, runtime=runtime)
        self.session = self._stack.enter_context(context).agent

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._drop(self.session)

    def reopen(self) -> None:
        self.close()
        self.lost = False
        self._enter()

    def close(self) -> None:
        self._stack.close()


def run_program(program: list[tuple[str, Any]], opened: Opened) -> None:
    world = opened.world
    try:
        for kind, what in program:
            match kind:
                case "play":
                    world.play(what)
                case "turn":
                    play_turn(world, opened.session, what)
                case "rewind":
                    rewind(opened.session, what)
                case "compact":
                    compact(world, opened.session)
                case "move":
                    move_head(opened.session, what)
                case _:
                    opened.reopen()
            if opened.lost:
                opened.reopen()
            assert_prompts_render_again(world, opened.session)
    finally:
        opened.close()
    for request in world.provider.requests:
        assert_sendable(request)
    assert world.problems == []


@LIGHT
@given(programs)
def test_any_program_in_a_session_in_memory(program: list[tuple[str, Any]]) -> None:
    store = MemoryStore()
    run_program(program, Opened(store, lambda session: store.crash()))


@settings(LIGHT, max_examples=15)
@given(programs)
def test_any_program_in_a_session_on_disk(program: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as root:
        store = SessionStore(root_path=root)
        run_program(program, Opened(store, lambda session: session.store.abandon()))  # type: ignore[attr-defined]
