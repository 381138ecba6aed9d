"""Spans: what they say, how they nest, and that exporters cannot hold a turn up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.runtime import llm
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.trace import Trace
from op_jupyter.errors import ProviderConnectionError
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import ALLOW, DENY, FakeTool, ScriptedAsker, run
from tests.engine.test_compaction import compact, model


class Kept(SpanExporter):
    """Keeps what is exported, or does *act* instead."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.spans: list[ReadableSpan] = []
        self._act = act

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._act()
        self.spans += spans
        return SpanExportResult.SUCCESS


def traced(session: AgentSession, exporter: Kept, **options: Any) -> Any:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    session.trace = Trace(session.session_id, tracer=lambda: tracer, **options)
    return tracer


@pytest.fixture
def kept(session: AgentSession) -> Iterator[Kept]:
    exporter = Kept()
    traced(session, exporter)
    yield exporter
    assert session.trace.dropped_signals == 0


def spans(session: AgentSession, exporter: Kept, name: str) -> list[Any]:
    session.trace.flush(5)
    return [s for s in exporter.spans if s.name == name]


def test_a_model_call_says_what_was_asked_and_what_it_cost(
    session: AgentSession, kept: Kept
) -> None:
    provider = ScriptedProvider(reply("a secret answer"))
    run(session, provider, prompt="a secret question")
    (span,) = spans(session, kept, "model_call")
    told = dict(span.attributes)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.provider.name"] == "scripted"
    assert told["gen_ai.request.model"] == "scripted-model"
    assert told["gen_ai.request.max_tokens"] == provider.requests[0].max_tokens
    assert told["gen_ai.conversation.id"] == "s1"
    assert told["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (10, 5)
    assert told["op_jupyter.attempts"] == 1
    assert span.status.status_code is StatusCode.UNSET
    assert "secret" not in str(told)


def test_a_failed_model_call_names_its_error_alone(session: AgentSession, kept: Kept) -> None:
    run(session, ScriptedProvider([ProviderConnectionError("the key sk-1 is bad")]))
    (span,) = spans(session, kept, "model_call")
    assert span.attributes["error.type"] == "ProviderConnectionError"
    assert span.status.status_code is StatusCode.ERROR
    assert "sk-1" not in str(span.to_json())


def test_the_wait_for_permission_is_apart_from_the_execution(
    session: AgentSession, kept: Kept
) -> None:
    answered = threading.Event()

    class Slow(ScriptedAsker):
        async def decide(self, request: Any) -> Any:
            # Time that really passes, seen by the clock that measures it.
            threading.Event().wait(0.05)
            answered.set()
            return ALLOW

    tool = FakeTool("run", effect="execute")
    run(session, ScriptedProvider(reply(call("run", {})), reply("ok")), [tool], asker=Slow())
    assert answered.is_set()
    (span,) = spans(session, kept, "tool_call")
    told = span.attributes
    assert told["gen_ai.operation.name"] == "execute_tool"
    assert (told["gen_ai.tool.name"], told["op_jupyter.tool.state"]) == ("run", "succeeded")
    assert told["op_jupyter.permission.wait_seconds"] >= 0.05
    assert told["op_jupyter.tool.execution_seconds"] < 0.05
    (node,) = [n for n in session.dag if n.metadata.get("kind") == "tool"]
    assert node.metadata["permission"]["waited_seconds"] >= 0.05 > node.metadata["seconds"]


def test_a_compaction_has_a_span_of_its_own(session: AgentSession, kept: Kept) -> None:
    run(session, model(reply("a secret answer")))
    assert compact(session, model()).status == "completed"
    (span,) = spans(session, kept, "compaction")
    assert dict(span.attributes)["op_jupyter.turn_id"] == list(session.dag.turns)[-1]
    assert "secret" not in str(dict(span.attributes))


def test_calls_that_did_not_go_well_say_how(session: AgentSession, kept: Kept) -> None:
    asks = [call("fly", {}), call("run", {}), call("run", {"what": "mate"})]
    tool = FakeTool("run", effect="execute")
    run(session, ScriptedProvider(reply(*asks)), [tool], asker=ScriptedAsker([DENY]))
    told = [s.attributes["op_jupyter.tool.state"] for s in spans(session, kept, "tool_call")]
    assert told == ["failed", "denied", "cancelled"]
    assert all(s.status.status_code is StatusCode.ERROR for s in spans(session, kept, "tool_call"))


def test_what_a_tool_does_is_inside_its_span_and_all_inside_the_caller_s(
    session: AgentSession,
) -> None:
    exporter = Kept()
    tracer = traced(session, exporter)

    @agentic_function
    def think() -> str:
        """Think."""
        with tracer.start_as_current_span("of the user"):
            return str(llm("deeply"))

    provider = ScriptedProvider(reply(call("think", {})), reply("thought"), reply("done"))
    with tracer.start_as_current_span("around"):
        around = otel.get_current_span().get_span_context().span_id
        outcome = run(session, provider, [think], asker=ScriptedAsker([ALLOW]))
    assert outcome.status == "completed"
    (tool,) = spans(session, exporter, "tool_call")
    (users,) = spans(session, exporter, "of the user")
    first, inner, last = sorted(
        spans(session, exporter, "model_call"), key=lambda s: int(s.start_time)
    )
    assert tool.parent.span_id == first.parent.span_id == last.parent.span_id == around
    assert users.parent.span_id == tool.context.span_id
    assert inner.parent.span_id == users.context.span_id


def test_an_exporter_that_raises_loses_nothing_else(session: AgentSession) -> None:
    def burn() -> None:
        raise OSError("collector is gone")

    traced(session, Kept(burn))
    assert run(session, ScriptedProvider(reply("fine"))).text == "fine"
    session.trace.flush(5)


def test_an_exporter_that_hangs_holds_nothing_up_and_what_is_lost_is_counted(
    session: AgentSession,
) -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert release.wait(20)

    exporter = Kept(hang)
    traced(session, exporter, size=2)
    calls = [call("look", {"what": str(n)}) for n in range(9)]
    assert run(session, ScriptedProvider(reply("Hm.", *calls), reply("ok")), [FakeTool()]).text
    assert hanging.wait(5)
    # 11 spans: one hangs, two wait, the others are lost.
    assert 8 <= session.trace.dropped_signals <= 9
    release.set()
    session.trace.flush(5)
    assert len(exporter.spans) + session.trace.dropped_signals == 11


def test_without_opentelemetry_set_up_it_is_not_even_imported() -> None:
    program = (
        "import sys\n"
        "from op_jupyter.core.messages import TextBlock\n"
        "from op_jupyter.engine import loop\n"
        "from op_jupyter.engine.runtime import Runtime\n"
        "from op_jupyter.engine.calls import session_in_memory\n"
        "from op_jupyter.engine.session import TurnStart\n"
        "session = session_in_memory()\n"
        "start = TurnStart((TextBlock('hi'),), Runtime(call=lambda content, model: 'ho'))\n"
        "assert loop.run_sync(session.run_turn, start)[1].text == 'ho'\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
