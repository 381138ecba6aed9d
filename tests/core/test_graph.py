"""The graph answers questions in constant time, and lets nothing in that breaks it."""

from dataclasses import replace

import pytest

from op_jupyter.core.graph import MAIN, Dag, unfinished
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import GraphError, UnknownNode


def graph(*nodes: Node) -> Dag:
    dag = Dag("s")
    for seq, node in enumerate(nodes, 1):
        dag.check_node(node)
        dag.add(replace(node, seq=seq))
    return dag


@pytest.fixture
def dag() -> Dag:
    """Two prompts, the second forked; the first answer ran a function that called another."""
    dag = graph(
        Node("u1", "user", "user", status="completed"),
        Node("m1", "llm", "model", predecessor="u1"),
        Node("f", "code", "f", caller="m1"),
        Node("g", "code", "g", caller="f"),
        Node("u2", "user", "user", predecessor="m1", status="completed"),
        Node("h", "code", "h", caller="m1"),
        Node("u3", "user", "user", predecessor="m1", status="completed"),
    )
    dag.point(MAIN, "u2", activate=True)
    dag.point("fork-2", "u3", activate=False)
    return dag


def ids(nodes: list[Node]) -> list[str]:
    return [node.id for node in nodes]


def test_the_two_kinds_of_edge_are_not_mixed(dag: Dag) -> None:
    assert ids(dag.children("m1")) == ["f", "h"]
    assert ids(dag.followers("m1")) == ["u2", "u3"]
    assert ids(dag.children(None)) == ["u1", "m1", "u2", "u3"]
    assert ids(dag.followers(None)) == ["u1"]


def test_the_spine_is_the_conversation_up_to_the_head(dag: Dag) -> None:
    assert ids(dag.spine()) == ["u1", "m1", "u2"]
    assert ids(dag.spine("u3")) == ["u1", "m1", "u3"]
    dag.point("fork-2", "u3", activate=True)
    assert ids(dag.spine()) == ["u1", "m1", "u3"]
    dag.point(MAIN, None, activate=True)
    assert dag.spine() == []


def test_a_subtree_is_everything_that_was_executed_in_order(dag: Dag) -> None:
    assert ids(dag.subtree("m1")) == ["m1", "f", "g", "h"]
    assert ids(dag.subtree("g")) == ["g"]


def test_a_call_path_goes_from_the_outermost_caller_down(dag: Dag) -> None:
    assert ids(dag.call_path("g")) == ["m1", "f", "g"]
    assert dag.call_path(None) == []


def test_an_unknown_node_is_an_error_that_says_where_to_look(dag: Dag) -> None:
    for ask in (dag.node, dag.subtree, dag.spine, dag.call_path):
        with pytest.raises(UnknownNode, match="%agent history"):
            ask("nobody")


def test_filling_in_replaces_fields_and_merges_metadata(dag: Dag) -> None:
    dag.fill("f", {"metadata": {"a": 1}})
    node = dag.fill("f", {"output": None, "status": "completed", "metadata": {"b": 2}})
    assert (
        dag.node("f")
        == node
        == replace(
            graph(Node("f", "code", "f")).node("f"),
            seq=3,
            caller="m1",
            status="completed",
            metadata={"a": 1, "b": 2},
        )
    )


@pytest.mark.parametrize(
    ("kind", "base", "branch"),
    [
        ("agent", "u2", MAIN),
        ("agent", "m1", "fork-3"),
        ("agent", None, "fork-3"),
        ("compaction", "u3", "fork-3"),
        ("call", "m1", MAIN),
    ],
)
def test_a_line_forks_where_a_turn_does_not_follow_the_head(
    dag: Dag, kind: str, base: str | None, branch: str
) -> None:
    turn = Turn("t", kind=kind, base=base)  # type: ignore[arg-type]
    assert dag.branch_for(turn) == branch


def test_of_two_turns_with_one_request_the_last_counts() -> None:
    dag = Dag("s")
    for turn_id, request in [("t1", "r"), ("t2", "r"), ("t3", None)]:
        dag.open_turn(Turn(turn_id, client_request_id=request))
    found = dag.turn_by_request("r")
    assert found is not None
    assert found.id == "t2"
    assert dag.turn_by_request("other") is None


def test_what_still_runs_has_to_be_closed(dag: Dag) -> None:
    dag.open_turn(Turn("t1"))
    repair = unfinished(dag)
    assert repair
    assert repair.nodes == ("m1", "f", "g", "h")
    assert repair.turns == ("t1",)
    assert not unfinished(Dag("s"))


def test_a_copy_shares_nothing_that_changes(dag: Dag) -> None:
    copy = dag.copy()
    dag.add(Node("new", "code", "new", caller="m1", predecessor="u2", seq=99))
    dag.open_turn(Turn("t1"))
    dag.point("other", "u1", activate=True)
    dag.meta["a"] = 1
    assert len(copy) == 7
    assert ids(copy.children("m1")) == ["f", "h"]
    assert (copy.turns, copy.meta, copy.active_branch, copy.last_seq) == ({}, {}, MAIN, 7)


def test_a_node_may_hang_on_one_that_comes_with_it(dag: Dag) -> None:
    dag.check_node(Node("b", "code", "b", caller="a"), {"a"})
    with pytest.raises(GraphError, match="already"):
        dag.check_node(Node("a", "code", "a"), {"a"})
    with pytest.raises(GraphError, match="caller 'a'"):
        dag.check_node(Node("b", "code", "b", caller="a"))


@pytest.mark.parametrize("name", ["main", "fork-2", "idea_1", "a.b", "A", "_x"])
def test_a_branch_may_have_any_name_that_git_takes(name: str) -> None:
    Dag("s").check_branch(name)


def remembering() -> Dag:
    dag = Dag("s")
    dag.add(Node("a", "code", "f", status="completed", seq=1))
    dag.add(Node("b", "llm", "m", caller="a", seq=2))
    dag.add(Node("other", "code", "g", status="completed", seq=3))
    dag.remember("story", dag.node("a"), dag.last_seq, "made of a")
    return dag


def test_what_was_made_of_a_node_is_recalled_until_what_it_executed_changes() -> None:
    dag = remembering()
    dag.fill("other", {"output": 1})
    assert dag.recall("story", dag.node("a"), dag.last_seq) == "made of a"
    assert dag.recall("another story", dag.node("a"), dag.last_seq) is None
    dag.fill("b", {"status": "completed"})
    assert dag.recall("story", dag.node("a"), dag.last_seq + 1) is None


def test_what_was_made_is_not_recalled_for_a_seq_before_it_nor_after_a_new_child() -> None:
    dag = remembering()
    assert dag.recall("story", dag.node("a"), dag.last_seq - 1) is None
    dag.add(Node("c", "llm", "m", caller="b", seq=4))
    assert dag.recall("story", dag.node("a"), dag.last_seq) is None


def test_what_was_made_before_an_end_that_came_along_is_not_recalled_after_it() -> None:
    """A node that was recorded elsewhere arrives ended; a prompt of before did not see that."""
    dag = Dag("s")
    dag.add(Node("a", "code", "f", status="completed", seq=5, metadata={"done_seq": 9}))
    dag.remember("story", dag.node("a"), 7, "it runs")
    assert dag.recall("story", dag.node("a"), 9) is None


def test_the_model_calls_of_one_loop_are_made_and_forgotten_as_one() -> None:
    dag = Dag("s")
    dag.add(Node("a", "llm", "m", status="completed", seq=1, metadata={"frame": "x"}))
    dag.remember("story", dag.node("a"), 1, "one step")
    dag.add(Node("b", "llm", "m", predecessor="a", seq=2, metadata={"frame": "x"}))
    assert dag.recall("story", dag.node("a"), 2) is None
    dag.remember("story", dag.node("a"), 2, "two steps")
    dag.add(Node("c", "llm", "m", predecessor="a", seq=3, metadata={"frame": "y"}))
    assert dag.recall("story", dag.node("a"), 3) == "two steps"
