"""Files that people ask for by name: written whole, or left as they were."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

OWNER_ALONE: Final = 0o600


def write_whole(path: Path, data: bytes, *, mode: int = OWNER_ALONE, replace: bool = True) -> None:
    """Put *data* at *path*, which keeps its mode, or gets *mode* when it is new.

    A link is followed; what is no file, as a pipe or a device, is written to as it is.

    Raises:
        FileExistsError: something is there, and *replace* is false.
        OSError: the disk refused; what was there is as it was, and nothing else is left.
    """
    target = Path(os.path.realpath(path))
    try:
        there = target.stat()
    except FileNotFoundError:
        there = None
    if there is not None and not replace:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if there is not None and not stat.S_ISREG(there.st_mode):
        with open(target, "wb") as file:
            file.write(data)
        return
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    mode = mode if there is None else stat.S_IMODE(there.st_mode)
    try:
        with open(temporary, "xb", opener=_for_owner_alone) as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # a full disk may tell only here
        if replace:
            os.replace(temporary, target)
        else:
            os.link(temporary, target)  # unlike a rename, never in the place of something else
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _for_owner_alone(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, OWNER_ALONE)
