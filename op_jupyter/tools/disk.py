"""Reading and writing files without being led astray by a symlink.

A path is resolved once more right before it is touched, and then opened folder by folder
without following any link: between the check and the use nothing can change where it leads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from op_jupyter.core.paths import PathUse, Tier, tier_of
from op_jupyter.errors import InvalidArguments
from op_jupyter.tools.base import ToolContext
from op_jupyter.tools.gate import places_of, real_path

NOISE: Final = frozenset(
    {
        *(".git", "__pycache__", "node_modules", ".venv", "venv", ".ipynb_checkpoints"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".nox", "site-packages"),
    }
)
"""Folders that are left out of a walk: what is in them was not written by a person."""

_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ToolFailure(Exception):
    """The tool could not do what it was asked; the text is for the model."""


def named_path(text: str, workspace: Path) -> Path:
    """The absolute path that *text* names, links not yet resolved.

    Raises:
        InvalidArguments: no path can be written like that.
    """
    if not text or "\0" in text:
        raise InvalidArguments(f"path: {text!r} is not a path", fields=("path",))
    home = text == "~" or text.startswith("~/")
    return Path.home() / text[2:] if home else workspace / text


class Files:
    """The files that one call may touch."""

    def __init__(self, context: ToolContext) -> None:
        self._approved = frozenset(context.approved)
        self._places = places_of(context.workspace)
        self.workspace = context.workspace

    def resolve(self, text: str) -> Path:
        """The real path of *text* as it is now.

        Raises:
            ToolFailure: it is not what the permission speaks of.
        """
        path = named_path(text, self.workspace)
        real = real_path(path)
        if not self._permitted(real, path):
            raise ToolFailure(
                f"{text} now leads to {real}, which the permission does not speak of; "
                "nothing was touched"
            )
        return real

    def resolve_entry(self, text: str) -> Path:
        """The real path of the entry *text* itself: a link at its end is not followed.

        Raises:
            ToolFailure: it is not what the permission speaks of.
        """
        path = named_path(text, self.workspace)
        if path.name in ("", ".."):
            raise ToolFailure(f"{text} does not end with the name of a file")
        real = real_path(path.parent) / path.name
        if not self._permitted(real, path):
            raise ToolFailure(
                f"{text} now stands at {real}, which the permission does not speak of; "
                "nothing was touched"
            )
        return real

    def check_below(self, entry: Path, inner: Iterable[Path]) -> None:
        """Refuse when one of the paths *inner*, below *entry*, came after the permission.

        Raises:
            ToolFailure: it is not what the permission speaks of.
        """
        for path in (entry / name for name in inner):
            if not self._permitted(path, path):
                raise ToolFailure(
                    f"{self.show(path)} is not what the permission speaks of; nothing was touched"
                )

    def show(self, path: Path) -> str:
        """*path* as the model should call it."""
        return self._places.show(path)

    def _permitted(self, real: Path, named: Path) -> bool:
        if self._approved:
            return real in self._approved
        use = PathUse(real, Path(os.path.normpath(named)), write=True)
        return tier_of(use, self._places) is Tier.WORKSPACE


@contextlib.contextmanager
def open_folder(path: Path, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder *path*, reached without following a link.

    Raises:
        ToolFailure: a part of the path is a link (by now), or no folder.
    """
    descriptor = os.open("/", _FOLDER)
    try:
        for name in path.parts[1:]:
            inner = _step(descriptor, name, path, create)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _step(folder: int, name: str, path: Path, create: bool) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolFailure(
                f"{path} is not a plain folder: {name!r} is a link or a file"
            ) from None
        raise


@contextlib.contextmanager
def open_to_read(path: Path) -> Iterator[BinaryIO]:
    """The regular file *path*, opened to read.

    Raises:
        ToolFailure: it is a folder or something else that is no file.
        OSError: there is none, or it may not be read.
    """
    with open_folder(path.parent) as folder:
        try:
            descriptor = os.open(path.name, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ToolFailure(f"{path} has become a link; nothing was read") from None
            raise
    try:
        _check_regular(os.fstat(descriptor).st_mode, path)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_text(path: Path, limit_bytes: int) -> str:
    """The whole text of a file, line ends as they are.

    Raises:
        ToolFailure: it is larger than the limit, or is not text in UTF-8.
    """
    with open_to_read(path) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ToolFailure(
            f"{path.name} is larger than {limit_bytes // 1_000_000} MB; use Python code for it"
        )
    return decode(data, path)


def decode(data: bytes, path: Path) -> str:
    """*data* as text.

    Raises:
        ToolFailure: it is not text in UTF-8.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolFailure(_not_text(path, f"byte {data[error.start]:#04x}")) from None
    if "\0" in text:
        raise ToolFailure(_not_text(path, "zero bytes"))
    return text


def replace_file(path: Path, data: bytes) -> None:
    """Write *data* to *path* whole or not at all; folders are made, the mode is kept.

    Raises:
        ToolFailure: a part of the path has become a link, or the file may not be written.
        OSError: the disk refused; the file is as it was.
    """
    with open_folder(path.parent, create=True) as folder:
        _put(folder, path.name, data, _mode_to_keep(folder, path))


def put_file(path: Path, data: bytes, mode: int) -> None:
    """Make *path* a file of that content and mode, in place of a file or link that is there.

    Raises:
        ToolFailure: the way there leads through a link.
        OSError: the disk refused; what was there is as it was.
    """
    with open_folder(path.parent, create=True) as folder:
        _put(folder, path.name, data, mode)


def _put(folder: int, name: str, data: bytes, mode: int | None) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, _CREATE, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def delete_entry(path: Path) -> None:
    """Remove a file, a link (never what it leads to) or an empty folder.

    Raises:
        ToolFailure: it is a folder that holds something, or the way leads through a link.
        OSError: there is none, or the disk refused.
    """
    with open_folder(path.parent) as folder:
        if not stat.S_ISDIR(_mode_of(folder, path)):
            os.unlink(path.name, dir_fd=folder)
            return
        try:
            os.rmdir(path.name, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise ToolFailure(f"{path.name} is a folder with files in it") from None
            raise


def move_entry(source: Path, target: Path) -> None:
    """Move a file, a folder or a link (never what it leads to) to a free place; folders are made.

    Raises:
        ToolFailure: the place is taken, in the folder itself, or on another disk.
        OSError: there is none, or the disk refused.
    """
    if source in target.parents:
        raise ToolFailure(f"{target} is in {source.name} itself; nothing was moved")
    with open_folder(source.parent) as old:
        _mode_of(old, source)
    with open_folder(source.parent) as old, open_folder(target.parent, create=True) as new:
        with contextlib.suppress(FileNotFoundError):
            os.stat(target.name, dir_fd=new, follow_symlinks=False)
            raise ToolFailure(f"there is a {target.name} already; nothing was moved")
        try:
            os.rename(source.name, target.name, src_dir_fd=old, dst_dir_fd=new)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise ToolFailure(f"{target} is on another disk; nothing was moved") from None
            raise


def _mode_of(folder: int, path: Path) -> int:
    return os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode


def _mode_to_keep(folder: int, path: Path) -> int | None:
    try:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise ToolFailure(f"{path} has become a link; nothing was written")
    _check_regular(mode, path)
    if not os.access(path.name, os.W_OK, dir_fd=folder):
        raise ToolFailure(f"{path.name} is read-only; nothing was written")
    return stat.S_IMODE(mode)


def _check_regular(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise ToolFailure(f"{path.name} is a folder; list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise ToolFailure(f"{path.name} is not a regular file")


def _not_text(path: Path, found: str) -> str:
    return f"{path.name} is not text in UTF-8 ({found}); use Python code to read it"
