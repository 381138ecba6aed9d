"""Whole programs, recorded on one machine and replayed on another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from op_jupyter import (
    agentic_function,
    ask,
    bootstrap,
    confirm,
    decision,
    form,
    llm,
    session_context,
)
from op_jupyter.cli.main import main
from op_jupyter.core.compaction import HEADINGS
from op_jupyter.core.messages import ModelRequest, TextBlock, ToolResultBlock
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.recording import Folders
from op_jupyter.engine import loop
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.recorded_asker import RecordedAsker
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import TurnStart
from op_jupyter.errors import RateLimited, RecordingMissing
from op_jupyter.providers.recorded import RecordedProvider
from op_jupyter.providers.recorded_decisions import RecordedDecisions
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, echo
from op_jupyter.testing.providers import Script, ScriptedProvider, call, reply, thinking
from op_jupyter.tools.toolset import toolset_of
from tests.engine.harness import ScriptedAsker

SUMMARY = "\n\n".join(f"## {heading}\nnone" for heading in HEADINGS)


class Model:
    """Answers by what it is asked; its first answer ever fails once."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.failed = False

    def __call__(self, request: ModelRequest) -> Script:
        last = request.messages[-1].content[-1]
        said = last.text if isinstance(last, TextBlock) else ""
        session = request.session_key
        if not self.failed:
            self.failed = True
            return (RateLimited("slow down", retry_after=0.0),)
        if "exactly these nine headings" in said:
            return reply(SUMMARY)
        if "Choose exactly one" in said:
            return reply('{"choice": "second"}')
        if "a number" in said:
            return reply("[1, 2]")
        if "Delegate" in said:
            return reply(call("spawn_agent", {"message": "count"}), call("wait_agent", {}))
        if "write it" in said:
            path = str(self.workspace / "a.txt")
            return reply(thinking(f"in {session}", signature="signed"), call("put", {"path": path}))
        if isinstance(last, ToolResultBlock):
            return reply(f"Done in {self.workspace}, session {session}.")
        return reply(f"{said} at {self.workspace}")


@agentic_function
def summarise(text: str) -> str:
    """Say what it says."""
    return f"{llm(text)} / {decision.make('choose one', ['first', 'second'])}"


class Machine:
    """A place where the program runs: folders, a store, a session of its own, a person."""

    def __init__(self, root: Path, name: str) -> None:
        self.workspace = root / name / "work"
        self.workspace.mkdir(parents=True)
        self.store = SessionStore(root / name / "sessions")
        self.folders = Folders.of(
            workspace=self.workspace, home=root / name, sessions=root / name / "sessions"
        )
        self.person = ScriptedAsker(
            [PermissionAnswer("allow", "click")], says=["red", True, {"size": "3"}]
        )
        self.put: list[str] = []

    def run(self, cassette: Path, mode: str, *, changed: str = "") -> list[Any]:
        """Run the program; what came of it."""
        kept = FileCassette(cassette)

        def live() -> ScriptedProvider:
            assert mode != "replay"
            return ScriptedProvider(default=Model(self.workspace))

        provider = RecordedProvider(live, kept, mode, folders=self.folders)
        runtime = Runtime(provider=provider, max_retries=1)
        decisions = RecordedDecisions(kept, mode, folders=self.folders)
        nobody = ScriptedAsker(interactive=False)
        asker = RecordedAsker(nobody if mode == "replay" else self.person, lambda: decisions)
        with session_context(store=self.store, runtime=runtime, id_prefix="nb") as handle:
            session = handle.agent
            session.workspace, session.asker = self.workspace, asker

            def put(path: str) -> str:
                """Put something into a file."""
                self.put.append(path)
                return f"put into {path}"

            def turn(prompt: str, *tools: Any) -> str:
                start = TurnStart(
                    (TextBlock(prompt),), runtime, tools=toolset_of(tools), asker=asker
                )
                outcome = loop.run_sync(session.run_turn, start)[1]
                assert outcome.status == "completed", outcome
                return outcome.text

            came = [
                summarise(f"Penguins{changed}"),
                llm("a number", response_format=list[int]),
                ask("Which colour?", ["red", "blue"]),
                confirm("Sure?"),
                form("How large?", {"type": "object", "properties": {"size": {"type": "integer"}}}),
                turn("write it", put),
                turn("Delegate the counting", *agent_tools()),
                loop.run_sync(session.compact, CompactionStart(runtime))[1].text,
                turn("And now?"),
            ]
            self.session_id = handle.session_id
        runtime.close()
        return [self.folders.hide(str(value)).replace(self.session_id, "SESSION") for value in came]


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "here")


@pytest.fixture
def there(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "over-there")


def test_everything_that_asks_replays_on_another_machine_and_records_the_same_bytes_there(
    here: Machine, there: Machine, tmp_path: Path
) -> None:
    cassette = tmp_path / "program.cassette"
    came = here.run(cassette, "record")
    assert came[2:5] == ["red", "True", "{'size': 3}"]
    text = cassette.read_text("utf-8")

    assert there.run(cassette, "replay") == came
    assert there.put == [str(there.workspace / "a.txt")]
    assert cassette.read_text("utf-8") == text

    again = tmp_path / "again.cassette"
    there.run(again, "record")
    assert again.read_text("utf-8") == text


def test_a_recording_tells_nothing_of_the_machine_the_run_or_the_time(
    here: Machine, tmp_path: Path
) -> None:
    cassette = tmp_path / "program.cassette"
    here.run(cassette, "record")
    text = cassette.read_text("utf-8")

    assert str(tmp_path) not in text
    made_up = re.findall(r"\b(?:nb|turn|llm|call|task|frame|toolu)[-_][0-9a-f]{6,}\b", text)
    times = re.findall(r"20\d\d-\d\d-\d\d|\d\d:\d\d|\bseconds\b", text)
    assert (made_up, times) == ([], [])
    assert not any(trace in text for trace in (here.session_id, "retry", "slow down"))


def test_a_changed_argument_is_named_whatever_else_was_recorded(
    here: Machine, there: Machine, tmp_path: Path
) -> None:
    cassette = tmp_path / "program.cassette"
    here.run(cassette, "record")

    with pytest.raises(RecordingMissing) as missing:
        there.run(cassette, "replay", changed=" swim")

    assert '"text": "Penguins swim"' in missing.value.difference


# -- from the shell, without any session that a host set up

SCRIPT = '''
from op_jupyter import agentic_function, confirm, create_runtime, llm

@agentic_function
def classify(review: str) -> str:
    """Classify the sentiment of a review in one word."""
    return llm(review)

def all_of_them() -> list:
    found = [classify(review) for review in ("good", "bad")]
    with create_runtime() as one, create_runtime() as other:
        found += [one.exec("same"), other.exec("same")]
    if not confirm("Go on?"):
        return []
    return found
'''


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "unused"))  # the path is put back as it was
    for name, value in {
        "HOME": str(tmp_path / "sessions"),
        "CONFIG": str(tmp_path / "config.toml"),
        "CASSETTE": "reviews.cassette",
    }.items():
        monkeypatch.setenv(f"OPENPROGRAM_{name}", value)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "config.toml").touch()
    (tmp_path / "reviews_to_record.py").write_text(SCRIPT)
    return tmp_path


def test_a_script_that_asks_a_question_is_recorded_and_replayed_from_the_shell(
    shell: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(mode: str) -> str:
        bootstrap.begin_recorded_run()
        monkeypatch.setenv("OPENPROGRAM_REPLAY", mode)
        assert main(["run", "reviews_to_record.py:all_of_them"]) == 0
        return capsys.readouterr().out

    (shell / "reviews.cassette").write_text(GO_ON)
    with FakeMessages() as fake:
        fake.set_default(echo)
        monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
        monkeypatch.setenv("OPENPROGRAM_PROVIDER", "anthropic")
        monkeypatch.setenv("OPENPROGRAM_MODEL", "claude-haiku-5-5")
        recorded = run("auto")
        assert len(fake.requests) == 4
        assert run("auto") == recorded
        assert len(fake.requests) == 4
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENPROGRAM_MODEL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "claude-code")  # what this machine prefers
    text = (shell / "reviews.cassette").read_text("utf-8")

    assert run("replay") == recorded
    assert (shell / "reviews.cassette").read_text("utf-8") == text
    assert API_KEY not in text and str(shell) not in text


GO_ON = """{"cassette": 1}

{"decision": "confirm", "arguments": {"kind": "confirm", "prompt": "Go on?", "options": [],
 "multi": false, "allow_custom": true, "default": false, "fields": []},
 "answers": [{"answer": "answered", "value": true}]}
"""
