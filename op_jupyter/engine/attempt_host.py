"""What a service lends to its attempts: a model, tools, a way to ask, the state of the world."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from op_jupyter.core.messages import TextBlock
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.asking import Asker, ParkedAsker
from op_jupyter.engine.memory_tools import memory_tools
from op_jupyter.engine.plan_tool import UpdatePlan
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.servers import Servers
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.engine.session_config import Limits, SessionConfig, checked_config
from op_jupyter.engine.world_state import (
    WorldState,
    agents_md_section,
    mode_section,
    workspace_section,
)
from op_jupyter.tools.base import Tool
from op_jupyter.tools.files import file_tools
from op_jupyter.tools.mcp import ServerConfig
from op_jupyter.tools.shell import ShellTool
from op_jupyter.tools.toolset import Toolset


@dataclass
class AttemptHost:
    """Everything that an attempt needs and that is not the session's own.

    Attributes:
        make_runtime: for a provider and a model; None: those of the user's settings.
        limits: what a session's configuration may choose from.
        servers: the MCP servers of the user's settings.
        asker: who answers; by default whoever calls `Service.answer`.
        workspace: the folder that tools work in.
    """

    make_runtime: Callable[[str | None, str | None], Runtime]
    limits: Limits = field(default_factory=Limits)
    servers: Sequence[ServerConfig] = ()
    asker: Asker = field(default_factory=ParkedAsker)
    workspace: Path = field(default_factory=Path.cwd)
    _running: Servers = field(default_factory=Servers)
    _runtimes: dict[tuple[str | None, str | None], Runtime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def checked(self, config: Mapping[str, Any]) -> SessionConfig:
        """*config*, when a session may have it.

        Raises:
            UsageError: it may not; names the keys.
        """
        return checked_config(config, self.limits)

    def start_of(
        self, session: AgentSession, content: str, config: SessionConfig, *, shell: bool
    ) -> tuple[TurnStart, tuple[str, ...]]:
        """What the attempt starts with, and what went wrong with MCP servers, if that is news.

        Raises:
            ToolNotFound: the configuration names a tool that there is not.
            ConfigurationError: no model can be asked; says how to configure one.
        """
        session.workspace = self.workspace
        with self._lock:
            runtime = self._runtime(config)
            news = self._running.connect(self.servers, self.workspace)
            tools = self._tools(session, config, shell=shell)
            warnings = self._running.problems if news else ()
        start = TurnStart(
            (TextBlock(content),),
            runtime,
            tools=tools,
            max_steps=config.max_steps,
            model=config.model,
            asker=self.asker,
            world=None if runtime.provider.capabilities.small else _world(session),
        )
        return start, warnings

    def close(self) -> None:
        """End the servers and the runtimes."""
        with self._lock:
            self._running.close()
            for runtime in self._runtimes.values():
                runtime.close()
            self._runtimes.clear()

    def _runtime(self, config: SessionConfig) -> Runtime:
        key = config.provider, config.model
        if key not in self._runtimes:
            self._runtimes[key] = self.make_runtime(*key)
        return self._runtimes[key]

    def _tools(self, session: AgentSession, config: SessionConfig, *, shell: bool) -> Toolset:
        tools: list[Tool] = [*file_tools(), UpdatePlan(), *agent_tools()]
        root = None if session.store_path is None else session.store_path.parent
        if shell:
            tool = ShellTool(() if root is None else (root,))
            session.sandbox = tool.sandbox.words
            tools.append(tool)
        if config.memory:
            tools += memory_tools(session).values()
        servers = self._running
        theirs = servers.tools if config.mcp is None else servers.tools_of(config.mcp)
        own = Toolset(tools).plus(theirs)
        return own if config.tools is None else own.named(config.tools)


def _world(session: AgentSession) -> WorldState:
    return WorldState(
        {
            "workspace": lambda: workspace_section(session.workspace),
            "agents_md": lambda: agents_md_section(session.workspace, Path.home()),
            "permissions": lambda: mode_section(session.permission_mode),
        }
    )
