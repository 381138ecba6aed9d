"""Retries: what is tried again, how long it waits, and when it gives up."""

from __future__ import annotations

import asyncio

import pytest

from op_jupyter.engine.retry import RetryInfo, RetryPolicy, call_with_retry, last_error
from op_jupyter.errors import (
    AuthenticationFailed,
    ProtocolError,
    ProviderConnectionError,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    Refused,
    RetriesExhausted,
    SpendLimitReached,
)


class World:
    """A clock that only sleeping moves, and a script of what each attempt does."""

    def __init__(self, *results: object) -> None:
        self.results = list(results)
        self.now = 0.0
        self.sleeps: list[float] = []
        self.numbers: list[int] = []
        self.infos: list[RetryInfo] = []

    async def attempt(self, number: int) -> object:
        self.numbers.append(number)
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    async def run(self, random: float = 0.0, **policy: object) -> object:
        return await call_with_retry(
            self.attempt,
            RetryPolicy(**policy),
            on_retry=self.infos.append,
            sleep=self.sleep,
            clock=lambda: self.now,
            random=lambda: random,
        )


async def test_a_success_is_returned_after_one_attempt_without_a_wait():
    world = World("answer")
    assert await world.run() == "answer"
    assert (world.numbers, world.sleeps, world.infos) == ([1], [], [])


@pytest.mark.parametrize(
    "error", [ProviderConnectionError, ProviderTimeout, ProviderOverloaded, RateLimited]
)
async def test_passing_faults_are_tried_again(error):
    world = World(error("first"), error("second"), "answer")
    assert await world.run() == "answer"
    assert world.numbers == [1, 2, 3]
    assert [info.line for info in world.infos] == [
        f"Attempt 1: {error.__name__}: first",
        f"Attempt 2: {error.__name__}: second",
    ]
    assert [info.wait for info in world.infos] == world.sleeps


@pytest.mark.parametrize(
    "error",
    [
        TypeError("not my fault"),
        NotImplementedError("later"),
        ImportError("no such module"),
        ConnectionError("of the caller's own code"),
        TimeoutError("of the caller's own code"),
        AuthenticationFailed("wrong key"),
        SpendLimitReached("no money"),
        Refused("no"),
        ProtocolError("garbage"),
        RateLimited("too late", semantic_output=True),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_anything_else_passes_through_unchanged_after_exactly_one_attempt(error):
    world = World(error)
    with pytest.raises(type(error)) as caught:
        await world.run()
    assert caught.value is error
    assert (world.numbers, world.sleeps) == ([1], [])


async def test_the_final_failure_lists_every_attempt():
    world = World(RateLimited("slow down"), ProviderTimeout("silence"), ProviderOverloaded("busy"))
    with pytest.raises(RetriesExhausted) as caught:
        await world.run()
    assert caught.value.attempts == (
        "Attempt 1: RateLimited: slow down",
        "Attempt 2: ProviderTimeout: silence",
        "Attempt 3: ProviderOverloaded: busy",
    )
    assert "Attempt 2: ProviderTimeout: silence" in str(caught.value)
    assert isinstance(caught.value.__cause__, ProviderOverloaded)
    assert not caught.value.retryable


async def test_a_fatal_error_after_a_retry_ends_the_call_and_stays_known():
    world = World(RateLimited("slow down"), AuthenticationFailed("wrong key"), "never asked")
    with pytest.raises(RetriesExhausted) as caught:
        await world.run()
    assert world.numbers == [1, 2]
    assert isinstance(last_error(caught.value), AuthenticationFailed)


async def test_without_retries_the_only_error_is_raised_as_it_is():
    error = RateLimited("slow down")
    with pytest.raises(RateLimited) as caught:
        await World(error).run(max_retries=0)
    assert caught.value is error
    assert last_error(error) is error


async def test_waits_double_up_to_the_longest():
    world = World(*[ProviderOverloaded("busy")] * 6, "answer")
    await world.run(max_retries=6, first_wait=1, longest_wait=10)
    assert world.sleeps == [1, 2, 4, 8, 10, 10]


async def test_jitter_shortens_a_wait_by_at_most_a_quarter():
    world = World(ProviderOverloaded("busy"), "answer")
    await world.run(random=1.0, first_wait=1)
    assert world.sleeps == [0.75]


async def test_the_service_may_ask_for_a_longer_wait_but_not_for_a_shorter_one():
    world = World(RateLimited("a", retry_after=7), RateLimited("b", retry_after=0.1), "answer")
    await world.run(first_wait=1)
    assert world.sleeps == [7, 2]


async def test_a_service_that_asks_for_an_hour_is_given_up_at_once():
    world = World(RateLimited("come back later", retry_after=3600), "never asked")
    with pytest.raises(RateLimited):
        await world.run()
    assert world.sleeps == []


async def test_no_wait_goes_past_the_deadline():
    world = World(RateLimited("a", retry_after=4), RateLimited("b", retry_after=4), "never asked")
    with pytest.raises(RetriesExhausted) as caught:
        await world.run(timeout=6)
    assert (world.numbers, world.sleeps) == ([1, 2], [4])
    assert len(caught.value.attempts) == 2


async def test_the_deadline_ends_a_running_attempt():
    cancelled = asyncio.Event()

    async def hang(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ProviderTimeout, match=r"within the timeout of 0\.01 s") as caught:
        await call_with_retry(hang, RetryPolicy(timeout=0.01))
    assert cancelled.is_set()
    assert not caught.value.retryable


async def test_a_deadline_in_a_later_attempt_is_listed_with_the_others():
    async def attempt(number: int) -> None:
        if number == 1:
            raise RateLimited("slow down")
        await asyncio.Event().wait()

    with pytest.raises(RetriesExhausted) as caught:
        await call_with_retry(attempt, RetryPolicy(timeout=0.05, first_wait=0))
    assert caught.value.attempts[1].startswith("Attempt 2: ProviderTimeout: no answer within")


async def test_cancelling_during_a_wait_cancels_the_call():
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def attempt(number: int) -> None:
        raise RateLimited("slow down")

    task = asyncio.create_task(call_with_retry(attempt, RetryPolicy(), sleep=sleep))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_observer_that_fails_is_heard():
    def broken(info: RetryInfo) -> None:
        raise ZeroDivisionError("in the observer")

    async def attempt(number: int) -> None:
        raise ProviderError("again", retryable=True)

    with pytest.raises(ZeroDivisionError):
        await call_with_retry(attempt, RetryPolicy(), on_retry=broken)
