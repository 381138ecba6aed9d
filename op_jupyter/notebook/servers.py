"""The MCP servers of one notebook: started when a cell first wants tools, ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from op_jupyter.engine.loop import run_sync
from op_jupyter.tools.base import Tool
from op_jupyter.tools.mcp import McpServer, ServerConfig, ServerGone


class Servers:
    """All of them.

    Attributes:
        tools: of those that could be started.
        problems: of those that could not, one sentence each.
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
        self.tools = tuple(tool for tools in found if isinstance(tools, tuple) for tool in tools)
        self.problems = tuple(told for told in found if isinstance(told, str))
        return True

    async def _ask_all(self) -> list[tuple[Tool, ...] | str]:
        return await asyncio.gather(*(_tools_or_problem(server) for server in self._servers))

    def close(self) -> None:
        """End them all."""
        servers, self._servers = self._servers, []
        self._configs, self.tools, self.problems = (), (), ()
        if servers:
            run_sync(_close_all, servers)


async def _tools_or_problem(server: McpServer) -> tuple[Tool, ...] | str:
    try:
        return await server.tools()
    except ServerGone as gone:
        return str(gone)


async def _close_all(servers: Sequence[McpServer]) -> None:
    await asyncio.gather(*(server.close() for server in servers))
