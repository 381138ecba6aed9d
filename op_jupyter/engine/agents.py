"""The sub-agents of one session.

A sub-agent is a session of its own with the same loop.  Each task of one is a node of the
parent's graph, stored before it starts; its end is stored there before anybody hears of it, which
is through the mailbox (`engine.mailbox`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from op_jupyter.core.agents import (
    AGENT,
    AGENT_TOOLS,
    AT_ONCE,
    SUB_AGENT_CALLS,
    at_most,
    node_end,
    too_long,
)
from op_jupyter.core.messages import TextBlock
from op_jupyter.core.nodes import Node
from op_jupyter.core.permissions import PermissionMode
from op_jupyter.core.turn import Outcome
from op_jupyter.core.updates import Update, clip
from op_jupyter.core.values import dataclass
from op_jupyter.engine import context
from op_jupyter.engine.asking import HeadlessAsker
from op_jupyter.engine.context import Place
from op_jupyter.engine.live import KEEP_HEAD
from op_jupyter.engine.mailbox import Mailbox, task_nodes
from op_jupyter.engine.policy import ParentBounds
from op_jupyter.engine.settling import settled
from op_jupyter.engine.worktrees import worktree_section
from op_jupyter.engine.world_state import WorldState, mode_section, workspace_section
from op_jupyter.errors import EmptyInput, OpenProgramError, SessionStateError, UsageError
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.engine.session import AgentSession, TurnStart

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 10.0


class Home(Protocol):
    """Where sub-agents' sessions live: beside their parent's."""

    def create(self, session_id: str, **meta: object) -> str:
        """Reserve a session of about that id, and return its id."""

    def acquire(self, session_id: str) -> AgentSession:
        """Open it."""

    def release(self, session: AgentSession) -> None:
        """Close it."""


@dataclass(slots=True, eq=False)
class Agent:
    """One sub-agent.

    Attributes:
        run: node of its latest task.
        place: the worktree of its own; None: it works where its parent does.
        doing: what it did last, for a list.
        ended: set while it does nothing.
    """

    id: str
    session_id: str
    run: str
    place: Place | None = None
    doing: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[Outcome] | None = None

    @property
    def running(self) -> bool:
        """Whether it works at a task now."""
        return self.work is not None


class Agents:
    """The sub-agents of *session*.  Used on the background loop alone, but for `running`."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._known: dict[str, Agent] | None = None
        self.mailbox = Mailbox(session)

    # -- what there is

    @property
    def running(self) -> list[Agent]:
        """Those that work at a task now."""
        return [agent for agent in list((self._known or {}).values()) if agent.running]

    def listed(self) -> list[tuple[Agent, Node]]:
        """Each sub-agent with the node of its latest task, in the order they were made."""
        return [(a, self._session.dag.node(a.run)) for a in self._all().values()]

    def get(self, agent_id: str) -> Agent:
        """The sub-agent of that id.

        Raises:
            UsageError: there is none.
        """
        agent = self._all().get(agent_id)
        if agent is None:
            known = ", ".join(self._all()) or "none yet"
            raise UsageError(f"there is no sub-agent {agent_id!r:.60}; there are: {known}")
        return agent

    def _all(self) -> dict[str, Agent]:
        """Read from the graph once: after a restart, that is where they are."""
        if self._known is None:
            self._known = {}
            for node in task_nodes(self._session.dag):
                self._note(node)
        return self._known

    def _note(self, node: Node) -> Agent | None:
        """Know the sub-agent that *node* is a task of; None for a message from outside."""
        assert self._known is not None
        agent_id, session_id = node.metadata["agent_id"], node.metadata.get("session_id")
        if not isinstance(session_id, str):
            return None
        agent = self._known.get(agent_id)
        if agent is None:
            place = _place_of(node)
            agent = self._known[agent_id] = Agent(agent_id, session_id, node.id, place)
            agent.ended.set()
        agent.run = node.id
        return agent

    # -- tasks

    @property
    def workspace(self) -> Path:
        """Where they work, unless they have a worktree of their own."""
        return self._session.workspace

    def spawn(
        self,
        start: TurnStart,
        caller: str,
        message: str,
        mode: PermissionMode,
        place: Place | None = None,
    ) -> Agent:
        """Make a sub-agent and have it work at *message*; *caller* is the node that asked.

        Raises:
            UsageError: the message is empty or too long.
            SessionStateError: too many run, one works in *place*, or this session can have none.
            StoreError: it could not be recorded, and was not started.
        """
        home = self.check(message)
        self._check_place(place)
        known = self._all()
        agent_id = f"agent-{len(known) + 1}"
        session_id = home.create(
            f"{self._session.session_id}.{agent_id}",
            source="agent",
            title=self._session.recorder.clean(clip(message)),
            mode=at_most(mode, self._session.permission_mode),
            parent={"session_id": self._session.session_id, "node_id": caller},
        )
        node = self._record(caller, message, agent_id, session_id, place)
        agent = self._note(node)
        assert agent is not None
        self._begin(agent, start, message)
        return agent

    def follow_up(self, start: TurnStart, caller: str, agent_id: str, message: str) -> Agent:
        """Give a sub-agent that is done another task; it remembers the earlier ones.

        Raises:
            UsageError: there is no such sub-agent; the message is empty or too long.
            SessionStateError: it still works, or too many others do.
            StoreError: it could not be recorded, and was not started.
        """
        agent = self.get(agent_id)
        if agent.running:
            raise SessionStateError(
                f"{agent_id} is still working; wait for it with wait_agent, or stop it with "
                "interrupt_agent"
            )
        self.check(message)
        self._check_place(agent.place)
        self._note(self._record(caller, message, agent_id, agent.session_id, agent.place))
        self._begin(agent, start, message)
        return agent

    def _check_place(self, place: Place | None) -> None:
        if place is None:
            return
        if not place.workspace.is_dir():
            raise UsageError(
                f"the worktree {place.worktree} is gone; give the task to a new sub-agent"
            )
        for other in self.running:
            if other.place is not None and other.place.worktree == place.worktree:
                raise SessionStateError(
                    f"{other.id} works in worktree {place.worktree.name}; wait for it, or name "
                    "another one"
                )

    def check(self, message: str) -> Home:
        """Whether a task can be given now; where the sessions are kept.

        Raises:
            UsageError: the message is empty or too long.
            SessionStateError: too many run, or this session can have none.
        """
        if not message.strip():
            raise EmptyInput("the message is empty; write what the sub-agent should do")
        if problem := too_long(message):
            raise UsageError(problem)
        if len(busy := self.running) >= AT_ONCE:
            names = ", ".join(agent.id for agent in busy)
            raise SessionStateError(
                f"{AT_ONCE} sub-agents work already ({names}); wait for one with wait_agent, or "
                "stop one with interrupt_agent"
            )
        if self._session.home is None:
            raise SessionStateError("this session cannot have sub-agents: it has no store")
        return self._session.home

    def _record(
        self, caller: str, message: str, agent_id: str, session_id: str, place: Place | None
    ) -> Node:
        where = {}
        if place is not None:
            where = {"worktree": str(place.worktree), "workspace": str(place.workspace)}
        return self._session.recorder.append(
            Node(
                id=self._session.new_id("task"),
                role="code",
                name=agent_id,
                input={"message": message},
                caller=caller,
                metadata={
                    "kind": AGENT,
                    "turn_id": self._session.dag.node(caller).turn_id,
                    "agent_id": agent_id,
                    "session_id": session_id,
                    "label": clip(message),
                    **where,
                },
            )
        )

    def _begin(self, agent: Agent, start: TurnStart, message: str) -> None:
        agent.ended.clear()
        agent.doing = "starting"
        # What runs in the parent's turn is no part of the sub-agent's.
        fresh = contextvars.copy_context()
        fresh.run(context.leave_all)
        agent.work = asyncio.get_running_loop().create_task(
            self._work(agent, start, message), context=fresh
        )
        # A task that is stopped before its first step runs no code of its own.
        agent.work.add_done_callback(lambda work: self._end(agent, _ended(work)))

    async def _work(self, agent: Agent, start: TurnStart, message: str) -> Outcome:
        try:
            return await self._turn(agent, start, message)
        except OpenProgramError as error:
            return Outcome("failed", code="actor_stopped", message=error.message)
        except Exception as error:
            log.warning("task %s of %s failed", agent.run, agent.id, exc_info=True)
            told = f"{type(error).__name__}: {error}"
            return Outcome("failed", code="actor_stopped", message=told)

    async def _turn(self, agent: Agent, start: TurnStart, message: str) -> Outcome:
        home = self._session.home
        assert home is not None
        child = await _opened(home, agent.session_id)
        if not _is_child(child, self._session.session_id):
            await asyncio.to_thread(home.release, child)
            raise SessionStateError(
                f"{agent.session_id} is no session of a sub-agent of this one; give the task to a "
                "new sub-agent"
            )
        forget = child.subscribe(lambda envelope: self._watch(agent, envelope.update))
        try:
            self._host(child)
            task = replace(
                start,
                content=(TextBlock(message),),
                client_request_id=agent.run,
                tools=Toolset(t for t in start.tools if t.spec.name not in AGENT_TOOLS),
                max_steps=SUB_AGENT_CALLS,
                base=KEEP_HEAD,
                asker=HeadlessAsker(),
                world=_world_of(child),
                skills=(),
                metadata={},
            )
            if (place := agent.place) is not None:
                task = replace(task, worktree=place.worktree, workspace=place.workspace)
            return (await child.run_turn(task))[1]
        finally:
            forget()
            await _settled(asyncio.ensure_future(asyncio.to_thread(home.release, child)))

    def _host(self, child: AgentSession) -> None:
        parent = self._session
        child.workspace, child.worktree = parent.workspace, parent.worktree
        child.bounds = ParentBounds(parent)
        child.allow_everything = parent.allow_everything

    def _watch(self, agent: Agent, update: Update) -> None:
        if update.kind == "phase_changed":
            agent.doing = f"step {update.data['step']}, {update.data['phase'].replace('_', ' ')}"
        elif update.kind == "tool_call_started":
            agent.doing = f"runs {clip(update.data['name'])}"

    def _end(self, agent: Agent, outcome: Outcome) -> None:
        status, output = node_end(outcome, agent.session_id)
        usage = outcome.usage
        try:
            self._session.recorder.finish(
                agent.run,
                status=status,
                output=output,
                metadata={
                    "steps": outcome.steps,
                    "gen_ai.usage.input_tokens": usage.input_tokens,
                    "gen_ai.usage.output_tokens": usage.output_tokens,
                },
            )
            self.mailbox.arrive(agent.run)
        except OpenProgramError as error:
            log.warning("the end of %s could not be stored: %s", agent.run, error.message)
            # Not stored at all: not told; at the next opening it is one that was interrupted.
            if self._session.dag.node(agent.run).status != "running":
                self.mailbox.arrive(agent.run)
        finally:
            agent.work, agent.doing = None, ""
            agent.ended.set()

    # -- waiting and stopping

    async def wait(self, agents: Sequence[Agent], timeout: float, *, mail: bool) -> bool:
        """Wait until one of *agents* is done, at most *timeout* seconds; False: none is yet.

        *mail*: a message of anybody's is waited for as well.
        """
        if not agents or not all(agent.running for agent in agents):
            return True
        events = [agent.ended for agent in agents] + ([self.mailbox.arrived] if mail else [])
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        return bool(done)

    def interrupt(self, agent: Agent) -> bool:
        """Have a sub-agent stop; False when it does nothing."""
        if agent.work is None:
            return False
        agent.work.cancel()
        return True

    def interrupt_all(self) -> None:
        """Have all of them stop."""
        for agent in self.running:
            self.interrupt(agent)

    async def shutdown(self) -> None:
        """Stop all of them, and wait until their ends are stored."""
        stopping = self.running
        self.interrupt_all()
        if stopping:
            ends = [asyncio.ensure_future(agent.ended.wait()) for agent in stopping]
            await asyncio.wait(ends, timeout=STOP_SECONDS)


def _place_of(node: Node) -> Place | None:
    there = node.metadata.get("worktree"), node.metadata.get("workspace")
    return Place(Path(str(there[0])), Path(str(there[1]))) if there[0] and there[1] else None


def _is_child(session: AgentSession, parent_id: str) -> bool:
    """Whether *session* was made for a sub-agent of that one: a story from elsewhere names any."""
    if not len(session.dag):  # what it was made with is stored with its first record
        return True
    parent = session.dag.meta.get("parent")
    return isinstance(parent, Mapping) and parent.get("session_id") == parent_id


async def _opened(home: Home, session_id: str) -> AgentSession:
    """That session, opened off the loop, as it waits for the disk.

    A cancel does not reach the thread, so what it opens all the same is closed again.
    """
    opening = asyncio.ensure_future(asyncio.to_thread(home.acquire, session_id))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await _settled(opening)
        if opening.exception() is None:
            await _settled(asyncio.ensure_future(asyncio.to_thread(home.release, opening.result())))
        raise


async def _settled(work: asyncio.Future[Any]) -> None:
    """Wait for *work*; in the log, what went wrong with it."""
    await settled(work)
    if not work.cancelled() and (error := work.exception()) is not None:
        log.warning("a sub-agent's session: %s", error)


def _ended(work: asyncio.Task[Outcome]) -> Outcome:
    if work.cancelled():
        return Outcome("cancelled", message="the task was stopped")
    return work.result()


def _world_of(child: AgentSession) -> WorldState:
    return WorldState(
        {
            "workspace": lambda: workspace_section(child.workspace),
            "worktree": lambda: worktree_section(child.worktree),
            "permissions": lambda: mode_section(child.permission_mode),
        }
    )
