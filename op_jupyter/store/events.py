"""What git has to be told, made out of records as they are stored or read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from op_jupyter.core.graph import MAIN, Dag
from op_jupyter.core.nodes import Turn
from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError
from op_jupyter.store.codec import Record
from op_jupyter.store.summary import meta_json

SHARED_CALLS: Final = 100


@dataclass(frozen=True, slots=True)
class Spent:
    """What the model calls of a turn took."""

    models: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is over and has to be committed.

    Attributes:
        files: its segment, relative to the session's folder.
        blobs: sha256 of the large values it mentions.
        meta: what ``meta.json`` says after it.
        recovered: its process died before it could commit it.
    """

    turn: Turn
    branch: str
    files: tuple[str, ...]
    blobs: frozenset[str]
    spent: Spent
    meta: bytes
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """Records between turns; they go with the next commit, at the latest that of closing."""

    files: tuple[str, ...]
    blobs: frozenset[str]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pointed:
    """A branch was made or moved to *node*; *active* is the active branch since."""

    branch: str
    node: str | None
    active: str


@dataclass(frozen=True, slots=True)
class Described:
    """``meta.json`` has to say something else."""

    meta: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing more will come."""

    branch: str
    meta: bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """Somebody asked for `gc`; *errors* gets what went wrong."""

    errors: list[StoreError]


Event: TypeAlias = TurnEnded | Between | Pointed | Described | Closed | Packed


def shared(queue: Sequence[Event]) -> tuple[Event, ...]:
    """The first events of *queue* that are dealt with as one: bare calls share a commit."""
    first = queue[0]
    count = 1
    while count < min(len(queue), SHARED_CALLS) and _may_share(first, queue[count]):
        count += 1
    return tuple(queue[i] for i in range(count))


def _may_share(first: Event, other: Event) -> bool:
    return (
        is_call(first)
        and is_call(other)
        and isinstance(first, TurnEnded)
        and isinstance(other, TurnEnded)
        and (first.branch, first.recovered) == (other.branch, other.recovered)
    )


def is_call(event: Event) -> bool:
    """Whether *event* is the end of a bare call, which may share a commit with others."""
    return isinstance(event, TurnEnded) and event.turn.kind == "call"


class EventMaker:
    """Follows records in their order, and says what git has to be told of them."""

    def __init__(self, dag: Dag, finish: Callable[[str | None], tuple[str, ...]]) -> None:
        """*finish* closes the segment of a turn (None: of what is between) for its files."""
        self._dag = dag
        self._finish = finish
        self._branches = {MAIN}
        self._active = MAIN
        self._branch_of: dict[str, str] = {}
        self._models: dict[str, list[str]] = {}
        self._blobs: dict[str | None, set[str]] = {}
        self._words: dict[str, None] = {}
        self.recovering = False

    def newest_turn(self) -> str | None:
        """The turn that began last of those that have not ended."""
        return next(reversed(self._branch_of), None)

    def is_open(self, turn_id: object) -> bool:
        """Whether a turn has begun and not ended."""
        return isinstance(turn_id, str) and turn_id in self._branch_of

    def mention(self, sha256: str, turn_id: str | None) -> None:
        """A large value that belongs to a turn, or to what is between."""
        self._blobs.setdefault(turn_id, set()).add(sha256)

    def follow(self, record: Record, turn_id: str | None, *, told: bool = False) -> list[Event]:
        """What *record*, which is in the segment of *turn_id* and in the graph, means for git.

        *told*: git has it, so nothing is made for it of turns that ended and of metadata.
        """
        if "blobs" in record:
            for blob in record["blobs"].values():
                self.mention(blob["hash"], turn_id)
        if turn_id is None:
            self._words[_words(record)] = None
        match record["kind"]:
            case "enter":
                if turn_id is not None and record["node"]["role"] == "llm":
                    self._models.setdefault(turn_id, []).append(record["node"]["id"])
            case "turn":
                return self._turn(record, told)
            case "head":
                return [self._point(record["branch"], record["node"], record["activate"])]
            case "meta" if not told:
                return [Described(meta_json(self._dag))]
        return []

    def follow_silently(self, record: Record) -> None:
        """Follow a *record* that git is never told of: where a branch is on this machine."""
        if record["kind"] == "head":
            self._point(record["branch"], record["node"], record["activate"])

    def between(self) -> list[Event]:
        """What was stored between turns since it was last asked."""
        files = self._finish(None)
        blobs, words = frozenset(self._blobs.get(None, ())), tuple(self._words)
        self.forget_between()
        return [Between(files, blobs, words)] if files or blobs else []

    def forget_between(self) -> None:
        """What was stored between turns so far is in git already."""
        self._words.clear()
        self._blobs.pop(None, None)

    def _turn(self, record: Record, told: bool) -> list[Event]:
        if record["op"] == "open":
            turn, branch = record["turn"], record["branch"]
            self._branch_of[turn["id"]] = branch
            forks = branch not in self._branches
            return [self._point(branch, turn.get("base"), activate=True)] if forks else []
        turn_id = record["id"]
        branch, files = self._branch_of.pop(turn_id), self._finish(turn_id)
        blobs, models = self._blobs.pop(turn_id, ()), self._models.pop(turn_id, ())
        if told:
            return []
        ended = TurnEnded(
            turn=self._dag.turns[turn_id],
            branch=branch,
            files=files,
            blobs=frozenset(blobs),
            spent=self._spent(models),
            meta=meta_json(self._dag),
            recovered=self.recovering,
        )
        return [ended]

    def _point(self, branch: str, node: str | None, activate: bool) -> Pointed:
        self._branches.add(branch)
        if activate:
            self._active = branch
        return Pointed(branch, node, self._active)

    def _spent(self, models: Sequence[str]) -> Spent:
        nodes = [self._dag.nodes[node_id] for node_id in models]
        tokens = [
            sum(n for node in nodes if isinstance(n := node.metadata.get(key), int))
            for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
        ]
        return Spent(tuple(dict.fromkeys(node.name for node in nodes)), *tokens)


def _words(record: Record) -> str:
    """What a record between turns says, for the subject of a commit."""
    match record["kind"]:
        case "meta":
            return "created" if record["seq"] == 1 else ", ".join(record["set"])
        case "head":
            return f"{record['branch']} at {record['node'] or 'the start'}"
        case "enter" | "update":
            return "nodes outside of turns"
        case kind:
            return str(kind)
