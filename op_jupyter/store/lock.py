"""One writer a session: an OS lock on a file that says who holds it.

The lock is ``flock``: the kernel frees it when its process dies, so it is never stale on
one machine.  What the file says is for people, and tells a clean end (empty) from another.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import weakref
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from op_jupyter.core.values import dataclass
from op_jupyter.errors import SessionLocked, StoreError
from op_jupyter.store.files import FileSystem, read_file

_POLL_SECONDS: Final = 0.02
_PUSH_IN: Final = 50
"""So many polls after which nobody waits for those in front: one may be stopped, or a fork."""
_MAX_BYTES: Final = 4096
_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a session open for writing.

    Attributes:
        boot: which start of the machine; a process of another one is dead.
        kernel: id of the Jupyter kernel, or "".
        since: UTC, ISO 8601.
    """

    pid: int
    host: str
    boot: str
    kernel: str
    since: str

    def __str__(self) -> str:
        who = "this process" if self.pid == os.getpid() else f"process {self.pid}"
        kernel = f", kernel {self.kernel}" if self.kernel else ""
        return f"{who} on {self.host}{kernel}, since {self.since}"


def this_process(kernel: str, since: str) -> Holder:
    """A `Holder` for the process that asks."""
    return Holder(os.getpid(), socket.gethostname(), _boot_id(), kernel, since)


def read_holder(path: str) -> Holder | None:
    """Who wrote the lock file *path* and did not empty it since; no lock is taken for that."""
    try:
        return _parse_holder(read_file(path, _MAX_BYTES))
    except OSError:
        return None


def is_alive(holder: Holder) -> bool:
    """Whether the process of *holder* may still run here; one of another machine is not known."""
    if holder.boot != _boot_id() or holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # another user's
    return True


class WriterLock:
    """The lock of one session, held from `acquire` to `release` or the death of the process."""

    def __init__(self, path: str, session_id: str, files: FileSystem) -> None:
        self._path = path
        self._session_id = session_id
        self._files = files
        self._fd = -1
        self.lost_in_fork = False

    def acquire(
        self, me: Holder, *, timeout: float = 0.0, force: bool = False, for_a_moment: bool = False
    ) -> bool:
        """Take the lock; whether the last holder ended without letting it go.

        *timeout*: seconds to wait for a live holder.  *force*: take over from a holder on
        another machine that never let go; a live one on this machine keeps the lock.
        *for_a_moment*: write nothing into the file, which a full disk would refuse; end with
        `drop`.

        Raises:
            SessionLocked: somebody else holds it (attribute ``holder``).
            StoreError: another program keeps the file from being ours alone.
        """
        fd = self._lock(timeout)
        try:
            last = _parse_holder(os.pread(fd, _MAX_BYTES, 0))
            if last is not None and _is_elsewhere(last, me) and not force:
                raise _abandoned(self._session_id, last)
            if not for_a_moment:
                self._files.truncate(fd, 0)
                os.lseek(fd, 0, os.SEEK_SET)
                self._files.write_all(fd, json.dumps(asdict(me)).encode())
                # Or a power cut forgets that this holder never let go.
                self._files.sync(fd)
        except BaseException:
            self._files.close(fd)
            raise
        self._fd = fd
        _held.add(self)
        return last is not None

    def _lock(self, timeout: float) -> int:
        """The file, locked; what is written into it appears under no other name."""
        for _ in range(_TRIES):
            fd = self._files.open(self._path, os.O_RDWR | os.O_CREAT)
            try:
                if not self._wait(fd, timeout):
                    raise locked(self._session_id, _parse_holder(os.pread(fd, _MAX_BYTES, 0)))
                info = os.fstat(fd)
                if info.st_nlink > 1:  # `cp -al` made it, or a stranger
                    self._files.replace(self._path, os.pread(fd, _MAX_BYTES, 0), durable=False)
                elif not _is_replaced(self._path, info):
                    return fd
            except BaseException:
                self._files.close(fd)
                raise
            self._files.close(fd)
        raise StoreError(
            f"{self._path} is replaced or linked to again and again by another program"
        )

    def _wait(self, fd: int, timeout: float) -> bool:
        """Lock *fd* within *timeout* seconds; whether that worked.

        Whoever waits stands in a queue, which is a lock of its own: a writer that lets go and
        comes back at once would be first every time otherwise.
        """
        if timeout <= 0:
            return _try_lock(fd)
        deadline, polls = time.monotonic() + timeout, 0
        queue = self._files.open(f"{self._path}.queue", os.O_RDWR | os.O_CREAT)
        try:
            first = False
            while True:
                polls += 1
                first = first or _try_lock(queue)
                if (first or polls % _PUSH_IN == 0) and _try_lock(fd):
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return _try_lock(fd)
                time.sleep(min(_POLL_SECONDS, left))
        finally:
            self._files.close(queue)

    def release(self) -> None:
        """Let go, and say so in the file.  Safe to call twice."""
        _held.discard(self)
        if self._fd >= 0:
            with suppress(OSError):  # a full disk: the next opener looks for leftovers, in vain
                self._files.truncate(self._fd, 0)
            self._files.close(self._fd)
            self._fd = -1

    def drop(self) -> None:
        """Let go without a word, as the death of the process does."""
        _held.discard(self)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _after_fork(self) -> None:
        # Closing frees nothing in the parent; keeping it open would outlive the parent's lock.
        self.drop()
        self.lost_in_fork = True


_UNKNOWN: Final = Holder(0, "?", "", "", "?")
_held: Final[weakref.WeakSet[WriterLock]] = weakref.WeakSet()


def _forget_all_after_fork() -> None:
    for lock in list(_held):
        lock._after_fork()


os.register_at_fork(after_in_child=_forget_all_after_fork)


def _is_replaced(path: str, info: os.stat_result) -> bool:
    """Whether another file than that of *info* is in *path* now."""
    with suppress(FileNotFoundError):
        return not os.path.samestat(os.lstat(path), info)
    return False


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _parse_holder(text: bytes) -> Holder | None:
    if not text.strip():
        return None
    try:
        said: dict[str, Any] = json.loads(text)
        return Holder(
            int(said["pid"]), *(str(said[k])[:200] for k in ("host", "boot", "kernel", "since"))
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return _UNKNOWN


def _is_elsewhere(last: Holder, me: Holder) -> bool:
    same_start = bool(me.boot) and last.boot == me.boot
    return not same_start and last.host not in (me.host, _UNKNOWN.host)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def locked(session_id: str, holder: Holder | None) -> SessionLocked:
    """The error for a session that is open elsewhere, with the three ways on."""
    return SessionLocked(
        f"session {session_id!r} is open for writing in {holder or _UNKNOWN}; wait for it "
        f"(timeout=SECONDS), open it read-only (mode='read'), or fork it into a new session "
        f"(`op-jupyter fork {session_id}`, or %agent resume {session_id} --fork)",
        holder=holder or _UNKNOWN,
    )


def _abandoned(session_id: str, holder: Holder) -> SessionLocked:
    return SessionLocked(
        f"session {session_id!r} was not closed by {holder}; when that process is surely gone, "
        "take over with force=True, else open it read-only (mode='read') or fork it into a "
        f"new session (`op-jupyter fork {session_id}`, or %agent resume {session_id} --fork)",
        holder=holder,
    )
