"""Whole sessions: showing or exporting one twice as long takes twice the work, not four times.

The calls of functions are counted, which are the same in every run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from op_jupyter.cli.sessions import session_text
from op_jupyter.core.attempts import attempts_of, messages_of
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.engine.service import Service
from op_jupyter.store.base import OpenSession
from op_jupyter.store.documents import to_json
from op_jupyter.store.memory import MemoryStore
from op_jupyter.views import export
from op_jupyter.views.session_json import session_json

SIZES: Final = (15, 60)
"""Turns, of four nodes each."""


def filled(turns: int) -> tuple[MemoryStore, OpenSession]:
    """A session of *turns* turns: a prompt, a call and its tool, an answer."""
    store = MemoryStore()
    session = store.open(store.create_session("s"))
    for number in range(turns):
        write_turn(session, number)
    return store, session


def write_turn(session: OpenSession, number: int) -> None:
    turn = f"t{number}"
    session.begin_turn(Turn(turn, base=session.dag.head, subject=f"Question {number}"))
    about: dict[str, Any] = {"turn_id": turn}
    asked = [{"type": "text", "text": "What is it?"}]
    said = {"role": "assistant", "content": [{"type": "text", "text": "It is 42."}]}
    tool = {**about, "kind": "tool", "tool_call_id": f"c{number}"}
    got = {"state": "succeeded", "content": [{"type": "text", "text": "42"}]}
    before = session.dag.head
    for node in (
        Node(f"u{number}", "user", "user", asked, predecessor=before, metadata=about),
        Node(f"m{number}", "llm", "m", output=said, predecessor=f"u{number}", metadata=about),
        Node(f"c{number}", "code", "look", {}, got, caller=f"m{number}", metadata=tool),
        Node(f"a{number}", "llm", "m", output=said, predecessor=f"m{number}", metadata=about),
    ):
        session.append(node, advance_head=node.caller is None)
        session.update(node.id, status="completed")
    session.end_turn(turn, "completed", metadata={"answer": f"a{number}"})


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions *work* calls."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


WAYS: Final[dict[str, Callable[[MemoryStore, OpenSession], Any]]] = {
    "show": lambda store, _: session_text(Service(store), "s"),
    "the lab extension": lambda _, session: session_json(session.dag),
    "Markdown": lambda _, session: export.to_markdown(session.dag),
    "HTML": lambda _, session: export.to_html(session.dag),
    "a notebook": lambda _, session: export.to_notebook(session.dag),
    "JSON": lambda _, session: to_json(session.dag, session.read_blob),
    "attempts": lambda _, session: attempts_of(session.dag),
    "messages": lambda _, session: list(messages_of(session.dag)),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_work_of_showing_a_session_grows_no_faster_than_the_session(way: str) -> None:
    few, many = SIZES
    WAYS[way](*filled(few))  # what is made once
    counted = [calls_of(partial(WAYS[way], *filled(size))) for size in SIZES]
    assert counted[1] < counted[0] * (many / few) * 1.1
