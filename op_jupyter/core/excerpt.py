"""The part of a graph that prompts of a running call can show: what a worker is given of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node

_CLOSED: Final = frozenset({"io", "hidden"})


def excerpt(dag: Dag, running: Collection[str]) -> Dag:
    """A graph that renders the same prompts as *dag*, inside the calls named in *running*.

    Left out is what no prompt shows: what happened inside of calls that are over and let
    nothing through, and calls that are under way elsewhere.
    """
    kept = Dag(
        dag.session_id,
        turns=dict(dag.turns),
        checkpoints=list(dag.checkpoints),
        meta=dict(dag.meta),
        branches=dict(dag.branches),
        active_branch=dag.active_branch,
        last_attempt_id=dag.last_attempt_id,
    )
    shut: set[str] = set()
    for node in dag:
        if node.caller is not None and node.caller in shut:
            shut.add(node.id)
            continue
        elsewhere = node.status == "running" and node.id not in running
        if elsewhere or _is_closed(node):
            shut.add(node.id)
        if not (elsewhere and node.metadata.get("kind") == "function"):
            kept.add(_light(node))
    kept.last_seq = dag.last_seq
    return kept


def _is_closed(node: Node) -> bool:
    """Whether nobody is told of what that call did inside."""
    if node.role != "code" or node.status == "running" or node.metadata.get("traced"):
        return False
    return node.metadata.get("kind") == "tool" or node.metadata.get("expose") in _CLOSED


def _light(node: Node) -> Node:
    metadata: Mapping[str, Any] = {
        key: value
        for key, value in node.metadata.items()
        if not key.startswith("gen_ai.") and key not in ("attempts", "label")
    }
    return replace(node, reads=None, metadata=metadata)
