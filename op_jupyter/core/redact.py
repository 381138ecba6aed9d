"""Keep secrets out of what is stored, shown or sent: replace them by a fixed mark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

MARK: Final = "[redacted]"
SHORTEST_SECRET: Final = 8
"""Shorter values are common words and numbers; replacing them would garble everything."""

_SECRET_NAME: Final = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)PASS(?:$|_)"
    r"|KEY(?!BOARD|MAP|WORD)|AUTH(?!OR(?!IZ|IS))",
    re.IGNORECASE,
)

_KEY_SHAPES: Final = {
    "sk-ant-": r"sk-ant-[A-Za-z0-9_-]{8,}",  # Anthropic
    "sk-": r"\bsk-(?:proj-)?[A-Za-z0-9_-]{20,}",  # OpenAI and its likes
    **{f"gh{kind}_": rf"\bgh{kind}_[A-Za-z0-9]{{20,}}" for kind in "pousr"},  # GitHub
    "github_pat_": r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    "glpat-": r"\bglpat-[A-Za-z0-9_-]{16,}",  # GitLab
    "hf_": r"\bhf_[A-Za-z0-9]{20,}",  # Hugging Face
    "AKIA": r"\bAKIA[A-Z0-9]{16}\b",  # AWS
    "ASIA": r"\bASIA[A-Z0-9]{16}\b",
    "AIza": r"\bAIza[A-Za-z0-9_-]{30,}",  # Google
    "xox": r"\bxox[abposr]-[A-Za-z0-9-]{10,}",  # Slack
    "pypi-AgE": r"\bpypi-AgE[A-Za-z0-9_-]{20,}",  # PyPI
    "npm_": r"\bnpm_[A-Za-z0-9]{30,}",  # npm
    # JSON web token; the possessive part keeps a long text of near misses from taking for ever
    "eyJ": r"\beyJ[A-Za-z0-9_-]{8,400}+\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "-----BEGIN ": (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    ),
}
"""How well-known keys begin, and what they look like.

The beginnings are looked for as plain text, which is many times faster than an expression.
"""

_SHAPES: Final = {start: re.compile(shape) for start, shape in _KEY_SHAPES.items()}

_PLAIN: Final = frozenset({int, float, bool, type(None)})

_as_json: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode

T = TypeVar("T")


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name is expected to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values in *environ* whose names say that they are secret."""
    return tuple(value for name, value in environ.items() if is_secret_name(name))


class Redacts(Protocol):
    """Whatever takes secrets out, those of one moment or those of now."""

    def text(self, text: str) -> str:
        """*text* with every secret replaced."""

    def json(self, value: T) -> T:
        """The JSON *value*, treated alike."""


class Redactor:
    """Replaces known secrets, and anything shaped like a key, by `MARK`.

    A secret is also found as it looks inside JSON text and inside an address.
    Values shorter than `SHORTEST_SECRET` are left alone.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = sorted({form for secret in secrets for form in _forms(secret)})
        self._beginnings = (*self._known, *_SHAPES)
        self._in_json = tuple(_as_json(beginning)[1:-1] for beginning in self._beginnings)

    def text(self, text: str) -> str:
        """*text* with every secret replaced."""
        # Nearly every text is clean, and this is asked for each text of all that is stored.
        if len(text) < SHORTEST_SECRET or not self._may_hold_one(text):
            return text
        spans = sorted(self._spans(text))
        if not spans:
            return text
        out: list[str] = []
        position = 0
        for start, end in _merged(spans):
            out += (text[position:start], MARK)
            position = end
        return "".join(out) + text[position:]

    def _may_hold_one(self, text: str) -> bool:
        for beginning in self._beginnings:  # noqa: SIM110 -- a generator takes twice as long
            if beginning in text:
                return True
        return False

    def json(self, value: T) -> T:
        """The JSON *value* with every text in it treated alike, keys of objects included.

        A value that is clean is returned itself, not a copy.
        """
        # Nearly every value is clean.  To look at all of it as one text is C's work, and takes a
        # fifth of what walking through it does.
        try:
            if self._is_clean(_as_json(value)):
                return value
        except (TypeError, ValueError, RecursionError):
            pass  # it is not quite JSON: a mapping that is no dict, for example
        return self._value(value)  # type: ignore[no-any-return]  # same shape as it came

    def _is_clean(self, text: str) -> bool:
        """Whether nothing in *text*, a whole value as JSON, has to be replaced."""
        return not any(map(text.__contains__, self._in_json))

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            # Names of members, mostly; too short for a secret, and nothing to put right.
            short = len(value) < SHORTEST_SECRET and value.isascii()
            return value if short else self.text(value)
        if kind in _PLAIN:
            return value
        if kind is dict:
            return self._members(value)
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
        for form in self._known:
            for start in _places(text, form):
                yield start, start + len(form)
        for beginning, shape in _SHAPES.items():
            end = 0
            for start in _places(text, beginning):
                if start >= end and (match := shape.match(text, start)):
                    end = match.end()
                    yield start, end


def _places(text: str, part: str) -> Iterator[int]:
    """Where *part* stands in *text*, also where occurrences overlap."""
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


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
