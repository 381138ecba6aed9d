"""The public API in use: type-checked by `make check`, never run."""

from typing import Any, assert_type

from pydantic import BaseModel

import op_jupyter
from op_jupyter import agent, ask, can_ask, confirm, decision, form, llm
from op_jupyter.engine.runtime import Reply

version: str = op_jupyter.__version__


class Person(BaseModel):
    name: str


def answers() -> None:
    assert_type(llm("Who?"), Reply)
    assert_type(llm("Who?", response_format=Person), Person)
    assert_type(agent("Who?", tools=[], response_format=Person), Person)
    assert_type(llm("Who?", response_format={"type": "object"}), Any)
    assert_type(llm("Which?", choices={"a": 1}), Any)
    assert_type(decision.make("Which?", ["a", "b"]), Any)


async def answers_later() -> None:
    assert_type(await llm.aio("Who?"), Reply)
    assert_type(await agent.aio("Who?", response_format=Person), Person)


def questions() -> None:
    assert_type(can_ask(), bool)
    assert_type(ask("Which?", ["a", "b"], multi=True), Any)
    assert_type(confirm("Go on?"), bool)
    assert_type(form("Who?", Person), Person)
    assert_type(form("Who?", {"type": "object"}), dict[str, Any])
