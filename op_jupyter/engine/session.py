"""The actor: one object owns what is live in a session.

Nothing else starts a turn.  All changes go through the commands below, on the background
loop; everyone else reads snapshots and updates.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from op_jupyter.core.agents import AgentMessage
from op_jupyter.core.attempts import SAID_BY
from op_jupyter.core.compaction import rewind_target
from op_jupyter.core.graph import Dag
from op_jupyter.core.messages import Block, TextBlock, block_to_json
from op_jupyter.core.nodes import Node, Turn, TurnStatus
from op_jupyter.core.permissions import PermissionAnswer, PermissionMode, PermissionRequest
from op_jupyter.core.rules import Rule
from op_jupyter.core.skills import Skill, too_long
from op_jupyter.core.turn import MAX_MODEL_CALLS, Outcome
from op_jupyter.core.updates import Envelope, Snapshot, Update, clip
from op_jupyter.core.values import dataclass
from op_jupyter.engine import context, loop
from op_jupyter.engine.agents import Agent, Agents, Home
from op_jupyter.engine.asking import Asker, HeadlessAsker
from op_jupyter.engine.backups import Backups
from op_jupyter.engine.cards import Cards
from op_jupyter.engine.cleaning import Cleaner
from op_jupyter.engine.compaction import (
    CompactionStart,
    check_compactable,
    finish_installation,
)
from op_jupyter.engine.context import Place
from op_jupyter.engine.live import KEEP_HEAD, LiveTurn
from op_jupyter.engine.outcomes import status_of, stored_outcome
from op_jupyter.engine.policy import Bounds
from op_jupyter.engine.publisher import Listener, Publisher
from op_jupyter.engine.recorded_asker import script_asker
from op_jupyter.engine.recorder import Recorder
from op_jupyter.engine.slots import AT_ONCE
from op_jupyter.engine.trace import Trace
from op_jupyter.engine.turn_runner import COMPACTION, run_compaction, run_turn
from op_jupyter.errors import (
    Busy,
    ConfigurationError,
    EmptyInput,
    PermissionNotPending,
    ReloadRequired,
    SessionActive,
    SessionStateError,
    TurnNotActive,
    UsageError,
)
from op_jupyter.store.base import OpenSession
from op_jupyter.tools.base import MainThread
from op_jupyter.tools.sandbox import NO_SANDBOX
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.workers.mapping import Sent

DEFAULT_MODE: Final[PermissionMode] = "accept_edits"

CLOSE_SECONDS: Final = 10.0
"""How long the end of a turn is waited for whose session is closed."""

WorldSource = Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class TurnStart:
    """Everything that starts a turn.

    Attributes:
        content: the prompt; at least one text block that is not blank.
        runtime: what asks the model.
        client_request_id: the same id never runs twice, also after a restart.
        budget: tokens, sent and received, after which no further model call is made.
        base: node that the turn follows; `KEEP_HEAD`, or None for the start of the session.
        world: sampled before every model call; only changed sections are told.
        skills: sent before the prompt, as texts and no more; they allow nothing.
        metadata: kept with the turn (``cell_id``, ``notebook``).
        worktree, workspace: of a turn in a worktree: its folder, and that in it to work in.
    """

    content: tuple[Block, ...]
    runtime: Runtime
    client_request_id: str | None = None
    tools: Toolset = field(default_factory=lambda: Toolset(()))
    max_steps: int = MAX_MODEL_CALLS
    model: str | None = None
    base: str | None = KEEP_HEAD
    asker: Asker = field(default_factory=HeadlessAsker)
    main_thread: MainThread | None = None
    world: WorldSource | None = None
    skills: tuple[Skill, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    worktree: Path | None = None
    workspace: Path | None = None
    budget: int | None = None

    @property
    def place(self) -> Place | None:
        """The worktree, and the folder in it to work in."""
        if self.worktree is None:
            return None
        return Place(self.worktree, self.workspace or self.worktree)

    @property
    def text(self) -> str:
        """All text of the prompt."""
        return "".join(b.text for b in self.content if isinstance(b, TextBlock))


@dataclass(frozen=True, slots=True)
class TurnAccepted:
    """The turn is registered and runs; ask `AgentSession.wait` for its end."""

    turn_id: str


class AgentSession:
    """One open session, live.

    Reading (`dag`, `snapshot`, `replay_updates`, `subscribe`) is possible from any thread; the
    ``async`` commands run on the background loop.

    Attributes:
        workspace: folder that the tools work in; inside a turn with a worktree, that one's.
        worktree: the git worktree that this is in; None: it is in none.
        asker, main_thread: what calls outside of a turn use; the host sets them.
        user_rules: permission rules of the user's own configuration.
        allow_everything: the switch of this process: what no rule denies runs without asking.
        answer_timeout: seconds until a card that nobody answers is a denial; None: never.
        timeouts: seconds that a call of a tool may take, by its name; others: as the tool says.
        attempts_at_once: so many turns of this process run, before one of this session waits.
        store_path: the session's folder, which no tool may write; None in memory.
        protected: what else no tool may write: skill folders, the user's settings.
        trace: where spans of its calls go.
        agents: its sub-agents.
        cards: what puts its cards up.
        home: where their sessions are kept; None: it can have none.
        bounds: what a sub-agent's session, or a worker's, may at most.
        sent: calls that `submit` sent off and that are not over, by their ids.
        on_policy: called, in any thread, when mode or rules have changed.
        backups: what files were before calls changed them.
        sandbox: what code that tools run is put into, in words.
    """

    def __init__(
        self,
        store: OpenSession,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[str], str] | None = None,
        cleaner: Cleaner | None = None,
    ) -> None:
        self._clock = clock
        self.new_id = new_id or _random_id
        self._publisher = Publisher(store.session_id, clock)
        self.store = store
        self.recorder = Recorder(store, self._publisher, cleaner or Cleaner())
        self.backups = Backups(self.recorder, self._never_copied)
        self._workspace = _current_folder()
        self._worktree: Path | None = None
        self.asker: Asker = script_asker()
        self.main_thread: MainThread | None = None
        self._tools: Toolset | Callable[[], Toolset] = Toolset(())
        self.user_rules: tuple[Rule, ...] = ()
        self.allow_everything = False
        self.sandbox = NO_SANDBOX
        self.answer_timeout: float | None = None
        self.timeouts: Mapping[str, float] = {}
        self.attempts_at_once = AT_ONCE
        self.store_path: Path | None = None
        self.protected: tuple[Path, ...] = ()
        self.trace = Trace(store.session_id)
        self.agents = Agents(self)
        self.home: Home | None = None
        self.bounds: Bounds | None = None
        self.sent: dict[str, Sent[Any]] = {}
        self.on_policy: list[Callable[[], None]] = []
        self._active: LiveTurn | None = None
        self._calls: dict[str, LiveTurn] = {}
        self._last: LiveTurn | None = None
        self._reload_required = ""
        self._reopen: Callable[[], OpenSession] | None = None
        self.cards = Cards()
        self._shared_turns: dict[str, int] = {}
        self._shared_lock = threading.Lock()
        if not store.status.read_only:
            finish_installation(self)

    # -- reading

    def _never_copied(self) -> list[Path]:
        """Folders of a workspace that are not part of its backups."""
        return [] if self.store_path is None else [self.store_path.parent]

    @property
    def session_id(self) -> str:
        """The id to resume by."""
        return self.store.session_id

    @property
    def dag(self) -> Dag:
        """The live graph; read it, never change it."""
        return self.store.dag

    @property
    def workspace(self) -> Path:
        """See the class."""
        place = context.place_in(self)
        return self._workspace if place is None else place.workspace

    @workspace.setter
    def workspace(self, folder: Path) -> None:
        self._workspace = folder

    @property
    def worktree(self) -> Path | None:
        """See the class."""
        place = context.place_in(self)
        return self._worktree if place is None else place.worktree

    @worktree.setter
    def worktree(self, folder: Path | None) -> None:
        self._worktree = folder

    def works_in(self, worktree: Path) -> bool:
        """Whether its turn or one of its sub-agents works in that git worktree now."""
        start = None if self._active is None else self._active.start
        places = [None if start is None else start.place]
        places += [agent.place for agent in self.agents.running]
        return any(place is not None and place.worktree == worktree for place in places)

    @property
    def permission_mode(self) -> PermissionMode:
        """What runs without asking."""
        mode: PermissionMode = self.dag.meta.get("mode", DEFAULT_MODE)
        return mode if self.bounds is None else self.bounds.mode(mode)

    @property
    def rules(self) -> Mapping[str, list[str]]:
        """The rules of this session: ``{"allow": [...], "deny": [...]}``."""
        rules = self.dag.meta.get("rules") or {}
        return {"allow": list(rules.get("allow", ())), "deny": list(rules.get("deny", ()))}

    @property
    def tools(self) -> Toolset:
        """The tools that calls use when they are given none."""
        if not isinstance(self._tools, Toolset):
            self._tools = self._tools()
        return self._tools

    def offer(self, tools: Callable[[], Toolset]) -> None:
        """Have *tools* made when they are first wanted; a host does that for its own."""
        self._tools = tools

    @property
    def active_turn_id(self) -> str | None:
        """The turn that `start_turn` would answer `Busy` for."""
        return None if self._active is None else self._active.id

    @property
    def active_turn(self) -> LiveTurn | None:
        """That turn, for what runs inside it."""
        return self._active

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* with every update; returns what ends that."""
        return self._publisher.subscribe(listener)

    def replay_updates(self, after: int) -> list[Envelope] | None:
        """Updates after that sequence; None: there is a gap, take a snapshot."""
        return self._publisher.replay(after)

    def snapshot(self) -> Snapshot:
        """The session now; join it with the updates after its sequence."""
        sequence, live = self._publisher.live()
        return Snapshot(self.session_id, sequence, self.permission_mode, self.sandbox, live)

    def pending_cards(self) -> list[PermissionRequest]:
        """The cards that wait for an answer."""
        turns = [t for t in (self._active, *self._calls.values()) if t is not None]
        return [t.pending.request for t in turns if t.pending is not None]

    # -- commands

    async def start_turn(self, start: TurnStart) -> TurnAccepted:
        """Register a turn and let it run; returns before the work is done.

        Raises:
            EmptyInput: the prompt has no text; skills alone are no prompt.
            UsageError: a skill is too long to be sent.
            ReloadRequired: the session has to be opened again.
            Busy: another turn is active; turns are never queued.
        """
        if not start.text.strip():
            raise EmptyInput("the prompt is empty; write what the agent should do")
        if reason := next(filter(None, map(too_long, start.skills)), ""):
            raise UsageError(reason)
        self._check_loaded()
        if (known := self._known(start.client_request_id)) is not None:
            return TurnAccepted(known)
        self._check_free()
        turn = self._begin(clip(start.text), start.client_request_id)
        self._let_run(turn, lambda: self._run_in_place(turn, start))
        return TurnAccepted(turn.id)

    async def say(self, text: str, role: str) -> Node:
        """Add what somebody else than the person said to the conversation; starts no turn.

        Raises:
            ReloadRequired: the session has to be opened again.
            Busy: a turn is active, whose line it would cut.
            StoreError: it could not be stored.
        """
        self._check_loaded()
        self._check_free()
        return self.recorder.append(
            Node(
                id=self.new_id("message"),
                role="user",
                name=role,
                input=[block_to_json(TextBlock(text))],
                status="completed",
                predecessor=self.dag.head,
                metadata={SAID_BY: role, "label": clip(text)},
            ),
            advance_head=True,
        )

    async def _run_in_place(self, turn: LiveTurn, start: TurnStart) -> Outcome:
        """Run the turn in the worktree that it asks for; what goes on beside it is elsewhere."""
        with context.working_in(self, start.place):
            return await run_turn(self, turn, start)

    def _check_loaded(self) -> None:
        if reason := self.reload_required:
            raise ReloadRequired(
                f"session {self.session_id!r} has to be reloaded: {reason}; "
                f"`%agent resume {self.session_id}` does it"
            )

    def _check_free(self) -> None:
        if self._active is not None:
            raise Busy(
                f"turn {self._active.id} is still running in session {self.session_id!r}; "
                "wait for it or cancel it",
                turn_id=self._active.id,
            )

    def _check_idle(self, what: str) -> None:
        if self._active is not None:
            raise SessionActive(
                f"turn {self._active.id} is still running in session {self.session_id!r}; "
                f"wait for it or cancel it before you {what}"
            )

    def _begin(self, subject: str, client_request_id: str | None = None) -> LiveTurn:
        turn = self._active = LiveTurn(
            self.new_id("turn"), self.recorder, client_request_id=client_request_id
        )
        started = {"subject": subject, "client_request_id": client_request_id}
        turn.publish(Update("turn_started", started))
        return turn

    def _let_run(self, turn: LiveTurn, work: Callable[[], Awaitable[Outcome]]) -> None:
        turn.task = asyncio.get_running_loop().create_task(self._run(turn, work))

    def _known(self, client_request_id: str | None) -> str | None:
        if client_request_id is None:
            return None
        for turn in (self._active, self._last):
            if turn is not None and turn.client_request_id == client_request_id:
                return turn.id
        stored = self.dag.turn_by_request(client_request_id)
        return None if stored is None else stored.id

    async def _run(self, turn: LiveTurn, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        turn.begun = True
        try:
            turn.outcome = await work()
        finally:
            if turn.outcome is None:
                turn.outcome = Outcome("failed", code="actor_stopped", message="the turn was lost")
            self._active, self._last = None, turn
            turn.ended.set()
        return turn.outcome

    async def wait(self, turn_id: str) -> Outcome:
        """How that turn ended; waits for it while it runs.

        Raises:
            TurnNotActive: no such turn is known.
        """
        for turn in (self._active, self._last):
            if turn is not None and turn.id == turn_id:
                await turn.ended.wait()
                if turn.outcome is not None:
                    return turn.outcome
        stored = self.dag.turns.get(turn_id)
        if stored is None:
            raise TurnNotActive(f"session {self.session_id!r} has no turn {turn_id!r}")
        return stored_outcome(self.dag, stored)

    async def run_turn(self, start: TurnStart) -> tuple[str, Outcome]:
        """Start a turn and wait for its end; cancelling this cancels the turn, tidily."""
        turn_id = (await self.start_turn(start)).turn_id
        return turn_id, await self._wait_tidily(turn_id)

    async def _wait_tidily(self, turn_id: str) -> Outcome:
        try:
            return await self.wait(turn_id)
        except asyncio.CancelledError:
            if self.active_turn_id == turn_id:
                await self.cancel_turn(turn_id)
                await self.wait(turn_id)
            raise

    async def cancel_turn(self, turn_id: str) -> None:
        """Stop the active turn; every tool call of it still gets its result.

        Raises:
            TurnNotActive: another turn, or none, is active.
        """
        self._live(turn_id).cancel()

    async def resolve_permission(
        self, turn_id: str, tool_call_id: str, answer: PermissionAnswer
    ) -> None:
        """Answer the card of that tool call.

        Raises:
            TurnNotActive: another turn, or none, is active, or it is being cancelled.
            PermissionNotPending: that call does not wait; the card that does stays.
        """
        turn = self._live(turn_id)
        if turn.cancelling:
            raise TurnNotActive(f"turn {turn_id!r} is being cancelled; the answer was not used")
        card = turn.pending
        if card is None or card.request.id != tool_call_id or card.answer.done():
            raise PermissionNotPending(f"no card for call {tool_call_id!r} waits for an answer")
        card.answer.set_result(answer)

    async def set_permission_mode(self, mode: PermissionMode) -> None:
        """Change what runs without asking, from the next call on; kept with the session."""
        self._set_policy(mode=mode)

    async def sub_agents(self) -> list[tuple[Agent, Node]]:
        """Each sub-agent with the node of its latest task, in the order they were made."""
        return self.agents.listed()

    async def deliver_agent_message(self, message: AgentMessage) -> bool:
        """Put a message into the mailbox: the next model call of a person's turn is told.

        It never starts a turn.  False: a message of that id was delivered before.

        Raises:
            UsageError: it is empty, or has 4,000 tokens or more.
            StoreError: it could not be stored, and is not delivered.
        """
        return self.agents.mailbox.deliver(message)

    def add_rule(self, kind: str, rule: str) -> None:
        """Add a rule to ``allow`` or ``deny``; kept with the session."""
        rules = dict(self.rules)
        if rule not in rules[kind]:
            self._set_policy(rules={**rules, kind: [*rules[kind], rule]})

    def remove_rule(self, rule: str) -> bool:
        """Take a rule back; False when there is no such rule."""
        rules = self.rules
        kept = {kind: [r for r in listed if r != rule] for kind, listed in rules.items()}
        if kept == rules:
            return False
        self._set_policy(rules=kept)
        return True

    def _set_policy(self, **fields: Any) -> None:
        self.recorder.set_meta(**fields)
        for changed in tuple(self.on_policy):
            changed()

    async def compact(self, start: CompactionStart) -> tuple[str, Outcome]:
        """Replace the conversation by a summary, and wait for the end of that.

        The originals stay in the graph; `rewind` to the summary brings them back.  It is a turn
        like others: it can be cancelled, and the text of its outcome is the summary.

        Raises:
            SessionActive: a turn is running.
            ReloadRequired: the session has to be opened again.
            UsageError: there is nothing to cover, or the model cannot write a summary.
        """
        self._check_idle("compact")
        self._check_loaded()
        selection = check_compactable(self, start)
        turn = self._begin(COMPACTION)
        self._let_run(turn, lambda: run_compaction(self, turn, start, selection))
        return turn.id, await self._wait_tidily(turn.id)

    async def rewind(self, node_id: str) -> str | None:
        """Let the conversation go on from an earlier node; returns its new end.

        A prompt and a summary are taken back, with all that followed; after an answer the
        conversation goes on.  Nothing is lost: the line that was left keeps its branch.

        Raises:
            SessionActive: a turn is running.
            ReloadRequired: the session has to be opened again.
            UnknownNode, UsageError: there is no such node, or it is no part of a conversation.
        """
        self._check_idle("rewind")
        self._check_loaded()
        target = rewind_target(self.dag, node_id)
        if target != self.dag.head:
            turn_id, subject = self.new_id("turn"), f"rewind to {target or 'the beginning'}"
            self.recorder.begin_turn(
                Turn(turn_id, "rewind", "running", subject, target, started_at=self.now())
            )
            self.recorder.end_turn(turn_id, "completed", metadata={"rewound": node_id})
        return target

    async def fork(self, node_id: str | None = None, name: str | None = None) -> str:
        """Begin a branch and return its name; the one that was active stays as it is.

        Args:
            node_id: as for `rewind`; None: where the conversation is now.
            name: of the branch; None: the next free ``fork-N``.

        Raises:
            SessionActive: a turn is running.
            ReloadRequired: the session has to be opened again.
            UnknownNode, UsageError: no branch can begin there, or the name is taken.
            GraphError: *name* cannot name a branch.
        """
        self._check_idle("fork")
        self._check_loaded()
        target = self.dag.head if node_id is None else rewind_target(self.dag, node_id)
        if name is not None and name in self.dag.branches:
            raise UsageError(f"there is a branch {name!r} already; choose another name")
        chosen = name or self.dag.free_branch()
        self.recorder.branch(chosen, target)
        return chosen

    def require_reload(self, reason: str) -> None:
        """Refuse further turns until the session is opened again."""
        self._reload_required = reason

    @property
    def reload_required(self) -> str:
        """Why the session has to be reloaded; "" when it need not be."""
        return self._reload_required or self.store.status.read_only

    def reloads_with(self, reopen: Callable[[], OpenSession]) -> None:
        """How `reload` opens the session again, once it is closed."""
        self._reopen = reopen

    async def reload(self) -> None:
        """Close the session and open it again from what is stored, which repairs it.

        Raises:
            SessionActive: something is running.
            SessionStateError: whoever opened the session has to reload it.
            StoreError: it cannot be opened; it stays closed.
        """
        self._check_idle("reload the session")
        if self._calls:
            raise SessionActive("a call is still running; wait for it before you reload")
        if self.agents.running:
            raise SessionActive("sub-agents are still working; wait for them before you reload")
        if self._reopen is None:
            raise SessionStateError("close the session and open it again")
        self.store.close()
        self.store = self._reopen()
        self.recorder.reopened(self.store)
        self._reload_required = ""
        finish_installation(self)

    async def shutdown(self) -> None:
        """Cancel what runs and wait for its end."""
        for turn in [t for t in (self._active, *self._calls.values()) if t is not None]:
            turn.cancel()
            if turn.task is not None:
                await turn.ended.wait()
        await self.agents.shutdown()

    def close(self) -> None:
        """Stop what still runs, flush and free the writer's lock.

        A turn that was left running fails with the code ``actor_stopped``.
        """
        left = self._active is not None or bool(self.agents.running)
        try:
            if left and not loop.on_background_loop():
                loop.run_sync(self._abandon)
            else:
                self.agents.interrupt_all()
            self.trace.flush()
        finally:
            self.store.close()

    async def _abandon(self) -> None:
        if (turn := self._active) is not None and turn.task is not None:
            turn.abandon()
            await asyncio.wait({turn.task}, timeout=CLOSE_SECONDS)
        await self.agents.shutdown()

    def _live(self, turn_id: str) -> LiveTurn:
        if self._active is not None and self._active.id == turn_id:
            return self._active
        if turn_id in self._calls:
            return self._calls[turn_id]
        raise TurnNotActive(f"turn {turn_id!r} of session {self.session_id!r} is not active")

    # -- bare calls: short turns of their own, which may overlap

    def check_idle(self, what: str) -> None:
        """Refuse *what* while a turn or a call runs.

        Raises:
            SessionActive: one does.
        """
        running = self.active_turn_id or next(iter(self._calls), None)
        if running is not None:
            raise SessionActive(f"turn {running} is still running; {what} once it is over")

    def begin_call(self, subject: str, *, with_node: bool = False) -> LiveTurn:
        """Begin a turn for one call made outside of any turn.

        It is stored, *with_node*: as one with its first node.
        """
        turn = LiveTurn(self.new_id("turn"), self.recorder, visible=False)
        begin = self.recorder.begin_turn_later if with_node else self.recorder.begin_turn
        begin(Turn(turn.id, "call", "running", clip(subject), self.dag.head, started_at=self.now()))
        self._calls[turn.id] = turn
        return turn

    def call_turn(self, turn_id: str) -> LiveTurn:
        """The live turn that calls of *turn_id* belong to; kept while the turn is open."""
        if self._active is not None and self._active.id == turn_id:
            return self._active
        return self._calls.setdefault(turn_id, LiveTurn(turn_id, self.recorder, visible=False))

    def is_cancelling(self, turn_id: str) -> bool:
        """Whether that turn is being stopped."""
        turn = self._active
        if turn is None or turn.id != turn_id:
            turn = self._calls.get(turn_id)
        return turn is not None and turn.cancelling

    def end_call(
        self,
        turn: LiveTurn,
        status: TurnStatus,
        failure: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the end of such a turn, if it has none yet."""
        self._calls.pop(turn.id, None)
        if self.recorder.is_running(turn.id):
            self.recorder.end_turn(turn.id, status, failure=failure, metadata=metadata)

    def open_shared_turn(self, turn_id: str) -> None:
        """Begin the turn that a block of code named, unless it is open or over."""
        with self._shared_lock:
            if turn_id in self._shared_turns:
                self._shared_turns[turn_id] += 1
            elif turn_id not in self.dag.turns:
                self.recorder.begin_turn(
                    Turn(turn_id, "call", "running", turn_id, self.dag.head, started_at=self.now())
                )
                self._shared_turns[turn_id] = 1

    def close_shared_turn(self, turn_id: str, error: BaseException | None) -> None:
        """End it when the last block that shares it leaves, if such a block began it."""
        with self._shared_lock:
            sharing = self._shared_turns.pop(turn_id, 0) - 1
            if sharing > 0:
                self._shared_turns[turn_id] = sharing
                return
            running = self.dag.turns[turn_id].status == "running"
            if running and sharing < 0:
                return  # whoever began it ends it
            self._calls.pop(turn_id, None)
            if running:
                self.recorder.end_turn(turn_id, status_of(error))

    def now(self) -> str:
        """The time, UTC, ISO 8601."""
        return datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigurationError(
            "the current folder is gone; go to one that is there with os.chdir"
        ) from None


def _random_id(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:12]}"
