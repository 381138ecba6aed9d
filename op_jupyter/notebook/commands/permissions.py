"""What runs without asking, and the cards that wait."""

from __future__ import annotations

import argparse
from typing import Final

from op_jupyter.bootstrap import EVERYTHING
from op_jupyter.config.settings import CHOICES
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.rules import parse_rule
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import PermissionNotPending, UsageError
from op_jupyter.notebook.commands.base import Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag


@command(
    "mode",
    flag("mode", nargs="?", choices=CHOICES["mode"], help="The new mode."),
)
def mode(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Show or set the permission mode (what runs without asking) of this session."""
    if args.mode is not None:
        run_sync(notebook.session.set_permission_mode, args.mode)
    return Said(f"mode: {notebook.session.permission_mode}")


@command("allow", flag("rule", help="tool, tool(path glob) or tool(exact code)."), verbatim=True)
def allow(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Add a rule to this session: matching calls run without asking."""
    rule = parse_rule(_bare(args.rule), "allow")
    notebook.session.add_rule("allow", rule.text)
    return Said(f"allowed from now on: {rule.text}")


@command("deny", flag("rule", help="tool, tool(path glob) or tool(exact code)."), verbatim=True)
def deny(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Add a rule to this session: matching calls never run. Overrides allow rules."""
    rule = parse_rule(_bare(args.rule), "deny")
    notebook.session.add_rule("deny", rule.text)
    return Said(f"denied from now on: {rule.text}")


@command(
    "forget",
    flag("rule", kind="rule", help="The rule, as `%agent permissions` shows it."),
    verbatim=True,
)
def forget(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Remove a rule from this session."""
    rule = _bare(args.rule)
    if not notebook.session.remove_rule(rule):
        raise UsageError(f"this session has no rule {rule!r}; `%agent permissions` lists them")
    return Said(f"taken back: {rule}")


def _bare(rule: str) -> str:
    """*rule* without quotes around it: messages show it in them, and a shell would need them."""
    quoted = len(rule) > 1 and rule[0] == rule[-1] and rule[0] in "\"'"
    return rule[1:-1] if quoted else rule


@command("permissions")
def permissions(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """List the rules in force; `%agent forget RULE` removes one from this session."""
    session = notebook.session
    lines = [f"mode   {session.permission_mode}"]
    if session.allow_everything:
        lines.append(EVERYTHING)
    lines += [f"{rule.kind:<6} {rule.text}  (from {rule.origin})" for rule in session.user_rules]
    for kind, listed in session.rules.items():
        lines += [f"{kind:<6} {text}" for text in listed]
    lines += [f"waits  {card.id}: {card.tool}, {card.reason}" for _, card in _waiting(notebook)]
    return Said("\n".join(lines))


_CARD: Final = flag("id", kind="card", nargs="?", help="Which card, if several are waiting.")


@command("approve", _CARD)
def approve(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Allow a waiting call, once."""
    return _answer(notebook, args.id, PermissionAnswer("allow", "handler"), "allowed once")


@command("reject", _CARD)
def reject(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Deny a waiting call."""
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
