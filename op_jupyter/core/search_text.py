"""Text as a full-text index sees it: what a word is, what a query means, what a hit looks like.

Chinese, Japanese and Korean are written without spaces that a tokenizer could use, so each of
their characters is a word of its own, and a query for several of them is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

SEPARATOR: Final = "\u200b"
"""Stands around each CJK character in the index: no letter, and invisible."""

MAX_QUERY_WORDS: Final = 32
MAX_WORD_CHARS: Final = 200
SNIPPET_CHARS: Final = 160
_BEFORE: Final = 50
_PREFIX_CHARS: Final = 3
"""From so many letters on, a word stands for all that begin with it."""

_CJK: Final = re.compile(
    "["
    "\u1100-\u11ff"  # Hangul Jamo that stay single
    "\u2e80-\u2fdf"  # radicals
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b"
    "\u3040-\u30ff\u3100-\u312f\u3130-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U000323af"
    "]"
)
_SPACED: Final = re.compile(f"{SEPARATOR}+")


def indexed(text: str) -> str:
    """*text* for the index: one form for one character, CJK characters apart."""
    plain = normal(text)
    return plain if plain.isascii() else _CJK.sub(f"{SEPARATOR}\\g<0>{SEPARATOR}", plain)


def shown(stored: str) -> str:
    """What `indexed` made, for people again."""
    return stored if stored.isascii() else _SPACED.sub("", stored)


def normal(text: str) -> str:
    """*text* in one form: full-width letters are letters, and composed ones are composed.

    Without what an index cannot hold: NUL, lone surrogates, and our own separator.
    """
    if text.isascii():
        return text.replace("\0", " ")
    clean = "".join(
        " " if ch in ("\0", SEPARATOR) or "\ud800" <= ch <= "\udfff" else ch for ch in text
    )
    return unicodedata.normalize("NFKC", clean)


def query_words(query: str) -> list[str]:
    """The words that a result has to hold, all of them.  Whatever is no letter divides nothing.

    A word that holds no letter or digit at all can be found nowhere and is left out.
    """
    words = (word[:MAX_WORD_CHARS] for word in normal(query).split())
    return [word for word in words if any(ch.isalnum() for ch in word)][:MAX_QUERY_WORDS]


def match_expression(words: Sequence[str]) -> str:
    """The FTS5 query for *words*: each a quoted phrase, so that nothing in it is syntax."""
    return " AND ".join(map(_phrase, words))


def _phrase(word: str) -> str:
    quoted = indexed(word).replace('"', " ")
    last = next(ch for ch in reversed(word) if ch.isalnum())
    ends_in_letters = word.endswith(last) and not _CJK.match(last)
    long = len(re.split(r"\W+", quoted)[-1]) >= _PREFIX_CHARS
    return f'"{quoted}"' + (" *" if ends_in_letters and long else "")


def snippet(text: str, words: Sequence[str]) -> str:
    """The part of *text* around the first of *words*, on one line, cut ends marked."""
    line = " ".join(text.split())
    lower = line.lower()
    places = [at for word in words if (at := lower.find(word.lower())) >= 0]
    start = max(0, min(places, default=0) - _BEFORE)
    if start:
        space = line.find(" ", start, start + _BEFORE // 2)
        start = start if space < 0 else space + 1
    part = line[start : start + SNIPPET_CHARS]
    head = "…" if start else ""
    return head + part + ("…" if start + SNIPPET_CHARS < len(line) else "")
