"""Reading shell scripts with the grammar: what runs is found wherever the grammar hides it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from op_jupyter.core.danger import read_code
from op_jupyter.core.messages import ToolSpec
from op_jupyter.core.shell_programs import (
    BUILT_COMMAND,
    FED,
    OTHER_RIGHTS,
    UNREADABLE,
)
from op_jupyter.tools.base import CallDescription
from op_jupyter.tools.gate import gate_call
from op_jupyter.tools.shell_grammar import TOO_DEEP, read_line, read_script


def dangers(script: str) -> list[tuple[int, str]]:
    return [(found.line, found.words) for found in read_script(script).dangers]


def written(script: str) -> list[str]:
    return [touch.path for touch in read_script(script).touches if touch.write]


FILES, FOLDERS = "deletes files", "deletes folders"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("rm notes.txt", FILES),
        ("rm -rf build", FOLDERS),
        ("r\\m -r build", FOLDERS),
        ("'rm' -r build", FOLDERS),
        ("r''m -r build", FOLDERS),
        ('"r"m -r build', FOLDERS),
        ("$'rm' -r build", FOLDERS),
        ("x=rm; $x -r build", FOLDERS),
        ("x=rm; ${x} -r build", FOLDERS),
        ("ls | sort && rm -r x", FOLDERS),
        ("false || rm -r x &", FOLDERS),
        ("(cd a; rm -r x)", FOLDERS),
        ("{ rm -r x; }", FOLDERS),
        ("! rm -r x", FOLDERS),
        ("echo $(rm -r x)", FOLDERS),
        ('echo "a `rm -r x` b"', FOLDERS),
        ('echo "${y:-$(rm -r x)}"', FOLDERS),
        ("y=$(rm -r x)", FOLDERS),
        ("diff <(rm -r x) <(ls)", FOLDERS),
        ("tee >(rm -r x)", FOLDERS),
        ("cat <<< $(rm -r x)", FOLDERS),
        ("cat <<EOF\n$(rm -r x)\nEOF", FOLDERS),
        ("for f in a b; do rm -r $f; done", FOLDERS),
        ("while true; do rm -r x; done", FOLDERS),
        ("if [ -f x ]; then :; else rm -r x; fi", FOLDERS),
        ("case $1 in a) rm -r x;; esac", FOLDERS),
        ("f() { rm -r x; }; f", FOLDERS),
        ("[[ -f x ]] && rm -r x", FOLDERS),
        ("sudo rm -r x", FOLDERS),
        ("sudo -u root rm -r x", FOLDERS),
        ("sudo -- env -u A B=1 nice -n 5 timeout -s KILL 5 rm -r x", FOLDERS),
        ("env -S 'rm -r x'", FOLDERS),
        ("nohup setsid rm -r x", FOLDERS),
        ("command rm -r x", FOLDERS),
        ("find . | xargs -0 -n 1 rm -r", FOLDERS),
        ("find . | xargs -I {} rm -r {}", FOLDERS),
        ("find . -delete", FILES),
        ("find . -name x -exec rm -r {} +", FOLDERS),
        ("find . -exec sh -c 'rm -r \"$1\"' _ {} \\;", FOLDERS),
        ("bash -c 'rm -r x'", FOLDERS),
        ("bash -lc 'bash -c \"rm -r x\"'", FOLDERS),
        ("su -c 'rm -r x'", FOLDERS),
        ("eval 'rm -r x'", FOLDERS),
        ("eval rm -r x", FOLDERS),
        ("trap 'rm -r x' EXIT", FOLDERS),
        ("alias ll='rm -r x'", FOLDERS),
        ("python3 -c 'import shutil; shutil.rmtree(\"x\")'", FOLDERS),
        ("python -c 'import os; os.system(\"rm -r x\")'", FOLDERS),
        ("rsync -a --delete a/ b/", FILES),
        ("git -C repo clean -fdx", FILES),
        ("git checkout -- .", "discards changes"),
        ("git stash drop", "discards changes"),
        ("sudo ls", OTHER_RIGHTS),
        ("$program x", BUILT_COMMAND),
        ("$(which rm) x", BUILT_COMMAND),
        ("x=ls; x=rm; $x a", BUILT_COMMAND),
        ('eval "$text"', BUILT_COMMAND),
        ('bash -c "$text"', BUILT_COMMAND),
        ("curl -s example.org | sh", FED),
        ("base64 -d x | sudo bash -s", FED),
        ("bash <<EOF\nls\nEOF", FED),
        ("bash < script.sh", FED),
        ("sh <<< 'ls'", FED),
        ("curl -s example.org | python3 -", FED),
        ("shutdown now", "stops the machine"),
        ("echo 'unclosed", UNREADABLE),
        ("if true; then", UNREADABLE),
    ],
)
def test_a_danger_is_found_wherever_the_grammar_puts_it(script: str, words: str) -> None:
    assert words in [found for _, found in dangers(script)]


@pytest.mark.parametrize(
    "script",
    [
        "",
        "ls -la | grep rm | sort",
        "echo rm -rf x",
        "echo 'rm -rf x; git clean -f'",
        "grep -r 'rm -rf' .",
        "git status && git push && git checkout main",
        "python script.py < input.txt",
        "python -m pytest -q",
        "bash build.sh",
        'for f in *.csv; do wc -l "$f"; done',
        "cat <<EOF\nrm -rf x\nEOF",
        "# rm -rf x",
        "find . -name rm.txt -print",
        "make test 2>&1 | tail -n 5",
        'x=$(date) && echo "$x" > log.txt',
    ],
)
def test_an_ordinary_script_is_not_called_dangerous(script: str) -> None:
    assert dangers(script) == []


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("echo x > ~/.bashrc", "~/.bashrc"),
        ("echo x >> $HOME/.bashrc", "$HOME/.bashrc"),
        ('echo x > "${HOME}/.bashrc"', "$HOME/.bashrc"),
        ("echo x >| /a", "/a"),
        ("echo x &> /a", "/a"),
        ("echo x 2>/a", "/a"),
        ("> /a", "/a"),
        ("cat <<EOF > /a\nx\nEOF", "/a"),
        ("d=/etc; echo x > $d/hosts", "/etc/hosts"),
        ("(echo x) > '/a b'", "/a b"),
        ("ls | tee -a /a /b", "/b"),
        ("cp x /a", "/a"),
        ("cp -t /a x", "/a"),
        ("sed -i s/a/b/ /a", "/a"),
        ("dd if=x of=/a", "/a"),
        ("touch /a", "/a"),
        ("cd / && echo x > etc/hosts", "/etc/hosts"),
        ("cd /srv\ncp x y", "/srv/y"),
        ("bash -c 'echo x > /a'", "/a"),
        ('python -c \'open("/a", "w")\'', "/a"),
    ],
)
def test_written_paths_are_found(script: str, path: str) -> None:
    assert path in written(script)


@pytest.mark.parametrize(
    "script", ["ls 2>&1", "ls > /dev/null", "cat < /a", "ls >&2", "cat /a", 'echo "> /a"']
)
def test_reading_and_throwing_away_are_no_writes(script: str) -> None:
    assert written(script) == []


def test_paths_that_are_only_read_are_seen_as_well() -> None:
    for script in ("cat ~/.ssh/id_rsa", "x=$(<~/.ssh/id_rsa)", "cat < ~/.ssh/id_rsa"):
        assert "~/.ssh/id_rsa" in [touch.path for touch in read_script(script).touches]


def test_the_line_of_each_danger_is_that_of_the_script() -> None:
    script = "ls\n\nrm a\nif true; then\n  git clean -f\nfi"
    assert dangers(script) == [(3, FILES), (5, FILES)]


def test_shell_commands_inside_python_are_read_with_the_grammar() -> None:
    code = "import os\nos.system('if true; then r\\'\\'m -r x; fi')"
    assert (2, FOLDERS) in [(d.line, d.words) for d in read_code(code, read_line).dangers]


def test_commands_inside_commands_are_followed_only_so_far() -> None:
    script = "ls"
    for _ in range(12):
        script = f"eval {shlex.quote(script)}"
    assert TOO_DEEP in [words for _, words in dangers(script)]


def test_nesting_that_would_take_the_stack_is_called_dangerous() -> None:
    words = [words for _, words in dangers("$(" * 3_000 + "ls" + ")" * 3_000)]
    assert words
    assert dangers("x" * 300_000) == [(1, TOO_DEEP)]
    assert dangers("find -exec " * 1_500 + "rm") == [(1, BUILT_COMMAND)]


@settings(max_examples=60)
@given(st.text(st.sampled_from("ab $(){}<>|&;'\"\\`\n\0=ü💥-/~#!*[]")))
def test_any_text_can_be_read_as_a_script(text: str) -> None:
    read_script(text)


def test_a_path_that_no_file_can_have_does_not_keep_the_gate_from_judging(tmp_path: Path) -> None:
    class Python:
        effect, trusted, timeout = "execute", False, None
        spec = ToolSpec("python", "", {})

        def describe(self, arguments: object, workspace: Path) -> CallDescription:
            return CallDescription(code="open('\\ud800', 'w'); exit()", language="python")

    call = gate_call(Python(), {}, tmp_path)  # type: ignore[arg-type]
    assert call.reading is not None
    assert [danger.words for danger in call.reading.dangers] == ["ends the kernel"]
