"""One ``%%agent`` turn: the user's node, the loop, and always a final status.

The first cause of a failure is the code that is kept, also when recording the failure fails.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from op_jupyter.core.compaction import Selection
from op_jupyter.core.messages import TextBlock, block_to_json
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.skills import sent_text
from op_jupyter.core.turn import Outcome, Phase
from op_jupyter.core.updates import Update, clip
from op_jupyter.engine.artifacts import metrics_of
from op_jupyter.engine.compaction import CompactionStart, write_summary
from op_jupyter.engine.context import current_frame
from op_jupyter.engine.live import KEEP_HEAD, LiveTurn
from op_jupyter.engine.retry import last_error
from op_jupyter.engine.slots import PROCESS
from op_jupyter.engine.steps import Plan, Progress, code_of, run_steps
from op_jupyter.engine.tool_call import TurnEnd
from op_jupyter.errors import (
    ContextOverflow,
    OpenProgramError,
    ProviderError,
    StoreError,
    TurnFailed,
)
from op_jupyter.store.base import Ended
from op_jupyter.tools.tracebacks import stored_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from op_jupyter.engine.session import AgentSession, TurnStart

log = logging.getLogger(__name__)

ABANDONED: Final = "the session was closed while the turn ran"
COMPACTION: Final = "compaction of the conversation"


async def run_turn(session: AgentSession, turn: LiveTurn, start: TurnStart) -> Outcome:
    """Run *turn* to its end; never raises, whatever goes wrong."""
    progress, started = Progress(), monotonic()
    turn.start = start
    outcome = await _outcome(session, turn, start, progress)
    if outcome.status == "cancelled":
        session.agents.interrupt_all()  # stop means stop
    outcome = _store_end(session, turn, outcome, progress)
    turn.phase = Phase(outcome.status)
    turn.publish(Update("turn_finished", _finished(outcome, monotonic() - started)))
    return outcome


async def _outcome(
    session: AgentSession, turn: LiveTurn, start: TurnStart, progress: Progress
) -> Outcome:
    user: Node | None = None
    try:
        user = _store_start(session, turn, start)
        if turn.cancelling:
            raise asyncio.CancelledError
        plan = Plan(
            session=session,
            turn=turn,
            runtime=start.runtime,
            tools=start.tools,
            max_steps=start.max_steps,
            budget=start.budget,
            asker=start.asker,
            base=user.id,
            predecessor=user.id,
            spine=True,
            model=start.model,
            main_thread=start.main_thread,
            world=start.world,
            own_tools=len(start.tools) > 0,
            ending=lambda progress: _answered(session, turn, progress),
        )
        async with _place(session, turn):
            await run_steps(plan, (), progress)
    except BaseException as error:  # noqa: BLE001 -- a turn must always get a final status
        if user is not None and progress.steps == 1 and _is_overflow(error):
            _step_back(session, user)
        return _ended_by(error, session, turn, progress, "turn")
    return _ended(progress, "completed", None, "")


def _ended_by(
    error: BaseException, session: AgentSession, turn: LiveTurn, progress: Progress, what: str
) -> Outcome:
    """The outcome of *what* that *error* ended: it must always get a final status."""
    if isinstance(error, asyncio.CancelledError):
        if turn.abandoned:
            return _ended(progress, "failed", "actor_stopped", ABANDONED)
        return _ended(progress, "cancelled", None, f"the {what} was cancelled")
    if isinstance(error, TurnEnd):
        status = "cancelled" if error.status == "cancelled" else "failed"
        return _ended(progress, status, error.code, error.message)
    if not isinstance(error, OpenProgramError):
        log.warning("%s %s ended", what, turn.id, exc_info=error)
    said = describe_error(error, session.recorder.clean)
    if not isinstance(error, Exception):  # a program's end, or the like, as in `status_of`
        return _ended(progress, "cancelled", None, f"the {what} was ended by {said}")
    return _ended(progress, "failed", code_of(error), said)


def _place(session: AgentSession, turn: LiveTurn) -> AbstractAsyncContextManager[None]:
    """One of the few places there are for attempts."""
    if session.bounds is not None or current_frame() is not None:
        return nullcontext()
    return PROCESS.held(session.attempts_at_once, lambda: turn.enter(Phase.PENDING))


async def run_compaction(
    session: AgentSession, turn: LiveTurn, start: CompactionStart, selection: Selection
) -> Outcome:
    """Write a summary as a turn of its own; never raises, whatever goes wrong."""
    progress, started = Progress(), monotonic()
    outcome = await _compaction_outcome(session, turn, start, selection, progress)
    outcome = _store_end(session, turn, outcome, progress)
    turn.phase = Phase(outcome.status)
    turn.publish(Update("turn_finished", _finished(outcome, monotonic() - started)))
    return outcome


async def _compaction_outcome(
    session: AgentSession,
    turn: LiveTurn,
    start: CompactionStart,
    selection: Selection,
    progress: Progress,
) -> Outcome:
    try:
        head = session.dag.head
        session.recorder.begin_turn(
            Turn(turn.id, "compaction", "running", COMPACTION, head, started_at=session.now())
        )
        if turn.cancelling:
            raise asyncio.CancelledError
        plan = Plan(
            session=session,
            turn=turn,
            runtime=start.runtime,
            tools=start.tools,
            max_steps=1,
            asker=session.asker,
            base=head,
            predecessor=head,
            spine=True,
            model=start.model,
        )
        turn.enter(Phase.COMPACTING)
        written = await write_summary(plan, selection)
        progress.node, progress.text = written.node, str(written.node.output)
        for usage in written.usage:
            progress.count_usage(usage)
    except BaseException as error:  # noqa: BLE001 -- a turn must always get a final status
        return _ended_by(error, session, turn, progress, "compaction")
    return _ended(progress, "completed", None, "")


def _store_start(session: AgentSession, turn: LiveTurn, start: TurnStart) -> Node:
    skills = [TextBlock(sent_text(skill)) for skill in start.skills]
    metadata = {"turn_id": turn.id, "label": clip(start.text), **start.metadata}
    if skills:
        metadata["skills"] = [skill.name for skill in start.skills]
    base = session.dag.head if start.base == KEEP_HEAD else start.base
    return session.recorder.begin_with(
        Turn(
            turn.id,
            "agent",
            "running",
            clip(start.text),
            base,
            start.client_request_id,
            session.now(),
            metadata=dict(start.metadata),
        ),
        Node(
            id=session.new_id("user"),
            role="user",
            name="user",
            input=[block_to_json(b) for b in (*skills, *start.content)],
            status="completed",
            predecessor=base,
            metadata=metadata,
        ),
    )


def _is_overflow(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and isinstance(last_error(error), ContextOverflow)


def _step_back(session: AgentSession, user: Node) -> None:
    """Take a prompt that does not fit the model's window off the active line.

    It stays in the graph; on the line, no later prompt of the session would fit either.
    """
    with suppress(StoreError):  # the first cause is told
        session.recorder.set_head(user.predecessor)


def _ended(progress: Progress, status: str, code: str | None, message: str) -> Outcome:
    text = progress.text if status == "completed" else ""
    return Outcome(
        status,  # type: ignore[arg-type]
        text,
        code,  # type: ignore[arg-type]
        message,
        progress.steps,
        progress.usage,
    )


def _store_end(
    session: AgentSession, turn: LiveTurn, outcome: Outcome, progress: Progress
) -> Outcome:
    stored = session.dag.turns.get(turn.id)
    if stored is None:
        return outcome
    if stored.status == "completed":  # with its answer; what came after that came too late
        return _ended(progress, "completed", None, "")
    failure = (
        {"code": outcome.code, "message": outcome.message} if outcome.status == "failed" else None
    )
    metadata = _told(session, turn, progress)
    try:
        session.recorder.end_turn(turn.id, outcome.status, failure=failure, metadata=metadata)
    except StoreError as error:
        if outcome.status != "completed":
            return outcome
        return _ended(
            progress, "failed", "persistence_error", describe_error(error, session.recorder.clean)
        )
    return outcome


def _answered(session: AgentSession, turn: LiveTurn, progress: Progress) -> Ended:
    """The end of a turn that its answer is stored with."""
    return Ended(turn.id, "completed", metadata=_told(session, turn, progress))


def _told(session: AgentSession, turn: LiveTurn, progress: Progress) -> dict[str, object]:
    metadata = end_metadata(progress)
    if metrics := metrics_of(session, turn.id):
        metadata["metrics"] = metrics
    return metadata


def end_metadata(progress: Progress) -> dict[str, object]:
    """What a finished turn says about itself; its commit's trailers are made of it."""
    return {
        "model": progress.model,
        "input_tokens": progress.usage.input_tokens,
        "output_tokens": progress.usage.output_tokens,
        "steps": progress.steps,
        "answer": None if progress.node is None else progress.node.id,
    }


def failure_of(
    error: BaseException | None, clean: Callable[[str], str]
) -> dict[str, object] | None:
    """The failure of a call's turn that *error* ended; None when it did not fail."""
    if not isinstance(error, Exception):
        return None
    code = error.code if isinstance(error, TurnFailed) else code_of(error)
    return {"code": code, "message": describe_error(error, clean)}


def describe_error(error: BaseException, clean: Callable[[str], str]) -> str:
    """*error* in a few words; ours already say what to do."""
    said = stored_message(error, clean)
    return said if isinstance(error, OpenProgramError) else f"{type(error).__name__}: {said}"


def _finished(outcome: Outcome, seconds: float) -> dict[str, object]:
    return {
        "status": outcome.status,
        "text": outcome.text,
        "code": outcome.code,
        "message": outcome.message,
        "steps": outcome.steps,
        "usage": {
            "input_tokens": outcome.usage.input_tokens,
            "output_tokens": outcome.usage.output_tokens,
        },
        "seconds": round(seconds, 1),
    }
