"""Work trees of the user's own git repository, in which a turn can work without touching it.

They lie beside the repository, in ``REPOSITORY.worktrees/NAME``, each on a branch
``openprogram/NAME``.  Everything is done by the git executable.  It sees no ``GIT_*`` variable
and no configuration but the repository's own, and runs no hook.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from op_jupyter.core.values import dataclass
from op_jupyter.errors import SessionStateError, UsageError

BRANCHES: Final = "openprogram/"
DIFF_CHARS: Final = 20_000
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,62}")
_SETTINGS: Final = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Worktree:
    """One work tree of ours; *branch* is empty when its HEAD names none."""

    name: str
    path: Path
    branch: str
    head: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a work tree that the repository does not have.

    Attributes:
        worktree: which, with the commit that it is at.
        target: the branch of the repository that it would be merged into; "": HEAD names none.
        target_head: the commit that the repository is at.
        changed: files with changes that were not committed, new ones among them.
        ignored: what git ignores; a merge does not bring it.
        commits: how many commits the target does not have.
        loose: how many commits no branch or tag holds.
        diff: from where the two parted to the files as they are, as far as there is room.
    """

    worktree: Worktree
    target: str
    target_head: str
    changed: tuple[str, ...]
    ignored: tuple[str, ...]
    commits: int
    loose: int
    diff: str


class Repository:
    """The user's repository that a folder is in.

    Raises:
        UsageError: there is no git executable, or the folder is in no repository.
    """

    def __init__(self, folder: Path) -> None:
        self._git = _executable()
        self._folder = folder
        try:
            self.top = Path(self._ask(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
        except UsageError as error:
            raise UsageError(
                f"{folder} is in no git repository with files ({error.message}); a worktree "
                "needs one: `git init` makes it, and a first commit"
            ) from error
        first = self._listed()[0]["worktree"]
        self.base = Path(f"{first}.worktrees")

    # -- which there are

    def worktrees(self) -> list[Worktree]:
        """Those of ours, by name."""
        found = []
        for entry in self._listed():
            path = Path(entry["worktree"])
            if path.parent == self.base:
                branch = entry.get("branch", "").removeprefix("refs/heads/")
                found.append(Worktree(path.name, path, branch, entry.get("HEAD", "")))
        return sorted(found, key=lambda each: each.name)

    def get(self, name: str) -> Worktree:
        """The one of that name.

        Raises:
            UsageError: there is none, or its folder is gone.
        """
        there = self.worktrees()
        found = next((each for each in there if each.name == name), None)
        if found is None:
            names = ", ".join(each.name for each in there) or "none yet"
            raise UsageError(f"there is no worktree {name!r}; the worktrees are: {names}")
        if not found.path.is_dir():
            raise UsageError(
                f"the folder of worktree {name!r} is gone: {found.path}; `git worktree prune` "
                f"makes git forget it, and its commits stay on branch {found.branch or '(none)'}"
            )
        return found

    def ensure(self, name: str = "") -> Worktree:
        """The worktree *name*, made from the repository's HEAD unless it is there.

        Without a name it is a new one, ``agent-1`` and so on.

        Raises:
            UsageError: it cannot be made.
        """
        there = {each.name for each in self.worktrees()}
        if name in there:
            return self.get(name)
        path = self.place(name or self._free_name(there))
        name = path.name
        if not self._tip("HEAD"):
            raise UsageError(f"{self.top} has no commit yet; a worktree starts from one: commit")
        branch = BRANCHES + name
        if self._tip(f"refs/heads/{branch}"):
            raise UsageError(
                f"there is a branch {branch} from an earlier worktree; choose another name, or "
                f"delete the branch (`git branch -D {branch}`)"
            )
        if os.path.lexists(path):
            raise UsageError(f"{path} is there already and no worktree; choose another name")
        self._ask(self.top, "worktree", "add", "-q", "-b", branch, str(path), "HEAD")
        return self.get(name)

    def place(self, name: str) -> Path:
        """Where the worktree *name* is, or would be.

        Raises:
            UsageError: that is no name for one.
        """
        if not _NAME.fullmatch(name) or name.endswith((".", ".lock")):
            raise UsageError(
                f"{name!r:.80} is no name for a worktree: use up to 63 letters, digits, and - _ ."
            )
        return self.base / name

    def _free_name(self, there: set[str]) -> str:
        number = 1
        while (
            (name := f"agent-{number}") in there
            or self._tip(f"refs/heads/{BRANCHES}{name}")
            or os.path.lexists(self.base / name)
        ):
            number += 1
        return name

    def workspace(self, worktree: Worktree) -> Path:
        """The folder in *worktree* that stands for the one this was made for."""
        real = Path(os.path.realpath(self._folder))
        inside = worktree.path / real.relative_to(os.path.realpath(self.top))
        return inside if inside.is_dir() else worktree.path

    # -- what is in one

    def contents(self, name: str) -> Contents:
        """What is in the worktree *name* and not in the repository.

        Raises:
            UsageError: there is no such worktree.
        """
        worktree = self.get(name)
        head = self._tip("HEAD")
        changed, ignored = self._status(worktree.path)
        loose = [worktree.head, "--not", "--branches", "--tags", "--remotes"]
        ours = self._run(worktree.path, "merge-base", head, worktree.head).stdout.strip()
        diff = self._ask(worktree.path, "diff", "--no-ext-diff", "--no-textconv", ours or head)
        return Contents(
            worktree,
            self._run(self.top, "symbolic-ref", "-q", "--short", "HEAD").stdout.strip(),
            head,
            changed,
            ignored,
            self._count(worktree.head, "--not", head),
            self._count(*loose),
            diff if len(diff) <= DIFF_CHARS else f"{diff[:DIFF_CHARS]}\n… too long to be shown\n",
        )

    def _status(self, path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        said = self._ask(
            path, "status", "--porcelain", "-z", "--no-renames", "-uall", "--ignored=matching"
        )
        entries = [entry for entry in said.split("\0") if entry]
        changed = tuple(entry[3:] for entry in entries if not entry.startswith("!!"))
        return changed, tuple(entry[3:] for entry in entries if entry.startswith("!!"))

    # -- the two ends of one

    def merge(self, seen: Contents) -> str:
        """Commit what is not committed in the worktree, merge it, take the worktree away.

        Returns what was done, for a person.

        Raises:
            UsageError: it cannot be merged; nothing was changed.
            SessionStateError: there are conflicts, or something changed since *seen*; the
                repository stays as it was, and the worktree keeps everything.
        """
        name, path = seen.worktree.name, seen.worktree.path
        self.check_mergeable(seen)
        self._check_same(seen)
        if seen.changed:
            self._ask(path, "add", "-A")
            message = f"Work of the agent in worktree {name}"
            self._ask(path, "commit", "-q", "--no-verify", "-m", message)
        tip = self.get(name).head
        self._check_conflicts(seen, tip)
        message = f"Merge worktree {name} of the agent"
        done = self._run(self.top, "merge", "-q", "--no-ff", "--no-verify", "-m", message, tip)
        if done.returncode:
            raise SessionStateError(
                f"git did not merge worktree {name!r}: {_reason(done)}. Its work is committed "
                f"in {path}; put what git names right and merge again"
            )
        merged = f"Merged worktree {name} into {seen.target} ({self._tip('HEAD')[:12]})."
        if seen.ignored:
            return (
                f"{merged} {path} stays, because git ignores {_some(seen.ignored)} there; "
                f"`%agent worktree drop {name}` takes it away."
            )
        try:
            return f"{merged} {self._remove(seen.worktree, force=False)}"
        except UsageError as error:  # it is merged all the same
            return f"{merged} The worktree stays: {error.message}"

    def check_mergeable(self, seen: Contents) -> None:
        """Refuse a merge that cannot be.

        Raises:
            UsageError: it cannot be.
        """
        if not seen.target:
            raise UsageError(f"HEAD of {self.top} names no branch; check one out to merge into")
        if not seen.commits and not seen.changed:
            raise UsageError(
                f"worktree {seen.worktree.name!r} has nothing to merge; "
                f"`%agent worktree drop {seen.worktree.name}` takes it away"
            )
        if inner := [file for file in seen.changed if file.endswith("/")]:
            raise UsageError(
                f"{_some(inner)} is a git repository of its own, which a merge would not bring; "
                f"move it out of {seen.worktree.path}"
            )
        if self._ask(seen.worktree.path, "ls-files", "-u"):
            raise UsageError(f"there are unsolved conflicts in {seen.worktree.path}; solve them")

    def drop(self, seen: Contents) -> str:
        """Take the worktree away, with all that *seen* says; returns what was done.

        Its branch goes with it only when the repository has its commits.

        Raises:
            SessionStateError: something changed since *seen*; nothing was touched.
        """
        self._check_same(seen)
        lost = bool(seen.changed or seen.ignored)
        return self._remove(seen.worktree, force=lost)

    def _remove(self, worktree: Worktree, *, force: bool) -> str:
        forced = ("--force",) if force else ()
        self._ask(self.top, "worktree", "remove", *forced, str(worktree.path))
        if self.base.is_dir() and not os.listdir(self.base):
            self.base.rmdir()
        gone = f"{worktree.path} is gone."
        branch = worktree.branch
        if not branch.startswith(BRANCHES):
            return gone
        if self._run(self.top, "merge-base", "--is-ancestor", branch, "HEAD").returncode:
            return f"{gone} Its commits stay on branch {branch} (`git branch -D {branch}`)."
        self._ask(self.top, "branch", "-q", "-D", branch)
        return gone

    def _check_same(self, seen: Contents) -> None:
        if self.contents(seen.worktree.name) != seen:
            raise SessionStateError(
                f"worktree {seen.worktree.name!r} or the repository changed meanwhile; nothing "
                "was done. Look again, and repeat the command"
            )

    def _check_conflicts(self, seen: Contents, tip: str) -> None:
        """Try the merge without touching any file."""
        name, path = seen.worktree.name, seen.worktree.path
        tried = self._run(
            self.top, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z",
            seen.target_head, tip,
        )  # fmt: skip
        if tried.returncode == 0:
            return
        kept = f"Nothing was changed in {self.top}; the work is committed in {path}"
        if tried.returncode == 1:
            files = [file for file in tried.stdout.split("\0")[1:] if file]
            raise SessionStateError(
                f"worktree {name!r} conflicts with {seen.target} in {_some(files)}. {kept}. "
                f"Run `git merge {seen.target}` there, solve the conflicts, commit, and merge "
                "the worktree again"
            )
        raise SessionStateError(
            f"git could not try the merge, which needs git 2.38 or newer ({_reason(tried)}). "
            f"{kept}; `git merge {seen.worktree.branch or tip}` merges it by hand"
        )

    # -- git

    def _tip(self, ref: str) -> str:
        """The commit that *ref* names; "": there is none."""
        return self._run(
            self.top, "rev-parse", "--verify", "-q", "--end-of-options", f"{ref}^{{commit}}"
        ).stdout.strip()

    def _count(self, *revisions: str) -> int:
        return int(self._ask(self.top, "rev-list", "--count", *revisions))

    def _listed(self) -> list[dict[str, str]]:
        said = self._ask(self._folder, "worktree", "list", "--porcelain", "-z")
        entries = [entry for entry in said.split("\0\0") if entry.strip("\0")]
        pairs = ([line.partition(" ") for line in entry.split("\0")] for entry in entries)
        return [{key: value for key, _, value in each if key} for each in pairs]

    def _ask(self, folder: Path, *words: str) -> str:
        done = self._run(folder, *words)
        if done.returncode:
            raise UsageError(f"git {words[0]}: {_reason(done)}")
        return done.stdout

    def _run(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        settings = [part for each in _SETTINGS for part in ("-c", each)]
        return subprocess.run(
            [self._git, *settings, "-C", str(folder), *words],
            env=_tame(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )


def losses(seen: Contents) -> tuple[str, ...]:
    """What taking the worktree away would lose, one phrase each."""
    lost = []
    if seen.changed:
        lost.append(f"uncommitted changes in {_some(seen.changed)}")
    if seen.ignored:
        lost.append(f"what git ignores: {_some(seen.ignored)}")
    if seen.loose:
        lost.append(f"commits that no branch holds: {seen.loose}")
    return tuple(lost)


def _some(files: Sequence[str]) -> str:
    more = len(files) - _SHOWN
    return ", ".join(files[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    said = done.stderr.strip() or done.stdout.strip()
    return " ".join(said.split())[-500:] or f"it ended with {done.returncode}"


def _executable() -> str:
    found = shutil.which("git")
    if found is None:
        raise UsageError("there is no git executable, which worktrees need; install git")
    return found


def _tame() -> dict[str, str]:
    """An environment in which git knows nothing of its user, and commits in our name."""
    who = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", "op-jupyter"), ("EMAIL", "op-jupyter@localhost"))
    }
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        **who,
    }
