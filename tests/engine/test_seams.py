"""Where a host reaches into the engine, and the kinds of functions that it may decorate."""

from __future__ import annotations

import asyncio
import copy
import pickle
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from op_jupyter import (
    add_pre_invocation_hook,
    agentic_function,
    anthropic_tool,
    llm,
    openai_tool,
    remove_pre_invocation_hook,
    session_context,
    set_cancellation_check,
)
from op_jupyter.core.messages import ToolSpec
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import InvalidArguments, ToolDefinitionError, TurnCancelled
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.base import Tool
from op_jupyter.tools.toolset import Toolset
from tests.engine.harness import ALLOW, FakeTool, ScriptedAsker, run


@dataclass
class Place:
    city: str
    zip: int = 0


@agentic_function
def forecast(
    place: Place,
    unit: Literal["C", "F"] = "C",
    days: Annotated[int, "how many"] = 1,
    runtime: Runtime | None = None,
) -> str:
    """Say how the weather will be.

    Args:
        place: where.
        unit: of the temperature.
    """
    return f"{place} {unit} {days}"


class Reviews:
    kind = "films"

    @agentic_function
    def one(self, review: str) -> str:
        """Classify one."""
        return f"{self.kind}: {review}"

    @agentic_function
    @classmethod
    def of_class(cls, review: str) -> str:
        """Classify for the class."""
        return f"{cls.kind}: {review}"

    @agentic_function
    @staticmethod
    def plain(review: str) -> str:
        """Classify."""
        return review

    @classmethod
    @agentic_function
    def below(cls, review: str) -> str:
        """Classify, decorated in the other order."""
        return f"{cls.kind}: {review}"

    @staticmethod
    @agentic_function
    def plain_below(review: str) -> str:
        """Classify, decorated in the other order."""
        return review


class Books(Reviews):
    kind = "books"


@pytest.fixture
def hook() -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    seen: list[tuple[str, Mapping[str, Any]]] = []

    def note(name: str, arguments: Mapping[str, Any]) -> None:
        seen.append((name, arguments))
        if arguments.get("review") == "refuse me":
            raise PermissionError("not this one")

    add_pre_invocation_hook(note)
    yield seen
    remove_pre_invocation_hook(note)
    remove_pre_invocation_hook(note)


def test_a_hook_is_told_before_each_invocation_until_it_is_removed(hook: list[Any]) -> None:
    Reviews.plain("great")
    assert hook == [("plain", {"review": "great"})]


def test_a_hook_that_was_added_twice_is_taken_back_once_at_a_time(hook: list[Any]) -> None:
    told: list[str] = []

    def note(name: str, _arguments: Any) -> None:
        told.append(name)

    for change in (add_pre_invocation_hook, add_pre_invocation_hook, remove_pre_invocation_hook):
        change(note)
    Reviews.plain("great")
    remove_pre_invocation_hook(note)
    Reviews.plain("great")
    assert told == ["plain"]
    assert len(hook) == 2


def test_the_stop_button_ends_a_hook_and_the_call_is_recorded(store: MemoryStore) -> None:
    went_on: list[str] = []

    def slow(name: str, _arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(name)

    add_pre_invocation_hook(slow)
    try:
        with session_context(store=store, create_runtime_if_none=False) as handle:
            with pytest.raises(KeyboardInterrupt):
                Reviews.plain("great")
            (node,) = handle.agent.dag
    finally:
        remove_pre_invocation_hook(slow)
    assert (node.status, went_on) == ("cancelled", [])


def test_what_a_hook_raises_ends_the_call_and_is_recorded(
    store: MemoryStore, hook: list[Any]
) -> None:
    with session_context(store=store, create_runtime_if_none=False) as handle:
        with pytest.raises(PermissionError, match="not this one"):
            Reviews.plain("refuse me")
        (node,) = handle.agent.dag
    assert (node.status, node.metadata["error"]["type"]) == ("error", "PermissionError")


def test_a_cancellation_check_stops_calls_and_they_are_recorded_as_cancelled(
    store: MemoryStore,
) -> None:
    stop: list[bool] = [False]

    @agentic_function
    def twice() -> str:
        """Ask twice."""
        llm("one")
        stop[0] = True
        return llm("two")

    provider = ScriptedProvider(reply("1"))
    set_cancellation_check(lambda: stop[0])
    try:
        with session_context(store=store, runtime=Runtime(provider=provider)) as handle:
            with pytest.raises(TurnCancelled):
                twice()
            (node, _asked) = handle.agent.dag
            (turn,) = handle.agent.dag.turns.values()
            with pytest.raises(TurnCancelled):
                twice()
            assert len(handle.agent.dag) == 2
    finally:
        set_cancellation_check(None)
    assert (node.status, turn.status) == ("cancelled", "cancelled")
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: Reviews().one("x"), "films: x"),
        (lambda: Books().one("x"), "books: x"),
        (lambda: Reviews.one(Books(), "x"), "books: x"),
        (lambda: Books.of_class("x"), "books: x"),
        (lambda: Books().of_class("x"), "books: x"),
        (lambda: Books.plain("x"), "x"),
        (lambda: Books().plain("x"), "x"),
        (lambda: Books.below("x"), "books: x"),
        (lambda: Books().plain_below("x"), "x"),
    ],
)
def test_methods_of_every_kind_work(store: MemoryStore, call: Any, value: str) -> None:
    with session_context(store=store, create_runtime_if_none=False) as handle:
        assert call() == value
        (node,) = handle.agent.dag
    assert node.input == {"review": "x"}


@pytest.mark.parametrize(
    "tool", [Reviews().one, Books.of_class, Reviews.plain], ids=["method", "class", "static"]
)
def test_methods_are_tools_without_their_first_parameter(tool: Any) -> None:
    assert list(tool.spec["input_schema"]["properties"]) == ["review"]
    assert tool.execute(review="x").endswith("x")


def test_what_is_no_function_is_refused_where_it_is_decorated() -> None:
    with pytest.raises(ToolDefinitionError, match="above `def`"):
        agentic_function(Reviews)
    with pytest.raises(ToolDefinitionError, match="generator"):

        @agentic_function
        async def numbers() -> Any:
            """Count."""
            yield 1


def test_a_copy_of_a_function_is_the_function_and_methods_travel_with_their_object() -> None:
    assert copy.copy(forecast) is forecast
    assert pickle.loads(pickle.dumps(forecast)) is forecast
    assert pickle.loads(pickle.dumps(Reviews.one)) is Reviews.one
    assert pickle.loads(pickle.dumps(Books.of_class))("x") == "books: x"
    assert pickle.loads(pickle.dumps(Books().one))("x") == "books: x"


# -- as a tool of another loop

SCHEMA = {
    "$defs": {
        "Place": {
            "additionalProperties": False,
            "properties": {
                "city": {"type": "string"},
                "zip": {"default": 0, "type": "integer"},
            },
            "required": ["city"],
            "type": "object",
        }
    },
    "additionalProperties": False,
    "properties": {
        "place": {"$ref": "#/$defs/Place", "description": "where."},
        "unit": {"default": "C", "description": "of the temperature.", "enum": ["C", "F"],
                 "type": "string"},
        "days": {"default": 1, "type": "integer"},
    },
    "required": ["place"],
    "type": "object",
}  # fmt: skip


def test_the_spec_and_both_wire_shapes_say_the_same() -> None:
    spec = {
        "name": "forecast",
        "description": "Say how the weather will be.",
        "input_schema": SCHEMA,
    }
    assert forecast.spec == spec
    assert anthropic_tool(forecast) == spec
    assert openai_tool(forecast) == {
        "type": "function",
        "function": {
            "name": "forecast",
            "description": "Say how the weather will be.",
            "parameters": SCHEMA,
        },
    }


def test_plain_functions_have_the_wire_shapes_too() -> None:
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert openai_tool(add)["function"]["name"] == anthropic_tool(add)["name"] == "add"


def test_execute_takes_what_a_model_sends() -> None:
    assert forecast.execute(place={"city": "Bern"}, days="2") == f"{Place('Bern')} C 2"
    with pytest.raises(InvalidArguments, match="unit"):
        forecast.execute(place={"city": "Bern"}, unit="K")
    with pytest.raises(InvalidArguments, match="runtime"):
        forecast.execute(place={"city": "Bern"}, runtime=None)


def test_execute_of_an_async_function_is_awaited() -> None:
    @agentic_function
    async def later(n: int) -> int:
        """Add one."""
        return n + 1

    assert asyncio.run(later.execute(n="4")) == 5


class Watched(Toolset):
    """A toolset that notes what it is asked."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        super().__init__(tools)
        self.asked: list[str] = []

    def specs(self, most: int | None = None) -> tuple[ToolSpec, ...]:
        self.asked.append("specs")
        return super().specs(most)

    def get(self, name: str) -> Tool | None:
        self.asked.append("get")
        return super().get(name)

    def check(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.asked.append("check")
        return super().check(name, arguments)


def test_the_loop_asks_the_very_registry_that_was_built() -> None:
    tool = FakeTool(effect="execute")
    built = Watched([tool])
    provider = ScriptedProvider(reply(call("look", {"what": "x"})), reply("done"))
    with session_context("s", store=MemoryStore(), create_runtime_if_none=False) as handle:
        handle.agent.offer(lambda: built)
        assert handle.agent.tools is built  # what calls outside of a turn are given
        run(handle.agent, provider, built, asker=ScriptedAsker([ALLOW]))

    assert built.asked.count("specs") == 2  # each model call, and no copy in between
    assert {"get", "check"} <= set(built.asked)
    assert tool.calls == [{"what": "x"}]
    assert provider.requests[0].tools == Toolset([tool]).specs()
