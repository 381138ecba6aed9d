"""Sub-agents: the values they exchange with their parent, and what they may at most."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from op_jupyter.core.nodes import Node, NodeStatus
from op_jupyter.core.permissions import PermissionMode
from op_jupyter.core.turn import Outcome
from op_jupyter.core.values import dataclass

AgentState: TypeAlias = Literal["completed", "failed", "cancelled", "interrupted"]

AGENT: Final = "agent"
"""The ``kind`` of a node that stands for one task of a sub-agent."""
WAIT_AGENT: Final = "wait_agent"
AGENT_TOOLS: Final = frozenset(
    {"spawn_agent", WAIT_AGENT, "list_agents", "followup_task", "interrupt_agent"}
)
"""The control tools for sub-agents; only a person's turn offers them."""
WAITS_IN_A_ROW: Final = 3
"""So many waits without any result are a doom loop."""
AT_ONCE: Final = 3
"""Most sub-agents of one session that run at the same time."""
SUB_AGENT_CALLS: Final = 15
"""Most model calls for one task of a sub-agent."""
MESSAGE_BYTES: Final = 16_000
"""4,000 tokens at four bytes each; a message is smaller."""
_TAIL_BYTES: Final = 4_000
_MARKER_BYTES: Final = 400

_MODES: Final[tuple[PermissionMode, ...]] = ("read_only", "accept_edits", "auto")
_NODE_STATUS: Final[dict[AgentState, NodeStatus]] = {
    "completed": "completed",
    "failed": "error",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}
_STATE: Final[dict[str, AgentState]] = {status: state for state, status in _NODE_STATUS.items()}
INTERRUPTED_TEXT: Final = (
    "The process ended before this task did. Nothing was run again; what it did until then is in "
    "its own session."
)


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """What a sub-agent sends its parent; the same *id* is never delivered twice.

    Attributes:
        sender: the sub-agent's id.
        state: how the task ended.
        task: first line of what it was asked.
        session_id: where everything that it did is recorded.
    """

    id: str
    sender: str
    text: str
    state: AgentState = "completed"
    task: str = ""
    session_id: str = ""

    def render(self) -> str:
        """The message as the parent's model reads it."""
        task = f", which was asked: {self.task}" if self.task else ""
        return f"[message from {self.sender}{task}]\n[{self.state}]\n{self.text}"


def at_most(mode: PermissionMode, limit: PermissionMode) -> PermissionMode:
    """The stricter one of two modes."""
    return min(mode, limit, key=_MODES.index)


def too_long(text: str) -> str:
    """Why *text* cannot be sent between agents, or "" when it can."""
    size = len(text.encode("utf-8", "replace"))
    if size < MESSAGE_BYTES:
        return ""
    return (
        f"the message is about {size // 4} tokens long and has to be under "
        f"{MESSAGE_BYTES // 4}; put the details into a file and name it"
    )


def fitted(text: str, session_id: str) -> str:
    """*text*, its middle cut out and marked when it is too long for a message."""
    raw = text.encode("utf-8", "replace")
    if len(raw) < MESSAGE_BYTES:
        return text
    head = MESSAGE_BYTES - _TAIL_BYTES - _MARKER_BYTES
    cut = len(raw) - head - _TAIL_BYTES
    marker = f"\n… {cut} bytes cut; the whole answer is in session {session_id:.128} …\n"
    return raw[:head].decode(errors="ignore") + marker + raw[-_TAIL_BYTES:].decode(errors="ignore")


def message_node_id(run_id: str) -> str:
    """The one id of the message that tells of that task's end, live or after a restart."""
    return f"{run_id}-result"


def node_end(outcome: Outcome, session_id: str) -> tuple[NodeStatus, dict[str, str]]:
    """Status and output of a task's node, from how the sub-agent's turn ended."""
    if outcome.status == "completed":
        return "completed", {"text": fitted(outcome.text, session_id)}
    told = f"{outcome.code}: {outcome.message}" if outcome.code else outcome.message
    return _NODE_STATUS[outcome.status], {"text": fitted(told, session_id)}


def message_end(message: AgentMessage) -> tuple[NodeStatus, dict[str, str]]:
    """Status and output of the node of a message from outside."""
    return _NODE_STATUS[message.state], {"text": message.text}


def message_of(node: Node) -> AgentMessage:
    """The message that tells of the end of a task, from its node."""
    state = _STATE.get(node.status, "failed")
    said = (node.output or {}).get("text") or node.metadata.get("error", {}).get("message", "")
    text = INTERRUPTED_TEXT if state == "interrupted" else said
    return AgentMessage(
        node.id,
        node.metadata["agent_id"],
        text,
        state,
        node.metadata.get("label", ""),
        node.metadata.get("session_id", ""),
    )
