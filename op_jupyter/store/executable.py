"""The git executable, for what is not done in process: packing, checking, and remotes by ssh.

It always works in a repository of ours that borrows the session's objects, so that no
configuration, hook or attribute is read but ours: neither the user's nor the session's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError

_SETTINGS: Final = {
    # Differences between texts that have little in common take minutes to look for in a long
    # session, and save next to nothing.
    "core.bigFileThreshold": "16k",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.autocrlf": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "credential.helper": "",
    "protocol.version": "2",
    "fetch.unpackLimit": "1",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
}
_LIMITED: Final = 'ulimit -f "$1" || exit 1; shift; exec "$@"'
_BLOCK_BYTES: Final = 512  # what `ulimit -f` counts in, says POSIX
_TOLD_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Done:
    """How a run of git ended; what it said is text for people."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Git:
    """git, in one repository of ours.

    Attributes:
        env: all of its environment.
    """

    executable: str
    env: Mapping[str, str]

    def run(self, *arguments: str, given: str = "", most_bytes: int | None = None) -> Done:
        """Run it to its end; *most_bytes*: no file that it writes may become larger."""
        command: list[str] = [self.executable, *arguments]
        if most_bytes is not None:
            blocks = str(most_bytes // _BLOCK_BYTES)
            command = ["/bin/sh", "-c", _LIMITED, "sh", blocks, *command]
        done = subprocess.run(
            command,
            input=given,
            env=dict(self.env),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr.strip()[-_TOLD_CHARS:])


def git_executable(purpose: str) -> str:
    """Where git is.

    Raises:
        StoreError: there is none; says that *purpose* needs it.
    """
    executable = shutil.which("git")
    if executable is None:
        raise StoreError(f"there is no git executable, which {purpose} needs; install git")
    return executable


def git_version() -> str:
    """What the git executable says of itself; "": there is none."""
    executable = shutil.which("git")
    if executable is None:
        return ""
    return Git(executable, tame(os.devnull)).run("--version").out.strip()


@contextmanager
def borrowing(objects: str | None, purpose: str, *, others: Sequence[str] = ()) -> Iterator[Git]:
    """git in an empty repository whose objects are those in the folder *objects*, if any.

    Args:
        others: folders whose objects it reads as well.

    Raises:
        StoreError: there is no git executable; says that *purpose* needs it.
    """
    executable = git_executable(purpose)
    with tempfile.TemporaryDirectory(prefix="op-jupyter-") as scratch:
        for name in ("objects", "refs"):
            os.mkdir(f"{scratch}/{name}")
        with open(f"{scratch}/HEAD", "w", encoding="ascii") as head:
            head.write("ref: refs/heads/main\n")
        where = {"GIT_DIR": scratch}
        if objects is not None:
            where["GIT_OBJECT_DIRECTORY"] = objects
        if others:
            where["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.pathsep.join(map(_quoted, others))
        yield Git(executable, {**tame(scratch), **_settings(), **where})


def _quoted(path: str) -> str:
    """*path* in a list of git's, where a colon would end it."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def inside(git_dir: str, purpose: str) -> Git:
    """git in the repository *git_dir*, whose configuration has to be ours.

    Raises:
        StoreError: there is no git executable; says that *purpose* needs it.
    """
    executable = git_executable(purpose)
    return Git(executable, {**tame(git_dir), **_settings(), "GIT_DIR": git_dir})


def tame(home: str) -> dict[str, str]:
    """An environment in which git knows nothing of its user."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _settings() -> dict[str, str]:
    variables = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for number, (name, value) in enumerate(_SETTINGS.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
