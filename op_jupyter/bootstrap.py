"""The one place that picks concrete classes: which provider, which store, which recording."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from op_jupyter.config.settings import ALLOW_EVERYTHING_ENV, Settings, load_settings
from op_jupyter.core.recording import Folders
from op_jupyter.core.redact import Redacts
from op_jupyter.core.rules import Rule, parse_rule
from op_jupyter.core.values import dataclass
from op_jupyter.engine.cleaning import Cleaner
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.base import Provider
from op_jupyter.providers.catalog import (
    CLAUDE_CODE,
    ProviderChoice,
    known_providers,
    resolve_provider,
)
from op_jupyter.providers.recorded import (
    Cassette,
    RecordedProvider,
    ReplayMode,
    parse_replay_mode,
)
from op_jupyter.providers.recorded_decisions import RecordedDecisions
from op_jupyter.store.cassette_use import VARIABLE as LOG_VARIABLE
from op_jupyter.tools.skills import SkillFolders

if TYPE_CHECKING:
    from op_jupyter.core.permissions import PermissionMode
    from op_jupyter.engine.asking import Asker
    from op_jupyter.engine.attempt_host import AttemptHost
    from op_jupyter.engine.service import Service
    from op_jupyter.engine.session import AgentSession
    from op_jupyter.store.base import OpenSession, Store
    from op_jupyter.store.cassettes import FileCassette
    from op_jupyter.store.search import SearchIndex
    from op_jupyter.store.sessions import SessionStore

log = logging.getLogger(__name__)
EVERYTHING: Final = (
    f"{ALLOW_EVERYTHING_ENV}=1: whatever no rule denies runs here without asking, "
    "dangerous code included"
)
_OWN_CONVERSATION: Final = (
    "{} keeps its own conversation and runs tools of its own, which cannot be recorded or"
    " replayed; choose another provider, or replay=off"
)
_UNASKED: Final = f"{CLAUDE_CODE} ({{}})"


def settings(overrides: Mapping[str, str | None] | None = None) -> Settings:
    """The settings in force, *overrides* first; see `config.settings`."""
    return load_settings(os.environ, overrides)


def default_store(root: Path | str | None = None, kernel_id: str | None = None) -> SessionStore:
    """The store in the configured place; *kernel_id* tells others who holds a session."""
    from op_jupyter.store.sessions import SessionStore

    return SessionStore(root or settings().get("home"), kernel_id=kernel_id)


def default_service(store: Store | None = None, *, asker: Asker | None = None) -> Service:
    """What works with the sessions of *store* (None: the default one).

    *asker*: who is asked when its attempts need permission; None: whoever calls its `answer`.
    """
    from op_jupyter.engine.service import Service

    store = default_store() if store is None else store
    root = store.root
    return Service(
        store,
        host=lambda: _attempt_host(asker),
        searcher=None if root is None else lambda: _search_index(root),
        exporters={
            "md": lambda session, **_: str(_views().to_markdown(session.snapshot())),
            "html": lambda session, **_: str(_views().to_html(session.snapshot())),
            "json": _to_json,
            "ipynb": lambda session, **_: str(_views().to_notebook(session.snapshot())),
        },
    )


def _attempt_host(asker: Asker | None) -> AttemptHost:
    from op_jupyter.engine.asking import ParkedAsker
    from op_jupyter.engine.attempt_host import AttemptHost
    from op_jupyter.engine.session_config import Limits

    chosen = settings()
    return AttemptHost(
        create_runtime,
        Limits(
            known_providers(chosen.endpoints),
            cast("PermissionMode", chosen.get("mode")),  # it has a default, and was checked
            tuple(server.name for server in chosen.mcp_servers),
        ),
        chosen.mcp_servers,
        asker or ParkedAsker(),
    )


# Made on first use: loading the extension makes a service, but searches and exports nothing.


def _search_index(root: Path) -> SearchIndex:
    from op_jupyter.store.search import SearchIndex

    return SearchIndex(root)


def _views() -> ModuleType:
    from op_jupyter.views import export

    return export


def _to_json(session: OpenSession, *, whole: bool, tell: Callable[[str], None]) -> str:
    from op_jupyter.store.documents import to_json

    return to_json(session.snapshot(), session.read_blob, whole=whole, tell=tell)


def user_rules(chosen: Settings) -> tuple[Rule, ...]:
    """The permission rules of the user's own file.

    Raises:
        InvalidRule: one of them cannot be read.
    """
    return (
        *(parse_rule(text, "allow", origin=str(chosen.file)) for text in chosen.allow),
        *(parse_rule(text, "deny", origin=str(chosen.file)) for text in chosen.deny),
    )


def guard(session: AgentSession, chosen: Settings | None = None) -> None:
    """Give *session* the rules and limits of the user's configuration.

    Raises:
        ConfigurationError, InvalidRule: the configuration cannot be used.
    """
    chosen = chosen or settings()
    session.user_rules = user_rules(chosen)
    session.allow_everything = chosen.allow_everything
    session.answer_timeout = chosen.answer_timeout
    session.timeouts = chosen.timeouts
    session.attempts_at_once = chosen.attempts_at_once
    session.protected = _protected(chosen, session.workspace)
    if chosen.allow_everything:
        log.warning(EVERYTHING)


def _protected(chosen: Settings, workspace: Path) -> tuple[Path, ...]:
    """What no tool may write: skills would be followed, and settings allow things."""
    settings_file = () if chosen.file == Path() else (chosen.file,)
    return (*skill_folders(chosen, workspace).roots, *settings_file)


def skill_folders(chosen: Settings, workspace: Path) -> SkillFolders:
    """The skill folders that the settings name."""
    roots = [workspace / Path(root).expanduser() for root in chosen.skill_roots]
    return SkillFolders([Path(os.path.normpath(root)) for root in roots], Path.home())


@dataclass(frozen=True, slots=True)
class Replay:
    """An open cassette, for the model calls and the decisions of one run.

    *why*: why nothing may be asked, where the mode that was chosen is not the reason.
    """

    cassette: Cassette
    mode: ReplayMode
    folders: Folders
    redactor: Redacts
    decisions: RecordedDecisions
    why: str = ""


def open_replay(chosen: Settings, *, workspace: Path, beside: Path | None = None) -> Replay | None:
    """The cassette that the settings name; None when nothing is recorded or replayed.

    Args:
        workspace: whose path must not stand in a recording; a relative cassette starts there.
        beside: the notebook or script that the cassette belongs to when none is named.

    Raises:
        ConfigurationError: a mode is set, but nothing says which cassette.
        CorruptRecord: the file is no cassette.
    """
    mode = parse_replay_mode(chosen.get("replay") or "off")
    if mode == "off":
        return None
    named = chosen.get("cassette")
    if named is None and beside is None:
        raise ConfigurationError(
            f"replay={mode} needs a cassette: name its file with `%config AgentMagics.cassette = "
            "'name.cassette'` or OPENPROGRAM_CASSETTE"
        )
    path = beside.with_suffix(".cassette") if named is None and beside else Path(named or "")
    cassette = _cassette((workspace / path.expanduser()).absolute())
    why = ""
    if mode == "auto" and _in_ci(os.environ):
        mode, why = "replay", "replay=auto asks nothing where CI is set"
    folders = _folders(chosen, workspace)
    redactor = Cleaner()  # a notebook may set keys while it records
    decisions = RecordedDecisions(cassette, mode, folders=folders, redactor=redactor)
    return Replay(cassette, mode, folders, redactor, decisions, why)


@cache
def _cassette(path: Path) -> FileCassette:
    """One object for a file: all that this process records there is one run."""
    from op_jupyter.store.cassettes import FileCassette

    log = os.environ.get(LOG_VARIABLE)
    return FileCassette(path, None if log is None else Path(log))


def begin_recorded_run() -> None:
    """Begin a new run: replies are played from the first one again, and recorded anew."""
    _cassette.cache_clear()


def _in_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() not in ("", "0", "false", "no")


def recorded_answers() -> RecordedDecisions | None:
    """Decisions and answers for programs that no host runs; None when no cassette is named."""
    chosen = settings()
    if chosen.get("cassette") is None:
        return None
    replay = open_replay(chosen, workspace=Path.cwd())
    return None if replay is None else replay.decisions


def _folders(chosen: Settings, workspace: Path) -> Folders:
    """What a recording must not tell of this machine, under all the names that it has."""
    from op_jupyter.store.sessions import default_root

    home = chosen.get("home")
    return Folders.of(
        workspace=_names(workspace),
        home=_names(Path.home()),
        sessions=_names(default_root() if home is None else Path(home).expanduser()),
        temp=_names(Path(tempfile.gettempdir()), Path("/tmp")),
    )


def _names(*paths: Path) -> tuple[Path, ...]:
    return (*(path.resolve() for path in paths), *(path.absolute() for path in paths))


def create_runtime(
    provider: str | None = None,
    model: str | None = None,
    *,
    chosen: Settings | None = None,
    replay: Replay | None = None,
) -> Runtime:
    """A runtime of the configured provider.

    Order: *provider*, the settings, a key or address in the environment, Claude Code if it is
    installed, the local model if it is.  With a *replay*, or with one in the settings, the
    provider is made only when something has to be asked that is not recorded; what is played is
    asked of the provider and the model that the program names, or else of the recorded ones.

    Args:
        provider: ``anthropic``, ``claude-code``, ``local``, an endpoint of the settings, a
            server's name or URL.
        model: None: the configured one, or the provider's default.
        chosen: settings to use; None: those in force.
        replay: an open cassette; None: the one that the settings name.

    Raises:
        ConfigurationError: no provider is configured; says how to configure one.
    """
    if chosen is None:
        chosen = settings({"provider": provider, "model": model})
        replay = replay or open_replay(chosen, workspace=Path.cwd())
    name, wanted = provider or chosen.get("provider"), model or chosen.get("model")
    if replay is None:
        return Runtime(provider=_provider(_choose(name, wanted, chosen)), model=wanted)
    # What another machine prefers must not decide which recording is looked for.
    said = chosen.get if replay.mode == "record" else chosen.of_the_program
    named, asked = provider or said("provider"), model or said("model")
    if named == CLAUDE_CODE:
        raise ConfigurationError(_OWN_CONVERSATION.format(CLAUDE_CODE))
    make = partial(_recordable, name, wanted, chosen)
    return Runtime(provider=_recorded(make, replay, named, wanted), model=asked)


def recorded(runtime: Runtime, replay: Replay | None) -> Runtime:
    """*runtime*, of which a recording is made or played if there is a *replay*.

    Raises:
        ConfigurationError: it keeps the conversation itself, which cannot be recorded.
    """
    if replay is None:
        return runtime
    can = runtime.provider.capabilities
    if can.has_session:
        raise ConfigurationError(_OWN_CONVERSATION.format(can.name))
    return runtime.over(_recorded(lambda: runtime.provider, replay, can.name, runtime.model))


def _recorded(
    make: Callable[[], Provider], replay: Replay, name: str | None, model: str | None
) -> RecordedProvider:
    return RecordedProvider(
        make,
        replay.cassette,
        replay.mode,
        folders=replay.folders,
        name=name,
        redactor=replay.redactor,
        model=model,
        why=replay.why,
    )


def _recordable(name: str | None, model: str | None, chosen: Settings) -> Provider:
    choice = _choose(name, model, chosen)
    if choice.name == CLAUDE_CODE:
        raise ConfigurationError(_OWN_CONVERSATION.format(_UNASKED.format(choice.origin)))
    return _provider(choice)


def choose_provider(chosen: Settings) -> ProviderChoice:
    """The provider that the settings and the environment come to; it is not made.

    Raises:
        ConfigurationError: there is none; says how to configure one.
    """
    return _choose(chosen.get("provider"), chosen.get("model"), chosen)


def told_provider(chosen: Settings) -> str:
    """Which provider is asked and why, or why there is none, in words."""
    try:
        choice = choose_provider(chosen)
    except ConfigurationError as error:
        return f"none yet: {error.message}"
    return f"{choice.name}, {choice.model} ({choice.origin})"


def _choose(name: str | None, model: str | None, chosen: Settings) -> ProviderChoice:
    from op_jupyter.providers import claude_program, local_model

    return resolve_provider(
        name,
        model,
        os.environ,
        claude_available=claude_program.is_usable(),
        local_available=local_model.is_installed(),
        endpoints=chosen.endpoints,
    )


def _provider(choice: ProviderChoice) -> Provider:
    if choice.name == CLAUDE_CODE:
        from op_jupyter.providers.claude_code import ClaudeCodeProvider

        return ClaudeCodeProvider(choice.model)
    if choice.profile is None:
        from op_jupyter.providers.local import LocalProvider

        return LocalProvider()
    from op_jupyter.providers.anthropic import AnthropicProvider

    return AnthropicProvider(choice.profile)
