"""MCP servers: a real one, in a process of its own, on the background loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.core.permissions import decide
from op_jupyter.engine import loop
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ConfigurationError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.base import Tool, ToolContext, ToolOutput
from op_jupyter.tools.gate import gate_call, places_of
from op_jupyter.tools.mcp import CLOSE_SECONDS, McpServer, ServerConfig, ServerGone, parse_server
from tests.engine.harness import (
    DENY,
    ScriptedAsker,
    run,
    start_in_background,
    states,
    texts,
    wait_phase,
)

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
Tools = Mapping[str, Tool]


def config(*args: str, command: str = sys.executable) -> ServerConfig:
    return ServerConfig("small", command, args or (str(SERVER),), {"EXTRA": "1"})


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    server = McpServer(config(), tmp_path_factory.mktemp("work"), start_seconds=60)
    yield {tool.spec.name: tool for tool in loop.run_sync(server.tools)}
    loop.run_sync(server.close)


def use(tools: Tools, name: str, **arguments: Any) -> ToolOutput:
    context = ToolContext(Path("/"), "c1", "t1", lambda _: None)
    return loop.run_sync(lambda: tools[f"small__{name}"].run(arguments, context))


def text(output: ToolOutput) -> str:
    return "".join(part.text for part in output.content if isinstance(part, TextBlock))


def test_tools_carry_the_name_of_their_server_and_its_schema(tools: Tools) -> None:
    spec = tools["small__add"].spec
    assert spec.description == "Add two numbers."
    assert set(spec.input_schema["properties"]) == {"a", "b"}
    assert len(tools) == 8


def test_a_call_is_answered_and_an_error_is_an_error_result(tools: Tools) -> None:
    assert (use(tools, "add", a=1, b=2).state, text(use(tools, "add", a=1, b=2))) == (
        "succeeded",
        "3",
    )
    assert use(tools, "fail").state == "failed"


def test_an_image_is_an_image(tools: Tools) -> None:
    (block,) = use(tools, "picture").content
    assert isinstance(block, ImageBlock)
    assert block.media_type == "image/png"


def test_a_server_gets_what_is_configured_and_no_secret(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = text(use(tools, "secret")).split(",")
    assert "EXTRA" in names
    assert not [name for name in names if "KEY" in name or "TOKEN" in name]


def test_a_call_of_a_server_asks_whatever_the_tool_says_of_itself(
    tools: Tools, tmp_path: Path
) -> None:
    verdict = decide(
        gate_call(tools["small__add"], {"a": 1, "b": 2}, tmp_path),
        places=places_of(tmp_path),
        mode="accept_edits",
        rules=(),
        interactive=True,
    )
    assert (verdict.kind, verdict.rule_text) == ("ask", "small__add")


def test_a_denied_call_never_reaches_the_server_and_a_long_result_is_cut(
    tools: Tools, tmp_path: Path
) -> None:
    store = MemoryStore()
    session = AgentSession(store.open(store.create_session("s1")))
    target = tmp_path / "made"
    writing = call("small__write", {"path": str(target), "text": "x"})
    asker = ScriptedAsker([DENY])
    run(session, ScriptedProvider(reply(writing)), list(tools.values()), asker=asker)
    assert states(session) == ["denied"]
    assert not target.exists()
    loop.run_sync(session.set_permission_mode, "auto")
    provider = ScriptedProvider(
        reply(writing, call("small__flood", {}), call("small__add", {"a": "x"})), reply("done")
    )
    run(session, provider, list(tools.values()))
    assert target.read_text() == "x"
    assert states(session)[1:] == ["succeeded", "succeeded", "failed"]
    assert len(texts(session)[2]) < 40_000
    assert "InvalidArguments" in texts(session)[3]


def test_a_server_that_dies_is_an_error_result_and_the_next_call_starts_it_again(
    tools: Tools,
) -> None:
    died = use(tools, "die")
    assert died.state == "failed"
    assert "the MCP server small ended" in text(died)
    assert text(use(tools, "add", a=1, b=3)) == "4"


def test_a_call_that_is_cancelled_leaves_the_server_usable(tools: Tools) -> None:
    asked = asyncio.Event()

    async def cancelled() -> None:
        context = ToolContext(Path("/"), "c1", "t1", lambda _: None)
        task = asyncio.ensure_future(tools["small__hang"].run({}, context))
        loop_now = asyncio.get_running_loop()
        loop_now.call_later(0.05, asked.set)
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_sync(cancelled)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (config(command="there-is-no-such-program"), "no such program"),
        (config(str(SERVER), "--refuse"), "ended"),
    ],
)
def test_a_server_that_cannot_be_started_says_so(
    wrong: ServerConfig, words: str, tmp_path: Path
) -> None:
    server = McpServer(wrong, tmp_path)
    with pytest.raises(ServerGone, match=words):
        loop.run_sync(server.tools)
    loop.run_sync(server.close)


# -- servers that go silent

HANG = Path(__file__).parents[1] / "support" / "mcp_hang.py"


def silent_at(stage: str, folder: Path, seconds: float) -> McpServer:
    return McpServer(config(str(HANG), stage), folder, start_seconds=seconds)


def test_a_server_that_goes_silent_is_given_up_in_time(tmp_path: Path) -> None:
    server = silent_at("start", tmp_path, 0.5)
    with pytest.raises(ServerGone, match=r"small did not answer within 0\.5 seconds"):
        loop.run_sync(server.tools)
    loop.run_sync(server.close)
    server = silent_at("list", tmp_path, 60.0)
    loop.run_sync(server._running)
    server._start_seconds = 0.2
    with pytest.raises(ServerGone, match=r"small did not list its tools within 0\.2 seconds"):
        loop.run_sync(server.tools)
    loop.run_sync(server.close)


@pytest.mark.parametrize("stage", ["start", "list"])
def test_waiting_for_a_silent_server_can_be_cancelled(stage: str, tmp_path: Path) -> None:
    server = silent_at(stage, tmp_path, 60.0)

    async def cancelled() -> None:
        asking = asyncio.ensure_future(server.tools())
        done, _ = await asyncio.wait({asking}, timeout=0.3)
        assert not done
        asking.cancel()
        done, _ = await asyncio.wait({asking}, timeout=2)
        assert asking.cancelled()
        await server.close()

    loop.run_sync(cancelled)


def test_a_call_that_a_server_never_answers_is_an_error_result_and_stops_with_the_turn(
    tmp_path: Path,
) -> None:
    server = silent_at("call", tmp_path, 60.0)
    (tool,) = loop.run_sync(server.tools)
    tool.timeout = 0.3  # type: ignore[misc]
    store = MemoryStore()
    session = AgentSession(store.open(store.create_session("s1")))
    loop.run_sync(session.set_permission_mode, "auto")
    look = call("small__look", {})
    assert run(session, ScriptedProvider(reply(look), reply("then not")), [tool]).text == "then not"
    assert texts(session)[0].startswith("TimedOut: no result after 0.3 seconds")
    tool.timeout = 60.0  # type: ignore[misc]
    turn_id, job = start_in_background(session, ScriptedProvider(reply(look)), [tool])
    loop.run_sync(wait_phase, session, "running_tools")
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(5).status == "cancelled"
    loop.run_sync(server.close)


def test_a_server_that_does_not_end_is_killed_and_holds_nobody_up(tmp_path: Path) -> None:
    server = silent_at("shutdown", tmp_path, 60.0)
    (tool,) = loop.run_sync(server.tools)
    context = ToolContext(Path("/"), "c1", "t1", lambda _: None)
    assert text(loop.run_sync(lambda: tool.run({}, context))) == "seen"
    loop.run_sync(server.close)
    assert server._ending == set(), f"it lives on after {CLOSE_SECONDS} seconds"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a b", {"command": "x"}, "use letters"),
        ("a", {}, "needs a command"),
        ("a", {"command": 1}, "needs a command"),
        ("a", {"command": "x", "args": "y"}, "list of texts"),
        ("a", {"command": "x", "env": {"A": 1}}, "has to hold texts"),
        ("a", {"command": "x", "url": "y"}, "not url"),
        ("a", "x", "knows command, args and env"),
    ],
)
def test_a_table_that_describes_no_server_is_refused(name: str, data: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_server(name, data, "config.toml")
