"""The one way to stored sessions for everybody who is not a session's owner.

The notebook, the command line and the server of the lab extension list, read, search, export
and delete through here, and nobody of them touches the store behind its back.  Reading takes no
lock; of a session that this process has open, it sees what is going on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from op_jupyter.core.attempts import (
    OTHER_ROLES,
    Attempt,
    AttemptStatus,
    Message,
    attempts_of,
    messages_of,
)
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.turn import Outcome, Phase
from op_jupyter.core.updates import Envelope, clip
from op_jupyter.core.values import dataclass
from op_jupyter.engine import loop, registry
from op_jupyter.engine.outcomes import stored_outcome
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import (
    Busy,
    EmptyInput,
    PermissionNotPending,
    SessionActive,
    StoreError,
    TurnNotActive,
    UsageError,
)
from op_jupyter.store.base import OpenSession, SearchHit, SessionInfo, Store
from op_jupyter.store.sessions import SessionStore
from op_jupyter.store.summary import session_named, unknown_session

ALL: Final = 1_000_000
SUB_AGENT: Final = "agent"
"""The ``source`` of sub-agents' sessions, which lists leave out unless asked for them."""
MAX_QUERY_CHARS: Final = 1_000
CLOSE_SECONDS: Final = 10.0

_LIVE: Final[Mapping[Phase, AttemptStatus]] = {
    Phase.PENDING: "pending",
    Phase.WAITING_PERMISSION: "waiting_user",
}

# What is rarely asked for is imported then: a notebook makes a service when it is loaded.
if TYPE_CHECKING:
    from op_jupyter.engine.attempt_host import AttemptHost
    from op_jupyter.engine.upkeep import Upkeep
    from op_jupyter.store.interchange import Imported


class Exporter(Protocol):
    """Makes a text of a whole session; *whole* and *tell* as in `Service.export`."""

    def __call__(
        self, session: OpenSession, /, *, whole: bool, tell: Callable[[str], None]
    ) -> str: ...


class Searcher(Protocol):
    """Finds messages; see `store.search.SearchIndex`."""

    def search(self, query: str, limit: int = 20) -> list[SearchHit]: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was stored; *attempt_id*: of what answers it, None when nothing does."""

    message_id: str
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Running:
    """An attempt that this service began, and who waits for its end."""

    session_id: str
    job: loop.Job[Outcome]


class Service:
    """Sessions of one store.  Safe to use from any thread, but not on the background loop.

    Args:
        searcher: makes it when it is first wanted; None: this store cannot be searched.
        exporters: by the name of their format.
        host: lends attempts what they need, when the first is wanted; None: `send_message` can
            start none.

    Attributes:
        bus: what happens in all sessions of the store that this process has open, whoever runs
            them; the same for every service of one place.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: Callable[[], AttemptHost] | None = None,
        searcher: Callable[[], Searcher] | None = None,
        exporters: Mapping[str, Exporter] | None = None,
    ) -> None:
        self.store = store
        self.bus = registry.bus_of(store)
        self._searcher = None if searcher is None else cache(searcher)
        self._exporters = exporters or {}
        self._host = None if host is None else cache(host)
        self._running: dict[str, _Running] = {}
        self._unstored: dict[str, Outcome] = {}
        self._lock = threading.Lock()

    # -- finding sessions

    def list_sessions(
        self,
        limit: int = 50,
        *,
        archived: bool | None = False,
        sub_agents: bool = False,
    ) -> list[SessionInfo]:
        """The newest first, without opening any.

        Args:
            archived: None: both kinds.
            sub_agents: also those of sub-agents.
        """
        found = self.store.sessions(ALL)
        return [
            info
            for info in found
            if archived in (None, info.status == "archived")
            and (sub_agents or info.source != SUB_AGENT)
        ][:limit]

    def get_session(self, session_id: str) -> SessionInfo:
        """One of them.

        Raises:
            UnknownSession: there is none of that id.
        """
        known = {info.id: info for info in self.store.sessions(ALL)}
        if session_id not in known:
            raise unknown_session(session_id, known, "here")
        return known[session_id]

    def find(self, named: str) -> str:
        """The id of the session that *named* is, or is the unique beginning of.

        Raises:
            InvalidSessionId: it can be no session's.
            UnknownSession: it names none, or more than one.
        """
        if self.store.exists(named):
            return named
        return session_named(named, [info.id for info in self.store.sessions(ALL)])

    def search(self, query: str, limit: int = 20) -> list[SearchHit]:
        """The messages and titles that hold every word of *query*, the best first.

        Raises:
            UsageError: the query is too long, or this store cannot be searched.
        """
        if self._searcher is None:
            raise UsageError("sessions that are kept in memory cannot be searched")
        if len(query) > MAX_QUERY_CHARS:
            raise UsageError(
                f"the search has {len(query)} characters; {MAX_QUERY_CHARS} are allowed"
            )
        return self._searcher().search(query, limit)

    # -- reading one

    def graph(self, session_id: str) -> Dag:
        """Everything that happened in a session, as it is now.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
        """
        here = self._live(session_id)
        return self.store.load(session_id) if here is None else here.store.snapshot()

    def node(self, session_id: str, node_id: str) -> tuple[Node, Mapping[str, Any] | None]:
        """A node, of whose edges nothing is said, and what was decided about its call.

        Raises:
            UnknownSession, UnknownNode, StoreError: it is not there, or cannot be read.
        """
        here = self._live(session_id)
        graph = self.store.load_node(session_id, node_id) if here is None else here.store.dag
        node = graph.node(node_id)
        return node, graph.decision_of(node)

    @contextmanager
    def reading(self, session_id: str) -> Iterator[OpenSession]:
        """A session to be read, with its large values; a writer elsewhere goes on meanwhile.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
        """
        here = self._live(session_id)
        if here is not None:
            yield here.store
            return
        session = self.store.open(session_id, "read")
        try:
            yield session
        finally:
            session.close()

    @property
    def root(self) -> Path | None:
        """The folder of all sessions; None when they are kept in memory."""
        return self.store.root

    def path(self, session_id: str) -> Path | None:
        """The session's folder; None when nothing of it is on disk."""
        return self.store.path(session_id)

    def get_messages(self, session_id: str, limit: int = 100) -> list[Message]:
        """The newest *limit* messages, in the order in which they were said."""
        return list(messages_of(self.graph(session_id)))[-limit:] if limit > 0 else []

    def get_attempts(self, session_id: str) -> list[Attempt]:
        """Every attempt, with what is known of one that runs here."""
        return attempts_of(self.graph(session_id), _live_status(self._live(session_id)))

    def export(
        self,
        session_id: str,
        format: str = "md",  # noqa: A002 - the word for it
        *,
        whole: bool = False,
        tell: Callable[[str], None] = lambda said: None,
    ) -> str:
        """A whole session as a text of its own: ``md``, ``html``, ``json`` or ``ipynb``.

        Args:
            whole: JSON with everything that is kept, however much that is.
            tell: is told what was left out, in one sentence.

        Raises:
            UsageError: there is no such format.
            UnknownSession, StoreError: the session is not there, or cannot be read.
        """
        exporter = self._exporters.get(format)
        if exporter is None:
            known = ", ".join(self._exporters)
            raise UsageError(f"there is no format {format!r} to export to; there are: {known}")
        with self.reading(session_id) as session:
            if session.status.damaged:
                self.store.load(session_id)  # refused, and not told in part
            return exporter(session, whole=whole, tell=tell)

    def import_session(self, path: Path, session_id: str | None = None) -> Imported:
        """Take an exported document (``json``) or a session's folder in, as a new session.

        Raises:
            UsageError, StoreError: see `store.interchange.import_path`; nothing was stored.
        """
        from op_jupyter.store.interchange import import_path

        done = import_path(self.store, path, session_id)
        self._tell_created(done.session_id, self.get_session(done.session_id).title)
        return done

    def fork_session(self, session_id: str, fork_id: str | None = None) -> str:
        """Make a session of all that is stored of another one by now, and return its id.

        Nobody has to let go of the other one, and nothing is changed in it.

        Raises:
            UnknownSession, StoreError: it is not there, or cannot be read.
            UsageError: *fork_id* is taken.
        """
        from op_jupyter.store.interchange import copy_session

        self._check_known(session_id)
        fork = copy_session(self.store, session_id, fork_id).session_id
        self._tell_created(fork, self.get_session(fork).title)
        return fork

    # -- attempts

    def send_message(
        self,
        session_id: str,
        content: str,
        role: str = "user",
        *,
        include_shell_tools: bool = False,
    ) -> Sent:
        """Say something in a session; returns before the attempt that answers it ends.

        By then the message and the attempt are stored.  What is said by another *role* than
        ``user`` starts no attempt.

        Args:
            include_shell_tools: offer the shell, for this attempt alone.

        Raises:
            UnknownSession: there is no such session.
            EmptyInput, UsageError: there is no text, or the role is none.
            Busy: an attempt of this session still runs.
            SessionLocked: another process works in it.
            StoreError: the message could not be stored; nothing runs.
        """
        if not content.strip():
            raise EmptyInput("the message is empty; write what the agent should do")
        if role not in ("user", *OTHER_ROLES):
            raise UsageError(f"role {role!r:.40}: use user, {', '.join(OTHER_ROLES)}")
        self._check_known(session_id)
        session = registry.acquire(self.store, session_id, timeout=registry.OPEN_SECONDS)
        try:
            if (active := session.active_turn_id) is not None:
                raise Busy(
                    f"attempt {active} still runs in session {session_id!r}; wait for it or "
                    "cancel it",
                    turn_id=active,
                )
            if role != "user":
                return self._note(session, content, role)
            return self._begin(session, content, shell=include_shell_tools)
        finally:
            registry.release(session)

    def cancel_current(self, session_id: str) -> bool:
        """Have the attempt that runs in a session stop; False: none runs in this process."""
        here = self._live(session_id)
        active = None if here is None else here.active_turn_id
        if here is None or active is None:
            return False
        try:
            loop.run_sync(here.cancel_turn, active)
        except TurnNotActive:
            return False  # it has just ended
        return True

    def wait(
        self, session_id: str, attempt_id: str, timeout: float | None = None
    ) -> Outcome | None:
        """How an attempt ended, also where that could not be stored.

        None: it still runs after *timeout* seconds, or elsewhere.

        Raises:
            TurnNotActive: the session has no such attempt.
        """
        running = self._running.get(attempt_id)
        if running is None:
            dag = self.graph(session_id)
            turn = dag.turns.get(attempt_id)
            if turn is None:
                raise TurnNotActive(f"session {session_id!r} has no attempt {attempt_id!r:.80}")
            if turn.status == "running":
                return self._unstored.get(attempt_id)
            return stored_outcome(dag, turn)
        try:
            return running.job.future.result(timeout)
        except TimeoutError:
            return None

    def pending(self, session_id: str) -> list[PermissionRequest]:
        """The questions for permission that wait for `answer`."""
        here = self._live(session_id)
        return [] if here is None else here.pending_cards()

    def answer(self, session_id: str, call_id: str, answer: PermissionAnswer) -> None:
        """Answer one of them.

        Raises:
            PermissionNotPending: no such call waits.
        """
        here = self._live(session_id)
        card = next((card for card in self.pending(session_id) if card.id == call_id), None)
        if here is None or card is None:
            raise PermissionNotPending(f"no card for call {call_id!r:.80} waits for an answer")
        loop.run_sync(here.resolve_permission, card.turn_id, call_id, answer)

    def warn(self, session_id: str, problems: Sequence[str]) -> None:
        """Tell the bus what is wrong with the MCP servers that a session could have used."""
        for problem in problems:
            self.bus.publish(session_id, "mcp.warning", {"message": problem})

    def close(self) -> None:
        """Cancel what runs, wait a little for its end, and give everything back."""
        with self._lock:
            running = list(self._running.values())
        for each in running:
            self.cancel_current(each.session_id)
        ends = [each.job.future for each in running]
        concurrent.futures.wait(ends, timeout=CLOSE_SECONDS)
        if self._host is not None and self._host.cache_info().currsize:
            self._host().close()

    def _begin(self, session: AgentSession, content: str, *, shell: bool) -> Sent:
        host = self._attempt_host()
        config = host.checked(session.dag.meta.get("config") or {})
        start, warnings = host.start_of(session, content, config, shell=shell)
        self.warn(session.session_id, warnings)
        if config.mode is not None and config.mode != session.permission_mode:
            loop.run_sync(session.set_permission_mode, config.mode)
        if not session.dag.meta.get("title"):
            session.recorder.set_meta(title=session.recorder.clean(clip(content)))
        held = registry.acquire(self.store, session.session_id)
        stored = _Stored(held)
        try:
            attempt_id = loop.run_sync(held.start_turn, start).turn_id
        except BaseException:
            stored.close()
            registry.release(held)
            raise
        with self._lock:
            job = loop.submit(self._see_to_end, held, attempt_id)
            self._running[attempt_id] = _Running(session.session_id, job)
        job.future.add_done_callback(lambda _: self._running.pop(attempt_id, None))
        return Sent(stored.message_id(attempt_id), attempt_id)

    async def _see_to_end(self, session: AgentSession, turn_id: str) -> Outcome:
        """Wait for the end of the attempt, then let its session go."""
        try:
            outcome = await session.wait(turn_id)
            if session.dag.turns[turn_id].status == "running":  # the disk refused its end
                self._unstored[turn_id] = outcome
            return outcome
        finally:
            await asyncio.shield(asyncio.to_thread(registry.release, session))

    def _note(self, session: AgentSession, content: str, role: str) -> Sent:
        node = loop.run_sync(session.say, content, role)
        said = {"message_id": node.id, "role": role, "content": content}
        self.bus.publish(session.session_id, "message.received", said)
        return Sent(node.id)

    def _attempt_host(self) -> AttemptHost:
        if self._host is None:
            raise UsageError("this service only reads sessions; it can start no attempt")
        return self._host()

    # -- keeping them in order

    def create_session(
        self, title: str = "", config: Mapping[str, Any] | None = None, **meta: Any
    ) -> str:
        """Make a session, durably, and return its id.

        Raises:
            UsageError: *config* holds what a session may not set; names the keys.
        """
        if config:
            self._attempt_host().checked(config)
        session_id = self.store.create_session(title=title, source="service", **meta)
        self._set_meta(session_id, config=dict(config or {}))  # and with it, it is on disk
        self._tell_created(session_id, title)
        return session_id

    def archive(self, session_id: str) -> None:
        """Leave it out of lists; it is kept, and found by a search."""
        self._set_meta(session_id, archived=True)

    def unarchive(self, session_id: str) -> None:
        """List it again."""
        self._set_meta(session_id, archived=False)

    def delete_session(self, session_id: str) -> None:
        """Move it to the trash, from which `restore_session` brings it back.

        Raises:
            UnknownSession: there is none of that id.
            SessionActive: this process works in it.
            SessionLocked: another process does.
        """
        here = self._live(session_id)
        if here is not None:
            raise SessionActive(
                f"session {session_id!r} is open in this process; "
                "cancel what runs in it, or leave it, and delete it then"
            )
        self.store.delete(session_id)
        self.bus.free(session_id)

    def restore_session(self, session_id: str) -> None:
        """Take it out of the trash.

        Raises:
            UnknownSession: it is not in there.
            StoreError: its id is taken.
        """
        self.store.restore(session_id)

    @property
    def upkeep(self) -> Upkeep:
        """What else there is to do for sessions on disk: trash, doctor, packing, other machines.

        Raises:
            UsageError: the sessions are kept in memory.
        """
        from op_jupyter.engine.upkeep import Upkeep

        if not isinstance(self.store, SessionStore):
            raise UsageError("these sessions are kept in memory, not on disk")
        return Upkeep(self.store)

    def purge_session(self, session_id: str) -> None:
        """Remove it from the trash for good.

        Raises:
            UnknownSession: it is not in there.
        """
        self.store.purge(session_id)

    # -- how

    def _live(self, session_id: str) -> AgentSession | None:
        return registry.live(self.store, session_id)

    def _tell_created(self, session_id: str, title: str) -> None:
        self.bus.publish(session_id, "session.created", {"title": title})

    def _check_known(self, session_id: str) -> None:
        if not self.store.exists(session_id):
            self.get_session(session_id)  # says which ids look alike

    def _set_meta(self, session_id: str, **fields: Any) -> None:
        self._check_known(session_id)
        session = registry.acquire(self.store, session_id, timeout=registry.OPEN_SECONDS)
        try:
            session.recorder.set_meta(**fields)
        finally:
            registry.release(session)


def _live_status(here: AgentSession | None) -> dict[str, AttemptStatus]:
    turn = None if here is None else here.active_turn
    status = None if turn is None else _LIVE.get(turn.phase)
    return {} if turn is None or status is None else {turn.id: status}


class _Stored:
    """Waits until the prompt of a turn is stored, or its turn ended before."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._told: dict[str, concurrent.futures.Future[str]] = {}
        self.close = session.subscribe(self._listen)

    def _listen(self, envelope: Envelope) -> None:
        turn_id, data = envelope.turn_id, envelope.update.data
        if turn_id is None:
            return
        match envelope.update.kind:
            case "node_appended" if data["kind"] == "user":
                self._tell(turn_id, data["id"])
            case "turn_finished":
                self._tell(turn_id, StoreError(f"the message was not stored: {data['message']}"))

    def _tell(self, turn_id: str, what: str | StoreError) -> None:
        future = self._told.setdefault(turn_id, concurrent.futures.Future())
        if not future.done():
            if isinstance(what, str):
                future.set_result(what)
            else:
                future.set_exception(what)

    def message_id(self, turn_id: str) -> str:
        """The node of the prompt.

        Raises:
            StoreError: it could not be stored.
        """
        try:
            return self._told.setdefault(turn_id, concurrent.futures.Future()).result()
        finally:
            self.close()
