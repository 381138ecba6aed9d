"""What a turn shows while it runs, and what it leaves behind.

Always one display per turn.  A page gets the live view, replaced at the end by static content
that needs no kernel; where nobody can click there is the static content alone; a terminal gets
the answer as it is written.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import html
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeAlias

from IPython.display import display

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.prices import Price, spent
from op_jupyter.core.questions import BadAnswer, Question, QuestionAnswer, answer_text
from op_jupyter.core.updates import RING_SIZE, Envelope
from op_jupyter.engine.asking import Check
from op_jupyter.engine.loop import run_sync, submit
from op_jupyter.engine.session import AgentSession
from op_jupyter.notebook.frontend import FrontEnd
from op_jupyter.views.model import State, TurnModel

if TYPE_CHECKING:
    from op_jupyter.notebook.node_actions import NodeActions
    from op_jupyter.views.agent_view import AgentView
    from op_jupyter.views.question_view import QuestionView

NOTHING: Final[dict[str, Any]] = {}
"""A display that is to show nothing: an empty bundle leaves no trace, and breaks no rerun."""

_NO_PRICES: Final[Mapping[str, Price]] = {}

_RECENT: Final = RING_SIZE // 2
"""Updates that are certainly still there, while others may be published meanwhile."""


def put(content: Mapping[str, Any], *, metadata: Mapping[str, Any] | None = None) -> None:
    """Show a MIME bundle in the cell that runs now."""
    display(content, metadata=dict(metadata or {}), raw=True)  # type: ignore[no-untyped-call]  # IPython


def _publish(view: AgentView | QuestionView) -> Any:
    """Show *view* and return the handle that can replace it."""
    return display(view, display_id=True)  # type: ignore[no-untyped-call]  # IPython


@contextmanager
def announced(text: str, front: FrontEnd) -> Iterator[None]:
    """Show *text* while inside; a saved notebook keeps no trace of it."""
    if front.kind == "terminal":
        sys.stdout.write(f"{text}\n")
        yield
        return
    content = {"text/plain": text}
    handle: Any = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        handle.update(NOTHING, raw=True)


def warn(text: str, front: FrontEnd) -> None:
    """Show *text* as a red line that stays."""
    if front.kind == "terminal":
        sys.stdout.write(f"\x1b[31m{text}\x1b[0m\n")
        return
    line = f'<div role="alert" style="color:#c62828;font-weight:600">{html.escape(text)}</div>'
    put({"text/plain": text, "text/html": line})


Post: TypeAlias = "Callable[[Callable[[], None]], None]"


class TurnDisplay(Protocol):
    """One turn before the person's eyes; also the card that a click comes from."""

    def begin(self) -> None:
        """Show it, before the turn starts.  Main thread."""

    def end(self) -> State:
        """Leave what stays, and return the state of the turn.  Main thread."""

    def show(self, request: PermissionRequest) -> None:
        """See `approvals.Card`."""

    def is_seen(self) -> bool:
        """See `approvals.Card`."""

    @property
    def place(self) -> str:
        """See `approvals.Card`."""

    def done(self) -> None:
        """See `approvals.Card`."""


def display_for(
    front: FrontEnd,
    session: AgentSession,
    client_request_id: str,
    *,
    quiet: bool,
    post: Post,
    prices: Mapping[str, Price] = _NO_PRICES,
) -> TurnDisplay:
    """The display that suits *front* for the turn that will have that request id.

    *post* hands something to the thread that holds the cell, which does it while it waits.
    """
    if front.shows_widgets and not quiet:
        return LiveDisplay(session, client_request_id, prices=prices)
    if front.kind == "terminal" and not quiet:
        return StreamDisplay(session, client_request_id, post)
    return FinalDisplay(session, client_request_id, quiet=quiet)


class _Watched:
    """Follows one turn of a session."""

    def __init__(self, session: AgentSession, client_request_id: str) -> None:
        self._session = session
        self._request_id = client_request_id
        self._turn_id: str | None = None
        self._model = TurnModel()
        self._lock = threading.Lock()
        self._unsubscribe: Callable[[], None] | None = None

    def begin(self) -> None:
        self._unsubscribe = self._session.subscribe(self._feed)

    def end(self) -> State:
        if self._unsubscribe is not None:
            self._unsubscribe()
        return self.state()

    def state(self) -> State:
        """The turn so far."""
        with self._lock:
            return self._model.to_json()

    def _feed(self, envelope: Envelope) -> None:
        update = envelope.update
        starts = update.kind == "turn_started"
        if starts and update.data["client_request_id"] == self._request_id:
            self._turn_id = envelope.turn_id
        if self._turn_id is None or envelope.turn_id != self._turn_id:
            return
        with self._lock:
            self._model.apply(envelope.to_json())
            self._look(envelope)

    def _look(self, envelope: Envelope) -> None:
        """Called with each update of the turn, on the publishing thread."""

    # Nobody clicks here; questions are asked by text, or not at all.

    def show(self, request: PermissionRequest) -> None:
        """There is no card."""

    def is_seen(self) -> bool:
        """There is no card."""
        return False

    place = ""

    def done(self) -> None:
        """There is no card."""


class FinalDisplay(_Watched):
    """Nothing while the turn runs, the static content at its end."""

    def __init__(self, session: AgentSession, client_request_id: str, *, quiet: bool) -> None:
        super().__init__(session, client_request_id)
        self._quiet = quiet

    def end(self) -> State:
        state = super().end()
        if state["turn_id"] is not None and not self._quiet:
            put(static(state), metadata=ids(state))
        return state


class StreamDisplay(_Watched):
    """The answer on a terminal while it is written, and a line for each tool call.

    The cell's thread writes it, in turn with what else it is asked to do: a terminal may be
    stopped (Ctrl-S), and then that thread has to wait for it, but the session must not.
    """

    def __init__(self, session: AgentSession, client_request_id: str, post: Post) -> None:
        super().__init__(session, client_request_id)
        self._post = post
        self._unwritten: deque[str] = deque()
        self._posted = False
        self._at_line_start = True
        self._stream: TextIO

    def begin(self) -> None:
        self._stream = sys.stdout  # not what a tool's output goes to while it runs
        super().begin()

    def _look(self, envelope: Envelope) -> None:
        from op_jupyter.views.terminal import call_line

        data = envelope.update.data
        match envelope.update.kind:
            case "text_delta":
                self._write(data["text"])
            case "draft_cleared" | "permission_requested":
                self._new_line()
            case "tool_call_finished":
                self._new_line()
                calls = self._model.state["calls"]
                self._write("".join(call_line(c) + "\n" for c in calls if c["id"] == data["id"]))

    def _new_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _write(self, text: str) -> None:
        if not text:
            return
        self._at_line_start = text.endswith("\n")
        self._unwritten.append(text)
        if not self._posted:
            self._posted = True
            self._post(self._write_out)

    def _write_out(self) -> None:
        """Write what there is; on the thread of the cell."""
        from op_jupyter.views.text import visible

        self._posted = False  # first: what is added from now on may be missed below
        while self._unwritten:
            self._stream.write(visible(self._unwritten.popleft()))
            self._stream.flush()

    def end(self) -> State:
        state = super().end()
        self._posted = True  # nobody else has to write it any more
        self._new_line()
        self._write_out()
        return state


class LiveDisplay:
    """The live view, with its card."""

    def __init__(
        self,
        session: AgentSession,
        client_request_id: str | None,
        *,
        alone: bool = False,
        prices: Mapping[str, Price] = _NO_PRICES,
    ) -> None:
        """Show the turn with that request id; without one, the next turn that starts.

        *alone*: no cell waits for it, so that what stays can only take the view's own place.
        *prices*: as in the settings, by model.
        """
        from op_jupyter.notebook.node_actions import NodeActions

        self._alone = alone
        self._actions = NodeActions(session)
        self._view = _new_view(
            session, self._actions, client_request_id=client_request_id, prices=prices
        )
        self._handle: Any = None

    def begin(self) -> None:
        self._handle = _publish(self._view)

    def end(self) -> State:
        return self.end_with(run_sync(self.settle))

    async def settle(self) -> list[str]:
        """Do what was asked of the turn's nodes, now that it is over, and say what came of it."""
        return await self._actions.finish()

    def end_with(self, said: Sequence[str]) -> State:
        """`end`, leaving what `settle` said as well.  Main thread."""
        self._view.finish()
        state = self._view.turn()
        known = state["turn_id"] is not None
        self._leave(static(state, said) if known else NOTHING, ids(state))
        return state

    def vanish(self) -> None:
        """End without a trace: something else says what came of the turn.  Main thread."""
        said = run_sync(self.settle)
        self._view.finish()
        self._leave(NOTHING, {})
        if said:
            put({"text/plain": "\n".join(said)})

    def _leave(self, content: Mapping[str, Any], metadata: dict[str, Any]) -> None:
        seen = self._view.ready.is_set()
        self._view.leave(content, metadata)
        if self._alone or seen or not content:
            self._handle.update(content, raw=True, metadata=metadata)
            return
        # No page shows the view: its output was cleared, or a console does not know displays.
        self._handle.update(NOTHING, raw=True)
        put(content, metadata=metadata)

    def show(self, request: PermissionRequest) -> None:
        """The view shows it already, unless its output was cleared."""
        if self._view.lost:
            self._handle.display(self._view)

    def is_seen(self) -> bool:
        return self._view.ready.is_set()

    @property
    def place(self) -> str:
        return str(self._view.model_id)

    def done(self) -> None:
        """The view stays until the end of the turn."""


@contextmanager
def shown_while_running(session: AgentSession, front: FrontEnd) -> Iterator[None]:
    """The live view of the turn that starts inside, where there can be one; gone with its end."""
    if not front.shows_widgets:
        yield
        return
    live = LiveDisplay(session, None)
    live.begin()
    try:
        yield
    finally:
        live.vanish()


class CallCard:
    """A card for a call outside of any ``%%agent`` cell: there while it waits, then gone."""

    def __init__(self, session: AgentSession, at_cell_end: Callable[[NodeActions], None]) -> None:
        """*at_cell_end*: is given what is asked for of nodes, to finish it after the turn."""
        self._session = session
        self._at_cell_end = at_cell_end
        self._view: AgentView | None = None
        self._handle: Any = None

    def show(self, request: PermissionRequest) -> None:
        if self._view is not None:
            self._handle.display(self._view)
            return
        from op_jupyter.notebook.node_actions import NodeActions

        actions = NodeActions(self._session, turn_id=request.turn_id)
        self._at_cell_end(actions)
        view = self._view = _new_view(self._session, actions, turn_id=request.turn_id)
        # The request was published before the view could listen.
        last = self._session.snapshot().last_update_sequence
        for envelope in self._session.replay_updates(max(0, last - _RECENT)) or ():
            view.feed(envelope)
        self._handle = _publish(view)

    def is_seen(self) -> bool:
        return self._view is not None and self._view.ready.is_set()

    @property
    def place(self) -> str:
        return "" if self._view is None else str(self._view.model_id)

    def done(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.finish()
            view.leave(NOTHING)
            self._handle.update(NOTHING, raw=True)


class AskedCard:
    """The form of one question, and in its place then the question and its answer as text."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._view: QuestionView | None = None
        self._handle: Any = None
        self._answer: concurrent.futures.Future[QuestionAnswer] = concurrent.futures.Future()
        self._taking = threading.Lock()

    def show(self, question: Question, check: Check) -> None:
        from op_jupyter.views.question_view import QuestionView

        if self._view is not None:
            self._handle.display(self._view)
            return

        def on_answer(said: Any) -> str:
            try:
                value = check(said)
            except BadAnswer as bad:
                return str(bad)
            self._take(QuestionAnswer(value, "click"))
            return ""

        def on_decline() -> None:
            self._take(QuestionAnswer(how="click", declined=True))

        self._view = QuestionView(question.to_json(), on_answer, on_decline)
        self._handle = _publish(self._view)

    def _take(self, answer: QuestionAnswer) -> None:
        with self._taking:  # clicks may come on two threads; the first one counts
            if not self._answer.done():
                self._answer.set_result(answer)

    def is_seen(self) -> bool:
        return self._view is not None and self._view.ready.is_set()

    @property
    def place(self) -> str:
        """The id of its widget."""
        return "" if self._view is None else str(self._view.model_id)

    async def answer(self) -> QuestionAnswer:
        return await asyncio.wrap_future(self._answer)

    def keep(self, question: Question, answer: QuestionAnswer | None) -> None:
        from op_jupyter.views.question_view import question_bundle

        bundle = question_bundle(*self._session.recorder.clean([question.prompt, _said(answer)]))
        view, self._view = self._view, None
        if view is not None:
            view.leave(bundle)
        if self._handle is None:
            put(bundle)
        else:
            self._handle.update(bundle, raw=True)


def _said(answer: QuestionAnswer | None) -> str:
    if answer is None:
        return "(no answer)"
    return "(declined)" if answer.declined else answer_text(answer.value)


def static(state: State, afterwards: Sequence[str] = ()) -> dict[str, Any]:
    """What stays in the saved notebook."""
    from op_jupyter.views.static_html import static_bundle

    return static_bundle(state, afterwards)


def ids(state: State) -> dict[str, Any]:
    """The names of a turn, for the metadata of its output; its text holds none."""
    if state["turn_id"] is None:
        return {}
    return {"openprogram": {"session_id": state["session_id"], "turn_id": state["turn_id"]}}


def _new_view(
    session: AgentSession,
    actions: NodeActions,
    *,
    turn_id: str | None = None,
    client_request_id: str | None = None,
    prices: Mapping[str, Price] = _NO_PRICES,
) -> AgentView:
    from op_jupyter.views.agent_view import AgentView

    view = AgentView()

    def on_decide(call_id: str, answer: PermissionAnswer) -> None:
        active = turn_id or view.turn()["turn_id"]
        submit(session.resolve_permission, active, call_id, answer)

    def on_cancel() -> None:
        submit(session.cancel_turn, view.turn()["turn_id"])

    def with_costs(listener: Callable[[Mapping[str, Any]], None]) -> Callable[[], None]:
        return session.subscribe(lambda envelope: listener(_priced(envelope, session, prices)))

    view.attach(
        subscribe=with_costs if prices else session.subscribe,
        turn_id=turn_id,
        client_request_id=client_request_id,
        on_decide=on_decide,
        on_cancel=on_cancel,
        on_details=actions.details,
        on_node_action=actions.act,
        node_actions=actions.offered,
    )
    return view


def _priced(
    envelope: Envelope, session: AgentSession, prices: Mapping[str, Price]
) -> Mapping[str, Any]:
    """The update in its wire form; a model call that has ended says what it cost."""
    wire = envelope.to_json()
    data = wire["data"]
    if wire["kind"] in ("node_appended", "node_updated") and "input_tokens" in data:
        rows = [row for row in spent([session.dag.node(data["id"])]) if row.model in prices]
        if rows:
            wire["data"] = {**data, "cost": sum(prices[row.model].of(row.usage) for row in rows)}
    return wire
