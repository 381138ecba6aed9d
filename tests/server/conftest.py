"""A real Jupyter server with the extension, and sessions to serve."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.jupyter_tree import tree_environment

from op_jupyter import SessionStore
from op_jupyter.core.nodes import Node, NodeRole, Turn

START_SECONDS = 60.0
ANSWER = "It is \x1b[31m42 </script>."
OTHERS = ("ipyparallel", "jupyter_lsp", "jupyter_server_terminals", "jupyterlab", "notebook")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; paths are relative to ``/openprogram``."""

    url: str
    token: str
    home: Path
    log: Path

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Ask with the right token, unless another is given ("": with none)."""
        said = self.token if token is None else token
        request = urllib.request.Request(
            f"{self.url}/openprogram/{path}",
            method=method,
            headers={**({"Authorization": f"token {said}"} if said else {}), **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Reply(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, dict(error.headers), error.read())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    token, home = secrets.token_hex(16), folder / "sessions"
    environment = {
        **os.environ,
        **tree_environment(folder),
        "HOME": str(folder),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "OPENPROGRAM_CONFIG": os.devnull,
        "OPENPROGRAM_HOME": str(home),
    }
    log = folder / "server.log"
    options = [
        *("--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--allow-root"),
        *(f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"),
        # None of our business, and slow.
        f"--ServerApp.jpserver_extensions={dict.fromkeys(OTHERS, False)}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            address = folder / "runtime" / f"jpserver-{process.pid}.json"
            yield Server(_url(address, process, token, log), token, home, log)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _url(address: Path, process: subprocess.Popen[bytes], token: str, log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            url = f"http://127.0.0.1:{json.loads(address.read_text())['port']}"
            urllib.request.urlopen(f"{url}/api/status?token={token}", timeout=5).close()
        except (OSError, ValueError):
            time.sleep(0.05)  # the server is another process; there is nothing to wait on
        else:
            return url
    raise RuntimeError(log.read_text())


@pytest.fixture
def store(server: Server) -> SessionStore:
    """The store that the server reads."""
    return SessionStore(server.home)


def make_session(
    store: SessionStore,
    session_id: str,
    prompt: str = "What is 6 x 7?",
    source: str = "notebook",
) -> None:
    """A session with one turn: a prompt, a tool call that was allowed, an answer."""
    store.create_session(session_id, title=prompt, source=source, notebook="/work/a.ipynb")
    session = store.open(session_id)
    of_turn = {"turn_id": "t1"}

    def add(node_id: str, role: NodeRole, name: str, **fields: Any) -> None:
        kind = fields.pop("kind", None)
        metadata = {**of_turn, **({"kind": kind} if kind else {}), "label": f"{name} {ANSWER}"}
        node = Node(node_id, role, name, status="completed", metadata=metadata, **fields)
        session.append(node, advance_head=role != "code")

    session.begin_turn(Turn("t1", subject=prompt))
    add("u1", "user", "user", input=[{"type": "text", "text": prompt}])
    add("m1", "llm", "a-model", predecessor="u1", output=ANSWER)
    add("c1", "code", "python", kind="tool", caller="m1", input={"code": "6 * 7"}, output="42")
    session.record_decision(
        {"turn_id": "t1", "tool_call_id": "c1", "answer": "allow", "how": "click"}
    )
    session.end_turn("t1", "completed")
    session.close()
