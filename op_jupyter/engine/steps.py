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
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from op_jupyter.core.context_window import fit
from op_jupyter.core.keys import canonical_arguments, canonical_json, sha256
from op_jupyter.core.messages import (
    Block,
    ModelDelta,
    ModelRequest,
    ResponseDone,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
    message_to_json,
    request_to_json,
)
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import (
    SYSTEM_PROMPT,
    CallInput,
    FrameView,
    Shown,
    call_input_from_json,
    call_input_to_json,
    current_world,
    render_messages,
)
from op_jupyter.core.turn import DOOM_LOOP, NOT_EXECUTED, FailureCode, Phase
from op_jupyter.core.updates import Update
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.responses import sound_calls
from op_jupyter.engine.retry import last_error
from op_jupyter.engine.tool_call import ToolEnv, TurnEnd, run_tool_call, store_not_run
from op_jupyter.errors import ProtocolError, ProviderError, StoreError
from op_jupyter.tools.base import MainThread
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.engine.context import Frame
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
    model: str = ""
    _last_call: tuple[str, str] | None = None
    _repeats: int = 0

    def count(self, use: ToolUseBlock) -> int:
        """How often this very call was asked for in a row, now included."""
        key = (use.name, canonical_arguments(use.arguments))
        self._repeats = self._repeats + 1 if key == self._last_call else 1
        self._last_call = key
        return self._repeats

    def add(self, done: ResponseDone) -> None:
        """Count one model call."""
        self.usage = Usage(
            self.usage.input_tokens + done.usage.input_tokens,
            self.usage.output_tokens + done.usage.output_tokens,
            self.usage.cache_read_tokens + done.usage.cache_read_tokens,
            self.usage.cache_write_tokens + done.usage.cache_write_tokens,
        )
        self.text = done.message.text
        self.model = done.model or self.model


async def run_steps(plan: Plan, content: Sequence[Block], progress: Progress) -> Progress:
    """Run the loop to the model's answer; *progress* is filled in as it goes.

    With a *progress* that has an answer already, *content* is what is said to that answer, and
    the loop goes on: for one model call at least.

    Raises:
        TurnEnd: the turn ends without an answer.
        ProviderError, StoreError: as they came, with everything before them stored.
        CancelledError: after what was under way has its result.
    """
    own = None if progress.node is None else progress.node.id
    added = tuple(content)
    first = progress.steps + 1
    for step in range(first, max(plan.max_steps, first) + 1):
        await asyncio.sleep(0)  # a cancel that is on its way has to come before the call
        progress.steps = step
        if not plan.nested:
            plan.turn.step = step
        plan.enter(Phase.RUNNING_MODEL)
        node, done = await _model_step(plan, CallInput(added), own, step)
        progress.node = node
        progress.add(done)
        uses = done.message.tool_uses
        if not uses and done.stop_reason != "pause_turn":
            return progress
        if uses:
            plan.enter(Phase.RUNNING_TOOLS)
            await _run_tools(plan, progress, node, uses)
        own, added = node.id, ()
    raise TurnEnd(
        "failed",
        "max_model_calls",
        f"no answer after {plan.max_steps} model call{'' if plan.max_steps == 1 else 's'}; "
        "raise --max-steps or ask for less at once",
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
            await run_tool_call(env, use)
        except BaseException:
            # The first cause is the one that counts; a store that fails again adds nothing.
            for mate in uses[index + 1 :]:
                with contextlib.suppress(StoreError):
                    store_not_run(env, mate, "cancelled", NOT_EXECUTED)
            raise


async def _model_step(
    plan: Plan, call: CallInput, own: str | None, step: int
) -> tuple[Node, ResponseDone]:
    """One model call; *own* is the one before it in this loop."""
    recorder = plan.session.recorder
    call = CallInput(call.content, _changed_world(plan))
    call = call_input_from_json(recorder.clean(call_input_to_json(call)))
    request, reads = _request(plan, call, own)
    node = recorder.append(
        Node(
            id=plan.session.new_id("llm"),
            role="llm",
            name=request.model,
            input=call_input_to_json(call),
            caller=plan.caller,
            predecessor=own or plan.predecessor,
            reads=reads,
            metadata={
                "turn_id": plan.turn.id,
                "frame": plan.frame_id,
                "bare": plan.frame is not None and not plan.frame.name,
                "label": f"step {step}",
            },
        ),
        advance_head=plan.spine,
    )
    started = monotonic()
    attempts: list[str] = []
    try:
        with plan.session.trace.span("model_call", _request_attributes(plan, request)) as span:
            done = await plan.runtime.call_model(
                request,
                on_delta=lambda delta: _show_delta(plan, delta),
                attempts=attempts,
                timeout=plan.timeout,
                max_retries=plan.max_retries,
            )
            span.set({**_response_attributes(done), "op_jupyter.attempts": len(attempts) + 1})
    except BaseException as error:
        plan.show(Update("draft_cleared"))
        with contextlib.suppress(StoreError):  # the first cause is on its way up
            recorder.finish(node.id, **_failed(error, attempts, monotonic() - started))
        raise
    done = sound_calls(done, request, plan.tools, plan.session.new_id)
    node = recorder.finish(
        node.id,
        status="completed",
        output=message_to_json(done.message),
        name=done.model or node.name,
        metadata=_model_metadata(done, attempts, monotonic() - started, step),
    )
    plan.show(Update("draft_cleared"))
    return node, done


def _show_delta(plan: Plan, delta: ModelDelta) -> None:
    if isinstance(delta, TextDelta):
        plan.show(Update("text_delta", {"text": delta.text}))
    elif isinstance(delta, ThinkingDelta):
        plan.show(Update("reasoning_delta", {"text": delta.text}))
    if plan.on_stream is not None:
        plan.on_stream(delta)


def _changed_world(plan: Plan) -> dict[str, str]:
    """The sections of the world state that the conversation does not know yet."""
    if plan.world is None:
        return {}
    try:
        sections = plan.world()
    except Exception as error:  # a host's source; whatever it raises fails the turn by name
        raise TurnEnd(
            "failed", "world_state_error", f"the world state cannot be read: {error}"
        ) from error
    known = current_world(plan.session.dag, plan.session.dag.head if plan.spine else plan.base)
    return {name: text for name, text in sections.items() if text and known.get(name) != text}


def _request(plan: Plan, call: CallInput, own: str | None) -> tuple[ModelRequest, dict[str, Any]]:
    """The request, and the constant-size note from which it can be rendered again."""
    session, capabilities = plan.session, plan.runtime.provider.capabilities
    base = session.dag.head if plan.spine else plan.base
    shown = Shown(
        base,
        session.recorder.as_of(),
        plan.frames,
        plan.render_range.get("callers"),
        plan.render_range.get("subcalls"),
        own,
    )
    system = "\n\n".join(part for part in (SYSTEM_PROMPT, plan.system) if part)
    specs = plan.tools.specs(capabilities.max_tools)
    request = ModelRequest(
        model=plan.model or plan.runtime.model or capabilities.default_model,
        messages=render_messages(session.dag, shown, call),
        system=system,
        tools=specs,
        max_tokens=min(8192, capabilities.max_output_tokens),
        response_schema=plan.schema,
        session_key=session.session_id,
    )
    request = fit(request, capabilities.context_tokens)
    as_json = request_to_json(request)
    reads = {
        "head": base,
        "as_of": shown.as_of,
        "callers": shown.callers,
        "subcalls": shown.subcalls,
        "own": shown.own,
        "frames": [frame_to_json(f) for f in plan.frames],
        "system": plan.system,
        "model": request.model,
        "max_tokens": request.max_tokens,
        "context_tokens": capabilities.context_tokens,
        "tools": _keep(plan, as_json["tools"]),
        "schema": _keep(plan, as_json["response_schema"]),
        "sha256": sha256(as_json),
    }
    return request, reads


def _keep(plan: Plan, part: Any) -> str | None:
    """Tools' descriptions and schemas go to the store once; a node names them by hash."""
    if part is None or part == []:
        return None
    return plan.session.recorder.keep_blob(canonical_json(part).encode(), "application/json")


def frame_to_json(frame: FrameView) -> dict[str, Any]:
    """*frame* as it stands in a node's ``reads``.

    Only the innermost header is shown, and it is kept whole; callers show one line each.
    """
    return {
        "id": frame.id,
        "recorded_id": frame.recorded_id,
        "line": frame.line,
        "header": frame.header,
        "expose": frame.expose,
    }


def _model_metadata(
    done: ResponseDone, attempts: Sequence[str], seconds: float, step: int
) -> dict[str, Any]:
    text = done.message.text
    label = text or ", ".join(use.name for use in done.message.tool_uses) or f"step {step}"
    return {
        "label": label[:200],
        **_response_attributes(done),
        "attempts": list(attempts),
        "seconds": round(seconds, 3),
    }


def _request_attributes(plan: Plan, request: ModelRequest) -> dict[str, Any]:
    """What a span says of a model call before it is made."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": plan.runtime.provider.capabilities.name,
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "op_jupyter.turn_id": plan.turn.id,
    }


def _response_attributes(done: ResponseDone) -> dict[str, Any]:
    """What a node, and a span, say of a response."""
    return {
        "gen_ai.response.model": done.model,
        "gen_ai.response.finish_reasons": [done.stop_reason],
        "gen_ai.usage.input_tokens": done.usage.input_tokens,
        "gen_ai.usage.output_tokens": done.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": done.usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": done.usage.cache_write_tokens,
    }


def _failed(error: BaseException, attempts: Sequence[str], seconds: float) -> dict[str, Any]:
    status = "error" if isinstance(error, Exception) else "cancelled"
    metadata: dict[str, Any] = {"attempts": list(attempts), "seconds": round(seconds, 3)}
    if status == "error":
        metadata["error"] = {"type": type(error).__name__, "message": str(error)}
    return {"status": status, "metadata": metadata}


def code_of(error: Exception) -> FailureCode:
    """The failure code of a turn that *error* ended."""
    if isinstance(error, ProviderError):
        error = last_error(error)
    if isinstance(error, ProtocolError):
        return "model_protocol_error"
    return "persistence_error" if isinstance(error, StoreError) else "model_error"
