"""llama.cpp's own server, as a child process on loopback, for as long as we live.

One server for a process and a model, shared by all who ask.  The child ends when the pipe to
its standard input closes or its parent is another one: a killed kernel leaves nothing behind.
(PR_SET_PDEATHSIG would not do: it fires when the *thread* that started the child ends.)

Run as a script, this module is that child.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any, Final

from op_jupyter.errors import ConfigurationError, ProviderConnectionError, ProviderTimeout
from op_jupyter.providers.local_model import ENVIRONMENT, check_model, model_path

START_TIMEOUT: Final = 60.0
"""The model loads in a second; a busy machine and a cold disk take longer."""

CACHE_MB: Final = 256
_STOP_GRACE: Final = 3.0
_LOG_TAIL: Final = 4000
_LIBRARY: Final = "xllamacpp"

_servers: dict[Path, LocalServer] = {}
_starting = threading.Lock()


def shared_server(
    model: Path | None = None, *, context_tokens: int, timeout: float = START_TIMEOUT
) -> LocalServer:
    """The running server of this process for *model*, started if need be.

    Blocks while the model loads.  Safe to call from any thread, before every request.

    Raises:
        ConfigurationError: the library or the model's file is missing, or is something else.
        ProviderTimeout: it did not get ready in *timeout* seconds.
        ProviderConnectionError: it ended while starting.
    """
    path = (model or model_path()).resolve()
    with _starting:
        server = _servers.get(path)
        if server is None or not server.is_running:
            if server is not None:
                server.close()
            server = LocalServer.start(path, context_tokens=context_tokens, timeout=timeout)
            _servers[path] = server
        return server


def close_servers() -> None:
    """End every server of this process."""
    with _starting:
        while _servers:
            _servers.popitem()[1].close()


atexit.register(close_servers)


class LocalServer:
    """A running server.  *base_url* is without ``/v1``; *api_key* is its own, made up at start.

    Without a key any page in the user's browser could use the server.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], base_url: str, api_key: str, log: IO[bytes]
    ) -> None:
        self.base_url = base_url
        self.api_key = api_key
        self._process = process
        self._log = log
        self._owner = os.getpid()

    def __repr__(self) -> str:
        return f"<LocalServer {self.base_url} pid={self.pid}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it runs, and is ours: a forked process starts its own."""
        return self._owner == os.getpid() and self._process.poll() is None

    @classmethod
    def start(
        cls, model: Path, *, context_tokens: int, timeout: float = START_TIMEOUT
    ) -> LocalServer:
        """Start a server for *model* and wait until it is healthy; see `shared_server`."""
        if importlib.util.find_spec(_LIBRARY) is None:
            raise ConfigurationError(
                "the local model needs llama.cpp: run pip install 'op-jupyter[local]'"
            )
        check_model(model)
        deadline = time.monotonic() + timeout
        api_key = secrets.token_urlsafe(24)
        log = tempfile.TemporaryFile(prefix="op-jupyter-llama-")  # noqa: SIM115 - lives on with it
        process = _spawn(log)
        try:
            _tell(process, model, context_tokens, api_key)
            url = _await_address(process, log, model, deadline, timeout)
            server = cls(process, url, api_key, log)
            server._await_health(deadline, timeout)
        except BaseException:  # KeyboardInterrupt too: no child may stay behind
            _end(process)
            log.close()
            raise
        return server

    def close(self) -> None:
        """End the server.  Safe to call twice; does nothing in a forked process."""
        if self._owner == os.getpid():
            _end(self._process)
            self._log.close()

    def _await_health(self, deadline: float, timeout: float) -> None:
        # No proxy of the environment leads to this machine's loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while time.monotonic() < deadline:
            with suppress(OSError), opener.open(f"{self.base_url}/health", timeout=2) as reply:
                if reply.status == 200:
                    return
            if self._process.poll() is not None:
                raise _ended(self._process, self._log, None)
            time.sleep(0.05)
        raise _too_slow(timeout, self._log)


# --- starting and ending the child ----------------------------------------------------------


def _spawn(log: IO[bytes]) -> subprocess.Popen[bytes]:
    # -P: a file of the user's that is called like a library must not be imported instead.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __spec__.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        # Ctrl-C in a terminal is meant for the turn, not for the server.
        start_new_session=True,
    )


def _tell(process: subprocess.Popen[bytes], model: Path, context: int, api_key: str) -> None:
    """Send the child its settings; not as arguments, where everyone could read the key."""
    template = resources.files("op_jupyter.providers") / "data" / "smol_tools.jinja"
    settings = {
        "model": str(model),
        "context_tokens": context,
        "api_key": api_key,
        "template": template.read_text(encoding="utf-8"),
        "parent": os.getpid(),
    }
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it ended already; the reason is in the log
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()


def _await_address(
    process: subprocess.Popen[bytes], log: IO[bytes], model: Path, deadline: float, timeout: float
) -> str:
    """The address that the child prints once the model is loaded."""
    assert process.stdout is not None
    poller = select.poll()  # `select.select` takes no descriptor from 1024 up
    poller.register(process.stdout, select.POLLIN)
    if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise _too_slow(timeout, log)
    line = process.stdout.readline()
    if not line:
        raise _ended(process, log, model)
    address: str = json.loads(line)["address"]
    return address


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    process.terminate()
    try:
        process.wait(_STOP_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ended(
    process: subprocess.Popen[bytes], log: IO[bytes], model: Path | None
) -> ConfigurationError | ProviderConnectionError:
    """Why the child ended: a model it cannot load is the user's to change, the rest is not."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_GRACE)
    tail = _tail(log)
    reason = tail.splitlines()[-1] if tail else f"exit code {process.returncode}"
    if model is not None and "failed to load model" in tail:
        return ConfigurationError(
            f"llama.cpp cannot load the model {model}: the file is damaged or of a kind that it "
            f"does not know; fetch it again (delete it, then op-jupyter local install), or set "
            f"{ENVIRONMENT} to another GGUF file",
            log=tail,
        )
    return ProviderConnectionError(
        f"the local model's server ended while it started ({reason})", log=tail
    )


def _too_slow(timeout: float, log: IO[bytes]) -> ProviderTimeout:
    return ProviderTimeout(
        f"the local model's server was not ready after {timeout:g} s; is the machine very busy, "
        "or short of memory?",
        log=_tail(log),
    )


def _tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_TAIL))
    return log.read().decode(errors="replace").strip()


# --- the child --------------------------------------------------------------------------


def main() -> int:
    """Serve the model named on standard input until that closes or the parent is gone."""
    settings = json.loads(sys.stdin.buffer.readline() or b"null")
    if settings is None:
        return 0  # the parent is gone already
    # llama.cpp prints to both; standard output is for the one line that the parent reads.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(settings["parent"],), daemon=True).start()
    server = _serve(settings)
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    threading.Event().wait()
    return 0


def _serve(settings: Mapping[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {"local"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.cors_origins = "none"
    params.offline = True
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = 1
    params.n_ctx = settings["context_tokens"]
    params.n_parallel = 1
    # More threads spin while they wait for each other: 20 times slower on two busy cores.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = CACHE_MB
    params.use_jinja = True
    params.sampling.seed = 42
    params.chat_template = settings["template"]
    return xllamacpp.Server(params)


def _end_with(parent: int) -> None:
    """End this process once standard input closes, or *parent* is no longer our parent.

    Both, because a process that the parent forked may hold the other end of the pipe open.
    """
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 4096):
            break
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
