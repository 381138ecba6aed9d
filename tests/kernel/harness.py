"""Real kernels, driven message by message as a front end drives them.

A `Kernel` reads its channels only while somebody waits for something, so a test says what it
waits for (`wait_for`) and never sleeps.
"""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".envs"
IPYKERNELS = ("6.30.1", "7.3.0", "newest")
PATIENCE = 60.0
LOOK_SECONDS = 0.1


def interpreter(ipykernel: str) -> Path:
    """The Python of the environment that `tests/support/prepare.py kernels` makes."""
    return ENVIRONMENTS / f"ipykernel-{ipykernel}" / "bin" / "python"


class _OneSpec(KernelSpecManager):
    """Starts one interpreter, whatever kernels are installed on the machine."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        super().__init__()
        self._argv = argv
        self._env = dict(env)

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=self._argv, env=self._env, display_name=kernel_name, language="python"
        )


def _bare(env: Mapping[str, str]) -> dict[str, str]:
    """*env* without what a test said in it."""
    return {name: value for name, value in env.items() if not name.startswith("OPENPROGRAM_")}


_ANEW = """
def _begin_anew():
    import os, sys
    shell = get_ipython()
    extension = sys.modules.get("op_jupyter.notebook.extension")
    if extension is not None:
        extension.unload(shell)
        extension._left.clear()
    for name in ("op_jupyter", "openprogram"):
        shell.extension_manager.loaded.discard(name)
    shell.config.pop("AgentMagics", None)
    for name in [name for name in os.environ if name.startswith("OPENPROGRAM_")]:
        del os.environ[name]
    os.environ.update({env})
    os.chdir({cwd!r})
_begin_anew()
"""


@dataclass
class Cell:
    """One execute request and everything that came back for it."""

    id: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] | None = None
    sent_at: float = 0.0
    done_at: float = 0.0

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The contents of its iopub messages of one type."""
        return [m["content"] for m in self.messages if m["header"]["msg_type"] == kind]

    @property
    def stdout(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stderr")

    @property
    def status(self) -> str:
        return "" if self.reply is None else str(self.reply["content"]["status"])

    @property
    def error(self) -> str:
        """The name of the exception, or "" when it went well."""
        return "" if self.reply is None else str(self.reply["content"].get("ename", ""))

    @property
    def displays(self) -> list[dict[str, Any]]:
        """What the cell shows at the end: updates of a display replace what it showed."""
        shown: list[dict[str, Any]] = []
        places: dict[str, int] = {}
        for message in self.messages:
            kind, content = message["header"]["msg_type"], message["content"]
            place = content.get("transient", {}).get("display_id")
            if kind == "update_display_data" and place in places:
                shown[places[place]] = content
            elif kind in ("display_data", "execute_result"):
                if place is not None:
                    places[place] = len(shown)
                shown.append(content)
        return shown

    @property
    def finished(self) -> bool:
        idle = any(c["execution_state"] == "idle" for c in self.of("status"))
        return idle and self.reply is not None


class Kernel:
    """A running kernel and our side of its channels."""

    def __init__(self, python: Path, env: Mapping[str, str], cwd: Path) -> None:
        argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        whole = {**os.environ, **env}
        # Without bytecode every start compiles hundreds of files again.
        whole.pop("PYTHONDONTWRITEBYTECODE", None)
        self.manager = KernelManager(kernel_spec_manager=_OneSpec(argv, {}), kernel_name="op")
        self._env, self._cwd = whole, cwd
        self.manager.start_kernel(env=whole, cwd=str(cwd))
        self.cells: dict[str, Cell] = {}
        self.comms: dict[str, list[dict[str, Any]]] = {}
        self._made: dict[str, Cell] = {}
        self.input_requests: list[dict[str, Any]] = []
        self.replies: dict[str, dict[str, Any]] = {}
        self.idle: set[str] = set()
        self._connect()

    # -- life

    def _connect(self) -> None:
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels(hb=False)
        self.client.wait_for_ready(timeout=PATIENCE)

    def _disconnect(self) -> None:
        self.client.stop_channels()
        self.client.context.destroy(linger=0)

    def restart(self) -> None:
        """A new process behind the same connection; what came before is forgotten."""
        self._disconnect()
        self.manager.restart_kernel(now=True, env=self._env, cwd=str(self._cwd))
        self._forget()
        self._connect()

    def kill(self) -> None:
        """End the process as the system does when memory is short: nothing gets to run."""
        self.manager.signal_kernel(signal.SIGKILL)

    def interrupt(self) -> None:
        """The stop button."""
        self.manager.interrupt_kernel()

    def leave(self) -> None:
        """End the kernel as a server does when it has time: its exit handlers run."""
        self.client.shutdown()
        assert self.manager.provisioner is not None
        deadline = time.monotonic() + PATIENCE
        while self.manager.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.manager.is_alive()

    @contextmanager
    def beside(self) -> Iterator[Kernel]:
        """A second client of the same kernel, which leaves at the end."""
        other = copy.copy(self)
        other.cells, other.comms, other.replies, other._made = {}, {}, {}, {}
        other.input_requests, other.idle = [], set()
        # Not the manager's: its clients are one session, and to the kernel one client.
        other.client = BlockingKernelClient(connection_file=self.manager.connection_file)
        other.client.load_connection_file()
        other.client.start_channels(hb=False)
        try:
            other.client.wait_for_ready(timeout=PATIENCE)
            yield other
        finally:
            other._disconnect()

    def watch(self, cell: Cell) -> Cell:
        """A cell that another client runs, as this client sees it; there is no reply."""
        seen = self.cells[cell.id] = Cell(cell.id)
        return seen

    def shutdown(self) -> None:
        self._disconnect()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        self.manager.context.destroy(linger=0)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return bool(self.manager.is_alive())

    def begin(self, env: Mapping[str, str], cwd: Path) -> None:
        """Make a running kernel as good as new, in another folder and environment."""
        self._env, self._cwd = {**_bare(self._env), **env}, cwd
        self.check(_ANEW.format(env=dict(env), cwd=str(cwd)), timeout=20.0)
        self.check("%reset -f")
        self._forget()

    def _forget(self) -> None:
        for kept in (self.cells, self.comms, self.replies, self._made):
            kept.clear()
        self.input_requests.clear()
        self.idle.clear()

    # -- asking

    def send(
        self,
        code: str,
        *,
        allow_stdin: bool = False,
        cell_id: str | None = None,
        subshell: str | None = None,
    ) -> Cell:
        """Queue a cell and return at once."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": True,
        }
        metadata = {} if cell_id is None else {"cellId": cell_id}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        cell = self.cells[message["header"]["msg_id"]] = Cell(
            message["header"]["msg_id"], sent_at=time.monotonic()
        )
        self.client.shell_channel.send(message)
        return cell

    def run(
        self,
        code: str,
        *,
        allow_stdin: bool = False,
        cell_id: str | None = None,
        timeout: float = PATIENCE,
    ) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.send(code, allow_stdin=allow_stdin, cell_id=cell_id), timeout)

    def finish(self, cell: Cell, timeout: float = PATIENCE) -> Cell:
        """Wait for the end of *cell*."""
        self.wait_for(lambda: cell.finished, f"the end of a cell; so far {cell}", timeout)
        return cell

    def check(self, code: str, **options: Any) -> str:
        """Run a cell that must go well, and return what it printed."""
        cell = self.run(code, **options)
        assert cell.status == "ok", cell.reply
        return cell.stdout.strip()

    def comm_message(
        self, comm_id: str, data: Mapping[str, Any], *, subshell: str | None = None
    ) -> str:
        """A message on a comm, as a widget in the page sends it; returns its id."""
        message = self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": dict(data)})
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def widget_event(
        self, comm_id: str, content: Mapping[str, Any], *, subshell: str | None = None
    ) -> str:
        """A custom message of a widget: what `model.send(content)` puts on the wire."""
        data = {"method": "custom", "content": dict(content)}
        return self.comm_message(comm_id, data, subshell=subshell)

    def post(self, kind: str, content: Mapping[str, Any]) -> str:
        """Send another shell request; returns its id."""
        message = self.client.session.msg(kind, dict(content))
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def request(self, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Send another shell request and wait for its reply."""
        return self.reply_to(self.post(kind, content), kind)

    def new_subshell(self) -> str:
        """A thread of the kernel that handles messages beside the main one (ipykernel 7)."""
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        reply = self.reply_to(message["header"]["msg_id"], "create_subshell_request")
        return str(reply["subshell_id"])

    def reply_to(self, message_id: str, kind: str) -> dict[str, Any]:
        self.wait_for(lambda: message_id in self.replies, f"the reply to a {kind}")
        return dict(self.replies[message_id]["content"])

    def answer_input(self, text: str) -> None:
        """Type *text* at the prompt that waits."""
        self.client.input(text)

    # -- reading

    def wait_for(self, happened: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
        """Read messages until *happened*.

        Raises:
            TimeoutError: it did not.
        """
        deadline = time.monotonic() + timeout
        while not happened():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"waited {timeout} s for {what}")
            self._read(min(left, LOOK_SECONDS))  # not everything that is waited for sends a message

    def _read(self, timeout: float) -> None:
        client = self.client
        channels = (
            (client.iopub_channel, self._take_iopub),
            (client.shell_channel, self._take_reply),
            (client.control_channel, self._take_reply),
            (client.stdin_channel, self._take_input),
        )
        poller = zmq.Poller()
        for channel, _ in channels:
            poller.register(channel.socket, zmq.POLLIN)
        ready = dict(poller.poll(timeout * 1000))
        for channel, take in channels:
            if channel.socket in ready:
                take(channel.get_msg(timeout=0))

    def _take_iopub(self, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        parent = message["parent_header"].get("msg_id", "")
        if kind in ("comm_open", "comm_msg"):
            self.comms.setdefault(content["comm_id"], []).append(message)
        if kind == "status" and content["execution_state"] == "idle":
            self.idle.add(parent)
        if cell := self._cell_of(message):
            cell.messages.append(message)
            self._mark_done(cell)

    def _cell_of(self, message: dict[str, Any]) -> Cell | None:
        """Where a front end shows it: an update of a display goes to the cell that made that."""
        cell = self.cells.get(message["parent_header"].get("msg_id", ""))
        place = message["content"].get("transient", {}).get("display_id")
        if place is None:
            return cell
        if message["header"]["msg_type"] == "update_display_data":
            return self._made.get(place)
        if cell is not None:
            self._made[place] = cell
        return cell

    def _take_reply(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"].get("msg_id", "")
        self.replies[parent] = message
        if cell := self.cells.get(parent):
            cell.reply = message
            self._mark_done(cell)

    def _mark_done(self, cell: Cell) -> None:
        if cell.finished and not cell.done_at:
            cell.done_at = time.monotonic()

    def _take_input(self, message: dict[str, Any]) -> None:
        self.input_requests.append(message)


class Kernels:
    """One kernel of each version, which tests use one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Kernel] = {}

    def take(self, ipykernel: str, env: Mapping[str, str], cwd: Path) -> Kernel:
        """The kernel of that version, as good as new; a new one where it cannot be."""
        kernel = self._running.get(ipykernel)
        if kernel is not None:
            try:
                if kernel.alive:
                    kernel.begin(env, cwd)
                    return kernel
            except (TimeoutError, AssertionError):
                pass  # a test left it in the middle of something
            del self._running[ipykernel]
            kernel.shutdown()
        home = self._folder / ipykernel
        home.mkdir(exist_ok=True)
        kernel = self._running[ipykernel] = Kernel(
            interpreter(ipykernel), {**env, "IPYTHONDIR": str(home)}, cwd
        )
        return kernel

    def shutdown(self) -> None:
        for kernel in self._running.values():
            kernel.shutdown()


@contextmanager
def running_kernel(
    ipykernel: str, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[Kernel]:
    """A kernel of the environment for *ipykernel*, gone afterwards."""
    with running_kernel_of(interpreter(ipykernel), cwd, env) as kernel:
        yield kernel


@contextmanager
def running_kernel_of(
    python: Path, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[Kernel]:
    """A kernel of the environment that *python* belongs to, gone afterwards."""
    kernel = Kernel(python, env or {}, cwd)
    try:
        yield kernel
    finally:
        kernel.shutdown()
