"""The store on disk and its twin in memory do the same, whatever happens to both."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.base import Ended, Fill, OpenSession, Tip
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NAMES = [f"n{number}" for number in range(12)]
TURNS = [f"t{number}" for number in range(6)]

texts = st.text(max_size=30) | st.just(70_000).map("x".__mul__) | st.just("half a pair \ud83d")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(NAMES)
maybe_names = st.none() | names
turn_ids = st.sampled_from(TURNS)
nodes = st.builds(
    Node,
    id=names,
    role=st.sampled_from(["user", "llm", "code"]),
    name=st.sampled_from(["user", "model", "f"]),
    input=values,
    status=st.sampled_from(["running", "completed"]),
    caller=maybe_names,
    predecessor=maybe_names,
    metadata=st.fixed_dictionaries({}, optional={"turn_id": turn_ids, "more": values}),
    seq=st.sampled_from([0, 0, 0, 1, 40]),
)
turns = st.builds(
    Turn,
    id=turn_ids,
    kind=st.sampled_from(["agent", "call", "call", "compaction"]),
    subject=st.text(max_size=20),
    base=maybe_names,
    client_request_id=st.none() | st.just("r1"),
)
branches = st.sampled_from(["main", "idea", "fork-2", "not/a/branch"])


def now() -> float:
    return 1_800_000_000.0


class Twins(RuleBasedStateMachine):
    """Both stores, and one session open in each."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="op-jupyter-twin-", dir=RAM))
        self.disk = SessionStore(self.root, clock=now)
        self.memory = MemoryStore(clock=now)

    @initialize()
    def create(self) -> None:
        self.disk.create_session("s", title="given")
        self.memory.create_session("s", title="given")
        self.reopen()

    def teardown(self) -> None:
        self.disk.abandon()
        shutil.rmtree(self.root)

    def both(self, call: Callable[[OpenSession], Any]) -> None:
        """Do the same in both, with the same result or the same refusal."""
        assert attempt(call, self.on_disk) == attempt(call, self.in_memory)

    @rule(node=nodes, advance=st.booleans())
    def append(self, node: Node, advance: bool) -> None:
        self.both(lambda s: s.append(node, advance_head=advance))

    @rule(batch=st.lists(nodes, max_size=3))
    def append_many(self, batch: list[Node]) -> None:
        self.both(lambda s: s.append_many(batch))

    @rule(
        name=names,
        fields=st.fixed_dictionaries(
            {}, optional={"output": values, "status": st.just("completed"), "input": st.just(1)}
        ),
    )
    def update(self, name: str, fields: dict[str, Any]) -> None:
        self.both(lambda s: s.update(name, **fields))

    @rule(turn=turns)
    def begin_turn(self, turn: Turn) -> None:
        self.both(lambda s: s.begin_turn(turn))

    @rule(turn_id=turn_ids, status=st.sampled_from(["completed", "failed", "running"]))
    def end_turn(self, turn_id: str, status: Any) -> None:
        self.both(lambda s: s.end_turn(turn_id, status, metadata={"steps": 1}))

    @rule(turn=turns, node=nodes, advance=st.booleans())
    def begin_turn_with(self, turn: Turn, node: Node, advance: bool) -> None:
        inside = replace(node, metadata={**node.metadata, "turn_id": turn.id})
        self.both(lambda session: session.write([turn, Tip(inside) if advance else inside]))

    @rule(turn_id=turn_ids, name=names, output=values)
    def end_turn_with(self, turn_id: str, name: str, output: Any) -> None:
        end = Fill(name, {"output": output, "status": "completed"})
        self.both(lambda session: session.write([end, Ended(turn_id, "completed")]))

    @rule(name=branches, at=maybe_names, activate=st.booleans())
    def branch(self, name: str, at: str | None, activate: bool) -> None:
        self.both(lambda s: s.branch(name, at, activate=activate))

    @rule(at=maybe_names)
    def set_head(self, at: str | None) -> None:
        self.both(lambda s: s.set_head(at))

    @rule(value=values)
    def say_something(self, value: Any) -> None:
        self.both(lambda s: s.set_meta(title=value))
        self.both(lambda s: s.record_decision({"answer": value}))
        self.both(lambda s: s.record_checkpoint({"covers": value}))

    @rule(data=st.binary(max_size=10))
    def put_blob(self, data: bytes) -> None:
        self.both(lambda s: s.read_blob(s.put_blob(data, "image/png")))

    @rule()
    def close(self) -> None:
        self.on_disk.close()
        self.in_memory.close()
        assert self.disk.sessions() == self.memory.sessions()
        self.reopen()

    @rule()
    def crash(self) -> None:
        self.disk.abandon()
        self.memory.crash()
        self.reopen()

    @rule()
    def flush(self) -> None:
        self.on_disk.flush()
        assert self.on_disk.status.git_behind == ""

    def reopen(self) -> None:
        self.on_disk = self.disk.open("s")
        self.in_memory = self.memory.open("s")
        assert self.on_disk.status.repaired == self.in_memory.status.repaired

    @invariant()
    def look_the_same(self) -> None:
        if hasattr(self, "on_disk"):
            assert picture(self.on_disk.dag) == picture(self.in_memory.dag)
            assert picture(self.disk.load("s")) == picture(self.memory.load("s"))


def attempt(call: Callable[[OpenSession], Any], session: OpenSession) -> Any:
    try:
        return call(session)
    except OpenProgramError as exc:
        return type(exc), str(exc)


def check_twins(max_examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Twins,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_disk_and_memory_do_the_same() -> None:
    check_twins(12, 20)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_disk_and_memory_do_the_same_for_long() -> None:
    check_twins(100, 50)
