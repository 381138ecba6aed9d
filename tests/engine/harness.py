"""What the engine's tests share: tools that only tell, askers with prepared answers, a bad disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from op_jupyter.core.messages import TextBlock, ToolResultBlock, ToolSpec
from op_jupyter.core.permissions import Effect, PermissionAnswer, PermissionRequest
from op_jupyter.core.turn import Outcome
from op_jupyter.engine import loop
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.errors import StoreError
from op_jupyter.testing.providers import Gate, ScriptedProvider
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.toolset import Toolset


@dataclass
class ScriptedAsker:
    """Answers cards from a list; keeps every request.  With no answers left it waits."""

    answers: list[PermissionAnswer] = field(default_factory=list)
    requests: list[PermissionRequest] = field(default_factory=list)
    interactive: bool = True
    heard: list[PermissionAnswer] = field(default_factory=list)

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        self.requests.append(request)
        if not self.answers:
            await asyncio.Event().wait()
        return self.answers.pop(0)

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        self.heard.append(answer)


ALLOW = PermissionAnswer("allow", "click")
DENY = PermissionAnswer("deny", "click")


@dataclass
class FakeTool:
    """A tool that keeps its calls; *act* decides what happens."""

    name: str = "look"
    effect: Effect = "read"
    timeout: float | None = None
    trusted: bool = False
    act: Callable[[Mapping[str, Any]], Any] = lambda arguments: "seen"
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    gate: Gate | None = None

    @property
    def spec(self) -> ToolSpec:
        schema = {
            "type": "object",
            "properties": {"what": {"type": "string"}},
            "additionalProperties": False,
        }
        return ToolSpec(self.name, "Look at something.", schema)

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        return CallDescription()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.calls.append(arguments)
        if self.gate is not None:
            await self.gate.pass_through()
        value = self.act(arguments)
        return value if isinstance(value, ToolOutput) else ToolOutput((TextBlock(str(value)),))


def run(
    session: AgentSession,
    provider: ScriptedProvider,
    tools: Sequence[FakeTool] = (),
    prompt: str = "do it",
    asker: ScriptedAsker | None = None,
    **options: Any,
) -> Outcome:
    start = TurnStart(
        (TextBlock(prompt),),
        Runtime(provider=provider, max_retries=0),
        tools=Toolset(tools),
        asker=asker or ScriptedAsker(),
        **options,
    )
    return loop.run_sync(session.run_turn, start)[1]


def start_in_background(
    session: AgentSession,
    provider: ScriptedProvider,
    tools: Sequence[FakeTool] = (),
    **options: Any,
) -> tuple[str, loop.Job[Outcome]]:
    start = TurnStart(
        (TextBlock("do it"),),
        Runtime(provider=provider, max_retries=0),
        tools=Toolset(tools),
        asker=options.pop("asker", None) or ScriptedAsker(),
        **options,
    )
    turn_id = loop.run_sync(session.start_turn, start).turn_id
    return turn_id, loop.submit(session.wait, turn_id)


def tool_nodes(session: AgentSession) -> list[Any]:
    return [n for n in session.dag if n.metadata.get("kind") == "tool"]


def states(session: AgentSession) -> list[str]:
    return [n.output["state"] for n in tool_nodes(session)]


def texts(session: AgentSession) -> list[str]:
    return [n.output["content"][0]["text"] for n in tool_nodes(session)]


def kinds(session: AgentSession) -> list[str]:
    return [e.update.kind for e in session.replay_updates(0) or ()]


def results_in(provider: ScriptedProvider, index: int = -1) -> list[ToolResultBlock]:
    return [
        block
        for message in provider.requests[index].messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


async def wait_phase(session: AgentSession, phase: str) -> None:
    reached = asyncio.Event()
    here = asyncio.get_running_loop()

    def listen(envelope: Any) -> None:
        if envelope.update.data.get("phase") == phase:
            here.call_soon_threadsafe(reached.set)

    unsubscribe = session.subscribe(listen)
    if session.snapshot().runtime.get("phase") == phase:
        reached.set()
    await asyncio.wait_for(reached.wait(), 5)
    unsubscribe()


class FailingStore:
    """An open session whose writes fail from the *n*-th on."""

    def __init__(self, inner: Any, allowed: int) -> None:
        self._inner = inner
        self.left = allowed

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in (
            "append",
            "update",
            "begin_turn",
            "end_turn",
            "record_decision",
            "set_meta",
        ):
            return value

        def write(*args: Any, **kwargs: Any) -> Any:
            if self.left <= 0:
                raise StoreError("disk full")
            self.left -= 1
            return value(*args, **kwargs)

        return write
