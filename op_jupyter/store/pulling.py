"""Taking in what was fetched from another repository: as a new session, or beside what is here.

It is read, folded together with what is here, and refused as a whole when it does not fit.  Then
all of it arrives in one step (`Refs.repack`), whatever kills the process before or after.
Permission rules, the mode and extra tools do not travel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.values import dataclass
from op_jupyter.errors import GraphError, StoreError, UnknownSession
from op_jupyter.store import codec
from op_jupyter.store.codec import BadRecord
from op_jupyter.store.disk import DiskSession, Outside
from op_jupyter.store.git import Repository
from op_jupyter.store.journal import LOCAL, Damage, Entry, Journal, read_segments
from op_jupyter.store.loading import Folder, Loaded, corrupt, load
from op_jupyter.store.objects import is_safe_ref
from op_jupyter.store.packs import name_of
from op_jupyter.store.sync import Commits, Incoming, Synced, numbered, short
from op_jupyter.store.tips import HEADS, KEPT

_ARRIVED: Final = "refs/arrived/"
_NUMBERED: Final = re.compile(r"(.+)-[1-9][0-9]{0,8}")
_STAYS_HERE: Final[Mapping[str, Any]] = {
    "rules": {"allow": [], "deny": []},
    "mode": "accept_edits",
    "extra_tools": [],
    "config": {},
}
"""Metadata that decides what runs without asking: never from elsewhere, else as here."""


def take_new(session_id: str, arrived: Incoming, outside: Outside, target: str) -> Synced:
    """Make a session of what has *arrived*, in the folder *target*.

    Raises:
        StoreError: it is no whole session; there is none then.
    """
    refs = arrived.repository.refs.all()
    if not any(ref.startswith(HEADS) for ref in refs):
        raise UnknownSession(f"there is no session {session_id!r} in that repository")
    commits, last = Commits(arrived.repository), dict[str, str]()

    def look(folder: Folder, loaded: Loaded) -> None:
        _check_readable(folder)
        last.update(_tips_of_turns(loaded.records))

    session = DiskSession.reopen(arrived.path, session_id, outside, look=look)
    try:
        notes = _distrust(session)
        for ref, tip in sorted(refs.items()):
            pointed = _branch_of(ref, tip, session.dag, commits, last)
            if pointed is not None and session.dag.branches.get(pointed[0], "") != pointed[1]:
                session.branch(*pointed, activate=False)
        session.renew_index()
    finally:
        session.close()
    outside.files.rename(arrived.path, target)
    outside.files.sync_folder(os.path.dirname(target))
    branches = len([ref for ref in refs if ref.startswith(HEADS)])
    many = f"{branches} branches" if branches > 1 else "1 branch"
    return Synced(session_id, (f"new here, with {many}",), notes)


def _distrust(session: DiskSession) -> tuple[str, ...]:
    """Take nothing over that would run something without asking; what that was."""
    meta = session.dag.meta
    deny = [text for text in _rules(meta, "deny") if isinstance(text, str)]
    mode = "read_only" if meta.get("mode") == "read_only" else _STAYS_HERE["mode"]
    safe = {**_STAYS_HERE, "rules": {"allow": [], "deny": deny}, "mode": mode}
    changed = {key: value for key, value in safe.items() if key in meta and meta[key] != value}
    if not changed:
        return ()
    session.set_meta(**changed)
    return (f"not taken over: its {', '.join(sorted(changed))}, which allow things without asking",)


def _rules(meta: Mapping[str, Any], kind: str) -> Sequence[Any]:
    rules = meta.get("rules")
    found = rules.get(kind) if isinstance(rules, Mapping) else None
    return found if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Where a ref from elsewhere will be.

    Attributes:
        ref: its name here.
        old: what that names now, or None.
        branch: name and node for the journal; None: it is git's alone.
    """

    ref: str
    old: bytes | None
    tip: bytes
    branch: tuple[str, str | None] | None
    said: str


class Joining:
    """Brings what has arrived into a session that is here already."""

    def __init__(self, session_id: str, path: str, arrived: Incoming, outside: Outside) -> None:
        self._session_id = session_id
        self._path = path
        self._arrived = arrived
        self._outside = outside
        self._arrivals: list[_Arrival] = []

    def run(self) -> Synced:
        """Do it.

        Raises:
            SessionLocked: somebody has the session open for writing.
            StoreError: the two do not fit together; nothing was changed.
        """
        session = DiskSession.reopen(
            self._path, self._session_id, self._outside, first=self._let_in
        )
        try:
            session.flush()
            refs = self._repository().refs
            for arrival in self._arrivals:
                now = refs.read(arrival.ref)
                if now != arrival.tip:
                    # Opening has made it, perhaps, where the journal of both has that branch.
                    refs.move(arrival.ref, arrival.old or now, arrival.tip)
            session.name_lines(dict(filter(None, (each.branch for each in self._arrivals))))
            if any(ref.startswith(_ARRIVED) for ref in refs.all()):
                session.renew_index()
                refs.repack({}, drop=_ARRIVED)
        finally:
            session.close()
        return Synced(self._session_id, tuple(arrival.said for arrival in self._arrivals))

    def _repository(self) -> Repository:
        return Repository(self._path, self._outside.files, self._outside.clock)

    def _let_in(self) -> None:
        """Check that it fits, plan, and take everything in as one; the lock is held."""
        repository, arrived = self._repository(), self._arrived
        lines = _Lines(repository, arrived.repository)
        if not lines.fresh():
            return
        here, there = Folder(self._path, repository), Folder(arrived.path, arrived.repository)
        loaded = _load_whole(self._session_id, here)
        _check_readable(there)
        _check_same_session(self._session_id, here, there)
        records = [*loaded.records, *_read_new(self._session_id, here, there)]
        records.sort(key=lambda entry: entry[:3])
        union = _union(self._session_id, records)
        self._arrivals = self._plan(lines, union, _tips_of_turns(records))
        self._settle(loaded, union)
        tips = [arrival.tip for arrival in self._arrivals]
        known = [
            sha
            for sha in set(repository.refs.all().values())
            if self._arrived.repository.objects.has(sha)
        ]
        repository.ensure(loaded.dag.active_branch)
        repository.take_objects(self._arrived.repository, tips, known)
        named = {f"{_ARRIVED}{number}": tip for number, tip in enumerate(tips, 1)}
        repository.refs.repack(named, drop=_ARRIVED)

    def _plan(self, lines: _Lines, union: Dag, last: Mapping[str, str]) -> list[_Arrival]:
        ours, there, held = dict(lines.ours), lines.there, set(lines.held)
        named = union.branches
        arrivals = []
        for ref, tip in lines.fresh():
            if tip in held:
                continue
            line = there.below([tip])
            name = next(
                name
                for name in numbered(ref)
                if (ours[name] in line if name in ours else name == ref or short(name) not in named)
            )
            old = ours.get(name)
            pointed = _branch_of(ref, tip, union, there, last)
            branch = None if pointed is None else (name.removeprefix(HEADS), pointed[1])
            said = f"{short(name)} {'begun' if old is None else 'moved forward'} here"
            if name != ref:
                said += f": {short(ref)} went on here as well"
            arrivals.append(_Arrival(name, old, tip, branch, said))
            ours[name] = tip
            held |= line
        return arrivals

    def _settle(self, loaded: Loaded, union: Dag) -> None:
        """Let what is here stay what it is when the records of both are folded together.

        What it is here is nobody else's affair: the others have names of their own for the
        same lines, and would have to put theirs right again and again.
        """
        dag, seq = loaded.dag, union.last_seq + 1
        records = [
            codec.describing({key: stays}, seq)
            for key, value in _STAYS_HERE.items()
            if union.meta.get(key, value) != (stays := dag.meta.get(key, value))
        ]
        if union.active_branch != dag.active_branch or self._wanted(dag) != union.branches:
            # Until the branches are put right, they are what they were here.
            records += [
                codec.pointing(name, node, name == dag.active_branch, seq)
                for name, node in dag.branches.items()
            ]
            records.append(codec.pointing(dag.active_branch, dag.head, True, seq))
        if not records:
            return
        encoded = [codec.encode({**one, "seq": seq + i}) for i, one in enumerate(records)]
        if any(one.blobs for one in encoded):
            raise StoreError("the rules of the session are too long for this; nothing was changed")
        numbers = [segment.name.number for segment in loaded.segments]
        journal = Journal(self._path, self._outside.files, max(numbers, default=-1) + 1)
        journal.start(None, LOCAL, self._outside.new_tag())
        try:
            journal.append([(None, b"".join(one.line for one in encoded))])
        finally:
            journal.close()

    def _wanted(self, dag: Dag) -> dict[str, str | None]:
        arrived = (arrival.branch for arrival in self._arrivals)
        return {**dag.branches, **dict(filter(None, arrived))}


class _Lines:
    """What the refs of two repositories reach.

    Attributes:
        ours: the refs here.
        held: commits that these reach.
    """

    def __init__(self, here: Repository, there: Repository) -> None:
        refs = here.refs.all().items()
        self.ours = {ref: sha for ref, sha in refs if not ref.startswith(_ARRIVED)}
        self.held = Commits(here).below(self.ours.values())
        self.there = Commits(there)
        self._theirs = there.refs.all()

    def fresh(self) -> list[tuple[str, bytes]]:
        """The refs there, and their tips, that have something which is not here."""
        return [
            (ref, tip)
            for ref, tip in sorted(self._theirs.items())
            if tip not in self.held and is_safe_ref(ref) and ref.startswith((HEADS, KEPT))
        ]


def _check_readable(folder: Folder) -> None:
    if folder.in_git.unreadable:
        raise StoreError(folder.in_git.unreadable)


def _load_whole(session_id: str, folder: Folder) -> Loaded:
    """A session, of which everything is there and good."""
    _check_readable(folder)
    loaded = load(session_id, folder)
    if loaded.damages:
        raise corrupt(session_id, folder.path, loaded.damages)
    return loaded


def _read_new(session_id: str, here: Folder, there: Folder) -> list[Entry]:
    """The records *there* in files that are not *here*, whole.

    Raises:
        CorruptRecord: one of them is not good.
    """
    have = here.list_segments()
    files = {path: None for path in there.in_git.segments if path not in have}
    records: list[Entry] = []
    damages: list[Damage] = []
    for segment in read_segments(files, there.read_segment):
        damages += segment.damages
        for seq, path, offset, record in segment.records:
            try:
                whole = codec.make_whole(record, there.read_blob)
                records.append((seq, path, offset, whole))
            except (BadRecord, OSError) as exc:
                damages.append(Damage(path, offset, str(exc)))
    if damages:
        raise corrupt(session_id, "what was pulled", damages)
    return records


def _check_same_session(session_id: str, here: Folder, there: Folder) -> None:
    ours, theirs = here.list_segments(), there.in_git.segments
    shared = [path for path in theirs if path in ours]
    if not shared:
        raise StoreError(
            f"session {session_id!r} there is another one that has the same id; nothing was changed"
        )
    for path in shared:
        if name_of(b"blob", here.read_segment(path)) != theirs[path]:
            raise StoreError(
                f"{path} of session {session_id!r} is not the same there as here; "
                "nothing was changed"
            )


def _union(session_id: str, records: Sequence[Entry]) -> Dag:
    """The *records* of both, folded together.

    Raises:
        CorruptRecord: they do not fit.
    """
    dag = Dag(session_id)
    for _, path, offset, record in records:
        try:
            codec.fold(dag, record)  # its large values are back in it since it was loaded
        except BadRecord as exc:
            damage = Damage(path, offset, f"does not fit with what is here: {exc}")
            raise corrupt(session_id, "what was pulled", [damage]) from exc
    return dag


def _tips_of_turns(records: Iterable[Entry]) -> Mapping[str, str]:
    """The node that each turn left as the tip of its line; *records* are in order."""
    tips: dict[str, str] = {}
    for _, _, _, record in records:
        if record["kind"] == "enter" and "head" in record:
            turn_id = record["node"].get("metadata", {}).get("turn_id")
            if isinstance(turn_id, str):
                tips[turn_id] = record["node"]["id"]
    return tips


def _branch_of(
    ref: str, tip: bytes, dag: Dag, commits: Commits, tips: Mapping[str, str]
) -> tuple[str, str | None] | None:
    """The branch of the journal that *ref* is, and where it ends; None: git's alone."""
    name = ref.removeprefix(HEADS)
    numbered = _NUMBERED.fullmatch(name)
    if name == ref or not (name in dag.branches or (numbered and numbered[1] in dag.branches)):
        return None
    with suppress(GraphError):
        dag.check_branch(name)
        newest = next((turn for turn in commits.turns(tip) if turn in tips), None)
        head = dag.branches.get(name)
        if head is not None and dag.nodes[head].turn_id == newest:
            return name, head  # as the journal has it, which may be in the middle of a turn
        return name, tips[newest] if newest is not None else None
    return None
