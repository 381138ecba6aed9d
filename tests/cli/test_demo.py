"""The demo's judgement: the number that the tool computed stands in the answer, or it failed."""

from __future__ import annotations

from typing import Any

import pytest

from op_jupyter.cli.demo import check_answers, holds_number, turns_of
from op_jupyter.cli.drive import DemoFailed, session_id_in


def turn(answer: str, *results: str, status: str = "completed") -> dict[str, Any]:
    calls = [{"name": "column_stat", "result": result} for result in results]
    return {"answer_markdown": answer, "status": status, "calls": calls}


GOOD = turn("The mean is 4201.75.", "4201.75")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("The mean is 4201.75.", "4201.75"),
        ("It is **4,201.75** g", "4201.75"),
        ("It is 84039", "max of beta = 84039"),
        ("-3.71 it is", "-3.71"),
        ("The maximum is 6,300.", "6300.00"),
        ("It lies between 2 and 7,", "7"),
    ],
)
def test_a_number_is_found_however_it_is_written(text: str, result: str) -> None:
    assert holds_number(text, result)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("It is 4201.7", "4201.75"),
        ("It is 14201.75", "4201.75"),
        ("It is 4201.754", "4201.75"),
        ("It is 4201", "4201.75"),
        ("I do not know", "4201.75"),
        ("It is 12", "1,2"),
        ("It is 6300 of x6301", "6301"),
        ("It is 5", "there is no such column"),
    ],
)
def test_another_number_is_not_taken_for_it(text: str, result: str) -> None:
    assert not holds_number(text, result)


def test_two_turns_that_tell_their_numbers_pass() -> None:
    check_answers([GOOD, turn("The maximum is 6300.", "6300")])


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([GOOD], "1 turns, not 2"),
        ([GOOD, turn("It is 5.", "6300")], "'6300', but that number is not in the answer 'It is 5"),
        ([GOOD, turn("It is 6300.")], "did not call column_stat"),
        ([turn("no", "4201.75", status="failed"), GOOD], "ended as failed: no"),
    ],
)
def test_everything_else_fails_and_says_why(turns: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(DemoFailed, match=words):
        check_answers(turns)


def test_turns_are_read_from_a_saved_notebook() -> None:
    mime = "application/vnd.openprogram.turn+json"
    cells = [
        {"cell_type": "markdown"},
        {"cell_type": "code", "outputs": [{"output_type": "stream", "text": "x"}]},
        {"cell_type": "code", "outputs": [{"data": {mime: GOOD, "text/plain": "x"}}]},
    ]

    assert turns_of({"cells": cells}) == [GOOD]


def test_the_session_is_read_from_the_status() -> None:
    assert session_id_in("session      nb-20261129-ab12 (1 turn)\nfolder") == "nb-20261129-ab12"
    with pytest.raises(DemoFailed, match="named no session"):
        session_id_in("nothing")
