"""The actor under random commands, faults and restarts: what always holds."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from op_jupyter.core.agents import AgentMessage
from op_jupyter.core.messages import TextBlock, TextDelta, message_from_json
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.updates import Envelope, node_view
from op_jupyter.engine import loop
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
from op_jupyter.testing.providers import HANG, Gate, Script, ScriptedProvider, call, reply
from op_jupyter.tools.toolset import toolset_of
from tests.engine.harness import FailingStore, FakeTool, ScriptedAsker, assert_sendable

SESSION: Final = "s1"
PATIENCE: Final = 10.0
EXAMPLES: Final = int(os.environ.get("OPENPROGRAM_TEST_ACTORS", "25"))


class Stop(Gate):
    """A gate that tells the machine when somebody stands at it."""

    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__()
        self._told = told
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
        self.changed = threading.Condition()
        self.wrong: list[str] = []
        self.stops: list[Stop] = []
        self.providers: list[ScriptedProvider] = []
        self.checked = 0
        self.number = 0
        self.ran = 0
        self.open()

    # -- the session

    def open(self) -> None:
        self.disk = Disk(self.store.open(SESSION), 10**9)
        self.session = AgentSession(self.disk)  # type: ignore[arg-type]
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
        self.tell()

    def tell(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def settle(self) -> None:
        """Wait until the turn waits for one of us, or is over."""
        with self.changed:
            assert self.changed.wait_for(self.is_settled, PATIENCE), self.session.snapshot()

    def is_settled(self) -> bool:
        if self.session.active_turn_id is None:
            return True
        return bool(self.session.pending_cards()) or any(stop.waited_at for stop in self.stops)

    async def ended(self, turn_id: str) -> None:
        """Say it when a turn is over: its last update comes a moment before that."""
        await self.session.wait(turn_id)
        self.tell()

    def stop(self) -> Stop:
        self.stops.append(Stop(self.tell))
        return self.stops[-1]

    def script(self, response: tuple[str, Sequence[Any]]) -> Script:
        what, calls = response
        match what:
            case "calls":
                return reply("I will. ", *calls)
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
                return [TextDelta("half"), self.stop(), HANG]
            case _:
                return reply("an answer")

    def start(self, responses: Sequence[tuple[str, Sequence[Any]]], request: str) -> TurnStart:
        provider = ScriptedProvider(
            *map(self.script, responses), default=lambda request: reply("the end")
        )
        self.providers.append(provider)

        def fail(arguments: Any) -> Any:
            raise OSError("on fire")

        tools = [
            FakeTool(),
            FakeTool("run", effect="execute"),
            FakeTool("slow", gate=self.stop()),
            FakeTool("fails", act=fail),
        ]
        return TurnStart(
            (TextBlock("do it"),),
            Runtime(provider=provider, max_retries=0),
            request,
            toolset_of(tools),
            max_steps=4,
            asker=ScriptedAsker(),
        )

    # -- commands

    @rule(responses=st.lists(_RESPONSES, max_size=3))
    def start_turn(self, responses: list[tuple[str, Sequence[Any]]]) -> None:
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

    def wait_for(self, happened: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(happened, PATIENCE)

    @precondition(lambda self: any(stop.waited_at for stop in self.stops))
    @rule()
    def let_go_on(self) -> None:
        for stop in [s for s in self.stops if s.waited_at]:
            stop.open()
            self.wait_for(lambda stop=stop: not stop.waited_at)  # type: ignore[misc]
        hanging = loop.run_sync(self.hangs)
        if hanging:
            self.cancel()
        else:
            self.settle()

    async def hangs(self) -> bool:
        """Whether the model went silent for ever, which only cancelling ends."""
        for _ in range(50):
            await asyncio.sleep(0)
        draft = self.session.snapshot().runtime.get("draft")
        return draft == "half" and not self.is_settled()

    @rule(number=st.integers(1, 3))
    def message(self, number: int) -> None:
        message = AgentMessage(f"m{number}", "watcher", f"message {number}")
        known = message.id in self.session.dag.nodes
        try:
            assert loop.run_sync(self.session.deliver_agent_message, message) is not known
        except StoreError:
            assert message.id not in self.session.dag.nodes

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
        self.checked = len(requests)

    @invariant()
    def a_message_is_told_once(self) -> None:
        told = [n.id for n in self.session.dag if n.metadata.get("agent")]
        assert len(told) == len(set(told))

    def teardown(self) -> None:
        """Whatever happened: the session takes the next turn, here and after a restart."""
        self.mend_disk()
        if self.session.active_turn_id is not None:
            self.cancel()
        self.goes_on()
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
