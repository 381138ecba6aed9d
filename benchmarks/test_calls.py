"""A call of an agentic function that does nothing costs the same in a long session as in a short
one, and at most a millisecond of CPU; the turn's commit is another thread's work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_jupyter import (
    Runtime,
    SessionStore,
    WorkerPool,
    agentic_function,
    agentic_map,
    llm,
    session_context,
)
from op_jupyter.core.nodes import Node
from op_jupyter.engine.context import SessionHandle

LIMIT_SECONDS = 0.001
SIZES = (50, 5_000)
CALLS = 50
ROUNDS = 20
FAN_OUT = 200
WORKERS = 4
MODEL_SECONDS = 0.02


@agentic_function
def nothing(n: int) -> int:
    """Do nothing."""
    return n


@agentic_function
def outer(times: int) -> float:
    """Call `nothing` that often; the CPU seconds of this thread for each."""
    began = time.thread_time()
    for n in range(times):
        nothing(n)
    return (time.thread_time() - began) / times


def session_of(size: int, folder: Path) -> Iterator[SessionHandle]:
    """A session with that many nodes in turns of ten, as conversations are."""
    store = SessionStore(root_path=folder)
    with session_context("long", store=store, create_runtime_if_none=False) as handle:
        last: str | None = None
        for start in range(0, size, 10):
            nodes = []
            for number in range(start, start + 10):
                nodes.append(
                    Node(f"n{number}", "llm", "model", status="completed", predecessor=last)
                )
                last = nodes[-1].id
            handle.agent.recorder.append_many(nodes)
        handle.agent.recorder.set_head(last)
        yield handle


@pytest.fixture(params=SIZES)
def session(request: Any, tmp_path: Path) -> Iterator[SessionHandle]:
    yield from session_of(request.param, tmp_path)


def test_a_call_that_does_nothing(session: SessionHandle, benchmark: Any) -> None:
    costs: list[float] = []
    outer(CALLS)
    benchmark.pedantic(lambda: costs.append(outer(CALLS)), rounds=ROUNDS)
    # The least of some rounds: what else the machine does only adds.
    benchmark.extra_info["cpu_seconds"] = min(costs)
    assert min(costs) <= LIMIT_SECONDS


def test_it_costs_the_same_however_long_the_session_is(tmp_path: Path, benchmark: Any) -> None:
    cost = {}
    for size in SIZES:
        opened = session_of(size, tmp_path / str(size))
        next(opened)
        outer(CALLS)
        cost[size] = min(outer(CALLS) for _ in range(ROUNDS))
        opened.close()
    benchmark.pedantic(lambda: None)
    benchmark.extra_info["cpu_seconds"] = cost
    short, long = (cost[size] for size in SIZES)
    assert long <= 1.25 * short


@agentic_function
def classify(review: str) -> str:
    """Classify a review."""
    return llm(review)


def think(content: list[dict[str, Any]]) -> str:
    """A model that takes 20 ms."""
    time.sleep(MODEL_SECONDS)
    return "positive"


def test_a_fan_out_over_workers(tmp_path: Path, benchmark: Any) -> None:
    store, runtime = SessionStore(root_path=tmp_path), Runtime(call=think)
    reviews = [f"review {n}" for n in range(FAN_OUT)]
    with WorkerPool(WORKERS) as pool, session_context(store=store, runtime=runtime):
        agentic_map(classify, reviews[: 2 * WORKERS], pool)  # the processes start
        benchmark.pedantic(lambda: agentic_map(classify, reviews, pool), rounds=3)
    # No limit: how far it is from the ideal depends on how many processors the workers have.
    ideal = FAN_OUT / WORKERS * MODEL_SECONDS
    benchmark.extra_info["of_the_ideal"] = benchmark.stats.stats.min / ideal
