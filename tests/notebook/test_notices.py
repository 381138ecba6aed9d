"""The line to the lab extension: what pages are told, and which of their messages count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from comm.base_comm import BaseComm

from op_jupyter.core.questions import Question
from op_jupyter.core.turn import Outcome
from op_jupyter.engine import loop, registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.notebook.notices import COMM_TARGET, Notices
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import FakeTool, start_in_background, wait_until


class Line(BaseComm):
    """A comm whose other end is the test."""

    def __init__(self, **said: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.ended = False
        super().__init__(**said)

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        if msg_type == "comm_close":
            self.ended = True
        else:
            self.sent.append(data)

    def say(self, data: Any) -> None:
        """A message of the page."""
        self.handle_msg({"content": {"data": data}})

    @property
    def cards(self) -> list[dict[str, Any]]:
        """The cards that a page knows of."""
        cards: list[dict[str, Any]] = self.sent[-1]["cards"]
        return cards


@pytest.fixture
def session() -> Iterator[AgentSession]:
    store = MemoryStore()
    opened = registry.acquire(store, store.create_session("s1"))
    yield opened
    registry.release(opened)


@pytest.fixture
def lines() -> list[Line]:
    """The comms that were opened."""
    return []


@pytest.fixture
def notices(session: AgentSession, lines: list[Line]) -> Iterator[Notices]:
    def create(**said: Any) -> Line:
        lines.append(Line(**said))
        return lines[-1]

    notices = Notices(lambda: session, create)
    notices.follow(session)
    yield notices
    notices.close()


def waiting_card(session: AgentSession, tool: FakeTool) -> tuple[str, loop.Job[Outcome]]:
    """A turn whose tool call waits on its card."""
    provider = ScriptedProvider(
        reply(call("look", {"what": "\ud800 here"}, id="c1")), reply("done")
    )
    started = start_in_background(session, provider, [tool])
    loop.run_sync(wait_until, session, session.pending_cards)
    return started


@pytest.fixture
def tool() -> FakeTool:
    return FakeTool(effect="execute")


def test_a_page_is_told_of_a_card_until_somebody_answers_it(
    session: AgentSession, notices: Notices, lines: list[Line], tool: FakeTool
) -> None:
    notices.open()
    (line,) = lines
    assert line.target_name == COMM_TARGET
    assert (line.sent[0]["session_id"], line.cards) == ("s1", [])

    turn_id, job = waiting_card(session, tool)
    (card,) = line.cards
    assert (card["tool"], card["turn_id"]) == ("look", turn_id)
    line.say({"kind": "decide", "turn_id": turn_id, "id": card["id"], "answer": "allow"})

    assert job.future.result(10).status == "completed"
    assert len(tool.calls) == 1
    assert line.cards == []
    assert line.sent[-1]["ended"] == turn_id


def test_a_page_that_comes_later_asks_for_the_state(
    session: AgentSession, notices: Notices, lines: list[Line], tool: FakeTool
) -> None:
    turn_id, job = waiting_card(session, tool)
    notices.open()
    lines[0].sent.clear()

    lines[0].say({"kind": "hello"})

    assert [card["turn_id"] for card in lines[0].cards] == [turn_id]
    loop.run_sync(session.cancel_turn, turn_id)
    job.future.result(10)
    assert lines[0].cards == []


def test_a_page_is_told_where_a_card_is_shown(
    session: AgentSession, notices: Notices, lines: list[Line], tool: FakeTool
) -> None:
    notices.open()
    turn_id, job = waiting_card(session, tool)
    (request,) = session.pending_cards()
    assert "place" not in lines[0].cards[0]
    notices.placed(request, "widget-1")
    assert lines[0].cards[0]["place"] == "widget-1"
    loop.run_sync(session.cancel_turn, turn_id)
    job.future.result(10)
    notices.placed(request, "widget-2")  # too late
    assert lines[0].cards == []


@pytest.mark.parametrize(
    "said",
    [
        {"answer": "allow", "id": "other"},
        {"answer": "allow", "turn_id": "other"},
        {"answer": "everything"},
        {"answer": "deny_message", "message": " "},
        {"answer": "allow", "arguments": "rm"},
        {"answer": ["allow"]},
        {"answer": "allow", "id": {}},
        {"kind": "nonsense"},
    ],
)
def test_what_is_no_answer_to_a_waiting_card_changes_nothing(
    session: AgentSession, notices: Notices, lines: list[Line], tool: FakeTool, said: dict[str, Any]
) -> None:
    notices.open()
    turn_id, job = waiting_card(session, tool)

    lines[0].say({"kind": "decide", "turn_id": turn_id, "id": "c1", "answer": "allow", **said})
    lines[0].say([])
    lines[0].say({"kind": "decide", "turn_id": turn_id, "id": "c1", "answer": "deny"})

    assert job.future.result(10).status != "completed"
    assert tool.calls == []


def test_the_first_answer_wins(
    session: AgentSession, notices: Notices, lines: list[Line], tool: FakeTool
) -> None:
    notices.open()
    turn_id, job = waiting_card(session, tool)
    decision = {"kind": "decide", "turn_id": turn_id, "id": "c1"}

    lines[0].say({**decision, "answer": "deny"})
    lines[0].say({**decision, "answer": "allow"})

    job.future.result(10)
    assert tool.calls == []


def test_a_page_is_told_of_a_question_until_somebody_answers_it_or_the_turn_is_over(
    notices: Notices, lines: list[Line]
) -> None:
    notices.open()
    (line,) = lines
    question = Question("q1", "s1", "t1", "ask", "Which \ud800 one?\n" + "x" * 10_000)
    with notices.asking(question, "widget-1"):
        (told,) = line.sent[-1]["questions"]
        assert (told["id"], told["turn_id"], told["place"]) == ("q1", "t1", "widget-1")
        assert told["prompt"].startswith("Which \ufffd one?") and len(told["prompt"]) <= 120
        line.say({"kind": "hello"})
        assert len(line.sent[-1]["questions"]) == 1
    assert line.sent[-1]["questions"] == []
    with pytest.raises(asyncio.CancelledError), notices.asking(question, "widget-1"):
        raise asyncio.CancelledError
    assert line.sent[-1]["questions"] == []


def test_a_line_that_a_page_closed_is_opened_again_by_the_next_cell_with_an_agent(
    notices: Notices, lines: list[Line]
) -> None:
    notices.open(again=False)
    lines[0].handle_close({})
    notices.tell()
    notices.open(again=False)
    assert len(lines) == 1
    notices.open()
    notices.open(again=False)

    assert len(lines) == 2
    notices.close()
    notices.open()
    assert lines[1].ended
    assert len(lines) == 2
