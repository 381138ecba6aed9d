"""A real JupyterLab or Notebook server on loopback, for browser tests."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from op_jupyter.cli.jupyter_server import App, JupyterServer, running_server
from tests.support.jupyter_tree import tree_environment

LabServer = JupyterServer

CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def running_lab(
    folder: Path,
    app: App = "lab",
    *,
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> AbstractContextManager[JupyterServer]:
    """Serve *folder*; all that Jupyter would keep in the user's home is in `.jupyter-test`."""
    environment = {**tree_environment(folder / ".tree"), **(env or {})}
    home = folder / ".jupyter-test"
    return running_server(folder, app, home=home, env=environment, settings=settings)
