"""The bridge to the background loop: nothing that runs there can end it or hang its callers."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import pytest

from op_jupyter.engine import loop
from op_jupyter.engine.runtime import Runtime, llm
from op_jupyter.engine.session_context import session_context
from op_jupyter.store.memory import MemoryStore


class Final(BaseException):
    """No Exception, and not one of Python's own."""


async def answer() -> str:
    return "answered"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Final, asyncio.CancelledError])
def test_what_ends_a_program_reaches_the_caller_and_not_the_loop(
    kind: type[BaseException],
) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        raise kind

    with pytest.raises(kind):
        loop.run_sync(leave)
    assert loop.run_sync(answer) == "answered"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Final])
def test_a_model_function_that_ends_the_program_ends_one_call(
    store: MemoryStore, kind: type[BaseException]
) -> None:
    def exits(content: Any) -> str:
        raise kind

    with session_context("s1", store=store, runtime=Runtime(call=exits)) as handle:
        with pytest.raises(kind):
            llm("hello")
        (node,) = handle.agent.dag
        (turn,) = handle.agent.dag.turns.values()
    assert (node.status, turn.status) == ("cancelled", "cancelled")
    assert loop.run_sync(answer) == "answered"


def interrupting(times: int, *, reached: threading.Event) -> Any:
    """A way to wait that is interrupted *times* times, as the stop button does it."""

    def wait(future: Any) -> None:
        reached.wait(10)
        nonlocal times
        if times:
            times -= 1
            raise KeyboardInterrupt

    return wait


def test_an_interrupt_cancels_the_work_waits_for_its_end_and_goes_on() -> None:
    reached, tidied = threading.Event(), []

    async def work() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            tidied.append("tidied")

    loop.set_waiter(interrupting(1, reached=reached))
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_sync(work)
    finally:
        loop.set_waiter(None)
    assert tidied == ["tidied"]


def test_a_second_interrupt_ends_the_waiting_at_once_and_the_work_still_ends() -> None:
    release, ended = threading.Event(), threading.Event()
    reached = threading.Event()

    async def work() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            signal_main()
            await asyncio.to_thread(release.wait, 10)
            ended.set()

    def signal_main() -> None:
        import signal

        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    loop.set_waiter(interrupting(1, reached=reached))
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_sync(work)
    finally:
        loop.set_waiter(None)
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


def test_cancelling_an_awaiting_caller_waits_until_the_work_has_tidied_up() -> None:
    tidied: list[str] = []

    async def work(started: threading.Event) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            tidied.append("tidied")

    async def caller() -> None:
        started = threading.Event()
        task = asyncio.ensure_future(loop.run_async(work, started))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tidied == ["tidied"]

    asyncio.run(caller())


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    assert loop.run_sync(answer) == "answered"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"hung"
        try:
            said = loop.run_sync(answer).encode()
        finally:
            os.write(writer, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"answered"
    os.close(reader)
    os.close(writer)


def test_an_async_caller_that_is_cancelled_leaves_nothing_unheard() -> None:
    begun = threading.Event()
    complaints: list[dict[str, Any]] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def stop_it() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: complaints.append(context)
        )
        task = asyncio.ensure_future(loop.run_async(work))
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()

    asyncio.run(stop_it())
    assert complaints == []
