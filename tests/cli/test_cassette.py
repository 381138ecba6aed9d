"""`op-jupyter cassette`: look at recordings, drop what nothing uses, record anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from op_jupyter.cli.main import main
from op_jupyter.cli.notebook_run import answers_of
from op_jupyter.core.recording import Recording, request_key
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, last_results, text, tool

OLD = {
    "model": "m",
    "system": "",
    "tools": [],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "an old question"}]}],
}


def cell(source: str, **metadata: object) -> dict[str, object]:
    return {
        "cell_type": "code",
        "id": f"c{abs(hash(source)) % 10**8}",
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


NOTEBOOK = {
    "cells": [
        cell("%load_ext op_jupyter"),
        cell(
            "from op_jupyter import ask\n\ndef put(x: int) -> str:\n"
            '    """Put it away."""\n    return f"put {x} away"'
        ),
        cell("%%agent --tools put\nPut 3 away."),
        cell('print(ask("Which colour?"))'),
        cell("%agent status", tags=["nbval-ignore-output"]),
        cell("id(put)", tags=["nbval-ignore-output", "keep-output"]),
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
    (tmp_path / "config.toml").touch()
    for name, value in {
        "CONFIG": str(tmp_path / "config.toml"),
        "PROVIDER": "anthropic",
        "MODEL": "claude-haiku-5-5",
    }.items():
        monkeypatch.setenv(f"OPENPROGRAM_{name}", value)
    (tmp_path / "lesson.ipynb").write_text(json.dumps(NOTEBOOK))
    return tmp_path


def recorded(path: Path) -> FileCassette:
    cassette = FileCassette(path)
    cassette.record_reply(OLD, Recording([{"type": "text", "text": "an old answer"}]))
    cassette.record_decision("python", {"code": "1"}, {"answer": "allow"})
    return cassette


def answer(body: dict[str, object]) -> Reply:
    return Reply([text("It is away.")]) if last_results(body) else Reply([tool("put", x=3)])


@pytest.mark.kernel
def test_a_notebook_is_recorded_played_and_pruned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "lesson.cassette"
    recorded(path)
    with FakeMessages() as fake:
        fake.set_default(answer)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
        code = main(["cassette", "record", "lesson.ipynb", "--yes", "--answer", "red"])
    assert code == 0, capsys.readouterr().err
    assert "2 model calls, 2 decisions, by anthropic" in capsys.readouterr().out
    saved = json.loads((folder / "lesson.ipynb").read_text())
    outputs = [each["outputs"] for each in saved["cells"]]
    assert "It is away." in str(outputs[2]) and "widget-view" not in str(outputs)
    assert "red" in str(outputs[3]) and outputs[4] == [] and saved["metadata"] == {}
    (number,) = outputs[5]  # kept, as its tag says, and left alone by `refresh`
    assert "".join(number["data"]["text/plain"]).isdigit()
    kept = path.read_bytes()
    assert API_KEY.encode() not in kept and b"an old question" not in kept

    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    recorded(path)
    assert main(["cassette", "prune", "lesson.ipynb"]) == 0
    assert "lesson.cassette: 2 recordings removed" in capsys.readouterr().out
    assert path.read_bytes() == kept
    for each in saved["cells"][:-1]:
        each["outputs"] = []
    lesson = folder / "lesson.ipynb"
    asked = lesson.read_bytes()
    lesson.write_text(json.dumps(saved))
    assert main(["cassette", "refresh", "lesson.ipynb"]) == 0
    assert lesson.read_bytes() == asked


@pytest.mark.kernel
def test_a_notebook_that_fails_is_left_as_it_was(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "lesson.cassette"
    recorded(path)
    before = path.read_bytes(), (folder / "lesson.ipynb").read_bytes()
    with FakeMessages() as fake, pytest.MonkeyPatch.context() as patch:
        fake.set_default(answer)
        patch.setenv("ANTHROPIC_BASE_URL", fake.url)
        assert main(["cassette", "record", "lesson.ipynb", "--yes"]) == 1  # nobody says "red"
    assert "lesson.ipynb: the person chose not to answer" in capsys.readouterr().err
    assert (path.read_bytes(), (folder / "lesson.ipynb").read_bytes()) == before


def test_what_a_program_uses_is_found_by_running_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cassette = recorded(folder / "x.cassette")
    cassette.record_reply({**OLD, "model": "n"}, Recording([{"type": "text", "text": "hello"}]))
    (folder / "plays.py").write_text(
        "import os\nfrom op_jupyter import bootstrap\nfrom pathlib import Path\n"
        "replay = bootstrap.open_replay(bootstrap.settings(), workspace=Path.cwd())\n"
        f"assert replay.cassette.find_reply({request_key(OLD)!r})\n"
    )
    play = f"{sys.executable} plays.py"
    assert main(["cassette", "check", "x.cassette", "--run", play]) == 1
    said = capsys.readouterr().out
    assert "x.cassette: 2 recordings not used" in said
    assert "decision  python {'code': '1'} -> allow  [1 of 1 not used]" in said
    assert main(["cassette", "prune", "x.cassette", "--run", play]) == 0
    [left] = FileCassette(folder / "x.cassette").contents().exchanges.values()
    assert left.request == OLD
    assert main(["cassette", "prune", "x.cassette", "--run", "false"]) == 1
    assert "ended with 1; nothing was changed" in capsys.readouterr().err


def test_what_is_recorded_can_be_listed_and_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cassette", "list"]) == 0
    assert "There is no cassette here." in capsys.readouterr().out
    recorded(folder / "x.cassette")
    assert main(["cassette", "list"]) == 0
    assert " ".join(capsys.readouterr().out.split()) == "x.cassette 1 model call, 1 decision"
    assert main(["cassette", "show", "x.cassette"]) == 0
    key = request_key(OLD)
    assert capsys.readouterr().out.splitlines() == [
        f"{key}  an old question -> an old answer",
        "decision  python {'code': '1'} -> allow",
    ]
    assert main(["cassette", "show", "x.cassette", "--request", key[:6]]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"request {key}",
        "model: m",
        "user: an old question",
        "reply 1 (end_turn)",
        "an old answer",
    ]


def test_git_merges_recordings_with_it(folder: Path) -> None:
    code = "import sys; from op_jupyter.cli.main import main; sys.exit(main())"
    driver = f"{sys.executable} -c '{code}' cassette merge %A %B --base %O"

    def git(*words: str) -> None:
        subprocess.run(["git", *words], check=True, capture_output=True)

    def add(question: str) -> None:
        about = {"role": "user", "content": [{"type": "text", "text": question}]}
        FileCassette(folder / "x.cassette").record_reply(
            {**OLD, "messages": [about]}, Recording([{"type": "text", "text": "yes"}])
        )
        git("add", "x.cassette", ".gitattributes")
        git("commit", "-m", question)

    (folder / ".gitattributes").write_text("*.cassette merge=cassette\n")
    git("init", "-b", "main")
    for name, value in (
        ("user.name", "x"),
        ("user.email", "x@y"),
        ("merge.cassette.driver", driver),
    ):
        git("config", name, value)
    add("one")
    git("checkout", "-b", "other")
    add("two")
    git("checkout", "main")
    add("three")
    git("merge", "other")
    assert len(FileCassette(folder / "x.cassette").requests()) == 3


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["show", "none.cassette"], "there is no file", 2),
        (["show", "bad.cassette"], "bad.cassette line 1", 5),
        (["show", "x.cassette", "--request", "zz"], "no request begins with 'zz'", 1),
        (["check", "x.cassette"], "is no notebook", 2),
        (["check", "none.ipynb"], "cannot be read as a notebook", 2),
        (["prune", "x.cassette", "--run", "no-such-program"], "cannot be run", 2),
    ],
)
def test_what_cannot_be_done_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str, code: int
) -> None:
    recorded(folder / "x.cassette")
    (folder / "bad.cassette").write_text("not one")
    assert main(["cassette", *words]) == code
    assert said in capsys.readouterr().err


def test_cards_and_questions_have_answers_of_their_own() -> None:
    card, question = "Permission: python\n[y/N] ", "Which colour?\n> "
    answers = answers_of(cards=["n", "not now"], yes=True, given=["red"], terminal=False)
    assert [answers(card), answers(question), answers(card)] == ["n", "red", "not now"]
    assert answers(card) == "y"
    assert answers(question) is None
    assert answers_of(cards=[], yes=False, given=["red"], terminal=False)(card) is None
