"""The shell tool, with real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from op_jupyter.core.messages import TextBlock
from op_jupyter.core.permissions import decide
from op_jupyter.tools.base import ToolContext
from op_jupyter.tools.gate import gate_call, places_of
from op_jupyter.tools.sandbox import NO_SANDBOX, Sandbox, find_sandbox
from op_jupyter.tools.shell import KEPT_BYTES, ShellTool, clean_environment

OPEN = Sandbox()
needs_bubblewrap = pytest.mark.skipif(
    not find_sandbox().program, reason="bubblewrap is not installed, or may not work here"
)


async def use(
    command: str,
    workspace: Path,
    tool: ShellTool | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[str, str]:
    tool = tool or ShellTool(sandbox=OPEN)
    context = ToolContext(workspace, "c1", "t1", progress)
    output = await tool.run({"command": command}, context)
    (block,) = output.content
    assert isinstance(block, TextBlock)
    return output.state, block.text


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return b"Z" not in Path(f"/proc/{pid}/stat").read_bytes().split(b")")[-1][:3]


async def until_dead(pid: int) -> None:
    await asyncio.to_thread(wait_while, lambda: is_alive(pid))


def wait_while(holds: Callable[[], bool]) -> None:
    deadline = monotonic() + 10
    while holds() and monotonic() < deadline:
        time.sleep(0.01)
    assert not holds()


async def test_output_errors_and_exit_code_come_back(tmp_path: Path) -> None:
    assert await use("echo out; echo err >&2", tmp_path) == ("succeeded", "out\nerr")
    assert await use("true", tmp_path) == ("succeeded", "(no output)")
    assert await use("echo a; exit 3", tmp_path) == ("failed", "a\n(exit code 3)")
    assert await use("kill -9 $$", tmp_path) == ("failed", "(ended by signal 9)")


async def test_it_runs_in_the_workspace_without_input(tmp_path: Path) -> None:
    assert await use("pwd; cat", tmp_path) == ("succeeded", str(tmp_path))


async def test_secrets_are_not_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-for-commands")
    monkeypatch.setenv("HARMLESS", "kept")
    _, text = await use("env", tmp_path)
    assert "HARMLESS=kept" in text
    assert "not-for-commands" not in text
    assert "DB_PASSWORD" not in clean_environment({"DB_PASSWORD": "x", "PATH": "/bin"})


async def test_output_without_end_is_bounded_and_the_end_is_shown(tmp_path: Path) -> None:
    _, text = await use("yes abcdefg | head -c 3000000; echo the end", tmp_path)
    assert len(text) < 2 * KEPT_BYTES + 100
    assert "bytes were not kept" in text
    assert text.endswith("the end")


async def test_a_command_that_takes_too_long_ends_with_all_it_started(tmp_path: Path) -> None:
    tool = ShellTool(sandbox=OPEN, seconds=0.5)
    state, text = await use("sleep 100 & echo $!; trap '' TERM; wait; sleep 100", tmp_path, tool)
    assert state == "failed"
    pid, said = text.split("\n", 1)
    assert said == "TimedOut: it was ended after 0.5 seconds"
    await until_dead(int(pid))


async def test_a_process_in_the_background_ends_with_the_call(tmp_path: Path) -> None:
    began = monotonic()
    state, text = await use("sleep 100 & echo $!", tmp_path)
    assert (state, monotonic() - began < 60) == ("succeeded", True)
    await until_dead(int(text))


async def test_cancelling_ends_the_whole_group(tmp_path: Path) -> None:
    begun = asyncio.Event()
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        begun.set()

    task = asyncio.create_task(use("sleep 100 & echo $!; wait", tmp_path, progress=progress))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_dead(int(lines[0]))


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "command: is empty"),
        (" \n", "command: is empty"),
        ("a\0b", "command: holds a zero byte"),
    ],
)
def test_what_is_no_command_is_refused(command: str, problem: str) -> None:
    assert ShellTool().check({"command": command}) == problem


def test_the_gate_sees_what_the_command_would_do(tmp_path: Path) -> None:
    call = gate_call(ShellTool(), {"command": "ls\nrm -r x > /etc/y"}, tmp_path)
    verdict = decide(call, places=places_of(tmp_path), mode="auto", rules=(), interactive=True)
    assert verdict.code_lines == {
        2: "deletes folders and writes outside the workspace: /etc/y",
    }
    assert verdict.rule_text == "shell(ls\nrm -r x > /etc/y)"


# --- the sandbox


def test_without_bubblewrap_the_words_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    found = find_sandbox.__wrapped__()
    assert (found.program, found.words) == ("", NO_SANDBOX)
    assert found.wrap(["ls"], tmp_path) == ["ls"]


@needs_bubblewrap
async def test_in_the_sandbox_only_the_workspace_can_be_written(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    tool = ShellTool(sandbox=find_sandbox())
    assert await use("echo x > a; cat a", work, tool) == ("succeeded", "x")
    assert (work / "a").read_text() == "x\n"
    state, _ = await use(f"echo x > {outside}/a", work, tool)
    assert state == "failed"
    state, _ = await use("echo x > /etc/made-by-a-test", work, tool)
    assert state == "failed"
    assert not (outside / "a").exists()


@needs_bubblewrap
async def test_in_the_sandbox_credentials_sessions_and_hooks_are_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, work, sessions = tmp_path / "home", tmp_path / "work", tmp_path / "sessions"
    for folder in (home / ".ssh", work / ".git" / "hooks", sessions):
        folder.mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    (home / ".netrc").write_text("secret")
    (sessions / "s1").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    tool = ShellTool([sessions], sandbox=find_sandbox())
    _, text = await use(f"cat ~/.ssh/id ~/.netrc {sessions}/s1; ls -a ~/.ssh", work, tool)
    assert "secret" not in text
    state, _ = await use("echo x > .git/hooks/pre-commit", work, tool)
    assert state == "failed"


@needs_bubblewrap
async def test_in_the_sandbox_a_stop_ends_even_what_left_the_group(tmp_path: Path) -> None:
    tool = ShellTool(sandbox=find_sandbox(), seconds=0.5)
    mark = f"97531.{os.getpid()}"
    state, _ = await use(f"setsid sleep {mark} & sleep 100", tmp_path, tool)
    assert state == "failed"
    await asyncio.to_thread(wait_while, lambda: _runs(mark))


def _runs(mark: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            return True
    return False
