"""What the store asks of the operating system, in one place, so that faults can be put there.

Nothing here follows a symbolic link: a session's folder may come from a stranger.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from op_jupyter.store.fsyncs import fsync_all

DIR_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class FsyncFailed(OSError):
    """An fsync failed: the kernel may have dropped what was written, and cannot be asked again."""


class FileSystem:
    """The calls that change something.  A test passes a subclass that fails when told to.

    Attributes:
        dir_mode, file_mode: of what is made.
    """

    dir_mode = DIR_MODE
    file_mode = FILE_MODE

    def open(self, path: str, flags: int) -> int:
        """A descriptor of *path*, made with the mode of our files when *flags* create it."""
        return os.open(path, flags | _FLAGS, self.file_mode)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write some of *data*; how much is returned."""
        return os.write(fd, data)

    def fsync(self, *fds: int) -> None:
        """Return when what was written is on disk; several are waited for at once."""
        fsync_all(fds)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to *size* bytes."""
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        """Give the descriptor back."""
        os.close(fd)

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        os.mkdir(path, self.dir_mode)

    def rename(self, old: str, new: str) -> None:
        """Put *old* in the place of *new*, at once."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give *old* a second name, which must be free."""
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    # -- made of those

    def write_all(self, fd: int, data: bytes) -> None:
        """Write the whole of *data*, however many calls it takes."""
        written = self.write(fd, data)
        while written < len(data):
            written += self.write(fd, memoryview(data)[written:])

    def sync(self, *fds: int) -> None:
        """`fsync` whose failure can be told from others."""
        try:
            self.fsync(*fds)
        except OSError as exc:
            raise FsyncFailed(exc.errno, exc.strerror) from exc

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        self.sync_with_folders((), [path])

    def sync_with_folders(self, fds: Sequence[int], folders: Iterable[str]) -> None:
        """Make files and the names in folders durable, all at once."""
        if not (paths := list(folders)):  # as nearly always
            self.sync(*fds)
            return
        with ExitStack() as on_end:
            opened = list(fds)
            for path in paths:
                fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
                on_end.callback(self.close, fd)
                opened.append(fd)
            self.sync(*opened)

    def write_new(self, files: Mapping[str, bytes], *, durable: bool = True) -> None:
        """Make *files*, whose paths must be free, on disk; their names are not yet."""
        made: dict[str, int] = {}
        try:
            for path, data in files.items():
                made[path] = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                self.write_all(made[path], data)
            if durable and made:
                self.sync(*made.values())
        except OSError:
            for path in made:
                self.unlink(path)
            raise
        finally:
            for fd in made.values():
                self.close(fd)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Put *data* in the place of whatever *path* is, at once.

        Not *durable*: after a power cut it may be the old file, or a damaged one, which is good
        enough for what can be made again; nobody sees half of it before.
        """
        self.replace_each({path: data}, durable=durable)

    def overwrite(self, path: str, data: bytes) -> None:
        """Put *data* into the file *path*: a third of what `replace` costs, but not at once.

        Nor is it durable: it is for notes that only their writer reads, and can make again.
        What is no plain file of one name is replaced, so that nothing appears elsewhere.
        """
        if not self._overwritten(path, data):
            self.replace(path, data, durable=False)

    def _overwritten(self, path: str, data: bytes) -> bool:
        try:
            fd = self.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # missing, a link, a pipe: whatever it is, it is replaced
            return False
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
                return False
            self.write_all(fd, data)
            if info.st_size > len(data):
                self.truncate(fd, len(data))
            return True
        finally:
            self.close(fd)

    def replace_each(self, files: Mapping[str, bytes], *, durable: bool = True) -> None:
        """`replace` for several files, each by itself at once, that wait for the disk together."""
        temporary = {f"{path}.{new_tag()}.tmp": path for path in files}
        self.write_new({name: files[path] for name, path in temporary.items()}, durable=durable)
        left = list(temporary)
        try:
            for name, path in temporary.items():
                self.rename(name, path)
                left.remove(name)
        except OSError:
            for name in left:
                self.unlink(name)
            raise
        if durable:
            self.sync_with_folders((), {os.path.dirname(path) for path in files})

    def make_folders(self, root: str, *below: str) -> None:
        """Make the folders of each *below* under *root* that are missing, durably."""
        unsynced: set[str] = set()
        try:
            self.make_missing(root, below, unsynced)
        finally:  # what is there already is not looked at the next time
            if unsynced:
                self.sync_with_folders((), unsynced)

    def make_missing(self, root: str, below: Iterable[str], unsynced: set[str]) -> None:
        """`make_folders`, but whoever calls makes the names in *unsynced* folders durable."""
        for folders in below:
            path = root
            for name in folders.split("/"):
                parent, path = path, f"{path}/{name}"
                if not is_folder(path):
                    with suppress(FileExistsError):  # another process made it meanwhile
                        self.mkdir(path)
                    unsynced.add(parent)


def new_tag() -> str:
    """Eight hex digits that nobody can foresee."""
    return secrets.token_hex(4)


def remove(path: str) -> None:
    """Remove a file that may not be there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def is_folder(path: str) -> bool:
    """Whether *path* is a real folder.

    Raises:
        NotADirectoryError: something else is in its place, a symbolic link for instance.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(f"{path} is not a folder of its own")
    return True


def read_file(path: str, limit: int | None = None) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it is missing, a link, no regular file, or larger than *limit* bytes.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(f"{path} is not a regular file")
        if limit is not None and info.st_size > limit:
            raise OSError(f"{path} is larger than {limit} bytes")
        with open(fd, "rb", buffering=0, closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def walk_files(folder: str) -> Iterator[str]:
    """Paths of the regular files below *folder*, relative to it; links are passed over."""
    pending = [""]
    while pending:
        below = pending.pop()
        with _scan(f"{folder}/{below}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{below}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    yield f"{below}{entry.name}"


def disk_usage(folder: str) -> int:
    """Bytes that the files below *folder* take on disk."""
    found = 0
    for path in walk_files(folder):
        with suppress(FileNotFoundError):
            found += os.lstat(f"{folder}/{path}").st_blocks * 512
    return found


@contextmanager
def _scan(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    try:
        entries = os.scandir(path)
    except FileNotFoundError:
        yield iter(())
        return
    with entries:
        yield entries
