"""`agentic_map` and `submit`: agentic functions in other processes, as if they ran here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from op_jupyter.engine import context, loop
from op_jupyter.engine.invocation import session_around
from op_jupyter.engine.workers.arriving import End
from op_jupyter.engine.workers.sending import Batch
from op_jupyter.errors import MapFailed, UsageError
from op_jupyter.tools.tracebacks import message_of

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession

R = TypeVar("R")

LOOPBACK: Final = "127.0.0.1"


class _Map:
    """`agentic_map`: one call for each item, elsewhere."""

    def __call__(
        self,
        fn: Callable[[Any], R],
        items: Iterable[Any],
        executor: Executor | None = None,
        *,
        return_exceptions: bool = False,
        host: str = LOOPBACK,
    ) -> list[R]:
        """``[fn(item) for item in items]``, in parallel in other processes; results in order.

        Each call is recorded as if it had been made here, with everything it does.  If an item
        fails, the others continue.  An interrupt stops all of them.

        Args:
            fn: an agentic function; a plain one is recorded as a `traced` step.
            items: one argument for each call.
            executor: where to run: a `WorkerPool`, or any `concurrent.futures.Executor`;
                None: a pool of processes that ends with the map.
            return_exceptions: return errors in place of values instead of raising `MapFailed`.
            host: an address of this machine that workers can reach, for questions and for
                stopping them; the default is enough for workers on this machine.

        Raises:
            MapFailed: items failed; has the results of the others.
            NotPortable: something cannot be sent to a worker; nothing was run.
            UsageError: *executor* is none, or workers cannot reach *host*.
        """
        context.refuse_stray_thread()
        _check_executor(executor)
        listed = list(items)
        if isinstance(executor, ThreadPoolExecutor):
            return _values(loop.run_sync(_in_threads, fn, listed, executor), return_exceptions)
        if not listed:
            return []
        batch = Batch(fn, [((item,), {}) for item in listed])
        return _values(loop.run_sync(batch.run, executor, host), return_exceptions)

    async def aio(
        self,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        executor: Executor | None = None,
        *,
        return_exceptions: bool = False,
        host: str = LOOPBACK,
    ) -> list[Any]:
        """The same from async code."""
        context.refuse_stray_thread()
        _check_executor(executor)
        listed = list(items)
        if isinstance(executor, ThreadPoolExecutor):
            ends = await loop.run_async(_in_threads, fn, listed, executor)
        elif not listed:
            ends = []
        else:
            batch = await asyncio.to_thread(Batch, fn, [((item,), {}) for item in listed])
            ends = await loop.run_async(batch.run, executor, host)
        return _values(ends, return_exceptions)


def _check_executor(executor: object) -> None:
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise UsageError(
            f"executor={executor!r:.60} runs nothing; pass a WorkerPool, or another "
            "concurrent.futures.Executor"
        )


def _values(ends: Sequence[End], return_exceptions: bool) -> list[Any]:
    errors = {i: end.error for i, end in enumerate(ends) if end.error is not None}
    if return_exceptions:
        return [end.value if end.error is None else end.error for end in ends]
    if errors:
        number, first = next(iter(errors.items()))
        raise MapFailed(
            f"{len(errors)} of {len(ends)} items failed; the first is item {number}: "
            f"{type(first).__name__}: {message_of(first)}. "
            "The error's `results` has what the others returned",
            results=[end.value for end in ends],
            errors=errors,
        ) from first
    return [end.value for end in ends]


async def _in_threads(
    fn: Callable[..., Any], items: Sequence[Any], executor: ThreadPoolExecutor
) -> list[End]:
    carried = context.carry(_end_here)
    futures = [executor.submit(carried, fn, (item,), {}) for item in items]
    done = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    return [End(error=d) if isinstance(d, BaseException) else d for d in done]


def _end_here(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> End:
    """How the call ended.  A future of asyncio's never ends by a `StopIteration`."""
    try:
        return End(_call_and_wait(fn, args, kwargs))
    except BaseException as error:  # noqa: BLE001 -- it is the item's, and does not end the map
        return End(error=error)


def _ends_here(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[End]:
    return [_end_here(fn, args, kwargs)]


def _call_and_wait(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    value = fn(*args, **kwargs)
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


class Sent(Future[R]):
    """A call that was sent off; cancelling it stops it where it runs.

    Attributes:
        id: what `%agent jobs` calls it; kept with its node, as ``job``.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.id = job_id
        self._stop: Callable[[], object] = lambda: False
        self.set_running_or_notify_cancel()

    @property
    def status(self) -> str:
        """``running``, or how it ended: ``completed``, ``failed``, ``cancelled``."""
        if not self.done():
            return "running"
        error = self.exception()
        if error is None:
            return "completed"
        return "cancelled" if isinstance(error, CancelledError) else "failed"

    def result(self, timeout: float | None = None) -> R:
        """What the call returned, or what it raised.

        A cell that waits without *timeout* lends its thread: a card of the call can be answered.
        """
        if timeout is None:
            loop.wait(self)
        return super().result(timeout)

    def cancel(self) -> bool:
        """Have it stop; `result` then raises `CancelledError`.

        False: it is over, or runs in a thread, which cannot be stopped.
        """
        return not self.done() and self._stop() is not False

    def follow(self, work: Future[list[End]], stop: Callable[[], object]) -> None:
        """End as *work* does, which *stop* stops; *stop* returns False when it cannot."""
        self._stop = stop
        work.add_done_callback(self._settle)

    def _settle(self, done: Future[list[End]]) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        if error is None:
            (end,) = done.result()
            error = end.error
        if error is None:
            self.set_result(end.value)
        else:
            cancelled = isinstance(error, asyncio.CancelledError)
            self.set_exception(CancelledError() if cancelled else error)


def submit(
    fn: Callable[..., R],
    /,
    *args: Any,
    executor: Executor | None = None,
    host: str = LOOPBACK,
    **kwargs: Any,
) -> Sent[R]:
    """Run ``fn(*args, **kwargs)`` in another process, and return a future at once.

    The call is recorded like those of `agentic_map`, even if nobody waits for it, and
    ``%agent jobs`` lists it under the future's ``id``.  *executor* and *host* are as there.

    Raises:
        NotPortable: something cannot be sent to a worker; nothing was run.
    """
    context.refuse_stray_thread()
    _check_executor(executor)
    if isinstance(executor, ThreadPoolExecutor):
        session = session_around(context.current_frame())
        sent: Sent[R] = _sent(session)
        with context.as_job(sent.id):
            work = executor.submit(context.carry(_ends_here), fn, args, kwargs)
        sent.follow(work, work.cancel)
        return sent
    batch = Batch(fn, [(args, kwargs)])
    sent = _sent(batch.session)
    with context.as_job(sent.id):
        job = loop.submit(batch.run, executor, host)
    sent.follow(job.future, job.cancel)
    return sent


def _sent(session: AgentSession | None) -> Sent[Any]:
    """A job that is listed in *session* until it is over."""
    if session is None:
        return Sent(f"job-{uuid4().hex[:12]}")
    sent: Sent[Any] = Sent(session.new_id("job"))
    session.sent[sent.id] = sent
    sent.add_done_callback(lambda _: session.sent.pop(sent.id, None))
    return sent


agentic_map = _Map()
