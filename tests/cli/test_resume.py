"""`op-jupyter resume`: one turn, or a conversation, in a real terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from op_jupyter import Runtime, SessionStore, llm, session_context
from op_jupyter.bootstrap import default_service
from op_jupyter.cli.exit_codes import ExitCode
from op_jupyter.cli.main import main
from op_jupyter.cli.resume import resume
from op_jupyter.engine.service import Service
from op_jupyter.errors import StoreError
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text, tool

CODE = "import sys; from op_jupyter.cli.main import main; sys.exit(main())"


@pytest.fixture
def messages() -> Iterator[FakeMessages]:
    with FakeMessages() as service:
        yield service


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: FakeMessages) -> Path:
    for name, value in {
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": str(tmp_path / "config.toml"),
        "OPENPROGRAM_PROVIDER": "anthropic",
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": messages.url,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    runtime = Runtime(call=lambda content, **_: "It is 42.")
    with session_context("s-one", store=SessionStore(tmp_path / "sessions"), runtime=runtime):
        llm("What is the answer?")
    return tmp_path / "sessions"


def test_one_turn_is_run_in_the_session_and_its_answer_printed(
    home: Path, messages: FakeMessages, capsys: pytest.CaptureFixture[str]
) -> None:
    messages.script(Reply([text("Still \x1b[31m42.")]), Reply([text("Yes.")]))

    assert main(["resume", "s-o", "Are you sure?"]) == 0
    assert capsys.readouterr().out == "Still [U+001B][31m42.\n"
    assert main(["resume", "s-one", "Really?", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reply"] == "Yes."
    assert told["attempt"]["status"] == "completed"
    assert [t.kind for t in SessionStore(home).load("s-one").turns.values()] == [
        "call",
        "agent",
        "agent",
    ]


def test_without_a_terminal_a_prompt_is_needed_and_permission_is_denied(
    home: Path, messages: FakeMessages, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", "s-one"]) == ExitCode.WRONG_USAGE
    assert main(["resume", "nothing", "x"]) == ExitCode.NOT_FOUND
    messages.script(
        Reply([tool("shell", command="touch it")], "tool_use"), Reply([text("I could not.")])
    )
    capsys.readouterr()

    assert main(["resume", "s-one", "touch it", "--shell"]) == 0
    assert "[shell] touch it: denied" in capsys.readouterr().out
    assert not Path("it").exists()


def test_a_failed_turn_is_one_line_and_an_exit_code(
    home: Path, messages: FakeMessages, capsys: pytest.CaptureFixture[str]
) -> None:
    messages.script(Reply(status=401))

    assert main(["resume", "s-one", "hello"]) == ExitCode.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("op-jupyter: model_error: ")


class Forgetful:
    """A service of a session that was taken away while its turn ended."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def wait(self, session_id: str, attempt_id: str) -> None:
        self._service.wait(session_id, attempt_id)


def test_an_end_that_is_nowhere_is_an_error_that_says_what_to_do(
    home: Path, messages: FakeMessages
) -> None:
    messages.script(Reply([text("Yes.")]))
    service: Any = Forgetful(default_service())

    with pytest.raises(StoreError, match=r"is not stored; `op-jupyter show s-one` shows what is"):
        resume("s-one", "Really?", shell=False, as_json=True, service=service)
    assert [t.status for t in SessionStore(home).load("s-one").turns.values()][1:] == ["completed"]


def until_running(home: Path) -> None:
    """Wait until a shell command was allowed a second time, which is stored before it runs."""
    deadline = time.monotonic() + 30
    while len(SessionStore(home).load("s-one").decisions) < 2:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def test_a_conversation_asks_for_permission_and_ends_with_an_empty_line(
    home: Path, messages: FakeMessages
) -> None:
    messages.script(
        Reply([tool("shell", command="echo hi > made.txt")], "tool_use"),
        Reply([text("Made it.")]),
        Reply([tool("shell", command="sleep 60")]),
        Reply([text("Bye.")]),
    )
    child = pexpect.spawn(sys.executable, ["-c", CODE, "resume", "s-one", "--shell"], timeout=60)
    child.expect_exact("> ")
    child.sendline("make a file")
    child.expect_exact("[y/N]")
    child.sendline("y")
    child.expect_exact("Made it.")
    child.expect_exact("> ")
    child.sendline("take your time")
    child.expect_exact("[y/N]")
    child.sendline("y")
    until_running(home)
    child.sendintr()
    child.expect_exact("the attempt was cancelled")
    child.expect_exact("> ")
    child.sendline("bye")
    child.expect_exact("Bye.")
    child.expect_exact("> ")
    child.sendline("")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0
    assert Path("made.txt").read_text() == "hi\n"


def test_a_session_that_another_process_holds_is_said(home: Path) -> None:
    holder = SessionStore(home).open("s-one")
    try:
        command = [sys.executable, "-c", CODE, "resume", "s-one", "hello"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        holder.close()

    assert done.returncode == ExitCode.BUSY
    assert "s-one" in done.stderr
