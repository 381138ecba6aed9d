"""The `shell` tool: one command of bash, in a sandbox where there is one.

It is offered only when it was asked for.  The command has no input and no secrets in its
environment; its whole process group ends with the call, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.redact import is_secret_name
from op_jupyter.errors import InvalidArguments
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.sandbox import Sandbox, find_sandbox
from op_jupyter.tools.schema import Signature, read_signature

SECONDS: Final = 120.0
STOP_SECONDS: Final = 1.0
"""How long a process may take to end once it was told to, before it is killed."""
LINGER_SECONDS: Final = 0.5
"""How long output is waited for that processes in the background still hold open."""
KEPT_BYTES: Final = 400_000
"""Of the head and of the tail of the output; what is between is not kept."""
PROGRESS_SECONDS: Final = 0.2
_CHUNK: Final = 65_536
_CALM: Final[Mapping[str, str]] = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


def _shell(command: str) -> None:
    """Run a command of bash in the workspace.

    Its output, errors among it, and its exit code come back. It has no input, gets 120 seconds
    unless the person's settings say otherwise, and processes that it leaves in the background
    end with it.

    Args:
        command: the command; several lines are possible.
    """


class ShellTool:
    """`shell`.

    Args:
        hidden: folders that a sandboxed command cannot see: where sessions are kept.
        sandbox: None: that of this machine, looked for on first use.
        seconds: until a command is ended, unless the user's settings say otherwise.
    """

    effect: Effect = "execute"
    timeout: float | None = None
    limits_itself = True
    trusted = False

    def __init__(
        self,
        hidden: Sequence[Path] = (),
        *,
        sandbox: Sandbox | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self.signature: Signature = read_signature(_shell, name="shell")
        self._hidden = tuple(hidden)
        self._sandbox = sandbox
        self._seconds = seconds

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return self.signature.spec

    @property
    def sandbox(self) -> Sandbox:
        """What commands run in."""
        if self._sandbox is None:
            self._sandbox = find_sandbox()
        return self._sandbox

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""
        try:
            command = self.signature.bind(arguments)["command"]
        except InvalidArguments as error:
            return error.message
        if not command.strip():
            return "command: is empty"
        return "command: holds a zero byte" if "\0" in command else ""

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The command."""
        return CallDescription(code=arguments["command"], language="shell")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the command; what it wrote and how it ended is the result."""
        command = self.signature.bind(arguments)["command"]
        shell = shutil.which("bash") or "/bin/sh"
        argv = self.sandbox.wrap([shell, "-c", command], context.workspace, self._hidden)
        output = _Output(context)
        seconds = self._seconds if context.seconds is None else context.seconds
        async with _started(argv, context.workspace) as (process, stream):
            try:
                async with asyncio.timeout(seconds):
                    ended = await _follow(process, stream, output)
            except TimeoutError:
                ended = f"TimedOut: it was ended after {seconds:g} seconds"
        said = "\n".join(part for part in (output.text().rstrip("\n"), ended) if part)
        return ToolOutput((TextBlock(said or "(no output)"),), "failed" if ended else "succeeded")


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* without what is secret, and without what makes programs wait for a person."""
    kept = {name: value for name, value in environ.items() if not is_secret_name(name)}
    return {**kept, **_CALM}


@asynccontextmanager
async def _started(
    argv: Sequence[str], folder: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """The process of *argv* and what it writes; its whole group is ended on the way out."""
    # A pipe of our own: asyncio's would have `Process.wait` wait for whoever holds it open.
    ours, theirs = os.pipe()
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(ours, "rb", 0)
    )
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=clean_environment(os.environ),
            start_new_session=True,
        )
        os.close(theirs)
        theirs = -1
        try:
            yield process, stream
        finally:
            await asyncio.shield(_end_group(process))
    finally:
        transport.close()
        if theirs != -1:
            os.close(theirs)


async def _follow(
    process: asyncio.subprocess.Process, stream: asyncio.StreamReader, output: _Output
) -> str:
    """Read until the command has ended; how, unless it went well."""
    reading = asyncio.get_running_loop().create_task(output.read(stream))
    try:
        code = await process.wait()
        # Processes in the background may hold the pipe open for as long as they live.
        await asyncio.wait({reading}, timeout=LINGER_SECONDS)
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    if code == 0:
        return ""
    return f"(exit code {code})" if code > 0 else f"(ended by signal {-code})"


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """End every process of the command that is still there."""
    _signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Output:
    """The head and the tail of what a command wrote, and its latest line while it runs."""

    def __init__(self, context: ToolContext) -> None:
        self._progress = context.progress
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0
        self._told = 0.0

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(_CHUNK):
            room = KEPT_BYTES - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[max(0, room) :]
            if (extra := len(self._tail) - KEPT_BYTES) > 0:
                del self._tail[:extra]
                self._cut += extra
            self._tell(chunk)

    def _tell(self, chunk: bytes) -> None:
        now = monotonic()
        lines = chunk.decode("utf-8", "replace").split("\n")
        latest = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if latest and now - self._told >= PROGRESS_SECONDS:
            self._told = now
            self._progress(latest)

    def text(self) -> str:
        cut = f"\n… {self._cut} bytes were not kept …\n".encode() if self._cut else b""
        return bytes(self._head + cut + self._tail).decode("utf-8", "replace")
