"""Rows and lanes: append-only, the same in Python and in the browser."""

from dataclasses import asdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from views import stories
from views.strategies import STATUSES, graphs
from views.twins import Twins

from op_jupyter.views.layout import Layout, Row, lay_out


def node(node_id: str, kind: str = "model", name: str = "", **more: Any) -> dict[str, Any]:
    return stories.node(node_id, kind, name or kind, **more)


def places(layout: Layout) -> dict[str, tuple[int, int]]:
    return {row.id: (row.row, row.lane) for row in layout.rows}


def test_a_conversation_runs_down_one_lane() -> None:
    layout = lay_out([node("u", "user"), node("m", predecessor="u"), node("v", predecessor="m")])
    assert places(layout) == {"u": (0, 0), "m": (1, 0), "v": (2, 0)}
    assert [row.after for row in layout.rows] == [None, "u", "m"]


def test_a_second_follower_starts_a_branch_in_a_new_lane() -> None:
    layout = lay_out(
        [node("u", "user"), node("a", "user", predecessor="u"), node("b", "user", predecessor="u")]
    )
    assert places(layout)["b"] == (2, 1)
    assert [row.forked for row in layout.rows] == [False, False, True]


def test_what_is_called_stands_one_lane_deeper_and_after_the_call_before() -> None:
    layout = lay_out(
        [node("m"), node("t1", "tool", "read", caller="m"), node("t2", "tool", "run", caller="m")]
    )
    assert places(layout) == {"m": (0, 0), "t1": (1, 1), "t2": (2, 1)}
    assert (layout.rows[2].after, layout.rows[2].caller) == ("t1", "m")


def test_a_loop_in_code_is_one_row_with_its_most_urgent_status() -> None:
    layout = lay_out(
        [node("t", "tool")]
        + [node(f"f{i}", "function", "review", caller="t") for i in range(3)]
        + [node(f"m{i}", caller=f"f{i}", status="running") for i in range(3)]
    )
    assert [len(row.members) for row in layout.rows] == [1, 3, 3]
    assert layout.rows[2].status == "running"
    for index, status in enumerate(["completed", "error", "completed"]):
        layout.update(f"m{index}", status)
    assert layout.rows[2].status == "error"


def test_calls_that_a_model_makes_never_fold() -> None:
    layout = lay_out([node("m"), *(node(f"t{i}", "tool", "run", caller="m") for i in range(3))])
    assert len(layout.rows) == 4


def test_calls_from_cells_hang_beside_the_conversation_and_fork_nothing() -> None:
    calls = [node(f"c{i}", "function", "review", predecessor="u") for i in range(3)]
    layout = lay_out([node("u", "user"), *calls, node("v", "user", predecessor="u")])
    assert places(layout) == {"u": (0, 0), "c0": (1, 1), "v": (2, 0)}
    assert not any(row.forked for row in layout.rows)


def test_unfolded_every_node_has_its_own_row() -> None:
    nodes = [node("t", "tool"), *(node(f"f{i}", "function", "f", caller="t") for i in range(3))]
    assert len(lay_out(nodes, fold=False).rows) == 4


def place_of(row: Row) -> tuple[object, ...]:
    return (row.id, row.row, row.lane, row.branch, row.depth, row.caller, row.after, row.forked)


@given(nodes=graphs(), fold=st.booleans())
def test_a_new_node_never_moves_an_old_one(nodes: list[dict[str, Any]], fold: bool) -> None:
    layout = Layout(fold=fold)
    before: list[tuple[object, ...]] = []
    for each in nodes:
        layout.add(each)
        now = [place_of(row) for row in layout.rows]
        assert now[: len(before)] == before
        assert len(now) - len(before) in (0, 1)
        before = now


@given(nodes=graphs())
def test_no_two_rows_share_a_place_and_edges_point_up(nodes: list[dict[str, Any]]) -> None:
    layout = lay_out(nodes)
    assert [row.row for row in layout.rows] == list(range(len(layout.rows)))
    members = [member for row in layout.rows for member in row.members]
    assert sorted(members) == sorted(n["id"] for n in nodes)
    for row in layout.rows:
        for other in (row.caller, row.after):
            if other is not None:
                above = layout.row_of(other)
                assert above is not None
                assert above.row < row.row


@settings(max_examples=80, deadline=None)
@given(
    nodes=graphs(),
    fold=st.booleans(),
    changes=st.lists(
        st.tuples(st.sampled_from([f"n{i}" for i in range(12)]), st.sampled_from(STATUSES)),
        max_size=8,
    ),
)
def test_the_browser_lays_out_the_same_rows(
    twins: Twins,
    nodes: list[dict[str, Any]],
    fold: bool,
    changes: list[tuple[str, str]],
) -> None:
    layout = lay_out(nodes, fold=fold)
    for node_id, status in changes:
        layout.update(node_id, status)
    drawn = twins("layOut", {"nodes": nodes, "changes": changes, "fold": fold})
    assert drawn == [{**asdict(row), "status": row.status} for row in layout.rows]
