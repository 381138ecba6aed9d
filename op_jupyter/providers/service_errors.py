"""What an error answer of a Messages service means, and what to do about it.

Classified by status, type and code: the SDK's classes alone do not tell (an ``error`` event in
a running stream arrives with status 200), and the wording changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from op_jupyter.core.values import dataclass
from op_jupyter.errors import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    ModelNotFound,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    SpendLimitReached,
)
from op_jupyter.providers.profile import EndpointProfile

_MOST_SHOWN: Final = 300
_OVERFLOW: Final = re.compile(
    r"prompt is too long|exceed\w*\b.{0,40}\bcontext|context (length|window|size).{0,40}exceed",
    re.IGNORECASE | re.DOTALL,
)
_SPEND_LIMIT: Final = re.compile(r"spend(ing)? limit", re.IGNORECASE)
_OUT_OF_MONEY: Final = re.compile(r"credit balance|spend(ing)? limit|billing", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The parts of an error answer that decide; *code* is the service's stable cause."""

    status: int
    type: str = ""
    code: str = ""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def parse_error(status: int, body: object, headers: Mapping[str, str]) -> ErrorAnswer:
    """The error in *body*, which is parsed JSON, or a page of some proxy on the way."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, str):
        return ErrorAnswer(status, message=error, headers=headers)
    if not isinstance(error, Mapping):
        return ErrorAnswer(status, headers=headers)
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, Mapping) else None
    return ErrorAnswer(
        status,
        str(error.get("type") or ""),
        str(code or ""),
        str(error.get("message") or ""),
        headers,
    )


class _Rule(NamedTuple):
    applies: Callable[[ErrorAnswer], bool]
    kind: type[ProviderError]
    advice: str


def provider_error(
    answer: ErrorAnswer, profile: EndpointProfile, model: str, *, now: float, semantic: bool = False
) -> ProviderError:
    """The `ProviderError` for *answer*.

    Args:
        now: seconds since the epoch, for a ``retry-after`` that is a date.
        semantic: text, thinking or a tool call had already arrived.
    """
    rule = next(rule for rule in _RULES if rule.applies(answer))
    advice = rule.advice.format(
        model=model, source=profile.key_source or "the settings", url=profile.base_url
    )
    said = profile.redact(_shorten(answer.message))
    status = f" ({answer.status})" if answer.status >= 400 else ""
    return rule.kind(
        f"{profile.name}: {advice}{status}" + (f". The service says: {said}" if said else ""),
        retryable=not semantic and _may_retry(rule.kind, answer.headers),
        retry_after=parse_retry_after(answer.headers, now),
        semantic_output=semantic,
        status_code=answer.status,
    )


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait as the service asks, or None; never negative."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        value = headers.get("retry-after", "")
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):  # a time zone may be any number
        return None


def _may_retry(kind: type[ProviderError], headers: Mapping[str, str]) -> bool:
    # The service may forbid what we would try again, and not ask for what cannot help.
    return kind.retryable and headers.get("x-should-retry") != "false"


def _shorten(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _is_context_overflow(answer: ErrorAnswer) -> bool:
    if answer.type == "exceed_context_size_error":
        return True
    return answer.status in (200, 400, 413, 500) and bool(_OVERFLOW.search(answer.message))


def _is_out_of_money(answer: ErrorAnswer) -> bool:
    if answer.status == 402 or answer.type == "billing_error":
        return True
    if "spend_limit" in answer.code:
        return True
    if answer.status == 429:
        return bool(_SPEND_LIMIT.search(answer.message))
    return answer.status == 400 and bool(_OUT_OF_MONEY.search(answer.message))


def _is_unknown_model(answer: ErrorAnswer) -> bool:
    return (
        answer.status in (200, 404)
        and answer.type == "not_found_error"
        and "model" in answer.message.lower()
    )


def _has(statuses: range | tuple[int, ...], *types: str) -> Callable[[ErrorAnswer], bool]:
    """A test on the status; on the type in a stream, whose status was 200 long ago."""
    return lambda answer: (
        answer.status in statuses or (answer.status == 200 and answer.type in types)
    )


_RULES: Final = (
    _Rule(
        _is_context_overflow,
        ContextOverflow,
        "the request is larger than the context window of {model}",
    ),
    _Rule(
        _is_out_of_money,
        SpendLimitReached,
        "the account may not spend more; raise its limit or add credit",
    ),
    _Rule(
        _has((401, 403), "authentication_error", "permission_error"),
        AuthenticationFailed,
        "the key from {source} is wrong or may not do this; check it",
    ),
    _Rule(
        _is_unknown_model,
        ModelNotFound,
        "the service does not know the model {model!r}; choose another one",
    ),
    _Rule(
        _has((404, 405), "not_found_error"),
        InvalidRequest,
        "{url} has no Messages API; check the base URL",
    ),
    _Rule(_has((413,), "request_too_large"), InvalidRequest, "the request is too large; send less"),
    _Rule(
        _has((429,), "rate_limit_error"),
        RateLimited,
        "too many requests for now; wait, or ask for less at once",
    ),
    _Rule(_has((408, 504), "timeout_error"), ProviderTimeout, "the service took too long"),
    _Rule(
        _has((409, *range(500, 600)), "overloaded_error", "api_error", "conflict_error"),
        ProviderOverloaded,
        "the service is overloaded or failed inside; try again later",
    ),
    _Rule(lambda answer: True, InvalidRequest, "the service refused the request"),
)
"""The first rule that applies decides."""
