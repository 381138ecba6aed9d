"""``%%agent`` in terminal IPython: the answer streams, questions come as text, Ctrl-C stops."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text, tool

pytestmark = pytest.mark.kernel
PATIENCE = 60


@pytest.fixture
def fake() -> Iterator[FakeMessages]:
    with FakeMessages() as service:
        yield service


@pytest.fixture
def terminal(tmp_path: Path, fake: FakeMessages) -> Iterator[pexpect.spawn[str]]:
    """IPython with the extension loaded, as a person starts it."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
    }
    options = ["--simple-prompt", "--colors=NoColor", "--no-banner", "--no-confirm-exit"]
    child = pexpect.spawn(
        sys.executable,
        ["-m", "IPython", *options, "--ext=op_jupyter"],
        env=env,  # type: ignore[arg-type]
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=PATIENCE,
        echo=False,
    )
    child.expect(r"OpenProgram ready: %agent help")
    child.expect(r"In \[1\]: ")
    yield child
    child.sendline("exit")
    child.expect(pexpect.EOF)
    child.close()


def ask(terminal: pexpect.spawn[str], prompt: str) -> None:
    terminal.sendline(f"get_ipython().run_cell_magic('agent', '', {prompt!r})")


def until_prompt(terminal: pexpect.spawn[str]) -> str:
    """Everything that is printed until the next input prompt."""
    terminal.expect(r"In \[\d+\]: ")
    return re.sub(r"\r\n", "\n", str(terminal.before))


def test_the_answer_is_printed_once_with_a_line_about_the_turn(
    terminal: pexpect.spawn[str], fake: FakeMessages
) -> None:
    fake.script(Reply([text("It is four.")]))
    ask(terminal, "What is 2 + 2?")
    said = until_prompt(terminal)
    assert said.count("It is four.") == 1
    assert "OpenProgram: completed" in said


WORDS = 20_000
"""More than a terminal takes while nobody reads it."""


def test_a_stopped_terminal_does_not_stop_the_session_and_a_question_comes_last(
    terminal: pexpect.spawn[str], fake: FakeMessages
) -> None:
    fake.script(
        Reply([text("word " * WORDS), tool("list_files", id="toolu_1")]),
        Reply([text("And now. "), tool("python", code="print('the tool', 6 * 7)")]),
        Reply([text("It is 42.")]),
    )
    ask(terminal, "Multiply")
    fake.wait_requests(2, timeout=PATIENCE)  # nothing was read of the terminal so far
    terminal.expect(r"Permission: python")
    before = str(terminal.before)
    assert before.count("word") == WORDS
    assert before.index("[list_files]") < before.index("And now.")
    terminal.expect(r"\[y/N\] ")
    terminal.sendline("y")
    said = until_prompt(terminal)
    assert "the tool 42" in said
    assert "It is 42." in said


def test_ctrl_c_stops_the_turn_and_the_next_one_works(
    terminal: pexpect.spawn[str], fake: FakeMessages
) -> None:
    fake.script(Reply([text("late")], ttft=120))
    ask(terminal, "Hello")
    fake.wait_requests(1, timeout=PATIENCE)
    terminal.sendintr()
    said = until_prompt(terminal)
    assert "KeyboardInterrupt: the agent turn was stopped" in said
    assert "Traceback" not in said
    fake.script(Reply([text("Still here.")]))
    ask(terminal, "Are you there?")
    assert "Still here." in until_prompt(terminal)


def test_an_error_is_one_line(terminal: pexpect.spawn[str], fake: FakeMessages) -> None:
    terminal.sendline("%agent nonsense")
    said = until_prompt(terminal)
    assert "UsageError: %agent has no command 'nonsense'" in said
    assert "Traceback" not in said


def test_a_call_that_awaits_is_told_that_nobody_waits(
    terminal: pexpect.spawn[str], fake: FakeMessages
) -> None:
    fake.script(Reply([tool("python", code="1")]), Reply([text("I could not.")]))
    terminal.sendline("from op_jupyter import agent")
    until_prompt(terminal)
    terminal.sendline("await agent.aio('Do it')")
    assert "SessionStateError" in until_prompt(terminal)


def test_a_question_is_asked_on_the_terminal_by_cells_of_every_kind(
    terminal: pexpect.spawn[str],
) -> None:
    terminal.sendline("from openprogram import ask, confirm")
    until_prompt(terminal)
    terminal.sendline("print('got', ask('Which?', ['red', 'blue']))")
    terminal.expect("an empty line declines")
    terminal.sendline("2")
    assert "got blue" in until_prompt(terminal)

    terminal.sendline("print('got', await ask.aio('And why?'))")
    terminal.expect("an empty line declines")
    terminal.sendline("because")
    assert "got because" in until_prompt(terminal)

    terminal.sendline("print('got', ask('Too slow?', timeout=0.5, default='none'))")
    assert "got none" in until_prompt(terminal)

    terminal.sendline("confirm('Stop here?')")
    terminal.expect(r"\[y/N\] ")
    terminal.sendintr()
    assert "KeyboardInterrupt" in until_prompt(terminal)
    terminal.sendline("print(6 * 7)")
    assert "42" in until_prompt(terminal)
