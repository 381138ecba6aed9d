"""Runtimes that an entry call builds by itself: one for all that is inside, closed at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import op_jupyter
from op_jupyter.engine.runtime import Runtime, llm
from op_jupyter.errors import AuthenticationFailed, RuntimeClosed
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply

seen: list[Runtime] = []


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeMessages]:
    """The configured service; everything is chosen as for a user who set two variables."""
    for name in ("OPENPROGRAM_PROVIDER", "OPENPROGRAM_MODEL", "OPENPROGRAM_REPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENPROGRAM_CONFIG", os.devnull)
    seen.clear()
    with FakeMessages() as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


@op_jupyter.agentic_function
def inner(question: str, runtime: Runtime | None = None) -> str:
    """Answer."""
    assert runtime is not None
    seen.append(runtime)
    return str(llm(question))


@op_jupyter.agentic_function
def outer(runtime: Runtime | None = None) -> str:
    """Ask twice."""
    assert runtime is not None
    seen.append(runtime)
    return inner("a") + inner("b")


def test_a_call_builds_one_runtime_for_all_that_is_inside_and_closes_it(fake: FakeMessages) -> None:
    outer()
    assert len(fake.requests) == 2
    assert len(set(map(id, seen))) == 1
    assert seen[0].closed
    with pytest.raises(RuntimeClosed):
        seen[0].exec("later")
    fake.wait_connections(0)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_a_block_builds_one_runtime_and_closes_it_on_every_way_out(
    fake: FakeMessages, store: MemoryStore, error: type[BaseException] | None
) -> None:
    with (
        contextlib.nullcontext() if error is None else pytest.raises(error),
        op_jupyter.session_context(store=store) as handle,
    ):
        inner("a")
        inner("b")
        if error is not None:
            raise error
    assert {id(runtime) for runtime in seen} == {id(handle.runtime)}
    assert handle.runtime is not None and handle.runtime.closed
    fake.wait_connections(0)


def test_each_entry_builds_its_own(fake: FakeMessages) -> None:
    inner("a")
    inner("b")
    assert seen[0] is not seen[1]
    assert [runtime.closed for runtime in seen] == [True, True]


def test_it_is_closed_also_when_the_function_fails(fake: FakeMessages) -> None:
    fake.script(*[Reply(status=401)] * 9)
    with pytest.raises(AuthenticationFailed):
        inner("a")
    assert seen[0].closed
    fake.wait_connections(0)


def test_a_bare_call_closes_what_it_built(fake: FakeMessages) -> None:
    assert llm("hello") == "You said: hello"
    fake.wait_connections(0)


def test_a_runtime_that_was_passed_stays_open(fake: FakeMessages) -> None:
    with op_jupyter.create_runtime() as runtime:
        inner("a", runtime=runtime)
        assert seen == [runtime]
        assert not runtime.closed
    assert runtime.closed
