"""The thread of the cell, lent to what runs in the background."""

from __future__ import annotations

import asyncio
import concurrent.futures
import fcntl
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

import pytest

from op_jupyter.engine.loop import Job, submit
from op_jupyter.errors import SessionStateError
from op_jupyter.notebook.main_thread import LentThread, Wake
from op_jupyter.notebook.pump import PlainWait

MAIN = threading.main_thread()


@pytest.fixture
def lent() -> Iterator[LentThread]:
    thread = LentThread()
    yield thread
    thread.close()


def press_stop() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def press_stop_once_waiting(lent: LentThread) -> None:
    await lent.run(lambda: None)
    press_stop()


def wait(lent: LentThread, job: Job[object]) -> object:
    """Wait as `engine.loop.run_sync` does: an interrupt cancels the work."""
    try:
        lent.wait(job.future)
    except KeyboardInterrupt:
        job.cancel()
        concurrent.futures.wait([job.future])
        raise
    return job.future.result()


def test_a_job_runs_on_the_main_thread_and_its_value_comes_back(lent: LentThread) -> None:
    async def work() -> threading.Thread:
        assert threading.current_thread() is not MAIN
        return await lent.run(threading.current_thread)

    assert wait(lent, submit(work)) is MAIN


def test_a_job_s_error_belongs_to_who_asked(lent: LentThread) -> None:
    async def work() -> str:
        with pytest.raises(ZeroDivisionError):
            await lent.run(lambda: 1 / 0)
        return "went on"

    assert wait(lent, submit(work)) == "went on"


def test_a_job_sees_the_context_of_who_asked(lent: LentThread) -> None:
    asking: ContextVar[str] = ContextVar("asking")

    async def work() -> str:
        asking.set("the task")
        return await lent.run(asking.get)

    assert wait(lent, submit(work)) == "the task"


def test_stop_while_waiting_cancels_the_work(lent: LentThread) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await press_stop_once_waiting(lent)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        wait(lent, submit(work))
    assert seen == ["cancelled"]


def test_stop_during_a_job_interrupts_it_and_cancels_the_work(lent: LentThread) -> None:
    seen: list[str] = []

    def forever() -> None:
        try:
            press_stop()
            threading.Event().wait()
        except KeyboardInterrupt:
            seen.append("interrupted")
            raise

    async def work() -> None:
        await lent.run(forever)

    with pytest.raises(KeyboardInterrupt):
        wait(lent, submit(work))
    assert seen == ["interrupted"]


class PressesStop:
    """A lock that was just taken when somebody pressed the stop button."""

    def __init__(self) -> None:
        self.held = True
        self.acquire = self.__enter__ = partial(signal.raise_signal, signal.SIGINT)

    def release(self) -> None:
        self.held = False

    def __exit__(self, *error: object) -> None:
        self.release()


def test_a_stop_leaves_no_lock_behind_that_was_just_taken(lent: LentThread) -> None:
    lock = PressesStop()
    steps: list[str] = []

    def take() -> None:
        with threading.Condition(lock):  # type: ignore[arg-type]
            steps.append("inside")
        threading.Event().wait(60)
        steps.append("not stopped")

    async def work() -> None:
        await lent.run(take)

    with pytest.raises(KeyboardInterrupt):
        wait(lent, submit(work))
    assert not lock.held
    assert steps == ["inside"]


def test_code_that_swallows_the_interrupt_still_stops(lent: LentThread) -> None:
    """As a notebook's `run_cell` does: it shows the interrupt and returns."""

    def swallow() -> str:
        try:
            press_stop()
            threading.Event().wait()
        except KeyboardInterrupt:
            return "as if nothing happened"
        return ""

    async def work() -> str:
        return await lent.run(swallow)

    job = submit(work)
    with pytest.raises(KeyboardInterrupt):
        wait(lent, job)
    assert isinstance(job.future.exception(), asyncio.CancelledError)


def test_cancelling_interrupts_a_running_job_and_nothing_else(lent: LentThread) -> None:
    started = threading.Event()
    seen: list[str] = []

    def forever() -> None:
        try:
            started.set()
            threading.Event().wait()
        except KeyboardInterrupt:
            seen.append("interrupted")
            raise

    async def work() -> str:
        task = asyncio.ensure_future(lent.run(forever))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return "went on"

    assert wait(lent, submit(work)) == "went on"
    assert seen == ["interrupted"]


def test_a_stubborn_job_is_interrupted_again(lent: LentThread) -> None:
    started = threading.Event()

    def stubborn() -> int:
        swallowed = 0
        while swallowed < 2:
            try:
                started.set()
                threading.Event().wait()
            except KeyboardInterrupt:
                swallowed += 1
        return swallowed

    async def work() -> str:
        task = asyncio.ensure_future(lent.run(stubborn))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.wait([task])
        return "over"

    assert wait(lent, submit(work)) == "over"


def test_a_job_that_was_cancelled_before_it_began_never_runs(lent: LentThread) -> None:
    ran: list[str] = []
    busy, free = threading.Event(), threading.Event()

    def occupy() -> bool:
        busy.set()
        return free.wait(30)

    async def work() -> str:
        first = asyncio.ensure_future(lent.run(occupy))
        await asyncio.to_thread(busy.wait)  # from now on nothing else begins on the main thread
        task = asyncio.ensure_future(lent.run(lambda: ran.append("ran")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        free.set()
        assert await first
        return "over"

    assert wait(lent, submit(work)) == "over"
    assert wait(lent, submit(asyncio.sleep, 0, "next")) == "next"
    assert ran == []


def test_without_a_kernel_and_without_a_wait_a_job_says_that_it_cannot_run(
    lent: LentThread,
) -> None:
    job = submit(lent.run, lambda: None)
    with pytest.raises(SessionStateError, match="without `await`"):
        job.future.result(10)


def test_a_job_may_wait_itself_and_its_jobs_run(lent: LentThread) -> None:
    """The `python` tool runs code that calls an agent that uses the `python` tool."""

    async def inner() -> str:
        return await lent.run(lambda: "innermost")

    async def work() -> object:
        return await lent.run(lambda: wait(lent, submit(inner)))

    assert wait(lent, submit(work)) == "innermost"


def test_stop_reaches_every_level(lent: LentThread) -> None:
    swallowed: list[str] = []

    def job() -> None:
        try:
            wait(lent, submit(press_stop_for_ever, lent))
        except KeyboardInterrupt:
            swallowed.append("inner")

    async def work() -> None:
        await lent.run(job)

    with pytest.raises(KeyboardInterrupt):
        wait(lent, submit(work))
    assert swallowed == ["inner"]


def test_cancelling_an_outer_job_ends_the_wait_inside_of_it(lent: LentThread) -> None:
    waiting = threading.Event()

    async def inner() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def work() -> str:
        task = asyncio.ensure_future(lent.run(lambda: wait(lent, submit(inner))))
        await asyncio.to_thread(waiting.wait)
        task.cancel()
        await asyncio.wait([task])
        return "went on"

    assert wait(lent, submit(work)) == "went on"


def test_the_signal_handler_is_put_back(lent: LentThread) -> None:
    before = signal.getsignal(signal.SIGINT)
    wait(lent, submit(asyncio.sleep, 0))
    with pytest.raises(KeyboardInterrupt):
        wait(lent, submit(press_stop_for_ever, lent))
    assert signal.getsignal(signal.SIGINT) is before


async def press_stop_for_ever(lent: LentThread) -> None:
    await press_stop_once_waiting(lent)
    await asyncio.Event().wait()


def test_a_stop_that_comes_too_late_is_not_lost(lent: LentThread) -> None:
    def too_late() -> None:
        with lent.interrupts:
            press_stop()
            assert lent.interrupts.noted

    with pytest.raises(KeyboardInterrupt):
        too_late()


def test_an_interrupt_for_a_job_that_is_over_does_nothing(lent: LentThread) -> None:
    with lent.interrupts:
        lent.interrupts.kick(lambda: False)
        lent.interrupts.check()


def test_a_wake_after_the_end_writes_into_nobody_else_s_file() -> None:
    wake = Wake()
    wake.close()
    reader, writer = os.pipe()  # the very numbers that were given back
    os.set_blocking(reader, False)
    try:
        wake.set()
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_descriptor_of_any_number_can_be_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    reader, writer = os.pipe()
    try:
        high = fcntl.fcntl(reader, fcntl.F_DUPFD, 1500)
        os.write(writer, b"w")
        PlainWait().wait(high, 5.0)
        os.close(high)
    finally:
        os.close(reader)
        os.close(writer)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
