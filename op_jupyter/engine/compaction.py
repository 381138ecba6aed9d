"""Writing a summary of the conversation and putting it in its place.

The summary is stored first, then its checkpoint, and then the line moves onto it.  Until that
last step nothing is told differently; when it alone fails, the session has to be reloaded, and
opening it makes the step up (`finish_installation`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.compaction import (
    TRIES,
    WORTHWHILE,
    Selection,
    checkpoint_of,
    instruction,
    not_installed,
    problem_of,
    select,
    size_bytes,
    summary_chars,
)
from op_jupyter.core.context_window import BYTES_PER_TOKEN, output_tokens
from op_jupyter.core.messages import ResponseDone, TextBlock, Usage
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import CallInput
from op_jupyter.core.turn import Phase
from op_jupyter.core.values import dataclass
from op_jupyter.engine.requests import Asked, Prepared, begin_call, prepare
from op_jupyter.engine.retry import last_error
from op_jupyter.engine.tool_call import TurnEnd
from op_jupyter.errors import ContextOverflow, ProviderError, StoreError, UsageError
from op_jupyter.providers.base import Capabilities
from op_jupyter.tools.toolset import Toolset
from op_jupyter.tools.tracebacks import stored_message

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession
    from op_jupyter.engine.steps import Plan

FILLED: Final = 0.95
"""How much of the window the request for a summary may take, the answer not counted."""


@dataclass(frozen=True, slots=True)
class CompactionStart:
    """Everything that starts a compaction by hand.

    Attributes:
        runtime: what writes the summary.
        tools: those of the turns before, so that a cached prefix still fits; none is run.
    """

    runtime: Runtime
    tools: Toolset = field(default_factory=lambda: Toolset(()))
    model: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """A summary that is in its place, and what writing it took."""

    node: Node
    usage: tuple[Usage, ...]


class UnusableSummary(Exception):
    """What the model wrote is no summary; says why."""


def why_not(can: Capabilities) -> str:
    """Why a conversation with that model is not compacted; "" when it is."""
    if can.has_session:
        return f"{can.name} keeps the conversation itself and makes room by itself"
    if can.small:
        return (
            f"the model of {can.name!r} is too small to write a summary; it is only ever sent the "
            "newest turns that fit, so that its window does not run full"
        )
    return ""


def overflowed(error: BaseException) -> bool:
    """Whether *error* clearly says that the request was too large, before anything was said."""
    if not isinstance(error, ProviderError) or error.semantic_output:
        return False
    return isinstance(last_error(error), ContextOverflow)


async def make_room(plan: Plan, prepared: Prepared, *, overflow: bool = False) -> Written | None:
    """Compact the line of a running turn, if that gains enough; None: it does not.

    *overflow*: the service refused the request, so it is larger than we think.

    Raises:
        TurnEnd: there is no usable summary (``compaction_error``), or it could not be put in
            its place (``chat_state_error``).
        StoreError, CancelledError: as they came; the line is as it was.
    """
    if not plan.spine or why_not(plan.runtime.provider.capabilities):
        return None
    selection = select(plan.session.dag, plan.session.dag.head, plan.base)
    gained = size_bytes(plan.session.dag, selection.covers) // BYTES_PER_TOKEN
    if gained * WORTHWHILE < prepared.fitted.tokens:
        return None
    plan.enter(Phase.COMPACTING)
    limit = prepared.fitted.tokens // 2 if overflow else None
    written = await write_summary(plan, selection, limit)
    plan.enter(Phase.RUNNING_MODEL)
    return written


async def write_summary(plan: Plan, selection: Selection, limit: int | None = None) -> Written:
    """Have the model write a summary of what *selection* covers, and move the line onto it.

    *limit*: most tokens of the request; None: what fits.

    Raises:
        TurnEnd, StoreError, CancelledError: see `make_room`.
    """
    session = plan.session
    recorder = session.recorder
    node = recorder.append(
        Node(
            id=session.new_id("summary"),
            role="code",
            name="summary",
            input={
                "covers": list(selection.covers),
                "keeps": list(selection.keeps),
                "late": list(selection.late),
            },
            predecessor=session.dag.head,
            metadata={
                "turn_id": plan.turn.id,
                "kind": "summary",
                "label": f"stands for {len(selection.covers)} nodes",
            },
        )
    )
    try:
        told = {"op_jupyter.turn_id": plan.turn.id, "op_jupyter.covers": len(selection.covers)}
        with session.trace.span("compaction", told):
            text, usage = await _tried(plan, node, limit)
    except BaseException as error:
        status = "error" if isinstance(error, Exception) else "cancelled"
        said = {"type": type(error).__name__, "message": stored_message(error, recorder.clean)}
        with contextlib.suppress(StoreError):  # the first cause is on its way up
            recorder.finish(node.id, status=status, metadata={"error": said})
        raise
    node = recorder.finish(node.id, status="completed", output=text)
    recorder.record_checkpoint(checkpoint_of(node))
    _install(session, node.id)
    return Written(node, usage)


def _install(session: AgentSession, node_id: str) -> None:
    try:
        session.recorder.set_head(node_id)
    except StoreError as error:
        why = f"a summary of it is stored but not in its place ({error.message})"
        session.require_reload(why)
        raise TurnEnd("failed", "chat_state_error", f"{why}; reload the session") from error


def finish_installation(session: AgentSession) -> None:
    """Put a stored summary in its place, if the process that wrote it did not get that far."""
    if (node_id := not_installed(session.dag)) is not None:
        with contextlib.suppress(TurnEnd):  # it has been noted that a reload is still needed
            _install(session, node_id)


async def _tried(plan: Plan, node: Node, limit: int | None) -> tuple[str, tuple[Usage, ...]]:
    can = plan.runtime.provider.capabilities
    answer = output_tokens(can.context_tokens, can.max_output_tokens)
    most = int(FILLED * (can.context_tokens - answer))
    limit = most if limit is None else min(limit, most)
    longest = summary_chars(can.context_tokens, answer)
    problem, usage = "", []
    for attempt in range(1, TRIES + 1):
        content = (TextBlock(instruction(longest, problem)),)
        prepared = prepare(plan, CallInput(content), None, shrink_to=limit)
        asked = Asked.now(
            plan,
            begin_call(
                plan,
                prepared,
                caller=node.id,
                predecessor=None,
                label=f"summary, try {attempt}",
                advance_head=False,
            ),
            prepared,
        )
        try:
            done = await asked.answer(lambda delta: None)
        except ProviderError as error:
            if not overflowed(error) or attempt == TRIES:
                raise TurnEnd(
                    "failed",
                    "compaction_error",
                    f"the conversation has to be summarised, and the model failed: {error.message}",
                ) from error
            limit //= 2
            continue
        usage.append(done.usage)
        problem = _problem(done, longest)
        if not problem:
            asked.finish(done, "summary")
            return done.message.text.strip(), tuple(usage)
        asked.fail(UnusableSummary(problem))
    raise TurnEnd(
        "failed",
        "compaction_error",
        f"the model wrote no usable summary in {TRIES} tries: {problem}; ask a larger model for "
        "it, or begin a new session",
    )


def _problem(done: ResponseDone, longest: int) -> str:
    if done.message.tool_uses:
        return "it calls a tool"
    if done.stop_reason != "end_turn":
        return f"it was cut off ({done.stop_reason})"
    return problem_of(done.message.text.strip(), longest)


def check_compactable(session: AgentSession, start: CompactionStart) -> Selection:
    """What a compaction by hand covers: everything.

    Raises:
        UsageError: there is nothing to cover, or the model cannot do it.
    """
    if reason := why_not(start.runtime.provider.capabilities):
        raise UsageError(f"there is no need to compact: {reason}")
    selection = select(session.dag, session.dag.head)
    if not any(session.dag.node(i).role == "llm" for i in selection.covers):
        raise UsageError("there is nothing to compact: the conversation has no answer yet")
    return selection
