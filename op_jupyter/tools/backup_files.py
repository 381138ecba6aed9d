"""Looking at files as they are, and putting earlier ones back.

Links are never followed: a path is reached folder by folder, and what stands at its end is
looked at or replaced itself.  Git's own folders are never looked into.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from op_jupyter.core.backups import ABSENT, FileState
from op_jupyter.core.paths import looks_like_credentials, may_hold_secrets
from op_jupyter.core.values import dataclass
from op_jupyter.tools.disk import NOISE, ToolFailure, open_folder, open_to_read, put_file

FILE_BYTES: Final = 64 * 1024 * 1024
"""Largest single file whose old content is kept."""
WORKSPACE_BYTES: Final = 16 * 1024 * 1024
WORKSPACE_ENTRIES: Final = 2_000
"""A workspace of at most that size is copied before code runs in it."""

HoldsSecret = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a path, and the content of a file that may be kept."""

    state: FileState
    content: bytes | None = None


def look(path: Path, holds_secret: HoldsSecret) -> Seen:
    """What stands at *path* now, with its content."""
    state, content = _look(path)
    if content is None:
        return Seen(state)
    why = ""
    if looks_like_credentials(path) or may_hold_secrets(path) or holds_secret(content):
        why = "it may hold secrets"
    return Seen(replace(state, why=why), None if why else content)


def state_of(path: Path) -> FileState:
    """What stands at *path* now."""
    return _look(path)[0]


def _look(path: Path) -> tuple[FileState, bytes | None]:
    try:
        return _read(path)
    except (OSError, ToolFailure) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return FileState("other", why=f"it cannot be read ({reason})"), None


def _read(path: Path) -> tuple[FileState, bytes | None]:
    try:
        with open_folder(path.parent) as folder:
            found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                return _link(os.readlink(path.name, dir_fd=folder)), None
    except (FileNotFoundError, NotADirectoryError, ToolFailure):
        return ABSENT, None
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return FileState("folder", mode), None
    if not stat.S_ISREG(found.st_mode):
        return FileState("other", mode, why="it is no regular file"), None
    if found.st_size > FILE_BYTES:
        why = f"it is larger than {FILE_BYTES // 1024 // 1024} MB"
        return FileState("file", mode, size=found.st_size, why=why), None
    with open_to_read(path) as file:
        content = file.read(FILE_BYTES + 1)
    digest = hashlib.sha256(content).hexdigest()
    return FileState("file", mode, digest, len(content)), content


def _link(target: str) -> FileState:
    if not _is_text(target):
        return FileState("other", why="it is a link to a name that is not UTF-8")
    return FileState("link", target=target)


def _is_text(name: str) -> bool:
    """Whether *name* can be kept: the system allows bytes that no text stands for."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def absent_folders(path: Path) -> list[Path]:
    """The folders above *path* that are not there yet, the outermost first."""
    missing = []
    for folder in path.parents:
        if os.path.lexists(folder):
            break
        missing.append(folder)
    return missing[::-1]


# --- a whole workspace ------------------------------------------------------------------


@dataclass(slots=True)
class Workspace:
    """Looks at everything below a folder; remembers the hashes of files that did not change.

    What is below one of *skipped* is not looked at: a session must not keep itself.
    """

    root: Path
    skipped: frozenset[Path] = frozenset()
    _known: dict[tuple[int, ...], str] = field(default_factory=dict)

    def entries(self) -> dict[Path, os.stat_result] | None:
        """Everything in the workspace that is looked at; None: that is too much to copy."""
        found: dict[Path, os.stat_result] = {}
        size = 0
        for path, status in self._walk(self.root):
            found[path] = status
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
            if len(found) > WORKSPACE_ENTRIES or size > WORKSPACE_BYTES:
                return None
        return found

    def _walk(self, folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
        for name in names:
            if name in NOISE or not _is_text(name):
                continue
            path = folder / name
            if path in self.skipped:
                continue
            with suppress(OSError):
                status = path.lstat()
                yield path, status
                if stat.S_ISDIR(status.st_mode):
                    yield from self._walk(path)

    def states(
        self,
        keep: Callable[[Path], Seen] | None = None,
        had: Mapping[Path, FileState] | None = None,
    ) -> dict[Path, Seen] | None:
        """The state of everything; with *keep*, which looks, also of what is to be kept.

        *had* is the state of an earlier look: a file that is the same since is not read again.
        """
        entries = self.entries()
        if entries is None:
            return None
        found: dict[Path, Seen] = {}
        for path, status in entries.items():
            key = _fingerprint(status)
            before = None if had is None else had.get(path)
            if before is not None and before.sha256 and self._known.get(key) == before.sha256:
                found[path] = Seen(replace(before, mode=stat.S_IMODE(status.st_mode)))
                continue
            seen = found[path] = Seen(state_of(path)) if keep is None else keep(path)
            if seen.state.sha256:
                self._known[key] = seen.state.sha256
        return found


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    # The change time as well: a program can set the time of the content, but not that one.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# --- putting back -----------------------------------------------------------------------


def remove(path: Path) -> str:
    """Remove the file or link at *path*, or an empty folder.

    Returns what was left in place and why, or nothing.

    Raises:
        OSError: the system refused.
        ToolFailure: the way there leads through a link.
    """
    with open_folder(path.parent) as folder:
        try:
            status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return ""
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(path.name, dir_fd=folder)
            return ""
        try:
            os.rmdir(path.name, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                return "the folder holds other files"
            raise
        return ""


def make(path: Path, state: FileState, content: bytes) -> None:
    """Make *path* what *state* says, in place of a file or link that is there.

    Raises:
        OSError, ToolFailure: it cannot be; what was there is as it was.
    """
    if state.kind == "folder":
        _make_folder(path, state.mode)
    elif state.kind == "link":
        _make_link(path, state.target)
    else:
        put_file(path, content, state.mode)


def _make_folder(path: Path, mode: int) -> None:
    with open_folder(path.parent, create=True) as parent:
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=parent)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(path.name, flags, dir_fd=parent)
    try:
        os.fchmod(folder, mode)
    finally:
        os.close(folder)


def _make_link(path: Path, target: str) -> None:
    with open_folder(path.parent, create=True) as folder:
        temporary = f".{secrets.token_hex(8)}.tmp"
        os.symlink(target, temporary, dir_fd=folder)
        try:
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
