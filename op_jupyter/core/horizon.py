"""What a call that ran elsewhere saw of the graph: all up to when it was sent off, and itself.

Its nodes are numbered on from there.  When they come home, others have taken those numbers:
they move up, and remember the gap of what they did not see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node

UNSEEN: Final = "unseen"
"""In the metadata of a node: ``[[after, up_to], ...]``, the seqs of which it did not know."""


def moved(node: Node, since: int, here: int) -> Node:
    """*node*, recorded on a copy of the graph as of *since*, behind what is at *here* by now."""
    distance = here - since

    def shift(seq: int) -> int:
        return seq + distance if seq > since else seq

    metadata: dict[str, Any] = dict(node.metadata)
    if "done_seq" in metadata:
        metadata["done_seq"] = shift(metadata["done_seq"])
    gaps = [[shift(after), shift(up_to)] for after, up_to in metadata.get(UNSEEN, ())]
    if node.role == "llm":
        metadata[UNSEEN] = [[since, here], *gaps] if distance else gaps
    reads = node.reads
    if reads is not None and "as_of" in reads:
        reads = {**reads, "as_of": shift(reads["as_of"])}
    return replace(node, seq=shift(node.seq), reads=reads, metadata=metadata)


def last_seq_of(node: Node) -> int:
    """The highest seq that *node* takes: its own, or that of its end."""
    return max(node.seq, int(node.metadata.get("done_seq", 0)))


def as_seen(dag: Dag, node: Node) -> Dag:
    """*dag* as the model call *node* knew it; *dag* itself when it knew everything."""
    gaps = node.metadata.get(UNSEEN)
    if not gaps:
        return dag
    seen = Dag(
        dag.session_id,
        turns=dag.turns,
        checkpoints=dag.checkpoints,
        meta=dag.meta,
        branches=dag.branches,
        active_branch=dag.active_branch,
        last_attempt_id=dag.last_attempt_id,
    )
    for other in dag:
        ended = int(other.metadata.get("done_seq", other.seq))
        hidden = any(after < ended <= up_to for after, up_to in gaps)
        seen.add(replace(other, status="running") if hidden else other)
    seen.last_seq = dag.last_seq
    return seen
