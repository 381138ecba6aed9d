"""Putting files back: what calls changed, undone exactly, asked first, and recorded.

Undoing is a call like others: it has a turn and a node, what it replaces is kept before, and
so it can be undone itself.  It refuses to lose what somebody else did to a file since.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.backups import FileState, Restore, Step, restores, steps_from_json
from op_jupyter.core.compaction import bare_call
from op_jupyter.core.diff import unified_diff
from op_jupyter.core.nodes import Node
from op_jupyter.core.paths import PathUse
from op_jupyter.core.permissions import GateCall, Verdict, build_request, decide
from op_jupyter.core.values import dataclass
from op_jupyter.engine.gate import confirmed, places_for, rules_of
from op_jupyter.engine.live import LiveTurn
from op_jupyter.engine.settling import settled
from op_jupyter.errors import (
    CorruptRecord,
    FilesChanged,
    OpenProgramError,
    StoreError,
    UsageError,
)
from op_jupyter.tools.backup_files import make, remove, state_of
from op_jupyter.tools.disk import ToolFailure, open_to_read
from op_jupyter.tools.threads import in_thread

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession

NAME: Final = "undo_files"
DIFF_CHARS: Final = 20_000
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Undone:
    """What came of it.

    Attributes:
        paths: as a person reads them, those that were put back.
        notes: what could not be, and why.
        node_id: the call that did it; empty when nothing had to be done, or it was denied.
    """

    paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    node_id: str = ""
    denied: bool = False


def changed_since(session: AgentSession, node_id: str) -> list[Node]:
    """The calls that changed files since that node, with it; of an answer, its own calls stay.

    Of what ran in a bare call, the whole call counts: a rewind leads to before it.

    Raises:
        UnknownNode: there is none.
    """
    first, stay = session.dag.node(node_id), set[str]()
    if (bare := bare_call(session.dag, node_id)) is not None:
        first = next(node for node in session.dag if node.turn_id == bare.id)
    elif first.role == "llm":
        stay = {node.id for node in session.dag.subtree(node_id)}
    later = (node for node in session.dag if node.seq >= first.seq and node.id not in stay)
    return [node for node in later if _touched(node)]


def changed_in(session: AgentSession, turn_id: str) -> list[Node]:
    """The calls of one turn that changed files."""
    return [node for node in session.dag if node.turn_id == turn_id and _touched(node)]


def paths_of(session: AgentSession, call: Node) -> list[str]:
    """The files that *call*, one of those above, changed.

    Raises:
        CorruptRecord: its record does not say.
    """
    return [step.path for step in _steps(session, call)]


def last_change(session: AgentSession) -> str | None:
    """The newest turn that changed files."""
    changed = (n.turn_id for n in reversed(session.dag.nodes.values()) if _touched(n))
    return next(changed, None)


def _touched(node: Node) -> bool:
    if "files" in node.metadata:
        return bool(node.metadata["files"])
    return "backup" in node.metadata and node.status != "running"


async def undo_calls(
    session: AgentSession, calls: Sequence[Node], *, ask: bool = True, force: bool = False
) -> Undone:
    """Put the files that *calls* changed back to what they were before the first of them.

    Args:
        ask: ask a person first; without, whoever calls has asked.
        force: also where a file changed since in another way; what it is now is kept.

    Raises:
        SessionActive: something runs.
        FilesChanged: a file changed since in another way; nothing was touched.
        UsageError: nobody can be asked, or a rule forbids it; nothing was touched.
        StoreError: it could not be recorded; nothing was touched.
    """
    session.check_idle("put files back")
    wanted = restores(step for node in calls for step in _steps(session, node))
    now = await in_thread(lambda: {r.path: state_of(Path(r.path)) for r in wanted})
    due = [r for r in wanted if not now[r.path].is_same(r.target)]
    conflicts = {r.path: why for r in due if (why := r.conflict(now[r.path]))}
    show = places_for(session).show
    if conflicts and not force:
        listed = "; ".join(f"{show(Path(path))}: {why}" for path, why in conflicts.items())
        raise FilesChanged(f"nothing was put back: {listed}", paths=tuple(conflicts))
    able, notes = [], []
    for r in due:
        if why := _unable(r.target, now[r.path], now.values()):
            notes.append(f"{show(Path(r.path))}: {why}")
        else:
            able.append(r)
    if not able:
        return Undone(notes=tuple(notes))
    return await _Undoing(session, able, now, notes).run(ask=ask)


def _unable(target: FileState, now: FileState, present: Iterable[FileState]) -> str:
    """Why a path cannot become *target*, or nothing.

    What was not kept may still be *present*, where it was moved to.
    """
    if not target.can_be_restored and not any(state.holds(target) for state in present):
        return f"its old content was not kept, because {target.why or 'it is no regular file'}"
    if now.kind == "file" and not now.sha256:
        return f"it is not taken away, as it could not be brought back: {now.why}"
    return ""


def _steps(session: AgentSession, node: Node) -> Iterable[Step]:
    """What the call of *node* did; of one that never ended, what it may have done."""
    try:
        if "files" in node.metadata:
            return steps_from_json(node.metadata["files"])
        backup = node.metadata["backup"]
        if "manifest" not in backup:
            return steps_from_json(backup["before"])
        manifest = json.loads(session.store.read_blob(backup["manifest"]))
        return steps_from_json([[path, before, None] for path, before in manifest.items()])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptRecord(
            f"node {node.id!r} does not say what it did to files: {error}", path="", offset=0
        ) from error


class _Undoing:
    """One undo, from the question to its stored end."""

    def __init__(
        self,
        session: AgentSession,
        due: Sequence[Restore],
        now: Mapping[str, FileState],
        notes: list[str],
    ) -> None:
        self._session = session
        self._due = {Path(r.path): r.target for r in due}
        self._now = {Path(path): state for path, state in now.items()}
        self._notes = notes
        self._places = places_for(session)
        self._shown = tuple(self._places.show(path) for path in sorted(self._due))
        self._blobs: dict[str, bytes] = {}

    async def run(self, *, ask: bool) -> Undone:
        session = self._session
        call = GateCall(
            NAME,
            "write",
            paths=[PathUse(path, path, write=True) for path in self._due],
            diff=await in_thread(self._diff),
        )
        verdict = self._judge(call, ask=ask)
        turn = session.begin_call(f"put {_count(len(self._due))} back")
        node: Node | None = None
        try:
            node = self._begin(turn)
            if ask and not await self._allowed(turn, node, call, verdict):
                session.recorder.finish(node.id, status="denied", output="the person denied it")
                session.end_call(turn, "cancelled")
                return Undone(notes=tuple(self._notes), denied=True)
            await _to_its_end(self._restore(node, call))
            session.end_call(turn, "completed")
        except BaseException as error:
            with suppress(StoreError):  # the first cause is what counts
                self._end_badly(turn, node, failed=isinstance(error, Exception))
            raise
        return Undone(self._shown, tuple(self._notes), node.id)

    def _end_badly(self, turn: LiveTurn, node: Node | None, *, failed: bool) -> None:
        session = self._session
        if node is not None and session.dag.node(node.id).status == "running":
            session.recorder.finish(node.id, status="error" if failed else "cancelled")
        session.end_call(turn, "failed" if failed else "cancelled")

    def _judge(self, call: GateCall, *, ask: bool) -> Verdict:
        session = self._session
        verdict = decide(
            call,
            places=self._places,
            mode="read_only",  # putting files back asks in every mode
            rules=[rule for rule in rules_of(session) if rule.kind == "deny"],
            interactive=session.asker.interactive or not ask,
        )
        if verdict.kind == "deny":
            raise UsageError(verdict.reason)
        return verdict

    def _begin(self, turn: LiveTurn) -> Node:
        session = self._session
        return session.recorder.append(
            Node(
                id=session.new_id("call"),
                role="code",
                name=NAME,
                input={"paths": list(self._shown)},
                predecessor=session.dag.head,
                metadata={
                    "turn_id": turn.id,
                    "kind": "function",
                    "frame": None,
                    "label": ", ".join(self._shown)[:200],
                },
            )
        )

    async def _allowed(self, turn: LiveTurn, node: Node, call: GateCall, verdict: Verdict) -> bool:
        session = self._session
        request = build_request(
            call,
            Verdict("ask", "Putting files back asks, in every mode.", "mode", "", verdict.dangers),
            call_id=node.id,
            turn_id=turn.id,
            mode=session.permission_mode,
            places=self._places,
        )
        return await confirmed(session, turn, request)

    async def _restore(self, node: Node, call: GateCall) -> None:
        session = self._session
        taken = await session.backups.before(call, node.id, session.workspace)
        problem: OpenProgramError | None = None
        try:
            await in_thread(self._put_back)
        except (OSError, ToolFailure, StoreError) as error:
            problem = UsageError(f"not everything was put back: {error}")
        files = await session.backups.after(taken)
        status = "completed" if problem is None else "error"
        session.recorder.finish(
            node.id,
            status=status,
            output=f"put back {', '.join(self._shown)}" if problem is None else problem.message,
            metadata=files,
        )
        if problem is not None:
            raise problem

    # -- in a thread

    def _put_back(self) -> None:
        """Take away first, innermost first; then make, outermost first."""
        contents = {path: self._content(target) for path, target in self._due.items()}
        there = self._rescue(contents)
        deepest_first = sorted(self._due, key=lambda path: len(path.parts), reverse=True)
        for path in deepest_first:
            target, now = self._due[path], self._now[path]
            goes = target.kind == "absent" or (target.kind == "folder") != (now.kind == "folder")
            if now.kind == "absent" or not goes:
                continue
            self._check(path)
            if left := remove(path):
                self._notes.append(f"{self._places.show(path)}: {left}")
        for path in reversed(deepest_first):
            target = self._due[path]
            if target.kind != "absent" and path not in there:
                self._check(path, gone=True)
                make(path, _writable(target), contents[path])
        for path in deepest_first:
            if self._due[path].kind == "folder":
                make(path, self._due[path], b"")

    def _rescue(self, contents: Mapping[Path, bytes]) -> set[Path]:
        """Put what was not kept in place before anything is taken away: it is nowhere else.

        Returns what is there then, the folders that were made for it included.
        """
        there: set[Path] = set()
        for path, target in self._due.items():
            if target.kind == "file" and not target.blob and self._now[path].kind == "absent":
                self._check(path)
                with suppress(ToolFailure):  # something that goes is in the way
                    make(path, target, contents[path])
                    there |= {each for each in (path, *path.parents) if self._was_absent(each)}
        return there

    def _was_absent(self, path: Path) -> bool:
        return path in self._due and self._now[path].kind == "absent"

    def _check(self, path: Path, *, gone: bool = False) -> None:
        """Refuse when the file changed since it was asked about."""
        now, then = state_of(path), self._now[path]
        same = now.is_same(then) or (now.kind == then.kind and not then.sha256)
        if not same and not (gone and now.kind == "absent"):
            raise ToolFailure(f"{self._places.show(path)} was changed meanwhile")

    def _content(self, state: FileState) -> bytes:
        if state.kind != "file":
            return b""
        if not state.blob:
            return self._standing(state)
        if state.blob not in self._blobs:  # many files may be in one
            self._blobs[state.blob] = self._session.store.read_blob(state.blob)
        content = self._blobs[state.blob][state.offset : state.offset + state.size]
        if hashlib.sha256(content).hexdigest() != state.sha256:
            raise CorruptRecord("the content that was kept is damaged", path="", offset=0)
        return content

    def _standing(self, state: FileState) -> bytes:
        """The content of *state*, which was not kept, from where it stands now."""
        place = next(path for path, now in self._now.items() if now.holds(state))
        with open_to_read(place) as file:
            content = file.read(state.size + 1)
        if hashlib.sha256(content).hexdigest() != state.sha256:
            raise ToolFailure(f"{self._places.show(place)} was changed meanwhile")
        return content

    def _diff(self) -> str:
        """What will change, as far as it is text and short enough to be read."""
        parts: list[str] = []
        room = DIFF_CHARS
        for path, target in sorted(self._due.items()):
            part = self._diff_of(path, target)
            if len(part) > room:
                part = f"… {self._places.show(path)}: too long to be shown\n"
            room -= len(part)
            parts.append(part)
        return "".join(parts)

    def _diff_of(self, path: Path, target: FileState) -> str:
        shown, now = self._places.show(path), self._now[path]
        moved = target.kind == "absent" and any(now.holds(t) for t in self._due.values())
        if moved or not target.can_be_restored:  # its content stays, and may be a secret
            return f"… {shown}: moved back\n"
        try:
            old = "" if now.kind != "file" else path.read_bytes().decode("utf-8")
            new = self._content(target).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return f"… {shown}: not text\n"
        if diff := unified_diff(old, new, shown, created=now.kind == "absent"):
            return diff if diff.endswith("\n") else f"{diff}\n"
        return f"… {shown}: {_words(now)} → {_words(target)}\n"


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Let *work* end although somebody wants to stop: half of it would help nobody."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await settled(task)
        raise


def _writable(target: FileState) -> FileState:
    """*target*, of a folder such that what was in it can be put into it."""
    return replace(target, mode=target.mode | 0o700) if target.kind == "folder" else target


def _words(state: FileState) -> str:
    match state.kind:
        case "link":
            return f"link to {state.target}"
        case "file" | "folder":
            return f"{state.kind} with mode {state.mode:o}"
        case _:
            return state.kind


def _count(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def told(undone: Undone) -> str:
    """What came of it, for a person."""
    if undone.denied:
        return "Nothing was put back."
    lines = []
    if undone.paths:
        more = len(undone.paths) - _SHOWN
        names = ", ".join(undone.paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"Put back: {names}. `%agent undo` takes that back.")
    elif not undone.notes:
        lines.append("The files are as they were; nothing had to be put back.")
    return "\n".join([*lines, *(f"not put back: {note}" for note in undone.notes)])
