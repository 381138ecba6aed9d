"""Answers of the local model that are held to a schema: a fake chat endpoint, and the real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from op_jupyter import Runtime
from op_jupyter.core.messages import (
    Message,
    ModelRequest,
    ResponseDone,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    user_text,
)
from op_jupyter.providers.local import LocalProvider
from op_jupyter.providers.local_model import is_installed
from op_jupyter.testing.provider_contract import collect, collect_until_error

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
REQUEST = ModelRequest("local", (user_text("Who?"),), system="Be brief.", response_schema=SCHEMA)
Answer = Callable[[web.Request], Any]


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


USED: dict[str, Any] = {
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None},
}
WHOLE = (piece('{"name": '), piece('"Ada", "age": 36}'), piece("", "stop"), USED)


def sse(*events: Any, end: bool = True) -> str:
    lines = [f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events]
    return "".join(lines) + ("data: [DONE]\n\n" if end else "")


def chat(*events: Any, end: bool = True) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=sse(*events, end=end), content_type="text/event-stream")

    return answer


def refused(kind: str) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"error": {"type": kind, "message": "no"}}, status=400)

    return answer


async def messages(request: web.Request) -> web.Response:
    """An answer of the Messages endpoint."""
    start = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "local"}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "in words"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    return web.Response(text=text, content_type="text/event-stream")


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[tuple[LocalProvider, list[tuple[str, Any]]]]:
    seen: list[tuple[str, Any]] = []

    async def note(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, await request.json()))
        response: web.StreamResponse = await (
            answer(request) if request.path.endswith("completions") else messages(request)
        )
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", note)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    provider = LocalProvider(lambda: SimpleNamespace(base_url=url, api_key="k"))
    try:
        yield provider, seen
    finally:
        await provider.aclose()
        await runner.cleanup()


async def test_a_schema_goes_to_the_endpoint_that_can_hold_the_model_to_it():
    async with served(chat(*WHOLE)) as (provider, seen):
        deltas = await collect(provider, REQUEST)
    assert deltas[:-1] == [TextDelta('{"name": '), TextDelta('"Ada", "age": 36}')]
    done = deltas[-1]
    assert isinstance(done, ResponseDone)
    assert (done.message.text, done.stop_reason) == ('{"name": "Ada", "age": 36}', "end_turn")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (9, 4)
    ((path, body),) = seen
    assert path == "/v1/chat/completions"
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert body["messages"][1]["content"] == "Who?"
    assert body["temperature"] == 0


async def test_earlier_tool_calls_are_told_as_text():
    use = Message("assistant", (ToolUseBlock("c1", "look", '{"at": 1}'),))
    result = Message("user", (ToolResultBlock("c1", (TextBlock("it is red"),)), TextBlock("So?")))
    request = ModelRequest("local", (user_text("Look"), use, result), response_schema=SCHEMA)
    async with served(chat(*WHOLE)) as (provider, seen):
        await collect(provider, request)
    texts = [m["content"] for m in seen[0][1]["messages"]]
    assert texts[-3:] == ["Look", '[called look with {"at": 1}]', "it is red\nSo?"]


async def test_what_is_cut_by_the_limit_says_so():
    async with served(chat(piece('{"name'), piece("", "length"))) as (provider, _):
        done = (await collect(provider, REQUEST))[-1]
    assert done.stop_reason == "max_tokens"


async def test_with_tools_the_schema_is_asked_for_in_words():
    tool = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
    request = ModelRequest("local", REQUEST.messages, tools=(tool,), response_schema=SCHEMA)
    async with served(chat(*WHOLE)) as (provider, seen):
        await collect(provider, request)
    ((path, body),) = seen
    assert path == "/v1/messages"
    assert "JSON Schema" in str(body["messages"][-1])


async def test_a_schema_that_no_grammar_can_be_made_of_is_asked_for_in_words():
    async with served(refused("invalid_request_error")) as (provider, seen):
        done = (await collect(provider, REQUEST))[-1]
    assert done.message.text == "in words"
    assert [path for path, _ in seen] == ["/v1/chat/completions", "/v1/messages"]


@pytest.mark.parametrize(
    ("answer", "name", "semantic"),
    [
        (refused("exceed_context_size_error"), "ContextOverflow", False),
        (chat(piece("{"), end=False), "ProtocolError", True),
        (chat(), "ProtocolError", False),
        (chat("{no json"), "ProtocolError", False),
        (chat("[" * 50_000), "ProtocolError", False),
        (chat({"choices": [{}]}), "ProtocolError", False),
        (chat([1]), "ProtocolError", False),
        (chat(piece("{"), {"choices": 3}), "ProtocolError", True),
    ],
)
async def test_what_goes_wrong_is_an_error_and_never_half_an_answer(answer, name, semantic):
    async with served(answer) as (provider, seen):
        deltas, error = await collect_until_error(provider, REQUEST)
    assert type(error).__name__ == name
    assert error.semantic_output is semantic
    assert not any(isinstance(delta, ResponseDone) for delta in deltas)
    assert len(seen) == 1


async def test_a_server_that_is_gone_is_worth_another_attempt():
    gone = LocalProvider(lambda: SimpleNamespace(base_url="http://127.0.0.1:9", api_key="k"))
    _, error = await collect_until_error(gone, REQUEST)
    await gone.aclose()
    assert (type(error).__name__, error.retryable) == ("ProviderConnectionError", True)


@pytest.mark.localmodel
@pytest.mark.skipif(not is_installed(), reason="op-jupyter local install")
def test_the_real_model_answers_in_the_format_it_is_held_to():
    with Runtime(provider=LocalProvider()) as runtime:
        value = runtime.exec("Tom is 12 years old. Who is it, how old?", response_format=SCHEMA)
        chosen = runtime.exec(
            "The soup was cold and the waiter rude. Is this review positive or negative?",
            choices={"positive": 1, "negative": -1},
        )
    assert set(value) == {"name", "age"}
    assert chosen in (1, -1)
