"""The tools of one turn, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from op_jupyter.core.messages import ToolSpec
from op_jupyter.errors import ToolDefinitionError, ToolNotFound
from op_jupyter.tools.base import Tool
from op_jupyter.tools.functions import as_tool


@runtime_checkable
class Checked(Protocol):
    """A tool that checks arguments itself, and may convert them."""

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""


class Toolset:
    """Tools in a fixed order, each name once.  What it holds is never wrapped."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Hold *tools*.

        Raises:
            ToolDefinitionError: two of them have the same name.
        """
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            name = tool.spec.name
            if name in self._tools:
                raise ToolDefinitionError(f"two tools are called {name!r}; rename one of them")
            self._tools[name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._tools)

    def specs(self, most: int | None = None) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them, the first *most* of them."""
        return tuple(tool.spec for tool in self._tools.values())[:most]

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._tools.get(name)

    def named(self, names: Iterable[str]) -> Toolset:
        """A set of these tools alone, in the order of *names*.

        Raises:
            ToolNotFound: one of the names is no tool's.
        """
        chosen = []
        for name in names:
            tool = self._tools.get(name)
            if tool is None:
                raise ToolNotFound(self.unknown(name))
            chosen.append(tool)
        return Toolset(chosen)

    def plus(self, tools: Iterable[Tool]) -> Toolset:
        """These tools and *tools* after them; a later one replaces an earlier of its name."""
        added = {tool.spec.name: tool for tool in tools}
        kept = [added.pop(name, tool) for name, tool in self._tools.items()]
        return Toolset([*kept, *added.values()])

    def unknown(self, name: str) -> str:
        """What to say when no tool is called *name*."""
        if not self._tools:
            return f"there is no tool {name!r}; no tools are offered"
        near = difflib.get_close_matches(name, self._tools, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        return f"there is no tool {name!r}; {meant}the tools are: {', '.join(self._tools)}"

    def check(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments* for the tool *name*, naming the field; or nothing.

        A tool may check them with code of its own: call it off the event loop.
        """
        tool = self._tools.get(name)
        if tool is None:
            return self.unknown(name)
        if isinstance(tool, Checked):
            return tool.check(arguments)
        return _check_schema(tool.spec, arguments)


def toolset_of(items: Toolset | Iterable[Any], *, trusted: bool = False) -> Toolset:
    """A toolset of tools, agentic functions and plain functions alike.

    Raises:
        ToolDefinitionError: *items* is no list of them, an item cannot be a tool, or two have the
            same name.
    """
    if isinstance(items, Toolset):
        return items
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise ToolDefinitionError(
            f"tools={items!r:.60} is no list; put what may be called into one: tools=[...]"
        )
    return Toolset([as_tool(item, trusted=trusted) for item in items])


def _check_schema(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    # Only for tools that bring a schema of their own.
    from op_jupyter.tools.json_schema import BadSchema, JsonSchema, TooDeep

    try:
        problems = JsonSchema(spec.input_schema).problems(dict(arguments))
    except BadSchema as error:
        return f"the schema of {spec.name} cannot be used ({error.message:.200})"
    except TooDeep:
        return "arguments: they are nested too deep"
    return "; ".join(
        f"{'.'.join(map(str, problem.place)) or 'arguments'}: {problem.message:.200}"
        for problem in problems[:5]
    )
