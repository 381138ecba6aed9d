"""Functions as tools."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.messages import ImageBlock, TextBlock, ToolSpec
from op_jupyter.errors import InvalidArguments, ToolDefinitionError
from op_jupyter.tools.base import ToolContext, ToolOutput
from op_jupyter.tools.functions import AgenticTool, FunctionTool, as_tool

CONTEXT = ToolContext(Path("/w"), "c1", "t1", lambda _: None)


async def call(function: Callable[..., Any], **arguments: Any) -> ToolOutput:
    return await FunctionTool(function).run(arguments, CONTEXT)


def text_of(output: ToolOutput) -> str:
    return "".join(b.text for b in output.content if isinstance(b, TextBlock))


@dataclass
class Point:
    x: int


async def test_a_plain_function_runs_with_converted_arguments() -> None:
    def move(point: Point, by: int = 1) -> Point:
        """Move it."""
        return Point(point.x + by)

    output = await call(move, point={"x": 1}, by="2")
    assert (output.state, text_of(output), output.value) == ("succeeded", '{"x": 3}', {"x": 3})


async def test_an_async_function_runs_on_the_loop() -> None:
    async def where() -> bool:
        """Tell the thread."""
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert (await call(where)).value is True


async def test_a_plain_function_runs_off_the_loop_with_the_context_of_the_call() -> None:
    variable = contextvars.ContextVar("variable", default="default")

    def look() -> list[Any]:
        """Look around."""
        return [variable.get(), threading.current_thread() is threading.main_thread()]

    variable.set("here")
    assert (await call(look)).value == ["here", False]


async def test_waiting_for_a_blocking_function_can_be_cancelled() -> None:
    started, release, finished = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        """Block."""
        started.set()
        release.wait()
        finished.set()

    task = asyncio.create_task(call(block))
    await asyncio.to_thread(started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert await asyncio.to_thread(finished.wait, 10)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        ([1, "a"], '[1, "a"]'),
        (TextBlock("block"), "block"),
        (ToolOutput((TextBlock("own"),), "failed"), "own"),
    ],
)
async def test_what_a_function_returns_becomes_content(value: Any, text: str) -> None:
    def give() -> Any:
        """Give it."""
        return value

    assert text_of(await call(give)) == text


async def test_an_image_block_is_passed_on() -> None:
    block = ImageBlock("image/png", "AAAA")

    def draw() -> ImageBlock:
        """Draw."""
        return block

    assert (await call(draw)).content == (block,)


def _fail(kind: type[BaseException]) -> None:
    raise kind("why")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, StopIteration])
async def test_whatever_a_function_raises_is_a_failed_result(
    kind: type[BaseException], is_async: bool
) -> None:
    def plain() -> None:
        """Fail."""
        _fail(kind)

    async def asynchronous() -> None:
        """Fail."""
        _fail(kind)

    output = await call(asynchronous if is_async else plain)
    assert output.state == "failed"
    assert f"{kind.__name__}: why" in text_of(output)


async def test_a_failure_shows_the_lines_that_led_to_it_and_none_of_ours() -> None:
    def outer() -> None:
        """Fail."""
        _fail(ValueError)

    lines = text_of(await call(outer)).splitlines()
    assert [line.strip().split(",")[0] for line in lines[:2]] == ["test_functions.py"] * 2
    assert lines[0].endswith("in outer: _fail(ValueError)")
    assert lines[-1] == "ValueError: why"
    assert not any("functions.py, line" in line and "test_" not in line for line in lines)


async def test_a_failure_names_its_cause_and_its_notes() -> None:
    def fail() -> None:
        """Fail."""
        try:
            [][1]
        except IndexError as error:
            told = ValueError("no column")
            told.add_note("try y")
            raise told from error

    lines = text_of(await call(fail)).splitlines()
    assert lines[-3:] == [
        "ValueError: no column",
        "try y",
        "caused by IndexError: list index out of range",
    ]


async def test_a_syntax_error_shows_the_line_it_speaks_of() -> None:
    def fail() -> None:
        """Fail."""
        eval("1 +")

    assert text_of(await call(fail)).endswith("SyntaxError: invalid syntax (line 1: 1 +)")


async def test_a_deep_recursion_makes_a_short_result() -> None:
    def fall() -> None:
        """Fall."""
        fall()

    lines = text_of(await call(fall)).splitlines()
    assert len(lines) < 15
    assert any("more lines of calls" in line for line in lines)


async def test_arguments_that_do_not_fit_never_reach_the_function() -> None:
    called = []

    def f(a: int) -> None:
        """Do it."""
        called.append(a)

    tool = FunctionTool(f)
    assert tool.check({"a": "x"}).startswith("a: ")
    assert tool.check({"a": 1}) == ""
    with pytest.raises(InvalidArguments):
        await tool.run({"a": "x"}, CONTEXT)
    assert called == []


def test_a_function_asks_unless_the_author_passed_it() -> None:
    def f() -> None:
        """Do it."""

    assert (FunctionTool(f).effect, FunctionTool(f).trusted) == ("execute", False)
    assert as_tool(f, trusted=True).trusted is True
    assert FunctionTool(f).timeout == 60.0


def test_a_plain_function_cannot_have_a_runtime_filled_in() -> None:
    def f(runtime: Any) -> None:
        """Do it."""

    with pytest.raises(ToolDefinitionError, match="put @agentic_function above it"):
        FunctionTool(f)


class Agentic:
    """Like an agentic function of another package."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.calls: list[Mapping[str, Any]] = []

    def __call__(self, word: str, runtime: Any) -> str:
        raise AssertionError("a tool loop calls execute")

    def execute(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        return f"found {arguments['word']}"


SPEC = {"name": "look_up", "description": "Look it up.", "input_schema": {"type": "object"}}


async def test_an_object_with_spec_and_execute_is_a_tool() -> None:
    agentic = Agentic(SPEC)
    tool = as_tool(agentic)
    assert isinstance(tool, AgenticTool)
    assert tool.spec == ToolSpec("look_up", "Look it up.", {"type": "object"})
    assert tool.timeout is None
    assert text_of(await tool.run({"word": "x"}, CONTEXT)) == "found x"
    assert agentic.calls == [{"word": "x"}]
    assert tool.check({}) == "word: is missing"


def test_a_spec_that_is_none_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="needs name, description and input_schema"):
        as_tool(Agentic({"name": "x"}))


def test_what_is_a_tool_already_stays_what_it_is() -> None:
    def f() -> None:
        """Do it."""

    tool = FunctionTool(f)
    assert as_tool(tool, trusted=True) is tool


@pytest.mark.parametrize("item", ["python", 3, None])
def test_what_is_no_tool_is_refused(item: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="is no tool: pass a function"):
        as_tool(item)
