"""One run of the loop at a provider that keeps the conversation itself.

The rule: a runtime is one provider session.  It is gone on with as long as all that it was told
lies on the line that is asked now, and nothing else was said there since; after a fork, a
rewind, or an answer of another model there is a new one, which is told the rendered history.
While it is busy (a tool of its turn asks a model in turn, or calls run at the same time), a
request gets a provider session of its own, for that one loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from op_jupyter.core.graph import Dag
from op_jupyter.core.messages import Continuation, ResponseDone, ToolUseBlock
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import result_block
from op_jupyter.core.values import dataclass
from op_jupyter.engine import context
from op_jupyter.engine.own_tools import ProviderTool
from op_jupyter.providers.base import CONVERSATION, Conversations, SessionProvider

if TYPE_CHECKING:
    from op_jupyter.engine.steps import Plan


@dataclass(slots=True)
class ProviderMemory:
    """What the provider session of one runtime has been told.

    Attributes:
        conversation: the provider's own id of it; None: there is none yet.
        session: the session that it speaks of; "" for calls outside of any.
        tip: the newest node of the conversation that it knows.
        busy: an exchange goes on in it.
    """

    conversation: str | None = None
    session: str = ""
    tip: str | None = None
    busy: bool = False


@dataclass(slots=True)
class Exchange:
    """Where a loop stands at its provider; *known*: `Shown.known`, *told*: it had an answer."""

    conversations: Conversations
    memory: ProviderMemory
    where: Continuation
    known: str | None
    dag: Dag
    told: bool = False

    def remembered(self) -> tuple[bool, str | None]:
        """`Shown.kept` and `Shown.known` for the next request."""
        return self.told or self.where.resume is not None, self.known

    def note(self, done: ResponseDone, node: Node, *, spine: bool) -> None:
        """A step was answered, and stored as *node*."""
        self.told = True
        if self.where.lasting:
            told = done.details.get(CONVERSATION)
            self.memory.conversation = str(told) if told else None
            if spine:
                self.memory.tip = node.id

    def deliver(self, asked: Node, use: ToolUseBlock) -> None:
        """The stored result of a tool call."""
        results = (
            child
            for child in self.dag.children(asked.id)
            if child.metadata.get("tool_call_id") == use.id
        )
        self.conversations.deliver(self.where.exchange, result_block(use.id, next(results, None)))


@contextmanager
def end_of(exchange: Exchange | None) -> Iterator[None]:
    """Tell the provider when the loop is over, however it ends."""
    try:
        yield
    finally:
        if exchange is not None:
            if exchange.where.lasting:
                exchange.memory.busy = False
            exchange.conversations.end(exchange.where.exchange)


async def begin_exchange(plan: Plan) -> Plan:
    """*plan*, with its place at the provider and the provider's own tools, if it has a session."""
    provider = plan.runtime.provider
    if not provider.capabilities.has_session:
        return plan
    conversations = cast("SessionProvider", provider).conversations
    memory, session = plan.runtime.memory, plan.session
    where = Continuation(session.new_id("exchange"), str(session.workspace), lasting=False)
    known = None
    if not memory.busy:
        memory.busy = True
        try:
            known, resume = await _gone_on_with(plan, conversations, memory)
        except BaseException:
            memory.busy = False
            raise
        where = replace(where, lasting=True, resume=resume)
        memory.conversation, memory.session = resume, _key(plan)
        memory.tip = _base(plan)
    exchange = Exchange(conversations, memory, where, known, session.dag)
    own = [
        ProviderTool(tool, conversations, where.exchange)
        for tool in conversations.own_tools
        if tool.spec.name not in plan.tools
    ]
    return replace(
        plan, exchange=exchange, tools=plan.tools.plus(own) if plan.own_tools else plan.tools
    )


async def _gone_on_with(
    plan: Plan, conversations: Conversations, memory: ProviderMemory
) -> tuple[str | None, str | None]:
    """Up to which node the provider knows, and its id of the conversation to go on with."""
    line = _line(plan)
    if memory.conversation is not None:
        if memory.session == _key(plan) and _knows_all(line, memory.tip):
            return memory.tip, memory.conversation
        return None, None
    last = _last_answer(line) if plan.spine else None
    if last is None or not _knows_all(line, last.id):
        return None, None
    told = last.metadata.get(CONVERSATION)
    name = plan.runtime.provider.capabilities.name
    if not isinstance(told, str) or last.metadata.get("provider") != name:
        return None, None
    newest = max(n.seq for n in plan.session.dag if n.metadata.get(CONVERSATION) == told)
    if newest != last.seq or not await conversations.remembers(told, str(plan.session.workspace)):
        return None, None
    return last.id, told


def _base(plan: Plan) -> str | None:
    return plan.session.dag.head if plan.spine else plan.base


def _line(plan: Plan) -> list[Node]:
    base = _base(plan)
    return [] if base is None else plan.session.dag.spine(base)


def _last_answer(line: list[Node]) -> Node | None:
    answers = (node for node in reversed(line) if node.role == "llm")
    return next((node for node in answers if node.status == "completed"), None)


def _knows_all(line: list[Node], tip: str | None) -> bool:
    """Whether *tip* lies on *line*, and nobody has answered after it.

    Prompts that came since can be told now.
    """
    places = {node.id: place for place, node in enumerate(line)}
    if tip is not None and tip not in places:
        return False
    since = line[places[tip] + 1 :] if tip is not None else line
    return all(
        node.role == "user" or (node.role == "llm" and node.status != "completed") for node in since
    )


def _key(plan: Plan) -> str:
    """What tells sessions apart; calls outside of any share one conversation."""
    outside = not plan.spine and context.current_session() is None
    return "" if outside else plan.session.session_id
