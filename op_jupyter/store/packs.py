"""git's objects: a commit's are written as one small pack, so that it takes few fsyncs.

A loose object would cost a file, a rename and a folder, each with an fsync of its own, six
times a commit.  Small packs are merged when there are many; `git gc` may replace any of
them at any time.  Formats: gitformat-pack(5), index version 2, no deltas of our own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Final

from op_jupyter.store.files import FileSystem, new_tag, read_file, remove
from op_jupyter.store.objects import GitRefused

MANY: Final = 64
SMALL_BYTES: Final = 1024 * 1024
_FRESH_BYTES: Final = 64 * 1024 * 1024
MAX_OBJECT_BYTES: Final = 256 * 1024 * 1024
_MAX_PACK_BYTES: Final = 512 * 1024 * 1024  # offsets in the index have 31 bits
_COMPRESSION: Final = 1  # a turn is written once and packed better later; speed counts here
_FEW_BYTES: Final = 512
_KINDS: Final = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}
_NAMES: Final = {number: kind for kind, number in _KINDS.items()}
_INDEX_MAGIC: Final = b"\xfftOc\0\0\0\2"
_PACK: Final = re.compile(r"pack-[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OURS: Final = b"op-jupyter\n"
_HOUR: Final = 3600.0
_NOTHING: Final[Mapping[str, bytes]] = {}


class Delta(Exception):
    """An object that is stored as the difference from another; somebody else reads those."""


class Pack:
    """A pack with its index, opened for reading."""

    def __init__(self, path: str, index: bytes) -> None:
        """*path* is without a suffix; *index* what is in its index.

        Raises:
            ValueError: it is no index of version 2.
        """
        self.path = path
        self._index = index
        if index[:8] != _INDEX_MAGIC or len(index) < 1032:
            raise ValueError(f"{path}.idx is no index that we know")
        self.count = int.from_bytes(index[1028:1032])
        if len(index) < 1032 + 28 * self.count + 40:
            raise ValueError(f"{path}.idx is too short")

    def names(self) -> list[bytes]:
        """The objects it holds, in order of their names."""
        return [self._index[at : at + 20] for at in range(1032, 1032 + 20 * self.count, 20)]

    def find(self, sha: bytes) -> int | None:
        """Where in the pack an object begins."""
        first = sha[0]
        low = int.from_bytes(self._index[4 + 4 * first : 8 + 4 * first]) if first else 0
        high = int.from_bytes(self._index[8 + 4 * first : 12 + 4 * first])
        at = bisect_left(range(self.count), sha, low, min(high, self.count), key=self._name)
        return self._offset(at) if at < self.count and self._name(at) == sha else None

    def read(self, offset: int) -> tuple[bytes, bytes]:
        """Kind and bytes of the object at *offset*.

        Raises:
            Delta: it is stored as a difference.
            OSError, ValueError, zlib.error: the pack is gone or damaged.
        """
        with open(f"{self.path}.pack", "rb", buffering=0) as file:
            head = os.pread(file.fileno(), 4096, offset)
            kind, size, start = _parse_header(head)
            if kind not in _NAMES:
                raise Delta
            if size > MAX_OBJECT_BYTES:
                raise ValueError("an object is larger than any of ours")
            unpack = zlib.decompressobj()
            data = unpack.decompress(head[start:], size or 1)
            offset += len(head)
            while not unpack.eof and len(data) < size:
                more = os.pread(file.fileno(), 1 << 20, offset)
                if not more:
                    break
                offset += len(more)
                data += unpack.decompress(more, size - len(data))
        if len(data) != size:
            raise ValueError("an object is cut off")
        return _NAMES[kind], data

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Name and stored form of every object.

        Raises:
            Delta: one is stored as a difference, and depends on where it stands.
            OSError, ValueError: the pack is gone or damaged.
        """
        data = read_file(f"{self.path}.pack", _MAX_PACK_BYTES)
        where = sorted((self._offset(at), self._name(at)) for at in range(self.count))
        ends = [offset for offset, _ in where[1:]] + [len(data) - 20]
        for (offset, name), end in zip(where, ends, strict=True):
            if _parse_header(data[offset : offset + 16])[0] not in _NAMES:
                raise Delta
            yield name, data[offset:end]

    def _name(self, at: int) -> bytes:
        return self._index[1032 + 20 * at : 1052 + 20 * at]

    def _offset(self, at: int) -> int:
        start = 1032 + 24 * self.count + 4 * at
        offset = int.from_bytes(self._index[start : start + 4])
        if offset >> 31:
            raise Delta  # far into a pack of gigabytes
        return offset


class Objects:
    """The objects of a repository, but for those that need deltas to be read."""

    def __init__(self, git_dir: str, files: FileSystem) -> None:
        self.root = f"{git_dir}/objects"
        self._mark = f"{git_dir}/op-jupyter-keep"
        self._files = files
        self._packs: list[Pack] = []
        self._seen_names: frozenset[str] = frozenset()
        self._fresh: dict[bytes, tuple[bytes, bytes]] = {}
        self._fresh_bytes = 0
        self._written = 0
        self._kept: list[str] = []

    # -- reading

    def read(self, sha: bytes) -> tuple[bytes, bytes] | None:
        """Kind and bytes of an object; None: there is none, or it is stored as a difference.

        Raises:
            GitRefused: it is damaged.
        """
        if sha in self._fresh:
            return self._fresh[sha]
        for found in (self._read_packed(sha), self._read_loose(sha)):
            if found is not None:
                if name_of(*found) != sha:
                    raise _damaged(sha)
                return found
        # Another git may have packed or unpacked it since we looked.
        return self._read_packed(sha) if self._look_again() else None

    def has(self, sha: bytes) -> bool:
        """Whether an object is there."""
        self._look_again()
        return (
            sha in self._fresh
            or any(pack.find(sha) is not None for pack in self._packs)
            or os.path.lexists(self._loose_path(sha))
        )

    def count_loose(self) -> int:
        """About how many loose ones there are, judged like git by one folder of 256."""
        with suppress(OSError):
            return len(os.listdir(f"{self.root}/17")) * 256
        return 0

    def count_packs(self) -> int:
        """How many packs there are."""
        self._look_again()
        return len(self._packs)

    def _read_packed(self, sha: bytes) -> tuple[bytes, bytes] | None:
        for pack in reversed(self._packs):
            try:
                if (offset := pack.find(sha)) is not None:
                    return pack.read(offset)
            except (Delta, FileNotFoundError):
                return None
            except (OSError, ValueError, zlib.error) as exc:
                raise _damaged(sha) from exc
        return None

    def _read_loose(self, sha: bytes) -> tuple[bytes, bytes] | None:
        try:
            raw = read_file(self._loose_path(sha), MAX_OBJECT_BYTES)
            whole = zlib.decompressobj().decompress(raw, MAX_OBJECT_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as exc:
            raise _damaged(sha) from exc
        header, _, data = whole.partition(b"\0")
        return header.split(b" ")[0], data

    def _loose_path(self, sha: bytes) -> str:
        name = sha.hex()
        return f"{self.root}/{name[:2]}/{name[2:]}"

    def _look_again(self) -> bool:
        """Find the packs there are now; whether they are others than before."""
        try:
            found = os.listdir(f"{self.root}/pack")
        except FileNotFoundError:
            found = []
        stems = {name.removesuffix(".idx") for name in found if name.endswith(".idx")}
        names = frozenset(stem for stem in stems if _PACK.fullmatch(stem))
        if names == self._seen_names:
            return False
        known = {os.path.basename(pack.path): pack for pack in self._packs}
        self._packs = []
        for name in sorted(names):
            path = f"{self.root}/pack/{name}"
            # An index we cannot read is left to those who can.
            with suppress(OSError, ValueError):
                pack = known.get(name) or Pack(path, read_file(f"{path}.idx", _MAX_PACK_BYTES))
                self._packs.append(pack)
        self._seen_names = names
        return True

    # -- writing

    def write(self, kind: bytes, data: bytes) -> bytes:
        """Add an object and return its name; `barrier` makes it durable."""
        sha = name_of(kind, data)
        if sha not in self._fresh:
            self._fresh[sha] = (kind, data)
            self._fresh_bytes += len(data)
            if self._fresh_bytes > _FRESH_BYTES:
                self.barrier()
        return sha

    def barrier(self, beside: Mapping[str, bytes] = _NOTHING) -> None:
        """Return when every object written so far is on disk, and the new files *beside* them.

        Until `release` the pack is marked as kept: no ref reaches it yet, and another git
        that collects garbage at this moment must leave it alone.
        """
        if not self._fresh:
            self._files.write_new(beside)
            return
        entries = {sha: _entry(kind, data) for sha, (kind, data) in self._fresh.items()}
        pack = self._write_pack(entries, beside, keep=True)
        self._written += 1
        self._packs.append(pack)
        self._seen_names |= {os.path.basename(pack.path)}
        self.forget()

    def forget(self) -> None:
        """Drop what is not on disk yet."""
        self._fresh.clear()
        self._fresh_bytes = 0

    def release(self) -> None:
        """What was written is reached by a ref now, or never will be."""
        for path in self._kept:
            with suppress(OSError):
                self._files.rename(path, self._mark)
        self._kept.clear()

    def tidy(self) -> None:
        """Merge the small packs when there are many; every object is there at any moment."""
        if self._written % (MANY // 4):
            return  # not each time: looking costs as much as a small commit
        self._look_again()
        small = [pack for pack in self._packs if self._is_small(pack)]
        if len(small) < MANY:
            return
        entries: dict[bytes, bytes] = {}
        merged = []
        for pack in small:
            with suppress(Delta, OSError, ValueError):
                entries.update(pack.entries())
                merged.append(pack)
        if len(merged) < 2:
            return
        new = self._write_pack(entries, keep=False)
        for pack in merged:
            if pack.path != new.path:
                _remove_pack(pack.path)
        self._look_again()

    def clear_leftovers(self, now: float) -> None:
        """Remove what a dead process left half written; another git's files get an hour."""
        with suppress(FileNotFoundError), os.scandir(f"{self.root}/pack") as entries:
            for entry in entries:
                if entry.name.startswith("tmp_"):
                    ours = entry.name.startswith("tmp_op_")
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    elif ours or now - entry.stat(follow_symlinks=False).st_mtime > _HOUR:
                        remove(entry.path)
                elif entry.name.endswith(".keep"):
                    with suppress(OSError):
                        if read_file(entry.path, len(_OURS)) == _OURS:
                            remove(entry.path)

    def remove_packed(self, packed: set[bytes], but: str) -> None:
        """Remove packs and loose objects of which all is in the pack called *but*."""
        self._look_again()
        for pack in self._packs:
            kept = pack.path == but or os.path.lexists(f"{pack.path}.keep")
            if not kept and packed.issuperset(pack.names()):
                _remove_pack(pack.path)
        for sha in packed:
            remove(self._loose_path(sha))
        for name in os.listdir(self.root):
            if len(name) == 2:
                with suppress(OSError):
                    os.rmdir(f"{self.root}/{name}")
        self._look_again()

    def _is_small(self, pack: Pack) -> bool:
        try:
            size = os.stat(f"{pack.path}.pack").st_size
        except FileNotFoundError:
            return False
        return size < SMALL_BYTES and not os.path.lexists(f"{pack.path}.keep")

    def _write_pack(
        self, entries: dict[bytes, bytes], beside: Mapping[str, bytes] = _NOTHING, *, keep: bool
    ) -> Pack:
        data, index = format_pack(entries)
        folder = f"{self.root}/pack"
        path = f"{folder}/pack-{data[-20:].hex()}"
        temporary = f"{folder}/tmp_op_{new_tag()}"
        if keep:
            self._keep(f"{path}.keep")
        files = {f"{temporary}.pack": data, f"{temporary}.idx": index, **beside}
        try:
            self._files.write_new(files)
            # With its index a pack is one, so that comes last.
            self._files.rename(f"{temporary}.pack", f"{path}.pack")
            self._files.rename(f"{temporary}.idx", f"{path}.idx")
            self._files.sync_folder(folder)
        except OSError:
            for name in files:
                remove(name)
            raise
        return Pack(path, index)

    def _keep(self, path: str) -> None:
        self._kept.append(path)
        # To make a file takes a millisecond where many were removed before: this one goes round.
        with suppress(FileNotFoundError):
            self._files.rename(self._mark, path)
            return
        remove(path)
        fd = self._files.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            self._files.write_all(fd, _OURS)
        finally:
            self._files.close(fd)


def _remove_pack(path: str) -> None:
    # Without its index a pack is none, so that goes first.
    for suffix in ("idx", "rev", "bitmap", "pack"):
        remove(f"{path}.{suffix}")


def name_of(kind: bytes, data: bytes) -> bytes:
    """The sha under which git knows an object."""
    digest = hashlib.sha1(b"%b %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def format_pack(entries: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """A pack of stored forms by name, and its index."""
    body = [struct.pack(">4s2L", b"PACK", 2, len(entries)), *entries.values()]
    starts = list(accumulate(map(len, body)))
    pack = b"".join(body)
    pack += hashlib.sha1(pack, usedforsecurity=False).digest()
    offset = dict(zip(entries, starts, strict=False))
    names = sorted(entries)
    counts = [0] * 256
    for name in names:
        counts[name[0]] += 1
    index = b"".join(
        [
            _INDEX_MAGIC,
            struct.pack(">256L", *accumulate(counts)),
            *names,
            *(struct.pack(">L", zlib.crc32(entries[name])) for name in names),
            *(struct.pack(">L", offset[name]) for name in names),
            pack[-20:],
        ]
    )
    return pack, index + hashlib.sha1(index, usedforsecurity=False).digest()


def _entry(kind: bytes, data: bytes) -> bytes:
    """An object as it stands in a pack."""
    size = len(data)
    head = bytearray([_KINDS[kind] << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    # To compress a few words, a commit for instance, takes ten times as long as to store them.
    return bytes(head) + zlib.compress(data, _COMPRESSION if len(data) > _FEW_BYTES else 0)


def _parse_header(data: bytes) -> tuple[int, int, int]:
    """Kind, size, and where the compressed bytes begin.

    Raises:
        ValueError: it is none.
    """
    if not data:
        raise ValueError("an object is missing")
    kind, size, at, shift = data[0] >> 4 & 7, data[0] & 15, 1, 4
    while data[at - 1] & 0x80:
        if at == len(data) or at > 10:
            raise ValueError("the head of an object is malformed")
        size |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return kind, size, at


def _damaged(sha: bytes) -> GitRefused:
    return GitRefused(f"git object {sha.hex()} is damaged; `git fsck` says more")
