"""Path globs: every pattern means what its regular expression says, and none is slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from op_jupyter.core.globs import glob

PARTS = ["**/", "/**/", "/**", "**", "*", "?", "/", "a", "b", ".", "\\*", "\\"]
MEANING = {
    "/**/": "/(?:.+/)?",
    "/**": "(?:/.*)?",
    "**/": "(?:.+/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}


def as_regex(pattern: str) -> str:
    """What the module's docstring says, written down once more."""
    out = ""
    while pattern:
        end = re.match(r"/\*\*/|/\*\*$", pattern) or (
            re.match(r"\*\*/", pattern) if not out else None
        )
        token = (end or re.match(r"\\.|\*\*|.", pattern, re.DOTALL))[0]  # type: ignore[index]
        pattern = pattern[len(token) :]
        out += MEANING.get(token) or re.escape(token[-1])
    return out


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=7), st.text("ab/.*", max_size=8))
@example(["/", "a", "/**/", "b", "*", "**"], "/a/x/b")
@example(["**/", "*", "*", "/**"], "a")
def test_a_pattern_means_what_its_regular_expression_says(parts: list[str], path: str) -> None:
    pattern = "".join(parts)
    expected = re.compile(as_regex(pattern), re.DOTALL).fullmatch(path) is not None
    assert glob(pattern)(path) is expected


@pytest.mark.parametrize(
    "pattern", ["/" + "**a" * 40 + "b", "/" + "*a" * 40 + "b", "/**/a" * 30 + "/b"]
)
def test_many_stars_are_not_slow(pattern: str) -> None:
    began = time.monotonic()
    for path in ("/" + "a" * 4_000, "/a" * 2_000):
        assert not glob(pattern)(path)
    assert time.monotonic() - began < 2
