"""What a conversation sends is a prefix of what it sends next, so that the service's cache hits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine.harness import FakeTool, ScriptedAsker

from op_jupyter.core.messages import TextBlock
from op_jupyter.engine import loop, registry
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.runtime import Runtime, agent
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.engine.session_context import session_context
from op_jupyter.providers.anthropic import AnthropicProvider
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.fake_messages import (
    API_KEY,
    FakeMessages,
    Reply,
    redacted_thinking,
    text,
    thinking,
    tool,
)
from op_jupyter.tools.toolset import toolset_of

LONG = "Consider this with care. " * 300
"""More than the 1,024 tokens from which a service caches at all."""


@pytest.fixture
def fake() -> Iterator[FakeMessages]:
    with FakeMessages() as server:
        yield server


@pytest.fixture
def runtime(fake: FakeMessages) -> Iterator[Runtime]:
    with Runtime(provider=AnthropicProvider(_profile(fake))) as made:
        yield made


def _profile(fake: FakeMessages) -> EndpointProfile:
    return EndpointProfile(base_url=fake.url, api_key=API_KEY)


def go(session: AgentSession, runtime: Runtime, prompt: str) -> Any:
    tools = toolset_of([FakeTool()])
    start = TurnStart((TextBlock(prompt),), runtime, tools=tools, asker=ScriptedAsker())
    return loop.run_sync(session.run_turn, start)[1]


def prompt_of(body: dict[str, Any]) -> list[str]:
    """The blocks in the order in which a service caches them, without the marks."""
    blocks = [
        *body["tools"],
        *body["system"],
        *({"role": m["role"], **b} for m in body["messages"] for b in m["content"]),
    ]
    return [json.dumps({k: v for k, v in b.items() if k != "cache_control"}) for b in blocks]


def test_each_prompt_begins_with_the_very_bytes_of_the_one_before(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(
        Reply([thinking("hm"), text("Let me look. "), tool("look", id="a", what="1")]),
        Reply([tool("look", id="b", what="2"), tool("look", id="c", what="3")]),
        Reply([text("Seen.")]),
    )
    for prompt in (LONG, "And then?", "And at last?"):
        assert go(session, runtime, prompt).status == "completed"
    prompts = [prompt_of(request.body) for request in fake.requests]
    assert len(prompts) == 5
    for before, after in pairwise(prompts):
        assert after[: len(before)] == before
        assert len(after) > len(before)


def test_each_call_reads_all_of_the_one_before_from_the_cache_however_much_came_between(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    many = [tool("look", id=f"t{i}", what=f"{i} {LONG[:200]}") for i in range(30)]
    fake.script(Reply(many), Reply([text("Seen.")]))
    go(session, runtime, LONG)
    go(session, runtime, "And then?")
    used = [n.metadata for n in session.dag if n.role == "llm"]
    written = [m["gen_ai.usage.cache_creation.input_tokens"] for m in used]
    read = [m["gen_ai.usage.cache_read.input_tokens"] for m in used]
    assert read == [0, written[0], written[0] + written[1]]
    assert written[1] > written[0] > 1024


@agentic_function(system="Answer in French.")
def in_french(question: str) -> str:
    """Answer the question."""
    return str(agent(question, tools=[described]))


@agentic_function(system="Answer in German.")
def in_german(question: str) -> str:
    """Answer the question."""
    return str(agent(question, tools=[described]))


def described(what: str) -> str:
    return what


described.__doc__ = LONG


def test_functions_with_another_system_prompt_share_the_cached_tools(
    store: MemoryStore, runtime: Runtime, fake: FakeMessages
) -> None:
    with session_context("s", store=store, runtime=runtime) as handle:
        in_french("a")
        in_german("b")
        used = [n.metadata for n in handle.agent.dag if n.role == "llm"]
    assert used[1]["gen_ai.usage.cache_read.input_tokens"] > 1024


def test_thinking_goes_back_as_it_came_also_after_a_restart(
    tmp_path: Path, fake: FakeMessages
) -> None:
    blocks = [thinking("hm, é ✓"), redacted_thinking("xyz"), text("It is 3.")]
    fake.script(Reply(blocks))
    for prompt in ("What is 1 + 2?", "Are you sure?"):
        store = SessionStore(tmp_path)
        if not store.exists("s1"):
            store.create_session("s1")
        session = registry.acquire(store, "s1")
        with Runtime(provider=AnthropicProvider(_profile(fake))) as runtime:
            assert go(session, runtime, prompt).status == "completed"
        registry.release(session)
    assert fake.requests[-1].body["messages"][1]["content"] == blocks
