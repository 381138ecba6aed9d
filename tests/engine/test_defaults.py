"""What holds where a program says nothing: the numbers and names that the documentation gives."""

from __future__ import annotations

import os
from typing import Any

import pytest

from op_jupyter import agent, agentic_function, llm, session_context
from op_jupyter.core.agents import AGENT_TOOLS
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import RetriesExhausted, TurnFailed
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.toolset import toolset_of
from tests.engine.harness import FakeTool


def test_the_model_the_length_and_the_attempts(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROVIDER", "MODEL", "REPLAY"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    monkeypatch.setenv("OPENPROGRAM_CONFIG", os.devnull)
    with FakeMessages() as fake:
        monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
        fake.script(*[Reply(status=529, headers={"retry-after-ms": "1"})] * 3)
        with session_context("s1", store=store), pytest.raises(RetriesExhausted):
            llm("hello")
    bodies = [request.body for request in fake.requests]
    assert [(body["model"], body["max_tokens"]) for body in bodies] == [
        ("claude-opus-5-5", 8192)
    ] * 3


def test_an_agent_has_the_tools_of_its_session_and_twenty_model_calls(store: MemoryStore) -> None:
    """But those for sub-agents, which belong to a person's turn."""
    tools = [FakeTool(), *map(FakeTool, sorted(AGENT_TOOLS))]
    provider = ScriptedProvider(default=lambda request: reply(use_in(request)))
    with session_context("s1", store=store, runtime=Runtime(provider=provider)) as handle:
        handle.agent.offer(lambda: toolset_of(tools))
        with pytest.raises(TurnFailed) as caught:
            agent("go on")
    assert caught.value.code == "max_model_calls"
    assert [[spec.name for spec in request.tools] for request in provider.requests] == [
        ["look"]
    ] * 20


def use_in(request: Any) -> Any:
    """A call that was not made before: the same one over and over would be a loop of doom."""
    return call("look", {"what": str(len(request.messages))}, id=f"c{len(request.messages)}")


def test_all_but_the_first_argument_are_named_and_misspelt_ones_are_errors() -> None:
    with pytest.raises(TypeError):
        agentic_function(use_in, "a name")  # type: ignore[call-overload]
    for wrong in (
        lambda: agentic_function(use_in, exposed="io"),  # type: ignore[call-overload]
        lambda: Runtime(use_in, retries=3),  # type: ignore[call-arg]
        lambda: session_context("s1", sources="test"),  # type: ignore[call-arg]
        lambda: llm("x", schema={}),  # type: ignore[call-overload]
        lambda: agent("x", steps=3),  # type: ignore[call-overload]
    ):
        with pytest.raises(TypeError, match="unexpected keyword"):
            wrong()
