"""What may run without asking, for sessions that may at most what another one may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from op_jupyter.core.agents import at_most
from op_jupyter.core.permissions import PermissionMode
from op_jupyter.core.rules import Rule, parse_rule
from op_jupyter.core.values import dataclass
from op_jupyter.engine.gate import rules_of

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession


class Bounds(Protocol):
    """What holds for a session beside what is its own."""

    def mode(self, own: PermissionMode) -> PermissionMode:
        """The mode in force, where the session's own one is *own*."""

    def rules(self) -> Sequence[Rule]:
        """Rules that come before its own."""


@dataclass(frozen=True, slots=True)
class ParentBounds:
    """Those of a sub-agent: what its parent may, at any moment."""

    parent: AgentSession

    def mode(self, own: PermissionMode) -> PermissionMode:
        """*own*, or the parent's when that is stricter."""
        return at_most(own, self.parent.permission_mode)

    def rules(self) -> Sequence[Rule]:
        """The rules that hold for the parent."""
        return rules_of(self.parent)


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for a session at one moment; travels to workers."""

    permission_mode: PermissionMode
    all_rules: tuple[Rule, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `policy_from_json` reads back."""
        rules = [[rule.kind, rule.text, rule.origin] for rule in self.all_rules]
        return {"mode": self.permission_mode, "rules": rules}


def policy_of(session: AgentSession) -> Policy:
    """What holds for *session* now."""
    return Policy(session.permission_mode, tuple(rules_of(session)))


def policy_from_json(data: Mapping[str, Any]) -> Policy:
    """Inverse of `Policy.to_json`."""
    rules = (parse_rule(text, kind, origin) for kind, text, origin in data["rules"])
    return Policy(data["mode"], tuple(rules))


class PolicyBounds:
    """Those of a worker: exactly what holds where the call came from, as last heard."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def mode(self, own: PermissionMode) -> PermissionMode:
        """The mode there."""
        return self.policy.permission_mode

    def rules(self) -> Sequence[Rule]:
        """The rules there."""
        return self.policy.all_rules
