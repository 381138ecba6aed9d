"""Where a node stands in the drawn graph: rows and lanes that never change again.

Time runs down: a new node takes the next row.  A new (branch, call depth) takes the next
free lane to the right.  Rows and lanes are never reused, so drawing node n + 1 never moves
nodes 1 to n, and one node costs the same at any size.

What code calls under one name (a loop) shares the first call's row as ×N.
`static/layout.js` is the same algorithm; a test feeds both the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from op_jupyter.core.values import dataclass

# What a folded row shows is the most urgent status of its members.
_URGENCY: Final = (
    "completed",
    "interrupted",
    "cancelled",
    "denied",
    "error",
    "waiting",
    "running",
)
_CODE: Final = frozenset({"function", "tool", "summary"})


@dataclass(slots=True)
class Row:
    """One row: a node, or a loop of them.

    Attributes:
        id: of the first node in the row; edges end there.
        caller, after: ids of rows, the ends of the "called by" and "comes after" edges.
        forked: the row starts a new branch beside one that goes on from the same node.
        members: ids of all nodes in the row.
    """

    id: str
    kind: str
    row: int
    lane: int
    branch: int
    depth: int
    caller: str | None
    after: str | None
    forked: bool
    members: list[str] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The most urgent status in the row."""
        present = [status for status in _URGENCY if self.statuses.get(status)]
        return present[-1] if present else "running"


@dataclass(slots=True)
class Layout:
    """The rows so far.  *fold* joins loops; without it every node has a row of its own."""

    fold: bool = True
    rows: list[Row] = field(default_factory=list)
    lanes: dict[tuple[int, int], int] = field(default_factory=dict)
    _row_of: dict[str, Row] = field(default_factory=dict)
    _status: dict[str, str] = field(default_factory=dict)
    _loops: dict[tuple[str, str, str, str], Row] = field(default_factory=dict)
    _continued: set[str] = field(default_factory=set)
    _last_call: dict[str, str] = field(default_factory=dict)
    _branches: int = 0

    def row_of(self, node_id: str) -> Row | None:
        """The row that shows that node."""
        return self._row_of.get(node_id)

    def add(self, node: Mapping[str, Any]) -> Row:
        """Place one new node (`core.updates.node_view`) and return its row, new or joined."""
        caller = self._row_of.get(node["caller"] or "")
        before = self._row_of.get(node["predecessor"] or "")
        loop = self._loop_key(node, caller, before)
        row = self._loops.get(loop) if loop is not None else None
        if row is None:
            row = self._new_row(node, caller, before)
            if loop is not None:
                self._loops[loop] = row
        self._join(row, node)
        return row

    def update(self, node_id: str, status: str) -> Row | None:
        """Note that *node_id* has a new status; nothing moves."""
        row = self._row_of.get(node_id)
        if row is not None:
            row.statuses[self._status[node_id]] -= 1
            row.statuses[status] = row.statuses.get(status, 0) + 1
            self._status[node_id] = status
        return row

    def _join(self, row: Row, node: Mapping[str, Any]) -> None:
        row.members.append(node["id"])
        row.statuses[node["status"]] = row.statuses.get(node["status"], 0) + 1
        self._row_of[node["id"]] = row
        self._status[node["id"]] = node["status"]

    def _loop_key(
        self, node: Mapping[str, Any], caller: Row | None, before: Row | None
    ) -> tuple[str, str, str, str] | None:
        """What calls of one loop have in common; None: the node never folds."""
        if not self.fold:
            return None
        kind = "function" if node["kind"] == "summary" else node["kind"]
        if caller is not None:
            return (caller.id, "", kind, node["name"]) if caller.kind in _CODE else None
        if kind in _CODE:
            return ("", before.id if before else "", kind, node["name"])
        return None

    def _new_row(self, node: Mapping[str, Any], caller: Row | None, before: Row | None) -> Row:
        if caller is not None:
            branch, depth, forked = caller.branch, caller.depth + 1, False
            after = self._earlier_sibling(node, caller, before)
            self._last_call[caller.id] = node["id"]
        elif node["kind"] in _CODE:
            # A call from a cell hangs beside the conversation, it does not continue it.
            branch, depth, forked = (before.branch if before else self._root()), 1, False
            after = before.id if before else None
        else:
            branch, forked = self._branch(before)
            depth, after = 0, before.id if before else None
        lane = self.lanes.setdefault((branch, depth), len(self.lanes))
        row = Row(
            id=node["id"],
            kind=node["kind"],
            row=len(self.rows),
            lane=lane,
            branch=branch,
            depth=depth,
            caller=caller.id if caller else None,
            after=after,
            forked=forked,
        )
        self.rows.append(row)
        return row

    def _earlier_sibling(
        self, node: Mapping[str, Any], caller: Row, before: Row | None
    ) -> str | None:
        """The call that this one comes after: its predecessor, or the model's last call.

        A model's tool calls run one after the other; calls from code may overlap.
        """
        if before is not None and before.caller == caller.id:
            return before.id
        return self._last_call.get(caller.id) if caller.kind == "model" else None

    def _root(self) -> int:
        self._branches = max(self._branches, 1)
        return 0

    def _branch(self, before: Row | None) -> tuple[int, bool]:
        """The branch of a node of the conversation, and whether it starts there as a fork."""
        if before is None:
            if (0, 0) not in self.lanes:
                return self._root(), False
        elif before.id not in self._continued:
            self._continued.add(before.id)
            return before.branch, False
        self._branches += 1
        return self._branches - 1, True


def lay_out(nodes: Iterable[Mapping[str, Any]], *, fold: bool = True) -> Layout:
    """The layout of *nodes*, in order."""
    layout = Layout(fold=fold)
    for node in nodes:
        layout.add(node)
    return layout
