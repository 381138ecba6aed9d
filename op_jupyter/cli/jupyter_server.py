"""A Jupyter server of our own on loopback, for as long as a block of code runs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from jupyter_core.paths import jupyter_runtime_dir

from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError

App: TypeAlias = Literal["lab", "notebook"]

_MODULES: Final[Mapping[App, str]] = {"lab": "jupyterlab", "notebook": "notebook"}
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.1
_LOG_TAIL_CHARS: Final = 3000


@dataclass(frozen=True, slots=True)
class JupyterServer:
    """Where a running server listens, and how to get in."""

    app: App
    url: str
    token: str
    folder: Path
    process: subprocess.Popen[bytes]

    def page(self, notebook: str) -> str:
        """The address that opens *notebook*; a workspace of its own restores no other tabs."""
        notebook = urllib.parse.quote(notebook)
        if self.app == "lab":
            workspace = secrets.token_hex(4)
            return f"{self.url}/lab/workspaces/{workspace}/tree/{notebook}?token={self.token}"
        return f"{self.url}/notebooks/{notebook}?token={self.token}"

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Call the server's REST API and return its JSON."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def start_kernel(self, notebook: str, kernel: str) -> str:
        """Start the kernel of *notebook* before its page opens, and return the kernel's id.

        A page that has to start it itself now and then asks which one.
        """
        session = self.request(
            "POST",
            "sessions",
            {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": kernel}},
        )
        return str(session["kernel"]["id"])


@contextmanager
def running_server(
    folder: Path,
    app: App = "lab",
    *,
    home: Path | None = None,
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[JupyterServer]:
    """Serve *folder* until the block is left.

    Args:
        home: everything that Jupyter reads or writes in the user's home goes here instead;
            None: the user's own configuration counts.
        env: added to the server's environment, and so to its kernels'.
        settings: user settings of the page, by `plugin/name`; only with *home*.

    Raises:
        ConfigurationError: the server did not start; with the end of its log.
    """
    token = secrets.token_hex(16)
    command = [
        *(sys.executable, "-m", _MODULES[app], "--no-browser"),
        *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={folder}"),
        f"--IdentityProvider.token={token}",
    ]
    if os.geteuid() == 0:
        command.append("--allow-root")
    environment = {**os.environ, **_jupyter_home(home), **(env or {})}
    # Without bytecode the server and every kernel start about twice as slow.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if home is not None:
        _write_settings(home, settings or {})
    runtime = Path(environment.get("JUPYTER_RUNTIME_DIR") or jupyter_runtime_dir())
    log_path = (home or runtime) / "server.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; the server would ask whether it is meant
        )
        try:
            port = _wait_until_ready(process, runtime, token, log_path)
            server = JupyterServer(app, f"http://127.0.0.1:{port}", token, folder, process)
            try:
                yield server
            finally:
                _end_kernels(server)
        finally:
            _stop(process)


def _jupyter_home(home: Path | None) -> dict[str, str]:
    if home is None:
        return {}
    return {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
    }


def _write_settings(home: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    no_news = {"@jupyterlab/apputils-extension/notification": {"fetchNews": "false"}}
    for name, values in {**no_news, **settings}.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))


def _wait_until_ready(
    process: subprocess.Popen[bytes], runtime: Path, token: str, log: Path
) -> int:
    deadline = time.monotonic() + _START_SECONDS
    address = runtime / f"jpserver-{process.pid}.json"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            port = int(json.loads(address.read_text())["port"])
            status = f"http://127.0.0.1:{port}/api/status?token={token}"
            with urllib.request.urlopen(status, timeout=5):
                return port
        except (OSError, ValueError):  # not written, half written, or not listening yet
            time.sleep(_POLL_SECONDS)
    raise ConfigurationError(
        f"Jupyter did not start (exit code {process.poll()}); the end of {log}:\n"
        f"{log.read_text(errors='replace')[-_LOG_TAIL_CHARS:]}"
    )


def _end_kernels(server: JupyterServer) -> None:
    """End them in peace, before the server that may have to be killed."""
    try:
        for kernel in server.request("GET", "kernels"):
            server.request("DELETE", f"kernels/{kernel['id']}")
    except OSError:
        pass  # the server is gone; its kernels notice that and end


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a server without kernels.

    Now and then it stops serving and then never exits, as an idle thread that has read or written
    a file is waited for; there is nothing to lose by then.
    """
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
