"""Where we left the branches, so that what a person's git takes out of reach is found again.

    .git/op-jupyter-tips    a line for each branch: commit, ref

After `git reset --hard`, `git rebase` or `git branch -D` nothing may reach a commit of ours any
more, and its files may be gone from the work tree; a `git revert` takes them out of the tip.  Such
a commit gets a name before anything else is done, so its turns stay part of the session.  What git
was told to prune is gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from op_jupyter.store.files import FileSystem, read_file
from op_jupyter.store.git import Repository
from op_jupyter.store.objects import GitRefused, Refs, is_safe_ref

HEADS: Final = "refs/heads/"
KEPT: Final = "refs/kept/"
FILE: Final = "op-jupyter-tips"
_MAX_BYTES: Final = 16 * 1024 * 1024
_LINE: Final = re.compile("([0-9a-f]{40}) (refs/heads/.+)")


class Tips:
    """The tips of one repository, as we left them."""

    def __init__(self, repository: Repository, files: FileSystem) -> None:
        self._repository = repository
        self._files = files
        self._path = f"{repository.git_dir}/{FILE}"
        self._known: dict[str, bytes] | None = None
        self._mark: tuple[int, ...] = ()

    def note(self, ref: str, tip: bytes) -> None:
        """We have moved *ref* to *tip*."""
        self._read()[ref] = tip
        self._write()
        self._mark = self._changed()

    def look(self) -> list[str]:
        """`keep_lost`, if a ref may have moved since we looked or moved one ourselves."""
        mark = self._changed()
        if mark == self._mark:
            return []
        self._mark = mark
        return self.keep_lost()

    def keep_lost(self) -> list[str]:
        """Name what nothing reaches any more; what was done, for people.

        Raises:
            GitRefused: the repository cannot be read or written.
        """
        refs, known = self._repository.refs, self._read()
        now = refs.all()
        moved = {ref: tip for ref, tip in known.items() if now.get(ref) != tip}
        if not moved:
            return []
        reached = self._reached(now.values())
        said = []
        for ref, tip in moved.items():
            lost = tip not in reached or (ref in now and self._lacks(now[ref], tip))
            if lost and self._is_there(tip):
                name = keep(refs, ref.removeprefix(HEADS), tip) if ref in now else ref
                if ref not in now:
                    refs.move(ref, None, tip)
                said.append(f"what git took out of reach of {ref} has the name {name} now")
            known[ref] = now.get(ref, tip)
        self._write()
        return said

    def _changed(self) -> tuple[int, ...]:
        """When branches last were moved, made or packed, as far as that shows cheaply."""
        times = []
        for name in ("refs/heads", "packed-refs"):
            try:
                times.append(os.lstat(f"{self._repository.git_dir}/{name}").st_mtime_ns)
            except FileNotFoundError:
                times.append(0)
        return tuple(times)

    def _read(self) -> dict[str, bytes]:
        if self._known is None:
            self._known = {}
            with suppress(OSError, UnicodeDecodeError):
                lines = read_file(self._path, _MAX_BYTES).decode().splitlines()
                found = [match for line in lines if (match := _LINE.fullmatch(line))]
                self._known = {m[2]: bytes.fromhex(m[1]) for m in found if is_safe_ref(m[2])}
        return self._known

    def _write(self) -> None:
        text = "".join(f"{tip.hex()} {ref}\n" for ref, tip in sorted(self._read().items()))
        with suppress(OSError):  # the next one will do
            self._files.overwrite(self._path, text.encode())

    def _is_there(self, tip: bytes) -> bool:
        with suppress(GitRefused):
            self._repository.commit_object(tip)
            return True
        return False

    def _lacks(self, later: bytes, tip: bytes) -> bool:
        """Whether *later* has not all segments of *tip*, after a `git revert` for instance."""
        with suppress(GitRefused):
            return not self._segments(tip) <= self._segments(later)
        return False

    def _segments(self, commit: bytes) -> set[bytes]:
        repository = self._repository
        root = repository.tree(repository.commit_object(commit).tree)
        shards = repository.subtree(root, b"history")
        return {name for shard in shards for name in repository.subtree(shards, shard)}

    def _reached(self, tips: Iterable[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        pending = list(tips)
        while pending:
            sha = pending.pop()
            if sha not in found:
                found.add(sha)
                with suppress(GitRefused):  # a tag may name anything, a clone may be shallow
                    pending += self._repository.commit_object(sha).parents
        return found


def keep(refs: Refs, branch: str, tip: bytes) -> str:
    """Give a tip that its branch leaves a name, so that it stays within reach."""
    kept = {ref: sha for ref, sha in refs.all().items() if ref.startswith(KEPT)}
    for ref, sha in kept.items():
        if sha == tip:
            return ref
    number = 1
    while (ref := f"{KEPT}{branch}-{number}") in kept:
        number += 1
    refs.move(ref, None, tip)
    return ref
