"""Functions that the tests of workers send off; a worker imports them by name."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from op_jupyter import (
    Runtime,
    agent,
    agentic_function,
    agentic_map,
    ask,
    confirm,
    form,
    llm,
    traced,
)
from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.testing.providers import call, reply
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.files import file_tools


def think(content: list[dict[str, Any]]) -> str:
    """A model that repeats the last thing it was asked."""
    return f"about {content[-1]['text']}"


def think_slowly(content: list[dict[str, Any]]) -> str:
    """A model that takes 20 ms."""
    time.sleep(0.02)
    return "positive"


@agentic_function
def classify(review: str) -> str:
    """Classify a review in one word."""
    return llm(review)


@agentic_function
def twice(topic: str) -> str:
    """Ask, ask somebody else, and ask again."""
    first = llm(f"first {topic}")
    return llm(f"{classify(first)} again")


@agentic_function
async def later(topic: str) -> str:
    """Ask from async code."""
    await asyncio.sleep(0)
    return await llm.aio(topic)


@agentic_function(expose="hidden")
def secretly(topic: str) -> str:
    """Ask without a trace."""
    return llm(topic)


@agentic_function
def needs_runtime(topic: str, runtime: Runtime | None = None) -> str:
    """Ask the runtime that is passed."""
    assert runtime is not None
    return runtime.exec(topic)


providers: list[Any] = []


@agentic_function
def keep_the_provider(n: int, runtime: Runtime | None = None) -> None:
    """Keep the provider, in this process."""
    assert runtime is not None
    providers.append(runtime.provider)


@agentic_function
def spread(topics: list[str]) -> list[str]:
    """Spread work over more workers."""
    return agentic_map(classify, topics)


@traced
def length(text: str) -> int:
    return len(text)


def ask_plainly(topic: str) -> str:
    return llm(topic)


@agentic_function
def fragile(n: int) -> int:
    """Fail, or die, for some numbers."""
    if n == 13:
        raise ValueError("thirteen")
    if n == 9:
        llm("before the end")
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@agentic_function
def dies_once(marker: str) -> str:
    """Have the process killed, unless that was done before."""
    said = llm("one")
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return said


@agentic_function
def endless(marker: str) -> None:
    """Say that it runs, and go on for ever."""
    llm("one")
    Path(marker).touch()
    time.sleep(600)


@agentic_function
def unreturnable(n: int) -> Any:
    """Return what cannot be pickled."""
    return threading.Lock()


class Guarded:
    """A tool that asks for permission."""

    effect = "execute"
    timeout = None
    trusted = False
    spec = ToolSpec("guarded", "Do it.", {"type": "object", "properties": {}})

    def check(self, arguments: Mapping[str, Any]) -> str:
        return ""

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        return CallDescription()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput((TextBlock(f"done in {os.getpid()}"),))


def ask_for_the_tool(request: Any) -> Any:
    """What a model says that uses the tool once and then repeats its result."""
    last = request.messages[-1].content[-1]
    if hasattr(last, "tool_use_id"):
        return reply(last.content[0].text)
    return reply(call("guarded", {}))


@agentic_function
def use_the_tool(n: int) -> str:
    """Use a tool that asks for permission."""
    return agent("use it", tools=[Guarded()])


@agentic_function
def ask_then_use_the_tool(n: int) -> str:
    """Ask the person, and then use the tool."""
    ask("now?", ["now", "later"])
    return agent("use it", tools=[Guarded()])


@agentic_function
def write_with_tools(n: int) -> str:
    """Use the tools for files."""
    return agent(
        "write it", tools=[tool for tool in file_tools() if tool.spec.name == "write_file"]
    )


@dataclass
class Box:
    """Something to hold what cannot travel."""

    held: Any


@agentic_function
def ask_the_person(n: int) -> list[Any]:
    """Ask the person in every way."""
    return [
        ask("which?", ["a", "b"], allow_custom=False),
        confirm("sure?"),
        form("how many?", {"type": "object", "properties": {"count": {"type": "integer"}}}),
    ]


async def _hang(content: Any) -> str:
    await asyncio.Event().wait()
    return ""


@agentic_function
def waits_for_a_model(marker: str) -> str:
    """Wait for a model that never answers."""
    with Runtime(call=_hang, model="m") as runtime:
        Path(marker).touch()
        try:
            return runtime.exec("hello?")
        finally:
            Path(f"{marker} stopped").touch()
