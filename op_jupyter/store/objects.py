"""git's files, as far as the store writes and reads them itself: trees, commits, refs.

Everything is fsynced, nothing is spawned, no configuration is read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError
from op_jupyter.store.files import FileSystem, is_folder, new_tag, read_file

FILE: Final = b"100644"
TREE: Final = b"40000"
_MAX_REF_BYTES: Final = 4096
_MAX_PACKED_REFS_BYTES: Final = 64 * 1024 * 1024
_SHA: Final = re.compile("[0-9a-f]{40}")
_PLAIN_REF: Final = re.compile(r"refs(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}){2,6}")
_FOREIGN_LOCK_SECONDS: Final = 60.0  # another git holds the lock of a ref for milliseconds

Entries: TypeAlias = dict[bytes, tuple[bytes, bytes]]
"""A tree: name -> (mode, sha as 20 bytes)."""


class GitRefused(StoreError):
    """A commit is not possible now; the journal goes on without it."""


class NoCommit(GitRefused):
    """An object that is no commit, where one was looked for."""


class RefMoved(GitRefused):
    """Somebody else moved the branch first."""


# --- trees and commits -----------------------------------------------------------------


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


def is_safe_ref(name: str) -> bool:
    """Whether *name* can be a ref here: its parts are plain words, none leads anywhere else."""
    return (
        _PLAIN_REF.fullmatch(name) is not None
        and ".." not in name
        and not any(part.endswith((".", ".lock")) for part in name.split("/"))
    )


# --- refs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that will take the place of another, of a ref for instance."""

    path: str
    data: bytes


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

    def stage(self, ref: str, new: bytes) -> Staged:
        """What `move` needs on disk; whoever has other files to wait for may write it with them."""
        return self._stage(f"{self._git_dir}/{ref}", _named(new))

    def move(self, ref: str, old: bytes | None, new: bytes, staged: Staged | None = None) -> None:
        """Let *ref* name *new* if it still names *old* (None: does not exist), durably.

        *staged* is what `stage` gave for it, if that has been written; it is gone afterwards.

        Raises:
            RefMoved: it names something else.
            GitRefused: a lock of somebody else is in the way.
        """
        path = f"{self._git_dir}/{ref}"
        self._files.make_folders(self._git_dir, os.path.dirname(ref))
        self._swap(path, _named(new), lambda: self._check(ref, old), staged)

    def sync(self, ref: str) -> None:
        """Make a move durable of which that is not known."""
        self._files.sync_folder(os.path.dirname(f"{self._git_dir}/{ref}"))

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

    def repack(self, add: Mapping[str, bytes], *, drop: str = "") -> None:
        """Let all of *add* exist and nothing below *drop* any more, in one step.

        For refs that have no file of their own: such a file would win.
        """
        kept = {r: sha for r, sha in self._packed().items() if not drop or not r.startswith(drop)}
        lines = [f"{sha.hex()} {ref}\n" for ref, sha in sorted({**kept, **add}.items())]
        self.replace("packed-refs", "".join(lines).encode())

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

    def _stage(self, path: str, data: bytes) -> Staged:
        if os.path.lexists(f"{path}.lock"):
            self.clear_leftovers()
        return Staged(f"{self._git_dir}/swap_{new_tag()}", data)

    def _swap(
        self, path: str, data: bytes, check: Callable[[], None], staged: Staged | None = None
    ) -> None:
        # The lock is a second name of a file of ours: after a crash that tells whose it is.
        if staged is None:
            staged = self._stage(path, data)
            self._files.write_new({staged.path: data})
        temporary, lock = staged.path, f"{path}.lock"
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
            text = read_file(f"{self._git_dir}/packed-refs", _MAX_PACKED_REFS_BYTES).decode()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            raise GitRefused(f"packed-refs cannot be read ({exc})") from exc
        pairs = [line.split(" ", 1) for line in text.split("\n") if _SHA.match(line)]
        return {ref: bytes.fromhex(sha) for sha, ref in (p for p in pairs if len(p) == 2)}


def _named(sha: bytes) -> bytes:
    """What the file of a ref says."""
    return sha.hex().encode() + b"\n"


def _locked_out(lock: str) -> GitRefused:
    return GitRefused(
        f"{lock} exists: another git is at work there, or has died; "
        "if none is running, remove that file"
    )


def _bad_ref(ref: str, text: str) -> bytes:
    raise GitRefused(f"{ref} names no object of this kind of repository: {text[:60]!r}")
