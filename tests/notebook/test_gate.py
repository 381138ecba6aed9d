"""No tool has an effect that the gate did not allow first: every tool there is, however refused."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from shells import Shell

import op_jupyter
from op_jupyter.core.agents import AGENT, AGENT_TOOLS
from op_jupyter.core.messages import ModelRequest
from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.rules import parse_rule
from op_jupyter.engine import loop
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.session import AgentSession
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.toolbox import EXTRA, default_tools
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import Script, ScriptedProvider, call, reply
from op_jupyter.tools.base import Tool, ToolContext, ToolOutput
from op_jupyter.tools.functions import as_tool
from op_jupyter.tools.mcp import McpServer, McpTool, ServerConfig
from tests.engine.harness import (
    DENY,
    ScriptedAsker,
    run,
    start_in_background,
    states,
    tool_nodes,
    wait_phase,
)


def plain(text: str) -> str:
    """Say it."""
    return text


@agentic_function
def agentic(text: str) -> str:
    """Say it."""
    return text


class Listed:
    """A tool as an MCP server lists it."""

    name, title, description, input_schema = "look", None, "Look.", {"properties": {}}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "python": {"code": "print(1)"},
    "shell": {"command": "echo x"},
    "remember": {"text": "x"},
    "recall": {"query": "x"},
    "inspect": {"name": "x"},
    "read_file": {"path": "a.txt"},
    "list_files": {},
    "search_files": {"pattern": "x"},
    "edit_file": {"path": "a.txt", "old_text": "a", "new_text": "b"},
    "write_file": {"path": "a.txt", "text": "x"},
    "move_file": {"path": "a.txt", "to": "b.txt"},
    "delete_file": {"path": "a.txt"},
    "update_plan": {"steps": [{"text": "x", "status": "pending"}]},
    "spawn_agent": {"message": "x"},
    "wait_agent": {},
    "list_agents": {},
    "followup_task": {"agent_id": "x", "message": "x"},
    "interrupt_agent": {"agent_id": "x"},
    "plain": {"text": "x"},
    "agentic": {"text": "x"},
    "srv__look": {},
}
"""A call that fits each tool; a tool that is not here fails the first test."""


class Watched:
    """A tool that notes when it is run, and has no effect of its own."""

    def __init__(self, tool: Tool, log: list[Any], session: AgentSession) -> None:
        self._tool, self._log, self._session = tool, log, session
        self.spec, self.effect = tool.spec, tool.effect
        self.timeout, self.trusted = tool.timeout, tool.trusted
        self.describe = tool.describe
        if check := getattr(tool, "check", None):
            self.check = check

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        decided = [d for d in self._session.dag.decisions if d["tool_call_id"] == context.call_id]
        self._log.append((self.spec.name, [d["answer"] for d in decided]))
        return ToolOutput(())


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    """On disk: notes across sessions are kept beside them."""
    return SessionStore(tmp_path / "sessions")


@pytest.fixture
def session(notebook: Notebook) -> AgentSession:
    return notebook.session


@pytest.fixture
def log() -> list[Any]:
    return []


@pytest.fixture
def tools(session: AgentSession, shell: Shell, log: list[Any]) -> list[Any]:
    """Every tool that can be offered."""
    server = McpServer(ServerConfig("srv", "x"), Path("/"))
    others = [as_tool(plain), as_tool(agentic), McpTool(server, Listed())]
    return [Watched(t, log, session) for t in default_tools(shell.ip, session, EXTRA, others)]


def calls(tools: list[Any]) -> list[Any]:
    return [call(tool.spec.name, ARGUMENTS[tool.spec.name]) for tool in tools]


def test_every_tool_is_in_this_test(tools: list[Any]) -> None:
    assert {tool.spec.name for tool in tools} == set(ARGUMENTS)
    for tool in tools:
        check = getattr(tool, "check", lambda _: "")
        assert check(ARGUMENTS[tool.spec.name]) == "", tool.spec.name


def test_a_tool_that_a_rule_denies_is_never_run(
    session: AgentSession, tools: list[Any], log: list[Any]
) -> None:
    session.user_rules = tuple(parse_rule(name, "deny") for name in ARGUMENTS)
    session.allow_everything = True
    run(session, ScriptedProvider(reply(*calls(tools)), reply("done")), tools)
    assert log == []
    assert states(session) == ["denied"] * len(tools)


def test_a_tool_that_asks_is_never_run_where_nobody_answers(
    session: AgentSession, tools: list[Any], log: list[Any]
) -> None:
    loop.run_sync(session.set_permission_mode, "read_only")
    asker = ScriptedAsker(interactive=False)
    run(session, ScriptedProvider(reply(*calls(tools)), reply("done")), tools, asker=asker)
    ran = {name for name, _ in log}
    harmless = {tool.spec.name for tool in tools if tool.effect in ("read", "control")}
    assert ran == harmless
    assert asker.requests == []


@pytest.mark.parametrize(
    "answer", [DENY, PermissionAnswer("deny_message", "click", message="no"), None]
)
def test_a_tool_whose_card_is_not_allowed_is_never_run(
    session: AgentSession, tools: list[Any], log: list[Any], answer: PermissionAnswer | None
) -> None:
    loop.run_sync(session.set_permission_mode, "read_only")
    asking = [tool for tool in tools if tool.effect not in ("read", "control")]
    for tool in asking:
        provider = ScriptedProvider(reply(*calls([tool])), reply("done"))
        asker = ScriptedAsker([] if answer is None else [answer])
        if answer is not None:
            run(session, provider, tools, asker=asker)
            continue
        turn_id, job = start_in_background(session, provider, tools, asker=asker)
        loop.run_sync(wait_phase, session, "waiting_permission")
        loop.run_sync(session.cancel_turn, turn_id)
        job.future.result()
    assert log == []
    assert len(tool_nodes(session)) == len(asking)


def test_when_a_card_is_allowed_the_decision_is_stored_before_the_tool_runs(
    session: AgentSession, tools: list[Any], log: list[Any]
) -> None:
    loop.run_sync(session.set_permission_mode, "read_only")
    asking = [tool for tool in tools if tool.effect not in ("read", "control")]
    asker = ScriptedAsker([PermissionAnswer("allow", "click")] * len(asking))
    run(session, ScriptedProvider(reply(*calls(asking)), reply("done")), tools, asker=asker)
    assert log == [(tool.spec.name, ["allow"]) for tool in asking]


@pytest.mark.parametrize("forbidden", [True, False])
def test_no_tool_of_a_sub_agent_is_run_past_the_gate(
    session: AgentSession, tools: list[Any], log: list[Any], forbidden: bool
) -> None:
    """A live one, in a session of its own: under the parent's rules, and with nobody to ask."""
    theirs = [tool for tool in tools if tool.spec.name not in AGENT_TOOLS]
    if forbidden:
        session.user_rules = tuple(parse_rule(tool.spec.name, "deny") for tool in theirs)
        session.allow_everything = True
    loop.run_sync(session.set_permission_mode, "read_only")
    parents = [
        reply(call("spawn_agent", {"message": "use them all", "mode": "auto"})),
        reply(call("wait_agent", {})),
        reply("done"),
    ]
    childs = [reply(*calls(tools)), reply("tried")]

    def answer(request: ModelRequest) -> Script:
        return (childs if "use them all" in request.messages[0].text else parents).pop(0)

    asker = ScriptedAsker()
    outcome = run(session, ScriptedProvider(default=answer), [*theirs, *agent_tools()], asker=asker)
    assert (outcome.text, childs, asker.requests) == ("done", [], [])
    harmless = [tool.spec.name for tool in theirs if tool.effect in ("read", "control")]
    assert [name for name, _ in log] == ([] if forbidden else harmless)
    (task,) = [node for node in session.dag if node.metadata.get("kind") == AGENT]
    assert task.output == {"text": "tried"}


def test_one_place_in_the_code_runs_tools_and_only_behind_the_gate() -> None:
    """What the tests above watch is all there is: nobody else calls ``Tool.run``."""
    found = []
    for path in Path(op_jupyter.__file__).parent.rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(code)) if ".run(" in code else ():
            match node:
                case ast.Call(func=ast.Attribute(attr="run"), args=[_, ast.Name(id="context")]):
                    found.append(path.name)
    assert found == ["tool_call.py"]
    source = Path(op_jupyter.__file__).with_name("engine") / "tool_call.py"
    produce = next(
        node
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "_produce"
    )
    line = {
        node.func.id: node.lineno
        for node in ast.walk(produce)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert line["ask_permission"] < line["_denied"] < line["_run"]
