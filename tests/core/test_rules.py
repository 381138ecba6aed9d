"""Permission rules: how they are written, and what their globs match."""

from __future__ import annotations

from pathlib import PurePosixPath as P

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.paths import Places
from op_jupyter.core.rules import (
    Rule,
    exact_pattern,
    literal_folder,
    moved_pattern,
    parse_rule,
    path_matches,
)
from op_jupyter.errors import InvalidRule, UsageError

PLACES = Places(P("/w/space"), P("/home/ada"))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/deep/er/a.py", True),
        ("src/**", "src", True),
        ("src/**", "src2/a.py", False),
        ("src/*", "src/a.py", True),
        ("src/*", "src/deep/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "deep/er/a.py", True),
        ("**/*.py", "deep/a.txt", False),
        ("**", "deep/a.txt", True),
        ("**", "/elsewhere", False),
        ("src/**/a.py", "src/a.py", True),
        ("src/**/a.py", "src/x/y/a.py", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("data[1].csv", "data[1].csv", True),
        ("data[1].csv", "data1.csv", False),
        (r"a\*b", "a*b", True),
        (r"a\*b", "axb", False),
        ("./a", "a", True),
        (".", ".", True),
        ("~/x/*", "/home/ada/x/y", True),
        ("~", "/home/ada", True),
        ("/etc/**", "/etc/hosts", True),
        ("etc/hosts", "/etc/hosts", False),
        ("/**", "/anything/at/all", True),
        ("data/", "data/a", True),
        ("data/", "data", True),
        ("data/", "data2", False),
        ("../x/**", "/w/x/a", True),
        ("src/../a", "a", True),
        ("src//a", "src/a", True),
        ("src/./a", "src/a", True),
        ("././a", "a", True),
        ("..", "/w", True),
        ("~/../bob/*", "/home/bob/y", True),
        ("~/x/", "/home/ada/x/y", True),
        ("/etc/../var//*", "/var/log", True),
        ("/", "/anything", True),
        (r"a\*/../b", "b", True),
    ],
)
def test_a_path_glob_matches(pattern: str, path: str, matches: bool) -> None:
    assert path_matches(pattern, PLACES.absolute(path), PLACES) is matches


@pytest.mark.parametrize("text", ["python", "python(*)", "edit_file(src/**)", "python(f(x))"])
def test_a_rule_reads_back_as_it_was_written(text: str) -> None:
    assert parse_rule(text).text == text


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]*", fullmatch=True)
patterns = st.none() | st.text(min_size=1).filter(lambda text: bool(text.strip()))


@given(names, patterns)
def test_writing_and_parsing_a_rule_lose_nothing(tool: str, pattern: str | None) -> None:
    rule = Rule("deny", tool, pattern, "config")
    assert parse_rule(rule.text, "deny", "config") == rule


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1))
def test_an_exact_pattern_matches_its_path_and_no_other(name: str) -> None:
    path = PLACES.absolute(f"dir/{name}")
    rule = Rule("allow", "t", exact_pattern(path, PLACES))
    assert rule.names_path(path, PLACES)
    assert not rule.names_path(PLACES.absolute(f"dir/{name}x"), PLACES)


@pytest.mark.parametrize(
    "text", ["", "  ", "two words", "python(", "(x)", "python(x) y", "1x", "a/b"]
)
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRule, match=r"python\(\*\)") as caught:
        parse_rule(text)
    assert isinstance(caught.value, UsageError)


def test_empty_parentheses_are_refused() -> None:
    with pytest.raises(InvalidRule, match="write python alone"):
        parse_rule("python( )")


@pytest.mark.parametrize(
    ("pattern", "folder", "rest"),
    [
        ("link/**", "/w/link", "/**"),
        ("link/deep/*.txt", "/w/link/deep", "/*.txt"),
        ("link/", "/w/link", "/**"),
        ("/a/b", "/a/b", ""),
        ("**", "/w", "/**"),
        ("/*", "/", "/*"),
        (r"odd\*name/x", "/w/odd*name/x", ""),
    ],
)
def test_a_pattern_is_a_folder_and_what_follows(pattern: str, folder: str, rest: str) -> None:
    places = Places(P("/w"), P("/home/me"))
    assert literal_folder(pattern, places) == (folder, rest)
    put_together = moved_pattern(folder, rest)
    assert literal_folder(put_together, places) == (folder, rest)
