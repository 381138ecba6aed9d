"""Pushing a session to another git repository, and fetching what is there.

    refs/heads/<session id>/<branch>     there; refs/heads/<branch> here
    refs/kept/<session id>/<branch>-<n>  there; refs/kept/<branch>-<n> here

so that one repository takes any number of sessions.  Nothing is ever merged or overwritten:
where both sides went on, the other side's line becomes a branch of its own, there when pushing,
here when pulling (`store.pulling`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from op_jupyter.core.nodes import check_session_id
from op_jupyter.core.values import dataclass
from op_jupyter.errors import InvalidSessionId, StoreError, UsageError
from op_jupyter.store.disk import Outside
from op_jupyter.store.files import DIR_MODE, new_tag
from op_jupyter.store.git import Repository
from op_jupyter.store.history import turn_ids
from op_jupyter.store.loading import Folder, load
from op_jupyter.store.objects import GitRefused, RefMoved, is_safe_ref
from op_jupyter.store.remotes import Move, Remote
from op_jupyter.store.tips import HEADS, KEPT

INCOMING: Final = ".incoming"
"""Folder under the root where what is pulled stays until it is complete."""

_HAVE: Final = "refs/have/"
_PLAIN: Final = 2  # slashes in a ref that belongs to no session by its name
_TRIES: Final = 5
_DAY: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Synced:
    """What pushing or pulling a session did.

    Attributes:
        changes: one sentence each; none: both sides had the same already.
        notes: what else a person should know.
    """

    session_id: str
    changes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def synced_text(synced: Synced) -> str:
    """What happened, for people."""
    done = "; ".join(synced.changes) or "both sides have the same"
    return "\n".join([f"{synced.session_id}: {done}", *(f"note: {note}" for note in synced.notes)])


class Commits:
    """The commits of a repository, read once each."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._found: dict[bytes, tuple[tuple[bytes, ...], tuple[str, ...]]] = {}

    def below(self, tips: Iterable[bytes]) -> set[bytes]:
        """*tips* and all that they follow, as far as it is here."""
        found: set[bytes] = set()
        pending = list(tips)
        while pending:
            sha = pending.pop()
            if sha not in found and (commit := self._read(sha)) is not None:
                found.add(sha)
                pending += commit[0]
        return found

    def turns(self, tip: bytes) -> Iterator[str]:
        """The turns of a line, from its tip back."""
        current: bytes | None = tip
        while current is not None and (commit := self._read(current)) is not None:
            yield from reversed(commit[1])
            current = commit[0][0] if commit[0] else None

    def _read(self, sha: bytes) -> tuple[tuple[bytes, ...], tuple[str, ...]] | None:
        if sha not in self._found:
            try:
                commit = self._repository.commit_object(sha)
            except GitRefused:
                return None
            self._found[sha] = commit.parents, tuple(turn_ids(commit))
        return self._found[sha]


# --- pushing ----------------------------------------------------------------------------


def push(
    session_id: str, repository: Repository, remote: Remote, incoming: Callable[[], Incoming]
) -> tuple[str, ...]:
    """Let *remote* have every commit of a session; what was done.

    Raises:
        StoreError: it cannot be reached, or refuses.
    """
    check_ref_part(session_id)
    for _ in range(_TRIES):
        moves, said = _plan_push(session_id, repository, remote, incoming)
        if not moves:
            return ()
        try:
            remote.push(repository, moves)
        except RefMoved:
            continue
        return said
    raise RefMoved("the remote keeps changing; try again later")


def check_ref_part(session_id: str) -> None:
    """Make sure that *session_id* can be part of a ref.

    Raises:
        UsageError: git knows no such name.
    """
    if not is_safe_ref(f"{HEADS}{session_id}/main"):
        raise UsageError(f"git can name no branch after session id {session_id!r}")


def _plan_push(
    session_id: str, repository: Repository, remote: Remote, incoming: Callable[[], Incoming]
) -> tuple[list[Move], tuple[str, ...]]:
    there = of_session(remote.refs(), session_id)
    ours, commits = repository.refs.all(), Commits(repository)
    held = commits.below(there.values())
    if any(not repository.objects.has(tip) for tip in there.values()):
        with incoming() as arrived:
            arrived.fetch(remote, session_id, repository)
            held |= Commits(arrived.repository).below(there.values())
    moves, said = [], []
    for ref, tip in sorted(ours.items()):
        if not ref.startswith((HEADS, KEPT)) or not is_safe_ref(ref) or tip in held:
            continue
        line = commits.below([tip])
        name, old = next(
            (name, there.get(name))
            for name in numbered(ref)
            if name not in there or there[name] in line
        )
        moves.append(Move(_there(name, session_id), old, tip))
        there[name] = tip
        held |= line
        what = "begun" if old is None else "moved forward"
        diverged = f", since {short(ref)} went on there as well" if name != ref else ""
        said.append(f"{short(name)} {what} there{diverged}")
    return moves, tuple(said)


def of_session(refs: Mapping[str, bytes], session_id: str) -> dict[str, bytes]:
    """The refs of a session in a remote, by the names that they have here."""
    found = {}
    for ref, sha in refs.items():
        for kind in (HEADS, KEPT):
            if ref.startswith(f"{kind}{session_id}/"):
                found[kind + ref.removeprefix(f"{kind}{session_id}/")] = sha
    return found


def has_all(repository: Repository, refs: Mapping[str, bytes]) -> bool:
    """Whether branches and kept tips of *repository* reach all that *refs* name."""
    ours = {sha for ref, sha in repository.refs.all().items() if ref.startswith((HEADS, KEPT))}
    theirs = set(refs.values())
    return theirs <= ours or theirs <= Commits(repository).below(ours)


def _there(ref: str, session_id: str) -> str:
    kind = KEPT if ref.startswith(KEPT) else HEADS
    return f"{kind}{session_id}/{ref.removeprefix(kind)}"


def numbered(ref: str) -> Iterator[str]:
    """*ref*, and what it is called where that name is taken."""
    yield ref
    number = 1
    while True:
        number += 1
        yield f"{ref}-{number}"


def short(ref: str) -> str:
    return ref.removeprefix(HEADS).removeprefix("refs/")


# --- what comes in ----------------------------------------------------------------------


class Incoming:
    """A folder for what is fetched, outside of every session; gone when it is left."""

    def __init__(self, root: str, outside: Outside) -> None:
        self._root = root
        self._outside = outside
        self.path = f"{root}/{INCOMING}/{new_tag()}"
        self.repository = Repository(self.path, outside.files, outside.clock)

    def __enter__(self) -> Incoming:
        clear_incoming(self._root)
        try:
            os.makedirs(self._root, DIR_MODE, exist_ok=True)
            self._outside.files.make_folders(
                self._root, f"{INCOMING}/{os.path.basename(self.path)}/.git"
            )
            self.repository.ensure("main")
        except (OSError, StoreError):
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def fetch(self, remote: Remote, session_id: str | None, here: Repository | None = None) -> None:
        """Fetch the refs of a session; None: those of a remote that is one session's alone.

        *here*: where most of it may be already.
        """
        refs = remote.refs()
        if session_id is None:
            wanted = {ref: ref for ref in refs if ref.count("/") == _PLAIN}
        else:
            wanted = {_there(ref, session_id): ref for ref in of_session(refs, session_id)}
        if here is None or not remote.is_far:
            remote.fetch(wanted, self.repository)
            return
        self._take_what_is_there(here)
        remote.fetch(wanted, self.repository)
        self.repository.refs.repack({}, drop=_HAVE)

    def _take_what_is_there(self, here: Repository) -> None:
        """Name what *here* has, so that only the rest has to be sent."""
        with suppress(StoreError, OSError):  # it may be damaged; then all of it is sent
            refs = here.refs.all()
            tips = {sha for ref, sha in refs.items() if ref.startswith((HEADS, KEPT))}
            if tips:
                self.repository.take_objects(here, tips)
                named = {f"{_HAVE}{number}": tip for number, tip in enumerate(sorted(tips))}
                self.repository.refs.repack(named)


def clear_incoming(root: str, older_than: float = _DAY) -> None:
    """Remove what pulls that were killed have left, once it is so many seconds old."""
    with suppress(FileNotFoundError), os.scandir(f"{root}/{INCOMING}") as entries:
        for entry in entries:
            info = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) and time.time() - info.st_mtime >= older_than:
                shutil.rmtree(entry.path, ignore_errors=True)


def sessions_in(remote: Remote) -> list[str]:
    """The ids of the sessions that were pushed to *remote*."""
    found = set()
    for ref in remote.refs():
        session_id, slash, _ = ref.removeprefix(HEADS).partition("/")
        if ref.startswith(HEADS) and slash:
            with suppress(InvalidSessionId):
                found.add(check_session_id(session_id))
    return sorted(found)


def read_id(arrived: Incoming) -> str | None:
    """The id that a fetched session itself says it has; None: it is no session."""
    said = load("arrived", Folder(arrived.path, arrived.repository)).dag.meta.get("id")
    return check_session_id(said) if isinstance(said, str) else None
