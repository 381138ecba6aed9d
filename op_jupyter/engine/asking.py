"""Who answers when something asks.

The actor puts a card up and starts its `Asker` at the same time; a click reaches the actor
through `AgentSession.resolve_permission`.  The first answer wins, the other is called off.
"""

from __future__ import annotations

from typing import Protocol

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest


class Asker(Protocol):
    """One way, or a chain of ways, to get an answer."""

    @property
    def interactive(self) -> bool:
        """Whether a person can answer.  If not, the gate denies at once and names the rule."""

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """The answer.  It may take for ever: a click may come first, or the turn be cancelled."""

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Hear what was answered, whoever answered it."""


class HeadlessAsker:
    """Nobody is there."""

    interactive = False

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """Deny, and say which rule would have allowed it."""
        return PermissionAnswer("deny_message", "policy", message=nobody_can_answer(request.rule))

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Nothing to do."""


def nobody_can_answer(rule: str) -> str:
    """What the model, and the person who reads the notebook later, are told."""
    return (
        f"denied: this asks for permission and nobody can answer here; the rule `{rule}` "
        f"would allow it (`%agent allow {rule}`)"
    )
