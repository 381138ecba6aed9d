"""A real JupyterLab or Notebook server on loopback, for browser tests."""

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

App = Literal["lab", "notebook"]

CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@dataclass(frozen=True, slots=True)
class LabServer:
    """Where a running server listens, and how to get in."""

    app: App
    url: str
    token: str
    folder: Path

    def page(self, notebook: str) -> str:
        """The address that opens *notebook*; a workspace of its own keeps tests apart."""
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


@contextmanager
def running_lab(
    folder: Path,
    app: App = "lab",
    *,
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[LabServer]:
    """Serve *folder* until the block is left; *settings* maps `plugin/name` to user settings.

    Everything Jupyter would read or write in the user's home goes into `folder/.jupyter-test`.
    """
    home = folder / ".jupyter-test"
    all_settings = {
        "@jupyterlab/apputils-extension/notification": {"fetchNews": "false"},
        **(settings or {}),
    }
    for name, values in all_settings.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    token = secrets.token_hex(16)
    runtime = home / "runtime"
    command = [
        *(sys.executable, "-m", "jupyterlab" if app == "lab" else "notebook"),
        *("--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"),
    ]
    log_path = home / "server.log"
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "JUPYTER_CONFIG_DIR": str(home / "config"),
                "JUPYTER_DATA_DIR": str(home / "data"),
                "JUPYTER_RUNTIME_DIR": str(runtime),
                "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
                "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
                "IPYTHONDIR": str(home / "ipython"),
                **(env or {}),
            },
        )
        try:
            port = _wait_until_ready(server, runtime, token, log_path)
            yield LabServer(app, f"http://127.0.0.1:{port}", token, folder)
        finally:
            server.terminate()
            try:
                server.wait(timeout=15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_ready(
    server: "subprocess.Popen[bytes]", runtime: Path, token: str, log: Path, seconds: float = 60
) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            try:
                port = int(json.loads(file.read_text())["port"])
                url = f"http://127.0.0.1:{port}/api/status?token={token}"
                with urllib.request.urlopen(url, timeout=5):
                    return port
            except (OSError, ValueError, urllib.error.URLError):
                continue  # half-written file, or not listening yet
        time.sleep(0.1)
    raise RuntimeError(f"Jupyter did not start (exit {server.poll()}):\n{log.read_text()[-3000:]}")
