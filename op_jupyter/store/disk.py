"""An open session on disk: the journal in front, git behind, one lock around both."""

from __future__ import annotations

import hashlib
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final

from op_jupyter.core.graph import Dag, unfinished
from op_jupyter.errors import ReadOnlySession, StoreError
from op_jupyter.store import codec
from op_jupyter.store.base import Clock, StoreStatus
from op_jupyter.store.codec import Encoded, Record
from op_jupyter.store.commits import Committer
from op_jupyter.store.events import (
    Closed,
    Described,
    Event,
    EventMaker,
    Packed,
    Pointed,
    TurnEnded,
)
from op_jupyter.store.files import (
    DIR_MODE,
    FileSystem,
    FsyncFailed,
    disk_usage,
    is_folder,
    read_file,
    remove,
    walk_files,
)
from op_jupyter.store.git import Repository
from op_jupyter.store.history import History, blob_path
from op_jupyter.store.interrupts import Uninterrupted
from op_jupyter.store.journal import (
    BETWEEN,
    LOCAL,
    SEGMENT_BYTES,
    Journal,
    StoredSegment,
    Unsafe,
    list_files,
)
from op_jupyter.store.loading import Folder, Loaded, corrupt, load
from op_jupyter.store.lock import WriterLock, this_process
from op_jupyter.store.objects import GitRefused
from op_jupyter.store.packs import MAX_OBJECT_BYTES
from op_jupyter.store.session import (
    RecordedSession,
    check_blob_hash,
    missing_blob,
    timestamp,
)
from op_jupyter.store.summary import META, describe_repair, meta_json
from op_jupyter.store.tips import Tips

GC_OBJECTS: Final = 7000
GC_PACKS: Final = 200
_TOGETHER: Final = 64
"""So many files are put back while the disk is waited for once."""
_LOCAL_KEY: Final = "\0local"  # no turn has that id: it would be in the way of nothing
_TEMPORARY: Final = re.compile(r".*\.[0-9a-f]{8}\.tmp")


@dataclass(frozen=True, slots=True)
class Outside:
    """What sessions on disk need from outside."""

    files: FileSystem
    clock: Clock
    new_tag: Callable[[], str]
    kernel: str


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn what the operating system refuses into our error."""
    try:
        yield
    except OSError as exc:
        raise StoreError(f"{exc.filename or path}: {exc.strerror or exc}") from exc


class _Refusing:
    """Around what is stored, every record: as a generator it would take five times as long."""

    __slots__ = ("_go_read_only", "_path")

    def __init__(self, path: str, go_read_only: Callable[[str], None]) -> None:
        self._path = path
        self._go_read_only = go_read_only

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Unsafe):
            self._go_read_only(error.message)
        elif isinstance(error, OSError):
            reason = f"{error.filename or self._path}: {error.strerror or error}"
            if isinstance(error, FsyncFailed):
                self._go_read_only(reason)
            raise StoreError(
                f"{reason}; nothing was stored. Make room, allow writing there, or set "
                "OPENPROGRAM_HOME to another folder"
            ) from error


class ReadSession(RecordedSession):
    """A session as it was when it was opened for reading."""

    def __init__(
        self,
        dag: Dag,
        folder: Folder | None,
        why: str,
        outside: Outside,
        *,
        damaged: bool = False,
    ) -> None:
        super().__init__(dag, {}, outside.clock)
        self._folder = folder
        self._read_only = why
        self._damaged = damaged

    @property
    def status(self) -> StoreStatus:
        """Why nothing can be written."""
        behind = self._folder.in_git.unreadable if self._folder else ""
        return StoreStatus(read_only=self._read_only, git_behind=behind, damaged=self._damaged)

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Refused."""
        raise ReadOnlySession(self._read_only)

    def read_blob(self, sha256: str) -> bytes:
        """A large value."""
        check_blob_hash(sha256)
        try:
            if self._folder is not None:
                return self._folder.read_blob(sha256)
        except FileNotFoundError:
            pass
        raise missing_blob(sha256, self.session_id)

    def flush(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to let go."""
        self._closed = True

    def _keep(self, batch: Sequence[Encoded]) -> None:
        raise ReadOnlySession(self._read_only)

    def _kept(self, batch: Sequence[Encoded]) -> None:
        raise ReadOnlySession(self._read_only)


class DiskSession(RecordedSession):
    """The one writer of a session."""

    def __init__(
        self,
        path: str,
        dag: Dag,
        reserved: Mapping[str, Any],
        outside: Outside,
        lock: WriterLock | None = None,
        next_number: int = 0,
    ) -> None:
        """Without the *lock*: a session whose folder will be made with its first record."""
        super().__init__(dag, reserved, outside.clock)
        self._path = path
        self._outside = outside
        self._files = outside.files
        self._lock = lock or writer_lock(path, dag.session_id, outside)
        self._exists = lock is not None
        self._repository = Repository(path, outside.files, outside.clock)
        self._history = History(path, dag, self._repository, outside.files, outside.clock)
        self._committer = Committer(self._history)
        self._journal = Journal(path, outside.files, next_number)
        self._events = EventMaker(dag, self._journal.finish)
        self._repaired: list[str] = []
        self._unreadable = ""
        self._changed = False
        # Nothing of these knows the session, so it goes as soon as nobody holds it.
        self._left = weakref.finalize(self, _leave, self._committer, self._journal, self._lock)
        self._left.atexit = False

    @classmethod
    def reopen(
        cls,
        path: str,
        session_id: str,
        outside: Outside,
        *,
        timeout: float = 0.0,
        force: bool = False,
        first: Callable[[], None] = lambda: None,
        look: Callable[[Folder, Loaded], None] = lambda _folder, _loaded: None,
    ) -> DiskSession:
        """Lock a session, read it, and mend what its last process left.

        *first* is called as soon as the lock is held, before anything is read, and *look* with
        what was read, before anything is mended; both may raise.

        Raises:
            SessionLocked, CorruptRecord, FormatTooNew, StoreError
        """
        lock = writer_lock(path, session_id, outside)
        with translated(path), ExitStack() as on_error:
            is_folder(path)
            unclean = acquire(lock, path, outside, timeout, force=force)
            on_error.callback(lock.release)
            kept = _keep_lost(path, outside)
            first()
            folder = Folder(path, Repository(path, outside.files, outside.clock))
            restored = _restore(folder, outside.files)
            loaded = load(session_id, folder)
            look(folder, loaded)
            if loaded.damages:
                raise corrupt(session_id, path, loaded.damages)
            numbers = [segment.name.number for segment in loaded.segments]
            session = cls(path, loaded.dag, {}, outside, lock, max(numbers, default=-1) + 1)
            on_error.callback(session._journal.close)
            on_error.callback(session._committer.abandon)
            session._repaired += [*kept, *restored]
            session._recover(folder, loaded, _committed(folder, unclean=unclean))
            on_error.pop_all()
        return session

    # -- what everybody sees

    @property
    def status(self) -> StoreStatus:
        """How the session stands."""
        return StoreStatus(
            read_only=self._read_only,
            git_behind=self._committer.behind or self._unreadable,
            repaired=tuple(self._repaired),
        )

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Keep *data* once and return its sha256; it is committed with its turn."""
        with self._mutex, self._refusing():
            self._check_writable()
            if len(data) > MAX_OBJECT_BYTES:
                raise StoreError(f"{len(data)} bytes are more than a session keeps as one value")
            self._create()
            digest = hashlib.sha256(data).hexdigest()
            with Uninterrupted():
                self._write_blob(digest, data)
            self._events.mention(digest, self._events.newest_turn())
            self._changed = True
            return digest

    def read_blob(self, sha256: str) -> bytes:
        """What `put_blob` kept."""
        path = f"{self._path}/{blob_path(check_blob_hash(sha256))}"
        try:
            data = read_file(path, MAX_OBJECT_BYTES)
        except FileNotFoundError:
            raise missing_blob(sha256, self.session_id) from None
        except OSError as exc:
            raise StoreError(f"{path} cannot be read: {exc.strerror or exc}") from exc
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreError(f"{path} is damaged: it is not what its name says")
        return data

    def flush(self) -> None:
        """Wait until every finished turn is committed, or git is known to be behind."""
        if not self._lock.lost_in_fork:
            self._committer.flush()

    def pack(self) -> tuple[int, int]:
        """Let git pack the repository; nothing that a ref does not reach is removed.

        Bytes on disk, before and after.

        Raises:
            StoreError: there is no git executable, or it failed.
        """
        errors: list[StoreError] = []
        before = disk_usage(self._path)
        self._committer.submit(Packed(errors))
        self._committer.flush()
        if errors:
            raise errors[0]
        return before, disk_usage(self._path)

    def straighten(self) -> None:
        """Let every ref stand where the journal has its branch; what one leaves gets a name."""
        with self._mutex:
            self._committer.flush()
            self._committer.submit(*self._history.astray())
            self._committer.flush()

    def name_lines(self, branches: Mapping[str, str | None]) -> None:
        """Let *branches* stand where they are told to on this machine; git is not told.

        Whoever calls this has moved their refs.
        """
        with self._mutex, self._refusing():
            self._check_writable()
            moved = [(n, at) for n, at in branches.items() if self._dag.branches.get(n, "") != at]
            if not moved:
                return
            seq = self._next_seq()
            batch = [
                codec.encode(codec.pointing(name, node, False, seq + i))
                for i, (name, node) in enumerate(moved)
            ]
            with Uninterrupted():
                self._journal.start(_LOCAL_KEY, LOCAL, self._outside.new_tag())
                try:
                    self._journal.append([(_LOCAL_KEY, b"".join(each.line for each in batch))])
                finally:
                    self._journal.finish(_LOCAL_KEY)
                for encoded in batch:
                    codec.fold(self._dag, encoded.record)
                    self._events.follow_silently(encoded.record)
            self._changed = True

    def renew_index(self) -> None:
        """Have git's index made again at closing, since refs were moved by others."""
        with self._mutex:
            self._committer.flush()
            self._history.renew_index()
            self._changed = True

    def close(self) -> None:
        """Commit what is left and free the lock.  Safe to call twice."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._left.detach()
            if self._lock.lost_in_fork:
                return
            if self._changed:
                closed = Closed(self._dag.active_branch, meta_json(self._dag))
                self._committer.submit(*self._events.between(), closed)
        try:
            self._committer.flush()
        finally:
            self._committer.abandon()
            self._journal.close()
            self._lock.release()

    def abandon(self) -> None:
        """Let go at once, as the end of the process does; the next opening mends the rest."""
        with self._mutex:
            self._closed = True
            self._left.detach()
        self._committer.abandon()
        self._journal.close()
        self._lock.drop()

    # -- writing

    def _check_writable(self) -> None:
        if self._lock.lost_in_fork:
            raise ReadOnlySession(
                f"session {self.session_id!r} belongs to the process this one was forked from; "
                "open it read-only here (mode='read'), or another session"
            )
        super()._check_writable()

    def _store(self, records: Sequence[Record]) -> None:
        with self._refusing():
            super()._store(records)

    def _refusing(self) -> _Refusing:
        """Say what the disk refused; after a failed fsync, write nothing more."""
        return _Refusing(self._path, self._go_read_only)

    def _go_read_only(self, reason: str) -> None:
        self._read_only = (
            f"session {self.session_id!r} is read-only because of this: {reason}; "
            "close it and open it again"
        )

    def _kept(self, batch: Sequence[Encoded]) -> None:
        self._changed = True
        for record in [encoded.record for encoded in batch]:
            if events := self._events.follow(record, self._turn_of(record)):
                self._committer.submit(*self._with_between(events))

    def _keep(self, batch: Sequence[Encoded]) -> None:
        self._make_folder()
        groups: dict[str | None, list[bytes]] = {}
        begun: set[str] = set()
        for encoded in batch:
            for digest, data in encoded.blobs.items():
                self._write_blob(digest, data)
            turn_id = self._turn_of(encoded.record, begun)
            if turn_id is not None and encoded.record.get("op") == "open":
                begun.add(turn_id)
            groups.setdefault(turn_id, []).append(encoded.line)
            if turn_id not in self._journal:
                label = BETWEEN if turn_id is None else encoded.record["turn"]["kind"]
                self._journal.start(turn_id, label, self._outside.new_tag())
        self._journal.append([(turn_id, b"".join(lines)) for turn_id, lines in groups.items()])

    def _turn_of(self, record: Record, begun: Collection[str] = ()) -> str | None:
        """The turn whose segment *record* belongs to; None: it is between turns.

        *begun*: the turns that begin with the batch that it is in.
        """
        match record["kind"]:
            case "enter":
                turn_id = record["node"]["metadata"].get("turn_id")
            case "update":
                turn_id = self._dag.nodes[record["id"]].turn_id
            case "turn":
                return str(record["id"] if record["op"] == "close" else record["turn"]["id"])
            case _:
                return self._events.newest_turn()
        return turn_id if turn_id in begun or self._events.is_open(turn_id) else None

    def _write_blob(self, digest: str, data: bytes) -> None:
        path = blob_path(digest)
        if not os.path.lexists(f"{self._path}/{path}"):
            self._files.make_folders(self._path, os.path.dirname(path))
            self._files.replace(f"{self._path}/{path}", data)

    def _make_folder(self) -> None:
        if self._exists:
            return
        root, name = os.path.split(self._path)
        os.makedirs(root, DIR_MODE, exist_ok=True)
        self._files.make_folders(root, f"{name}/.git")
        acquire(self._lock, self._path, self._outside, 0.0, force=False)
        if list_files(self._path):
            self._lock.release()
            raise StoreError(f"session {self.session_id!r} was made elsewhere; open it again")
        self._exists = True

    def _with_between(self, events: list[Event]) -> list[Event]:
        """What was stored between turns goes into the commit of the turn that ends now."""
        ends = any(isinstance(event, TurnEnded) for event in events)
        return [*self._events.between(), *events] if ends else events

    # -- opening

    def _recover(self, folder: Folder, loaded: Loaded, told: Collection[str]) -> None:
        """Bring journal and git to where they would be had the last process not died.

        *told*: the segments' files that git has, as they are.
        """
        self._unreadable = folder.in_git.unreadable
        self._cut_torn(loaded.segments)
        lost = self._replay(loaded, told)
        if not self._unreadable:
            self._committer.submit(*lost)
            self._changed = self._journal.has_found(None)
        for path in walk_files(f"{self._path}/context/blobs"):
            if f"context/blobs/{path}" not in folder.in_git.blobs and not path.endswith(".tmp"):
                self._events.mention(path.rpartition("/")[2], None)
        for segment in loaded.segments:
            if segment.turn_id is not None and self._events.is_open(segment.turn_id):
                part = len(segment.sizes) - 1
                self._journal.adopt(segment.turn_id, segment.name, part, segment.sizes[part])
        repair = unfinished(self._dag)
        self._repaired += describe_repair(self._dag, repair)
        self._events.recovering = True
        self._repair(repair)
        self._events.recovering = False
        self._committer.submit(*self._stale())
        objects = self._repository.objects
        if objects.count_loose() > GC_OBJECTS or objects.count_packs() > GC_PACKS:
            with suppress(StoreError):  # without git it stays as it is, which is well enough
                self.pack()

    def _cut_torn(self, segments: Sequence[StoredSegment]) -> None:
        for segment in segments:
            if segment.torn:
                path = segment.name.path(len(segment.sizes) - 1)
                self._journal.cut(path, segment.sizes[-1])
                self._repaired.append(
                    f"{segment.torn} bytes of a record that was never finished were cut off {path}"
                )

    def _replay(self, loaded: Loaded, told: Collection[str]) -> list[Event]:
        """What the last process did not come to tell git."""
        turn_of: dict[str, str | None] = {}
        between: list[str] = []
        local: set[str] = set()
        for segment in loaded.segments:
            paths = [segment.name.path(part) for part in range(len(segment.sizes))]
            turn_of.update(dict.fromkeys(paths, segment.turn_id))
            if segment.is_local:
                local.update(paths)
                continue
            if segment.turn_id is not None and not segment.open:
                self._journal.found_finished(segment.turn_id, tuple(paths))
            elif segment.turn_id is None:
                between += [path for path in paths if path not in told]
        self._journal.found_finished(None, tuple(between))
        lost: list[Event] = []
        for _, path, _, record in loaded.records:
            if path in local:
                self._events.follow_silently(record)
                continue
            events = self._events.follow(record, turn_of[path], told=path in told)
            if path not in told:
                lost += self._with_between(events)
            elif turn_of[path] is None:
                self._events.forget_between()
        return [replace(e, recovered=True) if isinstance(e, TurnEnded) else e for e in lost]

    def _stale(self) -> list[Event]:
        """What refs, HEAD and ``meta.json`` say wrongly, apart from what was replayed."""
        refs, dag = self._repository.refs, self._dag
        events: list[Event] = [
            Pointed(branch, head, dag.active_branch)
            for branch, head in dag.branches.items()
            if head is not None and refs.read(f"refs/heads/{branch}") is None
        ]
        if refs.head() not in ("", f"ref: refs/heads/{dag.active_branch}"):
            events.append(Pointed(dag.active_branch, dag.head, dag.active_branch))
        meta = meta_json(dag)
        with suppress(OSError):
            if read_file(f"{self._path}/{META}") == meta:
                return events
        return [*events, Described(meta)]


def _leave(committer: Committer, journal: Journal, lock: WriterLock) -> None:
    """Let go of what a session had that nobody closed.

    It may be any thread, in the middle of anything, that comes by here: nothing is waited for.
    """
    if lock.lost_in_fork:
        return  # its threads are the parent's

    def let_go() -> None:
        journal.close()
        lock.release()

    committer.leave(let_go)


def writer_lock(path: str, session_id: str, outside: Outside) -> WriterLock:
    """The lock of the session in *path*."""
    return WriterLock(f"{path}/.git/session.lock", session_id, outside.files)


def acquire(lock: WriterLock, path: str, outside: Outside, timeout: float, *, force: bool) -> bool:
    """Take the lock, and remove what a dead holder left half written; whether there was one."""
    outside.files.make_folders(path, ".git")
    now = outside.clock()
    unclean = lock.acquire(
        this_process(outside.kernel, timestamp(now)), timeout=timeout, force=force
    )
    repository = Repository(path, outside.files, outside.clock)
    repository.refs.clear_leftovers()
    repository.objects.clear_leftovers(now)
    if unclean:
        for name in walk_files(path):
            if not name.startswith(".git/") and _TEMPORARY.fullmatch(name):
                remove(f"{path}/{name}")
    return unclean


def _keep_lost(path: str, outside: Outside) -> list[str]:
    """Name the commits that a person's git took out of reach; what was done, for people."""
    repository = Repository(path, outside.files, outside.clock)
    with suppress(GitRefused):  # it is told when it is read
        repository.check()
        return Tips(repository, outside.files).keep_lost()
    return []


def _committed(folder: Folder, *, unclean: bool) -> Collection[str]:
    """The segments' files that git has as they are.

    A person may have committed one by hand in the middle of its turn, and its process may have
    died before it told git of the rest.
    """
    found = folder.in_git.segments
    return {path for path in found if not (unclean and folder.is_ahead(path))}


def _restore(folder: Folder, files: FileSystem) -> list[str]:
    """Put back what git has and the folder lacks; what was done, for people."""
    found = folder.in_git
    missing = [p for p in found.segments if not os.path.lexists(f"{folder.path}/{p}")]
    missing += [p for p in found.blobs if not os.path.lexists(f"{folder.path}/{p}")]
    together: dict[str, bytes] = {}
    for path in missing:
        files.make_folders(folder.path, os.path.dirname(path))
        together[f"{folder.path}/{path}"] = folder.read(path)
        if len(together) == _TOGETHER or sum(map(len, together.values())) > SEGMENT_BYTES:
            files.replace_each(together)
            together = {}
    if together:
        files.replace_each(together)
    return [f"{len(missing)} files that were only in git were put back"] if missing else []
