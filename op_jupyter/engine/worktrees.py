"""Merging and dropping a worktree: asked first, and recorded with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import GateCall, Verdict, build_request, decide
from op_jupyter.core.values import dataclass
from op_jupyter.engine.gate import confirmed, places_for, rules_of
from op_jupyter.engine.live import LiveTurn
from op_jupyter.errors import OpenProgramError, SessionActive, StoreError, UsageError
from op_jupyter.tools.threads import in_thread
from op_jupyter.tools.worktrees import Contents, Repository, losses

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession

Action = Literal["merge", "drop"]

_NAMES: Final = {"merge": "merge_worktree", "drop": "drop_worktree"}


async def end_worktree(
    session: AgentSession, action: Action, name: str, *, ask: bool = True, force: bool = False
) -> str:
    """Merge the worktree *name* into the repository of the workspace, or take it away.

    Returns what was done, for a person.

    Args:
        ask: ask a person first, who is shown what would be merged or lost.
        force: lose uncommitted changes without asking.

    Raises:
        SessionActive: something runs.
        UsageError: it cannot be, nobody can be asked, or a rule forbids it; nothing was changed.
        SessionStateError: there are conflicts, or something changed meanwhile; nothing is lost.
        StoreError: it could not be recorded.
    """
    session.check_idle(f"{action} a worktree")
    if session.agents.running:
        raise SessionActive(f"sub-agents are still working; {action} the worktree once they ended")
    workspace = session.workspace
    repository = await in_thread(lambda: Repository(workspace))
    seen = await in_thread(lambda: repository.contents(name))
    if action == "merge":
        await in_thread(lambda: repository.check_mergeable(seen))
    elif not ask and not force and (lost := losses(seen)):
        raise UsageError(
            f"worktree {name!r} stays, because it would be lost with it: {'; '.join(lost)}. "
            "Merge it, or drop it with --yes --force"
        )
    return await _Ending(session, repository, action, seen).run(ask=ask)


@dataclass(slots=True)
class _Ending:
    """One merge or drop, from the question to its stored end."""

    session: AgentSession
    repository: Repository
    action: Action
    seen: Contents

    async def run(self, *, ask: bool) -> str:
        """Do it, once it may be."""
        session, name = self.session, self.seen.worktree.name
        call = self._call()
        self._check_rules(call, ask=ask)
        turn = session.begin_call(f"{self.action} worktree {name}")
        node: Node | None = None
        try:
            node = self._begin(turn)
            if ask and not await self._allowed(turn, node, call):
                session.recorder.finish(node.id, status="denied", output="the person denied it")
                session.end_call(turn, "cancelled")
                return f"Worktree {name} stays as it is."
            said = await _to_its_end(self._work(node))
            session.end_call(turn, "completed")
        except BaseException as error:
            with suppress(StoreError):  # the first cause is what counts
                self._end_badly(turn, node, error)
            raise
        return said

    async def _work(self, node: Node) -> str:
        act = self.repository.merge if self.action == "merge" else self.repository.drop
        said = await in_thread(lambda: act(self.seen))
        self.session.recorder.finish(node.id, status="completed", output=said)
        return said

    def _call(self) -> GateCall:
        seen = self.seen
        said = {
            "worktree": str(seen.worktree.path),
            "branch": seen.worktree.branch,
            "commits": seen.commits,
            "uncommitted": list(seen.changed),
            "ignored": list(seen.ignored),
        }
        if self.action == "merge":
            said |= {"into": f"{self.repository.top} on branch {seen.target}"}
            undo = "`git revert -m 1` of the merge takes it back."
        else:
            undo = "What was not committed cannot be brought back."
        name = _NAMES[self.action]
        return GateCall(name, "write", arguments=said, diff=seen.diff, undo=undo)

    def _check_rules(self, call: GateCall, *, ask: bool) -> None:
        session = self.session
        verdict = decide(
            call,
            places=places_for(session),
            mode="read_only",  # it asks in every mode
            rules=[rule for rule in rules_of(session) if rule.kind == "deny"],
            interactive=True,
        )
        if verdict.kind == "deny":
            raise UsageError(verdict.reason)
        if ask and not session.asker.interactive:
            raise UsageError(f"nobody can be asked here to {self.action} it; --yes does not ask")

    def _begin(self, turn: LiveTurn) -> Node:
        session = self.session
        return session.recorder.append(
            Node(
                id=session.new_id("call"),
                role="code",
                name=_NAMES[self.action],
                input={"worktree": self.seen.worktree.name},
                predecessor=session.dag.head,
                metadata={
                    "turn_id": turn.id,
                    "kind": "function",
                    "frame": None,
                    "label": self.seen.worktree.name,
                },
            )
        )

    async def _allowed(self, turn: LiveTurn, node: Node, call: GateCall) -> bool:
        session = self.session
        if self.action == "merge":
            reason = f"It changes your own branch {self.seen.target}."
            dangers: tuple[str, ...] = ()
        else:
            reason = "It deletes a worktree."
            dangers = tuple(f"It would be lost: {lost}." for lost in losses(self.seen))
        request = build_request(
            call,
            Verdict("ask", reason, "mode", "", dangers),
            call_id=node.id,
            turn_id=turn.id,
            mode=session.permission_mode,
            places=places_for(session),
        )
        return await confirmed(session, turn, request)

    def _end_badly(self, turn: LiveTurn, node: Node | None, error: BaseException) -> None:
        session = self.session
        failed = isinstance(error, Exception)
        if node is not None and session.dag.node(node.id).status == "running":
            status = "error" if failed else "cancelled"
            told = error.message if isinstance(error, OpenProgramError) else None
            session.recorder.finish(node.id, status=status, output=told)
        session.end_call(turn, "failed" if failed else "cancelled")


async def _to_its_end(work: Coroutine[Any, Any, str]) -> str:
    """Let git finish although somebody wants to stop: half of it would help nobody."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def worktree_section(worktree: Path | None) -> str:
    """What the model is told when its turn works in one."""
    if worktree is None:
        return ""
    return (
        f"This turn works in a git worktree of the person's repository: {worktree}. Files and "
        "commands are there, and the python tool has it as its current folder; variables, and "
        "modules that are imported already, are the notebook's. The person merges it later."
    )
