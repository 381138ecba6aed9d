"""Stored sessions on the command line: found, exported, imported."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from op_jupyter import Runtime, SessionStore, llm, session_context
from op_jupyter.cli.exit_codes import ExitCode
from op_jupyter.cli.main import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "sessions"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    runtime = Runtime(call=lambda content, **_: "It is 42.")
    with session_context("s-one", store=SessionStore(tmp_path / "sessions"), runtime=runtime):
        llm("What is the answer, 数据?")
    return tmp_path / "sessions"


def test_words_are_found_in_all_sessions(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "answ", "数据"]) == 0
    assert capsys.readouterr().out.startswith("s-one  ")
    assert main(["search", "--json", "42"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)
    assert (hit["session_id"], hit["role"], hit["snippet"]) == ("s-one", "assistant", "It is 42.")
    assert main(["search", '" OR *']) == 0
    assert capsys.readouterr().out == "Nothing was found.\n"


def test_a_session_is_exported_and_imported_again(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "s-o"]) == 0
    assert "What is the answer" in capsys.readouterr().out
    for name in ("one.html", "one.ipynb", "one.json"):
        assert main(["export", "s-one", "-o", name]) == 0
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    capsys.readouterr()

    assert main(["import", "one.json", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["was"] == "s-one"
    assert main(["import", "one.json", "--id", "s-two"]) == 0
    assert "s-two: 1 turn imported" in capsys.readouterr().out
    assert main(["import", str(home / "s-one"), "--id", "s-three"]) == 0
    capsys.readouterr()
    assert main(["show", "s-three", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["session"]["turns"] == 1


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("export s-one -o one.pdf", ExitCode.WRONG_USAGE, "say --format"),
        ("export nothing", ExitCode.NOT_FOUND, "no session 'nothing'"),
        ("export s-one -o no/where.md", ExitCode.FAILED, "cannot be written"),
        ("import nothing.json", ExitCode.FAILED, "cannot be imported"),
        ("import config.toml", ExitCode.FAILED, "is no JSON document"),
    ],
)
def test_what_cannot_be_exchanged_is_said(
    home: Path, line: str, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == code
    assert words in capsys.readouterr().err
