"""git's files, as far as the store writes and reads them itself: loose objects, trees, refs.

Everything is fsynced, nothing is spawned, no configuration is read.  Packed objects are
left to whoever knows packs (`git.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from op_jupyter.errors import StoreError
from op_jupyter.store.files import FileSystem, is_folder, new_tag, read_file, remove

FILE: Final = b"100644"
TREE: Final = b"40000"
MAX_OBJECT_BYTES: Final = 256 * 1024 * 1024
_MAX_REF_BYTES: Final = 4096
_SHA: Final = re.compile("[0-9a-f]{40}")
_OWN_TEMPORARY: Final = re.compile(r"tmp_obj_[0-9a-f]{8}_\d+")
_FOREIGN_LOCK_SECONDS: Final = 60.0  # another git holds the lock of a ref for milliseconds
_HOUR: Final = 3600.0
_COMPRESSION: Final = 1  # a segment is written once and packed later; speed counts here

Entries: TypeAlias = dict[bytes, tuple[bytes, bytes]]
"""A tree: name -> (mode, sha as 20 bytes)."""


class GitRefused(StoreError):
    """A commit is not possible now; the journal goes on without it."""


class NoCommit(GitRefused):
    """An object that is no commit, where one was looked for."""


class RefMoved(GitRefused):
    """Somebody else moved the branch first."""


# --- objects ----------------------------------------------------------------------------


class LooseObjects:
    """Loose objects of a repository; what is written is durable after `barrier`."""

    def __init__(self, git_dir: str, files: FileSystem) -> None:
        self.root = f"{git_dir}/objects"
        self._files = files
        self._pending: list[tuple[int, str, str]] = []
        self._fresh: dict[str, tuple[bytes, bytes]] = {}
        self._tag = new_tag()

    def write(self, kind: bytes, data: bytes) -> bytes:
        """Add an object and return its sha; `barrier` makes it durable."""
        header = b"%b %d\0" % (kind, len(data))
        digest = hashlib.sha1(header, usedforsecurity=False)
        digest.update(data)
        name = digest.hexdigest()
        path = f"{self.root}/{name[:2]}/{name[2:]}"
        if name in self._fresh or self._freshen(path):
            return digest.digest()
        pack = zlib.compressobj(_COMPRESSION)
        packed = pack.compress(header) + pack.compress(data) + pack.flush()
        temporary = f"{self.root}/tmp_obj_{self._tag}_{len(self._pending)}"
        fd = self._files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._pending.append((fd, temporary, path))
        self._files.write_all(fd, packed)
        self._fresh[name] = (kind, data)
        if len(self._pending) >= 100:
            self.barrier()
        return digest.digest()

    def barrier(self) -> None:
        """Return when every object written so far is on disk under its name."""
        try:
            for fd, _, _ in self._pending:
                self._files.sync(fd)
            folders = {os.path.dirname(path) for _, _, path in self._pending}
            # Not remembered: the user's `git gc` removes folders that it has emptied.
            missing = [folder for folder in folders if not is_folder(folder)]
            for folder in missing:
                self._files.mkdir(folder)
            if missing:
                self._files.sync_folder(self.root)
            for _, temporary, path in self._pending:
                self._files.rename(temporary, path)
            for folder in folders:
                self._files.sync_folder(folder)
        finally:
            self.forget()

    def forget(self) -> None:
        """Drop what is not on disk yet."""
        for fd, temporary, _ in self._pending:
            self._files.close(fd)
            with suppress(OSError):
                remove(temporary)
        self._pending.clear()
        self._fresh.clear()

    def read(self, sha: bytes) -> tuple[bytes, bytes] | None:
        """Kind and bytes of a loose object; None when there is none.

        Raises:
            GitRefused: it is damaged.
        """
        name = sha.hex()
        if name in self._fresh:
            return self._fresh[name]
        path = f"{self.root}/{name[:2]}/{name[2:]}"
        try:
            raw = read_file(path, MAX_OBJECT_BYTES)
        except FileNotFoundError:
            return None
        unpack = zlib.decompressobj()
        try:
            whole = unpack.decompress(raw, MAX_OBJECT_BYTES)
        except zlib.error as exc:
            raise GitRefused(f"git object {name} is damaged; `git fsck` says more") from exc
        if hashlib.sha1(whole, usedforsecurity=False).digest() != sha:
            raise GitRefused(f"git object {name} is damaged; `git fsck` says more")
        header, _, data = whole.partition(b"\0")
        return header.split(b" ")[0], data

    def count(self) -> int:
        """About how many there are, judged like git by one folder of 256."""
        with suppress(OSError):
            return len(os.listdir(f"{self.root}/17")) * 256
        return 0

    def remove_empty_folders(self) -> None:
        """Remove the folders that packing has emptied."""
        for name in os.listdir(self.root):
            if len(name) == 2:
                with suppress(OSError):
                    os.rmdir(f"{self.root}/{name}")

    def clear_leftovers(self, now: float) -> None:
        """Remove what a dead process left half written; another git's files get an hour."""
        for folder, ours in ((self.root, "tmp_obj_"), (f"{self.root}/pack", "tmp_")):
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(ours) and (
                        _OWN_TEMPORARY.fullmatch(entry.name)
                        or now - entry.stat(follow_symlinks=False).st_mtime > _HOUR
                    ):
                        remove(entry.path)

    def _freshen(self, path: str) -> bool:
        # Like git: a prune that runs at this moment must not take an old object from us.
        try:
            os.utime(path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True


def hash_blob(data: bytes) -> bytes:
    """The sha under which git keeps a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()


def parse_tree(data: bytes) -> Entries:
    """The entries of a tree object."""
    entries: Entries = {}
    position = 0
    try:
        while position < len(data):
            space = data.index(b" ", position)
            end = data.index(b"\0", space)
            entries[data[space + 1 : end]] = (data[position:space], data[end + 1 : end + 21])
            position = end + 21
    except ValueError as exc:
        raise GitRefused("a git tree object is malformed; `git fsck` says more") from exc
    return entries


def format_tree(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    """The tree object of *entries*."""
    ordered = sorted(
        entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == TREE else item[0]
    )
    return b"".join([b"%b %b\0%b" % (mode, name, sha) for name, (mode, sha) in ordered])


@dataclass(frozen=True, slots=True)
class CommitObject:
    """What is needed of a commit."""

    tree: bytes
    parents: tuple[bytes, ...]
    message: str


def parse_commit(data: bytes) -> CommitObject:
    """A commit object."""
    head, _, message = data.partition(b"\n\n")
    tree, parents = b"", []
    try:
        for line in head.split(b"\n"):
            word, _, value = line.partition(b" ")
            if word == b"tree":
                tree = bytes.fromhex(value.decode())
            elif word == b"parent":
                parents.append(bytes.fromhex(value.decode()))
    except ValueError as exc:
        raise GitRefused("a git commit object is malformed; `git fsck` says more") from exc
    return CommitObject(tree, tuple(parents), message.decode(errors="replace"))


# --- refs -------------------------------------------------------------------------------


class Refs:
    """Branches and other names for commits, moved by compare-and-swap under git's own locks."""

    def __init__(self, git_dir: str, files: FileSystem, clock: Callable[[], float]) -> None:
        self._git_dir = git_dir
        self._files = files
        self._clock = clock

    def all(self) -> dict[str, bytes]:
        """Every ref that names an object, by full name."""
        found = self._packed()
        pending = ["refs"]
        while pending:
            below = pending.pop()
            if not is_folder(f"{self._git_dir}/{below}"):
                continue
            for name in os.listdir(f"{self._git_dir}/{below}"):
                ref = f"{below}/{name}"
                if stat.S_ISDIR(os.lstat(f"{self._git_dir}/{ref}").st_mode):
                    pending.append(ref)
                elif not name.endswith(".lock") and (sha := self._loose(ref)) is not None:
                    found[ref] = sha
        return found

    def read(self, ref: str) -> bytes | None:
        """The commit *ref* names, if it exists."""
        return self._loose(ref) or self._packed().get(ref)

    def move(self, ref: str, old: bytes | None, new: bytes) -> None:
        """Let *ref* name *new* if it still names *old* (None: does not exist), durably.

        Raises:
            RefMoved: it names something else.
            GitRefused: a lock of somebody else is in the way.
        """
        path = f"{self._git_dir}/{ref}"
        self._files.make_folders(self._git_dir, os.path.dirname(ref))
        self._swap(path, new.hex().encode() + b"\n", lambda: self._check(ref, old))

    def head(self) -> str:
        """What HEAD says: ``ref: refs/heads/main``, or a commit; "" when there is no HEAD."""
        with suppress(OSError, UnicodeDecodeError):
            return read_file(f"{self._git_dir}/HEAD", _MAX_REF_BYTES).decode().strip()
        return ""

    def set_head(self, branch: str) -> bool:
        """Let HEAD name *branch*; whether it did not yet."""
        wanted = f"ref: refs/heads/{branch}"
        if self.head() == wanted:
            return False
        self.replace("HEAD", wanted.encode() + b"\n")
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Put *data* in the place of a file of the repository, under git's lock for it."""
        self._swap(f"{self._git_dir}/{name}", data, lambda: None)

    def clear_leftovers(self) -> None:
        """Remove the locks of dead owners: our own, and others that are older than any swap."""
        temporary = self._temporary_files()
        ours = {(info.st_dev, info.st_ino) for info in map(os.lstat, temporary)}
        for lock in [f"{self._git_dir}/HEAD.lock", f"{self._git_dir}/index.lock", *self._locks()]:
            with suppress(FileNotFoundError):
                info = os.lstat(lock)
                old = self._clock() - info.st_mtime > _FOREIGN_LOCK_SECONDS
                if (info.st_dev, info.st_ino) in ours or (old and not lock.endswith("/index.lock")):
                    self._files.unlink(lock)
        for path in temporary:
            self._files.unlink(path)

    def _locks(self) -> list[str]:
        found, pending = [], [f"{self._git_dir}/refs"]
        while pending:
            folder = pending.pop()
            if not is_folder(folder):
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.name.endswith(".lock"):
                        found.append(entry.path)
        return found

    def _temporary_files(self) -> list[str]:
        with os.scandir(self._git_dir) as entries:
            return [e.path for e in entries if e.name.startswith("swap_")]

    def _swap(self, path: str, data: bytes, check: Callable[[], None]) -> None:
        # The lock is a second name of a file of ours: after a crash that tells whose it is.
        temporary, lock = f"{self._git_dir}/swap_{new_tag()}", f"{path}.lock"
        if os.path.lexists(lock):
            self.clear_leftovers()
        self._files.write_new(temporary, data)
        try:
            self._files.link(temporary, lock)
        except OSError as exc:
            self._files.unlink(temporary)
            if isinstance(exc, FileExistsError):
                raise _locked_out(lock) from None
            raise
        try:
            check()
            self._files.rename(lock, path)
        except (OSError, GitRefused):
            self._files.unlink(lock)
            self._files.unlink(temporary)
            raise
        self._files.unlink(temporary)
        self._files.sync_folder(os.path.dirname(path))

    def _check(self, ref: str, old: bytes | None) -> None:
        now = self.read(ref)
        if now != old:
            raise RefMoved(f"{ref} was moved by another git to {now.hex() if now else 'nowhere'}")

    def _loose(self, ref: str) -> bytes | None:
        try:
            text = read_file(f"{self._git_dir}/{ref}", _MAX_REF_BYTES).decode().strip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as exc:
            raise GitRefused(f"{ref} cannot be read ({exc})") from exc
        if not _SHA.fullmatch(text):
            return None if text.startswith("ref:") else _bad_ref(ref, text)
        return bytes.fromhex(text)

    def _packed(self) -> dict[str, bytes]:
        try:
            lines = read_file(f"{self._git_dir}/packed-refs", MAX_OBJECT_BYTES).decode().split("\n")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            raise GitRefused(f"packed-refs cannot be read ({exc})") from exc
        pairs = [line.split(" ", 1) for line in lines if _SHA.match(line)]
        return {ref: bytes.fromhex(sha) for sha, ref in (p for p in pairs if len(p) == 2)}


def _locked_out(lock: str) -> GitRefused:
    return GitRefused(
        f"{lock} exists: another git is at work there, or has died; "
        "if none is running, remove that file"
    )


def _bad_ref(ref: str, text: str) -> bytes:
    raise GitRefused(f"{ref} names no object of this kind of repository: {text[:60]!r}")
