"""The worker's side of a call that runs elsewhere.

`run_order` is what an executor runs.  It works in any thread of any process, many times at
once, and leaves nothing behind in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from op_jupyter.core.graph import INTERRUPTED
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import BadAnswer, Question, QuestionAnswer
from op_jupyter.engine import context, loop
from op_jupyter.engine.asking import NOBODY, Check, HeadlessAsker
from op_jupyter.engine.calls import frame_runtime
from op_jupyter.engine.cleaning import Cleaner
from op_jupyter.engine.context import Frame, SessionHandle
from op_jupyter.engine.invocation import error_told
from op_jupyter.engine.policy import PolicyBounds, policy_from_json
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.traced import callee_of
from op_jupyter.engine.workers.lending import Lease, borrow
from op_jupyter.engine.workers.line import Line
from op_jupyter.engine.workers.parcels import (
    Address,
    FrameSketch,
    Order,
    Outcome,
    pack,
    pack_own,
    portable_error,
    unpack_surroundings,
)
from op_jupyter.errors import CannotAsk
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.part import PartSession
from op_jupyter.tools.summaries import to_json_value


def run_order(data: bytes) -> bytes:
    """Run the call in *data*, a pickled `Order`, and return its pickled `Outcome`."""
    order: Order = pickle.loads(data)
    return pack_own(_Run(order).outcome())


class _Run:
    """One call."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._around = unpack_surroundings(order)
        dag = self._around.dag.copy()
        if order.node is not None:
            dag.add(order.node)
        dag.meta["rules"] = None  # those in force come from home
        self._part = PartSession(dag)
        self._bounds = PolicyBounds(self._around.policy)
        self._session = self._new_session()
        self._frame = self._new_frame()
        self._stopper = _Stopper(self._session, self._around.turn_id)
        self.over = False

    def outcome(self) -> Outcome:
        """Run it, and tell how it ended."""
        value: Any = None
        error: BaseException | None = None
        packed: bytes | None = None
        try:
            value = self._value()
            packed = pack(f"what {self._order.frame.name} returned", value)
        except BaseException as raised:  # noqa: BLE001 -- foreign code; raised again at home
            error = raised
        return self._told(value, packed, error)

    def _told(self, value: Any, packed: bytes | None, error: BaseException | None) -> Outcome:
        clean = self._session.recorder.clean
        return Outcome(
            nodes=[_ended(node) for node in self._part.added_nodes()],
            decisions=self._part.added_decisions(),
            blobs=self._part.added_blobs(),
            value=packed,
            output=to_json_value(value) if error is None else None,
            error=None if error is None else pack("the error", portable_error(error)),
            told={} if error is None else error_told(error, clean),
        )

    def _value(self) -> Any:
        args, kwargs = pickle.loads(self._order.arguments)
        with self._runtime() as runtime, self._line(), self._stopper.listening():
            tokens = context.bind(self._handle(runtime), self._around.turn_id, runtime, self._frame)
            try:
                # Without what records it: that is done where it was sent off.
                callee = callee_of(self._around.function)
                if callee.takes_runtime:
                    kwargs["runtime"] = runtime or frame_runtime(self._frame)
                value = callee.function(*args, **kwargs)
                return _awaited(value) if inspect.isawaitable(value) else value
            finally:
                context.unbind(tokens)

    # -- what is told over the line

    def stop(self) -> None:
        """Stop the call."""
        self._stopper.stop()

    def news(self, told: Mapping[str, Any]) -> None:
        """Keep to what may run without asking from now on."""
        self._bounds.policy = policy_from_json(told["policy"])

    # -- where it runs

    def _new_session(self) -> AgentSession:
        around = self._around
        session = AgentSession(self._part, cleaner=_cleaner())
        session.workspace = around.workspace
        session.store_path = around.store_path
        session.protected = around.protected
        session.bounds = self._bounds
        session.allow_everything = around.allow_everything
        return session

    def _new_frame(self) -> Frame:
        frame: Frame | None = None
        for sketch in (*self._around.outer, self._order.frame):
            frame = _frame(sketch, self._session, self._around.turn_id, frame)
        assert frame is not None
        return frame

    def _handle(self, runtime: Runtime | None) -> SessionHandle:
        return SessionHandle(
            MemoryStore(),
            self._session.session_id,
            runtime,
            self._around.turn_id,
            created=False,
            agent=self._session,
        )

    @contextmanager
    def _runtime(self) -> Iterator[Runtime | None]:
        """The runtime that was sent along; with none, the configured one is built when needed."""
        packed = self._order.runtime
        leases: list[Lease] = []

        def make() -> Runtime:
            leases.append(borrow(self._around.address, packed))
            return leases[-1].runtime

        self._frame.chain()[0].make_runtime = make
        try:
            yield None if packed is None else make()
        finally:
            for lease in leases:
                lease.end()

    @contextmanager
    def _line(self) -> Iterator[None]:
        """Be reachable, without waiting for it: most calls are never stopped, and ask nothing."""
        around, call_id = self._around, self._order.call_id
        self._session.asker = _LineAsker(
            around.address, call_id, around.interactive, around.can_ask
        )
        loop.background_loop().call_soon_threadsafe(_begin, around.address, call_id, self)
        try:
            yield
        finally:
            self.over = True
            _end(around.address, call_id)


@cache
def _cleaner() -> Cleaner:
    """One for all calls of this process: it finds the secrets of the environment once."""
    return Cleaner()


def _begin(address: Address, call_id: str, call: _Run) -> None:
    Line.to(address).begin(call_id, call)


def _end(address: Address, call_id: str) -> None:
    line = Line.known(address)
    if line is not None:
        line.end(call_id)


def _frame(sketch: FrameSketch, session: AgentSession, turn_id: str, parent: Frame | None) -> Frame:
    return Frame(
        sketch.view,
        session,
        turn_id,
        sketch.base,
        name=sketch.name,
        parent=parent,
        system=sketch.system,
        render_range=sketch.render_range,
        tool_name=sketch.tool_name,
        step=sketch.step,
    )


def _ended(node: Node) -> Node:
    """*node*, which will not be touched again; what still runs now was left behind."""
    if node.status != "running":
        return node
    metadata = {**node.metadata, "error": dict(INTERRUPTED)}
    return Node(
        node.id, node.role, node.name, node.input, node.output, "interrupted",
        node.caller, node.predecessor, node.reads, metadata, node.seq, node.created_at,
    )  # fmt: skip


def _awaited(value: Any) -> Any:
    """The value of a coroutine; in a thread of its own where a loop runs in this one."""

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(context.carry(asyncio.run), wait()).result()


class _Stopper:
    """Stops a call when the other end says so.

    A call in the main thread of a `WorkerPool` process is interrupted, whatever it does.  In a
    thread of somebody else's process it is stopped while it waits for a model, and otherwise
    when it calls the next function or model.
    """

    def __init__(self, session: AgentSession, turn_id: str) -> None:
        self._session = session
        self._turn_id = turn_id
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._listens = False
        self.stopped = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While the call runs."""
        with self._lock:
            self._listens = True
        try:
            if self.stopped:
                raise KeyboardInterrupt
            yield
        finally:
            with self._lock:
                self._listens = False

    def stop(self) -> None:
        """Stop the call; on the background loop."""
        self._session.call_turn(self._turn_id).cancelling = True
        with self._lock:
            self.stopped = True
            if not self._listens:
                return
            ours = self._thread == threading.main_thread().ident
            if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                loop.cancel_waiting(self._thread)


class _LineAsker:
    """Has cards and questions answered where the call was sent off."""

    def __init__(self, address: Address, call_id: str, interactive: bool, can_ask: bool) -> None:
        self._address = address
        self._call_id = call_id
        self._interactive = interactive
        self._can_ask = can_ask

    @property
    def interactive(self) -> bool:
        """Whether a person is there."""
        return self._interactive

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """The person's answer; nobody's when the line is broken."""
        with contextlib.suppress(ConnectionError):
            answer = await self._ask({"permission": request.to_json()})
            return PermissionAnswer(**answer)
        return await HeadlessAsker().decide(request)

    async def _ask(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        line = Line.known(self._address)
        if line is None:
            raise ConnectionError("the process that sent this off cannot be reached")
        return await line.ask(self._call_id, message)

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Nothing to do: who answered knows."""

    @property
    def can_ask(self) -> bool:
        """Whether questions can get an answer there."""
        return self._can_ask

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """What is answered there; asked again until it fits."""
        asked = question
        while True:
            try:
                said = await self._ask({"question": asdict(asked)})
            except ConnectionError:
                raise CannotAsk(NOBODY) from None
            if "cannot" in said:
                raise CannotAsk(said["cannot"])
            answer = QuestionAnswer(**said)
            if answer.declined or answer.how == "handler":
                return answer
            try:
                return replace(answer, value=check(answer.value))
            except BadAnswer as bad:
                asked = replace(question, prompt=f"{bad}\n\n{question.prompt}")
