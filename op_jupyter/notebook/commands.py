"""What ``%agent WORD`` does.  Each command returns what it says; nothing here prints."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from op_jupyter.bootstrap import EVERYTHING
from op_jupyter.config.settings import CHOICES
from op_jupyter.core.compaction import rewind_target
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.rules import parse_rule
from op_jupyter.engine.agent_tools import agent_line
from op_jupyter.engine.compaction import CompactionStart
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.undo import (
    Undone,
    changed_in,
    changed_since,
    last_change,
    told,
    undo_calls,
)
from op_jupyter.engine.worktrees import end_worktree
from op_jupyter.errors import (
    PermissionNotPending,
    SessionActive,
    TurnFailed,
    UnknownNode,
    UsageError,
)
from op_jupyter.notebook.background import is_background
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import arguments, flag, parse
from op_jupyter.store.base import SessionInfo
from op_jupyter.tools.worktrees import Repository, Worktree
from op_jupyter.views.details import details_text, node_details
from op_jupyter.views.terminal import session_lines
from op_jupyter.views.text import count, one_line, visible
from op_jupyter.views.words import LOOKS

_LABEL_CHARS: Final = 70
_SUB_AGENTS: Final = 200
"""So many sessions of sub-agents may be newer; `%agent agents` lists those, of one session."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command shows: text for every front end, and perhaps more."""

    text: str
    html: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


Command: TypeAlias = Callable[[Notebook, argparse.Namespace, str], Said]


def run_command(notebook: Notebook, line: str) -> Said:
    """Run the command that *line* names; an empty line asks for the status.

    Raises:
        UsageError: there is no such command, or it is used wrongly.
        HelpWanted: ``--help`` was asked for.
    """
    word, _, rest = line.strip().partition(" ")
    word = "help" if word in ("-h", "--help") else word or "status"
    command = COMMANDS.get(word)
    if command is None:
        near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
        meant = f" (did you mean `%agent {near[0]}`?)" if near else ""
        raise UsageError(
            f"%agent has no command {word!r}{meant}; `%agent help` lists them. To send a prompt, "
            "write it under %%agent in a cell of its own"
        )
    rest = rest.strip()
    if word in _WITH_A_RULE and rest and not rest.startswith("-" if word != "tools" else "--"):
        # A rule may hold exact code, with its own quotes and spaces.
        return command(notebook, argparse.Namespace(rule=rest), rest)
    return command(notebook, parse(command, rest), rest)


# -- sessions


@arguments("agent status")
def status(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """Show the session, the model, the mode, and where each setting comes from."""
    session, dag = notebook.session, notebook.session.dag
    chosen = notebook.config.settings()
    lines = [f"session      {session.session_id} ({count(len(dag.turns), 'turn')})"]
    if (folder := notebook.store.path(session.session_id)) is not None:
        lines.append(f"folder       {folder}")
    lines.append(f"workspace    {session.workspace}")
    lines.append(f"mode         {session.permission_mode}")
    lines.append(f"sandbox      {session.sandbox}")
    lines.append(f"tools        {', '.join(session.tools.names) or 'none'}")
    if skills := notebook.skills.read().skills:
        lines.append(f"skills       {', '.join(skill.name for skill in skills)}")
    for name, setting in chosen.values.items():
        if name not in ("mode", "home"):
            lines.append(f"{name:<12} {setting.value} (from {setting.origin})")
    lines += [f"note         {note}" for note in _notes(notebook)]
    earlier = notebook.earlier()
    if earlier is not None:
        lines.append(f"earlier      {_session_words(earlier)}: `%agent resume` goes on with it")
    return Said("\n".join(lines), metadata=_named(session.session_id))


def _named(session_id: str) -> dict[str, Any]:
    """The id for the output's metadata, where it breaks no rerun."""
    return {"openprogram": {"session_id": session_id}}


def _notes(notebook: Notebook) -> list[str]:
    kept = notebook.session.store.status
    notes = [*kept.repaired, kept.read_only, kept.git_behind]
    if notebook.session.allow_everything:
        notes.append(EVERYTHING)
    if reason := notebook.lent.why_no_clicks():
        notes.append(f"cards cannot be clicked while a cell runs: {reason}; answer by text")
    if dropped := notebook.session.trace.dropped_signals:
        notes.append(f"{count(dropped, 'trace signal')} dropped: the exporter is slow or broken")
    notes += notebook.skills.read().warnings
    return [note for note in notes if note]


def _session_words(info: SessionInfo) -> str:
    when = info.updated_at[:16].replace("T", " ")
    title = f", {one_line(info.title, _LABEL_CHARS)!r}" if info.title else ""
    return f"{info.id}, {count(info.turns, 'turn')}, last used {when} UTC{title}"


@arguments(
    "agent sessions",
    flag("--limit", type=int, default=20, help="How many; the newest first."),
)
def sessions(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """List the sessions there are."""
    here = notebook.session.session_id
    found = notebook.store.sessions(args.limit + _SUB_AGENTS)
    listed = [info for info in found if info.source != "agent"][: args.limit]
    if not listed:
        return Said("There are no sessions yet; a %%agent cell makes the first.")
    lines = [f"{'*' if info.id == here else ' '} {_session_words(info)}" for info in listed]
    return Said("\n".join(lines))


@arguments("agent new")
def new(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """Begin a new session in this notebook; the old one stays in the list."""
    handle = notebook.new()
    return Said("A new session has begun.", metadata=_named(handle.session_id))


@arguments(
    "agent resume",
    flag("id", nargs="?", help="Which one; without it the latest one of this notebook."),
)
def resume(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Go on with an earlier session."""
    handle = notebook.resume(args.id)
    dag = handle.agent.dag
    lines = [f"Resumed, with {count(len(dag.turns), 'turn')}. Nothing was run again."]
    lines += [f"note: {note}" for note in handle.agent.store.status.repaired]
    return Said("\n".join(lines), metadata=_named(handle.session_id))


# -- what happened


@arguments("agent history")
def history(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """Show the active line: prompts and answers, with the ids that `show` and `rewind` take."""
    spine = notebook.session.dag.spine()
    if not spine:
        return Said("Nothing has happened in this session yet.")
    width = max(len(node.id) for node in spine)
    return Said("\n".join(f"{node.id:<{width}}  {_line(node)}" for node in spine))


def _line(node: Node) -> str:
    word = LOOKS.get(node.status, ("", node.status))[1]
    told = "" if node.status == "completed" else f" [{word}]"
    if node.role == "user":
        who = visible(node.name) if node.metadata.get("agent") else "you"
        return f"{who}: {one_line(node_details(node)['input'], _LABEL_CHARS)}"
    said = node_details(node)["output"] or node_details(node)["input"]
    return f"{visible(node.name)}{told}: {one_line(said, _LABEL_CHARS)}"


@arguments("agent dag")
def dag(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """Draw everything that ran in this session."""
    from op_jupyter.views.svg import session_svg

    graph = notebook.session.dag
    if not len(graph):
        return Said("Nothing has happened in this session yet.")
    drawing = session_svg(graph)
    return Said("\n".join(session_lines(graph)), f'<div style="overflow-x:auto">{drawing}</div>')


@arguments(
    "agent show",
    flag("node", help="Id of the node, or as much of its beginning as is unique."),
    flag("--prompt", action="store_true", help="What the model was sent, for model calls."),
)
def show(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Show one node: what went in and what came out, or the prompt of a model call."""
    session = notebook.session
    node = _node(session.dag, args.node)
    if args.prompt:
        request, proven = request_of(session.dag, node.id, session.store.read_blob)
        doubt = "" if proven else "(not proven: it no longer hashes to what was sent)\n"
        return Said(visible(doubt + prompt_text(request)))
    return Said(details_text(node, session.dag.decision_of(node)))


def _node(graph: Dag, named: str) -> Node:
    found = [node for node in graph if node.id.startswith(named)]
    if len(found) == 1 or named in graph.nodes:
        return graph.nodes.get(named) or found[0]
    if not found:
        return graph.node(named)
    raise UnknownNode(
        f"{count(len(found), 'node')} begin with {named!r}: "
        f"{', '.join(node.id for node in found[:5])}",
        node_id=named,
    )


# -- the line

_UNDO_FLAGS: Final = (
    flag("--yes", action="store_true", help="Put files back without asking first."),
    flag(
        "--force",
        action="store_true",
        help="Also where a file changed since in another way; what it is now is kept.",
    ),
)


@arguments(
    "agent compact",
    flag("--model", metavar="M", help="Have this model write the summary."),
    flag("--provider", metavar="P", help="Have this model service write it."),
)
def compact(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Replace the conversation by a summary; `rewind` to the summary brings it back."""
    session = notebook.session
    runtime = notebook.service(provider=args.provider).runtime
    start = CompactionStart(runtime, session.tools, args.model)
    turn_id, outcome = run_sync(session.compact, start)
    if outcome.status != "completed":
        code = outcome.code or "failed"
        raise TurnFailed(f"{code}: {outcome.message}", code=code, turn_id=turn_id)
    summary = session.dag.node(str(session.dag.head))
    covered = count(len(summary.input["covers"]), "node")
    return Said(
        f"A summary stands for {covered} now. `%agent rewind {summary.id}` takes it back.\n\n"
        f"{visible(outcome.text)}"
    )


@arguments(
    "agent rewind",
    flag("node", help="Id of a prompt or an answer, or as much of its beginning as is unique."),
    flag("--files", action="store_true", help="Put files back to what they were then, too."),
    *_UNDO_FLAGS,
)
def rewind(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Go on from before a prompt or after an answer; what came later keeps a branch of its own."""
    session = notebook.session
    node, left = _node(session.dag, args.node), session.dag.head
    rewind_target(session.dag, node.id)  # refuses what is no part of the conversation
    files = ""
    if args.files:
        undone = _undo(session, changed_since(session, node.id), args)
        files = f"\n{told(undone)}"
        if undone.denied:
            return Said(f"The conversation stays as it is.{files}")
    target = run_sync(session.rewind, node.id)
    if target == left:
        return Said(f"The conversation already ends there.{files}")
    where = "at its beginning" if target is None else f"after {_line(session.dag.node(target))}"
    return Said(f"The conversation goes on {where}\nWhat came later ended with {left}.{files}")


# -- files


@arguments(
    "agent undo",
    flag("turn", nargs="?", help="Id of a turn, or of a call; the newest that changed files."),
    *_UNDO_FLAGS,
)
def undo(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Put the files that a turn changed back to what they were; can be undone itself."""
    session = notebook.session
    turn_id = _turn_of(session.dag, args.turn) if args.turn else last_change(session)
    if turn_id is None:
        return Said("No call of this session changed a file that could be put back.")
    calls = changed_in(session, turn_id)
    return Said(told(_undo(session, calls, args)))


def _turn_of(graph: Dag, named: str) -> str:
    found = [turn_id for turn_id in graph.turns if turn_id.startswith(named)]
    if len(found) == 1 or named in graph.turns:
        return named if named in graph.turns else found[0]
    return _node(graph, named).turn_id or ""


def _undo(session: AgentSession, calls: list[Node], args: argparse.Namespace) -> Undone:
    undone: Undone = run_sync(
        lambda: undo_calls(session, calls, ask=not args.yes, force=args.force)
    )
    return undone


@arguments("agent worktrees")
def worktrees(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """List the git worktrees that agents worked in, and what is in them."""
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


@arguments(
    "agent worktree",
    flag("action", choices=("merge", "drop"), help="Merge it into your branch, or delete it."),
    flag("name", help="Which, as `%%agent worktrees` lists it."),
    flag("--yes", action="store_true", help="Do not ask first."),
    flag("--force", action="store_true", help="With --yes: also drop what is not committed."),
)
def worktree(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Merge a worktree into the branch of your repository, or drop it; asks first."""
    path = Repository(notebook.session.workspace).get(args.name).path
    if any(session.worktree == path for session in notebook.jobs.sessions()):
        raise SessionActive(f"a background turn works in {args.name!r}; wait for it, or stop it")
    said = run_sync(
        lambda: end_worktree(
            notebook.session, args.action, args.name, ask=not args.yes, force=args.force
        )
    )
    return Said(visible(said))


@arguments("agent agents")
def agents(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """List the sub-agents of this session, and the sessions that they work in."""
    listed = run_sync(notebook.session.sub_agents)
    lines = [f"{agent_line(agent, node)} (session {agent.session_id})" for agent, node in listed]
    return Said(visible("\n".join(lines)) or "There are no sub-agents in this session.")


# -- background turns


@arguments("agent jobs")
def jobs(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """List the background turns: of this kernel, and of earlier ones in this session."""
    live = {job.id: job for job in notebook.jobs}
    lines = [f"{job.id}: {job.status}, {job.progress}" for job in live.values()]
    stored = [turn for turn in notebook.session.dag.turns.values() if is_background(turn)]
    lines += [
        f"{turn.id}: {turn.status}, {one_line(turn.subject, _LABEL_CHARS)}"
        for turn in stored
        if turn.id not in live
    ]
    return Said("\n".join(lines) or "There are no background turns.")


_JOB: Final = flag("id", nargs="?", help="Which one; needed when several run.")


@arguments("agent wait", _JOB)
def wait(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Wait for the end of a background turn, and show its answer."""
    return Said(visible(str(notebook.jobs.get(args.id).result())))


@arguments("agent cancel", _JOB)
def cancel(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Stop a background turn; what it did so far is kept."""
    job = notebook.jobs.get(args.id)
    return Said("It is being stopped." if job.cancel() else f"It was over already: {job.status}.")


# -- permissions


@arguments(
    "agent mode",
    flag("mode", nargs="?", choices=CHOICES["mode"], help="The new mode."),
)
def mode(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Show or set what runs without asking; kept with the session."""
    if args.mode is not None:
        run_sync(notebook.session.set_permission_mode, args.mode)
    return Said(f"mode: {notebook.session.permission_mode}")


@arguments(
    "agent tools",
    flag("changes", nargs="*", help="+NAME offers one more (shell), -NAME no longer does."),
)
def tools(notebook: Notebook, _args: argparse.Namespace, rest: str) -> Said:
    """List the tools that are offered; +shell offers the shell, too, and -shell no longer."""
    from op_jupyter.notebook.toolbox import extra_tool

    session = notebook.session
    notebook.connect_servers(session)
    extra = list(session.dag.meta.get("extra_tools", ()))
    for change in rest.split():
        sign, name = change[0], change[1:]
        if sign not in "+-":
            raise UsageError(f"write +{change} to offer it, -{change} to offer it no longer")
        extra_tool(name, session)
        extra = [*(kept for kept in extra if kept != name), *([name] if sign == "+" else ())]
    if rest:
        session.recorder.set_meta(extra_tools=extra)
        notebook.offer_tools(session)
    lines = [f"tools: {', '.join(session.tools.names)}", f"sandbox: {session.sandbox}"]
    return Said("\n".join([*lines, *notebook.servers.problems]))


@arguments("agent allow", flag("rule", help="tool, tool(path glob), tool(exact code)."))
def allow(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Let calls that fit a rule run without asking; kept with the session."""
    rule = parse_rule(args.rule, "allow")
    notebook.session.add_rule("allow", rule.text)
    return Said(f"allowed from now on: {rule.text}")


@arguments("agent deny", flag("rule", help="tool, tool(path glob), tool(exact code)."))
def deny(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Never run calls that fit a rule; kept with the session, and stronger than allow."""
    rule = parse_rule(args.rule, "deny")
    notebook.session.add_rule("deny", rule.text)
    return Said(f"denied from now on: {rule.text}")


@arguments("agent forget", flag("rule", help="The rule, as `%agent permissions` shows it."))
def forget(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Take a rule of this session back."""
    if not notebook.session.remove_rule(args.rule):
        raise UsageError(f"this session has no rule {args.rule!r}; `%agent permissions` lists them")
    return Said(f"taken back: {args.rule}")


@arguments("agent permissions")
def permissions(notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """List the rules in force; `%agent forget RULE` takes one of the session back."""
    session = notebook.session
    lines = [f"mode   {session.permission_mode}"]
    if session.allow_everything:
        lines.append(EVERYTHING)
    lines += [f"{rule.kind:<6} {rule.text}  (from {rule.origin})" for rule in session.user_rules]
    for kind, listed in session.rules.items():
        lines += [f"{kind:<6} {text}" for text in listed]
    lines += [f"waits  {card.id}: {card.tool}, {card.reason}" for _, card in _waiting(notebook)]
    return Said("\n".join(lines))


_CARD: Final = flag("id", nargs="?", help="Which card; needed when several wait.")


@arguments("agent approve", _CARD)
def approve(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Allow, once, a call that waits for an answer."""
    return _answer(notebook, args.id, PermissionAnswer("allow", "handler"), "allowed once")


@arguments("agent reject", _CARD)
def reject(notebook: Notebook, args: argparse.Namespace, _rest: str) -> Said:
    """Deny a call that waits for an answer."""
    return _answer(notebook, args.id, PermissionAnswer("deny", "handler"), "denied")


def _answer(notebook: Notebook, named: str | None, answer: PermissionAnswer, word: str) -> Said:
    waiting = _waiting(notebook)
    card = _card([card for _, card in waiting], named)
    session = next(session for session, known in waiting if known is card)
    run_sync(session.resolve_permission, card.turn_id, card.id, answer)
    return Said(f"{word}: {card.tool}")


def _waiting(notebook: Notebook) -> list[tuple[AgentSession, PermissionRequest]]:
    """The cards of this session, and of those that background turns run in."""
    sessions = {session.session_id: session for session in notebook.jobs.sessions()}
    sessions[notebook.session.session_id] = notebook.session
    return [(session, card) for session in sessions.values() for card in session.pending_cards()]


def _card(waiting: list[PermissionRequest], named: str | None) -> PermissionRequest:
    fitting = [card for card in waiting if named in (None, card.id)]
    if len(fitting) == 1:
        return fitting[0]
    if not waiting:
        raise PermissionNotPending("no call waits for an answer")
    ids = ", ".join(f"{card.id} ({card.tool})" for card in waiting)
    raise PermissionNotPending(f"say which one; these wait: {ids}")


# -- help


@arguments("agent help")
def show_help(_notebook: Notebook, _args: argparse.Namespace, _rest: str) -> Said:
    """List the commands."""
    lines = [f"%agent {word:<12} {_summary(command)}" for word, command in COMMANDS.items()]
    return Said(
        "Write a prompt under %%agent in a cell of its own (`%%agent --help` shows its flags).\n"
        + "\n".join(lines)
        + "\n%agent WORD --help tells more of each."
    )


def _summary(command: Any) -> str:
    description: str = command.parser.description
    return description.strip().split("\n", 1)[0]


COMMANDS: Final[dict[str, Command]] = {
    "status": status,
    "sessions": sessions,
    "new": new,
    "resume": resume,
    "history": history,
    "dag": dag,
    "show": show,
    "agents": agents,
    "jobs": jobs,
    "wait": wait,
    "cancel": cancel,
    "compact": compact,
    "rewind": rewind,
    "undo": undo,
    "worktrees": worktrees,
    "worktree": worktree,
    "tools": tools,
    "mode": mode,
    "allow": allow,
    "deny": deny,
    "forget": forget,
    "permissions": permissions,
    "approve": approve,
    "reject": reject,
    "help": show_help,
}
_WITH_A_RULE: Final = frozenset({"allow", "deny", "forget", "tools"})
