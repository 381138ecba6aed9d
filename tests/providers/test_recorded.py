"""Record and replay around a provider."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from op_jupyter.core.messages import (
    Message,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolResultBlock,
    ToolUseStarted,
    user_text,
)
from op_jupyter.core.recording import Folders
from op_jupyter.core.redact import Redactor
from op_jupyter.errors import (
    ConfigurationError,
    CorruptRecord,
    ProviderConnectionError,
    RateLimited,
    RecordingMissing,
)
from op_jupyter.providers.base import Capabilities
from op_jupyter.providers.recorded import RecordedProvider, parse_replay_mode
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.testing.provider_contract import (
    StreamingContract,
    ToolCallingContract,
    collect,
    collect_until_error,
)
from op_jupyter.testing.providers import HANG, Gate, ScriptedProvider, call, reply, thinking

FOLDERS = Folders.of(workspace=Path("/home/ada/proj"), home=Path("/home/ada"))
ELSEWHERE = Folders.of(workspace=Path("/srv/ci/work"), home=Path("/srv/ci"))
REQUEST = ModelRequest("m", (user_text("What is 1 + 2?"),), system="Be brief.")


def never():
    raise AssertionError("a replay asked for the real provider")


def recorder(path, *scripts, mode="record", **values):
    inner = ScriptedProvider(*scripts)
    values = {"folders": FOLDERS, **values}
    return RecordedProvider(lambda: inner, FileCassette(path), mode, **values), inner


def replayer(path, **values):
    return RecordedProvider(never, FileCassette(path), "replay", **{"folders": FOLDERS, **values})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lesson.cassette"


class RecordedContract(ToolCallingContract, StreamingContract):
    mode = "record"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.tmp_path = tmp_path

    def around(self, inner):
        cassette = FileCassette(self.tmp_path / "contract.cassette")
        return RecordedProvider(lambda: inner, cassette, self.mode, folders=FOLDERS)

    @asynccontextmanager
    async def answering(self, text):
        yield self.around(ScriptedProvider(default=lambda request: reply(text)))

    @asynccontextmanager
    async def waiting(self):
        start = Gate()
        start.open()
        inner = ScriptedProvider([TextDelta("a"), start, HANG], reply("ok"))
        yield self.around(inner), start.reached

    @asynccontextmanager
    async def unreachable(self):
        yield self.around(ScriptedProvider([ProviderConnectionError("nobody there")]))

    @asynccontextmanager
    async def breaking_midway(self):
        broken = ProviderConnectionError("gone", retryable=False, semantic_output=True)
        yield self.around(ScriptedProvider([TextDelta("It"), broken]))

    @asynccontextmanager
    async def calling(self, name, arguments):
        yield self.around(ScriptedProvider(reply(call(name, arguments))))


class TestRecordContract(RecordedContract):
    mode = "record"


class TestAutoContract(RecordedContract):
    mode = "auto"


class TestOffContract(RecordedContract):
    mode = "off"


async def test_a_replay_yields_what_was_recorded_without_the_real_provider(path):
    provider, _ = recorder(path, reply(thinking("hm"), "I add.", call("add", {"a": 1})))
    recorded = await collect(provider, REQUEST)
    replayed = await collect(replayer(path), REQUEST)
    assert replayed[:-1] == [ThinkingDelta("hm"), TextDelta("I add."), ToolUseStarted(2, "add")]
    assert replayed[-1] == recorded[-1]


async def test_a_whole_tool_conversation_replays_on_another_machine_with_other_ids(path):
    def conversation(done, folder):
        result = ToolResultBlock(done.message.tool_uses[0].id, (TextBlock(f"{folder}/a.csv: 3"),))
        return replace(
            REQUEST, messages=(*REQUEST.messages, done.message, Message("user", (result,)))
        )

    asks = call("count", {"path": "/home/ada/proj/a.csv"}, id="toolu_x")
    provider, _ = recorder(path, reply(thinking("a secret thought"), asks), reply("3 rows"))
    first = (await collect(provider, REQUEST))[-1]
    await collect(provider, conversation(first, "/home/ada/proj"))

    replay = replayer(path, folders=ELSEWHERE)
    first = (await collect(replay, REQUEST))[-1]
    assert first.message.tool_uses[0].id == "call_1"
    assert "/srv/ci/work/a.csv" in first.message.tool_uses[0].arguments
    done = (await collect(replay, conversation(first, "/srv/ci/work")))[-1]
    assert done.message.text == "3 rows"


async def test_recording_asks_every_time_and_auto_only_once(path):
    provider, inner = recorder(path, reply("one"), reply("two"), mode="record")
    for _ in range(2):
        await collect(provider, REQUEST)
    assert len(inner.requests) == 2
    provider, inner = recorder(path, reply("never"), reply("live"), mode="auto")
    assert (await collect(provider, REQUEST))[-1].message.text == "one"
    assert inner.requests == []
    await collect(provider, replace(REQUEST, system="Be long."))
    assert len(inner.requests) == 1
    assert (await collect(replayer(path), replace(REQUEST, system="Be long.")))[
        -1
    ].message.text == ("never")


async def test_off_neither_reads_nor_writes(path):
    provider, _ = recorder(path, reply("live"), mode="off")
    await collect(provider, REQUEST)
    assert not path.exists()


async def test_a_failed_call_is_not_recorded(path):
    provider, _ = recorder(path, [TextDelta("It"), RateLimited("slow down")], reply("fine"))
    await collect_until_error(provider, REQUEST)
    assert not path.exists()
    await collect(provider, REQUEST)
    assert (await collect(replayer(path), REQUEST))[-1].message.text == "fine"


async def test_an_answer_without_its_end_is_not_recorded(path):
    provider, _ = recorder(path, [TextDelta("It is")])
    await collect(provider, REQUEST)
    assert not path.exists()


async def test_a_changed_word_fails_and_shows_what_changed(path):
    provider, _ = recorder(path, reply("Paris"), reply("other"))
    await collect(provider, ModelRequest("m", (user_text("Name the capital of France, please"),)))
    await collect(provider, ModelRequest("m", (user_text("Something else entirely"),)))
    changed = ModelRequest("m", (user_text("Name the capital of Spain, please"),))
    _, error = await collect_until_error(replayer(path), changed)
    assert isinstance(error, RecordingMissing)
    assert not error.retryable
    message = str(error)
    assert "lesson.cassette has no recording of this request" in message
    assert "--replay record" in message
    assert "- user: Name the capital of France, please" in message
    assert "+ user: Name the capital of Spain, please" in message
    assert "Something else" not in message
    assert error.difference in message


async def test_an_empty_cassette_says_so(path):
    _, error = await collect_until_error(replayer(path), REQUEST)
    assert "no other; record it with --replay record" in str(error)


async def test_a_replay_has_the_abilities_of_what_was_recorded(path):
    can = Capabilities(
        "local", "tiny", context_tokens=8192, max_output_tokens=512, max_tools=2, small=True
    )
    inner = ScriptedProvider(reply("hi"), capabilities=can)
    cassette = FileCassette(path)
    await collect(RecordedProvider(lambda: inner, cassette, "record", folders=FOLDERS), REQUEST)
    assert replayer(path).capabilities == can
    assert replayer(path, name="local").capabilities == can
    assert replayer(path, name="anthropic").capabilities.name == "recording"


async def test_auto_needs_no_provider_while_everything_is_recorded(path):
    def unconfigured():
        raise ConfigurationError("no key")

    provider, inner = recorder(path, reply("hi"))
    await collect(provider, REQUEST)
    auto = RecordedProvider(unconfigured, FileCassette(path), "auto", folders=FOLDERS)
    assert auto.capabilities == inner.capabilities
    assert (await collect(auto, REQUEST))[-1].message.text == "hi"
    with pytest.raises(ConfigurationError, match="no key"):
        await collect(auto, replace(REQUEST, system="other"))


async def test_auto_asks_what_is_missing_of_the_recorded_provider_alone(path):
    provider, _ = recorder(path, reply("hi"))
    await collect(provider, REQUEST)
    before = path.read_bytes()
    other = ScriptedProvider(reply("no"), capabilities=Capabilities("anthropic", "claude"))
    auto = RecordedProvider(lambda: other, FileCassette(path), "auto", folders=FOLDERS)
    assert auto.capabilities.name == "scripted"
    assert (await collect(auto, REQUEST))[-1].message.text == "hi"
    with pytest.raises(ConfigurationError, match=r"recorded with scripted, and anthropic would"):
        await collect(auto, replace(REQUEST, system="other"))
    assert (other.requests, path.read_bytes()) == ([], before)


async def test_the_model_that_was_configured_is_the_default_of_the_replay(path):
    provider, _ = recorder(path, reply("hi"), model="large-1")
    assert provider.capabilities.default_model == "large-1"
    await collect(provider, REQUEST)
    assert replayer(path).capabilities.default_model == "large-1"


async def test_abilities_that_were_spoilt_by_hand_are_one_error(path):
    provider, _ = recorder(path, reply("hi"))
    await collect(provider, REQUEST)
    text = path.read_text(encoding="utf-8")
    for old, new in (
        ('"context_tokens": 200000', '"context_tokens": "many"'),
        ('"name"', '"Name"'),
    ):
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(CorruptRecord, match=r"lesson\.cassette: .*provider"):
            _ = replayer(path).capabilities


async def test_secrets_and_home_never_reach_the_file(path):
    secret = "correct-horse-battery"
    redactor = Redactor([secret])
    provider, _ = recorder(
        path,
        reply(f"it is {secret}", call("a", {"k": secret, "p": "/home/ada/x"})),
        redactor=redactor,
    )
    request = ModelRequest("m", (user_text(f"my key {secret}"),), session_key="session-77")
    await collect(provider, request)
    text = path.read_text(encoding="utf-8")
    for hidden in (secret, "/home/ada", "session-77"):
        assert hidden not in text
    assert (await collect(replayer(path, redactor=redactor), request))[-1].message.tool_uses


async def test_concurrent_calls_are_all_recorded(path):
    inner = ScriptedProvider(default=lambda request: reply(f"to {request.system}"))
    provider = RecordedProvider(lambda: inner, FileCassette(path), "record", folders=FOLDERS)
    requests = [replace(REQUEST, system=str(i)) for i in range(20)]
    await asyncio.gather(*(collect(provider, r) for r in requests))
    replay = replayer(path)
    answers = [(await collect(replay, r))[-1].message.text for r in requests]
    assert answers == [f"to {i}" for i in range(20)]


async def test_closing_closes_the_inner_provider_only_when_there_is_one(path):
    provider, inner = recorder(path, reply("hi"))
    await provider.aclose()
    assert inner.closed == 0
    await collect(provider, REQUEST)
    await provider.aclose()
    assert inner.closed == 1


async def test_a_recorded_thinking_block_comes_back_whole(path):
    provider, _ = recorder(path, reply(thinking("hm", signature="abc"), "ok"))
    await collect(provider, REQUEST)
    done = (await collect(replayer(path), REQUEST))[-1]
    assert isinstance(done, ResponseDone)
    assert done.message.content[0] == OpaqueBlock(
        {"type": "thinking", "thinking": "hm", "signature": "abc"}
    )


def test_an_unknown_mode_is_refused_with_the_modes_there_are():
    assert parse_replay_mode("auto") == "auto"
    with pytest.raises(ConfigurationError, match="record, replay, auto, off"):
        parse_replay_mode("rewind")
