"""The DAG of a session, folded from its records.

Two kinds of edge, never conflated: ``caller`` (who executed me) and ``predecessor``
(what I follow in the conversation).  The spine is the predecessor chain up to the head.
Every rule about what may be appended lives in this file; stores only ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from op_jupyter.core.nodes import UPDATABLE, Node, Turn, TurnStatus
from op_jupyter.errors import GraphError, UnknownNode

MAIN = "main"


@dataclass(slots=True)
class Dag:
    """Nodes in order of ``seq``, with the indexes that make every question cheap."""

    session_id: str
    nodes: dict[str, Node] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    decisions: list[Mapping[str, Any]] = field(default_factory=list)
    checkpoints: list[Mapping[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    branches: dict[str, str | None] = field(default_factory=lambda: {MAIN: None})
    active_branch: str = MAIN
    last_seq: int = 0
    _called: dict[str | None, list[str]] = field(default_factory=dict)
    _following: dict[str | None, list[str]] = field(default_factory=dict)

    @property
    def head(self) -> str | None:
        """The tip of the active line; None before the first prompt."""
        return self.branches[self.active_branch]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, node_id: str) -> Node:
        """The node with that id.

        Raises:
            UnknownNode: there is none.
        """
        try:
            return self.nodes[node_id]
        except KeyError:
            raise UnknownNode(
                f"session {self.session_id!r} has no node {node_id!r}; "
                "`%agent history` lists the nodes there are",
                node_id=node_id,
            ) from None

    def children(self, node_id: str | None) -> list[Node]:
        """What *node_id* executed, in order; None: what ran at top level."""
        return [self.nodes[i] for i in self._called.get(node_id, ())]

    def followers(self, node_id: str | None) -> list[Node]:
        """Top-level nodes that come right after *node_id*; more than one is a fork."""
        return [self.nodes[i] for i in self._following.get(node_id, ())]

    def spine(self, at: str | None = None) -> list[Node]:
        """The conversation from its first node to *at* (default: the head)."""
        line: list[Node] = []
        current = self.head if at is None else at
        while current is not None:
            node = self.node(current)
            line.append(node)
            current = node.predecessor
        line.reverse()
        return line

    def subtree(self, node_id: str) -> list[Node]:
        """*node_id* and everything it executed, directly or not, in order of seq."""
        found = [self.node(node_id)]
        for node in found:
            found.extend(self.children(node.id))
        return sorted(found, key=lambda n: n.seq)

    def call_path(self, node_id: str | None) -> list[Node]:
        """From the outermost caller down to *node_id*."""
        path: list[Node] = []
        while node_id is not None:
            node = self.node(node_id)
            path.append(node)
            node_id = node.caller
        path.reverse()
        return path

    def turn_by_request(self, client_request_id: str) -> Turn | None:
        """The turn that was started with that request id."""
        for turn in reversed(self.turns.values()):
            if turn.client_request_id == client_request_id:
                return turn
        return None

    # -- rules: each raises GraphError and changes nothing

    def check_append(self, node: Node) -> None:
        """Whether *node*, its seq already given, may be appended."""
        if node.id in self.nodes:
            raise GraphError(f"node {node.id!r} is already in session {self.session_id!r}")
        if node.seq <= self.last_seq:
            raise GraphError(f"seq {node.seq} of {node.id!r} is not above {self.last_seq}")
        for name, other in (("caller", node.caller), ("predecessor", node.predecessor)):
            if other is not None and other not in self.nodes:
                raise GraphError(f"{name} {other!r} of {node.id!r} is not in the session")

    def check_update(self, node_id: str, fields: Mapping[str, Any]) -> None:
        """Whether *fields* may be filled into node *node_id*."""
        if node_id not in self.nodes:
            raise GraphError(f"no node {node_id!r} to update in session {self.session_id!r}")
        if wrong := sorted(fields.keys() - UPDATABLE):
            raise GraphError(f"{', '.join(wrong)} of node {node_id!r} cannot be changed")

    def check_head(self, node_id: str | None) -> None:
        """Whether a branch may point at *node_id*."""
        if node_id is not None and node_id not in self.nodes:
            raise GraphError(f"no node {node_id!r} in session {self.session_id!r}")

    # -- folding: each applies one change that has been checked (and stored)

    def add(self, node: Node, *, advance_head: bool = False) -> Node:
        """Fold one new node in; *advance_head* makes it the tip of the active branch."""
        self.nodes[node.id] = node
        self.last_seq = max(self.last_seq, node.seq)
        self._called.setdefault(node.caller, []).append(node.id)
        if node.caller is None:
            self._following.setdefault(node.predecessor, []).append(node.id)
        if advance_head:
            self.branches[self.active_branch] = node.id
        return node

    def fill(self, node_id: str, fields: Mapping[str, Any]) -> Node:
        """Fold an update in and return the node as it is now."""
        node = self.nodes[node_id]
        changes = dict(fields)
        if "metadata" in changes:
            changes["metadata"] = {**node.metadata, **changes["metadata"]}
        self.nodes[node_id] = node = replace(node, **changes)
        return node

    def open_turn(self, turn: Turn) -> Turn:
        """Fold the start of a turn in."""
        self.turns[turn.id] = turn
        return turn

    def close_turn(
        self,
        turn_id: str,
        status: TurnStatus,
        finished_at: str,
        failure: Mapping[str, Any] | None,
        metadata: Mapping[str, Any],
    ) -> Turn:
        """Fold the end of a turn in."""
        turn = self.turns[turn_id]
        self.turns[turn_id] = turn = replace(
            turn,
            status=status,
            finished_at=finished_at,
            failure=failure,
            metadata={**turn.metadata, **metadata},
        )
        return turn

    def point(self, branch: str, node_id: str | None, *, activate: bool) -> None:
        """Set *branch* to *node_id*, and make it the active one if asked to."""
        self.branches[branch] = node_id
        if activate:
            self.active_branch = branch

    def copy(self) -> Dag:
        """An independent copy; nodes and turns are immutable and shared."""
        return Dag(
            self.session_id,
            dict(self.nodes),
            dict(self.turns),
            list(self.decisions),
            list(self.checkpoints),
            dict(self.meta),
            dict(self.branches),
            self.active_branch,
            self.last_seq,
            {k: list(v) for k, v in self._called.items()},
            {k: list(v) for k, v in self._following.items()},
        )


def unfinished(dag: Dag) -> tuple[Sequence[Node], Sequence[Turn]]:
    """Nodes and turns that still say ``running``: after a crash, what repair has to close."""
    return (
        [n for n in dag if n.status == "running"],
        [t for t in dag.turns.values() if t.status == "running"],
    )
