"""The scripted provider: what a script says is what the caller gets."""

from __future__ import annotations

import asyncio

import pytest

from op_jupyter.core.messages import (
    ModelRequest,
    ResponseDone,
    TextDelta,
    ThinkingDelta,
    ToolUseStarted,
    user_text,
)
from op_jupyter.errors import RateLimited
from op_jupyter.testing.providers import (
    HANG,
    Gate,
    ScriptedProvider,
    ScriptExhausted,
    call,
    reply,
    thinking,
)

REQUEST = ModelRequest("m", (user_text("hello"),))


async def collect(provider: ScriptedProvider) -> list[object]:
    return [delta async for delta in provider.stream(REQUEST)]


async def test_a_reply_is_streamed_in_pieces_and_ends_with_the_whole_message():
    provider = ScriptedProvider(reply(thinking("hm"), "two words", call("add", {"a": 1})))
    deltas = await collect(provider)
    assert deltas[:-1] == [
        ThinkingDelta("hm"),
        TextDelta("two "),
        TextDelta("words"),
        ToolUseStarted(2, "add"),
    ]
    done = deltas[-1]
    assert isinstance(done, ResponseDone)
    assert (done.stop_reason, done.message.text) == ("tool_use", "two words")
    assert provider.requests == [REQUEST]


async def test_calls_without_an_id_are_numbered_over_all_replies():
    provider = ScriptedProvider(reply(call("a", {}), call("b", {})), reply(call("c", "{broken")))
    uses = [use for _ in range(2) for use in (await collect(provider))[-1].message.tool_uses]
    assert [(u.id, u.arguments) for u in uses] == [
        ("call_1", "{}"),
        ("call_2", "{}"),
        ("call_3", "{broken"),
    ]


async def test_the_stream_waits_at_a_gate_until_the_test_opens_it():
    gate = Gate()
    provider = ScriptedProvider([TextDelta("a"), gate, TextDelta("b")])
    seen: list[object] = []

    async def read() -> None:
        async for delta in provider.stream(REQUEST):
            seen.append(delta)  # noqa: PERF401 -- the test looks at it midway

    task = asyncio.create_task(read())
    await gate.reached()
    assert seen == [TextDelta("a")]
    gate.open()
    await task
    assert seen == [TextDelta("a"), TextDelta("b")]


def test_a_gate_works_from_another_thread():
    gate = Gate()

    async def main() -> list[object]:
        opener = asyncio.create_task(asyncio.to_thread(lambda: (gate.wait_reached(), gate.open())))
        deltas = await collect(ScriptedProvider([gate, *reply("ok")]))
        await opener
        return deltas

    assert isinstance(asyncio.run(main())[-1], ResponseDone)


async def test_an_exception_in_a_script_is_raised_after_the_deltas_before_it():
    provider = ScriptedProvider([TextDelta("a"), RateLimited("slow down")])
    stream = provider.stream(REQUEST)
    assert await anext(stream) == TextDelta("a")
    with pytest.raises(RateLimited, match="slow down"):
        await anext(stream)
    assert provider.open_streams == 0


@pytest.mark.parametrize("where", [HANG, Gate()])
async def test_cancelling_a_silent_stream_closes_it(where):
    start = Gate()
    start.open()
    provider = ScriptedProvider([TextDelta("a"), start, where])
    task = asyncio.create_task(collect(provider))
    await start.reached()
    assert provider.open_streams == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.open_streams == 0


async def test_a_call_too_many_fails_the_test_and_a_default_answers_it():
    with pytest.raises(ScriptExhausted, match="model call 1"):
        await collect(ScriptedProvider())
    provider = ScriptedProvider(default=lambda request: reply(f"{len(request.messages)} messages"))
    assert (await collect(provider))[-1].message.text == "1 messages"
