"""What a shell command is put into: a bubblewrap sandbox where there is one.

Inside it the file system is read-only but for the workspace and a ``/tmp`` of its own,
credentials cannot be seen, other processes neither, and everything ends with the command.
The network stays: it is no protection against sending away what a command may read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from op_jupyter.core.values import dataclass

NO_SANDBOX: Final = "none: code runs with your rights"
_TRY_SECONDS: Final = 5.0
_HIDDEN_FOLDERS: Final = (
    *(".ssh", ".aws", ".gnupg", ".azure", ".kube", ".password-store", ".config/gcloud"),
    *(".config/gh", ".docker", ".local/share/keyrings", ".cache/huggingface"),
)
_HIDDEN_FILES: Final = (
    *(".netrc", ".pypirc", ".npmrc", ".git-credentials", ".pgpass", ".my.cnf"),
    ".cargo/credentials.toml",
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How commands are wrapped.

    Attributes:
        program: of bubblewrap; empty: there is none that works.
        words: what a person and a snapshot are told.
    """

    program: str = ""

    @property
    def words(self) -> str:
        if not self.program:
            return NO_SANDBOX
        return (
            "bubblewrap for shell commands: they write to the workspace alone and see no "
            "credentials; Python code runs with your rights"
        )

    def wrap(self, argv: Sequence[str], workspace: Path, hidden: Sequence[Path] = ()) -> list[str]:
        """The command that runs *argv* in *workspace*; it cannot see the folders *hidden*."""
        if not self.program:
            return list(argv)
        root = os.path.realpath(workspace)
        return [
            self.program,
            *("--die-with-parent", "--new-session"),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
            *("--bind", root, root),
            *_read_only(root),
            *_hiding(hidden, root),
            *("--chdir", root, "--"),
            *argv,
        ]


def _read_only(root: str) -> list[str]:
    """What no tool may write although it is in the workspace."""
    protected = (os.path.join(root, *parts) for parts in ((".git", "hooks"), (".agents", "skills")))
    return [
        word
        for path in protected
        if os.path.isdir(path) and not os.path.islink(path)
        for word in ("--ro-bind", path, path)
    ]


def _hiding(hidden: Sequence[Path], root: str) -> list[str]:
    home = Path.home()
    folders = [*(home / name for name in _HIDDEN_FOLDERS), *hidden]
    files = [home / name for name in _HIDDEN_FILES]
    words: list[str] = []
    for folder in folders:
        if folder.is_dir() and not Path(root).is_relative_to(os.path.realpath(folder)):
            words += ["--tmpfs", os.path.realpath(folder)]
    for file in files:
        if file.is_file():
            words += ["--ro-bind", "/dev/null", os.path.realpath(file)]
    return words


@lru_cache(maxsize=1)
def find_sandbox() -> Sandbox:
    """The sandbox of this machine; tried out once, as some systems forbid what it needs."""
    program = shutil.which("bwrap")
    if program is None:
        return Sandbox()
    found = Sandbox(program)
    argv = found.wrap(["true"], Path("/tmp"))
    try:
        tried = subprocess.run(argv, capture_output=True, timeout=_TRY_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Sandbox()
    return found if tried.returncode == 0 else Sandbox()
