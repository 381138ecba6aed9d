"""Tools of MCP servers, which are programs of their own.

This is the one module that imports the `mcp` library (the extra ``mcp``).  A server is started
when its tools are first wanted, and again when it has died and one of them is called.  What a
server says of itself, that a tool only reads for instance, is not believed: its tools ask.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from op_jupyter.core.messages import ImageBlock, TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError
from op_jupyter.tools.base import CallDescription, Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger(__name__)

T = TypeVar("T")

START_SECONDS: Final = 20.0
CALL_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 8.0
"""How long ending a server is waited for; the library kills one that is deaf before that."""
MOST_TOOLS: Final = 100
DESCRIPTION_CHARS: Final = 4_000
NAME_CHARS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How one server is started.

    Attributes:
        name: stands before the names of its tools.
        env: added to the few variables that a server gets; keys belong here.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def parse_server(name: str, data: Any, where: str) -> ServerConfig:
    """The server that the table ``[mcp.NAME]`` of the settings describes.

    Raises:
        ConfigurationError: it does not describe one.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"mcp.{name} in {where}: use letters, digits, _ and - as a name")
    if not isinstance(data, dict) or (unknown := set(data) - {"command", "args", "env"}):
        named = ", ".join(sorted(unknown)) if isinstance(data, dict) else repr(data)
        raise ConfigurationError(f"mcp.{name} in {where} knows command, args and env, not {named}")
    command, args, env = data.get("command"), data.get("args", []), data.get("env", {})
    if not isinstance(command, str) or not command:
        raise ConfigurationError(f"mcp.{name} in {where} needs a command")
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise ConfigurationError(f"mcp.{name}.args in {where} has to be a list of texts")
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ConfigurationError(f"mcp.{name}.env in {where} has to hold texts")
    return ServerConfig(name, command, tuple(args), env)


class ServerGone(Exception):
    """The server could not be started, or it ended."""


class McpServer:
    """One server.  All of it lives on the background loop.

    *start_seconds*: how long starting it, and having it list its tools, may take.
    """

    def __init__(
        self, config: ServerConfig, workspace: Path, *, start_seconds: float = START_SECONDS
    ) -> None:
        self.config = config
        self._workspace = workspace
        self._start_seconds = start_seconds
        self._owner: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._client: Client | None = None
        self._starting = asyncio.Lock()

    async def tools(self) -> tuple[Tool, ...]:
        """Its tools, in its order; starts it.

        Raises:
            ServerGone: it cannot be started, or does not answer.
        """
        await self._running()
        try:
            async with asyncio.timeout(self._start_seconds):
                listed = await self._asked(_list_tools)
        except TimeoutError:
            raise ServerGone(
                f"the MCP server {self.config.name} did not list its tools within "
                f"{self._start_seconds:g} seconds"
            ) from None
        return tuple(_named_once(McpTool(self, tool) for tool in listed))

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """What the tool *name* answers; a server that has died is started again.

        Raises:
            ServerGone: it cannot be started, or ended before it answered.
        """

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            of = "" if total is None else f" of {total:g}"
            context.progress(message or f"{progress:g}{of}")

        def call(client: Client) -> Awaitable[Any]:
            return client.call_tool(name, dict(arguments), progress_callback=tell)

        return await self._asked(call)

    async def close(self) -> None:
        """End it, and wait a little for that."""
        self._let_go()
        if self._ending:
            await asyncio.wait(tuple(self._ending), timeout=CLOSE_SECONDS)

    def _let_go(self) -> None:
        """Have it end by itself: one that is deaf would hold up who waits for it."""
        owner, self._owner, self._client = self._owner, None, None
        if owner is not None and not owner.done():
            self._ending.add(owner)
            owner.add_done_callback(self._ended)
            owner.cancel()

    def _ended(self, owner: asyncio.Task[None]) -> None:
        self._ending.discard(owner)
        if not owner.cancelled() and (error := owner.exception()) is not None:
            log.info("the MCP server %s: %s", self.config.name, error)

    # -- the process

    async def _running(self) -> Client:
        async with self._starting:
            if self._owner is None or self._owner.done() or self._client is None:
                await self._start()
        assert self._client is not None
        return self._client

    async def _start(self) -> None:
        ready = asyncio.get_running_loop().create_future()
        self._owner = asyncio.get_running_loop().create_task(self._own(ready))
        try:
            await asyncio.wait(
                {self._owner, ready},
                timeout=self._start_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self._let_go()
            raise
        if ready.done():
            self._client = ready.result()
            return
        if self._owner.done():
            raise ServerGone(_why(self.config.name, self._owner))
        self._let_go()
        late = f"did not answer within {self._start_seconds:g} seconds"
        raise ServerGone(f"the MCP server {self.config.name} {late}")

    async def _own(self, ready: asyncio.Future[Client]) -> None:
        """Hold the connection: what opens it has to close it, in one task."""
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        config = self.config
        parameters = StdioServerParameters(
            command=config.command,
            args=list(config.args),
            env=dict(config.env) or None,
            cwd=self._workspace,
        )
        with _nowhere() as nowhere:
            async with Client(stdio_client(parameters, errlog=nowhere)) as client:
                ready.set_result(client)
                await asyncio.Event().wait()

    async def _asked(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """What the server answers; one that turns out to be gone is let go."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client = await self._running()
        try:
            return await ask(client)
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise
            self._let_go()
            raise ServerGone(f"the MCP server {self.config.name} ended") from error


def _nowhere() -> TextIO:
    """Where what a server says on its error stream goes: a kernel's would end up in a cell."""
    return open(os.devnull, "w")


async def _list_tools(client: Client) -> list[Any]:
    listed: list[Any] = []
    cursor: str | None = None
    while len(listed) < MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        listed += page.tools
        if (cursor := page.next_cursor) is None:
            break
    return listed[:MOST_TOOLS]


def _why(name: str, owner: asyncio.Task[None]) -> str:
    error = None if not owner.done() or owner.cancelled() else owner.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ImportError):
        return f"the MCP server {name} needs the extra mcp: pip install 'op-jupyter[mcp]'"
    if isinstance(error, FileNotFoundError):
        return f"the MCP server {name} could not be started: there is no such program"
    return f"the MCP server {name} ended" + (f" ({type(error).__name__}: {error})" if error else "")


class McpTool:
    """A tool of a server, under the server's name.

    Attributes:
        server: that name, as it is configured.
    """

    effect: Effect = "execute"
    timeout: float | None = CALL_SECONDS
    trusted = False

    def __init__(self, server: McpServer, tool: Any) -> None:
        """Offer *tool*, as the server lists it."""
        self.server = server.config.name
        self._server = server
        self._name = str(tool.name)
        name = _UNFIT.sub("_", f"{server.config.name}__{tool.name}")[:NAME_CHARS]
        description = (tool.description or tool.title or "")[:DESCRIPTION_CHARS]
        self.spec = ToolSpec(name, description, {**dict(tool.input_schema), "type": "object"})

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """Nothing: what another program does cannot be known before."""
        return CallDescription(undo="What another program does cannot be undone.")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Have the server do it; an error of it, or its end, is an error result."""
        from mcp import MCPError

        try:
            result = await self._server.call(self._name, arguments, context)
        except ServerGone as gone:
            return ToolOutput((TextBlock(f"{gone}; a further call starts it again"),), "failed")
        except MCPError as error:
            return ToolOutput((TextBlock(f"{error.message} (code {error.code})"),), "failed")
        return ToolOutput(tuple(_content(result)), "failed" if result.is_error else "succeeded")


def _content(result: Any) -> Iterator[TextBlock | ImageBlock]:
    """What a model can be sent of a result."""
    for part in result.content:
        match part.type:
            case "text":
                yield TextBlock(part.text)
            case "image" if part.mime_type in _IMAGES:
                yield ImageBlock(part.mime_type, part.data)
            case "resource" if isinstance(getattr(part.resource, "text", None), str):
                yield TextBlock(f"{part.resource.uri}\n{part.resource.text}")
            case "resource_link":
                yield TextBlock(f"{part.name}: {part.uri}")
            case kind:
                yield TextBlock(f"[{kind} that cannot be shown]")
    if not result.content:
        value = result.structured_content
        yield TextBlock("(no output)" if value is None else json.dumps(value, ensure_ascii=False))


def _named_once(tools: Iterator[McpTool]) -> Iterator[McpTool]:
    """*tools* without those whose name, made fit, another one has already."""
    seen: set[str] = set()
    for tool in tools:
        if tool.spec.name not in seen:
            seen.add(tool.spec.name)
            yield tool
