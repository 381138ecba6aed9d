"""git's index file, written so that ``git status`` is right about what we committed.

Format: gitformat-index(5), version 2.  What the user staged beside our own paths is kept.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from typing import Final

from op_jupyter.store.files import read_file

_ENTRY: Final = struct.Struct(">10L20sH")
_NAME_MASK: Final = 0xFFF
_EXTENDED: Final = 0x4000
_MAX_BYTES: Final = 256 * 1024 * 1024


def build_index(
    folder: str, committed: Mapping[bytes, tuple[int, bytes]], ours: tuple[bytes, ...]
) -> bytes | None:
    """An index of *committed* (path -> mode, sha) and of what else the present one has.

    *ours*: beginnings of the paths that only we write.  None: the present index is of a kind
    that cannot be kept, so it is left alone.
    """
    present = _read_entries(f"{folder}/.git/index")
    if present is None:
        return None
    kept = {key: raw for key, raw in present.items() if not key[0].startswith(ours)}
    for path, (mode, sha) in committed.items():
        # What is not ours and not in a present index was taken out of it by the user.
        if path.startswith(ours) or not present:
            kept[path, 0] = _entry(folder, path, mode, sha)
    body = b"".join([kept[key] for key in sorted(kept)])
    data = b"DIRC" + struct.pack(">2L", 2, len(kept)) + body
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def _entry(folder: str, path: bytes, mode: int, sha: bytes) -> bytes:
    try:
        info = os.lstat(os.fsencode(folder) + b"/" + path)
    except OSError:
        numbers = [0] * 10
    else:
        numbers = [
            int(info.st_ctime),
            info.st_ctime_ns % 1_000_000_000,
            int(info.st_mtime),
            info.st_mtime_ns % 1_000_000_000,
            info.st_dev,
            info.st_ino,
            0,
            info.st_uid,
            info.st_gid,
            info.st_size,
        ]
    numbers[6] = mode
    fixed = _ENTRY.pack(
        *(number & 0xFFFFFFFF for number in numbers), sha, min(len(path), _NAME_MASK)
    )
    return _pad(fixed + path)


def _pad(entry: bytes) -> bytes:
    return entry + b"\0" * (8 - len(entry) % 8)


def _read_entries(path: str) -> dict[tuple[bytes, int], bytes] | None:
    """Entries of an index by path and stage, as they stand; None: of a kind we do not know."""
    try:
        data = read_file(path, _MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError:
        return None
    if data[:8] != b"DIRC\0\0\0\2" or hashlib.sha1(data[:-20]).digest() != data[-20:]:
        return None
    entries = {}
    position = 12
    for _ in range(int.from_bytes(data[8:12])):
        flags = int.from_bytes(data[position + 60 : position + 62])
        if flags & _EXTENDED:
            return None
        end = data.find(b"\0", position + 62)
        if end < 0:
            return None
        length = (end - position) // 8 * 8 + 8
        stage = flags >> 12 & 3
        entries[data[position + 62 : end], stage] = data[position : position + length]
        position += length
    return entries
