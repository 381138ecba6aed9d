"""`agentic_map` and `submit`: calls that run elsewhere, recorded here.

A call's own node is written here before it is sent off, and ended here.  What the worker
recorded inside comes home with its outcome, and the session's one writer appends it.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from op_jupyter.core.excerpt import excerpt
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import (
    Question,
    QuestionAnswer,
    checked_answer,
    question_from_json,
    read_form,
)
from op_jupyter.engine import context, hooks, loop
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.calls import end_call, record_end, session_in_memory
from op_jupyter.engine.context import Frame
from op_jupyter.engine.function import AgenticFunction
from op_jupyter.engine.invocation import Callee, Invocation, session_around
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.questions import by_handler, can_ask
from op_jupyter.engine.steps import Progress
from op_jupyter.engine.traced import StepInvocation, callee_of
from op_jupyter.engine.workers.line import Switchboard
from op_jupyter.engine.workers.parcels import (
    Address,
    FrameSketch,
    Order,
    Outcome,
    Surroundings,
    pack,
    pack_call,
    pack_surroundings,
)
from op_jupyter.engine.workers.pool import WorkerPool
from op_jupyter.engine.workers.worker import run_order
from op_jupyter.errors import (
    CannotAsk,
    MapFailed,
    NotPortable,
    OpenProgramError,
    StoreError,
    UsageError,
    WorkerLost,
)
from op_jupyter.store.interrupts import Uninterrupted
from op_jupyter.tools.tracebacks import message_of

R = TypeVar("R")
Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]

LOOPBACK: Final = "127.0.0.1"
STOP_SECONDS: Final = 3.0
"""How long calls that are told to stop may take to come home; less than an interrupt waits."""


@dataclass(frozen=True, slots=True)
class End:
    """How one call ended: with *value*, or with *error*."""

    value: Any = None
    error: BaseException | None = None


@dataclass(eq=False, slots=True)
class _Call:
    """One call on its way.  *runtime* and *arguments* are pickled."""

    invocation: Invocation
    arguments: bytes
    runtime: bytes | None
    id: str = ""
    frame: Frame | None = None
    node: Node | None = None
    end: End | None = None


class Batch:
    """Calls of one function that are sent off together.

    Made in the thread, and the context, of the caller; run on the background loop.

    Raises:
        NotPortable: the function or an argument cannot be pickled; nothing was recorded.
        RecursionLimit, TurnCancelled, TypeError: as the call itself would.
    """

    def __init__(self, function: Callable[..., Any], calls: Sequence[Arguments]) -> None:
        self._function = function
        self._callee = callee = callee_of(function)
        self._parent = context.current_frame()
        self._session = session_around(self._parent) or session_in_memory()
        self._runtimes: dict[int, bytes] = {}
        self._calls = [self._new_call(args, kwargs) for args, kwargs in calls]
        pack(f"the function {callee.name}", function)
        self._can_ask = can_ask()
        self._own_turn: LiveTurn | None = None
        self._turn_id = ""

    def _new_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Call:
        kind = Invocation if isinstance(self._callee, AgenticFunction) else StepInvocation
        callee = cast("Callee", self._callee)
        invocation = kind(callee, tuple(args), dict(kwargs), self._session)
        args, kwargs, runtime = invocation.travelling()
        if runtime is None and self._parent is not None:
            runtime = self._parent.chain()[0].owned_runtime
        arguments = pack_call(callee.name, args, kwargs)
        if runtime is not None and id(runtime) not in self._runtimes:
            self._runtimes[id(runtime)] = pack(f"the provider {runtime.provider!r:.80}", runtime)
        return _Call(invocation, arguments, self._runtimes.get(id(runtime)))

    # -- on the background loop

    async def run(self, executor: Executor | None, host: str) -> list[End]:
        """Send the calls off and wait for all of them; how each ended, in order.

        Cancelling stops them, and waits a little for what they recorded.
        """
        error: BaseException | None = None
        try:
            with Uninterrupted():
                turn = self._begin()
            sending = asyncio.create_task(self._send(executor, host))
            stop = partial(_cancel, sending)
            turn.on_cancel.append(stop)
            try:
                await asyncio.shield(sending)
            except asyncio.CancelledError:
                sending.cancel()
                await asyncio.wait([sending])
                raise
            finally:
                turn.on_cancel.remove(stop)
            return [call.end or End() for call in self._calls]
        except BaseException as raised:
            error = raised
            for call in self._calls:
                if call.end is None and call.frame is not None:
                    self._end(call, End(error=raised))
            raise
        finally:
            self._close(error)

    def _begin(self) -> LiveTurn:
        self._turn_id = self._turn()
        for call in self._calls:
            call.frame, call.node = call.invocation.place(self._turn_id)
            call.id = call.frame.step or call.frame.view.id
        nodes = [call.node for call in self._calls if call.node is not None]
        self._session.recorder.append_many(nodes)
        return self._session.call_turn(self._turn_id)

    def _turn(self) -> str:
        """The turn around the calls, or one for all of them."""
        if self._parent is not None:
            return self._parent.turn_id
        shared = context.current_turn_id()
        if shared is not None:
            return shared
        count = len(self._calls)
        times = "" if count == 1 else f" × {count}"
        subject = f"{self._callee.name}{times}"
        self._own_turn = self._session.begin_call(subject)
        return self._own_turn.id

    async def _send(self, executor: Executor | None, host: str) -> None:
        switchboard = Switchboard(self._answer)
        chosen = executor if executor is not None else _borrow_pool()
        try:
            try:
                address = await switchboard.open(host)
            except OSError as error:
                raise UsageError(
                    f"workers cannot reach host={host!r}: {error.strerror or error}; name an "
                    "address of this machine"
                ) from error
            orders = self._orders(address)
            await self._bring_home(chosen, orders, switchboard)
        finally:
            await switchboard.close()
            if executor is None:
                await asyncio.to_thread(_give_pool_back)

    def _orders(self, address: Address) -> list[bytes]:
        outer = () if self._parent is None else self._parent.chain()
        session = self._session
        running = set() if self._parent is None else {f.caller_id for f in outer}
        path = {n.id for i in running for n in session.dag.call_path(i)}
        around = Surroundings(
            function=self._function,
            dag=excerpt(session.dag, path),
            outer=tuple(map(_sketch, outer)),
            turn_id=self._turn_id,
            workspace=session.workspace,
            user_rules=session.user_rules,
            allow_everything=session.allow_everything,
            interactive=self._asker().interactive,
            can_ask=self._can_ask,
            address=address,
        )
        digest, surroundings = pack_surroundings(around)
        return [
            pickle.dumps(
                Order(
                    call.id,
                    digest,
                    surroundings,
                    call.arguments,
                    call.runtime,
                    _sketch(cast("Frame", call.frame)),
                )
            )
            for call in self._calls
        ]

    async def _bring_home(
        self, executor: Executor, orders: Sequence[bytes], switchboard: Switchboard
    ) -> None:
        since = self._session.recorder.as_of()
        sent = {
            executor.submit(run_order, order): call
            for order, call in zip(orders, self._calls, strict=True)
        }
        waiting = {asyncio.wrap_future(future): future for future in sent}
        try:
            await self._receive(waiting, sent, since)
        except asyncio.CancelledError:
            for future in waiting.values():
                if not future.cancel():  # one that waits for a worker ends at once
                    switchboard.stop(sent[future].id)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._receive(waiting, sent, since)
            except TimeoutError:
                self._abandon(executor, waiting, sent)
            raise

    async def _receive(
        self,
        waiting: dict[asyncio.Future[bytes], Future[bytes]],
        sent: Mapping[Future[bytes], _Call],
        since: int,
    ) -> None:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                self._arrived(sent[waiting.pop(future)], future, since)

    def _abandon(
        self,
        executor: Executor,
        waiting: Mapping[asyncio.Future[bytes], Future[bytes]],
        sent: Mapping[Future[bytes], _Call],
    ) -> None:
        """Wait no longer for calls that do not stop."""
        for ours, theirs in waiting.items():
            if isinstance(executor, WorkerPool):
                executor.kill(theirs)
            ours.cancel()
            self._end(sent[theirs], End(error=asyncio.CancelledError()))

    def _arrived(self, call: _Call, future: asyncio.Future[bytes], since: int) -> None:
        if future.cancelled():
            self._end(call, End(error=asyncio.CancelledError()))
        elif (error := future.exception()) is not None:
            self._end(call, End(error=_lost(call, error)))
        else:
            outcome: Outcome = pickle.loads(future.result())
            try:
                self._adopt(outcome, since)
                end = _end_of(call, outcome)
            except StoreError as refused:
                end = End(error=refused)
            self._end(call, end, outcome)

    def _adopt(self, outcome: Outcome, since: int) -> None:
        recorder = self._session.recorder
        for data, media_type in outcome.blobs:
            recorder.keep_blob(data, media_type)
        recorder.adopt(outcome.nodes, since)
        for decision in outcome.decisions:
            recorder.record_decision(decision)

    def _end(self, call: _Call, end: End, outcome: Outcome | None = None) -> None:
        call.end = end
        told = {} if outcome is None else outcome.told
        output = None if outcome is None else outcome.output
        try:
            call.invocation.end(end.error, told, output)
        except StoreError as refused:  # the value is here, but what happened is not recorded
            call.end = End(error=refused)

    def _close(self, error: BaseException | None) -> None:
        turn = self._own_turn
        if turn is None:
            return
        ends = [call.end.error for call in self._calls if call.end is not None]
        first = error or next((e for e in ends if e is not None), None)
        record_end(error, lambda: end_call(self._session, turn, first, Progress()))

    # -- what workers ask

    def _asker(self) -> Asker:
        return (self._parent and self._parent.asker) or self._session.asker

    async def _answer(self, call_id: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if "permission" in asked:
            return asdict(await self._decide(PermissionRequest(**asked["permission"])))
        try:
            return asdict(await self._ask(question_from_json(asked["question"])))
        except CannotAsk as nobody:
            return {"cannot": nobody.message}

    async def _decide(self, request: PermissionRequest) -> PermissionAnswer:
        asker, session = self._asker(), self._session
        answer = await session.ask(session.call_turn(self._turn_id), request, asker)
        asker.answered(request, answer)
        as_shown = answer.arguments in (None, request.arguments)
        if answer.answer == "allow_session" and request.rule and as_shown:
            session.add_rule("allow", request.rule)
        return answer

    async def _ask(self, question: Question) -> QuestionAnswer:
        handler = hooks.ask_handler()
        if handler is not None:
            return await by_handler(handler, question)
        async with self._session.attention():
            return await self._asker().question(question, partial(_roughly, question))


def _roughly(question: Question, said: Any) -> Any:
    """*said*, if it may be an answer; what exactly is wanted, only the worker knows.

    Raises:
        BadAnswer: it is none.
    """
    if question.kind == "form":
        read_form(question.fields, said)
        return said
    return checked_answer(question, said)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _sketch(frame: Frame) -> FrameSketch:
    return FrameSketch(
        frame.view,
        frame.base,
        frame.name,
        frame.system,
        frame.render_range,
        frame.tool_name,
        frame.step,
    )


def _lost(call: _Call, error: BaseException) -> BaseException:
    if isinstance(error, OpenProgramError):
        return error
    lost = WorkerLost(f"the worker was lost: {type(error).__name__}: {message_of(error):.500}")
    lost.__cause__ = error
    return lost


def _end_of(call: _Call, outcome: Outcome) -> End:
    try:
        if outcome.error is None:
            return End(pickle.loads(outcome.value or b""))
        error: BaseException = pickle.loads(outcome.error)
    except Exception as broken:  # noqa: BLE001 -- the value's own code may raise anything
        return End(error=NotPortable(f"what came home cannot be unpickled: {broken!s:.200}"))
    error.add_note(f"In the worker:\n{outcome.told.get('traceback', '')}")
    return End(error=error)


# -- the default pool: there is one for as long as there is work for it

_pool_lock = threading.Lock()
_pool: WorkerPool | None = None
_borrowers = 0


def _borrow_pool() -> WorkerPool:
    global _pool, _borrowers
    with _pool_lock:
        _pool = _pool or WorkerPool()
        _borrowers += 1
        return _pool


def _give_pool_back() -> None:
    global _pool, _borrowers
    with _pool_lock:
        _borrowers -= 1
        if _borrowers > 0:
            return
        done, _pool = _pool, None
    if done is not None:
        done.shutdown()


# -- the functions


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
        """``[fn(item) for item in items]``, run elsewhere and at once; values in order.

        Each call is recorded as if it had been made here, with all that it does.  When an item
        fails, the others go on to their end.  An interrupt stops all.

        Args:
            fn: an agentic function; a plain one is recorded as a `traced` step.
            items: one argument for each call.
            executor: where to run: a `WorkerPool`, or any `concurrent.futures.Executor`;
                None: a pool of processes that ends with the map.
            return_exceptions: put what an item raised in its place instead of raising.
            host: the address of this machine that workers can reach, for questions and for
                stopping them; the default is enough for workers on this machine.

        Raises:
            MapFailed: items failed; has the results of the others.
            NotPortable: something cannot be sent to a worker; nothing was run.
        """
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
        listed = list(items)
        if isinstance(executor, ThreadPoolExecutor):
            ends = await loop.run_async(_in_threads, fn, listed, executor)
        elif not listed:
            ends = []
        else:
            batch = await asyncio.to_thread(Batch, fn, [((item,), {}) for item in listed])
            ends = await loop.run_async(batch.run, executor, host)
        return _values(ends, return_exceptions)


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


def _call_and_wait(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    value = fn(*args, **kwargs)
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


class Sent(Future[R]):
    """A call that was sent off; cancelling it stops it where it runs."""

    def __init__(self, job: loop.Job[list[End]]) -> None:
        super().__init__()
        self._job = job
        self.set_running_or_notify_cancel()
        job.future.add_done_callback(self._settle)

    def cancel(self) -> bool:
        """Have it stop; `result` then raises `CancelledError`.  False: it is over."""
        if self.done():
            return False
        self._job.cancel()
        return True

    def _settle(self, done: Future[list[End]]) -> None:
        error = done.exception()
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
) -> Future[R]:
    """Have ``fn(*args, **kwargs)`` run elsewhere and go on; what is returned has its value.

    It is recorded as `agentic_map` does it, also when nobody waits for it.  *executor* and
    *host* are as there.

    Raises:
        NotPortable: something cannot be sent to a worker; nothing was run.
    """
    if isinstance(executor, ThreadPoolExecutor):
        return executor.submit(context.carry(_call_and_wait), fn, args, kwargs)
    batch = Batch(fn, [(args, kwargs)])
    return Sent(loop.submit(batch.run, executor, host))


agentic_map = _Map()
