"""The DAG of a session, folded from its records.

Two kinds of edge, never conflated: ``caller`` (who executed me) and ``predecessor``
(what I follow in the conversation).  The spine is the predecessor chain up to the head.
Every rule about what may be appended lives in this file; stores only ask.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from op_jupyter.core.nodes import UPDATABLE, Node, NodeRole, NodeStatus, Turn, TurnKind, TurnStatus
from op_jupyter.errors import GraphError, UnknownNode

MAIN: Final = "main"
MAX_ID_CHARS: Final = 200
PROCESS_RESTART: Final = "process_restart"

_ROLES: Final = frozenset(get_args(NodeRole))
_NODE_STATUSES: Final = frozenset(get_args(NodeStatus))
_TURN_KINDS: Final = frozenset(get_args(TurnKind))
_TURN_ENDS: Final = frozenset(get_args(TurnStatus)) - {"running"}
_NO_TURNS: Final[Mapping[str, Turn]] = {}
_BRANCH: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")


@dataclass(slots=True)
class Dag:
    """Nodes in order of ``seq``, with the indexes that make every question cheap.

    Attributes:
        last_attempt_id: the newest turn that answers a prompt.
    """

    session_id: str
    nodes: dict[str, Node] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    decisions: list[Mapping[str, Any]] = field(default_factory=list)
    checkpoints: list[Mapping[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    branches: dict[str, str | None] = field(default_factory=lambda: {MAIN: None})
    active_branch: str = MAIN
    last_seq: int = 0
    last_attempt_id: str | None = None
    _called: dict[str | None, list[str]] = field(default_factory=dict)
    _following: dict[str | None, list[str]] = field(default_factory=dict)
    _changed: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    _made: dict[tuple[str, str], tuple[int, Any]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def head(self) -> str | None:
        """The tip of the active line; None before the first prompt."""
        return self.branches[self.active_branch]

    def __iter__(self) -> Iterator[Node]:
        # Of all at once: it may be read while another thread adds to it.
        return iter(tuple(self.nodes.values()))

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

    def decision_of(self, node: Node) -> Mapping[str, Any] | None:
        """Who allowed or denied the call of *node*, and how; None: nothing was decided.

        What the rules decided is stored with the node.  A person's answer is told to it at its
        end; of one that its process did not survive, only the decision itself is left, which
        was stored before the call had any effect.
        """
        if isinstance(kept := node.metadata.get("permission"), Mapping):
            return kept
        call_id = node.metadata.get("tool_call_id", node.id)
        of_it = (d for d in reversed(self.decisions) if d.get("tool_call_id") == call_id)
        return next((d for d in of_it if d.get("turn_id") == node.turn_id), None)

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
        for turn in reversed(tuple(self.turns.values())):
            if turn.client_request_id == client_request_id:
                return turn
        return None

    # -- what was made of a node, so that it need not be made again

    def recall(self, what: str, node: Node, as_of: int) -> Any:
        """The *what* that was made of *node*, if it is the same as of that seq; or None."""
        made_at, made = self._made.get((what, node.id), (-1, None))
        # Of a seq that is not before the last change, so nothing that is here was too new for it.
        fits = self._changed.get(self._outermost(node), 0) <= made_at <= as_of
        return made if fits else None

    def remember(self, what: str, node: Node, as_of: int, made: Any) -> None:
        """Keep the *what* that was *made*, as of that seq, of *node* and all that it executed.

        It is forgotten when any of that, or what called it, changes.
        """
        self._made[what, node.id] = as_of, made

    def _outermost(self, node: Node) -> str:
        """The first node of the call at top level that *node* is part of."""
        nodes = self.nodes  # an excerpt of a graph may lack the ends of edges
        while node.caller is not None and (caller := nodes.get(node.caller)) is not None:
            node = caller
        frame = node.metadata.get("frame")
        while frame is not None and (before := nodes.get(node.predecessor or "")) is not None:
            if before.caller is not None or before.metadata.get("frame") != frame:
                break
            node = before  # the model calls of one loop are one thing
        return node.id

    def _change(self, node: Node, metadata: Mapping[str, Any]) -> None:
        """Note that *node* changes with the next seq, or with that of its end in *metadata*."""
        seq = max(self.last_seq + 1, node.seq)
        if (done := metadata.get("done_seq")) and done > seq:
            seq = done
        self._changed[self._outermost(node)] = seq

    # -- rules: each raises GraphError and changes nothing

    def check_node(self, node: Node, pending: Collection[str] = ()) -> None:
        """Whether *node* may follow what is here and *pending*; its seq is the store's."""
        _check_id(node.id, "node")
        if node.id in self.nodes or node.id in pending:
            raise GraphError(f"node {node.id!r} is already in session {self.session_id!r}")
        if not isinstance(node.role, str) or node.role not in _ROLES:
            raise GraphError(f"role {node.role!r} of {node.id!r} is none of {sorted(_ROLES)}")
        _check_node_status(node.id, node.status)
        _check_types(node.id, (node.name, node.created_at), node.metadata)
        for name, other in (("caller", node.caller), ("predecessor", node.predecessor)):
            if other is not None and other not in self.nodes and other not in pending:
                raise GraphError(f"{name} {other!r} of {node.id!r} is not in the session")

    def check_update(self, node_id: str, fields: Mapping[str, Any]) -> None:
        """Whether *fields* may be filled into node *node_id*."""
        if node_id not in self.nodes:
            raise GraphError(f"no node {node_id!r} to update in session {self.session_id!r}")
        if not fields.keys() <= UPDATABLE:
            wrong = sorted(fields.keys() - UPDATABLE)
            raise GraphError(f"{', '.join(wrong)} of node {node_id!r} cannot be changed")
        if "status" in fields:
            _check_node_status(node_id, fields["status"])
        _check_types(node_id, (fields.get("name", ""),), fields.get("metadata", {}))

    def check_head(self, node_id: str | None) -> None:
        """Whether a branch may point at *node_id*."""
        if node_id is not None and node_id not in self.nodes:
            raise GraphError(f"no node {node_id!r} in session {self.session_id!r}")

    def check_branch(self, name: str) -> None:
        """Whether *name* can name a branch, here and in git."""
        if not _BRANCH.fullmatch(name) or ".." in name or name.endswith(".lock") or name == "HEAD":
            raise GraphError(
                f"{name!r} is not a branch name: use letters, digits, '.', '_' and '-', "
                "at most 100 characters"
            )

    def check_open_turn(self, turn: Turn, pending: Collection[str] = ()) -> None:
        """Whether *turn* may start, after those that are here and *pending*."""
        _check_id(turn.id, "turn")
        if turn.id in self.turns or turn.id in pending:
            raise GraphError(f"turn {turn.id!r} is already in session {self.session_id!r}")
        if turn.kind not in _TURN_KINDS:
            raise GraphError(f"kind {turn.kind!r} of {turn.id!r} is none of {sorted(_TURN_KINDS)}")
        if turn.status != "running":
            raise GraphError(f"turn {turn.id!r} starts as {turn.status!r}, not 'running'")
        _check_types(turn.id, (turn.subject, turn.started_at), turn.metadata)
        self.check_head(turn.base)

    def check_close_turn(
        self, turn_id: str, fields: Mapping[str, Any], pending: Mapping[str, Turn] = _NO_TURNS
    ) -> None:
        """Whether turn *turn_id*, here or *pending*, may end as *fields* say.

        They are its status, finished_at and more.
        """
        turn = self.turns.get(turn_id) or pending.get(turn_id)
        if turn is None:
            raise GraphError(f"no turn {turn_id!r} in session {self.session_id!r}")
        if turn.status != "running":
            raise GraphError(f"turn {turn_id!r} has already ended as {turn.status!r}")
        status = fields["status"]
        if not isinstance(status, str) or status not in _TURN_ENDS:
            raise GraphError(f"a turn cannot end as {status!r}, only as {sorted(_TURN_ENDS)}")
        _check_types(turn_id, (fields["finished_at"],), fields.get("metadata", {}))
        if not isinstance(fields.get("failure", {}), Mapping):
            raise GraphError(f"the failure of turn {turn_id!r} is not a mapping")

    def branch_for(self, turn: Turn) -> str:
        """The branch that *turn* goes on: the active one, or a new one where the line forks.

        A bare call never forks: several at once are siblings on one line.
        """
        if turn.kind == "call" or turn.base == self.head:
            return self.active_branch
        return self.free_branch()

    def free_branch(self) -> str:
        """The next name for a branch that nobody named."""
        number = 2
        while f"fork-{number}" in self.branches:
            number += 1
        return f"fork-{number}"

    # -- folding: each applies one change that has been checked (and stored)

    def add(self, node: Node) -> Node:
        """Fold one new node in."""
        self._change(node, node.metadata)
        self.nodes[node.id] = node
        # A node that was recorded elsewhere comes with its end.
        self.see(max(node.seq, done) if (done := node.metadata.get("done_seq")) else node.seq)
        _file(self._called, node.caller, node.id)
        if node.caller is None:
            _file(self._following, node.predecessor, node.id)
        return node

    def fill(self, node_id: str, fields: Mapping[str, Any]) -> Node:
        """Fold an update in and return the node as it is now."""
        old, get = self.nodes[node_id], fields.get
        self._change(old, fields.get("metadata", {}))
        metadata = old.metadata
        if "metadata" in fields:
            metadata = {**metadata, **fields["metadata"]}
        # `dataclasses.replace` takes three times as long, and this is done for every node.
        self.nodes[node_id] = node = Node(
            old.id,
            old.role,
            get("name", old.name),
            old.input,
            get("output", old.output),
            get("status", old.status),
            old.caller,
            old.predecessor,
            get("reads", old.reads),
            metadata,
            old.seq,
            old.created_at,
        )
        return node

    def open_turn(self, turn: Turn) -> Turn:
        """Fold the start of a turn in."""
        self.turns[turn.id] = turn
        if turn.kind == "agent":
            self.last_attempt_id = turn.id
        return turn

    def close_turn(self, turn_id: str, fields: Mapping[str, Any]) -> Turn:
        """Fold the end of a turn in: status, finished_at, failure, metadata."""
        turn = self.turns[turn_id]
        metadata = {**turn.metadata, **fields.get("metadata", {})}
        self.turns[turn_id] = turn = replace(turn, **{**fields, "metadata": metadata})
        return turn

    def point(self, branch: str, node_id: str | None, *, activate: bool) -> None:
        """Set *branch* to *node_id*, and make it the active one if asked to."""
        self.branches[branch] = node_id
        if activate:
            self.active_branch = branch

    def see(self, seq: int) -> None:
        """Let the counter follow a record's *seq*."""
        if seq > self.last_seq:
            self.last_seq = seq

    def copy(self) -> Dag:
        """An independent copy; nodes and turns, and what was made of them, are shared."""
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
            self.last_attempt_id,
            {k: list(v) for k, v in self._called.items()},
            {k: list(v) for k, v in self._following.items()},
            dict(self._changed),
            dict(self._made),
        )


@dataclass(frozen=True, slots=True)
class Repair:
    """What an opening has to write because the last process ended in the middle."""

    nodes: tuple[str, ...]
    turns: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.nodes or self.turns)


INTERRUPTED: Final[Mapping[str, str]] = {
    "type": "Interrupted",
    "code": PROCESS_RESTART,
    "message": "the process that ran this ended before it did",
}
"""The ``error`` of an interrupted node and the ``failure`` of an interrupted turn."""


def unfinished(dag: Dag) -> Repair:
    """Nodes and turns that still say ``running``, in order."""
    return Repair(
        tuple(n.id for n in dag if n.status == "running"),
        tuple(t.id for t in dag.turns.values() if t.status == "running"),
    )


def _file(index: dict[str | None, list[str]], key: str | None, node_id: str) -> None:
    try:
        index[key].append(node_id)
    except KeyError:
        index[key] = [node_id]


def _check_id(value: object, what: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        raise GraphError(f"a {what} id has 1 to {MAX_ID_CHARS} characters, not {value!r:.60}")


def _check_types(owner: str, texts: tuple[object, ...], metadata: object) -> None:
    for text in texts:  # a generator takes twice as long, and this is done twice for every record
        if not isinstance(text, str):
            raise GraphError(f"a text of {owner!r} is not a text")
    if not isinstance(metadata, Mapping):
        raise GraphError(f"metadata of {owner!r} is not a mapping")


def _check_node_status(node_id: str, status: object) -> None:
    if not isinstance(status, str) or status not in _NODE_STATUSES:
        raise GraphError(f"status {status!r} of {node_id!r} is none of {sorted(_NODE_STATUSES)}")
