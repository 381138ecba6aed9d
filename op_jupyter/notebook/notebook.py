"""The one session of this kernel, and what belongs to it.

ContextVars that one cell sets are not reliably seen by the next, so the truth is the object
here, and it is installed in the context of every cell before the cell runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from op_jupyter import bootstrap
from op_jupyter.core.nodes import check_session_id
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import Question, QuestionAnswer
from op_jupyter.engine.asking import Check
from op_jupyter.engine.context import SessionHandle, install
from op_jupyter.engine.loop import run_sync
from op_jupyter.engine.servers import Servers
from op_jupyter.engine.service import Service as SessionService
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.session_context import close_handle, open_handle
from op_jupyter.errors import ConfigurationError, OpenProgramError, SessionActive, UnknownSession
from op_jupyter.notebook.approvals import NotebookAsker
from op_jupyter.notebook.background import Jobs
from op_jupyter.notebook.config import AgentMagics
from op_jupyter.notebook.display import AskedCard, CallCard, put
from op_jupyter.notebook.frontend import FrontEnd, detect, kernel_of
from op_jupyter.notebook.identity import kernel_id, notebook_id
from op_jupyter.notebook.main_thread import LentThread
from op_jupyter.notebook.models import MakeRuntime, Service, Services, configured_runtime
from op_jupyter.notebook.notices import Notices
from op_jupyter.notebook.questions import Answers, NotebookQuestions
from op_jupyter.store.base import SessionInfo, Store
from op_jupyter.store.summary import unknown_session
from op_jupyter.tools.skills import SkillFolders
from op_jupyter.tools.toolset import Toolset

if TYPE_CHECKING:
    from op_jupyter.notebook.node_actions import NodeActions

_LISTED: Final = 200
_RUNS_AT_ONCE: Final = 100
"""So many runs of cells, which may go on in subshells or threads, are told apart."""


class Notebook:
    """What `%load_ext` makes and `%unload_ext` takes away.

    Args:
        store: where sessions live; None: the configured place.
        make_runtime: picks the model service for settings.
        goes_on: session that this process had open before the extension was reloaded.
    """

    def __init__(
        self,
        shell: Any,
        config: AgentMagics,
        *,
        store: Store | None = None,
        make_runtime: MakeRuntime | None = None,
        goes_on: str | None = None,
    ) -> None:
        self.shell = shell
        self.config = config
        self.lent = LentThread(kernel_of(shell))
        self.jobs = Jobs(self.lent)
        self.raw_cell = ""
        self.restarts = 0
        self._store = store
        self._services = Services(make_runtime or configured_runtime)
        self._stored: SessionService | None = None
        self._handle: SessionHandle | None = None
        self._goes_on = goes_on
        self._skills: SkillFolders | None = None
        self._calls: dict[str, int] = {}
        self.clicked: list[NodeActions] = []
        self.servers = Servers()
        self.notices = Notices(lambda: None if self._handle is None else self._handle.agent)
        config.observe(self._configured)

    def count_call(self, request_id: str) -> int:
        """Which ``%%agent`` of that run of a cell this is, from 1."""
        call = self._calls.pop(request_id, 0) + 1
        for old in list(self._calls)[:-_RUNS_AT_ONCE]:
            del self._calls[old]
        self._calls[request_id] = call
        return call

    # -- the session

    @property
    def store(self) -> Store:
        """Where sessions live."""
        if self._store is None:
            self._store = bootstrap.default_store(self.config.home or None, kernel_id(self.shell))
        return self._store

    @property
    def stored(self) -> SessionService:
        """What lists, searches and exports sessions."""
        if self._stored is None:
            self._stored = bootstrap.default_service(self.store)
        return self._stored

    @property
    def handle(self) -> SessionHandle:
        """The notebook's session; opened on first use.

        Raises:
            StoreError: it cannot be opened.
        """
        if self._handle is None:
            self._handle = self._first()
        return self._handle

    @property
    def session(self) -> AgentSession:
        """The notebook's session, live."""
        return self.handle.agent

    @property
    def begun(self) -> str | None:
        """Id of the session, once something happened in it."""
        handle = self._handle
        return handle.session_id if handle is not None and len(handle.agent.dag) else None

    def _first(self) -> SessionHandle:
        if self._goes_on is not None and self.store.exists(self._goes_on):
            # Reloaded, not restarted: the variables are still there.
            handle = self._hosted(open_handle(self._goes_on, store=self.store))
            self.restarts = int(handle.agent.dag.meta.get("restarts", 0))
            return handle
        wanted: str | None = self.config.session or None
        if wanted is None and self.config.resume == "auto":
            earlier = self.earlier()
            wanted = None if earlier is None else earlier.id
        return self._open_new() if wanted is None else self._open_known(wanted)

    def _open_new(self) -> SessionHandle:
        chosen = self.config.settings()
        handle = open_handle(
            store=self.store,
            id_prefix="nb",
            source="notebook",
            notebook=notebook_id(self.shell).key,
            mode=chosen.get("mode"),
        )
        self.restarts = 0
        return self._hosted(handle)

    def _open_known(self, session_id: str) -> SessionHandle:
        if not self.store.exists(check_session_id(session_id)):
            raise self.unknown(session_id)
        handle = open_handle(session_id, store=self.store)
        with ExitStack() as on_error:
            on_error.callback(close_handle, handle)
            self.host(handle.agent)
            meta = handle.agent.dag.meta
            restarts, key = int(meta.get("restarts", 0)) + 1, notebook_id(self.shell).key
            handle.agent.recorder.set_meta(restarts=restarts, notebook=key)
            on_error.pop_all()
        self.restarts = restarts
        return handle

    def _hosted(self, handle: SessionHandle) -> SessionHandle:
        """*handle*, with what this notebook lends to calls outside of ``%%agent`` cells."""
        with ExitStack() as on_error:
            on_error.callback(close_handle, handle)
            self.host(handle.agent)
            on_error.pop_all()
        return handle

    def host(self, session: AgentSession) -> None:
        """Lend this notebook's thread, tools and ways to ask to *session*."""
        session.workspace = self.workspace
        session.main_thread = self.lent
        session.asker = _CallAsker(self, session)
        self.offer_tools(session)
        bootstrap.guard(session, self.config.settings())
        self.notices.follow(session)

    def offer_tools(self, session: AgentSession) -> None:
        """Have the tools of *session* made anew when they are next wanted."""
        session.offer(lambda: self._default_tools(session))

    def connect_servers(self, session: AgentSession) -> tuple[str, ...]:
        """Have the configured MCP servers running; what went wrong, if that is news."""
        if not self.servers.connect(self.config.settings().mcp_servers, self.workspace):
            return ()
        self.offer_tools(session)
        self.stored.warn(session.session_id, self.servers.problems)
        return self.servers.problems

    def extra_tools(self, session: AgentSession) -> list[str]:
        """The names of the tools that were asked for: in the configuration, in the session."""
        return [*self.config.extra_tools, *session.dag.meta.get("extra_tools", ())]

    def _default_tools(self, session: AgentSession) -> Toolset:
        # On first use: schemas need pydantic, which would double the time that loading takes.
        from op_jupyter.notebook.toolbox import default_tools

        return default_tools(self.shell, session, self.extra_tools(session), self.servers.tools)

    @property
    def workspace(self) -> Path:
        """The folder that the tools work in.

        Raises:
            ConfigurationError: it is the current folder, and that is gone.
        """
        try:
            return Path(self.config.workspace or ".").expanduser().absolute()
        except FileNotFoundError:
            raise ConfigurationError(
                "the current folder is gone; go to one that is there with os.chdir, or set "
                "AgentMagics.workspace"
            ) from None

    def install(self) -> None:
        """Make the session the ambient one of the context that runs now.

        Raises:
            OpenProgramError: it cannot be opened.
        """
        install(replace(self.handle, runtime=self.service().runtime))

    @property
    def skills(self) -> SkillFolders:
        """The skills that are told of, and can be sent along."""
        folders = bootstrap.skill_folders(self.config.settings(), self.workspace)
        if self._skills is None or self._skills.roots != folders.roots:
            self._skills = folders  # what was read before is kept as long as the folders are
        return self._skills

    def new(self) -> SessionHandle:
        """Begin a new session; the old one stays in the list."""
        return self._switch(self._open_new)

    def resume(self, session_id: str | None = None) -> SessionHandle:
        """Go on with that session; None: with this notebook's latest earlier one.

        Raises:
            UnknownSession: there is none.
            SessionLocked: another kernel holds it.
        """
        if session_id is None:
            earlier = self.earlier()
            if earlier is None:
                raise UnknownSession(
                    "this notebook has no earlier session; `%agent sessions` lists all there are"
                )
            session_id = earlier.id
        if self._handle is not None and self._handle.session_id == session_id:
            if self._handle.agent.reload_required:
                run_sync(self._handle.agent.reload)
            return self._handle
        wanted = session_id
        return self._switch(lambda: self._open_known(wanted))

    def _switch(self, open_other: Callable[[], SessionHandle]) -> SessionHandle:
        old = self._handle
        active = None if old is None else old.agent.active_turn_id
        if old is not None and active is not None and active not in self.jobs:
            raise SessionActive(
                f"turn {old.agent.active_turn_id} is still running; wait for it or stop it first"
            )
        self._handle = open_other()
        if old is not None:
            close_handle(old)
        self.install()
        self.notices.tell()
        return self._handle

    @contextmanager
    def other_session(self, session_id: str) -> Iterator[AgentSession]:
        """Another session for one cell; the notebook's own stays what it is."""
        if self._handle is not None and self._handle.session_id == session_id:
            yield self._handle.agent
            return
        if not self.store.exists(check_session_id(session_id)):
            raise self.unknown(session_id)
        handle = open_handle(session_id, store=self.store)
        try:
            self.host(handle.agent)
            yield handle.agent
        finally:
            close_handle(handle)

    # -- other sessions

    def earlier(self) -> SessionInfo | None:
        """The newest session of this notebook that is not the current one."""
        key = notebook_id(self.shell).key
        current = None if self._handle is None else self._handle.session_id
        listed = self.stored.list_sessions(_LISTED, archived=None, sub_agents=True)
        found = (s for s in listed if s.notebook == key and s.id != current)
        return next(found, None)

    def offered(self) -> SessionInfo | None:
        """The earlier session that the person is told about: nothing happened in this one yet."""
        if self.config.resume != "ask" or len(self.session.dag):
            return None
        return self.earlier()

    def unknown(self, session_id: str) -> UnknownSession:
        """The error for a session that is not there."""
        known = [info.id for info in self.stored.list_sessions(_LISTED, archived=None)]
        return unknown_session(session_id, known, "here; `%agent sessions` lists those there are")

    # -- models

    def service(self, **flags: str | None) -> Service:
        """What asks the model, as configured, unless *flags* say otherwise.

        Raises:
            ConfigurationError: the settings cannot be used.
        """
        chosen = self.config.settings(**flags)
        given = None if flags.get("provider") else self.config.runtime
        return self._services.get(chosen, self.workspace, notebook_id(self.shell).path, given)

    def questions(
        self,
        session: AgentSession,
        answers: Answers | None,
        front: FrontEnd | None = None,
        *,
        parked: bool = False,
    ) -> NotebookQuestions:
        """The ways to ask what a program of *session* asks; *front* None: as it is by then."""
        return NotebookQuestions(
            lambda: front or detect(self.shell),
            self.lent,
            lambda: AskedCard(session),
            answers=answers,
            parked=parked,
            waiting=self.notices.asking,
        )

    # -- life

    def before_cell(self, info: Any) -> None:
        """IPython's ``pre_run_cell``: each cell may run in a context of its own."""
        self.raw_cell = info.raw_cell or ""
        self.lent.begin_cell()
        self._reinstall()

    def _reinstall(self) -> None:
        try:
            self.install()
            self.meet_pages()
        except OpenProgramError:
            # Said when the extension was loaded, and again by every %%agent and %agent.
            install(None)

    def meet_pages(self) -> None:
        """Be there for the lab extension, if this cell runs for somebody who can answer."""
        if detect(self.shell).shows_widgets:
            self.notices.open(again=self.raw_cell.lstrip().startswith(("%%agent", "%agent")))

    def _configured(self, _change: object) -> None:
        """A setting was changed: what follows in the same cell goes by it already."""
        if self._handle is not None:
            self._reinstall()
            self._handle.agent.answer_timeout = self.config.settings().answer_timeout

    def after_cell(self, _result: Any) -> None:
        """IPython's ``post_run_cell``."""
        try:
            self._settle()
        finally:
            self.lent.end_cell()

    def _settle(self) -> None:
        """Do what was asked of nodes outside of ``%%agent`` cells, and say what came of it."""
        over = [actions for actions in self.clicked if actions.ready]
        for actions in over:
            self.clicked.remove(actions)
        if said := [line for actions in over for line in run_sync(actions.finish)]:
            put({"text/plain": "\n".join(said)})

    def close(self) -> None:
        """Stop what runs in the background, and give everything back."""
        with ExitStack() as last:  # in reverse, and each of them although another one fails
            last.callback(self.lent.close)
            last.callback(install, None)
            last.callback(self._services.close)
            last.callback(self._leave_session)
            last.callback(self.servers.close)
            last.callback(self.notices.close)
            last.callback(self.jobs.close)

    def _leave_session(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            close_handle(handle)


class _CallAsker:
    """The ways to ask for calls outside of any ``%%agent`` cell, as configured by then."""

    def __init__(self, notebook: Notebook, session: AgentSession) -> None:
        self._notebook = notebook
        self._session = session

    def _asker(self) -> NotebookAsker:
        notebook = self._notebook
        decisions = notebook.service().decisions
        return NotebookAsker(
            lambda: detect(notebook.shell),
            notebook.lent,
            # One for each: the end of a card must not take away the next one.
            CallCard(self._session, notebook.clicked.append),
            decisions=decisions,
            questions=notebook.questions(self._session, decisions),
            tell=notebook.notices.placed,
        )

    @property
    def interactive(self) -> bool:
        """Whether an answer can come at all."""
        return self._asker().interactive

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """The answer."""
        return await self._asker().decide(request)

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Somebody answered; a recording keeps it."""
        self._asker().answered(request, answer)

    @property
    def can_ask(self) -> bool:
        """Whether a question can get an answer."""
        return self._asker().can_ask

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """What is answered to a question of the program's."""
        return await self._asker().question(question, check)
