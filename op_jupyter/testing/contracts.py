"""Contracts that every implementation of a seam has to keep; one test per promise.

Inherit, and provide the fixture named in the class:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self): return MyStore()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from op_jupyter.core.graph import MAIN, Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import (
    GraphError,
    InvalidSessionId,
    ReadOnlySession,
    SessionLocked,
    StoreError,
    UnknownNode,
    UnknownSession,
)
from op_jupyter.store.base import Change, Decided, Ended, Fill, OpenSession, Store, Tip

Reopen = Callable[[OpenSession], OpenSession]


def picture(dag: Dag) -> dict[str, Any]:
    """Everything *dag* says, as plain values that compare."""
    return {
        "nodes": list(dag),
        "turns": list(dag.turns.values()),
        "decisions": list(dag.decisions),
        "checkpoints": list(dag.checkpoints),
        "meta": dict(dag.meta),
        "branches": dict(dag.branches),
        "active": dag.active_branch,
        "last_seq": dag.last_seq,
        "children": {n.id: [c.id for c in dag.children(n.id)] for n in dag},
        "followers": {n.id: [c.id for c in dag.followers(n.id)] for n in dag},
    }


class StoreContract:
    """What a `Store` promises.  Provide ``store``, an empty one.

    `crash` has to drop the store's writers as ``kill -9`` would.
    """

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("give the contract an empty store to test")

    def crash(self, store: Store) -> None:
        """Drop every writer of *store* without closing it."""
        raise NotImplementedError("drop the store's writers without closing them")

    @pytest.fixture
    def session(self, store: Store) -> OpenSession:
        return store.open(store.create_session("s1", title="first"))

    @pytest.fixture
    def reopen(self, store: Store) -> Reopen:
        def close_and_open(session: OpenSession) -> OpenSession:
            session.close()
            return store.open(session.session_id)

        return close_and_open

    # -- sessions

    def test_a_new_session_has_the_id_that_was_asked_for(self, store: Store) -> None:
        assert store.create_session("mine") == "mine"
        assert store.exists("mine")

    def test_without_an_id_each_session_gets_its_own(self, store: Store) -> None:
        assert store.create_session() != store.create_session()

    def test_an_id_that_is_taken_is_refused(self, store: Store, session: OpenSession) -> None:
        session.append(Node("n1", "user", "user"))
        with pytest.raises(StoreError, match="taken"):
            store.create_session("s1")

    def test_a_session_is_created_as_a_whole_or_not_at_all(self, store: Store) -> None:
        with pytest.raises(ValueError, match="half way"), store.creating("s2") as session:
            session.append(Node("n1", "user", "user"))
            assert not store.exists("s2")
            raise ValueError("half way")
        assert not store.exists("s2")
        with store.creating("s2") as session:
            session.set_meta(title="second")
            session.append(Node("n1", "user", "user", status="completed"))
            assert store.sessions() == []
        assert [info.title for info in store.sessions()] == ["second"]
        assert store.load("s2").meta["id"] == "s2"
        store.open("s2").close()
        with pytest.raises(StoreError, match="taken"), store.creating("s2"):
            raise AssertionError("never comes here")

    @pytest.mark.parametrize("bad", ["..", "a/b", "", "a..b", ".hidden", "x" * 129, "a b"])
    def test_an_unsafe_id_is_refused_everywhere(self, store: Store, bad: str) -> None:
        for call in (store.create_session, store.exists, store.open, store.load, store.delete):
            with pytest.raises(InvalidSessionId):
                call(bad)

    def test_an_unknown_session_is_an_error_that_names_the_nearest(self, store: Store) -> None:
        session = store.open(store.create_session("research-1"))
        session.append(Node("n1", "user", "user"))
        session.close()
        for call in (store.open, store.load, store.delete):
            with pytest.raises(UnknownSession, match="research-1") as caught:
                call("reserch-1")
            assert list(caught.value.nearest) == ["research-1"]

    def test_what_it_was_created_with_is_in_its_metadata(self, session: OpenSession) -> None:
        session.append(Node("n1", "user", "user"))
        assert session.dag.meta["title"] == "first"
        assert session.dag.meta["id"] == "s1"

    def test_metadata_that_is_not_json_creates_nothing(self, store: Store) -> None:
        with pytest.raises(GraphError):
            store.create_session("s2", tool=object())
        assert not store.exists("s2")

    def test_a_session_without_a_record_is_not_listed(self, store: Store) -> None:
        store.open(store.create_session("empty")).close()
        assert store.sessions() == []

    def test_the_list_has_the_newest_first(self, store: Store) -> None:
        for session_id in ("a", "b", "c"):
            session = store.open(store.create_session(session_id, title=session_id.upper()))
            session.begin_turn(Turn("t1", subject="hello"))
            session.end_turn("t1", "completed")
            session.close()
        assert [(s.id, s.title, s.turns, s.last_status) for s in store.sessions()] == [
            ("c", "C", 1, "completed"),
            ("b", "B", 1, "completed"),
            ("a", "A", 1, "completed"),
        ]
        assert [s.id for s in store.sessions(limit=1)] == ["c"]

    def test_deleting_moves_to_the_trash_and_restoring_brings_back(
        self, store: Store, session: OpenSession
    ) -> None:
        session.append(Node("n1", "user", "user", input="hello"))
        before = picture(session.snapshot())
        session.close()
        store.delete("s1")
        assert not store.exists("s1")
        with pytest.raises(UnknownSession):
            store.open("s1")
        store.restore("s1")
        assert picture(store.load("s1")) == before

    def test_purging_is_for_good(self, store: Store, session: OpenSession) -> None:
        session.append(Node("n1", "user", "user"))
        session.close()
        store.delete("s1")
        store.purge("s1")
        for call in (store.restore, store.purge):
            with pytest.raises(UnknownSession, match="trash"):
                call("s1")

    def test_the_id_of_a_deleted_session_is_free_again(
        self, store: Store, session: OpenSession
    ) -> None:
        session.append(Node("old", "user", "user"))
        session.close()
        store.delete("s1")
        again = store.open(store.create_session("s1"))
        again.append(Node("new", "user", "user"))
        again.close()
        with pytest.raises(StoreError, match="taken"):
            store.restore("s1")
        store.delete("s1")
        store.restore("s1")
        assert [n.id for n in store.load("s1")] == ["new"]

    def test_a_session_that_is_open_for_writing_cannot_be_deleted(
        self, store: Store, session: OpenSession
    ) -> None:
        session.append(Node("n1", "user", "user"))
        with pytest.raises(SessionLocked):
            store.delete("s1")
        assert session.append(Node("n2", "user", "user")).id == "n2"

    # -- one writer

    def test_a_second_writer_is_refused_and_told_the_ways_on(
        self, store: Store, session: OpenSession
    ) -> None:
        session.append(Node("n1", "user", "user"))
        with pytest.raises(SessionLocked, match="this process") as caught:
            store.open("s1")
        assert caught.value.holder is not None
        assert "read" in str(caught.value)

    def test_closing_lets_the_next_writer_in(self, session: OpenSession, reopen: Reopen) -> None:
        session.append(Node("n1", "user", "user"))
        again = reopen(session)
        assert again.append(Node("n2", "user", "user", predecessor="n1")).seq > 1
        again.close()
        again.close()

    def test_waiting_for_the_writer_ends_when_it_closes(
        self, store: Store, session: OpenSession
    ) -> None:
        session.append(Node("n1", "user", "user"))
        closer = threading.Timer(0.05, session.close)
        closer.start()
        store.open("s1", timeout=20).close()
        closer.join()

    def test_a_closed_session_takes_nothing_more(self, session: OpenSession) -> None:
        session.append(Node("n1", "user", "user"))
        session.close()
        with pytest.raises(ReadOnlySession, match="closed"):
            session.append(Node("n2", "user", "user"))
        assert [n.id for n in session.dag] == ["n1"]

    def test_readers_see_what_is_stored_and_write_nothing(
        self, store: Store, session: OpenSession
    ) -> None:
        session.begin_turn(Turn("t1"))
        session.append(Node("n1", "user", "user"))
        reader = store.open("s1", "read")
        assert picture(reader.snapshot()) == picture(session.snapshot())
        assert reader.status.read_only
        for change in _every_change(reader):
            with pytest.raises(ReadOnlySession):
                change()
        reader.close()
        assert picture(store.load("s1")) == picture(session.snapshot())

    # -- nodes

    def test_an_appended_node_has_a_seq_and_a_time(self, session: OpenSession) -> None:
        first = session.append(Node("n1", "user", "user", input="hello"))
        second = session.append(Node("n2", "llm", "model", predecessor="n1"))
        assert 0 < first.seq < second.seq
        assert first.created_at.startswith("20")
        assert session.dag.node("n1") == first

    def test_a_seq_that_is_given_is_kept_when_it_is_above(self, session: OpenSession) -> None:
        assert session.append(Node("n1", "user", "user", seq=500)).seq == 500
        assert session.append(Node("n2", "user", "user")).seq == 501
        with pytest.raises(GraphError, match="seq"):
            session.append(Node("n3", "user", "user", seq=500))

    @pytest.mark.parametrize(
        "bad",
        [
            Node("n1", "user", "user"),
            Node("", "user", "user"),
            Node("x" * 1000, "user", "user"),
            Node("n2", "user", "user", caller="nobody"),
            Node("n2", "user", "user", predecessor="nobody"),
            Node("n2", "poet", "user"),  # type: ignore[arg-type]
            Node("n2", "user", "user", status="fine"),  # type: ignore[arg-type]
        ],
        ids=["id taken", "no id", "long id", "caller", "predecessor", "role", "status"],
    )
    def test_a_node_that_breaks_the_graph_is_refused(
        self, session: OpenSession, reopen: Reopen, bad: Node
    ) -> None:
        session.append(Node("n1", "user", "user"))
        _refused(session, lambda: session.append(bad))
        _refused(session, lambda: session.append_many([Node("n3", "user", "user"), bad]))
        again = reopen(session)
        assert [n.id for n in again.dag] == ["n1"]

    def test_several_nodes_are_appended_as_one(self, session: OpenSession) -> None:
        stored = session.append_many(
            [Node("a", "code", "f"), Node("b", "code", "g", caller="a"), Node("c", "code", "h")]
        )
        assert [n.id for n in session.dag.children(None)] == ["a", "c"]
        assert [n.seq for n in stored] == sorted(n.seq for n in stored)
        assert session.append_many([]) == []

    def test_changes_of_several_kinds_are_stored_as_one_in_their_order(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        session.append(Node("a", "code", "f"))
        stored = session.write(
            [
                Node(
                    "b", "llm", "m", status="completed", caller="a", seq=7, metadata={"done_seq": 9}
                ),
                Node("c", "llm", "m", status="completed", caller="b", seq=8),
                Decided({"tool_call_id": "x"}),
                Fill("a", {"status": "completed", "metadata": {"done_seq": 11}}),
                Node("d", "code", "g", status="completed"),
            ]
        )
        assert [(n.id, n.seq) for n in stored[1:3]] == [("c", 8), ("a", stored[2].seq)]
        assert (stored[-1].seq, session.dag.last_seq) == (12, 12)
        again = reopen(session)
        assert list(again.dag) == list(session.dag) and again.dag.last_seq == 12
        assert again.dag.node("a").status == "completed"
        assert list(again.dag.decisions) == [{"tool_call_id": "x"}]

    @pytest.mark.parametrize(
        "bad",
        [
            Fill("c", {"status": "completed"}),
            Fill("a", {"input": 1}),
            Decided({"x": object()}),
            Node("a", "code", "f"),
        ],
        ids=["a node of the same write", "input", "no JSON", "id taken"],
    )
    def test_one_change_that_is_refused_refuses_all(
        self, session: OpenSession, bad: Change
    ) -> None:
        session.append(Node("a", "code", "f"))
        fill = Fill("a", {"status": "completed"})
        _refused(session, lambda: session.write([Node("c", "code", "f"), fill, bad]))

    def test_a_turn_begins_with_its_prompt_and_ends_with_its_answer(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        asked = Node("q", "user", "user", input="?", status="completed", metadata={"turn_id": "t1"})
        assert session.write([Turn("t1", subject="what"), Tip(asked)]) == [session.dag.node("q")]
        assert (session.dag.head, session.dag.turns["t1"].status) == ("q", "running")
        said = Node("a", "llm", "m", predecessor="q", metadata={"turn_id": "t1"})
        session.append(said, advance_head=True)
        fill = Fill("a", {"status": "completed", "output": "!"})
        session.write([fill, Ended("t1", "completed", metadata={"steps": 1})])
        again = reopen(session)
        turn = again.dag.turns["t1"]
        assert (turn.status, turn.metadata, again.dag.head) == ("completed", {"steps": 1}, "a")
        assert turn.finished_at
        assert list(again.dag) == list(session.dag)

    def test_a_turn_that_goes_on_elsewhere_forks_with_its_first_node(
        self, session: OpenSession
    ) -> None:
        _turn(session, "t1", base=None, nodes=["n0", "n1"])
        session.write([Turn("t9", base="n0"), Tip(Node("n9", "user", "user", predecessor="n0"))])
        assert (session.dag.active_branch, session.dag.head) == ("fork-2", "n9")
        assert session.dag.branches["main"] == "n1"

    def test_a_turn_may_begin_and_end_at_once(self, session: OpenSession, reopen: Reopen) -> None:
        session.write([Turn("c1", kind="call"), Ended("c1", "failed", {"code": "model_error"})])
        assert reopen(session).dag.turns["c1"].failure == {"code": "model_error"}

    @pytest.mark.parametrize(
        "changes",
        [
            [Turn("t1"), Node("a", "code", "f")],
            [Turn("t2"), Node("b", "code", "f", caller="nobody")],
            [Turn("t2", base="nobody"), Tip(Node("b", "user", "user"))],
            [Turn("t2"), Tip(Node("a", "user", "user"))],
            [Fill("a", {"status": "completed"}), Ended("nobody", "completed")],
            [Fill("a", {"status": "completed"}), Ended("t1", "running")],
            [Turn("t2"), Ended("t2", "completed", {"x": object()})],
        ],
        ids=["turn taken", "caller", "base", "id taken", "no turn", "no end", "no JSON"],
    )
    def test_a_turn_and_a_node_are_stored_both_or_neither(
        self, session: OpenSession, changes: Sequence[Change]
    ) -> None:
        session.begin_turn(Turn("t1"))
        session.append(Node("a", "code", "f"))
        _refused(session, lambda: session.write(changes))

    def test_an_update_fills_fields_in(self, session: OpenSession, reopen: Reopen) -> None:
        session.append(Node("n1", "code", "f", input={"x": 1}, metadata={"kind": "tool"}))
        session.update("n1", output=[1, 2], status="completed", metadata={"seconds": 0.5})
        again = reopen(session)
        node = again.dag.node("n1")
        assert (node.input, node.output, node.status) == ({"x": 1}, [1, 2], "completed")
        assert node.metadata == {"kind": "tool", "seconds": 0.5}

    @pytest.mark.parametrize(
        ("node_id", "fields"),
        [
            ("nobody", {"output": 1}),
            ("n1", {"input": 1}),
            ("n1", {"seq": 9}),
            ("n1", {"predecessor": "n1"}),
            ("n1", {"status": "fine"}),
            ("n1", {"metadata": 3}),
        ],
    )
    def test_an_update_of_what_may_not_change_is_refused(
        self, session: OpenSession, node_id: str, fields: dict[str, Any]
    ) -> None:
        session.append(Node("n1", "code", "f", input=0))
        _refused(session, lambda: session.update(node_id, **fields))

    @pytest.mark.parametrize("name", ["value", "in a list", "as a key"])
    @pytest.mark.parametrize(
        "bad",
        [float("nan"), float("inf"), {1, 2}, object(), b"bytes", "half a pair \ud83d"],
        ids=["nan", "inf", "set", "object", "bytes", "surrogate"],
    )
    def test_what_json_cannot_hold_is_refused_before_anything_is_written(
        self, session: OpenSession, reopen: Reopen, bad: Any, name: str
    ) -> None:
        session.append(Node("n1", "code", "f"))
        if name == "as a key":
            value: Any = {bad: 1} if isinstance(bad, str | bytes) else {"x": bad}
        else:
            value = {"deep": [1, [bad]]} if name == "in a list" else bad
        _refused(session, lambda: session.append(Node("n2", "code", "f", input=value)))
        _refused(session, lambda: session.update("n1", output=value))
        _refused(session, lambda: session.set_meta(value=value))
        _refused(session, lambda: session.record_decision({"value": value}))
        assert [n.id for n in reopen(session).dag] == ["n1"]

    def test_what_nests_too_deeply_or_in_a_circle_is_refused(self, session: OpenSession) -> None:
        session.append(Node("n1", "code", "f"))
        circle: list[Any] = []
        circle.append(circle)
        for value in (_nested(250), _nested(50_000), circle):
            update = partial(session.update, "n1", output=value)
            _refused(session, update, match="output of 'n1'")
        session.update("n1", output=_nested(150))

    def test_what_is_stored_is_a_copy_and_plain_json(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        given = {"rows": (1, 2), "text": "naïve 漢字 \u2028 \x00 🎉", "e": 1e-9, "none": None}
        node = session.append(Node("n1", "code", "f", input=given))
        given["rows"] = "changed afterwards"
        expected = {"rows": [1, 2], "text": "naïve 漢字 \u2028 \x00 🎉", "e": 1e-9, "none": None}
        assert node.input == session.dag.node("n1").input == expected
        assert reopen(session).dag.node("n1").input == expected

    def test_empty_values_are_not_the_same_as_none(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        values: list[Any] = [{}, [], "", 0, False, None]
        for number, value in enumerate(values):
            session.append(Node(f"n{number}", "code", "f", input=value, output=value))
        stored = [(n.input, n.output) for n in reopen(session).dag]
        assert stored == [(v, v) for v in values]

    def test_large_values_come_back_whole(self, session: OpenSession, reopen: Reopen) -> None:
        text, table = (
            "naïve 漢字\n" * 100_000,
            [{"row": i, "cells": ["x"] * 10} for i in range(9000)],
        )
        session.append(Node("n1", "code", "f", input=text, metadata={"big": text}))
        session.update("n1", output=table, status="completed")
        session.append(Node("n2", "code", "f", input=text))
        again = reopen(session)
        assert again.dag.node("n1").input == again.dag.node("n2").input == text
        assert again.dag.node("n1").output == table
        assert again.dag.node("n1").metadata == {"big": text}

    def test_blobs_are_kept_once_by_content(self, session: OpenSession, reopen: Reopen) -> None:
        session.append(Node("n1", "user", "user"))
        digest = session.put_blob(b"\x00\xffbytes", "image/png")
        assert session.put_blob(b"\x00\xffbytes", "image/png") == digest
        assert reopen(session).read_blob(digest) == b"\x00\xffbytes"

    def test_a_blob_that_is_not_there_is_an_error(self, session: OpenSession) -> None:
        session.append(Node("n1", "user", "user"))
        with pytest.raises(StoreError, match="keeps nothing"):
            session.read_blob("0" * 64)
        with pytest.raises(StoreError, match="not a sha256"):
            session.read_blob("../../etc/passwd")

    # -- turns, branches, the head

    def test_the_head_advances_only_when_asked(self, session: OpenSession, reopen: Reopen) -> None:
        session.append(Node("n1", "user", "user"), advance_head=True)
        session.append(Node("n2", "code", "f", caller="n1"))
        assert session.dag.head == "n1"
        assert [n.id for n in reopen(session).dag.spine()] == ["n1"]

    def test_a_turn_that_follows_the_head_stays_on_its_branch(self, session: OpenSession) -> None:
        _turn(session, "t1", base=None, nodes=["a"])
        _turn(session, "t2", base="a", nodes=["b"])
        assert session.dag.branches == {MAIN: "b"}
        assert [t.status for t in session.dag.turns.values()] == ["completed"] * 2

    def test_a_turn_that_follows_something_older_forks(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        _turn(session, "t1", base=None, nodes=["a"])
        _turn(session, "t2", base="a", nodes=["b"])
        _turn(session, "t3", base="a", nodes=["c"])
        _turn(session, "t4", base=None, nodes=["d"])
        again = reopen(session)
        assert again.dag.branches == {MAIN: "b", "fork-2": "c", "fork-3": "d"}
        assert again.dag.active_branch == "fork-3"
        assert [n.id for n in again.dag.spine("c")] == ["a", "c"]
        assert [n.id for n in again.dag.followers("a")] == ["b", "c"]

    def test_bare_calls_never_fork(self, session: OpenSession) -> None:
        _turn(session, "t1", base=None, nodes=["a"])
        session.begin_turn(Turn("c1", kind="call", base="a"))
        _turn(session, "t2", base="a", nodes=["b"])
        session.begin_turn(Turn("c2", kind="call", base="a"))
        session.end_turn("c2", "completed")
        session.end_turn("c1", "completed")
        assert session.dag.branches == {MAIN: "b"}

    def test_a_turn_is_found_by_its_request_also_after_reopening(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        session.begin_turn(Turn("t1", client_request_id="request-1", subject="hello"))
        failure = {"code": "doom_loop", "message": "again and again"}
        session.end_turn("t1", "failed", failure=failure, metadata={"steps": 3})
        turn = reopen(session).dag.turn_by_request("request-1")
        assert turn is not None
        assert (turn.id, turn.status, turn.failure) == ("t1", "failed", failure)
        assert turn.metadata["steps"] == 3
        assert turn.started_at <= (turn.finished_at or "")

    def test_turns_that_break_the_rules_are_refused(self, session: OpenSession) -> None:
        session.begin_turn(Turn("t1"))
        session.begin_turn(Turn("t2", kind="call"))
        session.end_turn("t2", "completed")
        _refused(session, lambda: session.begin_turn(Turn("t1")))
        _refused(session, lambda: session.begin_turn(Turn("t3", base="nobody")))
        _refused(session, lambda: session.begin_turn(Turn("")))
        _refused(session, lambda: session.begin_turn(Turn("t3", status="completed")))
        _refused(session, lambda: session.end_turn("t2", "completed"))
        _refused(session, lambda: session.end_turn("nobody", "completed"))
        _refused(session, lambda: session.end_turn("t1", "running"))

    def test_branches_are_made_moved_and_left(self, session: OpenSession, reopen: Reopen) -> None:
        _turn(session, "t1", base=None, nodes=["a", "b", "c"])
        session.branch("idea", "b")
        session.branch("aside", "a", activate=False)
        assert (session.dag.active_branch, session.dag.head) == ("idea", "b")
        session.set_head("a")
        session.branch(MAIN, "c")
        again = reopen(session)
        assert again.dag.branches == {MAIN: "c", "idea": "a", "aside": "a"}
        assert again.dag.active_branch == MAIN

    @pytest.mark.parametrize(
        "bad", ["", "a/b", "..", "a..b", ".a", "a.", "-a", "a b", "a.lock", "HEAD", "a~1", "é"]
    )
    def test_a_branch_name_that_git_would_refuse_is_refused(
        self, session: OpenSession, bad: str
    ) -> None:
        session.append(Node("a", "user", "user"), advance_head=True)
        _refused(session, lambda: session.branch(bad, "a"))

    def test_a_branch_points_at_a_node_or_nowhere(self, session: OpenSession) -> None:
        session.append(Node("a", "user", "user"), advance_head=True)
        _refused(session, lambda: session.branch("idea", "nobody"))
        _refused(session, lambda: session.set_head("nobody"))
        session.set_head(None)
        assert session.dag.spine() == []

    def test_decisions_checkpoints_and_metadata_are_kept(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        session.record_decision({"call_id": "c1", "answer": "allow"})
        session.record_checkpoint({"node": "n9", "covers": ["n1", "n2"]})
        session.set_meta(title="second", mode="auto")
        session.set_meta(mode="read_only")
        dag = reopen(session).dag
        assert dag.decisions == [{"call_id": "c1", "answer": "allow"}]
        assert dag.checkpoints == [{"node": "n9", "covers": ["n1", "n2"]}]
        assert (dag.meta["title"], dag.meta["mode"]) == ("second", "read_only")

    # -- reopening

    def test_one_node_is_looked_at_without_the_others(
        self, store: Store, session: OpenSession
    ) -> None:
        session.append(Node("a", "user", "user"), advance_head=True)
        about = {"turn_id": "t", "tool_call_id": "c"}
        session.append(Node('b"\n', "code", "look", {"at": "b"}, caller="a", metadata=about))
        session.append(Node("c", "llm", "m", {"of": 'b"\n'}, predecessor="a"), advance_head=True)
        session.update('b"\n', output="x" * 100_000, status="completed", metadata={"seconds": 1})
        decision = {"tool_call_id": "c", "turn_id": "t", "answer": "allow_once"}
        session.record_decision(decision)
        session.close()

        whole, excerpt = store.load("s1"), store.load_node("s1", 'b"\n')
        node = excerpt.node('b"\n')
        alone = [replace(n, caller=None) for n in (node, whole.node(node.id))]
        assert alone[0] == alone[1]
        assert excerpt.decision_of(node) == decision
        with pytest.raises(UnknownNode):
            store.load_node("s1", "nowhere\ud800").node("nowhere\ud800")
        with pytest.raises(UnknownSession):
            store.load_node("other", "a")

    def test_closing_and_opening_changes_nothing(
        self, session: OpenSession, reopen: Reopen
    ) -> None:
        _turn(session, "t1", base=None, nodes=["a", "b"])
        _turn(session, "t2", base="a", nodes=["c"])
        before = picture(session.snapshot())
        again = reopen(session)
        assert picture(again.snapshot()) == before
        assert again.status.repaired == ()

    def test_a_crash_loses_nothing_and_interrupts_what_was_running(
        self, store: Store, session: OpenSession
    ) -> None:
        session.begin_turn(Turn("t1", subject="plot it"))
        session.append(Node("u", "user", "user", status="completed", metadata={"turn_id": "t1"}))
        session.append(Node("m", "llm", "model", predecessor="u", metadata={"turn_id": "t1"}))
        session.begin_turn(Turn("c1", kind="call"))
        session.append(Node("f", "code", "f", input=[1], metadata={"turn_id": "c1"}))
        self.crash(store)

        again = store.open("s1")
        assert [n.status for n in again.dag] == ["completed", "interrupted", "interrupted"]
        assert again.dag.node("f").input == [1]
        assert again.dag.node("m").metadata["error"]["code"] == "process_restart"
        for turn in again.dag.turns.values():
            assert turn.status == "interrupted"
            assert turn.failure is not None
            assert turn.failure["code"] == "process_restart"
        assert any("plot it" in said for said in again.status.repaired)
        assert again.append(Node("next", "user", "user", predecessor="u")).seq > 5

    def test_repair_happens_once(self, store: Store, session: OpenSession) -> None:
        session.begin_turn(Turn("t1"))
        session.append(Node("n1", "user", "user", metadata={"turn_id": "t1"}))
        self.crash(store)
        repaired = store.open("s1")
        first = picture(repaired.snapshot())
        self.crash(store)
        again = store.open("s1")
        assert picture(again.snapshot()) == first == picture(store.load("s1"))
        assert again.status.repaired == ()

    def test_a_snapshot_stays_as_it_was(self, session: OpenSession) -> None:
        session.append(Node("a", "code", "f"), advance_head=True)
        before = session.snapshot()
        session.update("a", output=1, status="completed")
        session.append(Node("b", "code", "g", caller="a", predecessor="a"))
        assert len(before) == 1
        assert before.node("a").status == "running"
        assert before.children("a") == []

    def test_threads_may_append_at_once(self, session: OpenSession, reopen: Reopen) -> None:
        def work(name: str) -> None:
            for number in range(20):
                session.append(Node(f"{name}{number}", "code", "f"))
                session.update(f"{name}{number}", status="completed")

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        nodes = list(reopen(session).dag)
        assert len(nodes) == 80
        assert [n.seq for n in nodes] == sorted({n.seq for n in nodes})
        assert {n.status for n in nodes} == {"completed"}


def _turn(session: OpenSession, turn_id: str, *, base: str | None, nodes: list[str]) -> None:
    session.begin_turn(Turn(turn_id, base=base, subject=turn_id))
    for node_id in nodes:
        node = Node(node_id, "user", "user", predecessor=base, metadata={"turn_id": turn_id})
        session.append(node, advance_head=True)
        session.update(node_id, status="completed")
        base = node_id
    session.end_turn(turn_id, "completed")


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _refused(session: OpenSession, call: Callable[[], Any], match: str | None = None) -> None:
    before = picture(session.snapshot())
    with pytest.raises(GraphError, match=match):
        call()
    assert picture(session.snapshot()) == before


def _every_change(session: OpenSession) -> list[Callable[[], Any]]:
    return [
        lambda: session.append(Node("x", "user", "user")),
        lambda: session.append_many([Node("x", "user", "user")]),
        lambda: session.update("n1", status="completed"),
        lambda: session.begin_turn(Turn("t9")),
        lambda: session.end_turn("t1", "completed"),
        lambda: session.record_decision({}),
        lambda: session.record_checkpoint({}),
        lambda: session.set_head("n1"),
        lambda: session.branch("idea", "n1"),
        lambda: session.set_meta(title="x"),
        lambda: session.put_blob(b"x", "text/plain"),
    ]
