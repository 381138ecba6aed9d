"""Other git repositories that sessions are pushed to and pulled from.

One on this disk is read and written in process, by its objects and refs alone: its
configuration may name programs, and its hooks are some, so nobody looks at them.  One behind
ssh is talked to by the git executable in a repository of ours; what runs there is its own
affair.  Everything else (http, helpers such as ``ext::``) is refused.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from op_jupyter.core.values import dataclass
from op_jupyter.core.visible import visible
from op_jupyter.errors import StoreError, UsageError
from op_jupyter.store.base import Clock
from op_jupyter.store.executable import Done, Git, borrowing, inside
from op_jupyter.store.files import FileSystem, is_folder, read_file
from op_jupyter.store.git import MAX_PACK_BYTES, Repository
from op_jupyter.store.objects import GitRefused, RefMoved, is_safe_ref

KINDS: Final = ("refs/heads/", "refs/kept/")
"""Where the refs are that are ours to push and pull."""

_HELPER: Final = re.compile(r"[A-Za-z0-9+.-]+::")
_SCP: Final = re.compile(r"(?:[\w.+-]+@)?[A-Za-z0-9_][\w.-]*:(?!//)[^\0]+", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z0-9_][\w.+-]*", re.ASCII)
_SSH: Final = (
    "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
)
_FROM_USER: Final = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK")
_CONFIG_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Move:
    """A ref that shall name *new* if it still names *old* (None: does not exist)."""

    ref: str
    old: bytes | None
    new: bytes


class Remote(Protocol):
    """Another repository.

    Attributes:
        is_far: what is here already should not be sent again.
    """

    is_far: bool

    def refs(self) -> dict[str, bytes]:
        """Its branches and kept tips, by full name; names that are not plain are left out."""

    def fetch(self, wanted: Mapping[str, str], into: Repository) -> None:
        """Bring refs, each under the new name that *wanted* has for it, with all they reach."""

    def push(self, source: Repository, moves: Sequence[Move]) -> None:
        """Move refs there, having sent what they reach.

        Raises:
            RefMoved: somebody else was faster with one of them; others may have moved.
        """


def open_remote(named: str, clock: Clock) -> Remote:
    """The repository that *named* is the path or the address of.

    Raises:
        UsageError: it is neither a path nor an ssh address.
        StoreError: there is no repository at that path.
    """
    if not named.strip() or named.startswith("-") or any(c < " " or c == "\x7f" for c in named):
        raise UsageError(f"{named!r:.80} is no git remote: use a path, or an address of ssh")
    if _HELPER.match(named):
        raise _unsupported(named)
    if "://" in named:
        return _by_scheme(named, clock)
    if _SCP.fullmatch(named) and not os.path.lexists(named):
        return SshRemote(named)
    try:
        path = Path(named).expanduser().absolute()
    except RuntimeError as exc:
        raise UsageError(f"{named!r:.80} is no path: {exc}") from None
    return DiskRemote(str(path), clock)


def _by_scheme(named: str, clock: Clock) -> Remote:
    try:
        parts = urlsplit(named)
        host, user, _ = parts.hostname or "", parts.username, parts.port
    except ValueError as exc:
        raise UsageError(f"{named!r:.80} is no address: {exc}") from None
    if parts.scheme == "file" and host in ("", "localhost"):
        return DiskRemote(unquote(parts.path), clock)
    if parts.scheme not in ("ssh", "git+ssh", "ssh+git"):
        raise _unsupported(named)
    if parts.password is not None:
        raise UsageError("an address must not hold a password, which others would see; use a key")
    if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*|[0-9A-Fa-f:]+", host, re.ASCII) or not (
        user is None or _PART.fullmatch(user)
    ):
        raise UsageError(f"{named!r:.80} names no host that ssh could mean")
    if len(parts.path) < 2 or parts.query or parts.fragment:
        raise UsageError(f"{named!r:.80} names no repository on its host")
    return SshRemote(named)


def _unsupported(named: str) -> UsageError:
    kind = re.split(r"://|::", named)[0]
    return UsageError(
        f"sessions are pushed and pulled over ssh, or to a folder of this disk, not by {kind!r:.40}"
    )


def _is_ours(ref: str) -> bool:
    return ref.startswith(KINDS) and is_safe_ref(ref)


# --- on this disk -----------------------------------------------------------------------


class DiskRemote:
    """A repository on this disk, bare or not."""

    is_far = False

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        git_dir = next((p for p in (f"{path}/.git", path) if os.path.isdir(f"{p}/objects")), None)
        if git_dir is None:
            raise StoreError(
                f"there is no git repository in {path}; `git init --bare {path}` makes one"
            )
        with suppress(OSError):
            if b"objectformat" in read_file(f"{git_dir}/config", _CONFIG_BYTES).lower():
                raise StoreError(f"{path} names objects in another way than sessions (sha256)")
        self._repository = Repository(path, _Alike(f"{git_dir}/objects"), clock, git_dir)

    def refs(self) -> dict[str, bytes]:
        """Its branches and kept tips."""
        self._repository.check()
        found = self._repository.refs.all()
        return {ref: sha for ref, sha in found.items() if _is_ours(ref)}

    def fetch(self, wanted: Mapping[str, str], into: Repository) -> None:
        """Copy refs and all they reach."""
        there = self.refs()
        tips = {new: there[ref] for ref, new in wanted.items() if ref in there}
        if not tips:
            return
        into.take_objects(self._repository, tips.values())
        for ref, tip in tips.items():
            into.refs.move(ref, None, tip)

    def push(self, source: Repository, moves: Sequence[Move]) -> None:
        """Copy what *moves* need, and move the refs one by one."""
        repository = self._repository
        repository.check()
        known = [tip for tip in set(self.refs().values()) if source.objects.has(tip)]
        repository.take_objects(source, [move.new for move in moves], known)
        for move in moves:
            repository.refs.move(move.ref, move.old, move.new)


class _Alike(FileSystem):
    """Makes files and folders that the same people may use as what is there already."""

    def __init__(self, folder: str) -> None:
        is_folder(folder)
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        self.dir_mode, self.file_mode = mode | 0o700, mode & 0o666 | 0o600

    def open(self, path: str, flags: int) -> int:
        """A descriptor of *path*."""
        fd = super().open(path, flags)
        if flags & os.O_EXCL:
            os.fchmod(fd, self.file_mode)  # whatever the umask is
        return fd

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        super().mkdir(path)
        os.chmod(path, self.dir_mode)


# --- over ssh ---------------------------------------------------------------------------


class SshRemote:
    """A repository that ssh leads to; nothing is ever asked, so a key has to be at hand."""

    is_far = True

    def __init__(self, address: str) -> None:
        self._address = address

    def refs(self) -> dict[str, bytes]:
        """Its branches and kept tips."""
        patterns = [f"{kind}*" for kind in KINDS]
        with borrowing(None, f"asking {self._address}") as git:
            said = self._run(git, "ls-remote", "--", self._address, *patterns)
        pairs = (line.split("\t", 1) for line in said.splitlines())
        named = {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
        return {
            ref: bytes.fromhex(sha)
            for ref, sha in named.items()
            if _is_ours(ref) and re.fullmatch("[0-9a-f]{40}", sha)
        }

    def fetch(self, wanted: Mapping[str, str], into: Repository) -> None:
        """Have git fetch refs and all they reach."""
        git = inside(into.git_dir, f"fetching from {self._address}")
        specs = [f"+{ref}:{new}" for ref, new in wanted.items()]
        if not specs:
            return  # git would fetch something else then
        flags = (
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--update-head-ok",  # nothing is checked out there
            "--quiet",
        )
        self._run(git, "fetch", *flags, "--", self._address, *specs)

    def push(self, source: Repository, moves: Sequence[Move]) -> None:
        """Have git push; it moves no ref that somebody else moved meanwhile."""
        specs = [f"{move.new.hex()}:{move.ref}" for move in moves]
        leases = [f"--force-with-lease={m.ref}:{m.old.hex() if m.old else ''}" for m in moves]
        with borrowing(source.objects.root, f"pushing to {self._address}") as git:
            done = self._call(
                git, "push", "--no-verify", "--quiet", *leases, "--", self._address, *specs
            )
        if done.code and "[rejected]" in done.err:
            raise RefMoved(f"{self._address}: somebody else pushed at the same time")
        if done.code:
            raise self._refused(done.err)

    def _run(self, git: Git, *arguments: str) -> str:
        done = self._call(git, *arguments)
        if done.code:
            raise self._refused(done.err)
        return done.out

    def _call(self, git: Git, *arguments: str) -> Done:
        from_user = {name: os.environ[name] for name in _FROM_USER if name in os.environ}
        ssh = {"GIT_SSH_COMMAND": _SSH, "GIT_SSH_VARIANT": "ssh", "GIT_ALLOW_PROTOCOL": "ssh"}
        return Git(git.executable, {**git.env, **from_user, **ssh}).run(
            *arguments, most_bytes=MAX_PACK_BYTES
        )

    def _refused(self, said: str) -> GitRefused:
        return GitRefused(f"{self._address}: {visible(' '.join(said.split()))}")
