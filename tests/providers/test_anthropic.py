"""The Messages API adapter against a faithful fake of the service, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager

import pytest

from op_jupyter.core.messages import (
    ImageBlock,
    Message,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    ToolUseStarted,
    Usage,
    user_text,
)
from op_jupyter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ContextOverflow,
    InvalidRequest,
    ModelNotFound,
    ProtocolError,
    ProviderConnectionError,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    Refused,
    SpendLimitReached,
)
from op_jupyter.providers.anthropic import AnthropicProvider
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.testing.fake_messages import (
    API_KEY,
    FakeMessages,
    Reply,
    ServiceRules,
    last_results,
    redacted_thinking,
    stream_bytes,
    text,
    thinking,
    tool,
)
from op_jupyter.testing.provider_contract import (
    StreamingContract,
    ToolCallingContract,
    collect,
    collect_until_error,
)

REQUEST = ModelRequest("claude-opus-5-5", (user_text("What is 1 + 2?"),))
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {}})


@asynccontextmanager
async def provider_for(fake, **profile):
    values = {"base_url": fake.url, "api_key": API_KEY, "key_source": "ANTHROPIC_API_KEY"}
    provider = AnthropicProvider(EndpointProfile(**{**values, **profile}))
    try:
        yield provider
    finally:
        await provider.aclose()


async def answer(fake, request=REQUEST, **profile):
    """The whole response to *request*."""
    async with provider_for(fake, **profile) as provider:
        done = (await collect(provider, request))[-1]
    assert isinstance(done, ResponseDone)
    return done


async def failure(fake, *replies, request=REQUEST, **profile):
    """What was shown before the call failed, and the error."""
    fake.script(*replies)
    async with provider_for(fake, **profile) as provider:
        return await collect_until_error(provider, request)


class TestContract(ToolCallingContract, StreamingContract):
    @asynccontextmanager
    async def answering(self, text_):
        with FakeMessages(default=lambda body: Reply([text(text_)])) as fake:
            async with provider_for(fake) as provider:
                yield provider

    @asynccontextmanager
    async def waiting(self):
        with FakeMessages() as fake:
            fake.script(Reply(fault="hang"))
            async with provider_for(fake) as provider:
                yield provider, lambda: asyncio.to_thread(fake.wait_held)

    @asynccontextmanager
    async def unreachable(self):
        with FakeMessages() as fake:
            pass
        async with provider_for(fake) as provider:
            yield provider

    @asynccontextmanager
    async def breaking_midway(self):
        broken = Reply([text("It is three, I think.")], fault="abort", at=5, delay=0.01)
        with FakeMessages(default=lambda body: broken) as fake:
            async with provider_for(fake) as provider:
                yield provider

    @asynccontextmanager
    async def calling(self, name, arguments):
        with FakeMessages(default=lambda body: Reply([tool(name, **arguments)])) as fake:
            async with provider_for(fake) as provider:
                yield provider


# --- what is sent -------------------------------------------------------------------------


async def test_a_request_is_sent_in_the_words_of_the_service(fake):
    request = ModelRequest(
        "claude-haiku-5-5",
        (user_text("Hello"),),
        system="Be brief.",
        tools=(ADD,),
        max_tokens=99,
        session_key="s1",
    )
    await answer(fake, request)
    assert fake.requests[0].body == {
        "model": "claude-haiku-5-5",
        "max_tokens": 99,
        "stream": True,
        "system": [
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [
            {
                "name": "add",
                "description": "Add two numbers.",
                "input_schema": {"type": "object", "properties": {}},
                "cache_control": {"type": "ephemeral"},
            }
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
                ],
            }
        ],
    }


async def test_the_key_goes_out_as_bearer_alone(fake):
    await answer(fake)
    headers = fake.requests[0].headers
    assert headers["authorization"] == f"Bearer {API_KEY}"
    assert "x-api-key" not in headers


async def test_an_older_server_gets_its_header_and_its_version():
    rules = ServiceRules(auth=("x-api-key",))
    with FakeMessages(rules=rules) as fake:
        await answer(fake, auth="both", api_version="2023-06-01")
        assert fake.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_a_server_that_refuses_a_bearer_gets_the_older_header_alone():
    with FakeMessages(rules=ServiceRules(auth=("x-api-key",))) as fake:
        await answer(fake, auth="x-api-key")
        assert "authorization" not in fake.requests[0].headers
        assert fake.requests[0].headers["x-api-key"] == API_KEY


async def test_headers_of_a_profile_are_sent(fake):
    await answer(fake, headers={"anthropic-beta": "some-feature-2026-01-01"})
    assert fake.requests[0].headers["anthropic-beta"] == "some-feature-2026-01-01"


async def test_a_token_alone_is_enough(fake):
    await answer(fake, api_key=None, auth_token=API_KEY)
    assert fake.requests[0].headers["authorization"] == f"Bearer {API_KEY}"


async def test_no_credential_of_the_environment_is_ever_sent(fake, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-from-the-environment")
    await failure(fake, api_key=None, needs_key=False)
    assert "environment" not in json.dumps(dict(fake.requests[0].headers))


async def test_extra_fields_of_a_profile_are_sent(fake):
    await answer(fake, api_version="2023-06-01", extra_body={"temperature": 0})
    assert fake.requests[0].body["temperature"] == 0


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(fake, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    await answer(fake)


async def test_no_more_output_is_asked_for_than_the_endpoint_can_give(fake):
    await answer(fake, max_output_tokens=50)
    assert fake.requests[0].body["max_tokens"] == 50


async def test_a_whole_tool_conversation_is_accepted_and_understood(fake):
    fake.script(Reply([thinking("Let me add."), redacted_thinking("xyz"), tool("add", a=1, b=2)]))
    first = await answer(fake)
    assert [type(b) for b in first.message.content] == [OpaqueBlock, OpaqueBlock, ToolUseBlock]
    result = ToolResultBlock("toolu_01", (TextBlock("3"),))
    messages = (*REQUEST.messages, first.message, Message("user", (result, TextBlock("Well?"))))
    second = await answer(fake, ModelRequest("claude-opus-5-5", messages))
    assert second.message.text == "The tools say: 3"
    sent = fake.requests[1].body["messages"][1]["content"]
    assert sent[0] == thinking("Let me add.")  # byte for byte, with its signature
    assert sent[1] == redacted_thinking("xyz")
    assert sent[2] == {
        "type": "tool_use",
        "id": "toolu_01",
        "name": "add",
        "input": {"a": 1, "b": 2},
    }


async def test_a_server_without_thinking_gets_no_thinking_back(fake):
    messages = (
        user_text("a"),
        Message("assistant", (OpaqueBlock(thinking("hm")), TextBlock("b"))),
        user_text("c"),
    )
    await answer(fake, ModelRequest("claude-opus-5-5", messages), supports_thinking=False)
    assert [b["type"] for b in fake.requests[0].body["messages"][1]["content"]] == ["text"]


@pytest.mark.parametrize(
    "raw",
    [
        *("{broken", "[1, 2]", '"text"', "NaN", '{"a": NaN}', "", "[" * 100_000, '{"a": 1e999}'),
        '{"a": ' + "[" * 500 + "]" * 500 + "}",
    ],
)
async def test_arguments_that_are_no_object_are_sent_as_none_before_their_error(fake, raw):
    messages = (
        user_text("a"),
        Message("assistant", (ToolUseBlock("t1", "add", raw),)),
        Message("user", (ToolResultBlock("t1", (TextBlock("not JSON"),), "error"),)),
    )
    await answer(fake, ModelRequest("claude-opus-5-5", messages))
    use, result = (m["content"][0] for m in fake.requests[0].body["messages"][1:])
    assert use["input"] == {}
    assert result["is_error"] is True


@pytest.mark.parametrize(
    ("state", "content", "said", "is_error"),
    [
        ("success", ("3",), ["3"], None),
        ("success", (), [], None),
        ("error", ("boom",), ["boom"], True),
        ("error", (), ["The call failed without a message."], True),
        ("denied", ("not now",), ["[denied] not now"], True),
        ("denied", (), ["[denied]"], True),
        ("interrupted", ("gone",), ["[interrupted] gone"], True),
    ],
)
async def test_the_state_of_a_result_reaches_the_model(fake, state, content, said, is_error):
    result = ToolResultBlock("t1", tuple(map(TextBlock, content)), state)
    messages = (
        user_text("a"),
        Message("assistant", (ToolUseBlock("t1", "add", "{}"),)),
        Message("user", (result,)),
    )
    await answer(fake, ModelRequest("claude-opus-5-5", messages))
    sent = fake.requests[0].body["messages"][2]["content"][0]
    assert [b["text"] for b in sent["content"]] == said
    assert sent.get("is_error") is is_error


async def test_images_are_sent_in_prompts_and_results(fake):
    image = ImageBlock("image/png", "aGVsbG8=")
    messages = (
        Message("user", (TextBlock("see"), image)),
        Message("assistant", (ToolUseBlock("t1", "plot", "{}"),)),
        Message("user", (ToolResultBlock("t1", (image,)),)),
    )
    await answer(fake, ModelRequest("claude-opus-5-5", messages), supports_cache=False)
    sent = fake.requests[0].body["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    assert sent[0]["content"][1] == {"type": "image", "source": source}
    assert sent[2]["content"][0]["content"][0] == {"type": "image", "source": source}


async def test_blank_texts_and_empty_messages_are_left_out(fake):
    messages = (
        user_text("a"),
        Message("assistant", (TextBlock("  \n"),)),
        Message("user", (TextBlock(""), TextBlock("b"))),
    )
    await answer(fake, ModelRequest("claude-opus-5-5", messages, system="  "))
    body = fake.requests[0].body
    assert "system" not in body
    assert [b["text"] for b in body["messages"][0]["content"]] == ["a", "b"]


async def test_text_that_utf8_cannot_carry_is_sent_with_a_mark_in_its_place(fake):
    done = await answer(fake, ModelRequest("claude-opus-5-5", (user_text("a\ud800b 😀"),)))
    assert done.message.text == "You said: a�b 😀"


async def test_a_million_characters_of_braces_and_quotes_arrive_unchanged(fake):
    prompt = '{"a": "}}{{ % $ \\n"} ' * 25_000
    fake.script(Reply())
    await answer(fake, ModelRequest("claude-opus-5-5", (user_text(prompt),)))
    assert fake.requests[0].body["messages"][0]["content"][0]["text"] == prompt


async def test_the_second_call_reads_the_first_ones_prompt_from_the_cache(fake):
    system, question = "You are careful. " * 400, "Consider this. " * 400
    first = ModelRequest("claude-opus-5-5", (user_text(question),), system=system)
    done = await answer(fake, first)
    assert done.usage.cache_write_tokens > 2000
    more = (*first.messages, done.message, user_text("And then?"))
    again = await answer(fake, ModelRequest("claude-opus-5-5", more, system=system))
    assert again.usage.cache_read_tokens == done.usage.cache_write_tokens
    assert again.usage.input_tokens > again.usage.cache_read_tokens


async def test_a_server_without_a_cache_gets_no_breakpoints(fake):
    await answer(fake, supports_cache=False)
    assert "cache_control" not in json.dumps(fake.requests[0].body)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


async def test_a_schema_holds_the_service_to_it(fake):
    await answer(
        fake, ModelRequest("claude-opus-5-5", (user_text("Who?"),), response_schema=SCHEMA)
    )
    body = fake.requests[0].body
    native = body["output_config"]["format"]["schema"]
    assert native["additionalProperties"] is False
    assert "minimum" not in native["properties"]["age"]
    assert len(body["messages"][0]["content"]) == 1


@pytest.mark.parametrize(
    ("schema", "profile"),
    [
        (SCHEMA, {"supports_schema": False}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {}),
        ({"type": "array", "items": {"type": "string"}}, {}),
        ({"type": "object", "properties": {"any": {}}}, {}),
        (
            {
                "type": "object",
                "properties": {"tree": {"$ref": "#/$defs/T"}},
                "$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
            },
            {},
        ),
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_asked_for_in_words(fake, schema, profile):
    request = ModelRequest("claude-opus-5-5", (user_text("Who?"),), response_schema=schema)
    await answer(fake, request, **profile)
    body = fake.requests[0].body
    assert "output_config" not in body
    said = body["messages"][0]["content"][1]["text"]
    assert json.loads(said.partition("JSON Schema:\n")[2]) == schema


# --- what comes back ----------------------------------------------------------------------


async def test_thinking_text_and_tool_calls_are_shown_as_they_arrive(fake):
    fake.script(Reply([thinking("hm"), text("I add."), tool("add", a=1)]))
    async with provider_for(fake) as provider:
        deltas = await collect(provider)
    assert deltas[:-1] == [ThinkingDelta("hm"), TextDelta("I add."), ToolUseStarted(2, "add")]


async def test_tool_arguments_keep_the_models_own_text_even_when_malformed(fake):
    fake.script(Reply([tool("add", a=1)], fault="bad_tool"))
    done = await answer(fake)
    assert done.message.tool_uses == (ToolUseBlock("toolu_01", "add", '{"city": Paris!!}'),)


async def test_usage_is_the_last_that_was_said_and_counts_cached_input(fake):
    counted = {"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 7}
    fake.script(Reply(usage={**counted, "output_tokens": 11}))
    done = await answer(fake)
    assert done.usage == Usage(42, 11, cache_read_tokens=30, cache_write_tokens=7)
    assert done.model == "claude-opus-5-5"


@pytest.mark.parametrize(
    "stop",
    ["end_turn", "max_tokens", "stop_sequence", "pause_turn", "model_context_window_exceeded"],
)
async def test_a_stop_reason_without_tools_is_passed_on(fake, stop):
    fake.script(Reply([text("half an answ")], stop=stop))
    done = await answer(fake)
    assert (done.stop_reason, done.message.text) == (stop, "half an answ")


async def test_an_event_of_a_later_version_is_ignored(fake):
    fake.script(Reply([text("fine")], fault="unknown"))
    assert (await answer(fake)).message.text == "fine"


async def test_a_slow_stream_is_fine_while_it_is_never_silent_for_too_long(fake):
    fake.script(Reply([text("slow but steady")], delay=0.02))
    assert (await answer(fake, read_timeout=5)).message.text == "slow but steady"


# --- faults -------------------------------------------------------------------------------

WORDS = [text("Once upon a time there was"), tool("add", a=1)]


@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (Reply(status=400), InvalidRequest, False),
        (Reply(status=401), AuthenticationFailed, False),
        (Reply(status=402), SpendLimitReached, False),
        (Reply(status=403), AuthenticationFailed, False),
        (Reply(status=404), InvalidRequest, False),
        (Reply(status=404, error_message="model: nope"), ModelNotFound, False),
        (Reply(status=408), ProviderTimeout, True),
        (Reply(status=409), ProviderOverloaded, True),
        (Reply(status=413), InvalidRequest, False),
        (Reply(status=422), InvalidRequest, False),
        (Reply(status=429), RateLimited, True),
        (Reply(status=429, error_code="contract_spend_limit_reached"), SpendLimitReached, False),
        (Reply(status=429, error_code="enforced_spend_limit_reached"), SpendLimitReached, False),
        (Reply(status=400, error_message="credit balance is too low"), SpendLimitReached, False),
        (Reply(status=500), ProviderOverloaded, True),
        (Reply(status=502, page="<html>Bad gateway</html>"), ProviderOverloaded, True),
        (Reply(status=503), ProviderOverloaded, True),
        (Reply(status=504), ProviderTimeout, True),
        (Reply(status=529), ProviderOverloaded, True),
        (Reply(status=500, headers={"x-should-retry": "false"}), ProviderOverloaded, False),
        (
            Reply(status=400, error_message="prompt is too long: 208310 tokens > 200000 maximum"),
            ContextOverflow,
            False,
        ),
        (
            Reply(
                status=400,
                error_type="exceed_context_size_error",
                error_message="request (20031 tokens) exceeds the available context size",
            ),
            ContextOverflow,
            False,
        ),
        (Reply(fault="drop"), ProviderConnectionError, True),
        (Reply(fault="hang", at=0), ProviderTimeout, True),
        (Reply(fault="html"), ProtocolError, False),
    ],
    ids=lambda value: (
        f"{value.status}{value.error_code}{value.fault}{value.error_type}{value.error_message[:12]}"
        if isinstance(value, Reply)
        else None
    ),
)
async def test_a_fault_before_the_answer_is_classified(fake, reply, kind, retryable):
    seen, error = await failure(fake, reply, read_timeout=0.3)
    assert seen == []
    assert type(error) is kind
    assert (error.retryable, error.semantic_output) == (retryable, False)
    assert len(fake.requests) == 1  # the SDK does not try again behind our back


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        ("abort", ProviderConnectionError, True),
        ("close", ProviderConnectionError, True),
        ("hang", ProviderTimeout, True),
        ("eof", ProtocolError, True),
        ("error", ProviderOverloaded, True),
        ("malformed", ProtocolError, False),
        ("nested", ProtocolError, False),
        ("bad_order", ProtocolError, False),
    ],
)
@pytest.mark.parametrize("after_words", [False, True])
async def test_a_fault_in_the_answer_drops_it(fake, fault, kind, retryable, after_words):
    reply = Reply(WORDS, fault=fault, at=5 if after_words else 1, delay=0.01)
    seen, error = await failure(fake, reply, read_timeout=0.3)
    assert type(error) is kind
    assert error.semantic_output is after_words
    assert error.retryable is (retryable and not after_words)
    assert all(isinstance(delta, TextDelta) for delta in seen)
    assert bool(seen) is after_words


@pytest.mark.parametrize(
    ("error_type", "kind"),
    [
        ("overloaded_error", ProviderOverloaded),
        ("api_error", ProviderOverloaded),
        ("rate_limit_error", RateLimited),
        ("timeout_error", ProviderTimeout),
        ("authentication_error", AuthenticationFailed),
        ("invalid_request_error", InvalidRequest),
        ("billing_error", SpendLimitReached),
    ],
)
async def test_an_error_inside_the_stream_is_classified_by_its_type(fake, error_type, kind):
    _, error = await failure(fake, Reply(fault="error", at=0, error_type=error_type))
    assert type(error) is kind


@pytest.mark.parametrize("fault", ["two_stops", "no_stop_reason", "no_start"])
async def test_a_message_without_one_proper_end_is_no_message(fake, fault):
    _, error = await failure(fake, Reply(WORDS, fault=fault))
    assert type(error) is ProtocolError
    assert not error.retryable


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded", "end_turn"])
async def test_a_tool_call_without_the_stop_reason_for_it_is_no_message(fake, stop):
    _, error = await failure(fake, Reply([tool("write", path="a.txt")], stop=stop))
    assert type(error) is ProtocolError
    assert error.semantic_output


async def test_a_stop_for_tools_without_a_tool_is_no_message(fake):
    _, error = await failure(fake, Reply([text("hm")], stop="tool_use"))
    assert type(error) is ProtocolError


async def test_a_refusal_is_an_error_with_its_category(fake):
    details = {"type": "refusal", "category": "bio", "explanation": None}
    _, error = await failure(fake, Reply([text("I")], stop="refusal", stop_details=details))
    assert type(error) is Refused
    assert error.category == "bio"
    assert "bio" in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 400}, math.inf),
        ({"retry-after-ms": "-5"}, 0),
        ({"retry-after-ms": "nan"}, 0),
        ({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 01 Jan 2099 00:00:00 +" + "9" * 20}, None),
    ],
)
async def test_the_wait_that_the_service_asks_for_is_told(fake, header, seconds):
    _, error = await failure(fake, Reply(status=429, headers=header))
    assert error.retry_after == seconds


async def test_a_wait_until_a_date_is_told_in_seconds(fake):
    date = {"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}
    _, error = await failure(fake, Reply(status=429, headers=date))
    assert error.retry_after > 3600


async def test_a_prompt_larger_than_the_window_is_a_context_overflow():
    with FakeMessages(rules=ServiceRules(context_tokens=100)) as fake:
        request = ModelRequest("claude-opus-5-5", (user_text("long " * 200),))
        _, error = await failure(fake, request=request)
    assert type(error) is ContextOverflow


async def test_a_wrong_key_says_where_it_came_from_and_not_what_it_is(fake):
    _, error = await failure(fake, api_key="sk-wrong-key-123456")
    assert type(error) is AuthenticationFailed
    assert "ANTHROPIC_API_KEY" in str(error)
    assert "sk-wrong-key-123456" not in str(error)


async def test_an_unknown_model_is_named(fake):
    _, error = await failure(fake, request=ModelRequest("claude-nope", (user_text("a"),)))
    assert type(error) is ModelNotFound
    assert "'claude-nope'" in str(error)


async def test_a_server_that_repeats_the_key_does_not_get_it_into_an_error(fake):
    echoing = Reply(status=401, error_message=f"Incorrect API key provided: {API_KEY}")
    _, error = await failure(fake, echoing)
    shown = error
    while shown is not None:
        assert API_KEY not in str(shown)
        shown = shown.__cause__
    assert "Incorrect API key provided: [key]" in str(error)


async def test_nothing_of_a_secret_is_logged(fake, caplog):
    caplog.set_level(logging.DEBUG)
    await answer(fake)
    await failure(fake, Reply(status=500))
    assert API_KEY not in caplog.text


# --- cuts, cancels, connections -----------------------------------------------------------

CUT = Reply([tool("add", a=1)])
WHOLE = stream_bytes(CUT)


@pytest.mark.parametrize(("fault", "step"), [("close", 5), ("eof", 7)])
async def test_a_stream_cut_at_any_byte_is_never_half_a_message(fake, fault, step):
    """`tests/acceptance` cuts at every byte; here at enough of them."""
    end = WHOLE.index(b"event: message_stop")
    whole_messages = 0
    async with provider_for(fake) as provider:
        for cut in range(0, len(WHOLE), step):
            fake.script(Reply(CUT.blocks, fault=fault, cut=cut))
            try:
                deltas = await collect(provider)
            except ProviderError as error:
                assert error.retryable is not error.semantic_output  # noqa: PT017 -- every cut
                continue
            done = deltas[-1]
            assert isinstance(done, ResponseDone)
            assert cut > end, f"a message after {cut} bytes"
            assert [use.arguments for use in done.message.tool_uses] == ['{"a": 1}']
            whole_messages += 1
    assert whole_messages <= 1


async def test_cancelling_in_the_middle_leaves_no_open_connection(fake):
    fake.script(Reply(WORDS, fault="hang", at=6))
    async with provider_for(fake) as provider:
        task = asyncio.create_task(collect(provider))
        await asyncio.to_thread(fake.wait_held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(fake.wait_idle)
        await asyncio.to_thread(fake.wait_connections, 0)


async def test_leaving_the_stream_early_leaves_no_open_connection(fake):
    fake.script(Reply(WORDS, fault="hang", at=6))
    async with provider_for(fake) as provider:
        async with aclosing(provider.stream(REQUEST)) as stream:
            await anext(stream)
        await asyncio.to_thread(fake.wait_connections, 0)


async def test_cancelling_the_very_first_request_while_the_sdk_loads_is_harmless(fake):
    async with provider_for(fake) as provider:
        task = asyncio.create_task(collect(provider))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert fake.requests == []
        assert (await collect(provider))[-1].message.text == "You said: What is 1 + 2?"


async def test_calls_one_after_the_other_share_a_connection_and_closing_ends_it(fake):
    async with provider_for(fake) as provider:
        for _ in range(3):
            await collect(provider)
        assert fake.connections == 1
    await asyncio.to_thread(fake.wait_connections, 0)


async def test_a_connection_that_went_stale_is_worth_another_attempt(fake):
    async with provider_for(fake) as provider:
        await collect(provider)
        fake.script(Reply(fault="drop"))
        _, error = await collect_until_error(provider)
        assert error.retryable
        await collect(provider)


@pytest.mark.parametrize("fault", ["hang", "abort", "close"])
async def test_a_whole_message_counts_although_the_stream_never_ends_properly(fake, fault):
    fake.script(Reply(CUT.blocks, fault=fault, at=100))
    profile = EndpointProfile(base_url=fake.url, api_key=API_KEY)
    provider = AnthropicProvider(profile, end_grace=0.05)
    done = (await collect(provider))[-1]
    await provider.aclose()
    assert isinstance(done, ResponseDone)
    assert len(done.message.tool_uses) == 1


# --- profiles and imports -----------------------------------------------------------------


async def test_one_endpoint_is_used_by_many_calls_at_once(fake):
    fake.set_default(lambda body: Reply([text(body["messages"][0]["content"][0]["text"])]))
    requests = [ModelRequest("claude-opus-5-5", (user_text(f"number {i}"),)) for i in range(20)]
    async with provider_for(fake) as provider:
        answers = await asyncio.gather(*(collect(provider, r) for r in requests))
    assert [a[-1].message.text for a in answers] == [f"number {i}" for i in range(20)]


async def test_tool_results_reach_a_default_answer(fake):
    fake.set_default(lambda body: Reply([text("got " + ",".join(last_results(body)))]))
    messages = (
        user_text("a"),
        Message("assistant", (ToolUseBlock("t1", "add", "{}"),)),
        Message("user", (ToolResultBlock("t1", (TextBlock("3"),)),)),
    )
    done = await answer(fake, ModelRequest("claude-opus-5-5", messages))
    assert done.message.text == "got 3"


def test_a_provider_without_a_key_is_refused_before_any_request():
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        AnthropicProvider(EndpointProfile())


def test_importing_the_adapter_and_building_a_provider_loads_no_sdk():
    code = (
        "import sys; from op_jupyter.providers.anthropic import AnthropicProvider;"
        "from op_jupyter.providers.profile import EndpointProfile;"
        "AnthropicProvider(EndpointProfile(api_key='k'));"
        "print([m for m in ('anthropic', 'httpx2', 'IPython') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


async def test_a_body_can_be_adapted_before_it_is_sent(fake):
    profile = EndpointProfile(base_url=fake.url, api_key=API_KEY)
    provider = AnthropicProvider(profile, adapt=lambda body: {**body, "max_tokens": 7})
    await collect(provider)
    await provider.aclose()
    assert fake.requests[0].body["max_tokens"] == 7
