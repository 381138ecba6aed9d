"""Unified diffs that stay quick on long files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

CONTEXT_LINES: Final = 3
MATCHED_LINES: Final = 2_000
"""Up to this many changed lines are matched with each other; more count as replaced, because
matching takes the square of their number."""

_NO_NEWLINE: Final = "\\ No newline at end of file"


def unified_diff(old: str, new: str, path: str, *, created: bool = False) -> str:
    """The diff from *old* to *new* in the form that ``patch`` reads; "" when they are equal."""
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    start, end = _common(before, after)
    offset = max(0, start - CONTEXT_LINES)
    trail = max(0, end - CONTEXT_LINES)
    left = before[offset : len(before) - trail]
    right = after[offset : len(after) - trail]
    lines = [f"--- {'/dev/null' if created else path}", f"+++ {path}"]
    for group in _groups(left, right, start - offset, end - trail):
        lines += _hunk(left, right, group, offset)
    return "\n".join(lines) + "\n"


_Group = Sequence[tuple[str, int, int, int, int]]


def _lines(text: str) -> list[str]:
    """The lines of *text*; one that lacks its line end says so in a line of its own."""
    lines = text.split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n{_NO_NEWLINE}"]
    return lines[:-1]


def _common(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines are the same at the start and at the end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


def _groups(left: Sequence[str], right: Sequence[str], start: int, end: int) -> Iterator[_Group]:
    """What to do with the lines, in groups with some unchanged lines around."""
    if max(len(left), len(right)) <= MATCHED_LINES:
        matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
        yield from matcher.get_grouped_opcodes(CONTEXT_LINES)
        return
    left_end, right_end = len(left) - end, len(right) - end
    yield (
        ("equal", 0, start, 0, start),
        ("replace", start, left_end, start, right_end),
        ("equal", left_end, len(left), right_end, len(right)),
    )


def _hunk(left: Sequence[str], right: Sequence[str], group: _Group, offset: int) -> Iterator[str]:
    old_range = _range(group[0][1], group[-1][2], offset)
    new_range = _range(group[0][3], group[-1][4], offset)
    yield f"@@ -{old_range} +{new_range} @@"
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            yield from (f" {line}" for line in left[i1:i2])
        else:
            yield from (f"-{line}" for line in left[i1:i2])
            yield from (f"+{line}" for line in right[j1:j2])


def _range(start: int, end: int, offset: int) -> str:
    length = end - start
    first = start + offset + (1 if length else 0)
    return f"{first}" if length == 1 else f"{first},{length}"
