"""The only writer: stores first, then publishes.

Secrets and half characters are taken out here, so nothing that is stored, shown or sent later
can hold one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from op_jupyter.core.horizon import last_seq_of, moved
from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.core.nodes import Node, Turn, TurnStatus
from op_jupyter.core.updates import Update, node_view
from op_jupyter.core.values import dataclass
from op_jupyter.engine.cleaning import Cleaner
from op_jupyter.engine.publisher import Publisher
from op_jupyter.errors import StoreError
from op_jupyter.store.base import Change, Decided, Ended, Fill, OpenSession, Tip


@dataclass(frozen=True, slots=True)
class Part:
    """What a call recorded elsewhere, from a copy of the graph as of *since*; and its own end."""

    nodes: Sequence[Node]
    decisions: Sequence[Mapping[str, Any]]
    since: int
    end: Fill | None = None


class Recorder:
    """Writes one session.  Safe to use from any thread."""

    def __init__(self, store: OpenSession, publisher: Publisher, cleaner: Cleaner) -> None:
        self._store = store
        self._publisher = publisher
        self._cleaner = cleaner
        self._lock = threading.RLock()
        self._beginning: dict[str, Turn] = {}

    @property
    def store(self) -> OpenSession:
        """What is written to."""
        return self._store

    def reopened(self, store: OpenSession) -> None:
        """Write to *store* from now on: the same session, opened again."""
        with self._lock:
            self._store = store

    def as_of(self) -> int:
        """The seq up to which a prompt rendered now sees the graph."""
        with self._lock:
            return self._store.dag.last_seq

    def append(self, node: Node, *, advance_head: bool = False) -> Node:
        """Store a new node, then show it."""
        with self._lock:
            return self._append(node, self._begun(node.turn_id), advance_head=advance_head)

    def begin_with(self, turn: Turn, node: Node) -> Node:
        """Store the start of *turn* and *node*, the new tip, as one; then show the node."""
        with self._lock:
            return self._append(node, self._clean_turn(turn), advance_head=True)

    def _append(self, node: Node, turn: Turn | None, *, advance_head: bool) -> Node:
        clean = self._clean(node)
        if turn is None:
            stored = self._store.append(clean, advance_head=advance_head)
        else:
            [stored] = self._store.write([turn, Tip(clean) if advance_head else clean])
            self._beginning.pop(turn.id, None)
        self._publisher.publish(stored.turn_id, Update("node_appended", node_view(stored)))
        return stored

    def note(self, node_id: str, **metadata: Any) -> None:
        """Store something about a node that is still running."""
        with self._lock:
            self._store.update(node_id, metadata=self._cleaner.json(metadata))

    def _clean(self, node: Node) -> Node:
        parts = [node.name, node.input, node.output, node.reads, dict(node.metadata)]
        cleaned = self._cleaner.json(parts)
        if cleaned is parts:  # nearly always
            return node
        name, given, output, reads, metadata = cleaned
        return replace(node, name=name, input=given, output=output, reads=reads, metadata=metadata)

    def append_many(self, nodes: Sequence[Node]) -> list[Node]:
        """Store several new nodes as one, then show them."""
        with self._lock:
            self._store_begun()
            stored = self._store.append_many([self._clean(node) for node in nodes])
            for node in stored:
                self._publisher.publish(node.turn_id, Update("node_appended", node_view(node)))
            return stored

    def bring_home(self, parts: Sequence[Part]) -> None:
        """Store what was recorded elsewhere, each part with the end of its call, all as one.

        Seqs above ``since`` move up behind everything that is here by now; what came here in
        between is not what those nodes saw, and they say so (``metadata.unseen``).

        Raises:
            StoreError: it was refused; nothing was stored.
        """
        with self._lock:
            self._store_begun()
            here = self._store.dag.last_seq
            changes: list[Change] = []
            for part in parts:
                nodes = [self._clean(moved(node, part.since, here)) for node in part.nodes]
                here = max([here, *map(last_seq_of, nodes)]) + len(part.decisions)
                changes += nodes
                changes += [Decided(self._cleaner.json(dict(d))) for d in part.decisions]
                if part.end is not None:
                    here += 1
                    changes.append(self._done(part.end, here))
            ended = {part.end.node_id for part in parts if part.end is not None}
            for node in self._store.write(changes):
                view = node_view(node)
                update = Update("node_updated" if node.id in ended else "node_appended", view)
                self._publisher.publish(node.turn_id, update)

    def finish(self, node_id: str, *, ended: Ended | None = None, **fields: Any) -> Node:
        """Fill the end of a node in, then show it.

        The node gets ``done_seq``: a prompt rendered as of an earlier seq did not see it
        finished, which is what makes every prompt reproducible from the store.

        *ended*: the end of its turn, stored as one with it.

        Raises:
            StoreError: it was refused; the node ends as an error that says so, if at least
                that can be stored.  Its turn goes on.
        """
        with self._lock:
            try:
                return self._fill(node_id, fields, ended)
            except StoreError as error:
                said = {"type": type(error).__name__, "message": error.message}
                with suppress(StoreError):
                    self._fill(node_id, {"status": "error", "metadata": {"error": said}})
                raise

    def _fill(self, node_id: str, fields: Mapping[str, Any], ended: Ended | None = None) -> Node:
        end = self._done(Fill(node_id, fields), self._store.dag.last_seq + 1)
        if ended is None:
            node = self._store.update(node_id, **end.fields)
        else:
            [node] = self._store.write([end, self._clean_end(ended)])
        self._publisher.publish(node.turn_id, Update("node_updated", node_view(node)))
        return node

    def _done(self, end: Fill, seq: int) -> Fill:
        metadata = {**end.fields.get("metadata", {}), "done_seq": seq}
        return Fill(end.node_id, self._cleaner.json({**end.fields, "metadata": metadata}))

    def begin_turn(self, turn: Turn) -> Turn:
        """Store the start of a turn."""
        with self._lock:
            return self._store.begin_turn(self._clean_turn(turn))

    def begin_turn_later(self, turn: Turn) -> None:
        """Have the start of a turn stored as one with its first node, or with its end.

        Until then there is nothing that a restart would have to know of.
        """
        with self._lock:
            self._beginning[turn.id] = self._clean_turn(turn)

    def is_running(self, turn_id: str) -> bool:
        """Whether that turn has begun, stored or not, and has not ended."""
        with self._lock:
            turn = self._beginning.get(turn_id) or self._store.dag.turns.get(turn_id)
        return turn is not None and turn.status == "running"

    def _begun(self, turn_id: str | None) -> Turn | None:
        """The start of that turn, if it still has to be stored."""
        return None if turn_id is None else self._beginning.get(turn_id)

    def _store_begun(self) -> None:
        """Store the starts that are left: something comes that may belong to one of them."""
        for turn in tuple(self._beginning.values()):
            self._store.begin_turn(turn)
            del self._beginning[turn.id]

    def _clean_turn(self, turn: Turn) -> Turn:
        return replace(
            turn,
            subject=self._cleaner.text(turn.subject),
            metadata=self._cleaner.json(dict(turn.metadata)),
        )

    def _clean_end(self, end: Ended) -> Ended:
        failure, metadata = self._cleaner.json([end.failure, end.metadata])
        return replace(end, failure=failure, metadata=metadata)

    def end_turn(
        self,
        turn_id: str,
        status: TurnStatus,
        *,
        failure: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Store the end of a turn.

        Raises:
            StoreError: it was refused; the turn ends as failed, if at least that can be stored.
        """
        end = self._clean_end(Ended(turn_id, status, failure, metadata))
        with self._lock:
            try:
                self._end(end)
            except StoreError as error:
                said = {"code": "persistence_error", "message": error.message}
                with suppress(StoreError):
                    self._end(Ended(turn_id, "failed", end.failure or said))
                self._beginning.pop(turn_id, None)  # nothing of it is stored, nothing has to end
                raise
            return self._store.dag.turns[turn_id]

    def _end(self, end: Ended) -> None:
        turn = self._begun(end.turn_id)
        self._store.write([end] if turn is None else [turn, end])
        self._beginning.pop(end.turn_id, None)

    def record_decision(self, decision: Mapping[str, Any]) -> None:
        """Store who allowed or denied what."""
        with self._lock:
            self._store_begun()
            self._store.record_decision(self._cleaner.json(dict(decision)))

    def record_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Store that a summary stands for named nodes."""
        with self._lock:
            self._store_begun()
            self._store.record_checkpoint(checkpoint)

    def set_head(self, node_id: str | None) -> None:
        """Move the active line to *node_id*."""
        with self._lock:
            self._store.set_head(node_id)

    def branch(self, name: str, at: str | None) -> None:
        """Make a branch that begins after *at* the active one."""
        with self._lock:
            self._store.branch(name, at)

    def set_meta(self, **fields: Any) -> None:
        """Store session metadata."""
        with self._lock:
            self._store.set_meta(**self._cleaner.json(fields))

    def publish(self, turn_id: str | None, update: Update) -> None:
        """Show something that is not stored (deltas, phases, progress)."""
        self._publisher.publish(turn_id, Update(update.kind, self._cleaner.json(update.data)))

    def keep_blob(self, data: bytes, media_type: str) -> str:
        """Store *data* once and return its sha256."""
        with self._lock:
            self._store_begun()
            return self._store.put_blob(data, media_type)

    def holds_secret(self, data: bytes) -> bool:
        """Whether a secret would have to be taken out of *data* before it is kept."""
        text = data.decode("latin-1")
        return self._cleaner.text(text) != text

    def clean(self, value: Any) -> Any:
        """*value*, plain JSON, without the secrets: for what is sent before it is stored."""
        return self._cleaner.json(value)

    def clean_content(
        self, content: Sequence[TextBlock | ImageBlock]
    ) -> list[TextBlock | ImageBlock]:
        """*content* without the secrets: before it is cut, as half a secret is not known as one."""
        texts = iter(self._cleaner.json([p.text for p in content if isinstance(p, TextBlock)]))
        return [TextBlock(next(texts)) if isinstance(p, TextBlock) else p for p in content]
