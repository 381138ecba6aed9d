"""A session's git repository, written in process.  The only file that imports GitPython.

No process is spawned but for `gc`; no configuration, hook, filter or attribute is honoured,
neither the user's nor the repository's own; no `GIT_*` variable is read.  Commits go through
GitPython's `Commit.create_from_tree`, on an object database that fsyncs.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from op_jupyter.errors import StoreError
from op_jupyter.store.executable import borrowing, tame
from op_jupyter.store.files import FileSystem, is_folder, read_file
from op_jupyter.store.objects import (
    TREE,
    CommitObject,
    Entries,
    GitRefused,
    NoCommit,
    Refs,
    format_tree,
    parse_commit,
    parse_tree,
)
from op_jupyter.store.packs import MAX_OBJECT_BYTES, Objects, Pack, name_of

NAME: Final = "op-jupyter"
EMAIL: Final = "op-jupyter@localhost"

_FOLDERS: Final = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")
_CONFIG: Final = b"""\
[core]
\trepositoryformatversion = 0
\tfilemode = false
\tbare = false
\tlogallrefupdates = false
\tautocrlf = false
\tsafecrlf = false
\tfsmonitor = false
[commit]
\tgpgsign = false
[gc]
\tauto = 0
"""
_ATTRIBUTES: Final = b"* -text -filter -ident\n"
# Segments of other branches are no untracked files, and `git clean -fd` spares them.
_EXCLUDE: Final = b"*.tmp\n/history/\n/context/\n"
_FILES: Final = {"config": _CONFIG, "info/attributes": _ATTRIBUTES, "info/exclude": _EXCLUDE}
_CACHED_TREES: Final = 256
MAX_PACK_BYTES: Final = 8 * 1024**3
_deltas_lock: Final = threading.Lock()  # gitdb's memory manager is shared and not thread-safe


class Repository:
    """The repository in a session's folder.  Used by one thread at a time."""

    def __init__(
        self, folder: str, files: FileSystem, clock: Callable[[], float], git_dir: str = ""
    ) -> None:
        """*git_dir*: when it is not ``.git`` in the *folder*; a bare repository's folder."""
        self.git_dir = git_dir or f"{folder}/.git"
        self._files = files
        self.objects = Objects(self.git_dir, files)
        self.refs = Refs(self.git_dir, files, clock)
        self._trees: dict[bytes, Entries] = {}
        self._deltas: Any = None

    def check(self) -> None:
        """Refuse a repository that keeps its parts elsewhere, or is of another kind.

        Raises:
            GitRefused: it is one.
        """
        for name in ("commondir", "gitdir", "reftable", "objects/info/alternates"):
            if os.path.lexists(f"{self.git_dir}/{name}"):
                raise GitRefused(f"{self.git_dir} is not a plain repository: it has {name!r}")
        for name in ("", "/objects", "/objects/pack", "/refs", "/refs/heads"):
            is_folder(f"{self.git_dir}{name}")

    def ensure(self, branch: str) -> None:
        """Make what is missing of the repository; *branch* is what HEAD names then."""
        self.check()
        if self.refs.head() and is_folder(f"{self.git_dir}/objects/pack"):
            return
        self._files.make_folders(self.git_dir, *_FOLDERS)
        paths = {f"{self.git_dir}/{name}": data for name, data in _FILES.items()}
        missing = {path: data for path, data in paths.items() if not os.path.lexists(path)}
        if missing:
            self._files.replace_each(missing)
        if not self.refs.head():
            self.refs.set_head(branch)

    # -- reading

    def read(self, sha: bytes) -> tuple[bytes, bytes]:
        """Kind and bytes of an object.

        Raises:
            GitRefused: it is missing or damaged.
        """
        return self.objects.read(sha) or self._read_delta(sha)

    def commit_object(self, sha: bytes) -> CommitObject:
        """A commit; of an annotated tag, the commit it names."""
        kind, data = self.read(sha)
        if kind == b"tag" and data.startswith(b"object "):
            return self.commit_object(bytes.fromhex(data[7:47].decode(errors="replace")))
        if kind != b"commit":
            raise NoCommit(f"git object {sha.hex()} is no commit")
        return parse_commit(data)

    def tree(self, sha: bytes) -> Entries:
        """The entries of a tree; not to be changed."""
        entries = self._trees.get(sha)
        if entries is None:
            kind, data = self.read(sha)
            if kind != b"tree":
                raise GitRefused(f"git object {sha.hex()} is no tree")
            entries = self._remember(sha, parse_tree(data))
        return entries

    def subtree(self, entries: Entries, name: bytes) -> Entries:
        """The folder *name* of a tree; empty when there is none."""
        mode, sha = entries.get(name, (b"", b""))
        return self.tree(sha) if mode == TREE else {}

    def _remember(self, sha: bytes, entries: Entries) -> Entries:
        while len(self._trees) >= _CACHED_TREES:
            del self._trees[next(iter(self._trees))]
        self._trees[sha] = entries
        return entries

    def _read_delta(self, sha: bytes) -> tuple[bytes, bytes]:
        """An object that git packed as the difference from another: gitdb knows how."""
        with _deltas_lock:
            try:
                if self._deltas is None:
                    from gitdb.db import PackedDB  # type: ignore[import-untyped]

                    self._deltas = PackedDB(f"{self.git_dir}/objects/pack")
                if not self._deltas.has_object(sha):
                    self._deltas.update_cache(force=True)
                stream = self._deltas.stream(sha)
                if stream.size > MAX_OBJECT_BYTES:
                    raise GitRefused(f"git object {sha.hex()} is too large")
                return stream.type, stream.read()
            except _delta_errors() as exc:
                raise GitRefused(
                    f"git object {sha.hex()} is missing or damaged; `git fsck` says more"
                ) from exc

    # -- writing

    def write_blob(self, data: bytes, *, once: bool = False) -> bytes:
        """Add a file's content; *once*: unless it is there already."""
        sha = name_of(b"blob", data)
        return sha if once and self.objects.has(sha) else self.objects.write(b"blob", data)

    def write_tree(self, entries: Entries) -> bytes:
        """Add a tree."""
        sha = self.objects.write(b"tree", format_tree(entries))
        self._remember(sha, entries)
        return sha

    def commit(
        self, tree: bytes, message: str, parents: Iterable[bytes], authored: int, committed: int
    ) -> bytes:
        """Add a commit by ourselves, whatever identity is configured; times are UTC."""
        git = load_git()
        odb = _database_type()(self.objects)
        repo: Any = SimpleNamespace(odb=odb, config_reader=_NoConfig)
        actor = git.Actor(NAME, EMAIL)
        commit = git.Commit.create_from_tree(
            repo,
            git.Tree(repo, tree),
            message,
            parent_commits=[git.Commit(repo, parent) for parent in parents],
            head=False,
            author=actor,
            committer=actor,
            author_date=f"{authored} +0000",
            commit_date=f"{committed} +0000",
        )
        sha: bytes = commit.binsha
        return sha

    # -- maintenance

    def gc(self) -> None:
        """Pack everything that a ref or HEAD reaches; what nothing reaches stays.

        At whatever point it is killed, every object is still there.

        Raises:
            StoreError: there is no git executable, or it failed.
        """
        self.check()
        tips = sorted({sha.hex() for sha in self.refs.all().values()})
        if not tips:
            return
        name = self._pack_objects(tips, self.objects.root, "gc")
        path = f"{self.objects.root}/pack/pack-{name}"
        packed = set(Pack(path, read_file(f"{path}.idx")).names())
        self._deltas = None
        self.objects.remove_packed(packed, but=path)

    def check_objects(self) -> str:
        """What `git fsck` has to say about all that a ref reaches; "": nothing.

        Raises:
            StoreError: there is no git executable.
        """
        self.check()
        tips = sorted({sha.hex() for sha in self.refs.all().values()})
        if not tips:
            return ""
        with borrowing(self.objects.root, "checking every object") as git:
            done = git.run("fsck", "--strict", "--no-dangling", "--no-progress", *tips)
        return "" if done.code == 0 else (done.err or done.out.strip())

    def take_objects(
        self, other: Repository, tips: Iterable[bytes], known: Iterable[bytes] = ()
    ) -> None:
        """Copy from *other* what *tips* reach and *known*, which it has too, do not.

        Raises:
            StoreError: there is no git executable, or it failed.
        """
        other.check()
        self.check()
        wanted = {tip.hex() for tip in tips} | {f"^{sha.hex()}" for sha in known}
        self._pack_objects(sorted(wanted), other.objects.root, "copying objects")

    def _pack_objects(self, tips: Iterable[str], objects: str, purpose: str) -> str:
        """Let git pack what *tips* reach in the folder *objects* into this repository."""
        folder = f"{self.objects.root}/pack"
        given = "".join(f"{tip}\n" for tip in tips)
        # What git has half written lies there until it is moved into place, so it has to be on
        # the same disk; and it is gone when there is no room for the rest.
        with tempfile.TemporaryDirectory(prefix="tmp_op_", dir=folder) as scratch:
            others = dict.fromkeys((objects, self.objects.root))
            with borrowing(scratch, purpose, others=tuple(others)) as git:
                done = git.run(
                    *_PACK_OBJECTS, f"{folder}/pack", given=given, most_bytes=MAX_PACK_BYTES
                )
        if done.code:
            raise StoreError(f"git could not pack {objects}: {done.err}")
        name = done.out.strip()
        if not name:  # there is nothing that is new
            return ""
        for suffix in ("pack", "idx"):
            self._make_durable(f"{folder}/pack-{name}.{suffix}")
        self._files.sync_folder(folder)
        self._deltas = None
        return name

    def _make_durable(self, path: str) -> None:
        os.chmod(path, self._files.file_mode)
        fd = self._files.open(path, os.O_RDONLY)
        try:
            self._files.sync(fd)
        finally:
            self._files.close(fd)


_PACK_OBJECTS: Final = ("pack-objects", "--revs", "--delta-base-offset", "--non-empty", "-q")


# --- GitPython --------------------------------------------------------------------------


def load_git() -> ModuleType:
    """GitPython, imported when it is first needed, whatever the user's git is like.

    Raises:
        GitRefused: it cannot be imported.
    """
    try:
        import git
    except ImportError:
        # It asks the git executable for its version, and gives up when there is none or the
        # user's configuration is malformed.  The variables are put back at once.
        with _tamed_environment():
            try:
                import git
            except ImportError as exc:
                raise GitRefused(f"GitPython cannot be imported ({exc})") from exc
    return git


@contextmanager
def _tamed_environment() -> Iterator[None]:
    ours = tame(os.devnull) | {"GIT_PYTHON_REFRESH": "quiet"}
    del ours["PATH"]
    saved = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _database_type() -> Callable[[Objects], Any]:
    from gitdb.db import LooseObjectDB

    class FsyncODB(LooseObjectDB):  # type: ignore[misc]  # gitdb ships no types
        """What GitPython writes goes to our objects: durable, and no process is spawned."""

        def __init__(self, objects: Objects) -> None:
            super().__init__(objects.root)
            self._objects = objects

        def store(self, istream: Any) -> Any:
            kind = istream.type if isinstance(istream.type, bytes) else istream.type.encode()
            istream.binsha = self._objects.write(kind, istream.read())
            return istream

    return FsyncODB


class _NoConfig:
    """In place of every git configuration there is."""

    def get_value(self, section: str, option: str, default: Any = None) -> Any:
        return default


def _delta_errors() -> tuple[type[Exception], ...]:
    """All that gitdb raises over a missing, foreign or damaged pack."""
    from gitdb.exc import ODBError  # type: ignore[import-untyped]

    return (ODBError, OSError, AssertionError, LookupError, ValueError, struct.error, zlib.error)
