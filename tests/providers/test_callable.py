"""A function as a model."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from op_jupyter.core.messages import (
    ImageBlock,
    Message,
    ModelRequest,
    OpaqueBlock,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    ToolUseStarted,
    user_text,
)
from op_jupyter.errors import (
    ProviderConnectionError,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
)
from op_jupyter.providers.base import holds_nothing
from op_jupyter.providers.callable import CallableProvider, flat_content
from op_jupyter.testing.provider_contract import REQUEST, ProviderContract, collect
from op_jupyter.testing.providers import ScriptedProvider


class TestPlainFunction(ProviderContract):
    @asynccontextmanager
    async def answering(self, text):
        yield CallableProvider(lambda content: text, "m")

    @asynccontextmanager
    async def waiting(self):
        reached, release, calls = threading.Event(), threading.Event(), []

        def fn(content):
            calls.append(content)
            if len(calls) == 1:
                reached.set()
                release.wait(30)
            return "ok"

        yield CallableProvider(fn, "m"), lambda: asyncio.to_thread(reached.wait, 30)
        release.set()

    @asynccontextmanager
    async def unreachable(self):
        def fn(content):
            raise ConnectionRefusedError("nobody there")

        yield CallableProvider(fn, "m")


class TestAsyncFunction(ProviderContract):
    @asynccontextmanager
    async def answering(self, text):
        async def fn(content):
            return text

        yield CallableProvider(fn, "m")

    @asynccontextmanager
    async def waiting(self):
        reached, calls = asyncio.Event(), []

        async def fn(content):
            calls.append(content)
            if len(calls) == 1:
                reached.set()
                await asyncio.Event().wait()
            return "ok"

        yield CallableProvider(fn, "m"), reached.wait

    @asynccontextmanager
    async def unreachable(self):
        async def fn(content):
            raise ConnectionResetError("gone")

        yield CallableProvider(fn, "m")


class Throttled(Exception):
    def __init__(self, headers):
        self.status_code = 429
        self.response = type("Response", (), {"headers": headers})()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": 7}, 7.0),
        ({"retry-after": None}, None),
        ({"retry-after": "soon"}, None),
        ({b"retry-after": b"7"}, None),
        (None, None),
        ("retry-after: 7", None),
        (7, None),
    ],
)
async def test_the_headers_of_any_librarys_response_are_read_or_passed_over(headers, seconds):
    def fn(content):
        raise Throttled(headers)

    with pytest.raises(RateLimited) as caught:
        await said_by(fn)

    assert caught.value.retry_after == seconds


async def said_by(fn, request=REQUEST):
    return (await collect(CallableProvider(fn, "m"), request))[-1].message.text


def test_the_content_is_the_whole_prompt_in_order_with_its_roles():
    request = ModelRequest(
        "m",
        (
            Message("user", (TextBlock("Look:"), ImageBlock("image/png", "QQ=="))),
            Message(
                "assistant",
                (
                    OpaqueBlock({"type": "thinking"}),
                    TextBlock("I add."),
                    ToolUseBlock("t", "add", "{}"),
                ),
            ),
            Message(
                "user", (ToolResultBlock("t", (TextBlock("boom"),), "error"), TextBlock("So?"))
            ),
        ),
        system="Be brief.",
    )
    assert flat_content(request) == [
        {"type": "text", "text": "Be brief.", "role": "system"},
        {"type": "text", "text": "Look:", "role": "user"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="},
            "role": "user",
        },
        {"type": "text", "text": "I add.", "role": "assistant"},
        {"type": "text", "text": "[tool call: add({})]", "role": "assistant"},
        {"type": "text", "text": "[tool result of add: error]", "role": "user"},
        {"type": "text", "text": "boom", "role": "user"},
        {"type": "text", "text": "So?", "role": "user"},
    ]


async def test_joined_texts_do_not_run_together_and_the_last_one_is_as_it_is():
    texts = ("Sort these.\n\nArguments: {}", "a\n", "b\n\n\n", "c")
    request = ModelRequest(
        "m", (Message("user", tuple(map(TextBlock, texts))),), system="Be brief."
    )
    joined = await said_by(lambda content: "".join(block["text"] for block in content), request)
    assert joined == "Be brief.\n\nSort these.\n\nArguments: {}\n\na\n\nb\n\n\nc"


class Answerer:
    def method(self, content, *, model):
        return f"method {model}"

    async def __call__(self, content, response_format):
        return f"object {response_format}"


def only_content(content):
    return "content alone"


def with_model(content, model):
    return f"model {model}"


def with_anything(content, **options):
    return f"options {sorted(options)}"


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (only_content, "content alone"),
        (with_model, "model claude-opus-5-5"),
        (with_anything, "options ['model', 'response_format']"),
        (Answerer().method, "method claude-opus-5-5"),
        (Answerer(), "object None"),
        (functools.partial(with_model), "model claude-opus-5-5"),
        (lambda model: f"first of {len(model)}", "first of 2"),
    ],
)
async def test_a_function_gets_only_the_keywords_it_accepts(fn, said):
    assert await said_by(fn) == said


async def test_a_function_that_returns_an_awaitable_is_awaited():
    async def later():
        return "later"

    assert await said_by(lambda content: later()) == "later"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


async def test_a_schema_is_passed_to_a_function_that_takes_one():
    request = ModelRequest("m", (user_text("a"),), response_schema=SCHEMA)

    def fn(content, response_format=None):
        return f"{len(content)} {response_format['type']}"

    assert await said_by(fn, request) == "1 object"


async def test_a_schema_is_asked_for_in_words_of_a_function_that_takes_none():
    request = ModelRequest("m", (user_text("a"),), response_schema=SCHEMA)
    said = await said_by(lambda content: "{role}: {text}".format(**content[-1]), request)
    assert said.startswith("user: ") and '"properties":{"a":{"type":"integer"}}' in said


async def test_a_plain_function_runs_in_another_thread_with_the_callers_context():
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    here = threading.get_ident()

    def fn(content):
        return f"{variable.get()} {threading.get_ident() != here}"

    assert await said_by(fn) == "set True"


async def test_many_functions_that_block_do_not_wait_for_each_other():
    barrier = threading.Barrier(30, timeout=30)

    def fn(content):
        barrier.wait()
        return "together"

    provider = CallableProvider(fn, "m")
    answers = await asyncio.gather(*(collect(provider) for _ in range(30)))
    assert len(answers) == 30


class HttpError(Exception):
    def __init__(self, status, **headers):
        super().__init__(f"status {status}")
        self.status_code = status
        self.response = type("Response", (), {"headers": headers})()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("x"), ProviderConnectionError),
        (BrokenPipeError("x"), ProviderConnectionError),
        (TimeoutError("x"), ProviderTimeout),
        (HttpError(408), ProviderTimeout),
        (HttpError(409), ProviderOverloaded),
        (HttpError(429), RateLimited),
        (HttpError(500), ProviderOverloaded),
        (HttpError(503), ProviderOverloaded),
        (HttpError(529), ProviderOverloaded),
    ],
)
async def test_passing_faults_of_a_function_are_worth_another_attempt(error, kind):
    def fn(content):
        raise error

    with pytest.raises(ProviderError) as caught:
        await said_by(fn)
    assert type(caught.value) is kind
    assert caught.value.retryable
    assert caught.value.__cause__ is error


async def test_a_status_error_tells_how_long_to_wait():
    def fn(content):
        raise HttpError(429, **{"retry-after": "3"})

    with pytest.raises(RateLimited) as caught:
        await said_by(fn)
    assert caught.value.retry_after == 3


@pytest.mark.parametrize(
    "error",
    [
        TypeError("x"),
        NotImplementedError("x"),
        ImportError("x"),
        ValueError("x"),
        FileNotFoundError("x"),
        HttpError(401),
        RateLimited("from inside"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_any_other_error_of_a_function_passes_through_unchanged(error):
    def fn(content):
        raise error

    with pytest.raises(type(error)) as caught:
        await said_by(fn)
    assert caught.value is error


async def test_a_stop_iteration_in_a_function_is_an_error_and_no_hang():
    def fn(content):
        return next(iter(()))

    with pytest.raises(RuntimeError):
        await said_by(fn)


@pytest.mark.parametrize("answer", [None, b"bytes", 3, ["text"]])
async def test_a_function_that_returns_no_text_is_told_so(answer):
    def oracle(content):
        return answer

    with pytest.raises(TypeError, match=r"oracle returned .* has to return its answer as str"):
        await said_by(oracle)


CALL = {"type": "tool_use", "name": "add", "input": {"a": 1}}
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})


async def test_a_function_with_a_parameter_for_tools_gets_them_and_calls_them():
    offered = []

    def fn(content, tools):
        offered.extend(tools)
        return ["Let me add. ", CALL, {"type": "text", "text": ""}, CALL]

    earlier = Message("assistant", (ToolUseBlock("call_1", "add", "{}"),))
    request = replace(REQUEST, messages=(*REQUEST.messages, earlier), tools=(ADD,))
    provider = CallableProvider(fn, "m")
    *deltas, done = await collect(provider, request)

    assert provider.capabilities.max_tools is None
    assert offered == [
        {"name": "add", "description": "Add.", "input_schema": dict(ADD.input_schema)}
    ]
    assert done.stop_reason == "tool_use"
    assert [use.id for use in done.message.tool_uses] == ["call_3", "call_5"]
    assert [use.arguments for use in done.message.tool_uses] == ['{"a": 1}'] * 2
    assert deltas == [
        TextDelta("Let me add. "),
        ToolUseStarted(1, "add"),
        ToolUseStarted(2, "add"),
    ]


@pytest.mark.parametrize("fn", [lambda content: "", lambda content, **options: ""])
def test_a_function_without_that_parameter_is_offered_no_tools(fn):
    assert CallableProvider(fn, "m").capabilities.max_tools == 0


@pytest.mark.parametrize(
    "item",
    [
        3,
        {"type": "tool_use", "name": "add"},
        {"type": "tool_use", "name": "add", "input": "{}"},
        {"type": "tool_use", "name": 1, "input": {}},
        {"type": "text"},
    ],
)
async def test_an_item_that_is_neither_text_nor_a_call_is_named(item):
    def oracle(content, tools):
        return [item]

    with pytest.raises(TypeError, match=r"oracle returned a list with .*; its items have to be"):
        await said_by(oracle)


async def test_an_empty_answer_is_a_message_without_content():
    assert await said_by(lambda content: "") == ""


@pytest.mark.parametrize("error", [StopIteration(3), StopAsyncIteration(), GeneratorExit()])
async def test_what_ends_a_generator_is_told_as_an_error_of_the_function(
    error: BaseException,
) -> None:
    def exhausted(content: object) -> str:
        raise error

    with pytest.raises(RuntimeError, match=f"exhausted raised {type(error).__name__}"):
        await collect(CallableProvider(exhausted, "m"), REQUEST)


def test_nobody_needs_to_wait_for_its_end():
    assert holds_nothing(CallableProvider(lambda content: "yes", "m"))
    assert not holds_nothing(ScriptedProvider())
