"""An operating system that fails when it is told to."""

import errno
import os
import threading
from typing import Literal

from op_jupyter.store.files import FileSystem


class FaultyFileSystem(FileSystem):
    """Counts the calls that change something, and fails one of them, or all from one on.

    *side*: counts those of the thread that made it (the journal), or of all others (git).
    *piece*: most bytes that one write takes.
    """

    def __init__(
        self, side: Literal["journal", "git", "both"] = "both", *, piece: int = 1 << 30
    ) -> None:
        self._side = side
        self._maker = threading.get_ident()
        self._piece = piece
        self.calls = 0
        self.names: list[str] = []
        self.arm(0)

    def arm(
        self, fail_at: int, error: int = errno.EIO, *, forever: bool = False, only: str = ""
    ) -> None:
        """Count from here and fail the *fail_at*-th call of those named in *only*; 0: none."""
        self.calls, self.names = 0, []
        self.fail_at, self.error, self.forever = fail_at, error, forever
        self.only = frozenset(only.split())

    def disarm(self) -> None:
        """Never fail again."""
        self.fail_at = 0

    def _step(self, name: str) -> None:
        side = "journal" if threading.get_ident() == self._maker else "git"
        if (self._side not in ("both", side)) or (self.only and name not in self.only):
            return
        self.calls += 1
        self.names.append(name)
        if self.fail_at and (
            self.calls == self.fail_at or (self.forever and self.calls > self.fail_at)
        ):
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._step("open")
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        try:
            self._step("write")
        except OSError:
            # Some of it may well have arrived.
            super().write(fd, memoryview(data)[: len(data) // 2])
            raise
        return super().write(fd, memoryview(data)[: self._piece])

    def fsync(self, *fds: int) -> None:
        for _ in fds:
            self._step("fsync")
        super().fsync(*fds)

    def truncate(self, fd: int, size: int) -> None:
        self._step("truncate")
        super().truncate(fd, size)

    def mkdir(self, path: str) -> None:
        self._step("mkdir")
        super().mkdir(path)

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        self._step("link")
        super().link(old, new)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        super().unlink(path)
