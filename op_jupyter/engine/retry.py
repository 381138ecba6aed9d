"""How often a model call is tried, and how long it waits in between.

Providers never retry; this file alone does.  Only a `ProviderError` that says ``retryable`` and
had no semantic output is worth another attempt: anything else, a programming error first of
all, passes through after exactly one.

tenacity runs the loop.  Its own policies cannot be used: they know neither ``retry_after``, nor
a clock or randomness from outside, nor a deadline that ends a running attempt.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError, ProviderError, ProviderTimeout, RetriesExhausted

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
_JITTER: Final = 0.25


def is_whole(number: object, least: int) -> bool:
    """Whether *number* is an integer, no boolean, from *least* up."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How persistent to be.

    Attributes:
        max_retries: attempts after the first one.
        timeout: seconds for everything, attempts and waits together; None: no limit.
        first_wait: seconds before the second attempt; doubled for each one after, less up to
            a quarter at random so that many clients do not come back at once.
        longest_wait: largest such wait.
        longest_retry_after: a service that asks for more is given up at once: better an error
            than a cell that sleeps for an hour.

    Raises:
        ConfigurationError: a number that means nothing.
    """

    max_retries: int = 2
    timeout: float | None = None
    first_wait: float = 0.5
    longest_wait: float = 30.0
    longest_retry_after: float = 300.0

    def __post_init__(self) -> None:
        retries, timeout = self.max_retries, self.timeout
        if not is_whole(retries, 0):
            raise ConfigurationError(f"max_retries is {retries!r}; give a whole number from 0 up")
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and 0 < timeout < math.inf):
            raise ConfigurationError(f"timeout is {timeout!r}; give seconds above 0, or None")


@dataclass(frozen=True, slots=True)
class RetryInfo:
    """What an observer is told before a wait: *attempt* (from 1) failed with *error*."""

    attempt: int
    error: ProviderError
    wait: float

    @property
    def line(self) -> str:
        """The failure in one line: ``Attempt 1: RateLimitError: ...``."""
        return _line(self.attempt, self.error)


OnRetry: TypeAlias = Callable[[RetryInfo], None]


async def call_with_retry(
    attempt: Callable[[int], Awaitable[T]],
    policy: RetryPolicy,
    *,
    on_retry: OnRetry | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = random.random,
) -> T:
    """The value of the first *attempt* (called with its number, from 1) that succeeds.

    Raises:
        RetriesExhausted: more than one attempt failed; it lists them all, and ``last`` is the
            error of the last.
        ProviderError: the only attempt failed.
        ProviderTimeout: the first attempt ran into the policy's *timeout*.
    """
    run = _Run(policy, on_retry, clock, random)
    try:
        return await run.try_once(attempt)
    except ProviderError as error:
        if not is_worth_another_attempt(error):
            raise
        failed = [error]

    async def try_again() -> T:
        if failed:  # tenacity is told of the first attempt only when it has something to do
            raise failed.pop()
        return await run.try_once(attempt)

    from tenacity import AsyncRetrying, retry_if_exception  # on first use: it loads slowly

    retrying = AsyncRetrying(
        retry=retry_if_exception(is_worth_another_attempt),
        wait=run.choose_wait,
        stop=run.is_over,
        before_sleep=run.report,
        sleep=sleep,
        reraise=True,
    )
    try:
        return await retrying(try_again)
    except ProviderError as error:
        if len(run.lines) == 1:
            raise
        raise _exhausted(run.lines, error) from error


def is_worth_another_attempt(error: BaseException) -> bool:
    """Whether the retry rule allows another attempt after *error*."""
    return isinstance(error, ProviderError) and error.retryable and not error.semantic_output


def last_error(error: ProviderError) -> ProviderError:
    """The error that ended the call: *error*, or the last one of its attempts."""
    return error.last if isinstance(error, RetriesExhausted) else error


class _Run:
    """One call's attempts so far, and the decisions that follow from them."""

    def __init__(
        self,
        policy: RetryPolicy,
        on_retry: OnRetry | None,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.lines: list[str] = []
        self._policy = policy
        self._on_retry = on_retry
        self._clock = clock
        self._random = random
        self._started = clock()

    async def try_once(self, attempt: Callable[[int], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._time_left()) as limit:
                return await attempt(len(self.lines) + 1)
        except ProviderError as error:
            self._log(error)
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise  # the attempt's own, and none of a provider's
            timeout = ProviderTimeout(
                f"no answer within the timeout of {self._policy.timeout:g} s", retryable=False
            )
            self._log(timeout)
            raise timeout from error

    def choose_wait(self, state: RetryCallState) -> float:
        grown = self._policy.first_wait * 2.0 ** (state.attempt_number - 1)
        backoff = min(grown, self._policy.longest_wait) * (1 - _JITTER * self._random())
        return max(backoff, _failure(state).retry_after or 0.0)

    def is_over(self, state: RetryCallState) -> bool:
        time_left = self._time_left()
        return (
            state.attempt_number > self._policy.max_retries
            or (_failure(state).retry_after or 0.0) > self._policy.longest_retry_after
            or (time_left is not None and state.upcoming_sleep >= time_left)
        )

    def report(self, state: RetryCallState) -> None:
        if self._on_retry is not None:
            info = RetryInfo(state.attempt_number, _failure(state), state.upcoming_sleep)
            self._on_retry(info)

    def _time_left(self) -> float | None:
        if self._policy.timeout is None:
            return None
        return self._policy.timeout - (self._clock() - self._started)

    def _log(self, error: ProviderError) -> None:
        self.lines.append(_line(len(self.lines) + 1, error))


def _line(attempt: int, error: ProviderError) -> str:
    # What a service answered goes by the name that its library, or the user's function, gave it.
    named = error if error.status_code is None else error.__cause__ or error
    return f"Attempt {attempt}: {type(named).__name__}: {error.message}"


def _failure(state: RetryCallState) -> ProviderError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ProviderError)  # nothing else is tried again
    return error


def _exhausted(lines: list[str], last: ProviderError) -> RetriesExhausted:
    return RetriesExhausted(
        "\n".join([f"the model gave no answer after {len(lines)} attempts", *lines]),
        attempts=tuple(lines),
        last=last,
        semantic_output=last.semantic_output,
        status_code=last.status_code,
    )
