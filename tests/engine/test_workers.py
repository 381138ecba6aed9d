"""Calls that run elsewhere: recorded as if they had been made here."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import pytest

from op_jupyter import (
    Runtime,
    SessionStore,
    WorkerPool,
    agentic_function,
    agentic_map,
    create_runtime,
    llm,
    session_context,
    set_ask_handler,
    submit,
)
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.recording import Folders
from op_jupyter.core.redact import Redactor
from op_jupyter.engine import loop
from op_jupyter.engine.prompts import request_of
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.workers.line import Line, Switchboard
from op_jupyter.engine.workers.parcels import Address, Order, Outcome
from op_jupyter.engine.workers.process import serve
from op_jupyter.errors import (
    AuthenticationFailed,
    CannotAsk,
    ConfigurationError,
    GraphError,
    MapFailed,
    NotPortable,
    StoreError,
    UsageError,
    WorkerLost,
)
from op_jupyter.providers.anthropic import AnthropicProvider
from op_jupyter.providers.callable import CallableProvider
from op_jupyter.providers.claude_code import ClaudeCodeProvider
from op_jupyter.providers.local import LocalProvider
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.providers.recorded import RecordedProvider, ReplayMode
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.store.files import FileSystem
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine import worker_functions as functions
from tests.engine.harness import ScriptedAsker, assert_sound, start_in_background
from tests.engine.worker_functions import Box, classify, fragile, think

SECRET = "sk-ant-" + "k" * 40


class SteadyPool(WorkerPool):
    """A pool that does not start anew because pytest tells each test its name."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        return super().submit(fn, *args, **kwargs)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with SteadyPool(2) as pool:
        yield pool


def in_session(store: Any, **options: Any) -> session_context:
    return session_context("s1", store=store, runtime=Runtime(call=think), **options)


def tree(session: AgentSession, caller: str | None = None) -> list[Any]:
    """Names and states of nodes, each with what it called."""
    return [(n.name, n.status, *tree(session, n.id)) for n in session.dag.children(caller)]


CALLED = ("completed", ("callable", "completed"))


def test_values_come_in_order_and_nodes_hang_under_the_right_caller(
    store: MemoryStore, pool: WorkerPool
) -> None:
    @agentic_function
    def outer(reviews: list[str]) -> list[str]:
        """Classify many."""
        llm("before")
        return agentic_map(classify, reviews, pool)

    with in_session(store) as handle:
        assert outer(["a", "b", "c"]) == ["about a", "about b", "about c"]
        assert agentic_map(classify, ["d"], pool) == ["about d"]
        assert tree(handle.agent) == [
            ("outer", "completed", ("callable", "completed"), *[("classify", *CALLED)] * 3),
            ("classify", *CALLED),
        ]
        seqs = [n.seq for n in handle.agent.dag]
        assert seqs == sorted(set(seqs))
        assert [t.status for t in handle.agent.dag.turns.values()] == ["completed"] * 2
        assert_sound(handle.agent)


def prompts_of(session: AgentSession) -> list[Any]:
    dag, read = session.dag, session.store.read_blob
    found = [request_of(dag, n.id, read) for n in dag if n.role == "llm"]
    assert all(proven for _, proven in found)
    return [request for request, _ in found]


def test_a_worker_sends_the_prompts_that_would_be_sent_here(
    store: MemoryStore, pool: WorkerPool
) -> None:
    """With history, with callers that show what they did, and with functions inside."""

    def program(run: Any) -> list[Any]:
        @agentic_function(expose="full")
        def outer() -> str:
            """Do all."""
            llm("before")
            return run(functions.twice, "owls")

        with session_context(store=store, runtime=Runtime(call=think)) as handle:
            llm("hello")
            functions.twice("bats")
            outer()
            run(functions.later, "cats")
            run(functions.needs_runtime, "dogs")
            run(functions.secretly, "eels")
            llm("and now?")
            assert_sound(handle.agent)
            return prompts_of(handle.agent)

    def here(function: Any, item: str) -> Any:
        value = function(item)
        return asyncio.run(value) if asyncio.iscoroutine(value) else value

    def elsewhere(function: Any, item: str) -> Any:
        return agentic_map(function, [item], pool)[0]

    away, at_home = program(elsewhere), program(here)
    assert [a.messages for a in away] == [b.messages for b in at_home]
    assert [a.system for a in away] == [b.system for b in at_home]


def test_calls_side_by_side_do_not_see_each_other_and_later_ones_see_all(
    store: MemoryStore, pool: WorkerPool
) -> None:
    with in_session(store) as handle:
        agentic_map(classify, ["a", "b", "c"], pool)
        llm("and now?")
        *side_by_side, last = prompts_of(handle.agent)
    assert all(len(request.messages) == 1 for request in side_by_side)
    assert "".join(m.content[0].text for m in last.messages[:-1] if m.role == "user") == "".join(
        f'classify({{"review": "{c}"}})' for c in "abc"
    )


def test_what_fails_costs_only_its_item(store: MemoryStore, pool: WorkerPool) -> None:
    with in_session(store) as handle:
        with pytest.raises(MapFailed, match=r"2 of 4 items failed; the first is item 1") as caught:
            agentic_map(fragile, [1, 9, 13, 2], pool)
        assert tree(handle.agent) == [
            ("fragile", "completed"),
            ("fragile", "error"),
            ("fragile", "error"),
            ("fragile", "completed"),
        ]
        dead, failed = [n for n in handle.agent.dag if n.status == "error"]
    failure = caught.value
    assert failure.results == [1, None, None, 2]
    assert isinstance(failure.errors[1], WorkerLost) and "SIGKILL" in str(failure.errors[1])
    assert isinstance(failure.errors[2], ValueError)
    assert 'raise ValueError("thirteen")' in failure.errors[2].__notes__[0]
    assert dead.metadata["error"]["type"] == "WorkerLost"
    assert 'raise ValueError("thirteen")' in failed.metadata["error"]["traceback"]


def test_errors_can_take_the_place_of_values(store: MemoryStore, pool: WorkerPool) -> None:
    with in_session(store):
        first, second = agentic_map(fragile, [13, 1], pool, return_exceptions=True)
    assert isinstance(first, ValueError) and second == 1


def test_plain_and_traced_functions_are_recorded_as_steps(
    store: MemoryStore, pool: WorkerPool
) -> None:
    with in_session(store) as handle:
        assert agentic_map(functions.length, ["abc"], pool) == [3]
        assert agentic_map(functions.ask_plainly, ["owls"], pool) == ["about owls"]
        assert tree(handle.agent) == [("length", "completed"), ("ask_plainly", *CALLED)]
        assert_sound(handle.agent)


def test_a_worker_may_spread_work_itself(store: MemoryStore, pool: WorkerPool) -> None:
    with in_session(store) as handle:
        assert agentic_map(functions.spread, [["a", "b"]], pool) == [["about a", "about b"]]
        assert tree(handle.agent) == [
            ("spread", "completed", ("classify", *CALLED), ("classify", *CALLED))
        ]
        assert_sound(handle.agent)


def test_it_works_without_a_session_and_with_no_items(pool: WorkerPool) -> None:
    assert agentic_map(fragile, [1, 2], pool) == [1, 2]
    assert agentic_map(fragile, []) == []


async def test_async_code_awaits_it(store: MemoryStore, pool: WorkerPool) -> None:
    async with in_session(store) as handle:
        assert await agentic_map.aio(functions.later, ["a", "b"], pool) == ["about a", "about b"]
        assert tree(handle.agent) == [("later", *CALLED)] * 2


def test_everything_is_on_disk_when_the_map_is_over(tmp_path: Path, pool: WorkerPool) -> None:
    store = SessionStore(root_path=tmp_path)
    with in_session(store):
        agentic_map(functions.twice, [str(n) for n in range(6)], pool)
    with in_session(SessionStore(root_path=tmp_path)) as again:
        assert len(again.agent.dag) == 6 * 5
        assert_sound(again.agent)


def test_what_cannot_even_be_sent_off_leaves_nothing_running(store: MemoryStore) -> None:
    closed = WorkerPool(1)
    closed.shutdown()
    with in_session(store) as handle:
        with pytest.raises(RuntimeError, match="shut down"):
            agentic_map(fragile, [1, 2], closed)
        with pytest.raises(UsageError, match="name an address of this machine"):
            agentic_map(fragile, [1], Lazy(), host="192.0.2.1")
        assert tree(handle.agent) == [("fragile", "error")] * 3
        assert {t.status for t in handle.agent.dag.turns.values()} == {"failed"}


# -- submit


def test_submit_gives_a_future_and_records_what_nobody_waits_for(
    store: MemoryStore, pool: WorkerPool
) -> None:
    with in_session(store) as handle:
        future = submit(classify, review="owls", executor=pool)
        assert future.result(30) == "about owls"
        failing = submit(fragile, 13, executor=pool)
        assert isinstance(failing.exception(30), ValueError)
        assert tree(handle.agent) == [("classify", *CALLED), ("fragile", "error")]


def test_what_was_submitted_is_a_job_until_it_is_over_and_its_node_keeps_the_id(
    store: MemoryStore, pool: WorkerPool, tmp_path: Path
) -> None:
    with in_session(store) as handle, ThreadPoolExecutor(1) as threads:
        session = handle.agent
        sent = submit(functions.endless, str(tmp_path / "runs"), executor=pool)
        assert (session.sent, sent.status) == ({sent.id: sent}, "running")
        wait_for(tmp_path / "runs")
        assert sent.cancel()
        assert isinstance(sent.exception(30), CancelledError)
        failing = submit(fragile, 13, executor=pool)
        assert isinstance(failing.exception(30), ValueError)
        done = submit(functions.twice, "a", executor=threads)
        assert done.result(10) == "about about about first a again"
        assert [job.status for job in (sent, failing, done)] == ["cancelled", "failed", "completed"]
        assert session.sent == {}
        kept = [(n.name, n.metadata["job"]) for n in session.dag if "job" in n.metadata]
        assert kept == [("endless", sent.id), ("fragile", failing.id), ("twice", done.id)]


def test_a_job_in_a_thread_cannot_be_stopped_once_it_runs(store: MemoryStore) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @agentic_function
    def held() -> str:
        """Wait."""
        begun.set()
        assert go_on.wait(10)
        return "over"

    with in_session(store) as handle, ThreadPoolExecutor(1) as threads:
        first, second = (submit(held, executor=threads) for _ in range(2))
        assert begun.wait(10)
        assert not first.cancel() and second.cancel()
        go_on.set()
        assert first.result(10) == "over"
        with pytest.raises(CancelledError):
            second.result(10)
        assert [(n.name, n.status) for n in handle.agent.dag] == [("held", "completed")]


def test_cancelling_what_was_submitted_stops_it(
    store: MemoryStore, pool: WorkerPool, tmp_path: Path
) -> None:
    marker = tmp_path / "runs"
    with in_session(store) as handle:
        future = submit(functions.endless, str(marker), executor=pool)
        wait_for(marker)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(30)
        assert tree(handle.agent) == [("endless", "cancelled", ("callable", "completed"))]
        assert not future.cancel()


# -- cancelling


def wait_for(marker: Path) -> None:
    deadline = time.monotonic() + 30
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupt_reaches_the_workers_and_what_they_did_comes_home(
    store: MemoryStore, pool: WorkerPool, tmp_path: Path
) -> None:
    markers = [tmp_path / name for name in ("a", "b")]

    def interrupt() -> None:
        for marker in markers:
            wait_for(marker)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with in_session(store) as handle:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            agentic_map(functions.endless, [*map(str, markers), "never"], pool)
        thread.join()
        assert tree(handle.agent) == [
            ("endless", "cancelled", ("callable", "completed")),
            ("endless", "cancelled", ("callable", "completed")),
            ("endless", "cancelled"),
        ]
        (turn,) = handle.agent.dag.turns.values()
        assert turn.status == "cancelled"
        assert agentic_map(fragile, [1], pool) == [1]


def test_cancelling_the_turn_around_it_reaches_the_workers(
    session: AgentSession, pool: WorkerPool, tmp_path: Path
) -> None:
    marker = tmp_path / "runs"

    def spread_out() -> Any:
        """Spread out."""
        return agentic_map(functions.endless, [str(marker)], pool)

    provider = ScriptedProvider(reply(call("spread_out", {})))
    asker = ScriptedAsker([PermissionAnswer("allow", "click")])
    provider.add(reply("one"))
    turn_id, job = start_in_background(session, provider, [spread_out], asker=asker)
    wait_for(marker)
    loop.run_sync(session.cancel_turn, turn_id)
    assert job.future.result(30).status == "cancelled"
    deadline = time.monotonic() + 30
    while (node := next(n for n in session.dag if n.name == "endless")).status == "running":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert node.status == "cancelled"


def test_what_does_not_stop_is_ended_by_force(store: MemoryStore, tmp_path: Path) -> None:
    marker = tmp_path / "runs"

    def stubborn(marker: str) -> None:
        from pathlib import Path

        Path(marker).touch()
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(600)

    with in_session(store) as handle, WorkerPool(1) as pool:
        future = submit(stubborn, str(marker), executor=pool)
        wait_for(marker)
        future.cancel()
        with pytest.raises(CancelledError):
            future.result(30)
        assert tree(handle.agent) == [("stubborn", "cancelled")]
        assert agentic_map(fragile, [1], pool) == [1]


# -- approvals


@pytest.mark.parametrize("answer", ["allow", "deny_message"])
def test_cards_of_a_worker_are_answered_here(
    store: MemoryStore, pool: WorkerPool, answer: Any
) -> None:
    asker = ScriptedAsker([PermissionAnswer(answer, "click", message="not now")])
    runtime = Runtime(provider=ScriptedProvider(default=functions.ask_for_the_tool))
    with session_context("s1", store=store, runtime=runtime) as handle:
        handle.agent.asker = asker
        (said,) = agentic_map(functions.use_the_tool, [1], pool)
        (decision,) = handle.agent.dag.decisions
        assert_sound(handle.agent)
    (request,) = asker.requests
    assert request.tool == "guarded"
    assert decision["answer"] == answer
    if answer == "allow":
        assert said.startswith("done in ") and said != f"done in {os.getpid()}"
    else:
        assert said == "not now"


def test_allowing_for_the_session_makes_a_rule_of_the_session(
    store: MemoryStore, pool: WorkerPool
) -> None:
    runtime = Runtime(provider=ScriptedProvider(default=functions.ask_for_the_tool))
    with session_context("s1", store=store, runtime=runtime) as handle:
        handle.agent.asker = asker = ScriptedAsker([PermissionAnswer("allow_session", "click")])
        agentic_map(functions.use_the_tool, [1], pool)
        agentic_map(functions.use_the_tool, [2], pool)
        assert len(asker.requests) == 1
        assert handle.agent.rules["allow"] == [asker.requests[0].rule]


@pytest.mark.parametrize("where", ["while the card is up", "before, with no card"])
def test_a_deny_rule_that_comes_meanwhile_reaches_the_worker(
    store: MemoryStore, pool: WorkerPool, where: str
) -> None:
    class Meanwhile(ScriptedAsker):
        """Adds the rule, and then says yes."""

        async def decide(self, request: Any) -> PermissionAnswer:
            handle.agent.add_rule("deny", "guarded")
            return await super().decide(request)

        async def question(self, question: Any, check: Any) -> Any:
            handle.agent.add_rule("deny", "guarded")
            return await super().question(question, check)

    runtime = Runtime(provider=ScriptedProvider(default=functions.ask_for_the_tool))
    with session_context("s1", store=store, runtime=runtime) as handle:
        handle.agent.asker = Meanwhile([PermissionAnswer("allow", "click")], says=["now"])
        if where == "while the card is up":
            (said,) = agentic_map(functions.use_the_tool, [1], pool)
        else:
            handle.agent.add_rule("allow", "guarded")
            (said,) = agentic_map(functions.ask_then_use_the_tool, [1], pool)
    assert "the rule deny guarded forbids it" in said


def test_what_is_protected_here_is_protected_in_a_worker(tmp_path: Path, pool: WorkerPool) -> None:
    store = SessionStore(root_path=tmp_path / "sessions")
    target = tmp_path / "sessions" / "other" / "history.jsonl"

    def asks(request: Any) -> Any:
        last = request.messages[-1].content[-1]
        if hasattr(last, "tool_use_id"):
            return reply(last.content[0].text)
        return reply(call("write_file", {"path": str(target), "text": "mine"}))

    runtime = Runtime(provider=ScriptedProvider(default=asks))
    with session_context("s1", store=store, runtime=runtime) as handle:
        handle.agent.asker = ScriptedAsker([PermissionAnswer("allow", "click")])
        (said,) = agentic_map(functions.write_with_tools, [1], pool)
    assert "is protected" in said
    assert not target.exists()


def test_with_nobody_to_ask_it_is_denied_at_once(store: MemoryStore, pool: WorkerPool) -> None:
    runtime = Runtime(provider=ScriptedProvider(default=functions.ask_for_the_tool))
    with session_context("s1", store=store, runtime=runtime):
        (said,) = agentic_map(functions.use_the_tool, [1], pool)
    assert "nobody can be asked here" in said


def test_questions_of_a_worker_are_asked_here_until_the_answer_fits(
    store: MemoryStore, pool: WorkerPool
) -> None:
    with in_session(store) as handle:
        handle.agent.asker = asker = ScriptedAsker(says=["c", "b", True, {"count": "3"}])
        (said,) = agentic_map(functions.ask_the_person, [1], pool)
        assert said == ["b", True, {"count": 3}]
        assert [q.kind for q in asker.questions] == ["ask", "confirm", "form"]
        names = [n.name for n in handle.agent.dag if n.role == "user"]
        assert names == ["question", "answer"] * 3
        assert_sound(handle.agent)


def test_a_hosts_handler_answers_for_workers_and_with_nobody_there_they_are_told(
    store: MemoryStore, pool: WorkerPool
) -> None:
    with in_session(store) as handle:
        with pytest.raises(MapFailed) as caught:
            agentic_map(functions.ask_the_person, [1], pool)
        assert isinstance(caught.value.errors[0], CannotAsk)
        values = {"ask": "a", "confirm": False, "form": {"count": 1}}
        set_ask_handler(lambda question: values[question.kind])
        try:
            said = agentic_map(functions.ask_the_person, [1], pool)
        finally:
            set_ask_handler(None)
        assert said == [["a", False, {"count": 1}]]
        assert_sound(handle.agent)


# -- what can travel


def test_what_cannot_travel_is_named_and_nothing_is_recorded(
    store: MemoryStore, pool: WorkerPool
) -> None:
    lock = threading.Lock()

    @agentic_function
    def holds_a_lock(n: int) -> bool:
        """Hold a lock."""
        return lock.locked()

    with in_session(store) as handle:
        with pytest.raises(NotPortable, match=r"argument 1 of classify \(Box\) cannot travel"):
            agentic_map(classify, ["fine", Box(lock)], pool)
        with pytest.raises(NotPortable, match="the function holds_a_lock cannot travel"):
            agentic_map(holds_a_lock, [1], pool)
        with pytest.raises(TypeError):
            submit(classify, "a", "b", executor=pool)
        assert len(handle.agent.dag) == len(handle.agent.dag.turns) == 0
        with pytest.raises(MapFailed, match="what unreturnable returned cannot travel"):
            agentic_map(functions.unreturnable, [1], pool)


def test_keys_do_not_travel_but_are_looked_up_where_the_call_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = EndpointProfile(api_key=SECRET, key_source="ANTHROPIC_API_KEY")
    packed = pickle.dumps(Runtime(provider=AnthropicProvider(profile, adapt=dict), model="m"))
    assert SECRET.encode() not in packed
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-worker")
    again = pickle.loads(packed)
    assert again.model == "m"
    assert again.provider._profile.api_key == "sk-ant-of-the-worker"
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ConfigurationError, match="set ANTHROPIC_API_KEY where it runs"):
        pickle.loads(packed)
    with pytest.raises(ConfigurationError, match="given in code"):
        pickle.dumps(AnthropicProvider(EndpointProfile(api_key=SECRET)))


def test_every_provider_of_ours_travels_or_says_why_not(tmp_path: Path) -> None:
    local = pickle.loads(pickle.dumps(LocalProvider()))
    assert isinstance(local, LocalProvider)
    claude = pickle.loads(pickle.dumps(ClaudeCodeProvider("some-model")))
    assert claude.capabilities.default_model == "some-model"
    with pytest.raises(ConfigurationError, match="set the variables where the workers run"):
        pickle.dumps(ClaudeCodeProvider(environment={"ANTHROPIC_API_KEY": SECRET}))
    cassette = FileCassette(tmp_path / "calls.cassette")
    folders = Folders.of(workspace=tmp_path, home=tmp_path)
    redactor = Redactor([SECRET])
    for mode in ("replay", "record"):
        recorded = RecordedProvider(
            LocalProvider, cassette, mode, folders=folders, redactor=redactor
        )
        packed = pickle.dumps(recorded)
        assert SECRET.encode() not in packed
        assert isinstance(pickle.loads(packed), RecordedProvider)


def test_what_workers_ask_is_recorded_and_replayed(
    store: MemoryStore, pool: WorkerPool, tmp_path: Path
) -> None:
    path = tmp_path / "calls.cassette"
    folders = Folders.of(workspace=tmp_path, home=tmp_path)

    def mapped(mode: ReplayMode, inner: Any) -> list[Any]:
        provider = RecordedProvider(inner, FileCassette(path), mode, folders=folders)
        with session_context(store=store, runtime=Runtime(provider=provider)):
            return agentic_map(classify, ["a", "b", "a"], pool)

    recorded = mapped("record", lambda: CallableProvider(think, "callable"))
    text = path.read_text("utf-8")

    assert recorded == ["about a", "about b", "about a"]
    assert text.count('"request"') == 2
    assert mapped("replay", None) == recorded
    with pytest.raises(MapFailed, match="no key here"):
        path.unlink()
        mapped("auto", unconfigured)


def unconfigured() -> Any:
    raise ConfigurationError("no key here")


SCRIPT = """
import sys
from op_jupyter import Runtime, agentic_function, agentic_map, llm, session_context
from op_jupyter.store.memory import MemoryStore

print("the script runs")
BANG = "!"

def think(content):
    return content[-1]["text"] + BANG

@agentic_function
def shout(word):
    "Shout."
    return llm(word) if len(word) < 3 else shout(word[:2])

with session_context(store=MemoryStore(), runtime=Runtime(call=think)):
    print(agentic_map(shout, ["a", "bcd"]))
"""


def test_functions_of_main_travel_whole_and_a_script_is_not_run_a_second_time(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("the script runs\n['a!', 'bc!']\n", "")


# -- connections


class OneWorker(Executor):
    """Somebody's executor, whose one worker is a thread of this process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._thread.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._thread.shutdown(wait, cancel_futures=cancel_futures)


@agentic_function
def ask_the_configured(review: str) -> str:
    """Ask whatever is configured."""
    return llm(review)


@pytest.mark.parametrize("sent", ["the runtime", "nothing"])
def test_calls_of_a_map_share_connections_until_it_is_over(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    """In one process; each call has a conversation of its own all the same."""
    monkeypatch.setenv("OPENPROGRAM_CONFIG", os.devnull)
    for name in ("OPENPROGRAM_PROVIDER", "OPENPROGRAM_MODEL", "OPENPROGRAM_REPLAY"):
        monkeypatch.delenv(name, raising=False)
    with FakeMessages() as fake, OneWorker() as worker:
        monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
        reviews = [f"review {n}" for n in range(5)]
        if sent == "nothing":
            said = agentic_map(ask_the_configured, reviews, worker)
        else:
            with session_context("s1", store=store) as handle:
                llm("before")
                said = agentic_map(ask_the_configured, reviews, worker)
                assert_sound(handle.agent)
        assert [text[-8:] for text in said] == reviews
        assert len(fake.peers) == (1 if sent == "nothing" else 2)
        fake.wait_connections(0)


def test_calls_that_are_sent_one_by_one_share_connections_and_no_key_with_another_runtime(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews = [f"review {n}" for n in range(8)]
    with FakeMessages() as fake, OneWorker() as worker:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)

        def ask(key: str, review: str) -> str:
            monkeypatch.setenv("ANTHROPIC_API_KEY", key)
            with (
                create_runtime("anthropic") as runtime,
                session_context("s1", store=store, runtime=runtime),
            ):
                return submit(ask_the_configured, review, executor=worker).result(20)

        assert [ask(API_KEY, review)[-8:] for review in reviews] == reviews
        # A slow machine may let one end before the next call comes, but not each time.
        assert len(fake.peers) <= len(reviews) // 2
        with pytest.raises(AuthenticationFailed):
            ask("another", "never")
        fake.wait_connections(0)


def test_a_provider_that_may_hold_what_was_said_is_not_shared(store: MemoryStore) -> None:
    functions.providers.clear()
    with in_session(store), OneWorker() as worker:
        agentic_map(functions.keep_the_provider, [1, 2], worker)
    first, second = functions.providers
    assert first is not second


# -- other executors


def test_a_thread_pool_runs_it_in_this_process(store: MemoryStore) -> None:
    with in_session(store) as handle, ThreadPoolExecutor(2) as threads:
        assert agentic_map(classify, ["a", "b"], threads) == ["about a", "about b"]
        assert agentic_map(functions.later, ["c"], threads) == ["about c"]
        assert submit(fragile, 1, executor=threads).result(10) == 1
        assert submit(divmod, 7, 2, executor=threads).result(10) == (3, 1)
        with pytest.raises(MapFailed):
            agentic_map(fragile, [13], threads)
        assert {n.status for n in handle.agent.dag if n.role == "llm"} == {"completed"}


class Lazy(Executor):
    """An executor in this very process, which loses every second call."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if self.calls % 2:
            work = lambda: future.set_result(fn(*args, **kwargs))  # noqa: E731
            threading.Thread(target=work).start()
        else:
            future.set_exception(OSError("gone"))
        return future


def test_any_executor_will_do_also_in_this_process(store: MemoryStore) -> None:
    with in_session(store) as handle:
        first, lost = agentic_map(classify, ["a", "b"], Lazy(), return_exceptions=True)
        assert first == "about a"
        assert isinstance(lost, WorkerLost) and "OSError: gone" in str(lost)
        assert tree(handle.agent) == [("classify", *CALLED), ("classify", "error")]


class AtOnce(Executor):
    """Runs nothing: as soon as a call is sent off, what *answer* makes of it is home."""

    def __init__(self, answer: Callable[[Order], Any]) -> None:
        self._answer = answer

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(self._answer(pickle.loads(args[0])))
        except BaseException as error:  # noqa: BLE001 -- as any executor does it
            future.set_exception(error)
        return future


def outcome_of(order: Order, caller: str = "") -> bytes:
    """What comes home of a call that asked a model once."""
    since = 0 if order.node is None else order.node.seq
    node = Node(
        f"inside-{order.call_id}",
        "llm",
        "callable",
        status="completed",
        caller=caller or order.call_id,
        metadata={"done_seq": 1_001 + since},
        seq=1_000 + since,
    )
    return pickle.dumps(Outcome([node], [{"tool_call_id": "x"}], [], pickle.dumps("said")))


class CountingFiles(FileSystem):
    """The disk, which counts how often it has to confirm a write."""

    syncs = 0

    def fsync(self, *fds: int) -> None:
        self.syncs += len(fds)
        super().fsync(*fds)


def test_outcomes_that_arrive_together_are_stored_as_one(tmp_path: Path) -> None:
    counted = []
    for count in (2, 20):
        files = CountingFiles()
        store = SessionStore(root_path=tmp_path / str(count), files=files)
        with in_session(store) as handle:
            assert agentic_map(classify, ["a"] * count, AtOnce(outcome_of)) == ["said"] * count
            counted.append(files.syncs)
            assert tree(handle.agent) == [("classify", *CALLED)] * count
            assert len(handle.agent.dag.decisions) == count
            seqs = [seq for n in handle.agent.dag for seq in (n.seq, n.metadata["done_seq"])]
            assert len(seqs) == len(set(seqs))
        again = SessionStore(root_path=tmp_path / str(count)).load("s1")
        assert list(again) == list(handle.agent.dag)
    assert counted[0] == counted[1]


def test_an_outcome_that_is_refused_costs_only_its_item(store: MemoryStore) -> None:
    def answer(order: Order) -> bytes:
        second = order.node is not None and order.node.input == {"review": "b"}
        return outcome_of(order, "nobody" if second else "")

    with in_session(store) as handle:
        first, refused, third = agentic_map(
            classify, ["a", "b", "c"], AtOnce(answer), return_exceptions=True
        )
        assert (first, third) == ("said", "said")
        assert isinstance(refused, GraphError)
        assert tree(handle.agent) == [
            ("classify", *CALLED),
            ("classify", "error"),
            ("classify", *CALLED),
        ]


class FullDisk(FileSystem):
    """A disk that takes nothing while it is *full*."""

    full = False

    def write(self, fd: int, data: Any) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(fd, data)


def test_outcomes_that_cannot_be_stored_are_errors_and_the_session_goes_on(tmp_path: Path) -> None:
    files = FullDisk()
    store = SessionStore(root_path=tmp_path, files=files)

    def fill(order: Order) -> bytes:
        files.full = True
        return outcome_of(order)

    with in_session(store) as handle:
        with pytest.raises(StoreError, match="no space left"):
            agentic_map(classify, ["a", "b"], AtOnce(fill), return_exceptions=True)
        files.full = False
        assert classify("c") == "about c"
        assert tree(handle.agent)[-1] == ("classify", *CALLED)
    with in_session(store) as handle:
        assert [n.status for n in handle.agent.dag.children(None)][:2] == ["interrupted"] * 2
        assert_sound(handle.agent)


@pytest.mark.parametrize("answer", [b"no pickle", pickle.dumps(7), 7, StopIteration(3)])
def test_what_an_executor_answers_that_is_no_outcome_is_a_lost_call(
    store: MemoryStore, answer: Any
) -> None:
    def say(order: Order) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    with in_session(store) as handle:
        (lost,) = agentic_map(classify, ["a"], AtOnce(say), return_exceptions=True)
        assert isinstance(lost, WorkerLost)
        assert tree(handle.agent) == [("classify", "error")]


@pytest.mark.slow
def test_the_process_pool_of_the_standard_library_works(store: MemoryStore) -> None:
    with in_session(store) as handle, ProcessPoolExecutor(1, get_context("spawn")) as processes:
        assert agentic_map(classify, ["a", "b"], processes) == ["about a", "about b"]
        assert tree(handle.agent) == [("classify", *CALLED)] * 2


@agentic_function
def classify_all(reviews: list[str], executor: Executor) -> list[str]:
    """Classify many, somewhere."""
    return agentic_map(classify, reviews, executor)


def assert_works(executor: Executor, session: AgentSession, folder: Path) -> None:
    """Nodes come home under the right caller, an error costs its item, a stop gets there."""
    assert classify_all(["a", "b", "c"], executor) == ["about a", "about b", "about c"]
    assert agentic_map(functions.later, ["d"], executor) == ["about d"]
    _, error = agentic_map(fragile, [1, 13], executor, return_exceptions=True)
    assert isinstance(error, ValueError)
    future = submit(functions.waits_for_a_model, str(folder / "first"), executor=executor)
    wait_for(folder / "first")
    future.cancel()
    with pytest.raises(CancelledError):
        future.result(30)

    def interrupt() -> None:
        wait_for(folder / "second")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        agentic_map(functions.waits_for_a_model, [str(folder / "second")], executor)
    thread.join()
    for name in ("first", "second"):
        wait_for(folder / f"{name} stopped")
    ended = tree(session)
    assert [node[:2] for node in ended[4:]] == [("waits_for_a_model", "cancelled")] * 2
    assert ended[:4] == [
        ("classify_all", "completed", *[("classify", *CALLED)] * 3),
        ("later", *CALLED),
        ("fragile", "completed"),
        ("fragile", "error"),
    ]
    assert_sound(session)


def assert_a_killed_worker_costs_its_item(
    executor: Executor, session: AgentSession, items: list[int]
) -> None:
    """The worker that gets the 9 is killed; the others, and what comes later, go on."""
    ended = agentic_map(fragile, items, executor, return_exceptions=True)
    for item, end in zip(items, ended, strict=True):
        assert isinstance(end, WorkerLost) if item == 9 else end == item
    assert agentic_map(fragile, [3], executor) == [3]
    calls = session.dag.children(None)[-len(items) - 1 :]
    assert [n.status for n in calls] == ["error" if n == 9 else "completed" for n in [*items, 3]]
    assert_sound(session)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster's own libraries
def test_a_dask_cluster_works(store: MemoryStore, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
        in_session(store) as handle,
    ):
        executor = client.get_executor()
        assert_works(executor, handle.agent, tmp_path)
        # A worker that is killed costs nothing: Dask runs its item again on another one.
        items = [str(tmp_path / "there"), str(tmp_path / "killed")]
        Path(items[0]).touch()
        assert agentic_map(functions.dies_once, items, executor) == ["about one"] * 2
        cluster.scheduler.allowed_failures = 0
        assert_a_killed_worker_costs_its_item(executor, handle.agent, [9])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster's own libraries
def test_an_ipyparallel_cluster_works(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ipyparallel

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    with (
        ipyparallel.Cluster(n=2, controller_ip="127.0.0.1", log_level=40) as client,
        in_session(store) as handle,
    ):
        assert_works(client.executor(), handle.agent, tmp_path)
        assert_a_killed_worker_costs_its_item(client.executor(), handle.agent, [1, 9, 2])


@pytest.mark.slow
def test_a_fan_out_of_200_calls_over_4_workers_leaves_every_node_in_order(tmp_path: Path) -> None:
    store = SessionStore(root_path=tmp_path)
    runtime = Runtime(call=functions.think_slowly)
    reviews = [f"review {n}" for n in range(200)]
    with WorkerPool(4) as pool, session_context("s1", store=store, runtime=runtime) as handle:
        assert agentic_map(classify, reviews, pool) == ["positive"] * 200
        dag = handle.agent.dag
        assert [n.input["review"] for n in dag.children(None)] == reviews
        assert all(len(dag.children(n.id)) == 1 for n in dag.children(None))
        seqs = [n.seq for n in dag]
        assert len(seqs) == 400 and seqs == sorted(set(seqs))
        assert_sound(handle.agent)
    stored = SessionStore(root_path=tmp_path).load("s1")
    assert [n.id for n in stored] == [n.id for n in dag]
    assert {n.status for n in stored} == {"completed"}


# -- the pool and the line


def test_a_pool_runs_any_function_and_says_what_it_raised(pool: WorkerPool) -> None:
    assert pool.submit(divmod, 7, 2).result(30) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 7, 0).result(30)
    with pytest.raises(NotPortable):
        pool.submit(threading.Lock().acquire)
    with pytest.raises(UsageError, match="at least one"):
        WorkerPool(0)


def test_a_process_whose_parent_is_gone_ends_in_peace() -> None:
    ours, theirs = Pipe()
    ours.send_bytes(pickle.dumps((divmod, (7, 2), {})))
    ours.close()
    kept = signal.getsignal(signal.SIGINT)
    try:
        serve(theirs)
    finally:
        signal.signal(signal.SIGINT, kept)
        theirs.close()


def test_a_process_starts_anew_when_the_environment_has_changed(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OP_JUPYTER_TEST", "new")
    assert pool.submit(os.environ.get, "OP_JUPYTER_TEST").result(30) == "new"


def test_a_pool_that_is_shut_down_takes_nothing_more() -> None:
    closed = WorkerPool(1)
    first = closed.submit(divmod, 7, 2)
    closed.shutdown()
    assert first.result(0) == (3, 1)
    with pytest.raises(RuntimeError, match="shut down"):
        closed.submit(divmod, 7, 2)


class Heard:
    """A call that keeps what it is told."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.told: list[Any] = []
        self.over = False

    def stop(self) -> None:
        self.stopped.set()

    def news(self, told: Any) -> None:
        self.told.append(told)


async def hung_up(address: Address) -> None:
    """Wait until the line to *address* is gone on both ends."""
    ours = {task for task in (asyncio.current_task(),) if task is not None}
    if others := asyncio.all_tasks() - ours:
        await asyncio.wait(others, timeout=10)
    assert Line.known(address) is None


async def test_a_stranger_is_not_listened_to() -> None:
    asked: list[Any] = []

    async def answer(call_id: str, message: Any) -> Any:
        asked.append((call_id, message))
        return {"said": "yes"}

    first, second = Heard(), Heard()
    switchboard = Switchboard(answer)
    address = await switchboard.open("127.0.0.1")
    try:
        stranger = Line(Address(address.host, address.port, b"guessed"))
        with pytest.raises(ConnectionError):
            await stranger.ask("call-1", {"what": 0})
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\n" + b"x" * 300)
        assert len(await reader.read()) == 64  # the nonce, and then they hang up
        writer.close()
        await writer.wait_closed()
        line = Line.to(address)
        line.begin("call-1", first)
        assert await line.ask("call-1", {"what": 1}) == {"said": "yes"}
        switchboard.tell({"policy": "new"})
        switchboard.stop("call-1")
        assert await line.ask("call-1", {"what": 2}) == {"said": "yes"}
        assert first.stopped.is_set()
        line.end("call-1")
        line.begin("call-2", second)
        switchboard.stop("call-1")
        assert await line.ask("call-2", {"what": 3}) == {"said": "yes"}
        line.end("call-2")
    finally:
        await switchboard.close()
    assert asked == [("call-1", {"what": 1}), ("call-1", {"what": 2}), ("call-2", {"what": 3})]
    assert first.told == second.told == [{"policy": "new"}]
    assert not second.stopped.is_set()
    await hung_up(address)
    with pytest.raises(ConnectionError):
        await Line(address).ask("call-1", {"what": 4})


@pytest.mark.parametrize("steps", range(7))
async def test_whoever_comes_while_we_hang_up_is_hung_up_on_too(steps: int) -> None:
    async def answer(call_id: str, message: Any) -> Any:
        return {}

    switchboard = Switchboard(answer)
    address = await switchboard.open("127.0.0.1")
    with socket.create_connection((address.host, address.port), timeout=10) as late:
        for _ in range(steps):  # of the loop, which accepts it meanwhile
            await asyncio.sleep(0)
        await switchboard.close()
        with contextlib.suppress(ConnectionError):
            while await asyncio.to_thread(late.recv, 1024):
                pass


async def test_when_the_line_breaks_the_calls_are_stopped() -> None:
    async def answer(call_id: str, message: Any) -> Any:
        await asyncio.Event().wait()

    calls = [Heard(), Heard()]
    switchboard = Switchboard(answer)
    address = await switchboard.open("127.0.0.1")
    line = Line.to(address)
    for number, begun in enumerate(calls):
        Line.to(address).begin(f"call-{number}", begun)
    asking = asyncio.create_task(line.ask("call-0", {}))
    switchboard.stop("call-0")  # once this is heard, there is a line
    await asyncio.wait_for(calls[0].stopped.wait(), 10)
    await switchboard.close()
    with pytest.raises(ConnectionError):
        await asking
    await asyncio.wait_for(calls[1].stopped.wait(), 10)
    await hung_up(address)
    with pytest.raises(ConnectionError):
        await line.ask("call-0", {})


async def test_a_call_that_was_stopped_before_it_began_hears_it() -> None:
    async def answer(call_id: str, message: Any) -> Any:
        return {}

    early = Heard()
    switchboard = Switchboard(answer)
    switchboard.stop("call-1")
    address = await switchboard.open("127.0.0.1")
    Line.to(address).begin("call-1", early)
    await asyncio.wait_for(early.stopped.wait(), 10)
    await switchboard.close()
    await hung_up(address)


async def test_a_call_that_ended_before_the_loop_got_to_it_is_not_kept() -> None:
    async def answer(call_id: str, message: Any) -> Any:
        return {}

    quick, slow = Heard(), Heard()
    quick.over = True
    switchboard = Switchboard(answer)
    switchboard.stop("slow")
    address = await switchboard.open("127.0.0.1")
    line = Line.to(address)
    line.end("quick")
    line.begin("quick", quick)
    line.begin("slow", slow)
    await asyncio.wait_for(slow.stopped.wait(), 10)
    assert not switchboard.reaches("quick")
    await switchboard.close()
    await hung_up(address)
    assert not quick.stopped.is_set()
