"""The retry contract from a runtime's outside, against the fake service over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from op_jupyter.core.messages import ModelDelta, TextDelta, ThinkingDelta, ToolUseStarted
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ContextOverflow,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    Refused,
    RetriesExhausted,
    RuntimeClosed,
    SpendLimitReached,
)
from op_jupyter.providers.anthropic import AnthropicProvider
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text
from op_jupyter.testing.providers import ScriptedProvider, reply

SOON = {"retry-after-ms": "1"}


@pytest.fixture(scope="module")
def service() -> Iterator[FakeMessages]:
    with FakeMessages() as fake:
        yield fake


@pytest.fixture
def fake(service: FakeMessages) -> FakeMessages:
    service.reset()
    return service


def runtime(fake: FakeMessages, **options: Any) -> Runtime:
    profile = EndpointProfile(base_url=fake.url, api_key=API_KEY)
    return Runtime(provider=AnthropicProvider(profile), **options)


def test_two_retries_are_three_requests_and_no_more(fake: FakeMessages) -> None:
    fake.script(*[Reply(status=429, headers=SOON)] * 9)
    with runtime(fake) as asked, pytest.raises(RetriesExhausted) as caught:
        asked.exec("hello")
    assert len(fake.requests) == 3
    assert [line[:26] for line in caught.value.attempts] == [
        "Attempt 1: RateLimitError:",
        "Attempt 2: RateLimitError:",
        "Attempt 3: RateLimitError:",
    ]
    assert "Attempt 2: RateLimitError: " in str(caught.value)
    assert isinstance(caught.value.last, RateLimited)


@pytest.mark.parametrize(("of_runtime", "of_call", "requests"), [(0, None, 1), (0, 1, 2)])
def test_the_number_of_retries_is_the_runtime_s_or_the_call_s(
    fake: FakeMessages, of_runtime: int, of_call: int | None, requests: int
) -> None:
    fake.script(*[Reply(status=529, headers=SOON)] * 9)
    with runtime(fake, max_retries=of_runtime) as asked, pytest.raises(ProviderError):
        asked.exec("hello", max_retries=of_call)
    assert len(fake.requests) == requests


@pytest.mark.parametrize("wait", ["seconds", "date"])
def test_the_wait_that_the_service_asks_for_is_kept(fake: FakeMessages, wait: str) -> None:
    until = int(time.time() + 2)  # a date has whole seconds
    after = "1" if wait == "seconds" else formatdate(until, usegmt=True)
    fake.script(Reply(status=429, headers={"retry-after": after}))
    waits: list[float] = []
    began = time.monotonic()
    with runtime(fake, on_retry=lambda info: waits.append(info.wait)) as asked:
        assert asked.exec("hello") == "You said: hello"
    assert waits[0] <= 2
    assert time.monotonic() - began >= waits[0]
    assert waits[0] >= 1 if wait == "seconds" else time.time() >= until - 0.1


def test_on_retry_is_told_of_each_failure_before_the_next_attempt(fake: FakeMessages) -> None:
    fake.script(Reply(status=500, headers=SOON), Reply(fault="drop"))
    told: list[tuple[int, int, str]] = []
    with runtime(
        fake,
        on_retry=lambda info: told.append(
            (info.attempt, len(fake.requests), type(info.error).__name__)
        ),
    ) as asked:
        asked.exec("hello")
    assert told == [(1, 1, "ProviderOverloaded"), (2, 2, "ProviderConnectionError")]


def test_the_timeout_covers_attempts_and_waits(fake: FakeMessages) -> None:
    fake.script(Reply(status=529, headers=SOON), Reply(fault="hang", at=0))
    began = time.monotonic()
    with runtime(fake, timeout=1.5) as asked, pytest.raises(RetriesExhausted) as caught:
        asked.exec("hello")
    assert time.monotonic() - began < 10
    assert isinstance(caught.value.last, ProviderTimeout)
    assert "no answer within the timeout of 1.5 s" in caught.value.attempts[1]


def test_a_wait_that_would_pass_the_timeout_is_not_begun(fake: FakeMessages) -> None:
    fake.script(Reply(status=429, headers={"retry-after": "60"}))
    with runtime(fake, timeout=20) as asked, pytest.raises(RateLimited):
        asked.exec("hello")
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=401), AuthenticationFailed),
        (Reply(status=429, error_code="contract_spend_limit_reached"), SpendLimitReached),
        (
            Reply(status=429, error_message="You have reached your spend limit.", headers=SOON),
            SpendLimitReached,
        ),
        (Reply(status=402, headers={"x-should-retry": "true"}), SpendLimitReached),
        (Reply(status=401, headers={"x-should-retry": "true"}), AuthenticationFailed),
        (Reply(status=400, error_message="prompt is too long: 9 tokens > 8"), ContextOverflow),
        (Reply([text("no")], stop="refusal"), Refused),
        (Reply([], stop="refusal"), Refused),
        (Reply([text("half an answer")], fault="abort", at=5), ProviderConnectionError),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_another_attempt_cannot_help_is_asked_once(
    fake: FakeMessages, reply: Reply, kind: type[Exception]
) -> None:
    fake.script(reply)
    with runtime(fake) as asked, pytest.raises(kind):
        asked.exec("hello")
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "began", [TextDelta("half"), ThinkingDelta("hm"), ToolUseStarted(0, "look")]
)
def test_nothing_is_asked_again_once_an_answer_began(began: ModelDelta) -> None:
    cut = ProviderConnectionError("the line broke")
    assert cut.retryable and not cut.semantic_output
    provider = ScriptedProvider([began, cut], reply("never"))
    with Runtime(provider=provider) as asked, pytest.raises(ProviderConnectionError):
        asked.exec("hello")
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "error", [TypeError, NotImplementedError, ImportError, AttributeError, ValueError, KeyError]
)
def test_a_programming_error_in_a_function_that_plays_the_model_is_raised_after_one_call(
    error: type[Exception],
) -> None:
    calls = []

    def broken(content: list[dict[str, Any]]) -> str:
        calls.append(content)
        raise error("a mistake")

    with Runtime(call=broken) as asked, pytest.raises(error, match="a mistake"):
        asked.exec("hello")
    assert len(calls) == 1


def test_an_answer_that_was_cut_says_so(fake: FakeMessages) -> None:
    fake.script(Reply([text("half")], stop="max_tokens"))
    with runtime(fake) as asked:
        cut, whole = asked.exec("hello"), asked.exec("hello")
    assert (cut, cut.stop_reason, whole.stop_reason) == ("half", "max_tokens", "end_turn")


def test_a_pause_is_sent_back_as_it_is_and_gone_on_with(fake: FakeMessages) -> None:
    fake.script(Reply([text("one moment")], stop="pause_turn"), Reply([text("done")]))
    with runtime(fake) as asked:
        assert asked.exec("hello", max_steps=3) == "done"
    last = fake.requests[-1].body["messages"][-1]
    assert (last["role"], last["content"][0]["text"]) == ("assistant", "one moment")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
    ],
)
def test_a_policy_that_means_nothing_is_refused_at_once(options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Runtime(call=lambda content: "ok", **options)
    with Runtime(call=lambda content: "ok") as asked, pytest.raises(ConfigurationError, match=said):
        asked.exec("hello", **options)


def test_a_closed_runtime_asks_nothing_and_says_what_to_do(fake: FakeMessages) -> None:
    asked = runtime(fake)
    asked.exec("hello")
    asked.close()
    asked.close()
    with pytest.raises(RuntimeClosed, match="create_runtime"):
        asked.exec("again")
    assert len(fake.requests) == 1
    fake.wait_connections(0)
