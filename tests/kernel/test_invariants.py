"""What the loop promises, once through a real kernel, a real store and real HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import Cell, Kernel
from kernel.page import Page

from op_jupyter.core.messages import MISSING_RESULT
from op_jupyter.core.turn import NOT_EXECUTED
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

pytestmark = pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)


def python(code: str, name: str) -> dict[str, Any]:
    return tool("python", id=name, code=code)


def agent(kernel: Kernel, prompt: str, flags: str = "--mode auto") -> Cell:
    return kernel.finish(kernel.send(f"%%agent {flags}\n{prompt}", allow_stdin=True))


def results(fake: FakeMessages) -> list[dict[str, Any]]:
    """The tool results that the newest request ends with, in its order."""
    found: list[dict[str, Any]] = []
    for message in fake.requests[-1].body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        found += [b for b in blocks if b["type"] == "tool_result"]
    return found


def said(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(b.get("text", "") for b in content)


LOOK_INTO_THE_STORE = """
import os, pathlib
root = pathlib.Path(os.environ["OPENPROGRAM_HOME"])
kept = "".join(p.read_text() for p in root.rglob("*.jsonl"))
print("asked is stored:", '"toolu_stored"' in kept, "earlier results:", kept.count('"state":"s'))
"""


def test_the_loop_keeps_its_promises_in_a_real_kernel(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    # Order, errors that go back, and an answer; the message is on disk before its tool runs.
    fake.script(
        Reply(
            [
                text("Several. "),
                tool("no_such_tool", id="toolu_unknown"),
                tool("read_file", id="toolu_schema", nothing=1),
                python("1 / 0", "toolu_error"),
                python(LOOK_INTO_THE_STORE, "toolu_stored"),
            ]
        ),
        Reply([text("All told.")]),
    )
    assert agent(notebook, "Do several things").status == "ok"
    told = results(fake)
    assert [r["tool_use_id"] for r in told] == [
        "toolu_unknown",
        "toolu_schema",
        "toolu_error",
        "toolu_stored",
    ]
    assert [r.get("is_error", False) for r in told] == [True, True, True, False]
    assert "ToolNotFound" in said(told[0]) and "nothing" in said(told[1])
    assert "ZeroDivisionError" in said(told[2]) and "asked is stored: True" in said(told[3])

    # A doom loop ends the turn; the third call is not run, its mate neither.
    again = python("count = globals().get('count', 0) + 1", "toolu_d")
    calls = [{**again, "id": f"toolu_d{n}"} for n in range(3)]
    fake.script(Reply([*calls, python("never = 1", "toolu_mate")]))
    assert agent(notebook, "Again and again").error == "TurnFailed"
    assert notebook.check("print(count, 'never' in globals())") == "2 False"

    # The limit: the last calls still run.
    fake.script(Reply([python("ran_at_the_limit = True", "toolu_limit")]))
    assert agent(notebook, "Once", "--mode auto --max-steps 1").error == "TurnFailed"
    assert notebook.check("print(ran_at_the_limit)") == "True"

    # A stream that breaks is no message, and no tool runs.
    fake.script(Reply([python("half = 1", "toolu_half")], fault="close", at=6))
    assert agent(notebook, "Break").error == "TurnFailed"
    assert notebook.check("print('half' in globals())") == "False"

    # Deny ends the turn; the mates are not run.
    fake.script(Reply([python("no = 1", "toolu_no"), python("mate = 1", "toolu_no_mate")]))
    cell = notebook.send("%%agent --mode accept_edits\nMay I?", allow_stdin=True)
    page = Page(notebook, cell)
    page.say_ready()
    page.decide(page.card(), "deny")
    assert notebook.finish(cell).error == "TurnFailed"
    assert notebook.check("print('no' in globals(), 'mate' in globals())") == "False False"

    # And the session goes on: every call of every turn has its one result, in order.
    fake.script(Reply([text("Fine.")]))
    assert agent(notebook, "And now?").status == "ok"
    asked: list[str] = []
    for message in fake.requests[-1].body["messages"]:
        if isinstance(message["content"], list):
            asked += [b["id"] for b in message["content"] if b["type"] == "tool_use"]
    assert [r["tool_use_id"] for r in results(fake)] == asked and len(asked) == 11
    by_id = {r["tool_use_id"]: said(r) for r in results(fake)}
    assert by_id["toolu_mate"] == by_id["toolu_no_mate"] == f"[interrupted] {NOT_EXECUTED}"
    assert "doom loop" in by_id["toolu_d2"]

    notebook.leave()
    store = SessionStore(root_path=tmp_path / "sessions")
    (info,) = store.sessions()
    dag = store.load(info.id)
    assert not [n.id for n in dag if n.status == "running"]
    assert [t.status for t in dag.turns.values() if t.kind == "agent"] == [
        "completed",
        "failed",
        "failed",
        "failed",
        "failed",
        "completed",
    ]


def test_a_sub_agent_works_in_a_session_of_its_own_on_disk(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    spawn = tool("spawn_agent", id="toolu_spawn", message="count the penguins")
    fake.script(Reply([spawn, tool("wait_agent", id="toolu_wait")]))  # then it echoes
    assert agent(notebook, "Let another count").status == "ok"
    (child,) = [r for r in fake.requests if "count the penguins" in str(r.body["messages"][:1])]
    assert "Let another count" not in str(child.body)
    assert "You said" in str(fake.requests[-1].body["messages"][-1])
    assert str(fake.requests[-1].body["messages"]).count("[message from agent-1") == 1
    listed = "\n".join(d["data"]["text/plain"] for d in notebook.run("%agent agents").displays)
    assert "agent-1: completed; task: count the penguins" in listed
    store = SessionStore(root_path=tmp_path / "sessions")
    by_source = {info.source: store.load(info.id) for info in store.sessions()}
    parent, own = by_source["notebook"], by_source["agent"]
    assert own.meta["parent"]["session_id"] == parent.session_id
    assert parent.node(own.meta["parent"]["node_id"]).name == "spawn_agent"
    assert [t.status for t in own.turns.values()] == ["completed"]

    # What it may is at most what its parent may, and it can ask nobody.
    (tmp_path / "kept").mkdir()
    assert notebook.run("%agent deny write_file").status == "ok"
    fake.script(
        Reply([tool("spawn_agent", id="toolu_2", message="make files"), tool("wait_agent")]),
        Reply(
            [
                python("import shutil; shutil.rmtree('kept')", "toolu_code"),
                tool("write_file", id="toolu_file", path="by_tool", text="x"),
            ]
        ),
    )
    assert agent(notebook, "Let another make files").status == "ok"
    (child,) = [store.load(i.id) for i in store.sessions() if i.id.endswith("agent-2")]
    calls = {n.name: n.output for n in child if n.metadata.get("kind") == "tool"}
    assert {name: call["state"] for name, call in calls.items()} == {
        "python": "denied",
        "write_file": "denied",
    }
    told = str(calls)
    assert "nobody can be asked here" in told and "the rule deny write_file forbids it" in told
    assert (tmp_path / "kept").exists() and not (tmp_path / "by_tool").exists()


def test_after_kill_9_in_a_tool_nothing_is_rerun_and_the_request_says_so(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    hang = (
        "open('effect', 'a').write('x'); print('in tool', flush=True)\nimport time; time.sleep(600)"
    )
    fake.script(Reply([text("I will. "), python(hang, "toolu_hang"), python("1", "toolu_mate")]))
    cell = notebook.send("%%agent --mode auto\nGo", allow_stdin=True)
    notebook.wait_for(lambda: (tmp_path / "effect").exists(), "the tool's effect")
    del cell
    notebook.kill()
    store = SessionStore(root_path=tmp_path / "sessions")
    notebook.restart()
    asked = len(fake.requests)
    notebook.check("%load_ext op_jupyter")
    (info,) = store.sessions()
    notebook.check(f"%agent resume {info.id}")
    dag = store.load(info.id)
    (turn,) = dag.turns.values()
    assert turn.status == "interrupted"
    assert [(n.role, n.status) for n in dag] == [
        ("user", "completed"),
        ("llm", "completed"),
        ("code", "interrupted"),
    ]
    assert len(fake.requests) == asked

    sent = []
    for _ in range(2):
        fake.script(Reply([text("I see.")]))
        assert agent(notebook, "What happened?").status == "ok"
        sent.append(json.dumps(results(fake)))
    assert sent[0] == sent[1]
    assert [said(r) for r in json.loads(sent[0])] == [f"[interrupted] {MISSING_RESULT}"] * 2
    assert [r["tool_use_id"] for r in json.loads(sent[0])] == ["toolu_hang", "toolu_mate"]
    assert (tmp_path / "effect").read_text() == "x"
