"""Phases of a turn and how they follow each other; outcomes; failure codes.

Every transition lives in this file.  Phases are for the user interface, never a checkpoint.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Final, Literal, TypeAlias

from op_jupyter.core.messages import Usage
from op_jupyter.core.values import dataclass


class Phase(Enum):
    """What the active turn is doing."""

    STARTING = "starting"
    PENDING = "pending"
    RUNNING_MODEL = "running_model"
    COMPACTING = "compacting"
    RUNNING_TOOLS = "running_tools"
    WAITING_PERMISSION = "waiting_permission"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDS: Final = frozenset({Phase.FAILED, Phase.CANCELLED})

TRANSITIONS: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.STARTING: frozenset({Phase.PENDING, Phase.RUNNING_MODEL, Phase.COMPACTING}) | _ENDS,
    Phase.PENDING: frozenset({Phase.RUNNING_MODEL, Phase.COMPACTING}) | _ENDS,
    Phase.RUNNING_MODEL: frozenset({Phase.COMPACTING, Phase.RUNNING_TOOLS, Phase.COMPLETED})
    | _ENDS,
    Phase.COMPACTING: frozenset({Phase.RUNNING_MODEL, Phase.COMPLETED}) | _ENDS,
    Phase.RUNNING_TOOLS: frozenset({Phase.WAITING_PERMISSION, Phase.RUNNING_MODEL}) | _ENDS,
    Phase.WAITING_PERMISSION: frozenset({Phase.RUNNING_TOOLS}) | _ENDS,
    Phase.COMPLETED: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.CANCELLED: frozenset(),
}

FailureCode: TypeAlias = Literal[
    "model_error",
    "model_protocol_error",
    "persistence_error",
    "chat_state_error",
    "compaction_error",
    "permission_denied",
    "doom_loop",
    "max_model_calls",
    "token_budget",
    "actor_stopped",
    "world_state_error",
    "workspace_error",
    "notebook_error",
    "agents_md_error",
    "skills_error",
    "variables_error",
]

ToolState: TypeAlias = Literal["succeeded", "failed", "denied", "cancelled", "outcome_unknown"]

MODEL_STATE: Final[dict[ToolState, Literal["success", "error", "denied", "interrupted"]]] = {
    "succeeded": "success",
    "failed": "error",
    "outcome_unknown": "error",
    "denied": "denied",
    "cancelled": "interrupted",
}
"""What the model sees of a tool call's state."""

NOT_EXECUTED: Final = "tool was not executed because the turn already terminated"
MAX_MODEL_CALLS: Final = 20
DOOM_LOOP: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended.  The first cause of a failure is the code that is kept."""

    status: Literal["completed", "failed", "cancelled"]
    text: str = ""
    code: FailureCode | None = None
    message: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)


def may_follow(current: Phase, following: Phase) -> bool:
    """Whether *following* is a legal next phase."""
    return following in TRANSITIONS[current]
