"""The MCP servers of one host: started when a turn first wants tools, ended with the host."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

from op_jupyter.engine.loop import run_sync
from op_jupyter.tools.base import Tool
from op_jupyter.tools.mcp import McpServer, McpTool, ServerConfig, ServerGone


class Servers:
    """All of them.

    Attributes:
        tools: of those that could be started.
        problems: of those that could not, and of names that two have, one sentence each.
    """

    def __init__(self) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.problems: tuple[str, ...] = ()
        self._configs: tuple[ServerConfig, ...] = ()
        self._servers: list[McpServer] = []

    def connect(self, configs: Sequence[ServerConfig], workspace: Path) -> bool:
        """Have the servers of *configs* running; whether anything was done.

        Waits for those that start.  Unchanged configurations are tried once.
        """
        if tuple(configs) == self._configs:
            return False
        self.close()
        self._configs = tuple(configs)
        self._servers = [McpServer(config, workspace) for config in configs]
        found = run_sync(self._ask_all)
        offered = [tools for tools in found if isinstance(tools, tuple)]
        self.tools, doubled = _named_once(offered)
        self.problems = (*(told for told in found if isinstance(told, str)), *doubled)
        return True

    def tools_of(self, names: Collection[str]) -> tuple[Tool, ...]:
        """The tools of those servers alone."""
        return tuple(t for t in self.tools if isinstance(t, McpTool) and t.server in names)

    async def _ask_all(self) -> list[tuple[Tool, ...] | str]:
        return await asyncio.gather(*(_tools_or_problem(server) for server in self._servers))

    def close(self) -> None:
        """End them all."""
        servers, self._servers = self._servers, []
        self._configs, self.tools, self.problems = (), (), ()
        if servers:
            run_sync(_close_all, servers)


def _named_once(offered: Sequence[tuple[Tool, ...]]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools of all servers, and a sentence for each name that was taken.

    The server that the settings name first wins, whichever of them was ready first.
    """
    tools: dict[str, Tool] = {}
    doubled = []
    for tool in (tool for of_one in offered for tool in of_one):
        name = tool.spec.name
        if name in tools:
            doubled.append(
                f"two MCP servers offer a tool called {name}; the first one's is offered"
            )
        else:
            tools[name] = tool
    return tuple(tools.values()), tuple(doubled)


async def _tools_or_problem(server: McpServer) -> tuple[Tool, ...] | str:
    try:
        return await server.tools()
    except ServerGone as gone:
        return str(gone)


async def _close_all(servers: Sequence[McpServer]) -> None:
    await asyncio.gather(*(server.close() for server in servers))
