"""The life of one tool call, from the model's request to the one stored result.

Order: parse, resolve the name, validate, judge, store the call, show, permission, run, store,
show.  What the rules decide about a call is stored with it, in one write, before it runs.
Every way out of `run_tool_call` has stored a result first, unless the store itself refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import math
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.keys import canonical_json, nests_deeper
from op_jupyter.core.messages import TextBlock, ToolUseBlock, block_to_json
from op_jupyter.core.nodes import Node, NodeStatus
from op_jupyter.core.prompt import FrameView
from op_jupyter.core.turn import FailureCode, ToolState
from op_jupyter.core.updates import Update, bounded, clip
from op_jupyter.core.values import dataclass
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.context import Frame, executing
from op_jupyter.engine.gate import Judged, Permit, ask_permission, judge
from op_jupyter.engine.libraries import libraries_are_loaded
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.plan_tool import UpdatePlan
from op_jupyter.engine.results import accepted, bounded_content, text_output
from op_jupyter.engine.trace import Span
from op_jupyter.errors import SessionStateError, StoreError
from op_jupyter.tools.base import MainThread, Tool, ToolContext, ToolOutput
from op_jupyter.tools.threads import looked_at
from op_jupyter.tools.toolset import Toolset
from op_jupyter.tools.tracebacks import message_of

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession

SHOWN_CHARS: Final = 2_000
ARGUMENTS_CHARS: Final = 100_000
STOP_SECONDS: Final = 2.0
"""How long a cancelled tool may take to stop before its result is written."""
DEEPEST: Final = 100
TOO_DEEP: Final = f"InvalidArguments: the arguments nest more than {DEEPEST} levels deep"
ABANDONED: Final = "the session was closed meanwhile; whether the call did anything is not known"
CANCELLED: Final = "the call was cancelled; what it had done by then is not undone"

_NODE_STATUS: Final[dict[ToolState, NodeStatus]] = {
    "succeeded": "completed",
    "failed": "error",
    "denied": "denied",
    "cancelled": "cancelled",
    "outcome_unknown": "error",
}


class TurnEnd(Exception):
    """The turn ends here, without an answer."""

    def __init__(self, status: str, code: FailureCode | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class ToolEnv:
    """What the calls of one response share."""

    session: AgentSession
    turn: LiveTurn
    tools: Toolset
    asker: Asker
    asked: Node
    main_thread: MainThread | None
    frame: Frame | None
    runtime: Runtime | None = None
    nested: bool = False


@dataclass(slots=True)
class _Call:
    """One call under way.

    Attributes:
        waited: seconds until it was decided whether the call may run.
        executed: seconds that the tool ran.
        in_spite: what the tool returned although it had been cancelled.
    """

    env: ToolEnv
    use: ToolUseBlock
    node: Node
    started: float
    span: Span
    waited: float = 0.0
    executed: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)
    in_spite: ToolOutput | None = None


async def run_tool_call(env: ToolEnv, use: ToolUseBlock) -> ToolOutput:
    """Run one call, store its result, and return it.

    Raises:
        TurnEnd: the person denied it, or the tool reported `cancelled`.
        StoreError: the decision about the call, or its result, could not be stored.
        SessionStateError: nobody can be asked in this way, and the caller has to know.
        CancelledError: with the result stored as cancelled.
    """
    with env.session.trace.span("tool_call", _attributes(env, use)) as span:
        return await _run_traced(env, use, span)


def _attributes(env: ToolEnv, use: ToolUseBlock) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": use.name,
        "gen_ai.tool.call.id": use.id,
        "gen_ai.tool.type": "function",
        "op_jupyter.turn_id": env.turn.id,
    }


async def _run_traced(env: ToolEnv, use: ToolUseBlock, span: Span) -> ToolOutput:
    arguments = _parse(use.arguments)
    try:
        judged = await _look_at(env, use, arguments)
    except asyncio.CancelledError:
        _store_last(_begin(env, use, arguments, span), text_output("cancelled", CANCELLED))
        raise
    call = _begin(env, use, arguments, span, judged)
    try:
        output = await _produce(call, judged, arguments)
    except asyncio.CancelledError:
        _store_last(call, call.in_spite or _cut_short(call))
        raise
    except TurnEnd as end:
        state: ToolState = "denied" if end.code == "permission_denied" else "cancelled"
        _store_last(call, text_output(state, end.message))
        raise
    except (StoreError, SessionStateError) as error:
        _store_last(call, text_output("failed", f"the call was not run: {error.message}"))
        raise
    except Exception as error:  # noqa: BLE001 -- what the tool tells about itself is foreign code
        output = text_output("failed", f"the call was not run: {_told(error)}")
    _store(call, output)
    _show_plan(call, output)
    if output.state == "cancelled":
        raise TurnEnd("cancelled", None, f"tool {use.name!r} was cancelled")
    return output


def _cut_short(call: _Call) -> ToolOutput:
    """The result of a call that was stopped before it had one."""
    if call.env.turn.abandoned:
        return text_output("outcome_unknown", ABANDONED)
    return text_output("cancelled", CANCELLED)


def store_not_run(env: ToolEnv, use: ToolUseBlock, state: ToolState, text: str) -> None:
    """Store the result of a call that is not run."""
    with env.session.trace.span("tool_call", _attributes(env, use)) as span:
        _store(_begin(env, use, _parse(use.arguments), span), text_output(state, text))


async def _look_at(
    env: ToolEnv, use: ToolUseBlock, arguments: Mapping[str, Any] | str
) -> Judged | ToolOutput:
    """What the rules say about the call, or the result of one that cannot run; no effect yet."""
    if isinstance(arguments, str):
        return text_output("failed", arguments)
    tool = env.tools.get(use.name)
    if tool is None:
        return text_output("failed", f"ToolNotFound: {env.tools.unknown(use.name)}")
    try:
        await libraries_are_loaded()
        if problem := await asyncio.to_thread(env.tools.check, use.name, arguments):
            return text_output("failed", f"InvalidArguments: {problem}")
        return judge(env, tool, arguments)
    except Exception as error:  # noqa: BLE001 -- what the tool tells about itself is foreign code
        return text_output("failed", f"the call was not run: {_told(error)}")


def _parse(raw: str) -> Mapping[str, Any] | str:
    """The arguments, or the sentence that says what is wrong with them."""
    try:
        value = json.loads(raw or "{}", parse_constant=_refuse_constant)
        canonical_json(value)  # a number may be too large for any but Python
    except ValueError as error:
        return f"InvalidArguments: the arguments are not JSON ({error}); send one JSON object"
    except RecursionError:
        return TOO_DEEP
    if not isinstance(value, dict):
        return "InvalidArguments: the arguments are not a JSON object; send one JSON object"
    return TOO_DEEP if nests_deeper(value, DEEPEST) else value


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _begin(
    env: ToolEnv,
    use: ToolUseBlock,
    arguments: Mapping[str, Any] | str,
    span: Span,
    judged: Judged | ToolOutput | None = None,
) -> _Call:
    parsed = isinstance(arguments, Mapping)
    decision = judged.decision if isinstance(judged, Judged) else {}
    node = env.session.recorder.append(
        Node(
            id=env.session.new_id("tool"),
            role="code",
            name=use.name,
            input=dict(arguments) if isinstance(arguments, Mapping) else {"raw": use.arguments},
            caller=env.asked.id,
            metadata={
                "turn_id": env.turn.id,
                "kind": "tool",
                "tool_call_id": use.id,
                "frame": env.asked.metadata.get("frame"),
                "label": clip(use.arguments),
                **({"permission": dict(decision)} if decision else {}),
            },
        )
    )
    text = canonical_json(node.input) if parsed else use.arguments
    shown = {
        "id": use.id,
        "name": use.name,
        "arguments": bounded(text, ARGUMENTS_CHARS, 0),
        "node_id": node.id,
        "phase": "validating",
    }
    _show(env, Update("tool_call_started", shown))
    return _Call(env, use, node, monotonic(), span)


async def _produce(
    call: _Call, judged: Judged | ToolOutput, arguments: Mapping[str, Any] | str
) -> ToolOutput:
    if isinstance(judged, ToolOutput):
        return judged
    assert not isinstance(arguments, str)  # such a call is not judged
    env, tool = call.env, judged.tool
    asked = monotonic()
    try:
        permit = await ask_permission(env, judged, call.use.id, arguments)
    finally:
        call.waited += monotonic() - asked
    if permit.decision:
        call.metadata["permission"] = dict(permit.decision)
    if not permit.allowed:
        return _denied(permit)
    backups = env.session.backups
    try:
        taken = await backups.before(permit.call, call.node.id, env.session.workspace)
    except BaseException:
        call.metadata["files"] = []  # it does not run: what is kept, or still will be, is no change
        raise
    try:
        output = await _run(call, tool, permit)
    finally:
        call.metadata.update(await backups.after(taken))
    return _tell_edited(output, permit) if permit.arguments is not arguments else output


def _denied(permit: Permit) -> ToolOutput:
    if permit.ends_turn:
        raise TurnEnd("failed", "permission_denied", permit.text)
    return text_output(permit.state, permit.text)


def _tell_edited(output: ToolOutput, permit: Permit) -> ToolOutput:
    note = (
        "The person changed the arguments before allowing the call; it ran with "
        f"{canonical_json(permit.arguments)}\n"
    )
    return ToolOutput((TextBlock(note), *output.content), output.state, output.value)


async def _run(call: _Call, tool: Tool, permit: Permit) -> ToolOutput:
    """Run the tool in a task of its own, with the frame that what it calls hangs on."""
    await asyncio.sleep(0)  # a cancel that is on its way has to come before the effect
    env = call.env
    context = ToolContext(
        workspace=env.session.workspace,
        call_id=call.use.id,
        turn_id=env.turn.id,
        progress=partial(_show_progress, call),
        main_thread=env.main_thread,
        approved=permit.approved,
        worktree=env.session.worktree,
        seconds=env.session.timeouts.get(tool.spec.name),
    )
    with executing(_tool_frame(call), env.runtime):
        inside = contextvars.copy_context()
    call.span.contain(inside)
    began = monotonic()
    try:
        return await _result(call, tool, inside, permit.arguments, context)
    finally:
        call.executed = monotonic() - began


async def _result(
    call: _Call,
    tool: Tool,
    inside: contextvars.Context,
    arguments: Mapping[str, Any],
    context: ToolContext,
) -> ToolOutput:
    task = asyncio.get_running_loop().create_task(
        _guarded(tool, arguments, context), context=inside
    )
    limit = _limit(tool, context)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.CancelledError):  # cancelled again: wait no longer
            await _stop(task)
        call.in_spite = _in_spite(task)
        raise
    if done:
        return (
            task.result() if not task.cancelled() else text_output("cancelled", "the tool stopped")
        )
    await _stop(task)
    return _in_spite(task) or text_output(
        "failed", f"TimedOut: no result after {limit:g} seconds; it may go on for a while"
    )


def _limit(tool: Tool, context: ToolContext) -> float | None:
    """Seconds until the call is given up, by the user's settings or the tool's own word."""
    if context.seconds is None or getattr(tool, "limits_itself", False):
        return tool.timeout
    return None if context.seconds == math.inf else context.seconds


async def _stop(task: asyncio.Task[ToolOutput]) -> None:
    """Cancel *task*, and wait a while for its end."""
    task.cancel()
    await asyncio.wait({task}, timeout=STOP_SECONDS)


def _in_spite(task: asyncio.Task[ToolOutput]) -> ToolOutput | None:
    """What a cancelled *task* returned in spite of that, or None."""
    return task.result() if task.done() and not task.cancelled() else None


async def _guarded(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    try:
        output = await tool.run(arguments, context)
        value = output.value if isinstance(output, ToolOutput) else None
        return await looked_at(lambda: accepted(output), value)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 -- foreign code; whatever it raises is the model's to read
        return text_output("failed", _told(error))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}"


def _tool_frame(call: _Call) -> Frame:
    env = call.env
    view = FrameView(id=call.node.id, recorded_id=call.node.id)
    return Frame(
        view,
        env.session,
        env.turn.id,
        # The response that asked is not complete yet, so history ends before it.
        env.asked.predecessor if env.frame is None else env.frame.base,
        parent=env.frame,
        tool_name=call.use.name,
        asker=env.asker,
        main_thread=env.main_thread,
    )


def _store_last(call: _Call, output: ToolOutput) -> None:
    """Store the result of a call that ends the turn, whose first cause is what counts."""
    with contextlib.suppress(StoreError):
        _store(call, output)


def _store(call: _Call, output: ToolOutput) -> None:
    env = call.env
    content = bounded_content(
        env.session.recorder.clean_content(output.content), partial(_keep_whole, call)
    )
    # What the person took to answer is in the decision; it is no time of the tool's.
    seconds = monotonic() - call.started - call.waited
    metadata = {**call.metadata, "seconds": round(seconds, 3)}
    _tell_span(call, output.state)
    node = env.session.recorder.finish(
        call.node.id,
        status=_NODE_STATUS[output.state],
        output={
            "state": output.state,
            "content": [block_to_json(b) for b in content],
            **({} if output.value is None else {"value": output.value}),
        },
        metadata=metadata,
    )
    text = "".join(b["text"] for b in node.output["content"] if b["type"] == "text")
    finished = {
        "id": call.use.id,
        "name": call.use.name,
        "state": output.state,
        "text": bounded(text, SHOWN_CHARS, SHOWN_CHARS // 2),
        "node_id": node.id,
        "edited": "edited" in call.metadata.get("permission", {}),
    }
    _show(env, Update("tool_call_finished", finished))


def _show_plan(call: _Call, output: ToolOutput) -> None:
    """Show a plan that is stored."""
    if output.state == "succeeded" and isinstance(call.env.tools.get(call.use.name), UpdatePlan):
        _show(call.env, Update("plan_updated", {"steps": call.node.input["steps"]}))


def _tell_span(call: _Call, state: ToolState) -> None:
    call.span.set(
        {
            "op_jupyter.tool.state": state,
            "op_jupyter.permission.wait_seconds": round(call.waited, 6),
            "op_jupyter.tool.execution_seconds": round(call.executed, 6),
        }
    )
    if state != "succeeded":
        call.span.fail(state)


def _keep_whole(call: _Call, text: str) -> str:
    recorder = call.env.session.recorder
    return f"context/blobs/{recorder.keep_blob(text.encode(), 'text/plain')}"


def _show_progress(call: _Call, text: str) -> None:
    shown = bounded(str(text), SHOWN_CHARS, SHOWN_CHARS // 2)
    _show(call.env, Update("tool_call_progress", {"id": call.use.id, "text": shown}))


def _show(env: ToolEnv, update: Update) -> None:
    if not env.nested:
        env.turn.publish(update)
