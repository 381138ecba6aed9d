"""A part of a session that is recorded elsewhere, by a worker, and brought home whole.

It goes on from a copy of the graph, in memory.  What is added is asked for at the end; the
one writer of the session appends it (`engine.recorder.Recorder.bring_home`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.store.base import Clock, StoreStatus
from op_jupyter.store.codec import Encoded
from op_jupyter.store.session import RecordedSession, check_blob_hash, missing_blob


class PartSession(RecordedSession):
    """An open session (see `store.base.OpenSession`) on top of *dag*, which it changes."""

    def __init__(self, dag: Dag, clock: Clock = time.time) -> None:
        super().__init__(dag, {}, clock)
        self._since = dag.last_seq
        self._known = len(dag.decisions)
        self._blobs: dict[str, tuple[bytes, str]] = {}

    def added_nodes(self) -> list[Node]:
        """The nodes that are new, in order, as they are now."""
        return [node for node in self._dag if node.seq > self._since]

    def added_decisions(self) -> Sequence[Mapping[str, Any]]:
        """The decisions that are new."""
        return self._dag.decisions[self._known :]

    def added_blobs(self) -> Sequence[tuple[bytes, str]]:
        """What `put_blob` was given: data and media type."""
        return list(self._blobs.values())

    @property
    def status(self) -> StoreStatus:
        """Nothing to tell."""
        return StoreStatus()

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Keep *data* once and return its sha256."""
        self._check_writable()
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = (bytes(data), media_type)
        return digest

    def read_blob(self, sha256: str) -> bytes:
        """What `put_blob` kept."""
        try:
            return self._blobs[check_blob_hash(sha256)][0]
        except KeyError:
            raise missing_blob(sha256, self.session_id) from None

    def flush(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Take nothing more."""
        self._closed = True

    def _keep(self, batch: Sequence[Encoded]) -> None:
        """In memory everything is kept already."""

    def _kept(self, batch: Sequence[Encoded]) -> None:
        """Nobody else has to know."""
