"""Random programs of model calls, functions, agents, threads and turns, and a model that plays
along and checks what it is told.

The truth about where a call stands is kept here, in a ContextVar of the tests' own.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from hypothesis import strategies as st

from op_jupyter.core.messages import ModelRequest, TextBlock
from op_jupyter.engine.function import AgenticFunction, Expose, agentic_function
from op_jupyter.engine.runtime import agent, llm
from op_jupyter.errors import OpenProgramError, ProviderConnectionError
from op_jupyter.testing.providers import ScriptedProvider, call, reply


@dataclass(frozen=True)
class Ask:
    """One `llm` call; the model may fail."""

    fails: bool = False


@dataclass(frozen=True)
class Call:
    """A call of an agentic function."""

    body: tuple[Op, ...]
    expose: Expose = "io"
    callers: int | None = None
    subcalls: int | None = None
    is_async: bool = False
    fails: bool = False


@dataclass(frozen=True)
class Agent:
    """An `agent` call whose model uses each of *tools* once."""

    tools: tuple[Call, ...]


@dataclass(frozen=True)
class Beside:
    """Several things at once."""

    parts: tuple[Op, ...]


@dataclass(frozen=True)
class Crash:
    """The process dies, as far as the store can tell."""


Op: TypeAlias = Ask | Call | Agent | Beside | Crash


def operations() -> st.SearchStrategy[Op]:
    asks = st.sampled_from([Ask()] * 6 + [Ask(fails=True), Crash()])

    def larger(inner: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
        bodies = st.lists(inner, max_size=3).map(tuple)
        bounds = st.sampled_from([None, None, 0, 1, 2])
        calls = st.builds(
            Call,
            body=bodies,
            expose=st.sampled_from(["io", "llm", "full", "hidden"]),
            callers=bounds,
            subcalls=bounds,
            is_async=st.booleans(),
            fails=st.sampled_from([False] * 5 + [True]),
        )
        agents = st.builds(Agent, st.lists(calls, min_size=1, max_size=2).map(tuple))
        beside = st.builds(Beside, st.lists(inner, min_size=2, max_size=3).map(tuple))
        return st.one_of(calls, agents, beside)

    return st.recursive(asks, larger, max_leaves=6)


@dataclass(frozen=True)
class Inside:
    """A function that runs, as the program knows it."""

    name: str
    doc: str
    call: Call
    is_tool: bool = False


where: ContextVar[tuple[Inside, ...]] = ContextVar("where", default=())

_PROMPT = re.compile(r"(?:ask|agent|turn)-\d+-")


@dataclass
class World:
    """Plays programs; the model of `provider` notes every *problem* with what it is told."""

    crash: Callable[[], None]
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.provider = ScriptedProvider(default=self.answer)
        self._numbers = count()
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[Inside, ...]] = {}
        self._tools: dict[str, Sequence[str]] = {}
        self._fails: set[str] = set()
        self._docs: dict[str, str] = {}

    # -- playing

    def number(self) -> int:
        with self._lock:
            return next(self._numbers)

    def prompt(self, kind: str, tools: Sequence[str] = (), *, fails: bool = False) -> str:
        """A text that the model knows what to do about."""
        text = f"{kind}-{self.number()}-"
        self._asked[text], self._tools[text] = where.get(), tools
        if fails:
            self._fails.add(text)
        return text

    def play(self, op: Op) -> None:
        """Do *op* from synchronous code; what fails in it does not end the program."""
        match op:
            case Crash():
                self.crash()
            case Ask(fails):
                _forgiving(lambda: llm(self.prompt("ask", fails=fails), max_retries=0))
            case Call():
                function = self.function(op)
                run = (lambda: asyncio.run(function())) if op.is_async else function
                _forgiving(run)
            case Agent(tools):
                functions = [self.function(tool, is_tool=True) for tool in tools]
                names = [f.name for f in functions]
                _forgiving(lambda: agent(self.prompt("agent", names), tools=functions))
            case Beside(parts):
                with ThreadPoolExecutor(len(parts)) as pool:
                    jobs = [pool.submit(copy_context().run, self.play, p) for p in parts]
                    for job in jobs:
                        job.result()

    async def play_async(self, op: Op) -> None:
        """The same from asynchronous code."""
        match op:
            case Ask(fails):
                with suppress(OpenProgramError):
                    await llm.aio(self.prompt("ask", fails=fails), max_retries=0)
            case Call(is_async=True):
                with suppress(OpenProgramError, Failed):
                    await self.function(op)()
            case Beside(parts):
                await asyncio.gather(*(self.play_async(part) for part in parts))
            case _:
                await asyncio.to_thread(self.play, op)

    def function(self, op: Call, *, is_tool: bool = False) -> AgenticFunction[Any, Any]:
        """A new agentic function that does the body of *op*."""
        name = f"f{self.number()}"
        doc = f"Documentation of {name}: do as told."
        self._docs[name] = doc
        inside = Inside(name, doc, op, is_tool)

        def plain() -> str:
            token = where.set((*where.get(), inside))
            try:
                for part in op.body:
                    self.play(part)
            finally:
                where.reset(token)
            if op.fails:
                raise Failed
            return f"value of {name}"

        async def awaiting() -> str:
            token = where.set((*where.get(), inside))
            try:
                for part in op.body:
                    await self.play_async(part)
            finally:
                where.reset(token)
            if op.fails:
                raise Failed
            return f"value of {name}"

        made: Callable[..., Any] = awaiting if op.is_async and not is_tool else plain
        made.__doc__ = doc
        return agentic_function(  # type: ignore[no-any-return, call-overload]
            name=name,
            expose=op.expose,
            render_range={"callers": op.callers, "subcalls": op.subcalls},
        )(made)

    # -- answering

    def answer(self, request: ModelRequest) -> Any:
        """What the model does; it uses the tools one after the other, then says so."""
        self._check(request)
        own = next(t for t in reversed(_texts(request)) if _PROMPT.fullmatch(t))
        if own in self._fails:
            return [ProviderConnectionError("refused")]
        after = [i for i, m in enumerate(request.messages) if own in _texts_of(m)][-1]
        used = sum(len(m.tool_uses) for m in request.messages[after:])
        tools = self._tools[own]
        return reply(call(tools[used], {}) if used < len(tools) else f"answer to {own}")

    def _check(self, request: ModelRequest) -> None:
        path = where.get()
        whole = "\n".join(_texts(request))
        told = [line for line in whole.split("\n") if line.startswith("Call path: ")]
        expected = [f"Call path: {' → '.join(f.name for f in path)}"] if path else []
        if told != expected:
            self.problems.append(f"the call path is {told}, not {expected}")
        for name, doc in list(self._docs.items()):
            wanted = int(bool(path) and path[-1].name == name)
            if whole.count(doc) != wanted:
                self.problems.append(f"{whole.count(doc)} docstrings of {name}, not {wanted}")
        for text in _texts(request):
            if _PROMPT.fullmatch(text) and not may_see(path, self._asked[text]):
                self.problems.append(f"{_names(path)} was told of {_names(self._asked[text])}")


def may_see(here: Sequence[Inside], there: Sequence[Inside]) -> bool:
    """Whether a call made in *here* may be told of one that was made in *there*."""
    shared = 0
    while shared < min(len(here), len(there)) and here[shared] is there[shared]:
        shared += 1
    if shared < len(here) and shared > 0:
        # Told as something that a caller did, if that caller shows so much of itself.
        caller, through_calls = here[shared - 1], shared < len(there)
        if caller.call.expose not in (("full",) if through_calls else ("llm", "full")):
            return False
    return _is_exposed(there[shared:])


def _is_exposed(calls: Sequence[Inside]) -> bool:
    """Whether what was asked inside nested *calls* is told outside of them."""
    if any(c.is_tool for c in calls):
        return False
    return all(
        c.call.expose == "full" or (c.call.expose == "llm" and c is calls[-1]) for c in calls
    )


class Failed(Exception):
    """A function of a program fails."""


def _forgiving(action: Callable[[], Any]) -> None:
    with suppress(OpenProgramError, Failed):
        action()


def _texts(request: ModelRequest) -> list[str]:
    return [text for message in request.messages for text in _texts_of(message)]


def _texts_of(message: Any) -> list[str]:
    return [b.text for b in message.content if isinstance(b, TextBlock)]


def _names(path: Sequence[Inside]) -> str:
    return "/".join(f"{f.name}({f.call.expose})" for f in path) or "the top"
