"""Diffs that `patch` can apply."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from op_jupyter.core.diff import MATCHED_LINES, unified_diff


def test_a_changed_line_stands_between_its_neighbours() -> None:
    old = "".join(f"{i}\n" for i in range(1, 21))
    assert unified_diff(old, old.replace("10\n", "ten\n"), "a.txt").splitlines() == [
        "--- a.txt",
        "+++ a.txt",
        "@@ -7,7 +7,7 @@",
        *(" 7", " 8", " 9", "-10", "+ten", " 11", " 12", " 13"),
    ]


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("a\n", "a\n", "a.txt") == ""


def test_a_new_file_comes_from_nothing() -> None:
    assert unified_diff("", "a\nb\n", "a.txt", created=True).splitlines() == [
        "--- /dev/null",
        "+++ a.txt",
        "@@ -0,0 +1,2 @@",
        "+a",
        "+b",
    ]


def test_a_missing_line_end_is_said() -> None:
    assert unified_diff("a\n", "a", "f").splitlines()[-3:] == [
        "-a",
        "+a",
        "\\ No newline at end of file",
    ]


def test_a_rewritten_long_file_is_quick_and_whole() -> None:
    count = MATCHED_LINES * 20
    old = "".join(f"old {i}\n" for i in range(count))
    new = "".join(f"new {i}\n" for i in range(count))
    diff = unified_diff(f"same\n{old}", f"same\n{new}", "f")
    assert diff.splitlines()[2] == f"@@ -1,{count + 1} +1,{count + 1} @@"
    assert diff.count("\n-old") == diff.count("\n+new") == count


lines = st.lists(st.sampled_from(["a", "b", "", "long line", "x "]), max_size=30)
texts = st.tuples(lines, st.sampled_from(["", "\n"])).map(
    lambda drawn: "\n".join(drawn[0]) + (drawn[1] if drawn[0] else "")
)


@settings(max_examples=40)
@given(texts, texts)
def test_patch_turns_the_old_text_into_the_new(
    tmp_path_factory: pytest.TempPathFactory, old: str, new: str
) -> None:
    folder: Path = tmp_path_factory.mktemp("patch")
    (folder / "f").write_text(old)
    diff = unified_diff(old, new, "f")
    if diff and old and new:  # git calls files without content by other names
        subprocess.run(
            ["git", "apply", "--unidiff-zero", "-p0"], cwd=folder, input=diff, text=True, check=True
        )
        assert (folder / "f").read_text() == new
