"""One model call: its request, made on a copy of the history, and its node in the graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.compaction import visible_line
from op_jupyter.core.context_window import (
    Fitted,
    correction,
    fit,
    line_tokens,
    measured,
    output_tokens,
    shrink,
)
from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import (
    ModelDelta,
    ModelRequest,
    ResponseDone,
    message_to_json,
    tool_to_json,
)
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import (
    SYSTEM_PROMPT,
    CallInput,
    FrameView,
    Shown,
    call_input_from_json,
    call_input_to_json,
    render_messages,
)
from op_jupyter.core.updates import bounded
from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError
from op_jupyter.providers.base import CONVERSATION
from op_jupyter.store.base import Ended
from op_jupyter.tools.tracebacks import stored_message

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession
    from op_jupyter.engine.steps import Plan


ATTEMPT_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and the constant-size note from which it can be rendered again.

    Attributes:
        call: what the call adds to the conversation, as it is stored.
        line: estimate in tokens from which a request is too large.
    """

    call: CallInput
    fitted: Fitted
    reads: Mapping[str, Any]
    line: int

    @property
    def request(self) -> ModelRequest:
        """What is sent."""
        return self.fitted.request

    @property
    def too_large(self) -> bool:
        """Whether it reaches the line although old results were pruned."""
        return self.fitted.tokens >= self.line


def prepare(
    plan: Plan, call: CallInput, own: str | None, *, shrink_to: int | None = None
) -> Prepared:
    """The request of *plan* that adds *call*; *own*: the last model call of this loop.

    *shrink_to* makes it fit under that many tokens by force.
    """
    session, can = plan.session, plan.runtime.provider.capabilities
    # Cleaned before it is sent, as it will be when it is stored.
    clean = session.recorder.clean
    call = call_input_from_json(clean(call_input_to_json(call)))
    system = clean(plan.system)
    base = session.dag.head if plan.spine else plan.base
    shown = Shown(
        base,
        session.recorder.as_of(),
        plan.frames,
        plan.render_range.get("callers"),
        plan.render_range.get("subcalls"),
        own,
        *(() if plan.exchange is None else plan.exchange.remembered()),
    )
    request = ModelRequest(
        model=clean(plan.model or plan.runtime.model or can.default_model),
        messages=render_messages(session.dag, shown, call),
        system="\n\n".join(part for part in (SYSTEM_PROMPT, system) if part),
        tools=plan.tools.specs(can.max_tools),
        max_tokens=output_tokens(can.context_tokens, can.max_output_tokens),
        response_schema=plan.schema,
        session_key=session.session_id,
        continuation=None if plan.exchange is None else plan.exchange.where,
    )
    off = _correction(session.dag, base, own)
    line = line_tokens(can.context_tokens, request.max_tokens, off)
    if shown.kept:
        fitted = measured(request)  # a part of the conversation, whose whole the provider keeps
    elif shrink_to is None:
        fitted = fit(request, line)
    else:
        fitted = shrink(request, shrink_to - off)
    reads = {
        "head": base,
        "as_of": shown.as_of,
        "callers": shown.callers,
        "subcalls": shown.subcalls,
        "own": shown.own,
        **({"kept": True, "known": shown.known} if shown.kept else {}),
        "frames": [frame_to_json(f) for f in plan.frames],
        "system": system,
        "model": request.model,
        "max_tokens": request.max_tokens,
        "line": line,
        "tools": _keep(session, [tool_to_json(tool) for tool in request.tools]),
        "schema": _keep(session, request.response_schema),
        "sha256": sha256(fitted.data).hexdigest(),
    }
    if shrink_to is not None:
        reads["shrunk_to"] = shrink_to - off
    return Prepared(call, fitted, reads, line)


def _correction(dag: Dag, base: str | None, own: str | None) -> int:
    """By how much the service's last count of this conversation was off our estimate."""
    line = [dag.node(own)] if own is not None else reversed(visible_line(dag, base))
    for node in line:
        estimated = node.metadata.get("estimated_tokens")
        if isinstance(estimated, int) and node.status == "completed":
            return correction(estimated, int(node.metadata.get("gen_ai.usage.input_tokens", 0)))
    return 0


def _keep(session: AgentSession, part: Any) -> str | None:
    """Tools' descriptions and schemas go to the store once; a node names them by hash."""
    if part is None or part == []:
        return None
    try:
        data = canonical_json(part).encode()
    except UnicodeEncodeError:  # half a character, which JSON can hold as an escape alone
        data = json.dumps(part).encode()
    return session.recorder.keep_blob(data, "application/json")


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


def begin_call(
    plan: Plan,
    prepared: Prepared,
    *,
    caller: str | None,
    predecessor: str | None,
    label: str,
    advance_head: bool,
) -> Node:
    """Store the node of a model call that is about to be made."""
    return plan.session.recorder.append(
        Node(
            id=plan.session.new_id("llm"),
            role="llm",
            name=prepared.request.model,
            input=call_input_to_json(prepared.call),
            caller=caller,
            predecessor=predecessor,
            reads=prepared.reads,
            metadata={
                "turn_id": plan.turn.id,
                "frame": plan.frame_id,
                "bare": plan.frame is not None and not plan.frame.name,
                "label": label,
                "estimated_tokens": prepared.fitted.tokens,
            },
        ),
        advance_head=advance_head,
    )


@dataclass(slots=True)
class Asked:
    """One model call under way: how it ends is stored, whatever that is."""

    plan: Plan
    node: Node
    request: ModelRequest
    started: float
    attempts: list[str]

    @classmethod
    def now(cls, plan: Plan, node: Node, prepared: Prepared) -> Asked:
        """The call of *node*, from now on."""
        return cls(plan, node, prepared.request, monotonic(), [])

    async def answer(self, on_delta: Callable[[ModelDelta], None]) -> ResponseDone:
        """The whole response.  An error is stored before it goes on up."""
        plan, attempts = self.plan, self.attempts
        attributes = _request_attributes(plan, self.request)
        try:
            with plan.session.trace.span("model_call", attributes) as span:
                done = await plan.runtime.call_model(
                    self.request,
                    on_delta=on_delta,
                    attempts=attempts,
                    timeout=plan.timeout,
                    max_retries=plan.max_retries,
                )
                told = {**_response_attributes(done), "op_jupyter.attempts": len(attempts) + 1}
                span.set(told)
                return done
        except BaseException as error:
            with suppress(StoreError):  # the first cause is on its way up
                self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Store that there is no answer, and why."""
        is_error = isinstance(error, Exception)
        recorder = self.plan.session.recorder
        metadata: dict[str, Any] = {
            "attempts": self._attempts(),
            "seconds": round(monotonic() - self.started, 3),
        }
        if is_error:
            metadata["error"] = {
                "type": type(error).__name__,
                "message": stored_message(error, recorder.clean),
            }
        status = "error" if is_error else "cancelled"
        recorder.finish(self.node.id, status=status, metadata=metadata)

    def finish(self, done: ResponseDone, label: str, ended: Ended | None = None) -> Node:
        """Store the answer, and with it that its turn has *ended*."""
        return self.plan.session.recorder.finish(
            self.node.id,
            ended=ended,
            status="completed",
            output=message_to_json(done.message),
            name=done.model or self.node.name,
            metadata={
                **_told(done, self._attempts(), monotonic() - self.started, label),
                **_conversation(self.plan, done),
            },
        )

    def _attempts(self) -> list[str]:
        """What is stored of the attempts that failed."""
        clean = self.plan.session.recorder.clean
        return [bounded(clean(line), ATTEMPT_CHARS, ATTEMPT_CHARS // 4) for line in self.attempts]


def _told(done: ResponseDone, attempts: list[str], seconds: float, label: str) -> dict[str, Any]:
    said = done.message.text or ", ".join(use.name for use in done.message.tool_uses)
    return {
        "label": (said or label)[:200],
        **_response_attributes(done),
        "attempts": attempts,
        "seconds": round(seconds, 3),
    }


def _conversation(plan: Plan, done: ResponseDone) -> dict[str, Any]:
    """By what id the provider can go on with the conversation, if it keeps it."""
    told = done.details.get(CONVERSATION)
    if told is None:
        return {}
    return {"provider": plan.runtime.provider.capabilities.name, CONVERSATION: told}


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
