"""One ``%%agent`` cell: prompt in, turn on the background loop, display, result out."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

from op_jupyter.bootstrap import EVERYTHING
from op_jupyter.core.graph import Dag
from op_jupyter.core.messages import Block, TextBlock, block_to_json
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.permissions import PermissionMode
from op_jupyter.core.skills import Skill, too_long
from op_jupyter.core.turn import Outcome
from op_jupyter.core.updates import clip
from op_jupyter.core.values import dataclass
from op_jupyter.engine.live import KEEP_HEAD
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.outcomes import stored_outcome
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.errors import Busy, EmptyInput, UsageError
from op_jupyter.notebook.approvals import NotebookAsker
from op_jupyter.notebook.background import BackgroundTurn
from op_jupyter.notebook.display import (
    LiveDisplay,
    TurnDisplay,
    announced,
    display_for,
    ids,
    put,
    static,
    warn,
)
from op_jupyter.notebook.frontend import FrontEnd, detect
from op_jupyter.notebook.identity import CellRun, cell_run
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.result import TurnResult, judged, turn_result
from op_jupyter.notebook.substitution import substitute
from op_jupyter.notebook.toolbox import chosen_tools
from op_jupyter.notebook.world import world_of
from op_jupyter.tools.worktrees import Repository
from op_jupyter.views.model import State
from op_jupyter.views.text import count

T = TypeVar("T")

_WAITS: Final = (
    "A background turn of this session comes first. If it waits for approval, answer its card; or "
    "stop this cell, which stops only the wait, and use `%agent approve`."
)


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The flags of ``%%agent``."""

    session: str | None = None
    fresh: bool = False
    model: str | None = None
    provider: str | None = None
    mode: PermissionMode | None = None
    tools: Sequence[str] | None = None
    skill: Sequence[str] = ()
    no_skill: Sequence[str] = ()
    max_steps: int | None = None
    budget: int | None = None
    replay: str | None = None
    output: str | None = None
    quiet: bool = False
    background: bool = False
    worktree: str | None = None


def run_cell(notebook: Notebook, options: CellOptions, prompt: str) -> TurnResult | BackgroundTurn:
    """Run one turn and return how it ended; or start one in the background, and return it.

    Raises:
        UsageError: something in the flags or the prompt cannot work; nothing was sent.
        TurnFailed, TurnCancelled: there is no answer; everything is stored.
        KeyboardInterrupt: the person stopped it; everything is stored.
    """
    if options.fresh and options.session is not None:
        raise UsageError("--fresh begins a new session and --session names an old one: use one")
    content = _content(notebook, prompt)
    skills = _skills(notebook, options)
    service = notebook.service(provider=options.provider, replay=options.replay)
    small = service.runtime.provider.capabilities.small  # says here what is not configured
    here = _Here.now(notebook, quiet=options.quiet)
    with _session(notebook, options) as session:
        if (earlier := _to_replay(notebook, session, options, here, content)) is not None:
            return _kept(notebook, options, _shown_again(notebook, session, earlier, here))
        worktree, workspace = _place(session, options)
        for problem in notebook.connect_servers(session):
            warn(problem, here.front)
        tools = chosen_tools(notebook, session, options.tools)
        if session.allow_everything:
            warn(EVERYTHING, here.front)
        _give_title(session, content)
        display = _display(notebook, here, session, options)
        asker = NotebookAsker(
            lambda: here.front,
            notebook.lent,
            display,
            decisions=service.decisions,
            questions=notebook.questions(
                session, service.decisions, here.front, parked=options.background
            ),
            parked=options.background,
            tell=notebook.notices.placed,
        )
        start = TurnStart(
            content,
            service.runtime,
            here.request_id,
            tools,
            options.max_steps or notebook.config.max_steps,
            model=options.model,
            budget=options.budget or notebook.config.budget or None,
            base=_base(session.dag, here, notebook.config.on_rerun),
            asker=asker,
            main_thread=notebook.lent,
            world=world_of(notebook, session, small=small, without_skills=options.no_skill),
            skills=skills,
            metadata=_metadata(here, worktree, options),
            worktree=worktree,
            workspace=workspace,
        )
        if options.background:
            live = display if isinstance(display, LiveDisplay) else None
            job = notebook.jobs.start(notebook.store, session, start, live)
            return _kept(notebook, options, job)
        with _offer(notebook, session, here):
            ended = _run(notebook, session, start, display)
        result = _result(notebook, session, ended, here)
    _kept(notebook, options, result)
    if ended.stopped:
        raise stopped() from None
    return judged(result, ended.outcome)


def _kept(notebook: Notebook, options: CellOptions, value: T) -> T:
    """*value*, under the name that ``-o`` gave it."""
    if options.output is not None:
        notebook.shell.push({options.output: value})
    return value


def _display(
    notebook: Notebook, here: _Here, session: AgentSession, options: CellOptions
) -> TurnDisplay:
    prices = notebook.config.settings().prices
    if options.background and here.front.shows_widgets and not here.quiet:
        return LiveDisplay(session, here.request_id, alone=True, prices=prices)
    quiet = here.quiet or options.background
    return display_for(
        here.front,
        session,
        here.request_id,
        quiet=quiet,
        post=notebook.lent.post,
        prices=prices,
    )


def _place(session: AgentSession, options: CellOptions) -> tuple[Path | None, Path | None]:
    """The worktree to work in, and the folder in it; made when it is not there yet.

    Raises:
        UsageError: it cannot be.
    """
    if options.worktree is None:
        return None, None
    repository = Repository(session.workspace)
    worktree = repository.ensure(options.worktree)
    return worktree.path, repository.workspace(worktree)


def _metadata(here: _Here, worktree: Path | None, options: CellOptions) -> dict[str, Any]:
    """What is kept with the turn."""
    kept: dict[str, Any] = {} if here.run.cell_id is None else {"cell_id": here.run.cell_id}
    if here.call > 1:
        kept["call"] = here.call
    if worktree is not None:
        kept["worktree"] = worktree.name
    return {**kept, "background": True} if options.background else kept


@dataclass(frozen=True, slots=True)
class _Here:
    """The cell that runs, and who looks at it.

    Attributes:
        call: which turn of this run of the cell it is, from 1: a loop may ask more than once.
    """

    front: FrontEnd
    run: CellRun
    request_id: str
    quiet: bool
    call: int = 1

    @classmethod
    def now(cls, notebook: Notebook, *, quiet: bool) -> _Here:
        run, call = cell_run(notebook.shell), 1
        if run.request_id is None:
            request_id = f"request-{uuid4().hex}"
        else:
            call = notebook.count_call(run.request_id)
            request_id = run.request_id if call == 1 else f"{run.request_id} {call}"
        quiet = quiet or notebook.config.quiet
        return cls(detect(notebook.shell), run, request_id, quiet, call)


def _content(notebook: Notebook, prompt: str) -> tuple[Block, ...]:
    content = substitute(prompt, notebook.shell.user_ns)
    if not any(isinstance(block, TextBlock) and block.text.strip() for block in content):
        raise EmptyInput("the cell is empty; write below %%agent what the agent should do")
    return content


def _skills(notebook: Notebook, options: CellOptions) -> tuple[Skill, ...]:
    """The skills that are sent along.

    Raises:
        UsageError: there is no such skill, or it cannot be sent.
    """
    if not options.skill and not options.no_skill:
        return ()
    known = notebook.skills.read()
    for name in (*options.skill, *options.no_skill):
        if known.get(name) is None:
            names = ", ".join(skill.name for skill in known.skills) or "none yet"
            said = "".join(f"\n{warning}" for warning in known.warnings)
            raise UsageError(f"there is no skill {name!r}; the skills are: {names}{said}")
    skills = tuple(skill for name in options.skill if (skill := known.get(name)) is not None)
    if reason := next(filter(None, map(too_long, skills)), ""):
        raise UsageError(reason)
    return skills


@contextmanager
def _session(notebook: Notebook, options: CellOptions) -> Iterator[AgentSession]:
    """The session that the turn belongs to, free for it and in the mode that was asked for."""
    if options.fresh:
        notebook.new()
    own = nullcontext(notebook.session)
    other = options.session
    with own if other is None else notebook.other_session(other) as session:
        _until_free(notebook, session, may_wait=not options.background)
        if options.mode is not None:
            run_sync(session.set_permission_mode, options.mode)
        yield session


def _until_free(notebook: Notebook, session: AgentSession, *, may_wait: bool) -> None:
    """Wait for the background turn of *session*, if there is one.

    Raises:
        Busy: another turn runs in it; or a background turn, and the cell may not wait.
        KeyboardInterrupt: the person stopped the wait; the background turn goes on.
    """
    while (active := session.active_turn_id) is not None:
        if not may_wait or active not in notebook.jobs:
            raise Busy(f"turn {active} is still running; wait for it or stop it", turn_id=active)
        job, front = notebook.jobs.get(active), detect(notebook.shell)
        try:
            with announced(_WAITS, front) if front.can_answer else nullcontext():
                job.settled()
        except KeyboardInterrupt:  # as soon as a person can read why, the wait can be stopped
            raise stopped("the wait was stopped; the background turn goes on") from None


def _give_title(session: AgentSession, content: tuple[Block, ...]) -> None:
    """Name a session after its first prompt."""
    if not session.dag.meta.get("title"):
        text = "".join(block.text for block in content if isinstance(block, TextBlock))
        session.recorder.set_meta(title=session.recorder.clean(clip(text)))


@contextmanager
def _offer(notebook: Notebook, session: AgentSession, here: _Here) -> Iterator[None]:
    """Tell of the notebook's earlier session, while its first turn in a new one runs."""
    asked = here.front.can_answer and not here.quiet and session is notebook.session
    earlier = notebook.offered() if asked else None
    if earlier is None:
        yield
        return
    text = (
        f"This notebook has an earlier session with {count(earlier.turns, 'turn')}. This cell "
        "begins a new one; `%agent resume` continues the earlier one instead."
    )
    with announced(text, here.front):
        yield


def _base(dag: Dag, here: _Here, on_rerun: str) -> str | None:
    """What the turn follows: a cell that is run again takes the place of its earlier turn."""
    earlier = None if on_rerun == "append" else _earlier_prompt(dag, here)
    return KEEP_HEAD if earlier is None else earlier.predecessor


def _earlier_prompt(dag: Dag, here: _Here) -> Node | None:
    """What this very cell said before, with the same call of it, on the active line."""
    if here.run.cell_id is None:
        return None
    this = here.run.cell_id, here.call
    prompts = (node for node in reversed(dag.spine()) if node.role == "user")
    said = ((p, (p.metadata.get("cell_id"), p.metadata.get("call", 1))) for p in prompts)
    return next((prompt for prompt, where in said if where == this), None)


def _to_replay(
    notebook: Notebook,
    session: AgentSession,
    options: CellOptions,
    here: _Here,
    content: tuple[Block, ...],
) -> Turn | None:
    """The turn to show again: the same cell said the same before, and it was answered."""
    if notebook.config.on_rerun != "replay" or options.background or options.skill:
        return None
    prompt = _earlier_prompt(session.dag, here)
    said = session.recorder.clean([block_to_json(block) for block in content])
    if prompt is None or prompt.turn_id is None or prompt.input != said:
        return None
    turn = session.dag.turns.get(prompt.turn_id)
    return turn if turn is not None and turn.status == "completed" else None


def _shown_again(notebook: Notebook, session: AgentSession, turn: Turn, here: _Here) -> TurnResult:
    """The result of *turn*, displayed as when it ran; no model is asked."""
    from op_jupyter.views.stored import stored_turn

    outcome = stored_outcome(session.dag, turn)
    state = stored_turn(session.dag, turn, outcome)
    if not here.quiet:
        put(static(state), metadata=ids(state))
    return _result(notebook, session, _Ended(outcome, turn.id, state), here)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the turn ended, and what the display saw of it."""

    outcome: Outcome
    turn_id: str
    state: State
    stopped: bool = False


def _run(
    notebook: Notebook, session: AgentSession, start: TurnStart, display: TurnDisplay
) -> _Ended:
    with _undisturbed(notebook):
        display.begin()
        stopped = False
        outcome: Outcome | None = None
        try:
            _, outcome = run_sync(session.run_turn, start)
        except KeyboardInterrupt:
            stopped = True
            notebook.lent.interrupts.clear()
        finally:
            state = display.end()
    turn_id = state["turn_id"] or ""
    if outcome is None:
        outcome = _stopped_outcome(session, turn_id)
    return _Ended(outcome, turn_id, state, stopped)


def _undisturbed(notebook: Notebook) -> AbstractContextManager[Any]:
    """Note the stop button instead of being cut in two by it; only possible on the main thread."""
    on_main = threading.current_thread() is threading.main_thread()
    return notebook.lent.interrupts if on_main else nullcontext()


def _stopped_outcome(session: AgentSession, turn_id: str) -> Outcome:
    turn = session.dag.turns.get(turn_id)
    if turn is None or turn.status == "running":
        return Outcome("cancelled", message="the turn was stopped")
    return stored_outcome(session.dag, turn)


def _result(notebook: Notebook, session: AgentSession, ended: _Ended, here: _Here) -> TurnResult:
    return turn_result(
        session,
        ended.turn_id,
        ended.outcome,
        ended.state,
        shown_in=notebook.shell.execution_count,
        speaks=here.front.kind == "terminal" and not here.quiet,
    )


def stopped(
    said: str = "the agent turn was stopped; what it did so far is kept",
) -> KeyboardInterrupt:
    """The interrupt that ends the cell, so that Run All stops; shown as one line."""
    interrupt = KeyboardInterrupt(said)
    # IPython asks the exception itself, so it needs no class of its own, and no other name.
    vars(interrupt)["_render_traceback_"] = lambda: [f"KeyboardInterrupt: {said}"]
    return interrupt
