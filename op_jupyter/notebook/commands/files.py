"""Files that turns changed, and the git worktrees that they work in."""

from __future__ import annotations

import argparse
from typing import Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.undo import Undone, changed_in, last_change, told, undo_calls
from op_jupyter.engine.worktrees import end_worktree
from op_jupyter.errors import SessionActive
from op_jupyter.notebook.commands.base import Said, command, find_node
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.tools.worktrees import Repository, Worktree
from op_jupyter.views.text import count, visible

UNDO_FLAGS: Final = (
    flag("--yes", action="store_true", help="Restore files without asking."),
    flag(
        "--force",
        action="store_true",
        help="Overwrite files that something else changed since; their content is kept.",
    ),
)


@command(
    "undo",
    flag(
        "turn",
        kind="turn",
        nargs="?",
        help="Id of a turn or call; default: the newest turn that changed files.",
    ),
    *UNDO_FLAGS,
)
def undo(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Restore the files that a turn changed; a second undo reverts that."""
    session = notebook.session
    turn_id = _turn_of(session.dag, args.turn) if args.turn else last_change(session)
    if turn_id is None:
        return Said("No call of this session changed a file that could be put back.")
    calls = changed_in(session, turn_id)
    return Said(told(undo_these(session, calls, args)))


def _turn_of(graph: Dag, named: str) -> str:
    found = [turn_id for turn_id in graph.turns if turn_id.startswith(named)]
    if len(found) == 1 or named in graph.turns:
        return named if named in graph.turns else found[0]
    return find_node(graph, named).turn_id or ""


def undo_these(session: AgentSession, calls: list[Node], args: argparse.Namespace) -> Undone:
    undone: Undone = run_sync(
        lambda: undo_calls(session, calls, ask=not args.yes, force=args.force)
    )
    return undone


@command("worktrees")
def worktrees(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """List the git worktrees of agents, and what they contain."""
    repository = Repository(notebook.session.workspace)
    lines = [_worktree_line(repository, each) for each in repository.worktrees()]
    return Said(
        visible("\n".join(lines)) or "There are no worktrees; `%%agent --worktree` makes one."
    )


def _worktree_line(repository: Repository, worktree: Worktree) -> str:
    if not worktree.path.is_dir():
        return f"{worktree.name}: its folder {worktree.path} is gone"
    seen = repository.contents(worktree.name)
    what = [count(seen.commits, "commit")] if seen.commits else []
    what += [f"{count(len(seen.changed), 'uncommitted file')}"] if seen.changed else []
    return f"{worktree.name}: {' and '.join(what) or 'nothing'} to merge ({worktree.path})"


@command(
    "worktree",
    flag("action", choices=("merge", "drop"), help="Merge it into your branch, or delete it."),
    flag("name", kind="worktree", help="The worktree, as `%%agent worktrees` lists it."),
    flag("--yes", action="store_true", help="Do not ask first."),
    flag("--force", action="store_true", help="With --yes: drop uncommitted work, too."),
)
def worktree(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Merge a worktree into your current branch, or drop it; asks first."""
    path = Repository(notebook.session.workspace).get(args.name).path
    if any(each.works_in(path) for each in (notebook.session, *notebook.jobs.sessions())):
        raise SessionActive(
            f"a background turn or a sub-agent works in {args.name!r}; wait for it, or stop it"
        )
    said = run_sync(
        lambda: end_worktree(
            notebook.session, args.action, args.name, ask=not args.yes, force=args.force
        )
    )
    return Said(visible(said))
