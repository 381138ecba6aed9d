"""The one gate: every tool call passes here before it has any effect.

The rule is `core.permissions.decide`; this file fetches what the rule needs, puts the card up
when it says ``ask``, and stores every decision before anything runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from op_jupyter.core.paths import Places
from op_jupyter.core.permissions import (
    GateCall,
    PermissionAnswer,
    PermissionMode,
    PermissionRequest,
    Verdict,
    build_request,
    decide,
)
from op_jupyter.core.rules import Rule, parse_rule
from op_jupyter.core.turn import ToolState
from op_jupyter.core.values import dataclass
from op_jupyter.tools.base import Tool
from op_jupyter.tools.gate import gate_call, places_of, under_real_names

if TYPE_CHECKING:
    from op_jupyter.engine.live import LiveTurn
    from op_jupyter.engine.session import AgentSession
    from op_jupyter.engine.tool_call import ToolEnv

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Permit:
    """What the gate decided about one call.

    Attributes:
        arguments: what to run; the very ones asked for, unless the person edited them.
        text: what the model is told when it is not allowed.
        state: of the result when it is not allowed.
        ends_turn: the person denied it on the card.
        approved: real paths that the permission speaks of.
        call: what will run, as the gate saw it.
        decision: who decided what, for the node.
    """

    allowed: bool
    arguments: Mapping[str, Any]
    call: GateCall
    text: str = ""
    state: ToolState = "denied"
    ends_turn: bool = False
    approved: tuple[Path, ...] = ()
    decision: Mapping[str, Any] = field(default_factory=dict)


def places_for(session: AgentSession) -> Places:
    """Where things are for the rules of *session*."""
    root = session.store_path
    stores = () if root is None else (root.parent,)
    return places_of(session.workspace, (*stores, *session.protected))


def rules_of(session: AgentSession) -> list[Rule]:
    """The rules in force: the user's own, and the session's."""
    kinds, places = session.rules, places_for(session)
    rules = [
        *(() if session.bounds is None else session.bounds.rules()),
        *session.user_rules,
        *(parse_rule(text, "allow") for text in kinds["allow"]),
        *(parse_rule(text, "deny") for text in kinds["deny"]),
    ]
    return [named for rule in rules for named in under_real_names(rule, places)]


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say about one call, before anybody is asked.

    Attributes:
        call: what would run.
        mode: the permission mode that held.
    """

    tool: Tool
    call: GateCall
    verdict: Verdict
    mode: PermissionMode

    @property
    def decision(self) -> Mapping[str, Any]:
        """For the node of the call; empty while a person still has to say."""
        if self.verdict.kind == "ask":
            return {}
        said = {"answer": self.verdict.kind, "how": self.verdict.by}
        if self.verdict.by == "mode":
            return {**said, "mode": self.mode}
        return {**said, "rule": self.verdict.rule_text} if self.verdict.rule_text else said


def judge(env: ToolEnv, tool: Tool, arguments: Mapping[str, Any]) -> Judged:
    """What the rules in force say about one call; asks nobody."""
    session = env.session
    call = gate_call(tool, arguments, session.workspace)
    mode = session.permission_mode
    verdict = decide(
        call,
        places=places_for(session),
        mode=mode,
        rules=rules_of(session),
        interactive=env.asker.interactive,
        everything=session.allow_everything,
    )
    return Judged(tool, call, verdict, mode)


async def ask_permission(
    env: ToolEnv, judged: Judged, call_id: str, arguments: Mapping[str, Any]
) -> Permit:
    """Decide about one call; asks a person when the rules say so."""
    tool, call, verdict = judged.tool, judged.call, judged.verdict
    if verdict.kind != "ask":
        return _by_rule(env, call_id, judged, arguments)
    session = env.session
    undo = await session.backups.promise(call, session.workspace)
    request = build_request(
        replace(call, undo=undo),
        verdict,
        call_id=call_id,
        turn_id=env.turn.id,
        mode=session.permission_mode,
        places=places_for(session),
    )
    asked = monotonic()
    answer = await session.cards.ask(env.turn, request, env.asker, session.answer_timeout)
    _tell(env, request, answer)
    waited = round(monotonic() - asked, 3)
    permit = _by_person(env, tool, call, verdict, answer, arguments)
    as_shown = permit.allowed and permit.arguments is arguments  # that is what the rule speaks of
    if answer.answer == "allow_session" and verdict.rule_text and as_shown:
        session.add_rule("allow", verdict.rule_text)
    return _recorded(env, call_id, permit, answer.answer, answer.how, waited)


def _tell(env: ToolEnv, request: PermissionRequest, answer: PermissionAnswer) -> None:
    try:
        env.asker.answered(request, answer)
    except Exception:
        log.warning("the answer on a card could not be passed on", exc_info=True)


def _by_rule(env: ToolEnv, call_id: str, judged: Judged, arguments: Mapping[str, Any]) -> Permit:
    call, verdict = judged.call, judged.verdict
    allowed = verdict.kind == "allow"
    told = "" if allowed else verdict.reason
    permit = Permit(allowed, arguments, call, told, approved=_paths(call))
    if verdict.by == "mode":  # the node says so; a record of its own would say nothing more
        return replace(permit, decision=judged.decision)
    return _recorded(env, call_id, permit, verdict.kind, verdict.by, 0.0, verdict.rule_text)


def _by_person(
    env: ToolEnv,
    tool: Tool,
    call: GateCall,
    verdict: Verdict,
    answer: PermissionAnswer,
    arguments: Mapping[str, Any],
) -> Permit:
    if answer.answer in ("allow", "allow_session"):
        return _allowed(env, tool, call, answer, arguments)
    if answer.answer == "deny_message":
        return Permit(False, arguments, call, answer.message or "denied by the person")
    return Permit(
        False,
        arguments,
        call,
        f"the person denied {tool.spec.name!r}: {verdict.reason}",
        ends_turn=True,
    )


def _allowed(
    env: ToolEnv,
    tool: Tool,
    call: GateCall,
    answer: PermissionAnswer,
    arguments: Mapping[str, Any],
) -> Permit:
    """What a person's yes is worth: it may be edited, and a rule may have come meanwhile."""
    edited = answer.arguments
    if edited is None or dict(edited) == dict(arguments):
        edited = arguments
    elif problem := env.tools.check(tool.spec.name, edited):
        told = f"InvalidArguments: the edited arguments do not fit: {problem}"
        return Permit(False, arguments, call, told, state="failed")
    changed = {} if edited is arguments else {"edited": edited}
    again = judge(env, tool, edited)
    now, verdict = again.call, again.verdict
    if verdict.kind == "deny" and verdict.by != "nobody":
        overruled = {**changed, "overruled_by": verdict.by}
        return Permit(False, arguments, call, verdict.reason, decision=overruled)
    seen = now if changed else call  # as shown: a link may lead elsewhere by now
    return Permit(True, edited, seen, approved=_paths(seen), decision=changed)


async def confirmed(session: AgentSession, turn: LiveTurn, request: PermissionRequest) -> bool:
    """Have the person confirm what a command of theirs is about to do; the answer is stored."""
    asked = monotonic()
    answer = await session.cards.ask(turn, request, session.asker, session.answer_timeout)
    session.recorder.record_decision(
        {
            "turn_id": turn.id,
            "tool_call_id": request.id,
            "answer": answer.answer,
            "how": answer.how,
            "waited_seconds": round(monotonic() - asked, 3),
        }
    )
    return answer.answer in ("allow", "allow_session")


def _recorded(
    env: ToolEnv,
    call_id: str,
    permit: Permit,
    answer: str,
    how: str,
    waited: float,
    rule: str = "",
) -> Permit:
    """*permit*, its decision stored: before the effect that it allows."""
    decision = {"answer": answer, "how": how, "waited_seconds": waited, **permit.decision}
    if rule:
        decision["rule"] = rule
    stored = {"turn_id": env.turn.id, "tool_call_id": call_id, **decision}
    env.session.recorder.record_decision(stored)
    return replace(permit, decision=decision)


def _paths(call: GateCall) -> tuple[Path, ...]:
    return tuple(Path(use.real) for use in call.paths)
