"""Attempts: what a service stores, tells, limits and cancels while they run."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from op_jupyter.core.messages import TextBlock
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.engine import loop, registry
from op_jupyter.engine.asking import ParkedAsker
from op_jupyter.engine.attempt_host import AttemptHost
from op_jupyter.engine.event_bus import KEPT_SESSIONS, Event, EventBus
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.servers import Servers, _named_once
from op_jupyter.engine.service import Service
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_config import Limits, SessionConfig, checked_config
from op_jupyter.engine.slots import Slots
from op_jupyter.errors import (
    Busy,
    EmptyInput,
    PermissionNotPending,
    SessionActive,
    UnknownSession,
    UsageError,
)
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import Gate, Script, ScriptedProvider, call, reply
from op_jupyter.tools.functions import as_tool
from op_jupyter.tools.mcp import McpServer, McpTool, ServerConfig
from tests.support.faulty_files import FaultyFileSystem


class World:
    """A service over sessions on disk, whose model follows scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.provider = ScriptedProvider()
        self.store = SessionStore(folder / "sessions")
        self.limits = Limits(("anthropic",), "accept_edits", ("files",))
        self.servers: tuple[ServerConfig, ...] = ()
        self.service = Service(self.store, host=self._host)

    def _host(self) -> AttemptHost:
        return AttemptHost(
            lambda _provider, _model: Runtime(provider=self.provider, max_retries=1),
            self.limits,
            self.servers,
            ParkedAsker(),
            self.folder,
        )

    def says(self, *scripts: Script) -> None:
        self.provider.add(*scripts)

    def session(self, name: str = "one") -> str:
        return self.service.create_session(name)

    def kinds(self, session_id: str) -> list[str]:
        return [event.kind for event in self.service.bus.replay(session_id) or []]

    def status(self, session_id: str) -> str:
        return self.service.get_attempts(session_id)[-1].status


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.service.close()


def until(claim: Callable[[], bool]) -> None:
    """Wait until *claim* holds, as something else brings it about."""
    deadline = time.monotonic() + 10
    while not claim():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def test_a_message_and_its_attempt_are_stored_before_anything_runs(world: World) -> None:
    gate = Gate()
    world.says([gate, *reply("42")])
    one = world.session()

    sent = world.service.send_message(one, "What is the answer?")

    stored = world.store.load(one)
    assert sent.message_id in stored.nodes
    assert sent.attempt_id is not None
    assert stored.turns[sent.attempt_id].status == "running"
    assert world.status(one) == "running"
    assert world.service.wait(one, sent.attempt_id, 0.0) is None
    gate.open()
    outcome = world.service.wait(one, sent.attempt_id, 10)
    assert outcome is not None
    assert outcome.text == "42"
    assert world.status(one) == "completed"
    assert [(m.role, m.content) for m in world.service.get_messages(one)] == [
        ("user", "What is the answer?"),
        ("assistant", "42"),
    ]
    again = world.service.wait(one, sent.attempt_id)
    assert again is not None
    assert again.text == "42"


def test_an_end_that_the_disk_refuses_is_told_all_the_same(tmp_path: Path) -> None:
    world, disk, gate = World(tmp_path), FaultyFileSystem(), Gate()
    world.store = SessionStore(tmp_path / "sessions", files=disk)
    world.service = Service(world.store, host=world._host)
    world.says([gate, *reply("42")], reply("43"))
    one = world.session()
    attempt = world.service.send_message(one, "What?").attempt_id
    assert attempt is not None
    gate.wait_reached()
    disk.arm(1, forever=True)
    gate.open()
    first = world.service.wait(one, attempt, 10)
    until(lambda: registry.live(world.store, one) is None)
    assert first is not None
    assert (first.status, first.code) == ("failed", "persistence_error")
    assert world.store.load(one).turns[attempt].status == "running"
    assert world.service.wait(one, attempt, 10) == first
    disk.disarm()
    again = world.service.send_message(one, "And now?").attempt_id
    assert again is not None
    ended = world.service.wait(one, again, 10)
    assert ended is not None
    assert ended.text == "43"
    assert world.store.load(one).turns[attempt].status == "interrupted"
    world.service.close()


def test_the_bus_tells_of_an_attempt_in_order(world: World) -> None:
    world.says(reply("42"))
    one = world.session()
    with world.service.bus.subscribe(one, after=0) as events:
        attempt = world.service.send_message(one, "What?").attempt_id
        assert attempt is not None
        told: list[Event] = []
        for event in events:
            told.append(event)
            if event.kind == "attempt.completed":
                break

    big = [event.kind for event in told if "." in event.kind]
    assert big == [
        "session.created",
        "message.received",
        "attempt.created",
        "attempt.started",
        "attempt.completed",
    ]
    assert [event.sequence for event in told] == list(range(1, len(told) + 1))
    assert told[-1].data["summary"] == "42"
    assert told[-1].data["attempt_id"] == attempt
    assert "text_delta" in {event.kind for event in told}
    assert world.service.bus.replay(one, after=told[-2].sequence) == [told[-1]]


def test_a_failure_names_what_failed_and_the_session_goes_on(world: World) -> None:
    one = world.session()
    world.says([ValueError("no luck")], reply("better"))
    failed = world.service.send_message(one, "first").attempt_id
    assert failed is not None
    world.service.wait(one, failed, 10)

    assert world.status(one) == "failed"
    assert "no luck" in world.service.get_messages(one)[-1].content
    assert "attempt.failed" in world.kinds(one)
    second = world.service.send_message(one, "second").attempt_id
    assert second is not None
    world.service.wait(one, second, 10)
    assert world.service.get_attempts(one)[-1].parent_attempt_id == failed


def test_another_role_starts_no_attempt_and_the_model_hears_it(world: World) -> None:
    one = world.session()
    told = world.service.send_message(one, "The data is from 2024.", "assistant")
    noted = world.service.send_message(one, "The person left.", "system")
    assert (told.attempt_id, noted.attempt_id) == (None, None)
    assert world.provider.requests == []
    assert [m.role for m in world.service.get_messages(one)] == ["assistant", "system"]

    world.says(reply("42"))
    attempt = world.service.send_message(one, "And now?").attempt_id
    assert attempt is not None
    world.service.wait(one, attempt, 10)
    (request,) = world.provider.requests
    (message,) = request.messages
    said = [block.text for block in message.content if isinstance(block, TextBlock)]
    assert said[:2] == ["[message of role assistant]\n", "The data is from 2024."]
    assert said[2:4] == ["[message of role system]\n", "The person left."]
    assert said[-1] == "And now?"


def test_what_cannot_be_sent_is_refused_and_changes_nothing(world: World) -> None:
    one = world.session()
    with pytest.raises(EmptyInput):
        world.service.send_message(one, "  \n")
    with pytest.raises(UsageError, match="role 'tool'"):
        world.service.send_message(one, "x", "tool")
    with pytest.raises(UnknownSession):
        world.service.send_message("nothing", "x")
    with pytest.raises(UsageError, match="only reads"):
        Service(world.store).send_message(one, "x")
    gate = Gate()
    world.says([gate, *reply("42")])
    attempt = world.service.send_message(one, "first").attempt_id
    assert attempt is not None
    for role in ("user", "system"):
        with pytest.raises(Busy):
            world.service.send_message(one, "second", role)
    gate.open()
    world.service.wait(one, attempt, 10)
    assert len(world.service.get_messages(one)) == 2


def test_the_shell_is_offered_to_the_attempt_that_asks_for_it_alone(world: World) -> None:
    one = world.session()
    world.says(reply("a"), reply("b"))
    for shell in (True, False):
        attempt = world.service.send_message(one, "x", include_shell_tools=shell).attempt_id
        assert attempt is not None
        world.service.wait(one, attempt, 10)

    offered = [{tool.name for tool in request.tools} for request in world.provider.requests]
    assert "shell" in offered[0]
    assert "shell" not in offered[1]
    assert "remember" not in offered[0]


def test_a_fifth_attempt_waits_and_says_so(world: World) -> None:
    gates = [Gate() for _ in range(5)]
    world.says(*([gate, *reply("done")] for gate in gates))
    ids = [world.session(f"s{n}") for n in range(5)]
    sent = [world.service.send_message(each, "go").attempt_id for each in ids]

    until(lambda: world.status(ids[4]) == "pending")
    assert [world.status(each) for each in ids[:4]] == ["running"] * 4
    assert "attempt.started" not in world.kinds(ids[4])
    for gate in gates:
        gate.open()
    for session_id, attempt in zip(ids, sent, strict=True):
        assert attempt is not None
        outcome = world.service.wait(session_id, attempt, 10)
        assert outcome is not None
        assert outcome.status == "completed"
    assert "attempt.started" in world.kinds(ids[4])


def test_how_many_run_at_once_is_for_the_user_to_say(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_ATTEMPTS_AT_ONCE", "1")
    gate = Gate()
    world.says([gate, *reply("done")], reply("done"))
    first, second = world.session("first"), world.session("second")
    sent = {each: world.service.send_message(each, "go").attempt_id for each in (first, second)}
    until(lambda: world.status(second) == "pending")
    gate.open()
    for session_id, attempt in sent.items():
        outcome = world.service.wait(session_id, attempt or "", 10)
        assert outcome is not None and outcome.status == "completed"


def test_places_go_to_whoever_waits_longest_and_are_never_lost() -> None:
    slots = Slots()
    order: list[str] = []

    async def work(name: str) -> None:
        async with slots.held(1, lambda: order.append(f"{name} waits")):
            order.append(name)

    async def all_of_it() -> None:
        held = asyncio.Event()

        async def first() -> None:
            async with slots.held(1, lambda: None):
                await held.wait()

        tasks = [asyncio.create_task(first())]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(work(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        held.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await work("d")

    loop.run_sync(all_of_it)
    assert order == ["a waits", "b waits", "c waits", "b", "c", "d"]


def test_cancelling_works_in_every_phase(world: World) -> None:
    blockers = [Gate() for _ in range(4)]
    world.says(*([gate, *reply("x")] for gate in blockers))
    busy = [world.session(f"busy{n}") for n in range(4)]
    for each in busy:
        world.service.send_message(each, "go")
    one = world.session()
    assert world.service.cancel_current(one) is False

    waiting = world.service.send_message(one, "pending").attempt_id
    until(lambda: world.status(one) == "pending")
    assert world.service.cancel_current(one) is True
    assert waiting is not None
    world.service.wait(one, waiting, 10)
    assert world.status(one) == "cancelled"
    for each in busy:  # while the model answers
        assert world.service.cancel_current(each) is True
    until(lambda: all(world.status(each) == "cancelled" for each in busy))

    world.says(reply("", call("shell", {"command": "true"})))
    asking = world.service.send_message(one, "ask me", include_shell_tools=True).attempt_id
    until(lambda: world.status(one) == "waiting_user")
    assert world.service.cancel_current(one) is True
    assert asking is not None
    world.service.wait(one, asking, 10)
    assert world.status(one) == "cancelled"
    assert world.service.cancel_current(one) is False
    assert world.kinds(one).count("attempt.cancelled") == 2


def test_a_question_waits_for_whoever_answers_it(world: World) -> None:
    one = world.session()
    world.says(reply("", call("shell", {"command": "true"})), reply("gone"))
    attempt = world.service.send_message(one, "do it", include_shell_tools=True).attempt_id
    assert attempt is not None
    until(lambda: bool(world.service.pending(one)))

    (card,) = world.service.pending(one)
    with pytest.raises(PermissionNotPending):
        world.service.answer(one, "other", PermissionAnswer("allow", "click"))
    with pytest.raises(SessionActive):
        world.service.delete_session(one)
    world.service.answer(one, card.id, PermissionAnswer("allow", "click"))
    outcome = world.service.wait(one, attempt, 10)
    assert outcome is not None
    assert outcome.text == "gone"
    world.service.delete_session(one)
    assert world.service.bus.replay(one) == []


@pytest.mark.parametrize("by_link", [False, True])
def test_files_and_metrics_of_an_attempt_are_told(
    world: World, tmp_path: Path, by_link: bool
) -> None:
    if by_link:  # as temporary folders are on macOS
        (tmp_path / "work").mkdir()
        (tmp_path / "link").symlink_to("work")
        world.folder = tmp_path / "link"
    one = world.session()
    table = "accuracy,loss,name\n0.9,inf,x\n"
    world.says(
        reply(
            "",
            call("write_file", {"path": "metrics.csv", "text": table}),
            call("write_file", {"path": "bad-metrics.csv", "text": '\0\x00,\n"1'}),
            call("write_file", {"path": "plot.txt", "text": "***"}),
        ),
        reply("done"),
    )
    attempt = world.service.send_message(one, "train").attempt_id
    assert attempt is not None
    world.service.wait(one, attempt, 10)

    (told,) = world.service.get_attempts(one)
    assert told.metrics == {"accuracy": 0.9}
    assert [Path(a.path).name for a in told.artifacts] == [
        "bad-metrics.csv",
        "metrics.csv",
        "plot.txt",
    ]
    assert told.artifacts[2].size_bytes == 3
    assert len(told.artifacts[2].sha256) == 64
    assert world.service.get_messages(one)[-1].metadata["metrics"] == {"accuracy": 0.9}


WIDENING = (
    *("mcpServers", "mcp_servers", "command", "base_url", "baseURL", "tool-paths", "allow", "env"),
    *("rules", "allow_everything", "shell", "include_shell_tools", "api_key"),
)


@pytest.mark.parametrize("key", WIDENING)
def test_a_session_cannot_widen_what_it_may(world: World, key: str) -> None:
    with pytest.raises(UsageError, match=f"may not set {key}"):
        world.service.create_session("x", {key: ["anything"], "model": "m"})
    assert world.service.list_sessions() == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"colour": 1, "flavour": 2}, "no setting colour, flavour"),
        ({"provider": "http://evil.example"}, "none that your settings know"),
        ({"mode": "auto"}, "'accept_edits' at most"),
        ({"mode": "yolo"}, "use read_only"),
        ({"mcp": ["other"]}, "other is none of them"),
        ({"mcp": "files"}, "list of names"),
        ({"max_steps": 10_000}, "max_steps 10000"),
        ({"max_steps": True}, "max_steps True"),
        ({"model": ""}, "no name of a model"),
        ({"memory": "yes"}, "use true or false"),
    ],
)
def test_what_a_session_cannot_be_configured_to_is_said(
    config: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        checked_config(config, Limits(("anthropic",), "accept_edits", ("files",)))


def test_a_session_chooses_among_what_there_is(world: World) -> None:
    good = {"provider": "anthropic", "model": "m", "mode": "read_only", "tools": ["recall"],
            "mcp": ["files"], "memory": True, "max_steps": 3}  # fmt: skip
    assert checked_config(good, world.limits) == SessionConfig(
        "anthropic", "m", "read_only", 3, ("recall",), ("files",), True
    )
    one = world.service.create_session("x", good)
    world.says(reply("", call("recall", {})), reply("nothing"))
    attempt = world.service.send_message(one, "what do you know?").attempt_id
    assert attempt is not None
    world.service.wait(one, attempt, 10)
    assert [tool.name for tool in world.provider.requests[0].tools] == ["recall"]
    assert world.store.load(one).meta["mode"] == "read_only"


def test_a_server_that_does_not_start_costs_its_tools_alone(world: World) -> None:
    world.servers = (ServerConfig("files", "/no/such/program"),)
    one = world.session()
    world.says(reply("42"))
    attempt = world.service.send_message(one, "go").attempt_id
    assert attempt is not None
    outcome = world.service.wait(one, attempt, 10)

    assert outcome is not None
    assert outcome.status == "completed"
    warnings = [e for e in world.service.bus.replay(one) or [] if e.kind == "mcp.warning"]
    assert len(warnings) == 1
    assert "files could not be started" in warnings[0].data["message"]


def test_of_two_tools_with_one_name_the_first_servers_wins() -> None:
    def first() -> str:
        """One."""
        return "first"

    mine, theirs, other = (as_tool(first) for _ in range(3))
    tools, told = _named_once([(mine,), (theirs, other)])

    assert tools == (mine,)
    assert told[0] == "two MCP servers offer a tool called first; the first one's is offered"


def test_what_a_session_is_configured_to_holds_for_its_attempts(world: World) -> None:
    one = world.service.create_session("x", {"max_steps": 1, "model": "other"})
    world.says(reply("", call("list_files", {})))
    attempt = world.service.send_message(one, "go").attempt_id
    outcome = world.service.wait(one, attempt or "", 10)
    assert outcome is not None and outcome.code == "max_model_calls"
    assert [request.model for request in world.provider.requests] == ["other"]


def test_a_session_gets_the_tools_of_the_servers_it_chose_alone(world: World) -> None:
    def tool_of(server: str) -> McpTool:
        listed = SimpleNamespace(name="add", description="", title="", input_schema={})
        return McpTool(McpServer(ServerConfig(server, "python"), world.folder), listed)

    servers = Servers()
    servers.tools = (tool_of("a"), tool_of("a__b"))
    runtime = Runtime(provider=world.provider)
    host = AttemptHost(
        lambda _provider, _model: runtime, world.limits, (), ParkedAsker(), world.folder, servers
    )
    memory = MemoryStore()
    session = AgentSession(memory.open(memory.create_session()))

    def offered(mcp: tuple[str, ...] | None) -> list[str]:
        start, _ = host.start_of(session, "go", SessionConfig(mcp=mcp), shell=False)
        return [tool.spec.name for tool in start.tools if "__" in tool.spec.name]

    assert offered(None) == ["a__add", "a__b__add"]
    assert offered(("a",)) == ["a__add"]
    assert offered(("a__b",)) == ["a__b__add"]
    assert offered(()) == []


def test_closing_the_service_ends_what_runs(world: World) -> None:
    one = world.session()
    world.says([Gate(), *reply("never")])
    world.service.send_message(one, "go")
    world.service.close()
    assert world.status(one) == "cancelled"


def test_a_slow_or_raising_subscriber_is_dropped_and_delays_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = EventBus(time.time, kept=5, behind=10)
    slow, quick = bus.subscribe(), bus.subscribe("a")
    seen = threading.Event()

    def raising(event: Event) -> None:
        seen.set()
        raise ValueError(event.kind)

    broken = bus.listen(raising, "a")
    with caplog.at_level(logging.WARNING):
        for number in range(30):
            bus.publish("a", "x", {"n": number})
            assert quick.get(1) is not None
        assert seen.wait(5)
        until(lambda: "raised and was dropped" in caplog.text)

    assert slow.dropped
    assert not quick.dropped
    assert "fell 10 behind" in caplog.text
    assert len(list(slow)) == 10
    broken.close()
    assert [e.sequence for e in bus.replay("a", 25) or []] == [26, 27, 28, 29, 30]
    assert bus.replay("a", 3) is None
    with bus.subscribe("a", after=3) as late:
        assert late.missed
    bus.free("a")
    assert bus.replay("a") == []
    assert quick.get(1) is None
    assert bus.publish("a", "x", {}).sequence == 1


def test_what_is_kept_for_replay_does_not_grow_with_the_number_of_sessions() -> None:
    bus = EventBus(time.time)
    bus.publish("first", "x", {})
    for number in range(KEPT_SESSIONS):
        bus.publish("watched", "x", {})
        bus.publish(f"s{number}", "x", {})

    assert bus.replay("first") is None  # it is said that something is missing
    assert len(bus.replay("watched") or []) == KEPT_SESSIONS
    assert bus.publish("first", "x", {}).sequence == 2
    assert [e.sequence for e in bus.replay("first", after=1) or []] == [2]


def test_events_published_from_many_threads_are_numbered_without_gaps() -> None:
    bus = EventBus(time.time, kept=1000)
    threads = [
        threading.Thread(target=lambda: [bus.publish("a", "x", {}) for _ in range(50)])
        for _ in range(8)
    ]
    with bus.subscribe("a") as events:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = [events.get(1) for _ in range(400)]

    assert [event.sequence for event in got if event is not None] == list(range(1, 401))


def test_messages_of_many_threads_all_stay_in_the_conversation(world: World) -> None:
    one = world.session()
    texts = [f"note {number};" for number in range(12)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda text: world.service.send_message(one, text, "system"), texts))
    world.says(reply("so"))
    world.service.wait(one, world.service.send_message(one, "go").attempt_id or "")
    sent = str(world.provider.requests[0].messages)
    assert [text for text in texts if text not in sent] == []


def test_an_attempt_that_its_process_did_not_live_to_the_end_of_is_interrupted(
    world: World,
) -> None:
    gate = Gate()
    world.says([gate, *reply("never")])
    one = world.session()
    world.service.send_message(one, "go")
    gate.wait_reached()
    world.store.abandon()  # as the end of the process does
    world.service.close()  # ends what is left of it here, of which nothing is stored
    store = SessionStore(world.folder / "sessions")
    assert Service(store).get_attempts(one)[0].status == "running"
    store.open(one).close()
    (attempt,) = Service(store).get_attempts(one)
    assert attempt.status == "interrupted"
    assert attempt.finished_at is not None
