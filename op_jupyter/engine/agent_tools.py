"""The tools with which a model makes sub-agents and follows them.

They are control tools: they have no effect of their own, but for a worktree that is made after
asking, and whatever a sub-agent wants to do passes the gate in its own session.  A result is never
returned here; it arrives as a message before the next model call, so it is told exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from op_jupyter.core.agents import AT_ONCE, MESSAGE_BYTES, WAIT_AGENT
from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import Effect
from op_jupyter.core.turn import ToolState
from op_jupyter.engine.agents import Agent, Agents
from op_jupyter.engine.context import Place, current_frame
from op_jupyter.engine.live import LiveTurn
from op_jupyter.errors import SessionStateError, UsageError
from op_jupyter.tools.base import CallDescription, Tool, ToolContext, ToolOutput
from op_jupyter.tools.threads import in_thread
from op_jupyter.tools.worktrees import Repository

WAIT_SECONDS: Final = 60.0
LONGEST_WAIT: Final = 600.0

Action = Callable[[Agents, LiveTurn, str, Mapping[str, Any]], Awaitable[ToolOutput]]


class AgentTool:
    """One of them; *act* does it."""

    effect: Effect = "control"
    timeout: float | None = None  # waiting has its own, and the others do not wait
    trusted = False

    def __init__(self, spec: ToolSpec, act: Action) -> None:
        self.spec = spec
        self._act = act

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""
        schema = self.spec.input_schema
        missing = [name for name in schema["required"] if name not in arguments]
        problems = [f"{name}: is missing" for name in missing]
        for name, value in arguments.items():
            problems += _problem(name, value, schema["properties"].get(name))
        return "; ".join(problems)

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """It touches nothing, but for a worktree that a sub-agent is to work in.

        Raises:
            UsageError: there can be no such worktree.
        """
        name = arguments.get("worktree")
        if name is None:
            return CallDescription()
        undo = "`%agent worktree drop` takes the worktree away again."
        return CallDescription(entries_written=[Repository(workspace).place(name)], undo=undo)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it; what cannot be done is a result that says why."""
        frame = current_frame()
        turn = None if frame is None else frame.session.active_turn
        if frame is None or turn is None or turn.id != context.turn_id or turn.start is None:
            return _said("sub-agents belong to a turn of a person; this call is in none", "failed")
        try:
            return await self._act(frame.session.agents, turn, frame.view.id, arguments)
        except (UsageError, SessionStateError) as error:
            return _said(error.message, "failed")


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {"string": str, "number": (int, float)}


def _problem(name: str, value: Any, schema: Mapping[str, Any] | None) -> list[str]:
    if schema is None:
        return [f"{name:.60}: there is no such argument"]
    if isinstance(value, bool) or not isinstance(value, _TYPES[schema["type"]]):
        return [f"{name}: has to be a {schema['type']}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{name}: has to be one of {', '.join(schema['enum'])}"]
    if "minimum" in schema and value < schema["minimum"]:
        return [f"{name}: has to be at least {schema['minimum']}"]
    return []


def _said(text: str, state: ToolState = "succeeded", value: Any = None) -> ToolOutput:
    return ToolOutput((TextBlock(text),), state, value)


async def _spawn(
    agents: Agents, turn: LiveTurn, caller: str, arguments: Mapping[str, Any]
) -> ToolOutput:
    assert turn.start is not None
    name, message = arguments.get("worktree"), arguments["message"]
    agents.check(message)
    place = None if name is None else await in_thread(partial(_ensured, agents.workspace, name))
    agent = agents.spawn(turn.start, caller, message, arguments.get("mode") or "auto", place)
    where = "" if name is None else f" in worktree {name}, which the person merges later"
    return _said(
        f"{agent.id} has started{where}. Its result arrives as a message before one of your next "
        f"steps; {WAIT_AGENT} waits for it.",
        value={"agent_id": agent.id, "session_id": agent.session_id},
    )


def _ensured(workspace: Path, name: str) -> Place:
    repository = Repository(workspace)
    repository.place(name)  # no name is a name of its own choice there, and nobody was asked
    worktree = repository.ensure(name)
    return Place(worktree.path, repository.workspace(worktree))


def _check_ours(workspace: Path, place: Place) -> None:
    """A story that came from elsewhere may name any folder as the worktree.

    Raises:
        UsageError: *place* is no worktree of the repository of *workspace*.
    """
    ours = any(each.path == place.worktree for each in Repository(workspace).worktrees())
    inside = Path(os.path.realpath(place.workspace)).is_relative_to(place.worktree)
    if not (ours and inside):
        raise UsageError(
            f"{place.workspace} is in no worktree of this repository; give the task to a new "
            "sub-agent"
        )


async def _wait(
    agents: Agents, turn: LiveTurn, caller: str, arguments: Mapping[str, Any]
) -> ToolOutput:
    named = arguments.get("agent_id")
    chosen = agents.running if named is None else [agents.get(named)]
    timeout = float(min(arguments.get("timeout_seconds", WAIT_SECONDS), LONGEST_WAIT))
    if not chosen and not agents.mailbox.waiting:
        return _said("no sub-agent is working, and no message waits")
    # A message that is there already is worth a step at once.
    there = named is None and agents.mailbox.waiting > 0
    if not there and not await agents.wait(chosen, timeout, mail=named is None):
        names = ", ".join(agent.id for agent in chosen)
        return _said(f"still working after {timeout:g} seconds: {names}", value={"timed_out": True})
    done = [agent.id for agent in chosen if not agent.running]
    told = f"done: {', '.join(done)}. " if done else ""
    return _said(f"{told}{_messages(agents.mailbox.waiting)}")


def _messages(count: int) -> str:
    match count:
        case 0:
            return "No new message."
        case 1:
            return "The message follows."
        case _:
            return f"{count} messages follow."


async def _list(
    agents: Agents, turn: LiveTurn, caller: str, arguments: Mapping[str, Any]
) -> ToolOutput:
    lines = [agent_line(agent, node) for agent, node in agents.listed()]
    return _said("\n".join(lines) or "there are no sub-agents")


def agent_line(agent: Agent, node: Node) -> str:
    """One sub-agent in one line."""
    how = f"running ({agent.doing})" if agent.running else node.status
    where = "" if agent.place is None else f"; in worktree {agent.place.worktree.name}"
    return f"{agent.id}: {how}{where}; task: {node.metadata.get('label', '')}"


async def _follow_up(
    agents: Agents, turn: LiveTurn, caller: str, arguments: Mapping[str, Any]
) -> ToolOutput:
    assert turn.start is not None
    if (place := agents.get(arguments["agent_id"]).place) is not None:
        await in_thread(partial(_check_ours, agents.workspace, place))
    agent = agents.follow_up(turn.start, caller, arguments["agent_id"], arguments["message"])
    return _said(f"{agent.id} works at it; its result arrives as a message")


async def _interrupt(
    agents: Agents, turn: LiveTurn, caller: str, arguments: Mapping[str, Any]
) -> ToolOutput:
    agent = agents.get(arguments["agent_id"])
    if not agents.interrupt(agent):
        return _said(f"{agent.id} does nothing; there is nothing to stop")
    await agent.ended.wait()
    return _said(f"{agent.id} was stopped. {_messages(agents.mailbox.waiting)}")


def _schema(required: Sequence[str], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_ID: Final = {"type": "string", "description": "Such as agent-1."}
_MESSAGE: Final = {
    "type": "string",
    "description": f"The whole task, under {MESSAGE_BYTES // 4} tokens: a sub-agent sees nothing "
    "of this conversation.",
}


def agent_tools() -> list[Tool]:
    """The five tools, in a fixed order."""
    return [
        AgentTool(
            ToolSpec(
                "spawn_agent",
                "Let a sub-agent work at a task of its own while you go on. It has your tools, "
                "cannot ask the person, cannot make sub-agents, and answers with one message. "
                f"At most {AT_ONCE} work at once.",
                _schema(
                    ["message"],
                    message=_MESSAGE,
                    mode={
                        "type": "string",
                        "enum": ["read_only", "accept_edits", "auto"],
                        "description": "What it may do without asking; never more than you.",
                    },
                    worktree={
                        "type": "string",
                        "description": "Have it work in the git worktree of this name, beside "
                        "the person's repository; made, after asking, when it is not there. For "
                        "changes that must not meet yours. It starts from the last commit.",
                    },
                ),
            ),
            _spawn,
        ),
        AgentTool(
            ToolSpec(
                WAIT_AGENT,
                "Wait until a sub-agent is done, or a message of one is there.",
                _schema(
                    [],
                    agent_id=_ID,
                    timeout_seconds={
                        "type": "number",
                        "minimum": 0,
                        "description": f"At most {LONGEST_WAIT:g}; {WAIT_SECONDS:g} if not given.",
                    },
                ),
            ),
            _wait,
        ),
        AgentTool(
            ToolSpec("list_agents", "List the sub-agents and what they do.", _schema([])), _list
        ),
        AgentTool(
            ToolSpec(
                "followup_task",
                "Give a sub-agent that is done another task; it remembers its earlier ones.",
                _schema(["agent_id", "message"], agent_id=_ID, message=_MESSAGE),
            ),
            _follow_up,
        ),
        AgentTool(
            ToolSpec(
                "interrupt_agent",
                "Stop what a sub-agent does.",
                _schema(["agent_id"], agent_id=_ID),
            ),
            _interrupt,
        ),
    ]
