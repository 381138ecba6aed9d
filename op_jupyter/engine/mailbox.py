"""The mailbox of one session: ends of sub-agents' tasks, and messages from outside.

Each is a node of the graph before anybody hears of it.  So the mailbox is no more than the ended
tasks whose message the conversation does not hold yet, and the same after a restart: the message
of a task has one id, and a graph takes an id once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_jupyter.core.agents import (
    AGENT,
    AgentMessage,
    message_end,
    message_node_id,
    message_of,
    too_long,
)
from op_jupyter.core.graph import Dag
from op_jupyter.core.messages import TextBlock, block_to_json
from op_jupyter.core.nodes import Node
from op_jupyter.core.updates import clip
from op_jupyter.errors import EmptyInput, UsageError

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession


def task_nodes(dag: Dag) -> Iterator[Node]:
    """The nodes that stand for a task of a sub-agent, or for a message from outside."""
    for node in dag:
        named = isinstance(node.metadata.get("agent_id"), str)
        if node.metadata.get("kind") == AGENT and named:
            yield node


class Mailbox:
    """What *session* has not been told yet.  Used on the background loop alone.

    Attributes:
        arrived: set when something came since the last `drain`.
    """

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._waiting: deque[str] | None = None
        self.arrived = asyncio.Event()

    def _ended(self) -> deque[str]:
        """The tasks whose end waits to be told; read from the graph once."""
        if self._waiting is None:
            dag = self._session.dag
            self._waiting = deque(
                node.id
                for node in task_nodes(dag)
                if node.status != "running" and message_node_id(node.id) not in dag.nodes
            )
        return self._waiting

    def arrive(self, node_id: str) -> None:
        """Have the end of that task, which is stored, wait to be told."""
        if node_id not in self._ended():
            self._ended().append(node_id)
        self.arrived.set()

    def deliver(self, message: AgentMessage) -> bool:
        """Store a message and put it into the mailbox; False when it was delivered before.

        Raises:
            UsageError: it is empty or too long.
            StoreError: it could not be stored, and is not delivered.
        """
        if not message.text.strip():
            raise EmptyInput("the message is empty")
        if problem := too_long(message.text):
            raise UsageError(problem)
        if message.id in self._session.dag.nodes:
            return False
        status, output = message_end(message)
        self._session.recorder.append(
            Node(
                id=message.id,
                role="code",
                name=message.sender,
                output=output,
                status=status,
                predecessor=self._session.dag.head,
                metadata={"kind": AGENT, "agent_id": message.sender, "label": clip(message.task)},
            )
        )
        self.arrive(message.id)
        return True

    @property
    def waiting(self) -> int:
        """How many messages the conversation does not hold yet."""
        return len(self._ended())

    def drain(self, turn_id: str) -> None:
        """Store every message that has arrived as a part of the conversation, one by one.

        Raises:
            StoreError: one could not be stored; it and those after it stay in the mailbox.
        """
        self.arrived.clear()
        session, ended = self._session, self._ended()
        while ended:
            message = message_of(session.dag.node(ended[0]))
            session.recorder.append(
                Node(
                    id=message_node_id(message.id),
                    role="user",
                    name=message.sender,
                    input=[block_to_json(TextBlock(message.render()))],
                    status="completed",
                    predecessor=session.dag.head,
                    metadata={"turn_id": turn_id, "label": clip(message.text), "agent": True},
                ),
                advance_head=True,
            )
            ended.popleft()
