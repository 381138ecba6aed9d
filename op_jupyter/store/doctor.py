"""The check-up of a session: journal, git and graph held against each other.

Looking changes nothing and takes no lock.  Mending takes the lock, keeps every file that it
replaces in ``context/damaged``, and leaves the rest to what opening mends anyway.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from op_jupyter.core.graph import unfinished
from op_jupyter.core.values import dataclass
from op_jupyter.errors import CorruptRecord, FormatTooNew, StoreError
from op_jupyter.store import codec
from op_jupyter.store.disk import DiskSession, Outside, translated
from op_jupyter.store.files import (
    DIR_MODE,
    is_folder,
    new_tag,
    read_file,
    walk_files,
)
from op_jupyter.store.git import Repository
from op_jupyter.store.history import History, blob_path
from op_jupyter.store.journal import MAX_FILE_BYTES, Damage
from op_jupyter.store.loading import Folder, Loaded, load
from op_jupyter.store.lock import Holder, is_alive, read_holder
from op_jupyter.store.packs import MAX_OBJECT_BYTES, name_of
from op_jupyter.store.summary import META, meta_json
from op_jupyter.store.trash import MAX_META_BYTES

DAMAGED: Final = "context/damaged"
"""Where a damaged file goes when a whole copy takes its place."""

_OTHERS: Final = 0o077
_LISTED: Final = 20
_TEMPORARY: Final = re.compile(r".*\.[0-9a-f]{8}\.tmp")
_GIT_LEFTOVER: Final = re.compile(r"swap_.*|.*\.lock|objects/pack/tmp_.*")

Kind: TypeAlias = Literal["damage", "missing", "behind", "refs", "leftover", "modes", "git", "held"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        kind: what it is about, for programs.
        what: one sentence for people.
        repair: what mending would do about it; "": it cannot be mended here.
        path: the file, relative to the session's folder, or "".
        offset: the byte in it, or None.
    """

    kind: Kind
    what: str
    repair: str = ""
    path: str = ""
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Examined:
    """A session, looked at.

    Attributes:
        format: the newest of its records; None: nothing could be read.
        older: records of older formats, which are brought up to date whenever they are read.
        holder: who has it open for writing now, or "".
    """

    session_id: str
    findings: tuple[Finding, ...]
    turns: int = 0
    nodes: int = 0
    format: int | None = None
    older: int = 0
    holder: str = ""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def repairable(self) -> bool:
        """Whether mending would do something."""
        return any(finding.repair for finding in self.findings)


def examined_text(examined: Examined, repaired: Sequence[Finding] = (), folder: str = "") -> str:
    """What there is to say about a session, for people."""
    lines = [f"session {examined.session_id}: {_size(examined)}"]
    if folder:
        lines.append(f"folder  {folder}")
    if examined.holder:
        lines.append(f"open for writing in {examined.holder}; its current turn is left out here")
    lines += [f"repaired: {finding.what}" for finding in repaired]
    for finding in examined.findings:
        lines += [f"{finding.kind}: {finding.what}", f"  {_remedy(finding)}"]
    if examined.healthy:
        lines.append("nothing is wrong")
    elif examined.repairable:
        lines.append(f"`op-jupyter doctor {examined.session_id} --repair` does what is said above")
    return "\n".join(lines)


def _size(examined: Examined) -> str:
    if examined.format is None:
        return "nothing could be read"
    size = f"{examined.turns} turns, {examined.nodes} nodes, format {examined.format}"
    if examined.older:
        size += (
            f"; {examined.older} records of an older format than {codec.FORMAT}, brought up to "
            "date when they are read and kept as they are"
        )
    return size


def _remedy(finding: Finding) -> str:
    return f"--repair {finding.repair}" if finding.repair else "cannot be repaired here"


class Doctor:
    """Looks at one session, and mends it."""

    def __init__(self, path: str, session_id: str, outside: Outside) -> None:
        self._path = path
        self._session_id = session_id
        self._outside = outside

    def examine(self, *, thorough: bool = True) -> Examined:
        """What is wrong.  *thorough*: read every large value and git object as well.

        Raises:
            StoreError: not even that can be found out.
        """
        with translated(self._path):
            is_folder(self._path)
            return self._examine(thorough)

    def mend(self, *, force: bool = False) -> Examined:
        """Mend what can be mended, and look again.

        *force*: also take over from a writer on another machine that never let go.

        Raises:
            SessionLocked: somebody has it open for writing; nothing was done.
            StoreError: something is in the way; what was mended by then stays.
        """
        with translated(self._path), suppress(CorruptRecord):  # what is left says where
            session = DiskSession.reopen(
                self._path,
                self._session_id,
                self._outside,
                force=force,
                first=self._mend_files,
            )
            try:
                session.straighten()
            finally:
                session.close()
        return self.examine()

    # -- looking

    def _examine(self, thorough: bool) -> Examined:
        holder = self._live_holder()
        repository = self._repository()
        folder = Folder(self._path, repository)
        findings = [*self._modes(), *([] if holder else self._leftovers())]
        if folder.in_git.unreadable:
            findings.append(Finding("git", folder.in_git.unreadable, path=".git"))
        try:
            loaded = load(self._session_id, folder)
        except FormatTooNew as exc:
            findings.append(Finding("damage", exc.message))
            return Examined(
                self._session_id, tuple(findings), format=exc.version, holder=str(holder or "")
            )
        findings += self._damages(loaded, folder)
        findings += self._missing(folder)
        findings += self._changed(folder, {damage.path for damage in loaded.damages})
        if thorough:
            findings += self._values(folder)
            findings += self._objects(repository)
        if not holder and not loaded.damages:
            findings += self._behind(loaded, folder, repository)
        versions = [record["v"] for _, _, _, record in loaded.records]
        return Examined(
            self._session_id,
            tuple(findings),
            turns=len(loaded.dag.turns),
            nodes=len(loaded.dag),
            format=max(versions, default=codec.FORMAT),
            older=sum(version < codec.FORMAT for version in versions),
            holder=str(holder or ""),
        )

    def _repository(self) -> Repository:
        return Repository(self._path, self._outside.files, self._outside.clock)

    def _live_holder(self) -> Holder | None:
        holder = read_holder(f"{self._path}/.git/session.lock")
        return holder if holder is not None and is_alive(holder) else None

    def _modes(self) -> Iterator[Finding]:
        loose = list(self._open_to_others())
        if loose:
            many = f"{len(loose)} files and folders" if len(loose) > 1 else loose[0] or "its folder"
            yield Finding(
                "modes",
                f"others may read {many}",
                "takes the rights of others away",
                path=loose[0],
            )

    def _open_to_others(self) -> Iterator[str]:
        """Paths that others than the owner may use; links are no files of ours.

        What the user's own git makes is as it made it, and out of reach in a closed folder.
        """
        closed = not os.lstat(self._path).st_mode & _OTHERS
        pending = [""]
        while pending:
            below = pending.pop()
            if os.lstat(f"{self._path}/{below}").st_mode & _OTHERS:
                yield below
            with os.scandir(f"{self._path}/{below}") as entries:
                for entry in entries:
                    path = f"{below}/{entry.name}" if below else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending += [] if closed and path == ".git" else [path]
                    elif _is_open(entry):
                        yield path

    def _leftovers(self) -> Iterator[Finding]:
        dead = read_holder(f"{self._path}/.git/session.lock")
        if dead is not None:
            yield Finding(
                "leftover",
                f"its last writer ended without closing it: {dead}",
                "closes it properly",
                path=".git/session.lock",
            )
        for path in walk_files(self._path):
            name = path.removeprefix(".git/")
            in_git = name != path
            if in_git and name != "session.lock" and _GIT_LEFTOVER.fullmatch(name):
                yield Finding(
                    "leftover",
                    f"{path} was left by a process that died, or another git is at work",
                    "removes it if its owner is dead",
                    path=path,
                )
            elif not in_git and _TEMPORARY.fullmatch(path):
                yield Finding("leftover", f"{path} was never finished", "removes it", path=path)

    def _damages(self, loaded: Loaded, folder: Folder) -> Iterator[Finding]:
        for damage in loaded.damages[:_LISTED]:
            yield self._damage(damage, folder)
        if (rest := len(loaded.damages) - _LISTED) > 0:
            yield Finding("damage", f"{rest} more records are damaged, or do not fit without them")
        for segment in loaded.segments:
            if segment.torn:
                path = segment.name.path(len(segment.sizes) - 1)
                yield Finding(
                    "leftover",
                    f"{path} ends in {segment.torn} bytes of a record that was never finished",
                    "cuts them off; nobody was told that they were stored",
                    path=path,
                    offset=segment.sizes[-1],
                )

    def _damage(self, damage: Damage, folder: Folder) -> Finding:
        place = f"{damage.path}, byte {damage.offset}: {damage.reason}"
        if self._whole_copy(damage.path, folder) is not None:
            repair = f"puts the copy that git has in its place, and keeps this one in {DAMAGED}/"
            return Finding("damage", place, repair, damage.path, damage.offset)
        where = "git has no copy of that file"
        if damage.path in folder.in_git.segments:
            where = "what git has of that file is the same, or damaged as well"
        told = f"{place}; {where}. `mode='read'` shows what can be read"
        return Finding("damage", told, "", damage.path, damage.offset)

    def _whole_copy(self, path: str, folder: Folder) -> bytes | None:
        """What git has of a segment's file, if that is another one, and good."""
        if path not in folder.in_git.segments:
            return None
        try:
            data = folder.read(path)
            with suppress(OSError):
                if read_file(f"{self._path}/{path}", MAX_FILE_BYTES) == data:
                    return None
        except StoreError:
            return None
        lines = data.split(b"\n")
        try:
            for line in lines[:-1]:
                codec.decode(line)
        except StoreError:
            return None
        return data if lines[-1] == b"" else None

    def _missing(self, folder: Folder) -> Iterator[Finding]:
        found = folder.in_git
        lost = [
            path
            for path in (*found.segments, *found.blobs)
            if not os.path.lexists(f"{self._path}/{path}")
        ]
        if lost:
            many = f"{len(lost)} files are" if len(lost) > 1 else f"{lost[0]} is"
            yield Finding("missing", f"{many} in git only", "puts them back", path=lost[0])

    def _changed(self, folder: Folder, damaged: set[str]) -> Iterator[Finding]:
        """Segments that are not what was committed, though their records are good."""
        for path, sha in folder.in_git.segments.items():
            if path in damaged:
                continue
            with suppress(OSError):
                data = read_file(f"{self._path}/{path}", MAX_FILE_BYTES)
                if name_of(b"blob", data) != sha:
                    told = f"{path} is not what was committed; `git show` has that"
                    yield Finding("damage", told, path=path)

    def _values(self, folder: Folder) -> Iterator[Finding]:
        for name in walk_files(f"{self._path}/context/blobs"):
            path, digest = f"context/blobs/{name}", name.rpartition("/")[2]
            if path != blob_path(digest) or _digest(f"{self._path}/{path}") == digest:
                continue
            what = f"{path} is damaged: it is not what its name says"
            repair = ""
            if self._whole_value(path, folder) is not None:
                repair = (
                    f"puts the copy that git has in its place, and keeps this one in {DAMAGED}/"
                )
            yield Finding("damage", what, repair, path, 0)

    def _whole_value(self, path: str, folder: Folder) -> bytes | None:
        if path in folder.in_git.blobs:
            with suppress(StoreError):
                data = folder.read(path)
                if hashlib.sha256(data).hexdigest() == path.rpartition("/")[2]:
                    return data
        return None

    def _objects(self, repository: Repository) -> Iterator[Finding]:
        if shutil.which("git") is None:
            return
        try:
            said = repository.check_objects() if is_folder(repository.git_dir) else ""
        except (StoreError, OSError):
            return  # said already, as what makes git unreadable
        if said:
            yield Finding(
                "git",
                f"git fsck: {said}. The journal does not need git: move .git away, and the next "
                "opening makes a new one from it",
                path=".git",
            )

    def _behind(self, loaded: Loaded, folder: Folder, repository: Repository) -> Iterator[Finding]:
        """What the last process did not come to do, which opening does."""
        if left := unfinished(loaded.dag):
            told = (
                f"{len(left.turns)} turns and {len(left.nodes)} nodes say that they run; none does"
            )
            yield Finding("behind", told, "marks them as interrupted")
        if folder.in_git.unreadable:
            return
        paths = [
            segment.name.path(part)
            for segment in loaded.segments
            for part in range(len(segment.sizes))
            if not segment.open and not segment.torn and not segment.is_local
        ]
        late = [path for path in paths if path not in folder.in_git.segments]
        if late:
            many = f"{len(late)} files" if len(late) > 1 else late[0]
            yield Finding("behind", f"{many} of the journal not committed", "commits", late[0])
        else:
            yield from self._refs(loaded, repository)
        # The number of an older format is no mistake: the next writer tells today's.
        if self._stated() not in [meta_json(loaded.dag, n + 1) for n in range(codec.FORMAT)]:
            told = f"{META} is not what the journal says"
            yield Finding("behind", told, "makes it again", path=META)

    def _refs(self, loaded: Loaded, repository: Repository) -> Iterator[Finding]:
        dag, files, clock = loaded.dag, self._outside.files, self._outside.clock
        history = History(self._path, dag, repository, files, clock)
        for pointed in history.astray():
            ref = f"refs/heads/{pointed.branch}"
            yield Finding(
                "refs",
                f"{ref} does not stand where the journal has branch {pointed.branch!r}",
                "moves it there; where it stands now gets a name under refs/kept",
                path=f".git/{ref}",
            )
        head = repository.refs.head()
        if head not in ("", f"ref: refs/heads/{dag.active_branch}"):
            yield Finding(
                "refs",
                f"HEAD is not the active branch {dag.active_branch!r} but {head!r:.80}",
                "lets HEAD name the active branch",
                path=".git/HEAD",
            )

    def _stated(self) -> bytes | None:
        with suppress(OSError):
            return read_file(f"{self._path}/{META}", MAX_META_BYTES)
        return None

    # -- mending

    def _mend_files(self) -> None:
        """Put right what opening would refuse; the lock is held."""
        self._take_rights_away()
        folder = Folder(self._path, self._repository())
        loaded = load(self._session_id, folder)
        for path in dict.fromkeys(damage.path for damage in loaded.damages):
            if (data := self._whole_copy(path, folder)) is not None:
                self._put_in_place(path, data)
        for finding in list(self._values(folder)):
            if (data := self._whole_value(finding.path, folder)) is not None:
                self._put_in_place(finding.path, data)

    def _take_rights_away(self) -> None:
        for path in list(self._open_to_others()):
            fd = self._outside.files.open(f"{self._path}/{path}", os.O_RDONLY | os.O_NONBLOCK)
            try:
                mode = os.fstat(fd).st_mode
                os.fchmod(fd, DIR_MODE if stat.S_ISDIR(mode) else stat.S_IMODE(mode) & ~_OTHERS)
            finally:
                self._outside.files.close(fd)

    def _put_in_place(self, path: str, data: bytes) -> None:
        """Let the file *path* hold *data*, and keep what it held."""
        files, whole = self._outside.files, f"{self._path}/{path}"
        files.make_folders(self._path, DAMAGED)
        files.make_folders(self._path, os.path.dirname(path))
        if os.path.lexists(whole):
            # A second name first: at no moment is the file without one.
            files.link(whole, f"{self._path}/{DAMAGED}/{os.path.basename(path)}.{new_tag()}")
        files.replace(whole, data)


def _is_open(entry: os.DirEntry[str]) -> bool:
    """Whether *entry* is a file that others may use."""
    mode = entry.stat(follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) and bool(mode & _OTHERS)


def _digest(path: str) -> str:
    with suppress(OSError):
        return hashlib.sha256(read_file(path, MAX_OBJECT_BYTES)).hexdigest()
    return ""
