"""Whole prompts, as they are sent, beside this file in ``golden/``: read them.

After a wanted change: ``WRITE_GOLDEN=1 python -m pytest tests/engine/test_golden.py``, and read
what has changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from op_jupyter import (
    agent,
    agentic_function,
    ask,
    decision,
    llm,
    session_context,
    set_ask_handler,
    traced,
)
from op_jupyter.core.messages import ImageBlock
from op_jupyter.engine import loop
from op_jupyter.engine.prompts import prompt_text
from op_jupyter.engine.runtime import Runtime
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from tests.engine.harness import turn_start
from tests.engine.test_exchanges import KeepingProvider

GOLDEN = Path(__file__).parent / "golden"

Program = Callable[[ScriptedProvider, Any], object]
_PROGRAMS: list[tuple[str, Program]] = []


def golden(program: Program) -> Program:
    _PROGRAMS.append((program.__name__, program))
    return program


@agentic_function
def classify(review: str, labels: tuple[str, ...] = ("positive", "negative")) -> str:
    """Classify the sentiment of a review.

    Answer with one of the labels,
    and nothing else.
    """
    return llm(review)


@golden
def one_call(provider: ScriptedProvider, session: Any) -> None:
    provider.add(reply("positive"))
    classify("A great film.")


@golden
def history_of_bare_calls(provider: ScriptedProvider, session: Any) -> None:
    provider.add(reply("positive"), reply("Paris."), reply("negative"))
    classify("A great film.")
    llm("What is the capital of France?")
    classify("A dull film.")


@golden
def call_path_and_own_replies(provider: ScriptedProvider, session: Any) -> None:
    @agentic_function(expose="llm")
    def judge(reviews: list[str]) -> str:
        """Judge a film by its reviews."""
        said = llm("What do you look at?")
        for review in reviews:
            classify(review)
        return llm(f"You looked at {said} What is your verdict?")

    provider.add(reply("The plot."), reply("positive"), reply("negative"), reply("Mixed."))
    judge(["A great film.", "A dull film."])


@golden
def inside_a_caller_that_exposes_its_replies(provider: ScriptedProvider, session: Any) -> None:
    @agentic_function(expose="llm", system="Be brief.\n\nBe kind.")
    def judge(review: str) -> str:
        """Judge a film."""
        llm("What do you look at?")
        return classify(review)

    provider.add(reply("The plot."), reply("positive"))
    judge("A great film.")


@golden
def an_agent_with_tools_in_a_function(provider: ScriptedProvider, session: Any) -> None:
    def search(query: str, limit: int = 3) -> list[str]:
        """Search the web.

        Args:
            query: what to look for.
        """
        return [f"{query} {n}" for n in range(limit)]

    @agentic_function(system="Cite what you found.")
    def research(topic: str) -> str:
        """Research a topic."""
        return agent(f"Find out about {topic}.", tools=[search, classify])

    provider.add(
        reply("I will search.", call("search", {"query": "owls", "limit": 1}, id="c1")),
        reply(call("classify", {"review": "owls 0"}, id="c2")),
        reply("positive"),
        reply("Owls are birds."),
    )
    research("owls")


@golden
def a_function_after_a_turn(provider: ScriptedProvider, session: Any) -> None:
    def count(rows: int) -> int:
        """Count."""
        return rows

    provider.add(reply(call("count", {"rows": 3}, id="c1")), reply("There are 3 rows."))
    start = turn_start(provider, prompt="How many rows are there?")
    start = type(start)(start.content, start.runtime, tools=_tools(count), asker=start.asker)
    loop.run_sync(session.run_turn, start)
    provider.add(reply("positive"))
    classify("A great film.")


def _tools(*functions: Any) -> Any:
    from op_jupyter.tools.toolset import toolset_of

    return toolset_of(functions, trusted=True)


@golden
def a_narrow_render_range(provider: ScriptedProvider, session: Any) -> None:
    @agentic_function(render_range={"callers": 1, "subcalls": 1})
    def narrow() -> str:
        """Look at little."""
        llm("one")
        llm("two")
        return llm("three")

    provider.add(*map(reply, ("first", "second", "1", "2", "3")))
    llm("The first question.")
    llm("The second question.")
    narrow()


@golden
def an_error_and_a_traced_step(provider: ScriptedProvider, session: Any) -> None:
    @agentic_function
    def fails(what: str) -> None:
        """Fail."""
        raise ValueError(f"no {what}")

    @traced
    def prepare(what: str) -> str:
        return llm(f"Prepare {what}.")

    @agentic_function
    def cook(what: str) -> str:
        """Cook something."""
        prepare(what)
        try:
            fails("salt")
        except ValueError:
            return llm("Cook it without.")
        return ""

    provider.add(reply("Prepared."), reply("Cooked."))
    cook("soup")


class Verdict(BaseModel):
    """What is thought of a film."""

    good: bool
    why: str


@golden
def an_answer_that_is_a_value(provider: ScriptedProvider, session: Any) -> None:
    @agentic_function
    def judge(film: str) -> Verdict:
        return llm(f"Is {film} good?", response_format=Verdict)

    provider.add(reply('{"good": "perhaps"}'), reply('{"good": true, "why": "The plot."}'))
    judge("Owls")


@golden
def a_choice_after_a_question(provider: ScriptedProvider, session: Any) -> None:
    def rewrite() -> None:
        """Write it anew from the start."""

    @agentic_function
    def decide(text: str) -> Any:
        """Decide what becomes of a text."""
        ask("Who is it for?", ["children", "experts"])
        return decision.make("What is to be done?", {"keep": "kept", "rewrite": rewrite})

    provider.add(reply('{"choice": "keep"}'))
    set_ask_handler(lambda question: "children")
    try:
        decide("Once upon a time.")
    finally:
        set_ask_handler(None)


@golden
def inside_callers_that_expose_everything_and_nothing(
    provider: ScriptedProvider, session: Any
) -> None:
    @agentic_function(expose="full")
    def review(film: str) -> str:
        """Review a film."""
        classify(film)
        llm("And the music?")
        return secretly(film)

    @agentic_function(expose="hidden")
    def secretly(film: str) -> str:
        """Think where nobody sees it."""
        llm("What would nobody say?")
        return summarise(film)

    @agentic_function
    def summarise(film: str) -> str:
        """Say it in a sentence."""
        return llm("Begin.")

    provider.add(*map(reply, ("positive", "Loud.", "It is long.", "Loud and long.")))
    review("Owls")


def _kept(number: int) -> Program:
    """Two calls of a function at a provider that keeps the conversation: the request *number*."""

    def program(provider: ScriptedProvider, session: Any) -> None:
        keeping = KeepingProvider(reply("positive"), reply("negative"))
        with session_context("kept", store=MemoryStore(), runtime=Runtime(provider=keeping)):
            classify("A great film.")
            classify("A dull film.")
        provider.requests.append(keeping.requests[number])

    return program


_PROGRAMS.append(("what_a_provider_with_a_session_is_told_first", _kept(0)))
_PROGRAMS.append(("what_a_provider_with_a_session_is_told_then", _kept(1)))


@dataclass
class Point:
    x: int
    y: float


class Order(BaseModel):
    item: str
    kind: Literal["in", "out"] = "in"


@golden
def arguments_of_every_kind(provider: ScriptedProvider, session: Any) -> None:
    import matplotlib
    import numpy as np
    import pandas as pd

    matplotlib.use("agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3))
    figure.subplots().set_title("Sales")
    frame = pd.DataFrame({"sold": range(1000), "price": [0.5] * 1000})

    class Shop:
        @agentic_function
        def report(
            self,
            frame: Any,
            array: Any,
            figure: Any,
            point: Any,
            order: Any,
            text: str,
            data: bytes,
            function: Any,
            odd: Any,
            numbers: set[int],
            runtime: Any = None,
            nothing: Any = None,
        ) -> str:
            """Report on things."""
            return llm(["Look at this:", ImageBlock("image/png", "aGVsbG8="), "What is it?"])

    provider.add(reply("A report."))
    Shop().report(
        frame=frame,
        array=np.arange(10_000).reshape(100, 100),
        figure=figure,
        point=Point(1, 2.5),
        order=Order(item="owl"),
        text="x" * 50_000,
        data=b"\x00\x01",
        function=classify,
        odd=object(),
        numbers={3, 1, 2},
    )


@pytest.mark.parametrize(("name", "program"), _PROGRAMS, ids=[name for name, _ in _PROGRAMS])
def test_the_prompt_is_as_it_was_read(name: str, program: Program, store: MemoryStore) -> None:
    provider = ScriptedProvider()
    runtime = Runtime(provider=provider)
    with session_context("s1", store=store, runtime=runtime) as handle:
        program(provider, handle.agent)
    text = prompt_text(provider.requests[-1]) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_golden_prompt_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {name for name, _ in _PROGRAMS}
