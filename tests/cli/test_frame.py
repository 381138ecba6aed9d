"""The frame of the command line: suggestions, completion, output for people and for programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from op_jupyter import Runtime, SessionStore, llm, session_context
from op_jupyter.cli.exit_codes import MEANING, ExitCode
from op_jupyter.cli.main import main, parser
from op_jupyter.cli.reference import markdown

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "sessions"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    return tmp_path / "sessions"


def record(home: Path, *ids: str, title: str = "") -> None:
    runtime = Runtime(call=lambda content, **_: "42")
    store = SessionStore(root_path=home)
    for session_id in ids:
        store.create_session(session_id, title=title)
        with session_context(session_id, store=store, runtime=runtime):
            llm("What is the answer?")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("sesions", "sessions"),
        ("kernel instal", "install"),
        ("sessions --jsn", "--json"),
        ("run a.py:f --sesion x", "--session"),
    ],
)
def test_a_word_that_is_nearly_right_is_suggested(
    line: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(line.split())

    assert exit_.value.code == ExitCode.WRONG_USAGE
    assert f"(did you mean {meant!r}?)" in capsys.readouterr().err


def test_a_beginning_that_is_unique_names_a_session(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(home, "alpha-1", "alpha-2", "beta-1", "beta")

    assert main(["show", "alpha-2"]) == 0
    assert main(["show", "beta"]) == 0
    assert "session beta\n" in capsys.readouterr().out
    assert main(["show", "alpha"]) == ExitCode.NOT_FOUND
    assert "2 sessions begin with 'alpha': " in capsys.readouterr().err


def test_errors_are_json_where_json_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text("nonsense = 1")

    assert main(["sessions", "--json"]) == ExitCode.FAILED

    said = capsys.readouterr()
    assert said.out == ""
    error = json.loads(said.err)["error"]
    assert error["type"] == "ConfigurationError"
    assert error["exit_code"] == 1
    assert "nonsense" in error["message"]


def test_every_exit_code_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(MEANING) == set(ExitCode)
    assert main(["help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {code.value:<4} {meaning}" in said for code, meaning in MEANING.items())
    assert main(["help", "kernel", "install"]) == 0
    assert "--prefix DIR" in capsys.readouterr().out


def test_the_page_about_the_command_line_is_current() -> None:
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    assert written == markdown(parser()) + "\n", "op-jupyter help --markdown > docs/cli.md"


def test_a_terminal_gets_a_table_and_hostile_titles_are_no_markup(home: Path) -> None:
    record(home, "s-one", title="[red]not red[/red] \x1b[31m [/")
    code = "import sys; from op_jupyter.cli.main import main; sys.exit(main(['sessions']))"
    env = {**os.environ, "COLUMNS": "160"}
    child = pexpect.spawn(sys.executable, ["-c", code], env=env, encoding="utf-8")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0
    assert "last used (UTC)" in child.before
    assert "[red]not red[/red] [U+001B][31m [/" in child.before


@pytest.fixture
def shell_env(home: Path) -> dict[str, str]:
    """What a shell needs to know this `op-jupyter`, with one session in its store."""
    record(home, "quarterly-report")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PS1": "$ ", "TERM": "dumb", "HOME": str(home.parent)}


def by_tab(shell: str, env: dict[str, str], *flags: str, first: str) -> None:
    """Type in an interactive shell, and look at what Tab makes of it."""
    child = pexpect.spawn(
        shell, list(flags), env=env, encoding="utf-8", timeout=30, dimensions=(40, 200)
    )
    child.sendline(f'{first}; eval "$(op-jupyter completion {shell})"; echo rea""dy')
    child.expect_exact("ready")

    child.send("op-jupyter sess\t")
    child.expect_exact("sessions")
    child.send("--js\t")
    child.expect_exact("--json")
    child.sendcontrol("u")
    child.send("op-jupyter show quart\t")
    child.expect_exact("quarterly-report")
    child.sendcontrol("u")
    child.sendline("exit")
    child.expect(pexpect.EOF)
    child.close()


def by_asking_fish(env: dict[str, str]) -> None:
    """fish says itself what it would complete."""

    def run(*command: str) -> str:
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    script = Path(env["HOME"], ".config", "fish", "completions", "op-jupyter.fish")
    script.parent.mkdir(parents=True)
    script.write_text(run("op-jupyter", "completion", "fish"))
    for typed, meant in (
        ("op-jupyter sess", "sessions\tlist the stored sessions"),
        ("op-jupyter sessions --js", "--json"),
        ("op-jupyter show quart", "quarterly-report"),
    ):
        assert run("fish", "-c", f"complete -C '{typed}'").startswith(meant)


COMPLETES: dict[str, Callable[[dict[str, str]], None]] = {
    "bash": lambda env: by_tab(
        "bash", env, "--norc", "--noprofile", first='bind "set bell-style none"'
    ),
    "zsh": lambda env: by_tab("zsh", env, "-f", "-i", first="autoload -U compinit; compinit -u -D"),
    "fish": by_asking_fish,
}


@pytest.mark.parametrize("shell", COMPLETES)
def test_every_shell_completes_commands_flags_and_session_ids(
    shell_env: dict[str, str], shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    COMPLETES[shell](shell_env)
