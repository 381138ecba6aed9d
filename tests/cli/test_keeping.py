"""The commands that keep sessions in order: doctor, trash and gc."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from op_jupyter.cli.environment import environment
from op_jupyter.cli.exit_codes import ExitCode
from op_jupyter.cli.main import main
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.sessions import SessionStore


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "sessions"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-never-shown-0123456789")
    return tmp_path / "sessions"


@pytest.fixture
def store(home: Path) -> SessionStore:
    """One session, called ``s-one``."""
    store = SessionStore(home)
    session = store.open(store.create_session("s-one", title="The one"))
    session.begin_turn(Turn("t1", subject="ask"))
    session.append(Node("n1", "user", "user", status="completed", metadata={"turn_id": "t1"}))
    session.end_turn("t1", "completed")
    session.close()
    return store


def damage(store: SessionStore) -> Path:
    (path,) = store.root_path.glob("s-one/history/000/*-agent-*")
    path.write_bytes(path.read_bytes().replace(b'"n1"', b'"nX"'))
    return path


def test_without_an_id_the_doctor_tells_of_everything(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for words in (
        "op-jupyter",
        "openprogram",
        "git",
        "provider",
        "kernel",
        "lab",
        "1 session, no problems",
    ):
        assert words in told
    assert "never-shown" not in told

    damage(store)
    assert main(["doctor"]) == 5
    assert "s-one  history/000/" in capsys.readouterr().out


def test_the_doctor_names_file_and_byte_and_repairs_when_told(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "s-o"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    path = damage(store)
    damaged = path.read_bytes()
    assert main(["doctor", "s-one"]) == 5
    told = capsys.readouterr().out
    assert f"{path.relative_to(store.root_path / 's-one')}, byte " in told
    assert "--repair puts the copy that git has in its place" in told
    assert path.read_bytes() == damaged
    assert main(["doctor", "s-one", "--json"]) == 5
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert session["findings"][0]["kind"] == "damage"

    assert main(["doctor", "s-one", "--repair"]) == 0
    assert "repaired: history/" in capsys.readouterr().out
    assert len(store.load("s-one")) == 1


def test_the_doctor_repairs_no_session_that_was_not_named(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--repair"]) == 2
    assert "name the session" in capsys.readouterr().err
    assert main(["doctor", "other"]) == 3


def test_a_settings_file_that_cannot_be_read_is_told(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("[[[")
    assert main(["doctor"]) == 1
    assert "NO  settings" in capsys.readouterr().out


def test_another_package_called_openprogram_is_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path" / "openprogram").mkdir(parents=True)
    (tmp_path / "path" / "openprogram" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "path")
    monkeypatch.delitem(__import__("sys").modules, "openprogram", raising=False)
    (check,) = [each for each in environment(home) if each.name == "openprogram"]
    assert not check.ok
    assert "another package" in check.said


def test_a_session_goes_to_the_trash_and_comes_back(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trash", "list"]) == 0
    assert "empty" in capsys.readouterr().out
    assert main(["trash", "put", "s-o"]) == 0
    assert "trash restore s-one" in capsys.readouterr().out
    assert not SessionStore(store.root_path).exists("s-one")
    assert main(["trash", "list"]) == 0
    assert "The one" in capsys.readouterr().out
    assert main(["trash", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["info"]["id"], listed["age"] >= 0) == ("s-one", True)
    assert main(["trash", "restore", "s-"]) == 0
    assert len(store.load("s-one")) == 1


def test_a_session_is_archived_and_listed_again(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(*flags: str) -> list[str]:
        capsys.readouterr()
        assert main(["sessions", "--json", *flags]) == 0
        return [session["id"] for session in json.loads(capsys.readouterr().out)]

    assert main(["archive", "s-o"]) == 0
    assert "archive s-one --undo" in capsys.readouterr().out
    assert (listed(), listed("--all")) == ([], ["s-one"])
    assert main(["archive", "s-one", "--undo"]) == 0
    assert listed() == ["s-one"]


def test_a_session_is_forked_while_somebody_else_writes_to_it(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = store.open("s-one")
    holder.set_meta(title="Another title")
    assert main(["archive", "s-one"]) == ExitCode.BUSY
    assert "`op-jupyter fork s-one`" in capsys.readouterr().err
    assert main(["fork", "s-o", "--id", "mine"]) == 0
    assert capsys.readouterr().out == "mine\n"
    holder.close()
    assert list(store.load("mine")) == list(store.load("s-one"))
    assert store.load("mine").meta["title"] == "Another title"
    assert main(["fork", "s-one", "--id", "mine"]) == ExitCode.FAILED
    assert main(["fork", "s-one"]) == 0
    assert len(store.sessions()) == 3


def test_nothing_is_purged_that_was_not_asked_for(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.delete("s-one")
    for line in ("trash purge", "trash purge s-one --older-than 0s"):
        assert main(line.split()) == 2
    assert main(["trash", "purge", "s-o"]) == 3  # for good only by the whole id
    assert main(["trash", "purge", "--older-than", "1h"]) == 0
    assert "0 sessions deleted" in capsys.readouterr().out
    assert len(store.trashed()) == 1
    assert main(["trash", "purge", "--older-than", "0s"]) == 0
    assert store.trashed() == []
    for age in ("3", "-1d", "1y", ""):
        with pytest.raises(SystemExit):
            main(["trash", "purge", "--older-than", age])


def test_gc_packs_one_or_all_and_says_what_is_in_the_way(
    store: SessionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gc"]) == 2
    assert main(["gc", "s-one", "--all"]) == 2
    assert main(["gc", "s-one"]) == 0
    assert "s-one: " in capsys.readouterr().out
    session = store.open("s-one")
    assert main(["gc", "--all"]) == 4
    assert "open for writing" in capsys.readouterr().err
    session.close()
    assert main(["gc", "--all"]) == 0


def test_without_git_gc_is_one_clear_error(
    store: SessionStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["gc", "s-one"]) == 1
    assert capsys.readouterr().err == (
        "op-jupyter: there is no git executable, which gc needs; install git\n"
    )
    assert main(["doctor", "s-one"]) == 0


def test_sessions_are_pushed_and_pulled(
    store: SessionStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = str(tmp_path / "remote.git")
    assert main(["push", "s-one", remote]) == 1
    assert f"git init --bare {remote}" in capsys.readouterr().err
    subprocess.run(["git", "init", "-q", "--bare", remote], check=True)
    assert main(["push", "s-o", remote]) == 0
    assert capsys.readouterr().out == "s-one: main begun there\n"
    assert main(["push", "s-one", "ext::sh -c x"]) == 1

    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "elsewhere"))
    assert main(["pull", remote, "s-two"]) == 3
    assert main(["pull", remote]) == 0
    assert "s-one: new here" in capsys.readouterr().out
    assert main(["pull", remote, "s-one"]) == 0
    assert capsys.readouterr().out == "s-one: both sides have the same\n"
    assert len(SessionStore(tmp_path / "elsewhere").load("s-one")) == 1
