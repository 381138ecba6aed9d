"""Spans of model calls, tool calls and compactions, for whoever has set OpenTelemetry up.

A trace only watches: it decides nothing, is never read back, and whatever it raises changes
nothing.  A span is started where the work starts; its end goes through a bounded queue to a
thread of its own, where exporters may be slow, dead or broken.  What is lost is counted.

Spans hold names, sizes and times, never a prompt, an argument or a result.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from op_jupyter.core.values import dataclass

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

SpanName: TypeAlias = Literal["model_call", "tool_call", "compaction"]

QUEUE_SIZE: Final = 1024
IDLE_SECONDS: Final = 5.0
"""How long the thread waits for more before it ends; the next span starts it again."""
FLUSH_SECONDS: Final = 1.0
_IMPORTED: Final = "opentelemetry.trace"
_PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"

log = logging.getLogger(__name__)


def configured_tracer() -> Tracer | None:
    """The tracer to use; None as long as nobody has set OpenTelemetry up in this process.

    Without that it is not even imported: the import takes a tenth of a second.
    """
    if _IMPORTED not in sys.modules and _PROVIDER not in os.environ:
        return None
    from opentelemetry import trace

    return trace.get_tracer("op_jupyter")


@dataclass(slots=True)
class Span:
    """One piece of work under way; `set` adds to what its end will tell."""

    _trace: Trace
    _otel: OtelSpan | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Tell more; values that are None are left out."""
        self.attributes.update({k: v for k, v in attributes.items() if v is not None})

    def fail(self, kind: str) -> None:
        """Say that it did not go well: *kind* is an error's type, or a state."""
        self.error = kind
        self.attributes["error.type"] = kind

    def contain(self, context: Context) -> None:
        """Make what is traced in *context* a part of this span."""
        span = self._otel
        if span is not None:
            self._trace.attempt(lambda: context.run(_make_current, span))


def _make_current(span: OtelSpan) -> None:
    from opentelemetry import context, trace

    context.attach(trace.set_span_in_context(span))


@dataclass(frozen=True, slots=True)
class _Ended:
    """A span that is over, on its way to the exporters."""

    otel: OtelSpan
    attributes: Mapping[str, Any]
    error: str
    at_ns: int

    def tell(self) -> None:
        if self.error:
            from opentelemetry.trace import Status, StatusCode

            self.otel.set_status(Status(StatusCode.ERROR, self.error))
        self.otel.set_attributes(dict(self.attributes))
        self.otel.end(end_time=self.at_ns)


class Trace:
    """The spans of one session.  Safe to use from any thread; never raises, never waits.

    Args:
        tracer: where spans come from, asked anew for each: it may be set up later.
        size: most ended spans that wait for the exporters.
        clock: nanoseconds since the epoch.

    Attributes:
        dropped_signals: what was lost because something raised, or the queue was full.
    """

    def __init__(
        self,
        session_id: str,
        *,
        tracer: Callable[[], Tracer | None] = configured_tracer,
        size: int = QUEUE_SIZE,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.dropped_signals = 0
        self._session_id = session_id
        self._tracer = tracer
        self._clock = clock
        self._ended: queue.Queue[_Ended | threading.Event] = queue.Queue(size)
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    @contextmanager
    def span(self, name: SpanName, attributes: Mapping[str, Any]) -> Iterator[Span]:
        """A span around the block; what leaves it goes on, and names the error if none is named."""
        span = Span(self)
        self.attempt(lambda: self._start(span, name, attributes))
        try:
            yield span
        except BaseException as error:
            if not span.error:
                span.fail(type(error).__name__)
            raise
        finally:
            self.attempt(lambda: self._end(span))

    def attempt(self, operation: Callable[[], None]) -> None:
        """Do something with foreign tracing code, which may raise anything."""
        try:
            operation()
        except Exception:
            log.debug("a trace signal of session %s was lost", self._session_id, exc_info=True)
            self._drop()

    def _drop(self) -> None:
        with self._lock:
            self.dropped_signals += 1

    def _start(self, span: Span, name: SpanName, attributes: Mapping[str, Any]) -> None:
        tracer = self._tracer()
        if tracer is None:
            return
        told = {"gen_ai.conversation.id": self._session_id, **attributes}
        given = {k: v for k, v in told.items() if v is not None}
        span._otel = tracer.start_span(name, attributes=given, start_time=self._clock())

    def _end(self, span: Span) -> None:
        if span._otel is None or not span._otel.is_recording():
            return
        self._put(_Ended(span._otel, span.attributes, span.error, self._clock()))

    def _put(self, ended: _Ended) -> None:
        self._ended.put_nowait(ended)  # `queue.Full` is a signal that is lost
        self._see_to_worker()

    def _see_to_worker(self) -> None:
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._work, name=f"trace of {self._session_id}", daemon=True
                )
                self._worker.start()

    def _work(self) -> None:
        while True:
            try:
                item = self._ended.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._ended.empty():
                        self._worker = None
                        return
                continue
            if isinstance(item, threading.Event):
                item.set()
            else:
                self.attempt(item.tell)

    def flush(self, timeout: float = FLUSH_SECONDS) -> None:
        """Wait until what has ended is handed on, at most *timeout* seconds."""
        if self._worker is None and self._ended.empty():
            return
        done = threading.Event()
        try:
            self._ended.put(done, timeout=timeout)
        except queue.Full:  # the exporters hang
            return
        self._see_to_worker()
        done.wait(timeout)
