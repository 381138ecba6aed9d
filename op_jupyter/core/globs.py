"""Path globs: what they match, in a time that no pattern can make long.

``*`` stands for anything within one name, ``**`` for anything, ``/**/`` for any number of
folders and ``?`` for one character of a name; a backslash takes their meaning away.
``folder/**`` matches the folder too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

Matches: TypeAlias = Callable[[str], bool]

_FEW: Final = 2
"""So many wildcards `re` tries in a time that grows with the square of the path at most."""


@lru_cache(maxsize=512)
def glob(pattern: str) -> Matches:
    """Whether a path, from its first character to its last, fits *pattern*."""
    tokens = _tokens(pattern)
    if sum(token in _WILD for token in tokens) <= _FEW:
        fits = re.compile("".join(map(_regex, tokens)), re.DOTALL).fullmatch
        return lambda path: fits(path) is not None
    return _Automaton(tokens).matches


_WILD: Final = {
    "/**/": r"/(?:.+/)?",
    "/**": r"(?:/.*)?",
    "**/": r"(?:.+/)?",
    "**": r".*",
    "*": r"[^/]*",
}


def _tokens(pattern: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(pattern):
        token = _token(pattern, position)
        position += len(token)
        if token not in ("*", "**") or tokens[-1:] != [token]:  # one more says no more
            tokens.append(token)
    return tokens


def _token(pattern: str, position: int) -> str:
    if pattern[position] == "\\" and position + 1 < len(pattern):
        return pattern[position : position + 2]
    if pattern.startswith("/**/", position):
        return "/**/"
    if pattern.startswith("/**", position) and position + 3 == len(pattern):
        return "/**"
    if pattern.startswith("**/", position) and position == 0:
        return "**/"
    return "**" if pattern.startswith("**", position) else pattern[position]


def _regex(token: str) -> str:
    return _WILD.get(token) or (r"[^/]" if token == "?" else re.escape(token[-1]))


class _Automaton:
    """All ways to match at once: bit *n* of a number says that state *n* is possible.

    `re` tries one way after the other, and of many stars there are too many ways.
    """

    def __init__(self, tokens: list[str]) -> None:
        self._after: dict[str, int] = {}  # states that this very character leads out of
        self._letter = 0  # ... that any character of a name leads out of
        self._any = 0  # ... that any character at all leads out of
        self._stays_in_name = 0
        self._stays = 0
        self._skips = 0  # states that may be left without a character, to the next
        self._skips_two = 0  # ... and to the one after that
        self._count = 0
        for token in tokens:
            self._add(token)

    def _add(self, token: str) -> None:
        match token:
            case "*":
                here = self._state()
                self._stays_in_name |= here
                self._skips |= here
            case "**":
                self._anything()
            case "?":
                self._letter |= self._state()
            case "/**":
                here = self._literal("/")
                self._skips_two |= here
                self._anything()
            case "/**/":
                self._literal("/")
                self._folders()
            case "**/":
                self._folders()
            case _:
                self._literal(token[-1])

    def _state(self) -> int:
        here = 1 << self._count
        self._count += 1
        return here

    def _literal(self, character: str) -> int:
        here = self._state()
        self._after[character] = self._after.get(character, 0) | here
        return here

    def _anything(self) -> None:
        here = self._state()
        self._stays |= here
        self._skips |= here

    def _folders(self) -> None:
        """Nothing, or at least one character and then a slash."""
        here = self._state()
        self._any |= here
        self._skips_two |= here
        self._stays |= self._literal("/")

    def matches(self, path: str) -> bool:
        """Whether the whole of *path* fits."""
        now = self._spread(1)
        for character in path:
            moved = now & (self._after.get(character, 0) | self._any)
            stayed = now & self._stays
            if character != "/":
                moved |= now & self._letter
                stayed |= now & self._stays_in_name
            now = self._spread(moved << 1 | stayed)
            if not now:
                return False
        return bool(now >> self._count & 1)

    def _spread(self, states: int) -> int:
        """*states*, and those that follow without a character."""
        while True:
            more = states | (states & self._skips) << 1 | (states & self._skips_two) << 2
            if more == states:
                return states
            states = more
