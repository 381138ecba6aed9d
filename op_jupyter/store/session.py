"""An open session, whatever its records are kept in: check, keep, then fold.

Every change takes the same way.  The rules are asked (`core.graph`), the change becomes
records, the records are kept durably (`_keep`, the one thing a subclass has to know), and
only then the live graph changes, from the very record that was kept.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from op_jupyter.core.graph import INTERRUPTED, Dag, Repair
from op_jupyter.core.nodes import Node, Turn, TurnStatus
from op_jupyter.errors import GraphError, ReadOnlySession, StoreError
from op_jupyter.store import codec
from op_jupyter.store.base import Change, Clock, Decided, Ended, Fill, StoreStatus, Tip
from op_jupyter.store.codec import Encoded, Record
from op_jupyter.store.interrupts import Uninterrupted


def timestamp(seconds: float) -> str:
    """*seconds* since the epoch as UTC, ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


class RecordedSession(ABC):
    """One open session (see `store.base.OpenSession`)."""

    def __init__(self, dag: Dag, reserved: Mapping[str, Any], clock: Clock) -> None:
        """*reserved*: what a new session is created with, for its first record."""
        self._dag = dag
        self._reserved = reserved
        self._clock = clock
        self._mutex = threading.RLock()
        self._read_only = ""
        self._closed = False

    # -- what a subclass knows

    @abstractmethod
    def _keep(self, batch: Sequence[Encoded]) -> None:
        """Make *batch* durable as one, or raise and leave everything as it was."""

    @abstractmethod
    def _kept(self, batch: Sequence[Encoded]) -> None:
        """What has to be done once *batch* is kept and the graph has changed."""

    @abstractmethod
    def put_blob(self, data: bytes, media_type: str) -> str:
        """Keep *data* once and return its sha256."""

    @abstractmethod
    def read_blob(self, sha256: str) -> bytes:
        """What `put_blob` kept."""

    @property
    @abstractmethod
    def status(self) -> StoreStatus:
        """How the session stands."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until every finished turn is committed, or git is known to be behind."""

    @abstractmethod
    def close(self) -> None:
        """Flush and let go.  Safe to call twice."""

    # -- reading

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._dag.session_id

    @property
    def dag(self) -> Dag:
        """The live graph, to be read only."""
        return self._dag

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    def snapshot(self) -> Dag:
        """A copy of the graph."""
        with self._mutex:
            return self._dag.copy()

    # -- writing

    def append(self, node: Node, *, advance_head: bool = False) -> Node:
        """Store *node* and return it as it was stored."""
        with self._mutex:
            seq = self._seq_of(node, self._next_seq())
            self._dag.check_node(node)
            head = self._dag.active_branch if advance_head else None
            self._store([codec.entering(node, seq, self._now(), head)])
            return self._dag.nodes[node.id]

    def append_many(self, nodes: Sequence[Node]) -> list[Node]:
        """`append` for several, durable as one; after a crash a prefix of them may be there."""
        return self.write(nodes)

    def write(self, changes: Sequence[Change]) -> list[Node]:
        """Store *changes*, durable as one; after a crash a prefix of them may be there."""
        with self._mutex:
            now, following, done = self._now(), self._next_seq(), 0
            records: list[Record] = []
            pending: set[str] = set()
            begun: dict[str, Turn] = {}
            active = self._dag.active_branch
            for change in changes:
                seq = max(following, done + 1)
                match change:
                    case Turn():
                        turn = self._starting(change, now)
                        self._dag.check_open_turn(turn, begun)
                        active = self._dag.branch_for(turn)
                        begun[turn.id] = turn
                        records.append(codec.opening(turn, active, seq))
                    case Ended():
                        end = self._ending(change, now)
                        self._dag.check_close_turn(change.turn_id, end, begun)
                        records.append(codec.closing(change.turn_id, end, seq))
                    case Tip(node):
                        seq = self._seq_of(node, seq)
                        self._dag.check_node(node, pending)
                        pending.add(node.id)
                        records.append(codec.entering(node, seq, now, active))
                    case Node():
                        # It may come with the seq of its end, which others of its kind, with
                        # seqs of their own, lie before.
                        seq = self._seq_of(change, following if change.seq else seq)
                        self._dag.check_node(change, pending)
                        pending.add(change.id)
                        done = max(done, change.metadata.get("done_seq", 0))
                        records.append(codec.entering(change, seq, now, None))
                    case Fill():
                        self._dag.check_update(change.node_id, change.fields)
                        records.append(codec.updating(change.node_id, change.fields, seq))
                    case Decided():
                        records.append(codec.deciding(change.decision, seq))
                following = seq + 1
            self._store(records)
            return [self._dag.nodes[i] for i in map(_node_of, changes) if i is not None]

    def update(self, node_id: str, **fields: Any) -> Node:
        """Fill *fields* of a node in and return it."""
        with self._mutex:
            self._dag.check_update(node_id, fields)
            self._store([codec.updating(node_id, fields, self._next_seq())])
            return self._dag.nodes[node_id]

    def begin_turn(self, turn: Turn) -> Turn:
        """Store the start of *turn*, on a new branch where the line forks."""
        with self._mutex:
            self.write([turn])
            return self._dag.turns[turn.id]

    def end_turn(
        self,
        turn_id: str,
        status: TurnStatus,
        *,
        failure: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Store the end of a turn."""
        with self._mutex:
            self.write([Ended(turn_id, status, failure, metadata)])
            return self._dag.turns[turn_id]

    def record_decision(self, decision: Mapping[str, Any]) -> None:
        """Store who allowed or denied what."""
        with self._mutex:
            self._store([codec.deciding(decision, self._next_seq())])

    def record_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Store a summary that stands for named nodes."""
        with self._mutex:
            self._store([codec.summarising(checkpoint, self._next_seq())])

    def set_head(self, node_id: str | None) -> None:
        """Move the active branch to *node_id*."""
        with self._mutex:
            self.branch(self._dag.active_branch, node_id)

    def branch(self, name: str, at: str | None, *, activate: bool = True) -> None:
        """Make or move branch *name*."""
        with self._mutex:
            self._dag.check_branch(name)
            self._dag.check_head(at)
            self._store([codec.pointing(name, at, activate, self._next_seq())])

    def set_meta(self, **fields: Any) -> None:
        """Merge *fields* into the session's metadata."""
        with self._mutex:
            self._store([codec.describing(fields, self._next_seq())])

    def take_over(self, records: Sequence[Record]) -> None:
        """Store whole records that were made elsewhere, as they are.

        Whoever calls has folded them in this order, so it is known that they fit.
        """
        with self._mutex:
            self._store(records)

    # -- how

    def _create(self) -> None:
        """Store the first record of a session, if it is not there yet."""
        if self._dag.last_seq == 0:
            self._store([codec.describing(self._reserved, 1)])

    def _store(self, records: Sequence[Record]) -> None:
        """Keep *records* and fold them, all or none."""
        self._check_writable()
        if not records:
            return
        if self._dag.last_seq == 0 and records[0]["seq"] > 1:
            records = [codec.describing(self._reserved, 1), *records]
        batch = [codec.encode(record) for record in records]
        with Uninterrupted():
            self._keep(batch)
            for encoded in batch:
                codec.fold(self._dag, encoded.record, fits=True)
            self._kept(batch)

    def _repair(self, repair: Repair) -> None:
        """Close what the last process left running, all in one durable step."""
        if not repair:
            return
        seq, now = self._next_seq(), self._now()
        ended = {"status": "interrupted", "metadata": {"error": INTERRUPTED}}
        records = [codec.updating(node, ended, seq + i) for i, node in enumerate(repair.nodes)]
        seq += len(records)
        closed = {"status": "interrupted", "finished_at": now, "failure": INTERRUPTED}
        records += [codec.closing(turn, closed, seq + i) for i, turn in enumerate(repair.turns)]
        self._store(records)

    def _starting(self, turn: Turn, now: str) -> Turn:
        return turn if turn.started_at else replace(turn, started_at=now)

    def _ending(self, end: Ended, now: str) -> dict[str, Any]:
        """What is filled into a turn that ends."""
        changes: dict[str, Any] = {"status": end.status, "finished_at": now}
        if end.failure is not None:
            changes["failure"] = end.failure
        if end.metadata:
            changes["metadata"] = end.metadata
        return changes

    def _seq_of(self, node: Node, following: int) -> int:
        """The seq that *node* gets: its own, if it has one, or the *following* one."""
        if 0 != node.seq < following:
            raise GraphError(f"seq {node.seq} of {node.id!r} is not above {following - 1}")
        return node.seq or following

    def _next_seq(self) -> int:
        # The first record of a session is its metadata, which `_store` puts in front.
        return max(self._dag.last_seq, 1) + 1

    def _now(self) -> str:
        return timestamp(self._clock())

    def _check_writable(self) -> None:
        if self._closed:
            raise ReadOnlySession(
                f"session {self.session_id!r} was closed; open it again to write to it"
            )
        if self._read_only:
            raise ReadOnlySession(self._read_only)


def _node_of(change: Change) -> str | None:
    match change:
        case Node(id=node_id) | Fill(node_id=node_id) | Tip(Node(id=node_id)):
            return node_id
        case Decided() | Turn() | Ended():
            return None


_SHA256: Final = re.compile("[0-9a-f]{64}")


def check_blob_hash(sha256: str) -> str:
    """*sha256*, which is one and thus safe in a path.

    Raises:
        StoreError: it is not.
    """
    if not _SHA256.fullmatch(sha256):
        raise StoreError(f"{sha256!r:.80} is not a sha256")
    return sha256


def missing_blob(sha256: str, session_id: str) -> StoreError:
    """The error for a value that is not there."""
    return StoreError(f"session {session_id!r} keeps nothing with sha256 {sha256}")
