"""The docstring rule with every `expose` and every `render_range`; and the way out of a session."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pytest

from op_jupyter import Runtime, agentic_function, llm, session_context
from op_jupyter.engine import context
from op_jupyter.engine.invocation import Expose
from op_jupyter.engine.prompts import prompt_text
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, reply
from tests.engine.harness import assert_sound

DOC = "Judge what was thought."
RANGES = (None, 0, 1)


def entries(expose: Expose) -> list[tuple[str, ...]]:
    """What happened before `judge`, as others may see it."""
    thought = ["thinker("]
    if expose in ("llm", "full"):
        thought.append("a thought of its own")
    if expose == "full":
        thought.append("helper(")
    thinker = [] if expose == "hidden" else [tuple(thought)]
    return [("an earlier question",), *thinker, ("the last question",)]


@pytest.mark.parametrize("subcalls", RANGES)
@pytest.mark.parametrize("callers", RANGES)
@pytest.mark.parametrize("expose", get_args(Expose))
def test_the_rule_holds_in_every_combination(
    store: MemoryStore, expose: Expose, callers: int | None, subcalls: int | None
) -> None:
    @agentic_function
    def helper() -> str:
        """Help."""
        llm("what nobody is told")
        return "helped"

    @agentic_function(expose=expose)
    def thinker(topic: str) -> str:
        """Think about a topic."""
        llm("a thought of its own")
        helper()
        return "thought"

    @agentic_function(render_range={"callers": callers, "subcalls": subcalls}, expose=expose)
    def judge(topic: str) -> str:
        """Judge what was thought."""
        llm("inside one")
        llm("inside two")
        return llm("and the verdict?")

    provider = ScriptedProvider(default=lambda request: reply("so"))
    with session_context("s1", store=store, runtime=Runtime(provider=provider)) as handle:
        llm("an earlier question")
        thinker("owls")
        llm("the last question")
        judge("bats")
        assert_sound(handle.agent)

    prompt = prompt_text(provider.requests[-1])
    before, inside = entries(expose), [("inside one",), ("inside two",)]
    told = [*last(before, callers), *last(inside, subcalls)]
    everything = {text for entry in (*entries("full"), *inside) for text in entry}
    seen = {text for text in everything if text in prompt}
    assert seen == {text for entry in told for text in entry}
    assert prompt.count(DOC) == 1 and prompt.count("Call path: judge\n") == 1
    assert prompt.count('"topic": "bats"') == 1
    assert prompt.endswith("and the verdict?")
    assert "what nobody is told" not in prompt


def last(items: list[Any], limit: int | None) -> list[Any]:
    return items if limit is None else items[len(items) - min(limit, len(items)) :]


class Left(Exception):
    """The way out."""


@pytest.mark.parametrize("way", ["return", "exception", "interrupt", "exit"])
def test_inside_all_four_are_visible_and_after_leaving_none(
    store: MemoryStore, way: Literal["return", "exception", "interrupt", "exit"]
) -> None:
    ends = {"exception": Left, "interrupt": KeyboardInterrupt, "exit": SystemExit}
    outer_runtime, inner_runtime = Runtime(call=str), Runtime(call=str)

    @agentic_function
    def look() -> None:
        """Look around."""
        assert context.current_call_id() is not None

    def block() -> None:
        with session_context("in", store=store, turn_id="t2", runtime=inner_runtime) as inner:
            assert context.current_session() is inner
            assert context.current_turn_id() == "t2"
            assert context.current_runtime() is inner_runtime
            look()
            assert context.current_call_id() is None
            if way in ends:
                raise ends[way]

    with session_context("out", store=store, turn_id="t1", runtime=outer_runtime) as outer:
        if way in ends:
            with pytest.raises(ends[way]):
                block()
        else:
            block()
        assert context.current_session() is outer
        assert context.current_turn_id() == "t1"
        assert context.current_runtime() is outer_runtime
    assert context.current_session() is None
    assert context.current_turn_id() is None
    assert context.current_runtime() is None
    assert context.current_call_id() is None
