"""The fake Messages service: it refuses what the real one refuses, and serves other processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from op_jupyter.testing.fake_messages import (
    API_KEY,
    FakeMessages,
    Reply,
    ServiceRules,
    stream_bytes,
    text,
    thinking,
    tool,
)
from op_jupyter.testing.message_rules import PromptCache, violation

HEADERS = {"authorization": f"Bearer {API_KEY}", "anthropic-version": "2026-10-21"}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def result(call_id="t1", **values):
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text("3")], **values}


def body(*messages, **values):
    messages = list(messages) or [user(text("hi"))]
    return {"model": "claude-opus-5-5", "max_tokens": 10, "messages": messages, **values}


CALL = assistant(tool("add", id="t1", a=1))


@pytest.mark.parametrize(
    ("request_body", "said"),
    [
        (body(messages=[]), "at least one message"),
        ({"model": "claude-opus-5-5", "messages": [user(text("a"))]}, "max_tokens: Field required"),
        (body(max_tokens=200_000), "maximum allowed number of output tokens"),
        (body(temperature=0), "temperature"),
        (body(colour="red"), "colour: Extra inputs are not permitted"),
        (body(user()), "non-empty content"),
        (body(user(text(""))), "must be non-empty"),
        (body(user(text(" \n"))), "non-whitespace"),
        (body(user(text("a")), assistant(text("b"))), "end with a user message"),
        (body(user(text("a")), CALL, user(text("b"))), "without `tool_result` blocks immediately"),
        (body(user(text("a")), CALL, user(text("b"), result())), "immediately after: t1"),
        (body(user(result())), "unexpected `tool_use_id`"),
        (body(user(text("a")), CALL, user(result(), result())), "single result"),
        (
            body(user(text("a")), CALL, user(result(is_error=True, content=[]))),
            "content cannot be empty if `is_error`",
        ),
        (body(user(text("a")), CALL, user(result(content=[text("")]))), "must be non-empty"),
        (
            body(
                user(text("a")),
                assistant({**thinking("hm"), "thinking": "changed"}),
                user(text("b")),
            ),
            "Invalid `signature`",
        ),
        (body(system=[text("")]), "system: text content blocks"),
        (body(tools=[{"name": "a b", "input_schema": {"type": "object"}}]), "tools.0.name"),
        (body(tools=[{"name": "a", "input_schema": {"type": "string"}}]), "input_schema.type"),
        (body(tools=[{"name": "a", "input_schema": {"type": "object"}}] * 2), "must be unique"),
        (
            body(
                user(*({**text(str(i)), "cache_control": {"type": "ephemeral"}} for i in range(5)))
            ),
            "A maximum of 4 blocks with cache_control",
        ),
        (body(user(text("long " * 200_000))), "prompt is too long: "),
    ],
)
def test_a_request_that_the_real_service_refuses_is_refused(request_body, said):
    refused = violation(request_body, HEADERS, ServiceRules())
    assert refused is not None
    assert refused.status == 400
    assert said in refused.message


@pytest.mark.parametrize(
    "request_body",
    [
        body(),
        body({"role": "user", "content": "plain text"}),
        body(user(text("a")), CALL, user(result(), text("and?"))),
        body(user(text("a")), assistant(thinking("hm"), tool("add", id="t1")), user(result())),
        body(user(text("a")), CALL, user(result(content=[]))),
        body(user(text("a")), user(text("b"))),
    ],
)
def test_a_proper_request_is_accepted(request_body):
    assert violation(request_body, HEADERS, ServiceRules()) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"x-api-key": "wrong"}, 401),
        ({"x-api-key": API_KEY}, None),
        ({"authorization": f"Bearer {API_KEY}"}, None),
    ],
)
def test_only_the_right_key_gets_in(headers, status):
    refused = violation(body(), headers, ServiceRules())
    assert (refused.status if refused else None) == status


def test_an_older_version_still_knows_a_temperature():
    headers = {**HEADERS, "anthropic-version": "2023-06-01"}
    assert violation(body(temperature=0), headers, ServiceRules()) is None


def test_an_unknown_model_is_not_found():
    refused = violation(body(model="nope"), HEADERS, ServiceRules())
    assert (refused.status, refused.message) == (404, "model: nope")


def test_the_cache_reads_the_longest_prefix_that_was_marked_before():
    def marked(*texts):
        blocks = [text(t * 2000) for t in texts]
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
        return body(user(*blocks))

    cache = PromptCache()
    first = cache.usage(marked("abc "))
    assert first["cache_read_input_tokens"] == 0
    second = cache.usage(marked("abc ", "def "))
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert second["cache_creation_input_tokens"] > 0
    assert cache.usage(marked("xyz ", "def "))["cache_read_input_tokens"] == 0


def test_the_events_are_in_the_order_of_the_real_service():
    stream = stream_bytes(Reply([thinking("hm"), text("hi"), tool("add", a=1)])).decode()
    kinds = [line.removeprefix("event: ") for line in stream.splitlines() if "event: " in line]
    assert kinds[:3] == ["message_start", "content_block_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="no fault 'flood'"):
        Reply(fault="flood")


def test_a_port_that_is_taken_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="address already in use"):
            FakeMessages(port=taken.getsockname()[1]).__enter__()


def post(url, data, **headers):
    request = urllib.request.Request(url, json.dumps(data).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.loads(response.read())


def refusal(url, data, **headers):
    """Status and text of the error that answers."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, data, **headers)
    with caught.value as response:
        return response.code, response.read().decode()


def test_another_process_is_scripted_and_looked_into_over_http():
    command = [sys.executable, "-m", "op_jupyter.testing.fake_messages", "0", "--key", "k-1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            post(f"{url}/_script", [{"blocks": [text("scripted")]}, {"status": 529}])
            said = post(f"{url}/v1/messages", body(), **{"x-api-key": "k-1"})
            assert said["content"] == [text("scripted")]
            assert refusal(f"{url}/v1/messages", body(), **{"x-api-key": "k-1"})[0] == 529
            said = post(f"{url}/v1/messages", body(user(text("hello"))), **{"x-api-key": "k-1"})
            assert said["content"] == [text("You said: hello")]
            counted = post(f"{url}/v1/messages/count_tokens", body(), **{"x-api-key": "k-1"})
            assert counted["input_tokens"] > 0
            with urllib.request.urlopen(f"{url}/_requests", timeout=20) as response:
                received = json.loads(response.read())
            assert [r["path"] for r in received[:2]] == ["/v1/messages"] * 2
        finally:
            process.terminate()


def test_a_script_that_means_nothing_is_refused_over_http():
    with FakeMessages() as fake:
        status, said = refusal(f"{fake.url}/_script", [{"colour": "red"}])
        assert status == 400
        assert "colour" in said


def test_an_answer_can_be_held_until_the_test_lets_it_go():
    with FakeMessages() as fake:
        fake.script(Reply([text("held")], fault="hold", at=2))
        request = urllib.request.Request(
            f"{fake.url}/v1/messages",
            json.dumps(body(stream=True)).encode(),
            {"x-api-key": API_KEY},
        )
        with urllib.request.urlopen(request, timeout=20) as response:
            fake.wait_held()
            assert fake.active == 1
            fake.release()
            assert b"message_stop" in response.read()
        fake.wait_idle()
