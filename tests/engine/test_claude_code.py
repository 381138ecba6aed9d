"""Sessions on Claude Code's own program, against the fake service: nothing of ours is faked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine.harness import ALLOW, ScriptedAsker, assert_sound, states, texts

from op_jupyter.core.messages import TextBlock
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.turn import Outcome
from op_jupyter.engine import loop
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.runtime import Runtime, llm
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.engine.session_context import session_context
from op_jupyter.providers.claude_code import ClaudeCodeProvider
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.fake_messages import (
    API_KEY,
    FakeMessages,
    Reply,
    ServiceRules,
    text,
    thinking,
    tool,
)
from op_jupyter.tools.toolset import toolset_of

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for the program, and a folder to work in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return tmp_path


@pytest.fixture
def fake() -> Iterator[FakeMessages]:
    rules = ServiceRules(models=(), auth=("x-api-key",))
    with FakeMessages(rules=rules, default=lambda body: Reply([text("understood")])) as server:
        yield server


@pytest.fixture
def runtime(home: Path, fake: FakeMessages) -> Iterator[Runtime]:
    with new_runtime(home, fake) as made:
        yield made


def new_runtime(home: Path, fake: FakeMessages, **options: Any) -> Runtime:
    environment = {
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": fake.url,
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "HOME": str(home),
    }
    return Runtime(provider=ClaudeCodeProvider(environment=environment), **options)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def turn(
    session: AgentSession,
    runtime: Runtime,
    prompt: str,
    *,
    tools: Any = (add,),
    asker: ScriptedAsker | None = None,
    **options: Any,
) -> Outcome:
    start = TurnStart(
        (TextBlock(prompt),),
        runtime,
        tools=toolset_of(tools, trusted=True),
        asker=asker or ScriptedAsker(),
        **options,
    )
    return loop.run_sync(session.run_turn, start)[1]


def said(fake: FakeMessages, index: int = -1) -> list[tuple[str, str]]:
    """What the service was sent, without what the program adds by itself."""
    messages = fake.requests[index].body["messages"]
    return [(m["role"], _text(m["content"])) for m in messages if m["role"] != "system"]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "|".join(_text(b.get("content", b.get("text", b.get("name", "")))) for b in content)


def test_a_turn_runs_our_tools_through_the_program_and_remembers(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(
        Reply([thinking("hm"), tool("mcp__op_jupyter__add", id="t1", a=1, b=2), text("and")]),
        Reply([text("It is 3.")]),
    )
    first = turn(session, runtime, "What is 1 + 2?")
    assert (first.status, first.text, states(session), texts(session)) == (
        "completed",
        "It is 3.",
        ["succeeded"],
        ["3"],
    )
    assert first.usage.input_tokens > 0
    assert said(fake)[-1] == ("user", "3")
    turn(session, runtime, "And now?")
    assert [who for who, _ in said(fake)] == ["user", "assistant", "user", "assistant", "user"]
    assert said(fake)[-1] == ("user", "And now?")
    (last,) = [n for n in session.dag.spine() if n.role == "llm"][-1:]
    assert last.reads is not None
    assert last.reads["kept"]
    assert_sound(session)


def test_its_own_tools_pass_our_gate_and_run_only_when_they_are_allowed(
    session: AgentSession, runtime: Runtime, fake: FakeMessages, home: Path
) -> None:
    made = home / "work" / "made.txt"
    fake.script(
        Reply(
            [
                tool("mcp__op_jupyter__add", id="t1", a=1, b=2),
                tool("Bash", id="t2", command=f"echo hello > {made}", description="d"),
                tool("mcp__op_jupyter__add", id="t3", a=1, b="two"),
                tool("Bash", id="t4", command=f"rm {made}", description="d"),
            ]
        )
    )
    no = PermissionAnswer("deny_message", "click", message="keep it")
    asker = ScriptedAsker([ALLOW, no])
    outcome = turn(session, runtime, "go", asker=asker)
    assert outcome.status == "completed"
    assert states(session) == ["succeeded", "succeeded", "failed", "denied"]
    assert [r.arguments["command"][:2] for r in asker.requests] == ["ec", "rm"]
    assert made.read_text() == "hello\n"
    results = said(fake)[-1][1].split("|")
    assert results[0] == "3"
    assert "InvalidArguments" in results[2]
    assert "keep it" in results[3]
    assert_sound(session)


def test_a_call_without_tools_between_turns_leaves_the_conversation_whole(
    store: MemoryStore, runtime: Runtime, fake: FakeMessages
) -> None:
    with session_context("s3", store=store, runtime=runtime) as handle:
        turn(handle.agent, runtime, "one")
        assert llm("two") == "understood"
        turn(handle.agent, runtime, "three")
    assert [text for who, text in said(fake) if who == "user"] == ["one", "two", "three"]
    assert [len(r.body.get("tools", ())) > 1 for r in fake.requests] == [True, False, True]


def test_a_person_may_change_what_its_own_tool_runs(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(Reply([tool("Bash", id="t1", command="echo one", description="d")]))
    edited = {"command": "echo two", "description": "d"}
    answer = PermissionAnswer("allow", "click", arguments=edited)
    turn(session, runtime, "go", asker=ScriptedAsker([answer]))
    assert "it ran with" in texts(session)[0]
    assert said(fake)[-1][1].strip() == "two"


def test_a_denial_that_ends_the_turn_stops_the_program_before_it_asks_again(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(Reply([tool("Bash", id="t1", command="echo one", description="d")]))
    outcome = turn(session, runtime, "go", asker=ScriptedAsker([PermissionAnswer("deny", "click")]))
    assert (outcome.status, outcome.code, len(fake.requests)) == ("failed", "permission_denied", 1)
    assert turn(session, runtime, "something else").status == "completed"
    assert said(fake)[-1][1].endswith("something else")
    assert_sound(session)


def test_a_new_process_goes_on_with_the_conversation_by_its_id(
    session: AgentSession, runtime: Runtime, fake: FakeMessages, home: Path
) -> None:
    turn(session, runtime, "My name is Ada.")
    runtime.close()
    with new_runtime(home, fake) as later:
        turn(session, later, "What is my name?")
    assert said(fake) == [
        ("user", "My name is Ada."),
        ("assistant", "understood"),
        ("user", "What is my name?"),
    ]
    assert_sound(session)


def test_a_lost_conversation_is_told_anew(
    session: AgentSession, runtime: Runtime, fake: FakeMessages, home: Path
) -> None:
    turn(session, runtime, "My name is Ada.")
    runtime.close()
    subprocess.run(["rm", "-r", str(home / "claude")], check=True)
    with new_runtime(home, fake) as later:
        turn(session, later, "What is my name?")
    ((who, told),) = said(fake)
    assert who == "user"
    assert told.index("My name is Ada.") < told.index("understood") < told.index("What is my")


def test_after_a_rewind_a_new_conversation_is_told_the_history_of_its_line_alone(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    turn(session, runtime, "one")
    base = session.dag.head
    turn(session, runtime, "two")
    turn(session, runtime, "other two", base=base)
    ((_, told),) = said(fake)
    assert "one" in told
    assert "understood" in told
    assert told.endswith("|other two")
    assert told.count("two") == 1
    assert_sound(session)


def test_a_program_that_dies_between_turns_is_started_again_and_remembers(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    turn(session, runtime, "My name is Ada.")
    kill_program(fake)
    turn(session, runtime, "What is my name?")
    assert [text for _, text in said(fake)] == ["My name is Ada.", "understood", "What is my name?"]
    assert_sound(session)


def test_a_program_that_dies_before_it_answers_is_asked_once_more(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(Reply(fault="hang", at=0))
    start = TurnStart((TextBlock("go"),), runtime)
    turn_id = loop.run_sync(session.start_turn, start).turn_id
    fake.wait_held()
    kill_program(fake)
    outcome = loop.run_sync(session.wait, turn_id)
    assert (outcome.status, outcome.text) == ("completed", "understood")
    assert said(fake) == [("user", "go")]
    assert_sound(session)


def test_a_program_that_dies_in_its_answer_fails_the_turn_and_the_next_goes_on(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(Reply([text("It will take")], fault="hang", at=5))
    words = threading.Event()
    end = session.subscribe(lambda e: e.update.kind == "text_delta" and words.set())
    start = TurnStart((TextBlock("go"),), runtime)
    turn_id = loop.run_sync(session.start_turn, start).turn_id
    assert words.wait(20)
    end()
    kill_program(fake)
    assert loop.run_sync(session.wait, turn_id).status == "failed"
    assert turn(session, runtime, "again").status == "completed"
    assert said(fake)[-1][1].endswith("again")
    assert_sound(session)


def kill_program(fake: FakeMessages) -> None:
    """End the running program without a word, and wait until its end was noticed."""
    programs = {p for p in _all_processes() if fake.url in _environment(p) and _is_program(p)}
    # What it starts looks like the program itself for a moment, until it is another.
    (pid,) = [p for p in programs if _parent(p) not in programs]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


@agentic_function
def classify(review: str) -> str:
    """Say whether the review is good."""
    return llm(review)


def test_a_function_tells_its_docstring_and_content_alone(
    runtime: Runtime, fake: FakeMessages, store: MemoryStore
) -> None:
    with session_context("s2", store=store, runtime=runtime):
        classify("great film")
        classify("bad film")
    messages = said(fake)
    assert [who for who, _ in messages] == ["user", "assistant", "user"]
    assert messages[-1][1].count("Say whether the review is good.") == 1
    assert "bad film" in messages[-1][1]
    assert "great film" not in messages[-1][1]


@agentic_function
def ask_inside(question: str) -> str:
    """Answer the question from inside."""
    return llm(question)


def test_a_tool_that_asks_the_model_does_so_in_a_conversation_of_its_own(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(
        Reply([tool("mcp__op_jupyter__ask_inside", id="t1", question="why?")]),
        Reply([text("because")]),
        Reply([text("It says because.")]),
    )
    outcome = turn(session, runtime, "go", tools=(ask_inside,))
    assert (outcome.status, outcome.text) == ("completed", "It says because.")
    assert "Answer the question from inside." in said(fake, 1)[-1][1]
    assert "because" in said(fake, 2)[-1][1]
    assert_sound(session)


def test_a_cancelled_turn_stops_the_program_which_goes_on_with_the_next(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(Reply([text("It will take")], fault="hang", at=4))
    start = TurnStart((TextBlock("go"),), runtime)
    turn_id = loop.run_sync(session.start_turn, start).turn_id
    fake.wait_held()
    loop.run_sync(session.cancel_turn, turn_id)
    assert loop.run_sync(session.wait, turn_id).status == "cancelled"
    fake.wait_idle()
    assert turn(session, runtime, "shorter", tools=()).text == "understood"
    assert_sound(session)


def test_a_failed_attempt_is_tried_again_without_saying_everything_twice(
    home: Path, session: AgentSession, fake: FakeMessages
) -> None:
    fake.script(Reply(status=529), Reply([text("at last")]))
    told: list[str] = []
    with new_runtime(home, fake, on_retry=lambda info: told.append(info.line)) as runtime:
        outcome = turn(session, runtime, "please")
    assert (outcome.status, outcome.text) == ("completed", "at last")
    assert [line.split(": ")[1] for line in told] == ["ProviderOverloaded"]
    assert said(fake)[-1][1].count("please") == 1


def test_faults_have_the_same_names_as_with_every_provider(
    runtime: Runtime, fake: FakeMessages
) -> None:
    names = []
    for reply, times in (
        (Reply(status=401), 1),
        (Reply(status=404, error_type="not_found_error", error_message="model: x"), 2),
        (Reply(status=429), 1),
        (Reply([text("no")], stop="refusal"), 1),
    ):
        fake.script(*[reply] * times)  # the program asks again without streaming after a 404
        with pytest.raises(Exception) as caught:
            runtime.exec("hello", max_retries=0)
        names.append(type(caught.value).__name__)
    assert names == ["AuthenticationFailed", "ModelNotFound", "RateLimited", "Refused"]


def test_closing_the_runtime_ends_a_turn_that_runs(
    session: AgentSession, runtime: Runtime, fake: FakeMessages
) -> None:
    fake.script(Reply(fault="hang", at=0))
    turn_id = loop.run_sync(session.start_turn, TurnStart((TextBlock("go"),), runtime)).turn_id
    fake.wait_held()
    runtime.close()
    assert loop.run_sync(session.wait, turn_id).status == "failed"
    fake.wait_idle()


CHILD = """
import sys
from op_jupyter.engine.runtime import Runtime
from op_jupyter.providers.claude_code import ClaudeCodeProvider
Runtime(provider=ClaudeCodeProvider()).exec("hello")
"""


def test_a_killed_process_leaves_nothing_behind(home: Path, fake: FakeMessages) -> None:
    fake.script(Reply([text("It will take")], fault="hang", at=4))
    environment = {
        **os.environ,
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": fake.url,
        "HOME": str(home),
        "TMPDIR": str(home / "work"),
    }
    child = subprocess.Popen([sys.executable, "-c", CHILD], env=environment)
    fake.wait_held(60)
    started = {p for p in _all_processes() if fake.url in _environment(p)} - {child.pid}
    assert any(_is_program(pid) for pid in started)
    child.send_signal(signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + 10
    while (left := [p for p in started if _runs(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert [p.name for p in (home / "work").iterdir() if p.name.startswith("op-jupyter-")] == []
    fake.wait_idle()


def _all_processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _environment(pid: int) -> str:
    return _read(pid, "environ")


def _command(pid: int) -> str:
    return _read(pid, "cmdline")


def _parent(pid: int) -> int:
    """0: it has ended."""
    _, _, rest = _read(pid, "stat").rpartition(")")  # its name may hold anything
    return int(rest.split()[1]) if rest else 0


def _read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except OSError:
        return ""


def _is_program(pid: int) -> bool:
    return _command(pid).split("\0")[0].endswith("/claude")


def _runs(pid: int) -> bool:
    return _command(pid) != ""
