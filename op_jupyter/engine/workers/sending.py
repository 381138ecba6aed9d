"""Calls that run elsewhere, recorded here.

A call's own node is written here before it is sent off, and ended here.  What the worker
recorded inside comes home with its outcome (`engine.workers.arriving`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeAlias, cast

from op_jupyter.core.excerpt import excerpt
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import (
    Question,
    QuestionAnswer,
    checked_answer,
    question_from_json,
    read_form,
)
from op_jupyter.engine import context, hooks
from op_jupyter.engine.asking import Asker
from op_jupyter.engine.calls import end_call, record_end, session_in_memory
from op_jupyter.engine.context import Frame
from op_jupyter.engine.function import AgenticFunction
from op_jupyter.engine.invocation import Callee, Invocation, session_around
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.policy import policy_of
from op_jupyter.engine.questions import by_handler, can_ask
from op_jupyter.engine.steps import Progress
from op_jupyter.engine.traced import StepInvocation, callee_of
from op_jupyter.engine.workers.arriving import Arrivals, Call, End
from op_jupyter.engine.workers.line import Switchboard
from op_jupyter.engine.workers.parcels import (
    Address,
    FrameSketch,
    Order,
    Surroundings,
    pack,
    pack_call,
    pack_own,
    pack_surroundings,
)
from op_jupyter.engine.workers.pool import WorkerPool, borrow_pool, give_pool_back
from op_jupyter.engine.workers.worker import run_order
from op_jupyter.errors import CannotAsk, UsageError
from op_jupyter.store.interrupts import Uninterrupted

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]

STOP_SECONDS: Final = 3.0
"""How long calls that are told to stop may take to come home; less than an interrupt waits."""


LATE_SECONDS: Final = 1.0
"""How long calls may take to say that they run, where nobody else says so: then they hear it."""


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
        self.session = session_around(self._parent) or session_in_memory()
        self._runtimes: dict[int, bytes] = {}
        self._calls = [self._new_call(args, kwargs) for args, kwargs in calls]
        pack(f"the function {callee.name}", function)
        self._can_ask = can_ask()
        self._own_turn: LiveTurn | None = None
        self._turn_id = ""
        self._policy = policy_of(self.session)
        self._switchboard = Switchboard(self._answer)

    def _new_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        kind = Invocation if isinstance(self._callee, AgenticFunction) else StepInvocation
        callee = cast("Callee", self._callee)
        invocation = kind(callee, tuple(args), dict(kwargs), self.session)
        args, kwargs, runtime = invocation.travelling()
        if runtime is None and self._parent is not None:
            runtime = self._parent.chain()[0].owned_runtime
        arguments = pack_call(callee.name, args, kwargs)
        if runtime is not None and id(runtime) not in self._runtimes:
            self._runtimes[id(runtime)] = pack(f"the provider {runtime.provider!r:.80}", runtime)
        return Call(invocation, arguments, self._runtimes.get(id(runtime)))

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
                    call.fail(raised)
            raise
        finally:
            self._close(error)

    def _begin(self) -> LiveTurn:
        self._turn_id = self._turn()
        for call in self._calls:
            call.frame, call.node = call.invocation.place(self._turn_id)
            call.id = call.frame.step or call.frame.view.id
        nodes = [call.node for call in self._calls if call.node is not None]
        self.session.recorder.append_many(nodes)
        return self.session.call_turn(self._turn_id)

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
        self._own_turn = self.session.begin_call(subject)
        return self._own_turn.id

    async def _send(self, executor: Executor | None, host: str) -> None:
        switchboard, on_policy = self._switchboard, self.session.on_policy
        chosen = executor if executor is not None else borrow_pool()
        running = asyncio.get_running_loop()

        def changed() -> None:
            running.call_soon_threadsafe(self._tell_policy)

        on_policy.append(changed)
        try:
            try:
                address = await switchboard.open(host)
            except OSError as error:
                raise UsageError(
                    f"workers cannot reach host={host!r}: {error.strerror or error}; name an "
                    "address of this machine"
                ) from error
            orders, since = self._orders(address)
            await self._bring_home(chosen, orders, since, switchboard)
        finally:
            on_policy.remove(changed)
            await switchboard.close()
            if executor is None:
                await asyncio.to_thread(give_pool_back)

    def _orders(self, address: Address) -> tuple[Iterator[bytes], int]:
        """What workers get for each call, and the seq up to which they know the graph."""
        outer = () if self._parent is None else self._parent.chain()
        session = self.session
        running = set() if self._parent is None else {f.caller_id for f in outer}
        path = {n.id for i in running for n in session.dag.call_path(i)}
        known = excerpt(session.store.snapshot(), path)  # others go on writing
        around = Surroundings(
            function=self._function,
            dag=known,
            base=session.dag.head if self._parent is None else self._parent.base,
            outer=tuple(map(_sketch, outer)),
            turn_id=self._turn_id,
            workspace=session.workspace,
            store_path=session.store_path,
            protected=session.protected,
            policy=self._policy,
            allow_everything=session.allow_everything,
            interactive=self._asker().interactive,
            can_ask=self._can_ask,
            address=address,
        )
        digest, surroundings = pack_surroundings(around)
        orders = (
            Order(
                call.id,
                digest,
                surroundings,
                call.arguments,
                call.runtime,
                _sketch(cast("Frame", call.frame)),
                session.dag.nodes.get(call.id),
            )
            for call in self._calls
        )
        # One after the other: the first is sent off before the last one is made.
        return map(pack_own, orders), known.last_seq

    async def _bring_home(
        self, executor: Executor, orders: Iterable[bytes], since: int, switchboard: Switchboard
    ) -> None:
        sent = {
            executor.submit(run_order, order): call
            for order, call in zip(orders, self._calls, strict=True)
        }
        arrivals = Arrivals(self.session.recorder, sent, since, switchboard.over)
        try:
            await arrivals.store_all()
        except asyncio.CancelledError:
            perhaps_running = _stop(executor, arrivals.waiting, switchboard)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await arrivals.store_all()
            except TimeoutError:
                await arrivals.store_here()
                _abandon(executor, arrivals.waiting)
            if perhaps_running:
                await asyncio.sleep(LATE_SECONDS)
            raise

    def _close(self, error: BaseException | None) -> None:
        turn = self._own_turn
        if turn is None:
            return
        ends = [call.end.error for call in self._calls if call.end is not None]
        first = error or next((e for e in ends if e is not None), None)
        record_end(error, lambda: end_call(self.session, turn, first, Progress()))

    # -- what workers ask

    def _asker(self) -> Asker:
        return (self._parent and self._parent.asker) or self.session.asker

    def _tell_policy(self) -> None:
        """Have the workers know what may run without asking, if that is something else now."""
        policy = policy_of(self.session)
        if policy != self._policy:
            self._policy = policy
            self._switchboard.tell({"policy": policy.to_json()})

    async def _answer(self, call_id: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await self._answer_to(asked)
        # Before the call goes on: what came meanwhile, also from the parent of a sub-agent.
        self._tell_policy()
        return answer

    async def _answer_to(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if "permission" in asked:
            return asdict(await self._decide(PermissionRequest(**asked["permission"])))
        try:
            return asdict(await self._ask(question_from_json(asked["question"])))
        except CannotAsk as nobody:
            return {"cannot": nobody.message}

    async def _decide(self, request: PermissionRequest) -> PermissionAnswer:
        asker, session = self._asker(), self.session
        answer = await session.cards.ask(
            session.call_turn(self._turn_id), request, asker, session.answer_timeout
        )
        asker.answered(request, answer)
        as_shown = answer.arguments in (None, request.arguments)
        if answer.answer == "allow_session" and request.rule and as_shown:
            session.add_rule("allow", request.rule)
        return answer

    async def _ask(self, question: Question) -> QuestionAnswer:
        handler = hooks.ask_handler()
        if handler is not None:
            return await by_handler(handler, question)
        async with self.session.cards.attention():
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


def _stop(
    executor: Executor, calls: Mapping[Future[bytes], Call], switchboard: Switchboard
) -> bool:
    """Call off what waits for a worker, then stop what runs: a worker that is free takes nothing.

    True: what was called off may run all the same.  Some executors do that to what runs already,
    and forget what it comes to.
    """
    called_off = {
        call.id
        for future, call in calls.items()
        if not switchboard.reaches(call.id) and future.cancel()
    }
    truthful = isinstance(executor, WorkerPool | ProcessPoolExecutor)
    for call in calls.values():
        if call.id not in called_off or not truthful:
            switchboard.stop(call.id)
    return bool(called_off) and not truthful


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _abandon(executor: Executor, calls: Mapping[Future[bytes], Call]) -> None:
    """Wait no longer for calls that do not stop."""
    for future, call in calls.items():
        if isinstance(executor, WorkerPool):
            executor.kill(future)
        future.cancel()
        call.fail(asyncio.CancelledError())


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
