"""Which paths are ordinary, and which are not: the tiers that the permission gate judges by.

Nothing here touches the disk.  Whoever calls has resolved symlinks already; a name is
judged as well as what it resolves to, so that neither can hide the other.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import IntEnum
from functools import lru_cache
from pathlib import PurePath, PurePosixPath
from typing import Final

from op_jupyter.core.values import dataclass


class Tier(IntEnum):
    """How much care a path needs; the larger the more."""

    WORKSPACE = 0
    OUTSIDE = 1
    SENSITIVE = 2
    CREDENTIAL = 3
    PROTECTED = 4


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are; all absolute, symlinks resolved.

    Attributes:
        workspace: the folder that relative paths start from.
        home: what ``~`` stands for.
        protected: folders and files that no tool may write: the session store, skill
            folders, the project's own configuration.
    """

    workspace: PurePath
    home: PurePath
    protected: Sequence[PurePath] = field(default_factory=tuple)

    def absolute(self, text: str) -> PurePath:
        """The path that *text* names, ``~``, ``$HOME`` and ``..`` worked out without the disk."""
        first, _, rest = text.partition("/")
        if first in _HOME_NAMES:
            text = posixpath.join(str(self.home), rest)
        return PurePosixPath(posixpath.normpath(posixpath.join(str(self.workspace), text)))

    def show(self, path: PurePath) -> str:
        """*path* for people: relative inside the workspace, with ``~`` inside the home folder."""
        if path == self.workspace:
            return "."
        if path.is_relative_to(self.workspace):
            return str(path.relative_to(self.workspace))
        if path != self.home and path.is_relative_to(self.home):
            return "~/" + str(path.relative_to(self.home))
        return str(path)


@dataclass(frozen=True, slots=True)
class PathUse:
    """One path that a call touches.

    Attributes:
        real: absolute, symlinks resolved.
        named: absolute, as the call named it.
        write: it is changed, not only read.
    """

    real: PurePath
    named: PurePath
    write: bool = False

    @property
    def names(self) -> tuple[PurePath, ...]:
        """The path under each of its names."""
        return (self.real,) if self.real == self.named else (self.real, self.named)


def tier_of(use: PathUse, places: Places) -> Tier:
    """The most careful tier that either name of the path asks for."""
    by_name = max(_tier_by_name(path) for path in use.names)
    if by_name is Tier.PROTECTED or any(_is_protected(path, places) for path in use.names):
        return Tier.PROTECTED
    inside = use.real.is_relative_to(places.workspace)
    return max(by_name, Tier.WORKSPACE if inside else Tier.OUTSIDE)


def may_hold_secrets(path: PurePath) -> bool:
    """Whether reading *path* shows what should stay secret although it is no key store."""
    name = path.name.casefold()
    return name.startswith(".env") and not name.endswith(_HARMLESS_ENDINGS)


def hidden_names(path: str) -> Iterator[str]:
    """*path* with what its wildcards may stand for, of the hidden names that need care.

    Those of names that begin with a dot alone: others do not stand for hidden names.
    """
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part.startswith((".", "[.")) and not _WILDCARDS.isdisjoint(part):
            hidden = fnmatch.filter(_HIDDEN, part)
            yield from ("/".join((*parts[:index], name, *parts[index + 1 :])) for name in hidden)


def looks_like_credentials(path: PurePath) -> bool:
    """Whether the name of *path* says that it holds credentials."""
    return _tier_by_name(path) is Tier.CREDENTIAL


_HOME_NAMES: Final = frozenset({"~", "$HOME", "${HOME}"})
_HARMLESS_ENDINGS: Final = (".example", ".sample", ".template", ".dist")

_SENSITIVE_FOLDERS: Final = frozenset(
    {
        *(".git", ".vscode", ".idea", ".ipython", ".jupyter"),
        *("site-packages", "dist-packages", ".venv"),
    }
)
"""What is inside runs by itself, or configures what runs."""

_SENSITIVE_FILES: Final = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases"),
        *(".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc"),
        *(".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".gitconfig", ".gitmodules"),
    }
)

_CREDENTIAL_FOLDERS: Final = frozenset(
    {".ssh", ".aws", ".gnupg", ".azure", ".kube", ".password-store"}
)

_CREDENTIAL_FILES: Final = frozenset(
    {
        *(".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials", ".pgpass", ".my.cnf"),
        *(".boto", ".htpasswd", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".vault-token"),
        *("jupyter_cookie_secret", "notebook_cookie_secret", "kaggle.json"),
    }
)

_CREDENTIAL_ENDS: Final = (
    (".config", "gcloud"),
    (".config", "gh"),
    (".config", "git", "credentials"),
    (".config", "rclone"),
    (".claude", ".credentials.json"),
    ("jupyter", "runtime"),
    (".docker", "config.json"),
    (".cargo", "credentials.toml"),
    (".cache", "huggingface", "token"),
    (".local", "share", "keyrings"),
    ("/", "etc", "shadow"),
    ("/", "etc", "gshadow"),
    ("/", "etc", "shadow-"),
    ("/", "etc", "gshadow-"),
)

_WILDCARDS: Final = frozenset("*?[")
_HIDDEN: Final = sorted(
    name
    for name in (
        *_CREDENTIAL_FOLDERS,
        *_CREDENTIAL_FILES,
        *_SENSITIVE_FOLDERS,
        *_SENSITIVE_FILES,
        *(".env", ".agents"),
    )
    if name.startswith(".")
)

_PROTECTED_RUNS: Final = ((".agents", "skills"),)


@lru_cache(maxsize=2048)  # of each path of a folder that is moved it is asked again and again
def _tier_by_name(path: PurePath) -> Tier:
    parts = tuple(part.casefold() for part in path.parts)
    if _is_git_hook(parts) or _has_run(parts, _PROTECTED_RUNS):
        return Tier.PROTECTED
    if _is_credential(parts):
        return Tier.CREDENTIAL
    return Tier.SENSITIVE if _is_sensitive(parts) else Tier.WORKSPACE


def _is_git_hook(parts: Sequence[str]) -> bool:
    return ".git" in parts and "hooks" in parts[parts.index(".git") :]


def _is_credential(parts: Sequence[str]) -> bool:
    if not _CREDENTIAL_FOLDERS.isdisjoint(parts) or _has_run(parts, _CREDENTIAL_ENDS):
        return True
    if not parts:
        return False
    return parts[-1] in _CREDENTIAL_FILES or (parts[:2] == ("/", "proc") and parts[-1] == "environ")


def _is_sensitive(parts: Sequence[str]) -> bool:
    if not _SENSITIVE_FOLDERS.isdisjoint(parts) or _has_run(parts, ((".config", "fish"),)):
        return True
    return bool(parts) and (parts[-1] in _SENSITIVE_FILES or parts[-1].startswith(".env"))


def _has_run(parts: Sequence[str], runs: Sequence[tuple[str, ...]]) -> bool:
    """Whether one of *runs* stands in *parts*, its members next to each other."""
    return any(window == run for run in runs for window in _windows(parts, len(run)))


def _windows(parts: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(parts[i : i + size]) for i in range(len(parts) - size + 1))


def _is_protected(path: PurePath, places: Places) -> bool:
    return any(path.is_relative_to(folder) for folder in places.protected)
