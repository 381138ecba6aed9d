"""Who may do what: the values of the permission gate, and its one decision.

The order of `decide` (first that applies wins):

1. a write to a protected path is denied;
2. a deny rule denies; after it, the switch that allows everything else (for CI) allows;
3. something dangerous asks, whatever the mode, unless an allow rule names exactly this
   code or path;
4. an allow rule allows;
5. the mode allows, or the program's author did by passing the tool;
6. it asks, or is denied at once where nobody can answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.danger import CodeReading, read_code
from op_jupyter.core.paths import PathUse, Places, Tier, may_hold_secrets, tier_of
from op_jupyter.core.rules import Rule, exact_pattern, folder_pattern
from op_jupyter.core.values import dataclass

Effect: TypeAlias = Literal["read", "write", "execute", "network", "control"]
PermissionMode: TypeAlias = Literal["read_only", "accept_edits", "auto"]
Answer: TypeAlias = Literal["allow", "allow_session", "deny", "deny_message"]


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A question on a card.

    Attributes:
        id: the tool call's id (unique in the turn).
        tool, effect: what wants to run.
        arguments: the full arguments, as the call would run.
        reason: why it asks, one sentence.
        dangers: what is dangerous about it, one sentence each; ``lines`` in *display* marks
            the code lines.
        rule: the rule that "allow for this session" would add, exactly; empty when no one
            rule can say it, and then that answer is not offered.
        display: how to show the arguments: ``{"kind": "code", "language": "python",
            "code": ..., "lines": {"6": "deletes folders"}}``, ``{"kind": "diff", "path": ...,
            "diff": unified diff}`` or ``{"kind": "json"}``.
        undo: whether it can be undone, one sentence.
    """

    id: str
    turn_id: str
    tool: str
    effect: Effect
    arguments: Mapping[str, Any]
    reason: str
    mode: PermissionMode
    rule: str
    dangers: Sequence[str] = ()
    touches: Sequence[str] = ()
    display: Mapping[str, Any] = field(default_factory=lambda: {"kind": "json"})
    undo: str = ""

    def to_json(self) -> dict[str, Any]:
        """The wire form, as the card reads it."""
        return {
            "id": self.id,
            "turn_id": self.turn_id,
            "tool": self.tool,
            "effect": self.effect,
            "arguments": dict(self.arguments),
            "reason": self.reason,
            "mode": self.mode,
            "rule": self.rule,
            "dangers": list(self.dangers),
            "touches": list(self.touches),
            "display": dict(self.display),
            "undo": self.undo,
        }


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """What was decided, and by whom.

    Attributes:
        arguments: the edited arguments of "allow, edited"; None: as they were.
        message: goes to the model with ``deny_message``.
        how: ``click``, ``stdin``, ``terminal``, ``policy``, ``recording``, ``rule``,
            ``handler`` or ``timeout``.
    """

    answer: Answer
    how: str
    arguments: Mapping[str, Any] | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class GateCall:
    """A tool call as the gate sees it; `tools.gate.gate_call` makes one of a tool.

    Attributes:
        trusted: the program's author passed the tool.
        paths: everything it reads or writes, symlinks resolved.
        code, language: source that would run.
        reading: what that source would do; None: Python is read here.
        diff: what an edit would change.
        undo: whether it can be undone, one sentence.
    """

    tool: str
    effect: Effect
    arguments: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = False
    paths: Sequence[PathUse] = ()
    code: str = ""
    language: str = ""
    reading: CodeReading | None = None
    diff: str = ""
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says about one call.

    Attributes:
        reason: one sentence for a person; of a denial also what the model is told.
        by: which step of `decide` said it.
        rule_text: the rule that decided; otherwise the rule that would allow the call,
            exactly as "allow for this session" adds it (empty: no one rule can say it).
        dangers: one sentence each.
        code_lines: what is dangerous about a line of the code, by its number from 1.
    """

    kind: Literal["allow", "deny", "ask"]
    reason: str
    by: Literal["protected", "rule", "danger", "mode", "trusted", "nobody", "switch"]
    rule_text: str = ""
    dangers: tuple[str, ...] = ()
    code_lines: Mapping[int, str] = field(default_factory=dict)


def decide(
    call: GateCall,
    *,
    places: Places,
    mode: PermissionMode,
    rules: Sequence[Rule],
    interactive: bool,
    everything: bool = False,
) -> Verdict:
    """Whether *call* runs, is denied, or asks.  Pure; the order is the module's docstring.

    *everything* is the switch of this process that allows what is not denied.
    """
    findings = _examine(call, places)
    if findings.protected:
        return Verdict("deny", f"{call.tool} was not run: {findings.protected}", "protected")
    speaking = [rule for rule in rules if rule.tool == call.tool]
    for rule in speaking:
        if rule.kind == "deny" and _denies(rule, call, places):
            reason = f"{call.tool} was not run: the rule deny {rule.text} forbids it."
            return Verdict("deny", reason, "rule", rule.text)
    if everything:
        return Verdict("allow", "Everything is allowed in this process.", "switch")
    allows = [rule for rule in speaking if rule.kind == "allow"]
    if findings.dangers and not _names_all(allows, call, findings, places):
        return _ask(call, findings, findings.reason, "danger", places, interactive)
    if rule_text := _allowing(allows, call, places):
        return Verdict("allow", f"The rule {rule_text} allows it.", "rule", rule_text)
    refusal = _mode_refuses(call, mode, places)
    if call.trusted:
        return Verdict("allow", "The program that runs passed this tool itself.", "trusted")
    if refusal is None:
        return Verdict("allow", f"Mode {mode} allows it.", "mode")
    return _ask(call, findings, refusal, "mode", places, interactive)


# --- 1 and 3: protected and dangerous ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Findings:
    """What looking at a call found.

    *code_lines* and *paths* are what an allow rule has to name to lift the danger.
    """

    protected: str = ""
    dangers: tuple[str, ...] = ()
    code_lines: Mapping[int, str] = field(default_factory=dict)
    paths: tuple[PathUse, ...] = ()
    reason: str = ""


def _examine(call: GateCall, places: Places) -> _Findings:
    protected = [use for use in call.paths if _is_protected_write(use, places)]
    dangerous = [(use, words) for use in call.paths if (words := _path_words(use, places))]
    by_line: dict[int, list[str]] = {}
    reading = _reading(call)
    for danger in reading.dangers:
        by_line.setdefault(danger.line, []).append(danger.words)
    for touch in reading.touches:
        named = places.absolute(touch.path)
        use = PathUse(PurePosixPath(touch.real) if touch.real else named, named, touch.write)
        if _is_protected_write(use, places):
            protected.append(use)
        elif words := _path_words(use, places):
            by_line.setdefault(touch.line, []).append(words)
    lines = {line: _and(dict.fromkeys(words)) for line, words in sorted(by_line.items())}
    sentences = _path_sentences(dangerous, places)
    sentences += [f"Line {line} {words}." for line, words in lines.items()]
    return _Findings(
        _protected_sentence(protected, places),
        tuple(sentences),
        lines,
        tuple(use for use, _ in dangerous),
        _danger_reason(bool(lines)),
    )


def _reading(call: GateCall) -> CodeReading:
    if call.reading is not None:
        return call.reading
    return read_code(call.code) if call.language == "python" else CodeReading()


def _is_protected_write(use: PathUse, places: Places) -> bool:
    return use.write and tier_of(use, places) is Tier.PROTECTED


def _path_words(use: PathUse, places: Places) -> str:
    """What is dangerous about touching a path, as the end of the sentence "it …"."""
    tier, shown = tier_of(use, places), places.show(use.named)
    if use.real != use.named:
        shown = f"{shown} (really {places.show(use.real)})"
    if tier is Tier.CREDENTIAL:
        return f"touches credentials: {shown}"
    if not use.write:
        reveals = tier is not Tier.PROTECTED and any(may_hold_secrets(p) for p in use.names)
        return f"touches what may hold secrets: {shown}" if reveals else ""
    if tier is Tier.SENSITIVE:
        return f"writes to a sensitive path: {shown}"
    if tier is Tier.OUTSIDE:
        return f"writes outside the workspace: {shown}"
    return ""


def _path_sentences(dangerous: Sequence[tuple[PathUse, str]], places: Places) -> list[str]:
    """One for each path; of very many, for all credentials and some of the others."""
    named = [words for use, words in dangerous if tier_of(use, places) is Tier.CREDENTIAL]
    others = [words for use, words in dangerous if tier_of(use, places) is not Tier.CREDENTIAL]
    more = len(others) - _MOST_NAMED
    sentences = [f"It {words}." for words in (*named, *others[:_MOST_NAMED])]
    return [*sentences, f"It does the like to {more} more paths."] if more > 0 else sentences


def _protected_sentence(protected: Sequence[PathUse], places: Places) -> str:
    if not protected:
        return ""
    names = _and(dict.fromkeys(places.show(use.real) for use in protected))
    return (
        f"{names} is protected. Sessions, git hooks, skills and the project's own "
        "configuration are never written by a tool, and no rule changes that."
    )


def _danger_reason(in_code: bool) -> str:
    if in_code:
        return (
            "Dangerous code asks, in every mode. "
            "The check only reads the code and can be deceived: it is advice, no sandbox."
        )
    return "A dangerous path asks, in every mode."


def _and(words: Iterable[str]) -> str:
    return " and ".join(words)


# --- 2, 3 and 4: rules ------------------------------------------------------------------


def _denies(rule: Rule, call: GateCall, places: Places) -> bool:
    """A deny rule counts for either name of any path."""
    if rule.covers_everything or (call.code and rule.names_code(call.code)):
        return True
    return any(rule.matches_path(path, places) for use in call.paths for path in use.names)


def _names_all(allows: Sequence[Rule], call: GateCall, findings: _Findings, places: Places) -> bool:
    """Whether allow rules name exactly everything that is dangerous about the call."""
    if findings.code_lines and not any(rule.names_code(call.code) for rule in allows):
        return False
    return all(any(rule.names_path(use.real, places) for rule in allows) for use in findings.paths)


def _allowing(allows: Sequence[Rule], call: GateCall, places: Places) -> str:
    """The text of the rules that together allow all of the call, or nothing.

    Only the real path counts: a symlink must not carry a rule elsewhere.
    """
    found: list[Rule | None] = []
    if call.code:
        found.append(next((r for r in allows if r.matches_code(call.code)), None))
    found += [
        next((r for r in allows if r.matches_path(use.real, places)), None) for use in call.paths
    ]
    if not found:
        found.append(next((r for r in allows if r.covers_everything), None))
    used = {rule.text: None for rule in found if rule is not None}
    return _and(used) if None not in found else ""


def _rule_for(call: GateCall, findings: _Findings, places: Places) -> str:
    """The rule that would allow this call and ones like it; only this one when it is dangerous."""
    if call.code:
        if call.paths:
            return ""
        return f"{call.tool}({call.code if findings.code_lines else '*'})"
    if not call.paths:
        return call.tool
    pattern = exact_pattern if findings.paths else folder_pattern
    patterns = {pattern(use.real, places) for use in call.paths}
    return f"{call.tool}({patterns.pop()})" if len(patterns) == 1 else ""


# --- 5: the mode ------------------------------------------------------------------------


def _mode_refuses(call: GateCall, mode: PermissionMode, places: Places) -> str | None:
    """Why *mode* asks about the call; None: it lets it run."""
    if call.effect == "control" or mode == "auto":
        return None
    if call.effect == "read":
        return None
    if mode == "read_only":
        return _EVERY_CHANGE[call.effect]
    outside = any(not use.real.is_relative_to(places.workspace) for use in call.paths)
    if call.effect == "write" and call.paths and not outside:
        return None
    return _MORE_THAN_EDITS[call.effect]


_EVERY_CHANGE: Final[Mapping[Effect, str]] = {
    "write": "Every change asks in mode read_only.",
    "execute": "Running code asks in mode read_only.",
    "network": "Using the network asks in mode read_only.",
}

_MORE_THAN_EDITS: Final[Mapping[Effect, str]] = {
    "write": "Changing what is not a file of the workspace asks in mode accept_edits.",
    "execute": "Running code asks in mode accept_edits.",
    "network": "Using the network asks in mode accept_edits.",
}


# --- 6: ask, or say why not -------------------------------------------------------------


def _ask(
    call: GateCall,
    findings: _Findings,
    reason: str,
    by: Literal["danger", "mode"],
    places: Places,
    interactive: bool,
) -> Verdict:
    rule = _rule_for(call, findings, places)
    if interactive:
        return Verdict("ask", reason, by, rule, findings.dangers, findings.code_lines)
    told = " ".join(
        (
            f"{call.tool} was not run: nobody can be asked here.",
            reason,
            *findings.dangers,
            _way(rule),
        )
    )
    return Verdict("deny", told, "nobody", rule, findings.dangers, findings.code_lines)


def _way(rule: str) -> str:
    if not rule:
        return "No single rule would allow it."
    if len(rule) > _LONGEST_RULE_SHOWN or "\n" in rule or '"' in rule:
        tool = rule.split("(", 1)[0]
        return f"To allow it, add a rule that names exactly this code: {tool}(<the code>)."
    return f'To allow it: %agent allow "{rule}"'


_LONGEST_RULE_SHOWN: Final = 200
_MOST_NAMED: Final = 20
"""Paths that a card has a sentence on, when a call touches very many."""
_MOST_TOUCHES: Final = 60


def build_request(
    call: GateCall,
    verdict: Verdict,
    *,
    call_id: str,
    turn_id: str,
    mode: PermissionMode,
    places: Places,
) -> PermissionRequest:
    """The card for a call about which `decide` said ``ask``."""
    return PermissionRequest(
        id=call_id,
        turn_id=turn_id,
        tool=call.tool,
        effect=call.effect,
        arguments=call.arguments,
        reason=verdict.reason,
        mode=mode,
        rule=verdict.rule_text,
        dangers=verdict.dangers,
        touches=_touches(call, places),
        display=_display(call, verdict, places),
        undo=call.undo,
    )


def _touches(call: GateCall, places: Places) -> tuple[str, ...]:
    shown = tuple(dict.fromkeys(places.show(use.real) for use in call.paths))
    more = len(shown) - _MOST_TOUCHES
    return shown if more <= 0 else (*shown[:_MOST_TOUCHES], f"… and {more} more")


def _display(call: GateCall, verdict: Verdict, places: Places) -> Mapping[str, Any]:
    if call.code:
        lines = {str(line): words for line, words in verdict.code_lines.items()}
        return {"kind": "code", "language": call.language, "code": call.code, "lines": lines}
    if call.diff:
        path = places.show(call.paths[0].real) if call.paths else ""
        return {"kind": "diff", "path": path, "diff": call.diff}
    return {"kind": "json"}
