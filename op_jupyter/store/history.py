"""The commit graph, which is the conversation graph: a turn's parent is the turn it follows.

A branch of the session is a ref; a turn is committed on top of its branch, whatever the
user committed there meanwhile.  A branch that moves off its line leaves the old tip a name
under ``refs/kept``, so nothing is ever out of reach.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeAlias

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Turn
from op_jupyter.errors import StoreError
from op_jupyter.store.base import Clock
from op_jupyter.store.events import (
    Between,
    Closed,
    Described,
    Event,
    Packed,
    Pointed,
    Spent,
    TurnEnded,
)
from op_jupyter.store.files import FileSystem, read_file
from op_jupyter.store.git import Repository
from op_jupyter.store.index import build_index
from op_jupyter.store.journal import MAX_FILE_BYTES
from op_jupyter.store.objects import (
    FILE,
    TREE,
    CommitObject,
    Entries,
    GitRefused,
    RefMoved,
)
from op_jupyter.store.packs import MAX_OBJECT_BYTES
from op_jupyter.store.summary import META
from op_jupyter.store.tips import Tips, keep

_OURS: Final = (b"history/", b"context/", b"meta.json")
_SUBJECT_CHARS: Final = 72
_TURN_ID: Final = re.compile(r"^Turn-Id: (.+)$", re.MULTILINE)
_PLAIN: Final = re.compile(r"[\w.:@/+-]{1,200}", re.ASCII)
_TRIES: Final = 5

Additions: TypeAlias = "dict[str, bytes | Additions]"
"""Files to put into a tree, by folder: name -> content's sha, or what goes below."""


def blob_path(sha256: str) -> str:
    """Where a large value is kept, relative to the session's folder."""
    return f"context/blobs/{sha256[:2]}/{sha256}"


class History:
    """Writes what happened into the session's repository."""

    def __init__(
        self, folder: str, dag: Dag, repository: Repository, files: FileSystem, clock: Clock
    ) -> None:
        self._folder = folder
        self._dag = dag
        self._repository = repository
        self._files = files
        self._clock = clock
        self._commits = CommitWalk(repository)
        self._tips = Tips(repository, files)
        self._between: list[Between] = []
        self._restarted: set[str] = set()
        self._index_is_stale = False
        self._tried: tuple[str, bytes] = ("", b"")

    def apply(self, events: Sequence[Event]) -> None:
        """Write *events*, which go into one commit; safe to repeat after an error."""
        try:
            if not isinstance(events[0], Between | Described | Packed) and self._tips.look():
                self._commits = CommitWalk(self._repository)  # there is more to be found now
            match events[0]:
                case TurnEnded():
                    self._commit_turns([e for e in events if isinstance(e, TurnEnded)])
                case Between() as between:
                    self._between.append(between)
                case Pointed() as pointed:
                    self._point(pointed)
                case Described(meta):
                    self._describe(meta)
                case Closed(branch, meta):
                    self._close(branch, meta)
                case Packed(errors):
                    self._pack(errors)
        finally:
            self._repository.objects.forget()
            self._repository.objects.release()

    def astray(self) -> list[Pointed]:
        """The branches whose refs do not stand where the journal has them.

        Applied, each of these puts a ref right; the tip that it leaves gets a name.
        """
        refs, found = self._repository.refs, []
        for branch, head in self._dag.branches.items():
            target, tip = self._commit_of(head), refs.read(f"refs/heads/{branch}")
            if target is not None and (tip is None or self._is_off(head, tip, target)):
                found.append(Pointed(branch, head, self._dag.active_branch))
        return found

    def renew_index(self) -> None:
        """Somebody else has moved refs: git's index has to be made again at the end."""
        self._index_is_stale = True

    # -- turns

    def _commit_turns(self, turns: Sequence[TurnEnded]) -> None:
        last = turns[-1]
        authored = _seconds(last.turn.finished_at) or int(self._clock())
        restart = last.branch in self._restarted and last.turn.kind != "call"
        self._commit(
            last.branch,
            [turn.turn.id for turn in turns],
            paths=[path for turn in turns for path in turn.files],
            blobs=frozenset().union(*(turn.blobs for turn in turns)),
            meta=last.meta,
            message=turn_message(self._dag.session_id, turns),
            authored=authored,
            base=last.turn.base,
            restart=restart,
        )
        self._repository.objects.release()
        with suppress(OSError, StoreError):  # it can wait
            self._repository.objects.tidy()
        if restart:
            self._restarted.discard(last.branch)

    def _commit(
        self,
        branch: str,
        turns: Sequence[str],
        *,
        paths: Sequence[str],
        blobs: frozenset[str],
        meta: bytes,
        message: str,
        authored: int,
        base: str | None,
        restart: bool = False,
    ) -> None:
        """Commit files on *branch*, on top of whatever is there, and move it."""
        repository, ref = self._repository, f"refs/heads/{branch}"
        repository.ensure(self._dag.active_branch)
        self._describe(meta)
        paths = [*paths, *(path for between in self._between for path in between.files)]
        blobs = blobs.union(*(between.blobs for between in self._between))
        for _ in range(_TRIES):
            tip = repository.refs.read(ref)
            if self._tried == (message, tip):
                repository.refs.sync(ref)  # it was done but for this
                self._between.clear()
                return
            parent = None if restart else tip or self._commit_of(base)
            tree = self._tree(parent, paths, blobs, meta)
            parents = () if parent is None else (parent,)
            sha = repository.commit(tree, message, parents, authored, int(self._clock()))
            if tip is not None and tip != parent:
                keep(repository.refs, branch, tip)
            staged = repository.refs.stage(ref, sha)
            repository.objects.barrier({staged.path: staged.data})
            self._tried = (message, sha)
            self._commits.add(sha, CommitObject(tree, parents, message), turns)
            try:
                repository.refs.move(ref, tip, sha, staged)
            except RefMoved:
                continue  # the user committed meanwhile: on top of that, then
            self._tips.note(ref, sha)
            self._between.clear()
            self._index_is_stale = True
            return
        raise RefMoved(f"{ref} keeps moving; another git is at work there")

    def _tree(
        self, parent: bytes | None, paths: Sequence[str], blobs: frozenset[str], meta: bytes
    ) -> bytes:
        """The parent's tree plus these files: the user's own stay in it."""
        repository = self._repository
        additions: Additions = {META: repository.write_blob(meta)}
        for path in paths:
            data = read_file(f"{self._folder}/{path}", MAX_FILE_BYTES)
            _put(additions, path, repository.write_blob(data))
        for path in map(blob_path, sorted(blobs)):
            data = read_file(f"{self._folder}/{path}", MAX_OBJECT_BYTES)
            _put(additions, path, repository.write_blob(data, once=True))
        base = {} if parent is None else repository.tree(self._commits.read(parent).tree)
        return self._graft(base, additions)

    def _graft(self, base: Entries, additions: Additions) -> bytes:
        entries = dict(base)
        for name, added in additions.items():
            key = name.encode()
            if isinstance(added, bytes):
                entries[key] = (FILE, added)
            else:
                below = self._repository.subtree(base, key)
                entries[key] = (TREE, self._graft(below, added))
        return self._repository.write_tree(entries)

    # -- branches

    def _point(self, event: Pointed) -> None:
        """Let the ref of a branch follow its head, and HEAD the active branch."""
        repository, ref = self._repository, f"refs/heads/{event.branch}"
        repository.ensure(event.active)
        tip, target = repository.refs.read(ref), self._commit_of(event.node)
        if event.node is None and tip is not None:
            self._restarted.add(event.branch)
        elif target is not None and tip is None:
            repository.refs.move(ref, None, target)
            self._tips.note(ref, target)
        elif target is not None and tip is not None and self._is_off(event.node, tip, target):
            keep(repository.refs, event.branch, tip)
            repository.refs.move(ref, tip, target)
            self._tips.note(ref, target)
        if repository.refs.set_head(event.active):
            self._index_is_stale = True

    def _is_off(self, node: str | None, tip: bytes, target: bytes) -> bool:
        """Whether a branch at *tip* has to move, to stand where *node* was committed."""
        turn = self._dag.turns.get(self._dag.nodes[node].turn_id or "") if node else None
        if turn is not None and turn.status == "running":
            return False  # its own commit will come, on top
        current: bytes | None = tip
        while current is not None and current != target:
            commit = self._commits.read(current)
            if any(map(self._is_on_a_line, turn_ids(commit))):
                return True
            current = commit.parents[0] if commit.parents else None
        return current is None

    def _is_on_a_line(self, turn_id: str) -> bool:
        """Whether a turn made a line longer: no bare call, nor one that was killed at once."""
        turn = self._dag.turns.get(turn_id)
        if turn is None or turn.kind == "call":
            return False
        return any(node.turn_id == turn_id for node in self._dag)

    def _commit_of(self, node_id: str | None) -> bytes | None:
        """The commit of the turn *node_id* belongs to, or of the nearest one before it."""
        asked: set[str | None] = set()
        while node_id is not None:
            node = self._dag.nodes[node_id]
            turn = self._dag.turns.get(node.turn_id or "")
            if turn is not None and turn.id not in asked and turn.status != "running":
                asked.add(turn.id)
                if (sha := self._commits.find(turn.id)) is not None:
                    return sha
            node_id = node.predecessor
        return None

    # -- the rest

    def _describe(self, meta: bytes) -> None:
        path = f"{self._folder}/{META}"
        with suppress(OSError):
            if read_file(path) == meta:
                return
        self._files.replace(path, meta, durable=False)  # it can be made again

    def _close(self, branch: str, meta: bytes) -> None:
        if self._between:
            words = dict.fromkeys(word for between in self._between for word in between.words)
            self._commit(
                branch,
                (),
                paths=(),
                blobs=frozenset(),
                meta=meta,
                message=between_message(self._dag.session_id, list(words)),
                authored=int(self._clock()),
                base=self._dag.branches[branch],
            )
        self._describe(meta)
        if self._index_is_stale:
            # A lock in the way makes `git status` stale, nothing else.
            with suppress(GitRefused):
                self._refresh_index(branch)

    def _refresh_index(self, branch: str) -> None:
        tip = self._repository.refs.read(f"refs/heads/{branch}")
        if tip is None:
            return
        committed = dict(self._flatten(self._repository.tree(self._commits.read(tip).tree), b""))
        index = build_index(self._folder, committed, _OURS)
        if index is not None:
            self._repository.refs.replace("index", index)
        self._index_is_stale = False

    def _flatten(
        self, entries: Entries, prefix: bytes
    ) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
        for name, (mode, sha) in entries.items():
            if mode == TREE:
                yield from self._flatten(self._repository.tree(sha), prefix + name + b"/")
            else:
                yield prefix + name, (int(mode, 8), sha)

    def _pack(self, errors: list[StoreError]) -> None:
        try:
            self._repository.gc()
        except OSError as exc:
            errors.append(StoreError(f"{self._folder} could not be packed: {exc}"))
        except StoreError as exc:
            errors.append(exc)


class CommitWalk:
    """Finds the commit of a turn, reading no more of the history than it has to."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._commits: dict[bytes, CommitObject] = {}
        self._of_turn: dict[str, bytes] = {}
        self._pending: deque[bytes] | None = None
        self._seen: set[bytes] = set()

    def read(self, sha: bytes) -> CommitObject:
        """A commit, read once."""
        if sha not in self._commits:
            self._commits[sha] = self._repository.commit_object(sha)
        return self._commits[sha]

    def add(self, sha: bytes, commit: CommitObject, turns: Iterable[str]) -> None:
        """A commit that was just made for *turns*."""
        self._commits[sha] = commit
        self._of_turn.update(dict.fromkeys(turns, sha))

    def find(self, turn_id: str) -> bytes | None:
        """The commit of a turn; all refs are searched, from their tips back."""
        if self._pending is None:
            self._pending = deque()
            self._queue(self._repository.refs.all().values())
        while turn_id not in self._of_turn and self._pending:
            sha = self._pending.popleft()
            # A tag may name anything, and a shallow clone ends somewhere.
            with suppress(GitRefused):
                commit = self.read(sha)
                for found in turn_ids(commit):
                    self._of_turn.setdefault(found, sha)
                self._queue(commit.parents)
        return self._of_turn.get(turn_id)

    def _queue(self, shas: Iterable[bytes]) -> None:
        fresh = [sha for sha in shas if sha not in self._seen]
        self._seen.update(fresh)
        if self._pending is not None:
            self._pending.extend(fresh)


def _put(additions: Additions, path: str, sha: bytes) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        below = additions.setdefault(folder, {})
        if isinstance(below, bytes):
            raise GitRefused(f"{path} is below a file")
        additions = below
    additions[name] = sha


# --- messages ---------------------------------------------------------------------------


def turn_message(session_id: str, ended: Sequence[TurnEnded]) -> str:
    """The commit message of a turn, or of the bare calls that share a commit."""
    if len(ended) == 1:
        subject, body = _subject(ended[0].turn), []
        status: str = ended[0].turn.status
    else:
        names = dict.fromkeys(_words(e.turn.subject, 30) for e in ended if e.turn.subject)
        subject = f"calls: {len(ended)}" + (f", {', '.join(names)}" if names else "")
        body = [f"- {_subject(e.turn)}" for e in ended]
        statuses = Counter(e.turn.status for e in ended)
        status = ", ".join(f"{count} {status}" for status, count in statuses.items())
    body += [_failure(e.turn.failure) for e in ended if e.turn.failure is not None]
    recovered = any(e.recovered for e in ended)
    spent = add_up([e.spent for e in ended])
    trailers = [
        ("Session-Id", session_id),
        *(("Turn-Id", _quote(e.turn.id)) for e in ended),
        ("Status", status),
        ("Model", ", ".join(map(_words, spent.models))),
        ("Input-Tokens", str(spent.input_tokens or "")),
        ("Output-Tokens", str(spent.output_tokens or "")),
        ("Recovered", "after its process ended" if recovered else ""),
    ]
    return _message(_words(subject) + (" (recovered)" if recovered else ""), body, trailers)


def between_message(session_id: str, words: Sequence[str]) -> str:
    """The commit message of what happened between turns."""
    subject = f"session: {', '.join(words) or 'changed'}"
    return _message(_words(subject), [], [("Session-Id", session_id)])


def add_up(spent: Sequence[Spent]) -> Spent:
    """The sum of what several turns took."""
    models = dict.fromkeys(model for one in spent for model in one.models)
    return Spent(
        tuple(models),
        sum(one.input_tokens for one in spent),
        sum(one.output_tokens for one in spent),
    )


def turn_ids(commit: CommitObject) -> list[str]:
    """The turns that a commit of ours is of."""
    return [_unquote(text) for text in _TURN_ID.findall(commit.message)]


def _message(subject: str, body: Sequence[str], trailers: Sequence[tuple[str, str]]) -> str:
    paragraphs = [subject]
    if body:
        paragraphs.append("\n".join(body))
    paragraphs.append("\n".join(f"{name}: {value}" for name, value in trailers if value))
    return "\n\n".join(paragraphs) + "\n"


def _subject(turn: Turn) -> str:
    return _words(f"{turn.kind}: {turn.subject}" if turn.subject.strip() else turn.kind)


def _failure(failure: Mapping[str, Any]) -> str:
    parts = [str(failure[key]) for key in ("code", "message") if failure.get(key)]
    return _words("- " + ": ".join(parts), 300)


def _words(text: str, limit: int = _SUBJECT_CHARS) -> str:
    """*text* on one line, without control characters, not longer than *limit*."""
    line = text[: 4 * limit]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _quote(turn_id: str) -> str:
    return turn_id if _PLAIN.fullmatch(turn_id) else json.dumps(turn_id)


def _unquote(text: str) -> str:
    if text.startswith('"'):
        with suppress(ValueError):
            return str(json.loads(text))
    return text


def _seconds(timestamp: str | None) -> int | None:
    with suppress(ValueError):
        return int(datetime.fromisoformat(timestamp or "").timestamp())
    return None
