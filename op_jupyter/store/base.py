"""The seam to the store: what the agent layer needs of it, and nothing else.

Two implementations: `store.sessions.SessionStore` (one git repository per session) and
`store.memory.MemoryStore` (its twin).  Both pass `testing.contracts.StoreContract`.
All calls are synchronous, thread-safe, and return only when what they wrote is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn, TurnStatus
from op_jupyter.core.values import dataclass


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as a list shows it.

    Attributes:
        status: ``active`` or ``archived``.
        head: the node that the active line ends with.
        last_attempt_id: the newest turn that answers a prompt.
        config: what a service was told to use for its attempts.
    """

    id: str
    title: str
    created_at: str
    updated_at: str
    source: str
    turns: int
    last_status: str
    notebook: str = ""
    status: str = "active"
    head: str | None = None
    last_attempt_id: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message, or a title, that a search found.

    Attributes:
        title: of its session, on one line.
        node_id, turn_id: of the message; "" for a title.
        role: ``user``, ``assistant`` or ``title``.
        snippet: the part around the first word that was found, on one line.
        score: larger is better, within one search; 0 where so much fits that only the newest are
            told.
        at: when it was said, UTC, ISO 8601; "" for a title.
    """

    session_id: str
    title: str
    node_id: str
    turn_id: str
    role: str
    snippet: str
    score: float
    at: str


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How the session stands; every text is for a person.

    Attributes:
        read_only: why nothing can be written, or "".
        git_behind: why the last commit is missing, or "".
        repaired: what opening mended (torn tails, interrupted turns), one sentence each.
        damaged: records are left out; `Store.load` says which.
    """

    read_only: str = ""
    git_behind: str = ""
    repaired: Sequence[str] = ()
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Fill:
    """Fields to fill in of a node that is stored."""

    node_id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decided:
    """Who allowed or denied what, to be stored (plain JSON)."""

    decision: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tip:
    """A new node, to be stored as the tip of the active branch."""

    node: Node


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a turn, to be stored."""

    turn_id: str
    status: TurnStatus
    failure: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


Change: TypeAlias = Turn | Node | Tip | Fill | Decided | Ended
"""One of several things that are stored as one; a `Turn` begins, a `Node` is a new one."""


class OpenSession(Protocol):
    """One session, open.  The one writer, or a reader."""

    @property
    def session_id(self) -> str: ...

    @property
    def dag(self) -> Dag:
        """The live graph.  Read it; never change it.  `snapshot` gives a copy that stays still."""

    @property
    def status(self) -> StoreStatus: ...

    def append(self, node: Node, *, advance_head: bool = False) -> Node:
        """Store *node* and return it with its ``seq`` and ``created_at``.

        *advance_head* makes it the tip of the active branch in the same record.

        Raises:
            GraphError: it would break the graph; the session is as it was.
            ReadOnlySession: opened for reading.
            StoreError: the disk refused; nothing was written.
        """

    def append_many(self, nodes: Sequence[Node]) -> list[Node]:
        """`append` for several at once, durable as one."""

    def write(self, changes: Sequence[Change]) -> list[Node]:
        """Store *changes* in their order, durable as one; the nodes among them as they are now.

        A `Fill` is of a node that was there before, and an `Ended` of a turn that was there
        before or begins among them; one turn begins at most.  Errors are those of `append`.
        """

    def update(self, node_id: str, **fields: Any) -> Node:
        """Fill *fields* of a node in (see `core.nodes.UPDATABLE`) and return it."""

    def begin_turn(self, turn: Turn) -> Turn:
        """Store the start of *turn*; a new segment begins.  `write` takes one as well.

        When ``turn.base`` is not the head and the turn is not a bare call, the line forks:
        a new branch (``fork-2``, ``fork-3``, ...) starts at the base and becomes active.
        """

    def end_turn(
        self,
        turn_id: str,
        status: TurnStatus,
        *,
        failure: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Store the end of a turn; its commit follows off the critical path."""

    def record_decision(self, decision: Mapping[str, Any]) -> None:
        """Store who allowed or denied what (plain JSON)."""

    def record_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Store a summary that stands for named nodes (plain JSON)."""

    def set_head(self, node_id: str | None) -> None:
        """Move the active branch to *node_id*."""

    def branch(self, name: str, at: str | None, *, activate: bool = True) -> None:
        """Make or move branch *name*; the old line stays reachable."""

    def set_meta(self, **fields: Any) -> None:
        """Merge *fields* (title, mode, notebook, rules, ...) into the session's metadata."""

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Keep *data* once in ``context/`` and return its sha256."""

    def read_blob(self, sha256: str) -> bytes:
        """What `put_blob` kept."""

    def snapshot(self) -> Dag:
        """A copy of the graph."""

    def flush(self) -> None:
        """Wait until every finished turn is committed, or git is known to be behind."""

    def close(self) -> None:
        """Flush and free the writer's lock.  Safe to call twice."""


class Store(Protocol):
    """Where sessions live."""

    @property
    def root(self) -> Path | None:
        """The folder of all sessions; None when they are not on disk."""

    def create_session(self, session_id: str | None = None, **meta: Any) -> str:
        """Reserve a session (title, source, agent_id, ...) and return its id.

        Its folder is made with its first record.

        Raises:
            InvalidSessionId, StoreError: the id is unsafe, or taken.
        """

    def creating(self, session_id: str) -> AbstractContextManager[OpenSession]:
        """A new session, which is here when the block ends without an error, or not at all.

        Whatever kills the process meanwhile: nobody sees a part of it.

        Raises:
            InvalidSessionId, StoreError: the id is unsafe, or taken.
        """

    def exists(self, session_id: str) -> bool:
        """Whether that session was created here."""

    def open(
        self,
        session_id: str,
        mode: Literal["write", "read"] = "write",
        *,
        timeout: float = 0.0,
        force: bool = False,
    ) -> OpenSession:
        """Open for writing (repairs it first) or reading (never changes anything).

        *timeout*: seconds to wait for another writer.

        Raises:
            UnknownSession, SessionLocked, CorruptRecord, FormatTooNew
        """

    def sessions(self, limit: int = 50) -> list[SessionInfo]:
        """The newest first, without opening any."""

    def load(self, session_id: str) -> Dag:
        """The graph of a session, read without a lock."""

    def load_node(self, session_id: str, node_id: str) -> Dag:
        """An excerpt of `load` for looking at one node; much cheaper in a long session.

        It holds that node, if there is one, and all decisions; the ends of its edges, turns and
        branches may be missing.
        """

    def path(self, session_id: str) -> Path | None:
        """The session's folder; None when it is not on disk."""

    def delete(self, session_id: str) -> None:
        """Move it to the trash."""

    def restore(self, session_id: str) -> None:
        """Take it out of the trash."""

    def purge(self, session_id: str) -> None:
        """Remove it from the trash for good."""


Clock = Callable[[], float]
"""Seconds since the epoch, UTC."""
