"""The life of one tool call, from the model's request to the one stored result.

Order: parse, show, resolve the name, validate, permission, run, store, show.  Every way out
of `run_tool_call` has stored a result first, unless the store itself refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import ImageBlock, TextBlock, ToolUseBlock, block_to_json
from op_jupyter.core.nodes import Node, NodeStatus
from op_jupyter.core.prompt import FrameView
from op_jupyter.core.turn import FailureCode, ToolState
from op_jupyter.core.updates import Update, bounded, clip
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.context import Frame, executing
from op_jupyter.engine.gate import Permit, ask_permission
from op_jupyter.engine.live import LiveTurn
from op_jupyter.tools.base import MainThread, Tool, ToolContext, ToolOutput
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession

RESULT_HEAD_CHARS: Final = 24_000
RESULT_TAIL_CHARS: Final = 6_000
SHOWN_CHARS: Final = 2_000
STOP_SECONDS: Final = 2.0
"""How long a cancelled tool may take to stop before its result is written."""
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
        in_spite: what the tool returned although it had been cancelled.
    """

    env: ToolEnv
    use: ToolUseBlock
    node: Node
    started: float
    metadata: dict[str, Any] = field(default_factory=dict)
    in_spite: ToolOutput | None = None


async def run_tool_call(env: ToolEnv, use: ToolUseBlock) -> None:
    """Run one call and store its result.

    Raises:
        TurnEnd: the person denied it, or the tool reported `cancelled`.
        StoreError: the result could not be stored.
        CancelledError: with the result stored as cancelled.
    """
    arguments = _parse(use.arguments)
    call = _begin(env, use, arguments)
    try:
        output = await _produce(call, arguments)
    except asyncio.CancelledError:
        _store(call, call.in_spite or _text("cancelled", CANCELLED))
        raise
    except TurnEnd as end:
        state: ToolState = "denied" if end.code == "permission_denied" else "cancelled"
        _store(call, _text(state, end.message))
        raise
    _store(call, output)
    if output.state == "cancelled":
        raise TurnEnd("cancelled", None, f"tool {use.name!r} was cancelled")


def store_not_run(env: ToolEnv, use: ToolUseBlock, state: ToolState, text: str) -> None:
    """Store the result of a call that is not run."""
    call = _begin(env, use, _parse(use.arguments))
    _store(call, _text(state, text))


def _parse(raw: str) -> Mapping[str, Any] | str:
    """The arguments, or the sentence that says what is wrong with them."""
    try:
        value = json.loads(raw or "{}")
    except ValueError as error:
        return f"InvalidArguments: the arguments are not JSON ({error}); send one JSON object"
    if not isinstance(value, dict):
        return "InvalidArguments: the arguments are not a JSON object; send one JSON object"
    return value


def _begin(env: ToolEnv, use: ToolUseBlock, arguments: Mapping[str, Any] | str) -> _Call:
    parsed = isinstance(arguments, Mapping)
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
            },
        )
    )
    shown = {
        "id": use.id,
        "name": use.name,
        "arguments": canonical_json(node.input) if parsed else use.arguments,
        "node_id": node.id,
        "phase": "validating",
    }
    _show(env, Update("tool_call_started", shown))
    return _Call(env, use, node, monotonic())


async def _produce(call: _Call, arguments: Mapping[str, Any] | str) -> ToolOutput:
    if isinstance(arguments, str):
        return _text("failed", arguments)
    env, name = call.env, call.use.name
    tool = env.tools.get(name)
    if tool is None:
        return _text("failed", f"ToolNotFound: {env.tools.unknown(name)}")
    if problem := env.tools.check(name, arguments):
        return _text("failed", f"InvalidArguments: {problem}")
    permit = await ask_permission(env, tool, call.use.id, arguments)
    if permit.decision:
        call.metadata["permission"] = dict(permit.decision)
    if not permit.allowed:
        return _denied(permit)
    if permit.arguments is not arguments and (problem := env.tools.check(name, permit.arguments)):
        return _text("failed", f"InvalidArguments: the edited arguments do not fit: {problem}")
    output = await _run(call, tool, permit)
    return _tell_edited(output, permit) if permit.arguments is not arguments else output


def _denied(permit: Permit) -> ToolOutput:
    if permit.ends_turn:
        raise TurnEnd("failed", "permission_denied", permit.text)
    return _text("denied", permit.text)


def _tell_edited(output: ToolOutput, permit: Permit) -> ToolOutput:
    note = (
        "The person changed the arguments before allowing the call; it ran with "
        f"{canonical_json(permit.arguments)}\n"
    )
    return ToolOutput((TextBlock(note), *output.content), output.state, output.value)


async def _run(call: _Call, tool: Tool, permit: Permit) -> ToolOutput:
    """Run the tool in a task of its own, with the frame that what it calls hangs on."""
    env = call.env
    context = ToolContext(
        workspace=env.session.workspace,
        call_id=call.use.id,
        turn_id=env.turn.id,
        progress=lambda text: _show(
            env, Update("tool_call_progress", {"id": call.use.id, "text": text})
        ),
        main_thread=env.main_thread,
        approved=permit.approved,
    )
    with executing(_tool_frame(call), env.runtime):
        inside = contextvars.copy_context()
    task = asyncio.get_running_loop().create_task(
        _guarded(tool, permit.arguments, context), context=inside
    )
    try:
        done, _ = await asyncio.wait({task}, timeout=tool.timeout)
    except asyncio.CancelledError:
        call.in_spite = await _stop(task)
        raise
    if done:
        return task.result() if not task.cancelled() else _text("cancelled", "the tool stopped")
    late = await _stop(task)
    return late or _text(
        "failed", f"TimedOut: no result after {tool.timeout:g} seconds; it may go on for a while"
    )


async def _stop(task: asyncio.Task[ToolOutput]) -> ToolOutput | None:
    """Cancel *task*; what it returned in spite of that, or None."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):  # cancelled again: wait no longer
        await asyncio.wait({task}, timeout=STOP_SECONDS)
    return task.result() if task.done() and not task.cancelled() else None


async def _guarded(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    try:
        output = await tool.run(arguments, context)
    except Exception as error:  # noqa: BLE001 -- foreign code; whatever it raises is the model's to read
        return _text("failed", f"{type(error).__name__}: {error}")
    if not isinstance(output, ToolOutput):
        kind = type(output).__name__
        return _text("failed", f"the tool returned {kind}, which is no tool output")
    return output


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


def _store(call: _Call, output: ToolOutput) -> None:
    env, content = call.env, tuple(_bound(call, block) for block in output.content)
    metadata = {**call.metadata, "seconds": round(monotonic() - call.started, 3)}
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


def _bound(call: _Call, block: TextBlock | ImageBlock) -> TextBlock | ImageBlock:
    """*block*, cut when it is too long for a result; the whole is kept in the store."""
    if not isinstance(block, TextBlock) or len(block.text) <= RESULT_HEAD_CHARS + RESULT_TAIL_CHARS:
        return block
    clean = call.env.session.recorder.clean(block.text)
    whole = call.env.session.recorder.keep_blob(clean.encode("utf-8", "replace"), "text/plain")
    return TextBlock(bounded(clean, RESULT_HEAD_CHARS, RESULT_TAIL_CHARS, f"context/blobs/{whole}"))


def _show(env: ToolEnv, update: Update) -> None:
    if not env.nested:
        env.turn.publish(update)


def _text(state: ToolState, text: str) -> ToolOutput:
    return ToolOutput((TextBlock(text),), state)
