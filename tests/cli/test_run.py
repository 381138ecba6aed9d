"""`op-jupyter run`: a function of a file, called from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from op_jupyter import SessionStore
from op_jupyter.cli.main import main
from op_jupyter.engine.prompts import request_of
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text

REVIEW = '''
"""Reviews."""
import asyncio
from dataclasses import dataclass
from op_jupyter import agentic_function, llm

@dataclass
class Point:
    x: int

@agentic_function
def classify(review: str) -> str:
    """Classify the sentiment of a review in one word."""
    return llm(review)

def add(numbers: list[int], to: str = "0", point: Point | None = None) -> dict:
    return {"sum": sum(numbers), "to": to, "x": None if point is None else point.x}

async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1

class Tools:
    @staticmethod
    def shout(text: str) -> str:
        return text.upper()

def nothing() -> None:
    pass

def boom() -> None:
    raise ValueError("it broke")

def stop() -> None:
    raise KeyboardInterrupt

not_one = 3
'''


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "sessions"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.syspath_prepend(str(tmp_path / "unused"))  # the path is put back as it was
    monkeypatch.chdir(tmp_path)
    # No model is meant to be asked; a name that no server has keeps the local one asleep.
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "http://127.0.0.1:9")
    (tmp_path / "reviews_to_run.py").write_text(REVIEW, encoding="utf-8")
    return tmp_path / "sessions"


def run(*words: str) -> int:
    function, *rest = words
    return main(["run", f"reviews_to_run.py:{function}", *rest])


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["add", "--arg", "numbers=[1, 2]"], {"sum": 3, "to": "0", "x": None}),
        (["add", "--arg", "numbers=[1]", "--arg", "to=7"], {"sum": 1, "to": "7", "x": None}),
        (
            ["add", "--arg", "numbers=[]", "--arg", 'point={"x": 4}'],
            {"sum": 0, "to": "0", "x": 4},
        ),
        (["later", "--arg", "n=4"], 5),
    ],
)
def test_arguments_are_what_the_annotations_say_and_the_value_is_printed(
    home: Path, words: list[str], printed: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out) == printed


def test_text_is_printed_as_it_is_and_none_not_at_all(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("Tools.shout", "--arg", "text=a=b") == 0
    assert run("nothing") == 0
    assert capsys.readouterr().out == "A=B\n"


def test_the_session_is_named_and_goes_on_by_its_id(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeMessages() as service:
        service.script(Reply([text("positive")]), Reply([text("negative")]))
        monkeypatch.setenv("OPENPROGRAM_PROVIDER", "anthropic")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
        assert run("classify", "--arg", "review=great") == 0
        first = capsys.readouterr()
        session = first.err.split()[1]
        assert first.err == f"session: {session} (--session {session} to continue)\n"
        assert first.out == "positive\n"
        assert run("classify", "--arg", "review=dull", "--resume", session) == 0
    dag = SessionStore(root_path=home).load(session)
    assert [n.name for n in dag if n.role == "code"] == ["classify", "classify"]
    assert dag.meta["source"] == "cli"
    second = [n for n in dag if n.role == "llm"][1]
    texts = [b.text for m in request_of(dag, second.id, _no_blob)[0].messages for b in m.content]  # type: ignore[union-attr]
    assert texts[:2] == ['classify({"review": "great"})', "positive"]


def _no_blob(sha256: str) -> bytes:
    raise AssertionError(sha256)


@pytest.mark.parametrize(
    ("target", "words", "said"),
    [
        ("reviews_to_run.py", [], "is not FILE:FUNCTION"),
        ("reviews_to_run.py:a b", [], "is not FILE:FUNCTION"),
        ("nowhere.py:f", [], "there is no file 'nowhere.py'"),
        ("notes.txt:f", [], "no Python file"),
        ("reviews_to_run.py:nope", [], "its functions: Point, Tools, add, boom"),
        ("reviews_to_run.py:not_one", [], "does not call function 'not_one'"),
        ("reviews_to_run.py:classify", [], "review: is missing"),
        ("reviews_to_run.py:classify", ["--arg", "x=1"], "x: there is no such parameter"),
        ("reviews_to_run.py:later", ["--arg", "n=many"], "n: input should be a valid integer"),
        ("reviews_to_run.py:add", ["--arg", f"numbers={'[' * 60_000}"], "numbers: input should be"),
        (
            "reviews_to_run.py:add",
            ["--arg", "numbers=[1]", "--arg", "point={'x': 1}"],
            "do not fit add: point: input should be",
        ),
        ("reviews_to_run.py:later", ["--arg", "n"], "is not NAME=VALUE"),
        ("reviews_to_run.py:later", ["--arg", "n=1", "--arg", "n=2"], "is given twice"),
    ],
)
def test_a_command_line_that_does_not_fit_is_told_in_one_line_and_ends_with_2(
    home: Path, target: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("notes.txt").touch()
    assert main(["run", target, *words]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert not home.exists()


def test_a_function_that_raises_shows_its_own_lines_and_ends_with_1(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("boom") == 1
    told = capsys.readouterr().err
    assert "ValueError: it broke" in told
    assert told.endswith("op-jupyter: boom() raised ValueError\n")
    assert "op_jupyter/cli" not in told


def test_an_interrupt_ends_with_130(home: Path) -> None:
    assert run("stop") == 130


def test_a_file_that_cannot_be_imported_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken_to_run.py").write_text("def f(:\n", encoding="utf-8")
    assert main(["run", "broken_to_run.py:f"]) == 1
    assert "broken_to_run.py raised SyntaxError" in capsys.readouterr().err


def test_a_settings_file_that_is_named_and_not_there_is_told_before_anything_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENPROGRAM_CONFIG", "nowhere.toml")
    assert run("boom") == 1
    assert "OPENPROGRAM_CONFIG names nowhere.toml, which is not there" in capsys.readouterr().err


def test_an_unsafe_session_id_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nothing", "--session", "../up") == 2
    assert "is not a session id" in capsys.readouterr().err
