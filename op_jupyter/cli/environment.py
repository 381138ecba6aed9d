"""What the rest of this installation is like, as far as it decides what works."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.paths import jupyter_path

from op_jupyter import __version__, bootstrap
from op_jupyter.cli.kernelspec import NAME as KERNEL
from op_jupyter.config.settings import Settings
from op_jupyter.core.values import dataclass
from op_jupyter.errors import OpenProgramError
from op_jupyter.providers import claude_program
from op_jupyter.providers.catalog import CLAUDE_CODE, LOCAL
from op_jupyter.providers.local_model import is_installed
from op_jupyter.store.executable import git_version

ALIAS: Final = "openprogram"
_MARK: Final = "stands for `op_jupyter`"
_LAB_EXTENSION: Final = "op-jupyter-labextension"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        ok: it is as it should be, or may well be as it is.
        said: what it is like, and what to do if that is not right.
    """

    name: str
    ok: bool
    said: str


def environment(root: Path | None) -> Iterator[Check]:
    """All of it; never the value of a key.  *root*: where sessions are, if that is known."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("op-jupyter", True, f"{__version__} under Python {version} ({sys.executable})")
    yield _alias()
    if root is not None:
        yield _sessions_folder(root)
    yield _git()
    try:
        chosen = bootstrap.settings()
    except OpenProgramError as error:
        yield Check("settings", False, error.message)
    else:
        kept = "" if chosen.file.exists() else " (not there, which is fine)"
        yield Check("settings", True, f"{chosen.file}{kept}")
        yield _provider(chosen)
        yield Check("providers", True, ", ".join(_providers(chosen)))
    yield _kernel()
    yield _lab()


def _alias() -> Check:
    found = importlib.util.find_spec(ALIAS)
    origin = found.origin if found is not None else None
    if origin is None:
        told = f"no module of that name; use `%load_ext {bootstrap.__package__}`"
        return Check(ALIAS, False, told)
    if Path(origin).name == f"{ALIAS}.py" and _MARK in Path(origin).read_text("utf-8", "replace"):
        return Check(ALIAS, True, f"stands for op_jupyter ({origin})")
    told = f"another package has that name ({origin}); use `%load_ext op_jupyter`"
    return Check(ALIAS, False, told)


def _sessions_folder(root: Path) -> Check:
    there = root
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        return Check("sessions", False, f"{there} cannot be written to; set OPENPROGRAM_HOME")
    return Check("sessions", True, f"{root}" if there == root else f"{root} (not made yet)")


def _git() -> Check:
    said = git_version()
    missing = "no git executable: sessions work, but gc, push, pull and worktrees need one"
    return Check("git", True, said or missing)


def _provider(chosen: Settings) -> Check:
    return Check("provider", True, bootstrap.told_provider(chosen))


def _providers(chosen: Settings) -> Iterator[str]:
    yield f"{LOCAL} {'installed' if is_installed() else 'not installed'}"
    yield f"{CLAUDE_CODE} {_claude_code()}"
    yield from (f"endpoint {name}" for name in chosen.endpoints)


def _claude_code() -> str:
    if not claude_program.has_library():
        return "not installed"
    program = claude_program.find_program()
    return f"installed ({program})" if program else "installed, without a program to run"


def _kernel() -> Check:
    folder = KernelSpecManager().find_kernel_specs().get(KERNEL)
    missing = "not registered with Jupyter; run `op-jupyter kernel install`"
    return Check("kernel", True, folder or missing)


def _lab() -> Check:
    try:
        lab = f"JupyterLab {importlib.metadata.version('jupyterlab')}"
    except importlib.metadata.PackageNotFoundError:
        lab = "no JupyterLab in this environment"
    folders = [Path(path) / _LAB_EXTENSION for path in jupyter_path("labextensions")]
    found = next((path for path in folders if (path / "package.json").exists()), None)
    if found is None:
        return Check("lab", True, f"{lab}; the extension that draws saved turns is not installed")
    return Check("lab", True, f"{lab}; extension in {found}")
