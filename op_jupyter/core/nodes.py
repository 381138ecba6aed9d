"""The one kind of node, and the records a session's journal is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.values import dataclass
from op_jupyter.errors import InvalidSessionId

NodeRole: TypeAlias = Literal["user", "llm", "code"]
NodeStatus: TypeAlias = Literal[
    "running", "completed", "error", "denied", "cancelled", "interrupted"
]
TurnStatus: TypeAlias = Literal["running", "completed", "failed", "cancelled", "interrupted"]
TurnKind: TypeAlias = Literal["agent", "call", "compaction", "rewind"]

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_session_id(session_id: str) -> str:
    """*session_id*, which is a safe folder name.

    Raises:
        InvalidSessionId: it is not.
    """
    if (
        not isinstance(session_id, str)
        or not _SESSION_ID.fullmatch(session_id)
        or ".." in session_id
    ):
        raise InvalidSessionId(
            f"{session_id!r} is not a session id: use letters, digits, '.', '_' and '-', "
            "starting with a letter or digit, at most 128 characters, no '..'"
        )
    return session_id


@dataclass(frozen=True, slots=True)
class Node:
    """Something that ran, or was said.

    Attributes:
        id: unique in the session.
        seq: place in the session's order; 0 means "the store gives the next one".
        created_at: UTC, ISO 8601.
        role: ``user`` (a person said it), ``llm`` (a model call), ``code`` (a function or tool).
        name: function or tool name, model name, or ``user``.
        input: JSON; for ``user`` the content blocks, for ``code`` the arguments.
        output: JSON; for ``llm`` the assistant message, for ``code`` the return value, or for
            a tool call ``{"state": ..., "content": [blocks]}``.
        status: see `NodeStatus`; entry writes ``running``, leaving fills it in.
        caller: id of the node that executed this one (None at top level).
        predecessor: id of the node that this one follows in the conversation.
        reads: what a model call was shown, in constant size.
        metadata: anything else: ``turn_id``, ``kind`` (``function``, ``tool`` or ``summary`` for
            code nodes), ``tool_call_id``, ``error``, ``gen_ai.*`` usage, attempts.
    """

    id: str
    role: NodeRole
    name: str
    input: Any = None
    output: Any = None
    status: NodeStatus = "running"
    caller: str | None = None
    predecessor: str | None = None
    reads: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    created_at: str = ""

    @property
    def turn_id(self) -> str | None:
        """The turn that this node belongs to."""
        return self.metadata.get("turn_id")


UPDATABLE: Final = frozenset({"output", "status", "reads", "metadata", "name"})
"""Fields an update may fill in; *metadata* is merged key by key, the others are replaced."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One top-level thing that happened: a prompt, a bare call, a compaction.

    Attributes:
        subject: first words of the prompt, or the call; the subject line of its commit.
        base: the node that the turn follows (None at the start), which fixes the commit's parent.
        client_request_id: makes `start_turn` idempotent, also after a restart.
        failure: ``{"code": ..., "message": ...}`` of a failed turn.
    """

    id: str
    kind: TurnKind = "agent"
    status: TurnStatus = "running"
    subject: str = ""
    base: str | None = None
    client_request_id: str | None = None
    started_at: str = ""
    finished_at: str | None = None
    failure: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
