"""Disks that are full or cannot be written to, for real."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def no_file_over(size_bytes: int) -> Iterator[None]:
    """A disk that is full: no file of this process can grow beyond that."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class SmallDisk:
    """A file system of a megabyte, in memory.

    Attributes:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / ".ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        no_room = pytest.raises(OSError, match="No space left")
        with self._ballast.open("ab", buffering=0) as file, no_room:
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        """Have room again."""
        self._ballast.unlink(missing_ok=True)

    def remount(self, options: str) -> None:
        """Change it while it is in use."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


@contextmanager
def mounted(path: Path) -> Iterator[SmallDisk]:
    """A small disk at *path*; the test is skipped where nobody may mount one."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
