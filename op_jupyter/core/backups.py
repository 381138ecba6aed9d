"""What files were before and after a tool call, and what putting them back means.

Nothing here touches the disk.  Each call that may change files keeps, with its node, the state
before it and after it of every path that it touched.  Undoing several calls restores, for each
path, the state before the first of them; that is only safe while the path still is what the
last of them left, and nobody else changed it in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from op_jupyter.core.values import dataclass

StateKind: TypeAlias = Literal["absent", "file", "link", "folder", "other"]
_KINDS: Final = frozenset(get_args(StateKind))


@dataclass(frozen=True, slots=True)
class FileState:
    """What stands at a path; links are not followed.

    Attributes:
        mode: permission bits of a file or folder.
        sha256: of a file's content; empty when it was too large to be looked at.
        size: of a file, in bytes.
        target: of a link.
        blob: the stored value that holds the content, from byte *offset* on; empty: it is not
            kept, and *why* says why.
    """

    kind: StateKind
    mode: int = 0
    sha256: str = ""
    size: int = 0
    target: str = ""
    blob: str = ""
    offset: int = 0
    why: str = ""

    def is_same(self, other: FileState) -> bool:
        """Whether *other* is the same content, mode and existence."""
        if "other" in (self.kind, other.kind) or (self.kind == "file" and not self.sha256):
            return False
        mine = (self.kind, self.mode, self.sha256, self.size, self.target)
        return mine == (other.kind, other.mode, other.sha256, other.size, other.target)

    def holds(self, other: FileState) -> bool:
        """Whether it is a file of the content of *other*."""
        mine = (self.kind, self.sha256, self.size)
        return bool(self.sha256) and mine == (other.kind, other.sha256, other.size)

    @property
    def can_be_restored(self) -> bool:
        """Whether everything is known that it takes to make it again."""
        return bool(self.blob) if self.kind == "file" else self.kind != "other"

    def to_json(self) -> dict[str, Any]:
        """As it is kept; what is empty is left out."""
        members = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in members.items() if value}


ABSENT: Final = FileState("absent")


def state_from_json(data: Mapping[str, Any]) -> FileState:
    """Inverse of `FileState.to_json`.

    Raises:
        ValueError: it is none; a session may come from a stranger.
    """
    try:
        state = FileState(**data)
    except TypeError as error:
        raise ValueError(f"{data!r:.80} is not the state of a file") from error
    numbers = (state.mode, state.size, state.offset)
    texts = (state.sha256, state.target, state.blob, state.why)
    if (
        state.kind not in _KINDS
        or not all(type(n) is int and n >= 0 for n in numbers)
        or not all(isinstance(text, str) for text in texts)
        or state.mode > 0o7777
    ):
        raise ValueError(f"{data!r:.80} is not the state of a file")
    return state


@dataclass(frozen=True, slots=True)
class Step:
    """What one call did to one path; *after* is None when the process ended in its midst."""

    path: str
    before: FileState
    after: FileState | None


@dataclass(frozen=True, slots=True)
class Restore:
    """What undoing wants of one path.

    Attributes:
        target: what it should become.
        expected: what the last call left there; None: nobody knows.
        disturbed: somebody else changed it between the calls.
    """

    path: str
    target: FileState
    expected: FileState | None
    disturbed: bool = False

    def conflict(self, now: FileState) -> str:
        """Why the path must not be restored while it is *now*; or nothing."""
        if now.is_same(self.target):
            return ""
        if self.expected is None:
            return "the process ended while it was being changed, so nobody knows who changed it"
        if not now.is_same(self.expected):
            return "it was changed in another way since"
        return "it was changed in another way in between" if self.disturbed else ""


def restores(steps: Iterable[Step]) -> tuple[Restore, ...]:
    """What undoing *steps*, which are in the order in which they happened, wants of each path."""
    found: dict[str, Restore] = {}
    for step in steps:
        earlier = found.get(step.path)
        if earlier is None:
            found[step.path] = Restore(step.path, step.before, step.after)
            continue
        broken = earlier.expected is None or not earlier.expected.is_same(step.before)
        found[step.path] = Restore(
            step.path, earlier.target, step.after, earlier.disturbed or broken
        )
    return tuple(found.values())


def steps_to_json(steps: Sequence[Step]) -> list[list[Any]]:
    """*steps* as they are kept with a node."""
    return [
        [step.path, step.before.to_json(), None if step.after is None else step.after.to_json()]
        for step in steps
    ]


def steps_from_json(data: Any) -> tuple[Step, ...]:
    """Inverse of `steps_to_json`.

    Raises:
        ValueError: it is no such list.
    """
    try:
        return tuple(
            Step(
                _absolute(path),
                state_from_json(before),
                None if after is None else state_from_json(after),
            )
            for path, before, after in data
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{data!r:.80} is not what calls did to files") from error


def _absolute(path: Any) -> str:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise ValueError(f"{path!r:.80} is not an absolute path")
    if ".." in path.split("/"):
        raise ValueError(f"{path!r:.80} is not an absolute path")
    return path
