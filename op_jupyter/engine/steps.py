"""The agent loop: model call, tool calls, model call, ... until the model answers.

There is one implementation.  A ``%%agent`` turn, ``agent(...)`` inside a function and a bare
``llm(...)`` differ only in their `Plan`.  Held here:

- an assistant message is stored before any tool it asks for runs;
- every tool call gets exactly one stored result, also when the turn ends in its midst;
- the next model call happens only after all results are stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import TYPE_CHECKING, Any, get_args

from op_jupyter.core.agents import WAIT_AGENT, WAITS_IN_A_ROW
from op_jupyter.core.keys import canonical_arguments
from op_jupyter.core.messages import (
    Block,
    ModelDelta,
    ResponseDone,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
)
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import CallInput, FrameView, current_world
from op_jupyter.core.turn import DOOM_LOOP, NOT_EXECUTED, FailureCode, Phase
from op_jupyter.core.updates import Update
from op_jupyter.core.values import dataclass
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.compaction import make_room, overflowed
from op_jupyter.engine.exchanges import begin_exchange, end_of
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.requests import Asked, Prepared, begin_call, prepare
from op_jupyter.engine.responses import sound_calls
from op_jupyter.engine.retry import last_error
from op_jupyter.engine.tool_call import ToolEnv, TurnEnd, run_tool_call, store_not_run
from op_jupyter.engine.world_state import NOTHING, UnreadableSection
from op_jupyter.errors import ProtocolError, ProviderError, StoreError
from op_jupyter.store.base import Ended
from op_jupyter.tools.base import MainThread, ToolOutput
from op_jupyter.tools.threads import in_thread
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.engine.context import Frame
    from op_jupyter.engine.exchanges import Exchange
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run of the loop needs to know.

    Attributes:
        base: node of the conversation up to which history is shown.
        predecessor: node that the first model call follows.
        spine: the model calls are the conversation itself, and move its head.
        caller: recorded node that executes this (None: top level).
        frames: the running functions, outermost first; the last one's id marks the nodes.
        nested: inside a tool of a visible turn, whose phase and draft are not ours.
        system: the function's addition to the system prompt.
        schema: what the answer has to fit; None: it is text.
        own_tools: a provider that has tools of its own offers them too.
        exchange: where it stands at a provider that keeps the conversation itself.
        budget: tokens, sent and received, after which no further call is made; None: any number.
        ending: the end of the turn, which is stored as one with the answer; None: what comes
            after the answer decides how the turn ends.
    """

    session: AgentSession
    turn: LiveTurn
    runtime: Runtime
    tools: Toolset
    max_steps: int
    asker: Asker
    base: str | None
    predecessor: str | None
    frames: tuple[FrameView, ...] = ()
    caller: str | None = None
    spine: bool = False
    nested: bool = False
    model: str | None = None
    system: str = ""
    schema: Mapping[str, Any] | None = None
    render_range: Mapping[str, int | None] = field(default_factory=dict)
    main_thread: MainThread | None = None
    world: Callable[[], Mapping[str, str]] | None = None
    timeout: float | None = None
    max_retries: int | None = None
    on_stream: Callable[[ModelDelta], None] | None = None
    frame: Frame | None = None
    own_tools: bool = False
    exchange: Exchange | None = None
    budget: int | None = None
    ending: Callable[[Progress], Ended] | None = None

    @property
    def frame_id(self) -> str | None:
        """What marks the nodes of this run."""
        return self.frames[-1].id if self.frames else None

    def enter(self, phase: Phase) -> None:
        """Show the phase, when it is ours to show."""
        if not self.nested:
            self.turn.enter(phase)

    def show(self, update: Update) -> None:
        """Show something of the answer, when it is ours to show."""
        if not self.nested:
            self.turn.publish(update)


@dataclass(slots=True)
class Progress:
    """What the loop carries from step to step."""

    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    node: Node | None = None
    text: str = ""
    stop_reason: str = ""
    model: str = ""
    waits: int = 0
    _last_call: tuple[str, str] | None = None
    _repeats: int = 0

    def count(self, use: ToolUseBlock) -> int:
        """How often this very call was asked for in a row, now included."""
        if use.name == WAIT_AGENT:  # to ask again is the use of it; see `count_wait`
            self._repeats, self._last_call = 1, None
            return 1
        key = (use.name, canonical_arguments(use.arguments))
        self._repeats = self._repeats + 1 if key == self._last_call else 1
        self._last_call = key
        return self._repeats

    def count_wait(self, use: ToolUseBlock, output: ToolOutput) -> int:
        """How many waits in a row, *use* included, had no result."""
        vain = isinstance(output.value, Mapping) and output.value.get("timed_out") is True
        self.waits = self.waits + 1 if use.name == WAIT_AGENT and vain else 0
        return self.waits

    def add(self, done: ResponseDone) -> None:
        """Count one model call."""
        self.count_usage(done.usage)
        self.text = done.message.text
        self.stop_reason = done.stop_reason
        self.model = done.model or self.model

    def count_usage(self, usage: Usage) -> None:
        """Add the tokens of a call."""
        self.usage = Usage(
            self.usage.input_tokens + usage.input_tokens,
            self.usage.output_tokens + usage.output_tokens,
            self.usage.cache_read_tokens + usage.cache_read_tokens,
            self.usage.cache_write_tokens + usage.cache_write_tokens,
        )


async def run_steps(plan: Plan, content: Sequence[Block], progress: Progress) -> Progress:
    """Run the loop to the model's answer; *progress* is filled in as it goes.

    With a *progress* that has an answer already, *content* is what is said to that answer, and
    the loop goes on: for one model call at least.

    Raises:
        TurnEnd: the turn ends without an answer.
        ProviderError, StoreError: as they came, with everything before them stored.
        CancelledError: after what was under way has its result.
    """
    plan = await begin_exchange(plan)
    with end_of(plan.exchange):
        return await _loop(plan, content, progress)


async def _loop(plan: Plan, content: Sequence[Block], progress: Progress) -> Progress:
    own = None if progress.node is None else progress.node.id
    added = tuple(content)
    first = progress.steps + 1
    for step in range(first, max(plan.max_steps, first) + 1):
        await asyncio.sleep(0)  # a cancel that is on its way has to come before the call
        _check_budget(plan, progress)
        progress.steps = step
        if not plan.nested:
            plan.turn.step = step
        plan.enter(Phase.RUNNING_MODEL)
        # A provider that keeps the conversation takes prompts at the start of a turn alone.
        if plan.spine and (plan.exchange is None or step == first):
            plan.session.agents.mailbox.drain(plan.turn.id)
        node, done = await _model_step(plan, added, own, progress)
        progress.node = node
        progress.add(done)
        uses = done.message.tool_uses
        if is_answer(done):
            return progress
        if uses:
            plan.enter(Phase.RUNNING_TOOLS)
            await _run_tools(plan, progress, node, uses)
        own, added = node.id, ()
    raise TurnEnd(
        "failed",
        "max_model_calls",
        f"no answer after {plan.max_steps} model call{'' if plan.max_steps == 1 else 's'}; "
        f"raise {'--max-steps' if plan.spine else 'max_steps='} or ask for less at once",
    )


def is_answer(done: ResponseDone) -> bool:
    """Whether nothing has to follow that response."""
    return not done.message.tool_uses and done.stop_reason != "pause_turn"


def _check_budget(plan: Plan, progress: Progress) -> None:
    """End the turn before a call that its budget has nothing left for."""
    spent = progress.usage.input_tokens + progress.usage.output_tokens
    if plan.budget is not None and spent >= plan.budget:
        raise TurnEnd(
            "failed",
            "token_budget",
            f"no answer within {plan.budget:,} tokens: {spent:,} were used in "
            f"{progress.steps} model call{'' if progress.steps == 1 else 's'}; raise --budget or "
            "ask for less at once",
        )


async def _run_tools(
    plan: Plan, progress: Progress, asked: Node, uses: Sequence[ToolUseBlock]
) -> None:
    env = ToolEnv(
        session=plan.session,
        turn=plan.turn,
        tools=plan.tools,
        asker=plan.asker,
        asked=asked,
        main_thread=plan.main_thread,
        frame=plan.frame,
        runtime=plan.runtime,
        nested=plan.nested,
    )
    for index, use in enumerate(uses):
        try:
            if progress.count(use) >= DOOM_LOOP:
                text = f"doom loop detected for tool '{use.name}'"
                store_not_run(env, use, "failed", text)
                raise TurnEnd("failed", "doom_loop", text)
            output = await run_tool_call(env, use)
            if progress.count_wait(use, output) >= WAITS_IN_A_ROW:
                text = f"{WAIT_AGENT} timed out {WAITS_IN_A_ROW} times in a row"
                raise TurnEnd("failed", "doom_loop", text)
            if plan.exchange is not None:
                plan.exchange.deliver(asked, use)
        except BaseException:
            # The first cause is the one that counts; a store that fails again adds nothing.
            for mate in uses[index + 1 :]:
                with contextlib.suppress(StoreError):
                    store_not_run(env, mate, "cancelled", NOT_EXECUTED)
            raise


async def _model_step(
    plan: Plan, content: tuple[Block, ...], own: str | None, progress: Progress
) -> tuple[Node, ResponseDone]:
    """Ask the model once; *own* is the call before it in this loop.

    What does not fit is made to fit by one compaction at most.
    """
    world = await _world_now(plan)
    # A message of a sub-agent may stand between two steps of a conversation.
    predecessor = plan.session.dag.head if plan.spine else own or plan.predecessor
    prepared = _prepare(plan, content, own, world)
    summary = await _compact(plan, prepared, progress) if prepared.too_large else None
    if summary is not None:
        predecessor, prepared = summary, _prepare(plan, content, summary, world)
    try:
        return await _ask(plan, prepared, predecessor, progress)
    except ProviderError as error:
        if summary is not None or not overflowed(error):
            raise
        summary = await _compact(plan, prepared, progress, overflow=True)
        if summary is None:
            raise
    return await _ask(plan, _prepare(plan, content, summary, world), summary, progress)


def _prepare(
    plan: Plan, content: tuple[Block, ...], own: str | None, world: Mapping[str, str]
) -> Prepared:
    return prepare(plan, CallInput(content, _changed(plan, world)), own)


async def _ask(
    plan: Plan, prepared: Prepared, predecessor: str | None, progress: Progress
) -> tuple[Node, ResponseDone]:
    label = f"step {progress.steps}"
    node = begin_call(
        plan,
        prepared,
        caller=plan.caller,
        predecessor=predecessor,
        label=label,
        advance_head=plan.spine,
    )
    asked = Asked.now(plan, node, prepared)
    try:
        done = await asked.answer(lambda delta: _show_delta(plan, delta))
    except BaseException:
        plan.show(Update("draft_cleared"))
        raise
    done = sound_calls(done, prepared.request, plan.tools, plan.session.new_id)
    node = asked.finish(done, label, _end_with(plan, progress, node, done))
    if plan.exchange is not None:
        plan.exchange.note(done, node, spine=plan.spine)
    plan.show(Update("draft_cleared"))
    return node, done


def _end_with(plan: Plan, progress: Progress, node: Node, done: ResponseDone) -> Ended | None:
    """The end of the turn, when that response, the answer of *node*, is it."""
    if plan.ending is None or not is_answer(done):
        return None
    after = copy(progress)
    after.node = node
    after.add(done)
    return plan.ending(after)


async def _compact(
    plan: Plan, prepared: Prepared, progress: Progress, *, overflow: bool = False
) -> str | None:
    """The summary that the line goes on from now, or None: nothing was gained."""
    written = await make_room(plan, prepared, overflow=overflow)
    if written is None:
        return None
    for usage in written.usage:
        progress.count_usage(usage)
    return written.node.id


def _show_delta(plan: Plan, delta: ModelDelta) -> None:
    if isinstance(delta, TextDelta):
        plan.show(Update("text_delta", {"text": delta.text}))
    elif isinstance(delta, ThinkingDelta):
        plan.show(Update("reasoning_delta", {"text": delta.text}))
    if plan.on_stream is not None:
        plan.on_stream(delta)


async def _world_now(plan: Plan) -> Mapping[str, str]:
    """The sections of the world state, read in a thread: one may run code of variables.

    Raises:
        TurnEnd: one cannot be read.
    """
    if plan.world is None:
        return {}
    try:
        return await in_thread(plan.world)
    except UnreadableSection as error:
        code = f"{error.section}_error"
        known_code = code if code in get_args(FailureCode) else "world_state_error"
        raise TurnEnd("failed", known_code, str(error)) from error  # type: ignore[arg-type]
    except Exception as error:  # a host's source; whatever it raises fails the turn by name
        raise TurnEnd(
            "failed", "world_state_error", f"the world state cannot be read: {error}"
        ) from error


def _changed(plan: Plan, sections: Mapping[str, str]) -> dict[str, str]:
    """Those of *sections* that the conversation does not know yet."""
    if not sections:
        return {}
    known = current_world(plan.session.dag, plan.session.dag.head if plan.spine else plan.base)
    now = {name: text or (NOTHING if known.get(name) else "") for name, text in sections.items()}
    return {name: text for name, text in now.items() if text and known.get(name) != text}


def code_of(error: Exception) -> FailureCode:
    """The failure code of a turn that *error* ended."""
    if isinstance(error, ProviderError):
        error = last_error(error)
    if isinstance(error, ProtocolError):
        return "model_protocol_error"
    return "persistence_error" if isinstance(error, StoreError) else "model_error"
