"""The command line: what parses, what it prints, how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from op_jupyter import Runtime, SessionStore, llm, session_context
from op_jupyter.cli.main import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "sessions"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    return tmp_path / "sessions"


@pytest.fixture
def session_id(home: Path) -> str:
    """A session in which a model was asked once."""
    runtime = Runtime(call=lambda content, **_: "It is \x1b[31m42.")
    with session_context("s-one", store=SessionStore(root_path=home), runtime=runtime) as handle:
        llm("What is the answer?")
        return handle.session_id


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "demo --head",
        "demo --fast",
        "local",
        "local remove",
        "sessions --verbose",
        "sessions --limit 0",
        "completion tcsh",
        "show",
        "show a b",
        "kernel",
        "kernel remove",
    ],
)
def test_what_is_not_built_does_not_parse(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(line.split())

    assert exit_.value.code == 2
    assert "usage: op-jupyter" in capsys.readouterr().err


def test_no_sessions_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions"]) == 0
    assert "There are no sessions yet" in capsys.readouterr().out
    assert main(["sessions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_sessions_are_listed(session_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions"]) == 0
    assert session_id in capsys.readouterr().out
    assert main(["sessions", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["id"] == session_id
    assert listed["turns"] == 1


def test_a_session_is_shown_with_its_nodes_and_without_control_characters(
    session_id: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", session_id]) == 0

    shown = capsys.readouterr().out
    assert str(home) in shown
    assert "It is [U+001B][31m42." in shown
    assert "completed  What is the answer?" in shown


def test_a_node_and_its_prompt_are_shown(
    session_id: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (asked,) = [n for n in SessionStore(root_path=home).load(session_id) if n.role == "llm"]

    assert main(["show", session_id, "--node", asked.id]) == 0
    assert "--- output\nIt is" in capsys.readouterr().out
    assert main(["show", session_id, "--node", asked.id, "--prompt"]) == 0
    one = capsys.readouterr().out
    assert "--- user" in one
    assert "What is the answer?" in one
    assert main(["show", session_id, "--prompt"]) == 0
    assert capsys.readouterr().out == one


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["show", "s-ome"], "s-one", 3),
        (["show", "../etc"], "not a session id", 2),
        (["show", "s-one", "--node", "nope"], "has no node 'nope'", 3),
        (["demo", "--headless", "--csv", "none.csv"], "No such file", 1),
        (["help", "nonsense"], "has no command 'nonsense'", 2),
    ],
)
def test_an_error_is_one_line_and_an_exit_code_of_its_kind(
    session_id: str,
    arguments: list[str],
    words: str,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments) == code

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("op-jupyter: ")
    assert said.err.count("\n") == 1
    assert words in said.err


def test_the_kernel_is_installed_for_this_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernel", "install", "--prefix", str(tmp_path)]) == 0

    folder = tmp_path / "share" / "jupyter" / "kernels" / "openprogram"
    assert str(folder) in capsys.readouterr().out
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][:3] == [sys.executable, "-m", "op_jupyter.kernel"]
    assert spec["display_name"] == "Python 3 (OpenProgram)"


def test_a_reader_that_has_seen_enough_is_no_error(session_id: str) -> None:
    code = "import sys; from op_jupyter.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "show", session_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()

    assert process.returncode == 0
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written_is_one_line_and_no_output_at_all_is_fine(
    session_id: str,
) -> None:
    code = "import sys; from op_jupyter.cli.main import main; sys.exit(main())"
    ends = []
    for where in (">/dev/full", ">&-", ">&- 2>&-"):
        shell = ["sh", "-c", f'"$0" -c "$1" sessions {where}', sys.executable, code]
        done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
        ends.append((done.returncode, done.stderr))
    assert ends == [(1, "op-jupyter: [Errno 28] No space left on device\n"), (0, ""), (0, "")]


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", ["1", "10", "40", "200"])
def test_an_id_is_whole_however_narrow_the_terminal_is(
    session_id: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(["sessions"]) == 0
    assert session_id in sys.stdout.getvalue()  # type: ignore[attr-defined]


def test_help_loads_neither_a_store_nor_jupyter() -> None:
    code = (
        "import sys; from op_jupyter.cli.main import parser; parser();"
        "heavy = ('git', 'jupyter_client', 'pandas', 'nbformat', 'rich', 'argcomplete');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
