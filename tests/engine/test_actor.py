"""The actor under random commands, faults and restarts: what always holds."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from op_jupyter.core.agents import AGENT, AT_ONCE, WAIT_AGENT, AgentMessage, message_node_id
from op_jupyter.core.messages import ModelRequest, TextBlock, TextDelta, message_from_json
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.updates import Envelope, node_view
from op_jupyter.engine import loop
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.errors import (
    Busy,
    PermissionNotPending,
    ProviderOverloaded,
    SessionActive,
    StoreError,
    TurnNotActive,
)
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, Script, ScriptedProvider, call, reply
from op_jupyter.tools.toolset import toolset_of
from tests.engine.harness import FailingStore, FakeTool, ScriptedAsker, assert_sendable

SESSION: Final = "s1"
PATIENCE: Final = 10.0
PROMPT: Final = "do it"
EXAMPLES: Final = int(os.environ.get("OPENPROGRAM_TEST_ACTORS", "25"))


class Stop(Gate):
    """A gate that tells the machine when somebody stands at it."""

    def __init__(self, told: Callable[[], None], *, of_agent: bool = False) -> None:
        super().__init__()
        self._told = told
        self.of_agent = of_agent
        self.for_ever = False
        self.waited_at = False

    async def pass_through(self) -> None:
        if not self._opened.done():
            self.waited_at = True
            self._told()
        try:
            await super().pass_through()
        finally:
            self.waited_at = False
            self._told()


class Disk(FailingStore):
    """Refuses *more* writes after the next *left*."""

    more = 0.0

    def refuses(self) -> bool:
        self.left -= 1
        return -1 - self.more <= self.left < 0


class Home:
    """Sub-agents' sessions, on the same bad disk as their parent's."""

    def __init__(self, store: MemoryStore, disk: Disk) -> None:
        self._store = store
        self._disk = disk

    def create(self, session_id: str, **meta: object) -> str:
        free = not self._store.exists(session_id)
        return self._store.create_session(session_id if free else None, **meta)

    def acquire(self, session_id: str) -> AgentSession:
        disk = Disk(self._store.open(session_id), 10**9)
        disk.refuses = self._disk.refuses  # type: ignore[method-assign]
        return AgentSession(disk)  # type: ignore[arg-type]

    def release(self, session: AgentSession) -> None:
        session.close()


_TASKS: Final = st.sampled_from(["answer", "tools", "fail", "stall"])
_AGENTS: Final = st.integers(1, 3).map(lambda number: f"agent-{number}")
_AGENT_CALLS: Final = st.one_of(
    st.tuples(st.just("spawn_agent"), _TASKS),
    st.tuples(st.just("followup_task"), _AGENTS, _TASKS),
    st.tuples(st.sampled_from([WAIT_AGENT, "interrupt_agent"]), _AGENTS),
    st.sampled_from([(WAIT_AGENT,), ("wait in vain",), ("list_agents",)]),
)
_CALLS: Final = st.sampled_from(
    [
        call("look", {"what": "a"}),
        call("look", {"what": "b"}),
        call("run", {"what": "a"}),
        call("run", {"what": "b"}),
        call("slow", {}),
        call("fly", {}),
        call("look", "{not json"),
        call("fails", {}),
    ]
)
_RESPONSES: Final = st.one_of(
    st.lists(_CALLS, min_size=1, max_size=4).map(lambda calls: ("calls", calls)),
    st.lists(_AGENT_CALLS, min_size=1, max_size=4).map(lambda calls: ("agents", calls)),
    st.just(("text", ())),
    st.just(("slow text", ())),
    st.sampled_from(["no end", "two ends", "overloaded", "broken", "hang"]).map(lambda w: (w, ())),
)
_ANSWERS: Final = st.sampled_from(
    [
        PermissionAnswer("allow", "click"),
        PermissionAnswer("allow", "click", arguments={"what": "safe"}),
        PermissionAnswer("deny", "click"),
        PermissionAnswer("deny_message", "click", message="not now"),
    ]
)


class Actor(RuleBasedStateMachine):
    """One session; each rule leaves it where it waits for something, or idle."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.store.create_session(SESSION)
        self.changed = threading.Event()
        self.wrong: list[str] = []
        self.stops: list[Stop] = []
        self.providers: list[ScriptedProvider] = []
        self.checked = 0
        self.number = 0
        self.tasks = 0
        self.said_by_agents: dict[str, deque[Script]] = {}
        self.waited_for: set[str] = set()
        self.open()

    # -- the session

    def open(self) -> None:
        self.disk = Disk(self.store.open(SESSION), 10**9)
        self.session = AgentSession(self.disk)  # type: ignore[arg-type]
        self.session.home = Home(self.store, self.disk)
        self.lost: set[str] = set()  # tasks whose end the disk refused
        self.sequence = 0
        self.seen = {n.id: node_view(n) for n in self.session.dag}
        self.session.subscribe(self.hear)

    def hear(self, envelope: Envelope) -> None:
        """A view that is fed live, and sees whether the store knows what it is shown."""
        kind, data, dag = envelope.update.kind, envelope.update.data, self.session.dag
        if envelope.sequence != self.sequence + 1:
            self.wrong.append(f"sequence {envelope.sequence} after {self.sequence}")
        self.sequence = envelope.sequence
        if kind in ("node_appended", "node_updated"):
            self.seen.setdefault(data["id"], {}).update(data)
            if data["id"] not in dag.nodes or dag.nodes[data["id"]].status != data["status"]:
                self.wrong.append(f"{data['id']} was shown before it was stored")
        if kind == "tool_call_finished" and dag.nodes[data["node_id"]].output is None:
            self.wrong.append(f"the result of {data['id']} was shown before it was stored")
        if kind == "tool_call_started" and data["name"] == WAIT_AGENT:
            self.waited_for = {agent.id for agent in self.session.agents.running}
        self.tell()

    def tell(self) -> None:
        self.changed.set()

    def settle(self) -> None:
        """Wait until everything waits for one of us, or is over."""
        self.wait_for(self.is_settled)

    def wait_for(self, happened: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE
        while True:
            self.changed.clear()
            if loop.run_sync(self.look, happened):
                return
            assert time.monotonic() < ends, self.session.snapshot()
            # Looked at again by itself: not everything that ends can say so, on a bad disk.
            self.changed.wait(0.02)

    async def look(self, happened: Callable[[], bool]) -> bool:
        return happened()

    def is_settled(self) -> bool:
        working = len(self.session.agents.running)
        return working == len(self.stood_at(of_agent=True)) and self.turn_is_settled()

    def turn_is_settled(self) -> bool:
        if self.session.active_turn_id is None or self.session.pending_cards():
            return True
        return bool(self.stood_at(of_agent=False)) or self.waits_for_agents()

    def stood_at(self, *, of_agent: bool) -> list[Stop]:
        return [stop for stop in self.stops if stop.waited_at and stop.of_agent is of_agent]

    def waits_for_agents(self) -> bool:
        """Whether the turn stands in `wait_agent`, and will until one of us lets one end."""
        of_turn = [n for n in self.session.dag if n.turn_id == self.session.active_turn_id]
        waits = [n for n in of_turn if n.name == WAIT_AGENT and n.status == "running"]
        if not waits or "timeout_seconds" in waits[-1].input:
            return False
        running = {agent.id for agent in self.session.agents.running}
        if (named := waits[-1].input.get("agent_id")) is not None:
            return named in running
        return (
            bool(running) and self.waited_for <= running and not self.session.agents.mailbox.waiting
        )

    async def mailbox(self) -> int:
        return self.session.agents.mailbox.waiting

    async def ended(self, turn_id: str) -> None:
        """Say it when a turn is over: its last update comes a moment before that."""
        await self.session.wait(turn_id)
        self.tell()

    def stop(self, *, of_agent: bool = False) -> Stop:
        self.stops.append(Stop(self.tell, of_agent=of_agent))
        return self.stops[-1]

    def stop_for_ever(self) -> Stop:
        """Where only cancelling helps."""
        stop = self.stop()
        stop.for_ever = True
        return stop

    def script(self, response: tuple[str, Sequence[Any]]) -> Script:
        what, calls = response
        match what:
            case "calls":
                return reply("I will. ", *calls)
            case "agents":
                return reply("They will. ", *map(self.agent_call, calls))
            case "slow text":
                return [TextDelta("half "), self.stop(), *reply("half an answer")]
            case "no end":
                return [TextDelta("half")]
            case "two ends":
                return [*reply("one"), *reply("two")]
            case "overloaded":
                return [ProviderOverloaded("busy")]
            case "broken":
                return [TextDelta("half"), ValueError("garbage")]
            case "hang":
                return [TextDelta("half"), self.stop_for_ever()]
            case _:
                return reply("an answer")

    def agent_call(self, asked: tuple[str, ...]) -> Any:
        match asked:
            case ("spawn_agent", kind):
                return call("spawn_agent", {"message": self.new_task(kind)})
            case ("followup_task", agent, kind):
                return call("followup_task", {"agent_id": agent, "message": self.new_task(kind)})
            case ("wait in vain",):
                return call(WAIT_AGENT, {"timeout_seconds": 0})
            case (name, agent):
                return call(name, {"agent_id": agent})
            case _:
                return call(asked[0], {})

    def new_task(self, kind: str) -> str:
        """A task, whose sub-agent stops before each thing that it says."""
        self.tasks += 1
        task = f"task {self.tasks}."
        said: dict[str, list[Script]] = {
            "answer": [reply(f"done {task}")],
            "tools": [
                reply("look", call("look", {"what": task}), call("run", {}), call("fly", {})),
                reply(f"done {task}"),
            ],
            "fail": [[TextDelta("half"), ValueError("garbage")]],
            "stall": [[TextDelta("half"), self.stop(of_agent=True), *reply(f"done {task}")]],
        }
        self.said_by_agents[task] = deque(
            [self.stop(of_agent=True), *script] for script in said[kind]
        )
        return task

    def say(self, request: ModelRequest) -> Script:
        """What the model says when a turn's own responses are used up, and to a sub-agent."""
        said = "".join(m.text for m in request.messages if m.role == "user")
        return self.said_by_agents[re.findall(r"task \d+\.", said)[-1]].popleft()

    def start(self, responses: Sequence[tuple[str, Sequence[Any]]], request: str) -> TurnStart:
        own = deque(map(self.script, responses))

        def answer(request: ModelRequest) -> Script:
            if PROMPT in request.messages[0].text:
                return own.popleft() if own else reply("the end")
            return self.say(request)

        provider = ScriptedProvider(default=answer)
        self.providers.append(provider)

        def fail(arguments: Any) -> Any:
            raise OSError("on fire")

        tools = [
            FakeTool(),
            FakeTool("run", effect="execute"),
            FakeTool("slow", gate=self.stop()),
            FakeTool("fails", act=fail),
            *agent_tools(),
        ]
        return TurnStart(
            (TextBlock(PROMPT),),
            Runtime(provider=provider, max_retries=0),
            request,
            toolset_of(tools),
            max_steps=4,
            asker=ScriptedAsker(),
        )

    # -- commands

    @rule(responses=st.lists(_RESPONSES, max_size=3))
    def start_turn(self, responses: list[tuple[str, Sequence[Any]]]) -> None:
        self.start_turn_of(responses)

    def start_turn_of(self, responses: Sequence[tuple[str, Sequence[Any]]]) -> None:
        self.number += 1
        active = self.session.active_turn_id
        start = self.start(responses, f"r{self.number}")
        try:
            turn_id = loop.run_sync(self.session.start_turn, start).turn_id
        except Busy:
            assert active is not None
            return
        assert active is None
        loop.submit(self.ended, turn_id)
        again = loop.run_sync(self.session.start_turn, start)
        assert again.turn_id == turn_id
        self.settle()

    @rule(
        tasks=st.lists(_TASKS, min_size=1, max_size=4),
        then=st.lists(st.lists(_AGENT_CALLS, min_size=1, max_size=2), max_size=3),
    )
    def start_turn_with_sub_agents(self, tasks: list[str], then: list[list[Any]]) -> None:
        spawned = [("spawn_agent", kind) for kind in tasks]
        self.start_turn_of([("agents", calls) for calls in (spawned, *then)])

    @rule()
    def cancel(self) -> None:
        turn_id = self.session.active_turn_id or "none"
        try:
            loop.run_sync(self.session.cancel_turn, turn_id)
        except TurnNotActive:
            assert self.session.active_turn_id is None
            return
        outcome = loop.submit(self.session.wait, turn_id).future.result(PATIENCE)
        assert outcome.status == "cancelled" or outcome.code == "persistence_error"
        if outcome.status == "cancelled":
            self.wait_for(lambda: not self.session.agents.running)
        self.settle()

    @rule(answer=_ANSWERS, right=st.booleans())
    def answer(self, answer: PermissionAnswer, right: bool) -> None:
        cards = self.session.pending_cards()
        turn_id = self.session.active_turn_id or "none"
        call_id = cards[0].id if cards and right else "call-of-another"
        try:
            loop.run_sync(self.session.resolve_permission, turn_id, call_id, answer)
        except (TurnNotActive, PermissionNotPending):
            assert not (cards and right)
            assert [c.id for c in self.session.pending_cards()] == [c.id for c in cards]
            return
        # The card is gone before the next one may come.
        self.wait_for(lambda: cards[0] not in self.session.pending_cards())
        self.settle()

    @precondition(lambda self: self.stood_at(of_agent=False))
    @rule()
    def let_go_on(self) -> None:
        if any(stop.for_ever for stop in self.stood_at(of_agent=False)):
            self.cancel()
            return
        for stop in self.stood_at(of_agent=False):
            self.let(stop)

    @precondition(lambda self: self.stood_at(of_agent=True))
    @rule(pick=st.integers(0, AT_ONCE - 1), end=st.booleans())
    def let_a_sub_agent_go_on(self, pick: int, end: bool) -> None:
        waiting = self.stood_at(of_agent=True)
        self.let(waiting[pick % len(waiting)])
        while end and (waiting := self.stood_at(of_agent=True)):
            self.let(waiting[0])

    def let(self, stop: Stop) -> None:
        stop.open()
        self.wait_for(lambda: not stop.waited_at)
        self.settle()

    @rule(number=st.integers(1, 3))
    def message(self, number: int) -> None:
        message = AgentMessage(f"m{number}", "watcher", f"message {number}")
        known = message.id in self.session.dag.nodes
        try:
            assert loop.run_sync(self.session.deliver_agent_message, message) is not known
        except StoreError:
            assert message.id not in self.session.dag.nodes
        self.settle()

    @rule(pick=st.integers(0, 10**6))
    def rewind(self, pick: int) -> None:
        prompts = [n.id for n in self.session.dag.spine() if n.role == "user"]
        if not prompts:
            return
        try:
            loop.run_sync(self.session.rewind, prompts[pick % len(prompts)])
        except SessionActive:
            assert self.session.active_turn_id is not None
        except StoreError:
            assert self.session.active_turn_id is None

    # -- faults and restarts

    @rule(left=st.integers(0, 8), more=st.sampled_from([0, 0, 1, 3]))
    def break_disk(self, left: int, more: int) -> None:
        self.disk.left, self.disk.more = left, more

    @rule()
    def mend_disk(self) -> None:
        self.disk.left = 10**9

    @rule(tidy=st.booleans())
    def restart(self, tidy: bool) -> None:
        old = self.session
        if not tidy:
            self.store.crash()  # what is written now goes nowhere
        for stop in self.stops:
            stop.open()
        loop.run_sync(old.shutdown)
        old.close()
        calls = sum(len(p.requests) for p in self.providers)
        self.stops.clear()
        self.open()
        assert sum(len(p.requests) for p in self.providers) == calls
        assert self.session.snapshot().runtime == {"state": "idle"}
        assert self.session.agents.running == []
        assert not [n for n in self.task_nodes() if n.status == "running"]
        if not tidy:
            assert not [n for n in self.session.dag if n.status == "running"]
            assert not [t for t in self.session.dag.turns.values() if t.status == "running"]

    # -- what always holds

    @invariant()
    def nothing_was_shown_before_it_was_stored_or_out_of_order(self) -> None:
        assert self.wrong == []

    @invariant()
    def one_turn_is_active_at_most(self) -> None:
        turns = self.session.dag.turns.values()
        running = [t.id for t in turns if t.status == "running" and t.kind == "agent"]
        if self.disk.left > 10**8:
            assert set(running) <= {self.session.active_turn_id} | self.unrecorded()

    def unrecorded(self) -> set[str]:
        """Turns whose end the disk refused: repaired when the session is opened again."""
        ended = {
            e.turn_id
            for e in self.session.replay_updates(max(0, self.sequence - 500)) or ()
            if e.update.kind == "turn_finished" and e.turn_id is not None
        }
        turns = self.session.dag.turns
        return {t for t in ended if t in turns and turns[t].status == "running"}

    @invariant()
    def the_view_fed_live_is_the_view_of_the_store(self) -> None:
        assert self.seen == {n.id: node_view(n) for n in self.session.dag}
        assert self.seen == {n.id: node_view(n) for n in self.store.load(SESSION)}

    @invariant()
    def every_call_has_one_result_or_is_repaired_in_the_request(self) -> None:
        dag = self.session.dag
        for node in [n for n in dag if n.role == "llm" and n.output]:
            asked = [use.id for use in message_from_json(node.output).tool_uses]
            results = [c.metadata["tool_call_id"] for c in dag.children(node.id)]
            assert len(set(results)) == len(results) and set(results) <= set(asked)
        requests = [r for p in self.providers for r in p.requests]
        for request in requests[self.checked :]:
            assert_sendable(request)
            said = "".join(m.text for m in request.messages)
            told = re.findall(r"\[message from .*task \d+\.", said)
            assert len(told) == len(set(told)), "a model was told the same message twice"
        self.checked = len(requests)

    def task_nodes(self) -> list[Node]:
        """One for each task of a sub-agent, and for each message from outside."""
        return [n for n in self.session.dag if n.metadata.get("kind") == AGENT]

    @invariant()
    def what_has_ended_waits_in_the_mailbox_until_it_is_told(self) -> None:
        ended = [n.id for n in self.task_nodes() if n.status != "running"]
        told = [n.id for n in self.session.dag if n.metadata.get("agent")]
        assert len(told) == len(set(told))
        assert set(told) <= set(map(message_node_id, ended))
        assert loop.run_sync(self.mailbox) == len(ended) - len(told)

    @invariant()
    def three_sub_agents_work_at_most_and_each_at_a_task_that_is_stored(self) -> None:
        working = {agent.run for agent in self.session.agents.running}
        assert len(working) <= AT_ONCE
        running = {n.id for n in self.task_nodes() if n.status == "running"}
        assert working <= running
        if self.disk.left > 10**8:
            assert running <= working | self.lost
        else:
            self.lost |= running - working

    def teardown(self) -> None:
        """Whatever happened: the session takes the next turn, here and after a restart."""
        self.mend_disk()
        if self.session.active_turn_id is not None:
            self.cancel()
        self.goes_on()
        assert self.session.active_turn_id is None  # no message starts a turn
        self.restart(tidy=True)
        self.goes_on()
        self.session.close()
        assert self.wrong == []

    def goes_on(self) -> None:
        self.number += 1
        start = self.start([("text", ())], f"r{self.number}")
        job = loop.submit(self.session.run_turn, start)
        outcome = job.future.result(PATIENCE)[1]
        assert (outcome.status, outcome.text) == ("completed", "an answer")
        assert_sendable(self.providers[-1].requests[0])
        assert loop.run_sync(self.mailbox) == 0


def test_what_always_holds_of_the_actor() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Actor,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    gc.collect()
