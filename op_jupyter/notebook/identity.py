"""Which notebook this is, which cell runs, and the name of this very run of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from op_jupyter.core.values import dataclass
from op_jupyter.notebook.frontend import kernel_of

SESSION_NAME_ENV: Final = "JPY_SESSION_NAME"
VSCODE_NAME: Final = "__vsc_ipynb_file__"


@dataclass(frozen=True, slots=True)
class NotebookId:
    """What tells one notebook from another, also after a restart.

    Attributes:
        key: equal for the same notebook; kept with its sessions.
        path: the file; None when the front end does not tell.
    """

    key: str
    path: Path | None = None

    @property
    def name(self) -> str:
        """For people and for the model."""
        return self.path.name if self.path is not None else "a notebook without a name"


def notebook_id(shell: Any, environ: Mapping[str, str] | None = None) -> NotebookId:
    """The notebook that *shell* runs: VS Code's name, Jupyter's, or the kernel's id."""
    environ = os.environ if environ is None else environ
    named = shell.user_ns.get(VSCODE_NAME) or environ.get(SESSION_NAME_ENV)
    if isinstance(named, str) and named:
        path = Path(named).absolute()
        return NotebookId(str(path), path)
    return NotebookId(kernel_id(shell))


def kernel_id(shell: Any) -> str:
    """The id in the name of the connection file: a restart by the server keeps it."""
    kernel = kernel_of(shell)
    file = getattr(getattr(kernel, "parent", None), "connection_file", "")
    return Path(file).stem if file else f"process-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class CellRun:
    """One run of one cell; both are None where no front end says so.

    Attributes:
        request_id: the execute request's id: a rerun has another one.
        cell_id: the same for every run of the cell.
    """

    request_id: str | None = None
    cell_id: str | None = None


def cell_run(shell: Any) -> CellRun:
    """The run that is going on now."""
    kernel = kernel_of(shell)
    if kernel is None:
        return CellRun()
    parent = kernel.get_parent("shell")
    cell_id = parent.get("metadata", {}).get("cellId")
    return CellRun(_request_id(parent), cell_id if isinstance(cell_id, str) else None)


def _request_id(parent: Mapping[str, Any]) -> str | None:
    """The execute request's id and time.

    Clients that count their messages (`jupyter_client` and what is built on it) begin again
    when they connect to a restarted kernel, so the id alone may come a second time.
    """
    header = parent.get("header", {})
    sent = header.get("date")
    when = sent.isoformat() if hasattr(sent, "isoformat") else sent
    return f"{header['msg_id']} {when}" if header.get("msg_id") else None
