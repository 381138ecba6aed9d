"""Who may do what: values of the permission gate.  The decision order is in `decide`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

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
        rule: the rule that "allow for this session" would add, exactly.
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
