"""The provider of the embedded model, against a fake server and against the real one."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from op_jupyter.core.messages import (
    Message,
    ModelRequest,
    ResponseDone,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    user_text,
)
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.local import LocalProvider
from op_jupyter.providers.local_model import is_installed
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, ServiceRules, text, tool
from op_jupyter.testing.provider_contract import (
    StreamingContract,
    ToolCallingContract,
    collect,
    collect_until_error,
)

RULES = ServiceRules(models=(), sampling=True)
STATISTICS = ["mean", "min", "max"]
COLUMN_STAT = ToolSpec(
    "column_stat",
    "Compute one statistic of one column of the table df.",
    {
        "type": "object",
        "properties": {
            "column": {"type": "string", "enum": ["price", "weight"]},
            "statistic": {"type": "string", "enum": STATISTICS},
        },
        "required": ["column", "statistic"],
    },
)


def server(fake):
    return SimpleNamespace(base_url=fake.url, api_key=API_KEY)


@asynccontextmanager
async def provider_with(default=None, *script):
    with FakeMessages(rules=RULES, **({"default": default} if default else {})) as fake:
        fake.script(*script)
        running = server(fake)
        provider = LocalProvider(lambda: running)
        try:
            yield provider, fake
        finally:
            await provider.aclose()


class TestContract(ToolCallingContract, StreamingContract):
    @asynccontextmanager
    async def answering(self, text_):
        async with provider_with(lambda body: Reply([text(text_)])) as (provider, _):
            yield provider

    @asynccontextmanager
    async def waiting(self):
        async with provider_with(None, Reply(fault="hang")) as (provider, fake):
            yield provider, lambda: asyncio.to_thread(fake.wait_held)

    @asynccontextmanager
    async def unreachable(self):
        gone = SimpleNamespace(base_url="http://127.0.0.1:9", api_key=API_KEY)
        yield LocalProvider(lambda: gone)

    @asynccontextmanager
    async def breaking_midway(self):
        broken = Reply([text("It is three, I think.")], fault="abort", at=5, delay=0.01)
        async with provider_with(lambda body: broken) as (provider, _):
            yield provider

    @asynccontextmanager
    async def calling(self, name, arguments):
        async with provider_with(lambda body: Reply([tool(name, **arguments)])) as (provider, _):
            yield provider


def test_it_says_that_its_model_is_small():
    told = LocalProvider().capabilities
    assert (told.name, told.small, told.max_tools, told.has_session) == ("local", True, 2, False)


async def test_worked_examples_go_before_the_conversation_and_sampling_is_off():
    request = ModelRequest(
        "local", (user_text("What is the mean of price?"),), tools=(COLUMN_STAT,), max_tokens=8192
    )
    async with provider_with() as (provider, fake):
        await collect(provider, request)
        body = fake.requests[0].body
    assert body["temperature"] == 0
    assert body["max_tokens"] <= 256
    assert body["messages"][1]["content"][0]["type"] == "tool_use"
    assert body["messages"][-1]["content"][0]["text"] == "What is the mean of price?"


async def test_a_server_that_was_replaced_is_found_by_the_next_request():
    with FakeMessages(rules=RULES) as first, FakeMessages(rules=RULES) as second:
        running = [server(first)]
        provider = LocalProvider(lambda: running[-1])
        await collect(provider)
        running.append(server(second))
        await collect(provider)
        await provider.aclose()
        assert (len(first.requests), len(second.requests)) == (1, 1)
        await asyncio.to_thread(first.wait_connections, 0)


async def test_a_model_that_is_not_installed_is_said_by_the_first_request():
    def serve():
        raise ConfigurationError("op-jupyter local install fetches it")

    with pytest.raises(ConfigurationError, match="local install"):
        await collect(LocalProvider(serve))


async def test_requests_at_once_ask_one_server_through_one_client():
    async with provider_with() as (provider, fake):
        await asyncio.gather(*(collect(provider) for _ in range(5)))
        assert len(fake.requests) == 5
        assert {r.headers["authorization"] for r in fake.requests} == {f"Bearer {API_KEY}"}


# --- the real model -----------------------------------------------------------------------

real = pytest.mark.skipif(not is_installed(), reason="op-jupyter local install was not run")


@pytest.mark.localmodel
@real
async def test_the_real_model_streams_an_answer():
    provider = LocalProvider()
    request = ModelRequest("local", (user_text("Say hello."),), max_tokens=30)
    deltas = await collect(provider, request)
    await provider.aclose()
    assert len(deltas) > 3
    assert isinstance(deltas[-1], ResponseDone)
    assert deltas[-1].usage.output_tokens > 0


@pytest.mark.localmodel
@real
async def test_the_real_model_calls_a_typed_tool_and_says_its_result():
    provider = LocalProvider()
    question = user_text("What is the max of weight?")
    request = ModelRequest("local", (question,), tools=(COLUMN_STAT,))
    asked = (await collect(provider, request))[-1]
    assert asked.stop_reason == "tool_use"
    (use,) = asked.message.tool_uses
    assert json.loads(use.arguments) == {"column": "weight", "statistic": "max"}
    result = Message("user", (ToolResultBlock(use.id, (TextBlock("731.5"),)),))
    again = ModelRequest("local", (question, asked.message, result), tools=(COLUMN_STAT,))
    answered = (await collect(provider, again))[-1]
    await provider.aclose()
    assert "731.5" in answered.message.text


@pytest.mark.localmodel
@real
async def test_cancelling_the_real_model_leaves_it_ready_for_the_next_request():
    provider = LocalProvider()
    long = ModelRequest("local", (user_text("Tell a long story."),), max_tokens=250)

    async def first_words():
        async for _ in provider.stream(long):
            started.set()

    started = asyncio.Event()
    task = asyncio.create_task(first_words())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    short = ModelRequest("local", (user_text("Say hello."),), max_tokens=10)
    assert isinstance((await collect(provider, short))[-1], ResponseDone)
    await provider.aclose()


@pytest.mark.localmodel
@real
async def test_a_prompt_larger_than_the_real_window_is_a_context_overflow():
    provider = LocalProvider()
    request = ModelRequest("local", (user_text("word " * 9000),))
    _, error = await collect_until_error(provider, request)
    await provider.aclose()
    assert type(error).__name__ == "ContextOverflow"
