"""Keep secrets out of what is stored, shown or sent: replace them by a fixed mark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

MARK: Final = "[redacted]"
SHORTEST_SECRET: Final = 8
"""Shorter values are common words and numbers; replacing them would garble everything."""

_SECRET_NAME: Final = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)PASS(?:$|_)"
    r"|KEY(?!BOARD|MAP|WORD)|AUTH(?!OR(?!IZ|IS))",
    re.IGNORECASE,
)

_KEY_SHAPES: Final = re.compile(
    r"""
      sk-ant-[A-Za-z0-9_-]{8,}                       # Anthropic
    | \bsk-(?:proj-)?[A-Za-z0-9_-]{20,}              # OpenAI and its likes
    | \bgh[pousr]_[A-Za-z0-9]{20,}                   # GitHub
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}                     # GitLab
    | \bhf_[A-Za-z0-9]{20,}                          # Hugging Face
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                  # AWS
    | \bAIza[A-Za-z0-9_-]{30,}                       # Google
    | \bxox[abposr]-[A-Za-z0-9-]{10,}                # Slack
    | \bpypi-AgE[A-Za-z0-9_-]{20,}                   # PyPI
    | \bnpm_[A-Za-z0-9]{30,}                         # npm
    | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web token
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)

T = TypeVar("T")


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name is expected to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values in *environ* whose names say that they are secret."""
    return tuple(value for name, value in environ.items() if is_secret_name(name))


class Redactor:
    """Replaces known secrets, and anything shaped like a key, by `MARK`.

    A secret is also found as it looks inside JSON text and inside an address.
    Values shorter than `SHORTEST_SECRET` are left alone.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets for form in _forms(secret)}
        # A lookahead finds occurrences that overlap; the longest secret that starts at a
        # position comes first, so that a secret inside another cannot end the match early.
        ordered = sorted(known, key=lambda form: (-len(form), form))
        pattern = "|".join(re.escape(form) for form in ordered)
        self._known = re.compile(f"(?=({pattern}))", re.DOTALL) if ordered else None

    def text(self, text: str) -> str:
        """*text* with every secret replaced."""
        spans = sorted(self._spans(text))
        if not spans:
            return text
        out: list[str] = []
        position = 0
        for start, end in _merged(spans):
            out += (text[position:start], MARK)
            position = end
        return "".join(out) + text[position:]

    def json(self, value: T) -> T:
        """The JSON *value* with every text in it treated alike, keys of objects included."""
        return self._value(value)  # type: ignore[no-any-return]  # same shape as it came

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._members(value)
        if isinstance(value, list | tuple):
            return type(value)([self._value(item) for item in value])
        return value

    def _members(self, value: Mapping[str, Any]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, item in value.items():
            key = name = self._value(key)
            count = 1
            while name in members:
                count += 1
                name = f"{key} ({count})"
            members[name] = self._value(item)
        return members

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        if self._known is not None:
            for match in self._known.finditer(text):
                yield match.span(1)
        for match in _KEY_SHAPES.finditer(text):
            yield match.span()


def _forms(secret: str) -> Iterator[str]:
    """*secret* as it is, as JSON writes it, and as an address writes it."""
    secret = secret.strip()
    if len(secret) >= SHORTEST_SECRET:
        yield secret
        yield json.dumps(secret)[1:-1]
        yield json.dumps(secret, ensure_ascii=False)[1:-1]
        yield quote(secret, safe="", errors="surrogatepass")


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted *spans*, those that overlap or touch made one."""
    start, end = spans[0]
    for next_start, next_end in spans[1:]:
        if next_start > end:
            yield start, end
            start, end = next_start, next_end
        else:
            end = max(end, next_end)
    yield start, end
