"""What an item of a map costs beside its call: counted, not timed, so that it holds anywhere."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from op_jupyter import Runtime, agentic_function, agentic_map, llm, session_context
from op_jupyter.core import prompt
from op_jupyter.engine.invocation import Invocation
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.workers.arriving import Arrivals, Call
from op_jupyter.engine.workers.line import Line, Switchboard
from op_jupyter.engine.workers.parcels import Address, Order, Outcome, unpack_surroundings
from op_jupyter.store.files import FileSystem
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.sessions import SessionStore

ITEMS = 12


@agentic_function
def classify(review: str) -> str:
    """Classify a review."""
    return llm(review)


class CountingFiles(FileSystem):
    """Counts how often the disk has to confirm a write."""

    syncs = 0

    def fsync(self, *fds: int) -> None:
        self.syncs += 1
        super().fsync(*fds)


def sent_off(session: AgentSession) -> dict[Future[bytes], Call]:
    """Calls that are under way, each with what will bring it home."""
    turn = session.begin_call("a map")
    sent: dict[Future[bytes], Call] = {}
    for number in range(ITEMS):
        invocation = Invocation(classify, (f"review {number}",), {}, session)
        frame, node = invocation.place(turn.id)
        sent[Future()] = Call(invocation, b"", None, frame.view.id, frame, node)
    session.recorder.append_many([call.node for call in sent.values() if call.node])
    return sent


def outcome() -> bytes:
    return pickle.dumps(Outcome([], [], [], pickle.dumps("good")))


async def settled() -> None:
    """Let the loop do what it can do at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_outcomes_that_come_one_after_the_other_are_stored_as_one(tmp_path: Path) -> None:
    files = CountingFiles()
    store = SessionStore(tmp_path, files=files)
    over: list[str] = []
    with session_context("s", store=store, create_runtime_if_none=False) as handle:
        session = handle.agent
        sent = sent_off(session)
        arrivals = Arrivals(session.recorder, sent, 0, over.append, gather_seconds=3_600)
        storing = asyncio.create_task(arrivals.store_all())
        before = files.syncs
        *most, last = sent
        for future in most:
            future.set_result(outcome())
            await settled()
        # Each is known to be over at once, and what it asks is taken back; nothing is stored yet.
        assert over == [call.id for call in sent.values()][:-1]
        assert files.syncs == before
        last.set_result(outcome())  # nothing is left to wait for
        await asyncio.wait_for(storing, 30)
        assert files.syncs == before + 1
        assert {node.status for node in session.dag} == {"completed"}


async def test_an_outcome_does_not_wait_for_others_for_ever(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    with session_context("s", store=store, create_runtime_if_none=False) as handle:
        sent = sent_off(handle.agent)
        arrivals = Arrivals(handle.agent.recorder, sent, 0, lambda _: None, gather_seconds=0.001)
        storing = asyncio.create_task(arrivals.store_all())
        first, *others = sent
        stored, running = asyncio.Event(), asyncio.get_running_loop()
        handle.agent.subscribe(lambda _: running.call_soon_threadsafe(stored.set))
        first.set_result(outcome())
        await asyncio.wait_for(stored.wait(), 30)
        assert list(arrivals.waiting) == others
        for future in others:
            future.set_result(outcome())
        await asyncio.wait_for(storing, 30)


async def test_what_came_before_the_map_was_stopped_is_not_lost(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    with session_context("s", store=store, create_runtime_if_none=False) as handle:
        sent = sent_off(handle.agent)
        arrivals = Arrivals(handle.agent.recorder, sent, 0, lambda _: None, gather_seconds=3_600)
        storing = asyncio.create_task(arrivals.store_all())
        first, *others = sent
        first.set_result(outcome())
        await settled()
        storing.cancel()
        await asyncio.wait([storing])
        await arrivals.store_here()
        assert sent[first].end is not None
        assert list(arrivals.waiting) == others
        for future in others:
            future.set_result(outcome())
        await asyncio.wait_for(arrivals.store_all(), 30)


class Deaf:
    """A call that is told nothing."""

    over = False

    def stop(self) -> None:
        raise AssertionError("nobody stops it")

    def news(self, told: Any) -> None:
        raise AssertionError("there are no news")


async def test_a_worker_says_one_thing_of_each_call() -> None:
    async def answer(call_id: str, message: Any) -> Any:
        return {}

    said: list[bytes] = []
    switchboard = Switchboard(answer)
    home = await switchboard.open("127.0.0.1")

    async def overhear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(home.host, home.port)
        replies = asyncio.create_task(pass_on(there, writer, []))
        await pass_on(reader, back, said)
        await replies

    middle = await asyncio.start_server(overhear, "127.0.0.1", 0)
    async with middle:
        port = middle.sockets[0].getsockname()[1]
        line = Line.to(Address("127.0.0.1", port, home.token))
        for number in range(ITEMS):
            line.begin(f"call-{number}", Deaf())
            line.end(f"call-{number}")
        line.begin("last", Deaf())
        await line.ask("last", {})  # answered after all that was said before
        for number in range(ITEMS):
            line.begin(f"call-{number}", Deaf())
            line.end(f"call-{number}")
        line.begin("one more", Deaf())
        await line.ask("one more", {})
        line.end("one more")
        line.end("last")
        await switchboard.close()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=30)
    asked = 2
    # Of those that were over before there was a line, nothing had to be said.
    assert b"".join(said).count(b"\n") == 2 + asked + ITEMS


async def test_what_a_call_asked_is_taken_back_when_it_is_over_or_begins_elsewhere() -> None:
    asked, taken_back = asyncio.Event(), asyncio.Event()

    async def answer(call_id: str, message: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()

    switchboard = Switchboard(answer)
    address = await switchboard.open("127.0.0.1")
    line = Line.to(address)
    questions = []
    for end in (lambda: switchboard.over("call"), lambda: line.begin("call", Deaf())):
        line.begin("call", Deaf())
        questions.append(asyncio.create_task(line.ask("call", {})))
        await asyncio.wait_for(asked.wait(), 30)
        end()
        await asyncio.wait_for(taken_back.wait(), 30)
        asked.clear()
        taken_back.clear()
    line.end("call")
    await switchboard.close()
    ends = await asyncio.gather(*questions, return_exceptions=True)
    assert [type(end) for end in ends] == [ConnectionError] * 2


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[bytes]
) -> None:
    while data := await reader.read(65_536):
        heard.append(data)
        writer.write(data)
    writer.close()


class Keeps(Executor):
    """Runs nothing, and keeps what it was to run."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.orders.append(pickle.loads(args[0]))
        future: Future[Any] = Future()
        future.set_result(outcome())
        return future


@contextmanager
def counted_calls(of: Any) -> Iterator[list[int]]:
    """How often this thread calls *of*."""
    count = [0]

    def look(frame: FrameType, event: str, _: object) -> None:
        count[0] += event == "call" and frame.f_code is of.__code__

    sys.setprofile(look)
    try:
        yield count
    finally:
        sys.setprofile(None)


def test_what_prompts_tell_of_the_past_is_rendered_once_for_all_items() -> None:
    keeps = Keeps()
    runtime = Runtime(call=lambda _content: "done")
    with session_context("s", store=MemoryStore(), runtime=runtime) as handle:
        for number in range(5):
            classify(f"earlier {number}")
        agentic_map(classify, [f"review {n}" for n in range(ITEMS)], keeps)
        as_of = handle.agent.dag.last_seq
    with counted_calls(prompt._call_entry) as rendered:
        for order in keeps.orders:
            around = unpack_surroundings(order)
            shown = prompt.Shown(order.frame.base, as_of)
            messages = prompt.render_messages(around.dag.copy(), shown, prompt.CallInput())
            assert len(messages) == 10
    assert rendered == [5]


def test_calls_of_a_model_take_turns_in_one_thread() -> None:
    threads: list[threading.Thread] = []

    def think(_content: Any) -> str:
        threads.append(threading.current_thread())
        return "done"

    with session_context("s", store=MemoryStore(), runtime=Runtime(call=think)):
        for number in range(ITEMS):
            classify(f"review {number}")
    assert len(threads) == ITEMS
    assert len(set(threads)) == 1
