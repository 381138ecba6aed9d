"""What the engine's tests share: tools that only tell, askers with prepared answers, a bad disk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from op_jupyter.core.messages import (
    ModelRequest,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    message_from_json,
)
from op_jupyter.core.permissions import Effect, PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import BadAnswer, Question, QuestionAnswer
from op_jupyter.core.turn import MODEL_STATE, Outcome
from op_jupyter.engine import loop
from op_jupyter.engine.asking import Check
from op_jupyter.engine.prompts import request_of
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.errors import StoreError
from op_jupyter.providers.profile import EndpointProfile
from op_jupyter.providers.request_body import body_bytes, request_body
from op_jupyter.testing.message_rules import API_KEY, ServiceRules, violation
from op_jupyter.testing.providers import Gate, ScriptedProvider
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.toolset import toolset_of

DECLINES = object()


@dataclass
class ScriptedAsker:
    """Answers cards from a list; keeps every request.  With no answers left it waits."""

    answers: list[PermissionAnswer] = field(default_factory=list)
    requests: list[PermissionRequest] = field(default_factory=list)
    interactive: bool = True
    heard: list[PermissionAnswer] = field(default_factory=list)
    says: list[Any] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        self.requests.append(request)
        if not self.answers:
            await asyncio.Event().wait()
        return self.answers.pop(0)

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        self.heard.append(answer)

    @property
    def can_ask(self) -> bool:
        return self.interactive

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """The next of *says* that the program takes; `DECLINES` declines."""
        self.questions.append(question)
        while self.says:
            said = self.says.pop(0)
            if said is DECLINES:
                return QuestionAnswer(how="click", declined=True)
            try:
                return QuestionAnswer(check(said), "click")
            except BadAnswer as bad:
                self.problems.append(str(bad))
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


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
    tools: Sequence[Any] = (),
    prompt: str = "do it",
    asker: ScriptedAsker | None = None,
    **options: Any,
) -> Outcome:
    return loop.run_sync(
        session.run_turn, turn_start(provider, tools, prompt=prompt, asker=asker, **options)
    )[1]


def turn_start(
    provider: ScriptedProvider,
    tools: Sequence[Any] = (),
    *,
    prompt: str = "do it",
    asker: ScriptedAsker | None = None,
    max_retries: int = 0,
    **options: Any,
) -> TurnStart:
    return TurnStart(
        (TextBlock(prompt),),
        Runtime(provider=provider, max_retries=max_retries),
        tools=toolset_of(tools),
        asker=asker or ScriptedAsker(),
        **options,
    )


def start_in_background(
    session: AgentSession,
    provider: ScriptedProvider,
    tools: Sequence[Any] = (),
    **options: Any,
) -> tuple[str, loop.Job[Outcome]]:
    start = turn_start(provider, tools, **options)
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


async def wait_until(session: AgentSession, condition: Callable[[], object]) -> None:
    """Wait until *condition* holds; it is looked at again after each update."""
    met = asyncio.Event()
    here = asyncio.get_running_loop()

    def look(_envelope: Any = None) -> None:
        if condition():
            here.call_soon_threadsafe(met.set)

    unsubscribe = session.subscribe(look)
    look()
    await asyncio.wait_for(met.wait(), 5)
    unsubscribe()


async def wait_phase(session: AgentSession, phase: str) -> None:
    await wait_until(session, lambda: session.snapshot().runtime.get("phase") == phase)


class FailingStore:
    """An open session that refuses a write, and the *more* after it; *allowed* ones come before."""

    def __init__(self, inner: Any, allowed: int, more: float = float("inf")) -> None:
        self._inner = inner
        self._more = more
        self.left = allowed

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in (
            "append",
            "append_many",
            "write",
            "update",
            "begin_turn",
            "end_turn",
            "record_decision",
            "record_checkpoint",
            "set_head",
            "set_meta",
            "put_blob",
        ):
            return value

        def write(*args: Any, **kwargs: Any) -> Any:
            if self.refuses():
                raise StoreError("disk full")
            return value(*args, **kwargs)

        return write

    def refuses(self) -> bool:
        """Whether the write that comes now fails."""
        self.left -= 1
        return -1 - self._more <= self.left < 0


def assert_sound(session: AgentSession) -> None:
    """Nothing says that it runs; each call asked for has its one result, in order; each prompt
    renders again to the bytes that were sent."""
    dag = session.dag
    assert [n.id for n in dag if n.status == "running"] == []
    assert [t.id for t in dag.turns.values() if t.status == "running"] == []
    for node in [n for n in dag if n.role == "llm"]:
        assert (node.output is not None) is (node.status == "completed")
        asked = message_from_json(node.output).tool_uses if node.output else ()
        done = [c for c in dag.children(node.id) if c.metadata.get("kind") == "tool"]
        assert [c.metadata["tool_call_id"] for c in done] == [use.id for use in asked]
        assert all(c.output["state"] in MODEL_STATE for c in done)
        assert request_of(dag, node.id, session.store.read_blob)[1], node.id


def assert_sendable(request: ModelRequest) -> None:
    """The real service would take *request*."""
    profile = EndpointProfile("test", "http://127.0.0.1", "model")
    body = json.loads(body_bytes(request_body(request, profile)))
    json.dumps(body, allow_nan=False)
    assert (
        violation(body, {"x-api-key": API_KEY}, ServiceRules(models=(), context_tokens=10**9))
        is None
    )
    uses = [use for message in request.messages for use in message.tool_uses]
    assert len({use.id for use in uses}) == len(uses), uses
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,128}", word) for u in uses for word in (u.id, u.name))
