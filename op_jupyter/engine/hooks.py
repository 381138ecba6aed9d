"""Seams where a host reaches into the engine.  The engine never imports a user interface.

`set_defaults` is called once by the package itself: it tells where a default runtime and a
default store come from, without the engine importing the layer above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from op_jupyter.errors import ConfigurationError

if TYPE_CHECKING:
    from op_jupyter.core.permissions import PermissionRequest
    from op_jupyter.core.questions import Question
    from op_jupyter.engine.recorded_asker import Recorded
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession
    from op_jupyter.store.base import Store


class Defaults(Protocol):
    """What the composition root offers."""

    def create_runtime(self, provider: str | None = None, model: str | None = None) -> Runtime: ...

    def default_store(self) -> Store: ...

    def guard(self, session: AgentSession) -> None:
        """Give a session that was just opened the rules and limits of the configuration."""

    def recorded_answers(self) -> Recorded | None:
        """The recorded answers of programs that no host runs; None: nothing is recorded."""


AskHandler: TypeAlias = "Callable[[Question], Any]"
PermissionHandler: TypeAlias = "Callable[[PermissionRequest], Any]"
SessionIdProvider: TypeAlias = Callable[[], str | None]
PreInvocationHook: TypeAlias = "Callable[[str, Mapping[str, Any]], None]"

_load_defaults: Callable[[], Defaults] | None = None
_cancellation_check: Callable[[], bool] | None = None
_session_id_provider: SessionIdProvider | None = None
_ask_handler: AskHandler | None = None
_permission_handler: PermissionHandler | None = None
_before: tuple[PreInvocationHook, ...] = ()


def _check_function(seam: str, function: object, *, optional: bool = True) -> None:
    if not callable(function) and not (optional and function is None):
        also = ", or None" if optional else ""
        raise ConfigurationError(f"{seam}({function!r:.60}): give a function{also}")


def set_defaults(load: Callable[[], Defaults] | None) -> None:
    """Register where defaults come from; *load* is called on first use."""
    global _load_defaults
    _load_defaults = load


def guard(session: AgentSession) -> None:
    """Give *session* the rules and limits that are configured, where defaults are registered."""
    if _load_defaults is not None:
        _load_defaults().guard(session)


def recorded_answers() -> Recorded | None:
    """The recorded answers on cards and to questions, where the configuration names some."""
    return None if _load_defaults is None else _load_defaults().recorded_answers()


def defaults() -> Defaults:
    """What `set_defaults` registered.

    Raises:
        ConfigurationError: nothing was.
    """
    if _load_defaults is None:
        raise ConfigurationError("no default runtime and store are registered; pass your own")
    return _load_defaults()


def set_cancellation_check(check: Callable[[], bool] | None) -> None:
    """Register how a host says "stop"; None: nothing cancels.

    *check* is asked when a function is entered, before the model is asked, and ten times a
    second while a model or a person is waited for; it has to be quick, and sees the context
    variables of the call.  True ends the call with `TurnCancelled`.
    """
    global _cancellation_check
    _check_function("set_cancellation_check", check)
    _cancellation_check = check


def can_cancel() -> bool:
    """Whether a host has a way to say "stop"."""
    return _cancellation_check is not None


def is_cancelled() -> bool:
    """Whether the host wants what runs to stop."""
    return _cancellation_check is not None and _cancellation_check()


def add_pre_invocation_hook(hook: PreInvocationHook) -> None:
    """Have ``hook(name, arguments)`` called when an agentic function is entered.

    The arguments are as they are recorded.  What *hook* raises ends the call, and is recorded
    with it.  Adding it twice has it called twice.
    """
    global _before
    _check_function("add_pre_invocation_hook", hook, optional=False)
    _before = (*_before, hook)


def remove_pre_invocation_hook(hook: PreInvocationHook) -> None:
    """Take back what `add_pre_invocation_hook` added, once; harmless when it is not there."""
    global _before
    hooks = list(_before)
    if hook in hooks:
        hooks.remove(hook)
    _before = tuple(hooks)


def before_invocation(name: str, arguments: Mapping[str, Any]) -> None:
    """Tell everyone who wants to know that the function *name* is entered."""
    for hook in _before:
        hook(name, arguments)


def set_session_id_provider(provider: SessionIdProvider | None) -> None:
    """Say which of the host's sessions a question belongs to: its `Question.session_id`.

    When *provider* says None, nobody is there for the call: `can_ask()` is False.  It is called
    with the context variables of the call.
    """
    global _session_id_provider
    _check_function("set_session_id_provider", provider)
    _session_id_provider = provider


def session_id_provider() -> SessionIdProvider | None:
    """What `set_session_id_provider` registered."""
    return _session_id_provider


def set_ask_handler(handler: AskHandler | None) -> None:
    """Answer questions with *handler*, before any other way; None: the other ways.

    It is given a `Question`, sync (in a worker thread) or async, and returns the answer as plain
    JSON: a text, a list of texts, True or False, or a form's object.  None declines.
    """
    global _ask_handler
    _check_function("set_ask_handler", handler)
    _ask_handler = handler


def ask_handler() -> AskHandler | None:
    """What `set_ask_handler` registered."""
    return _ask_handler


def set_permission_handler(handler: PermissionHandler | None) -> None:
    """Decide with *handler* what would ask a person, before any other way; None: the other ways.

    It is given a `PermissionRequest`, sync (in a worker thread) or async, and returns ``"allow"``,
    ``"allow_session"``, ``"deny"``, a `PermissionAnswer`, or None, which leaves it to the other
    ways.  What it raises is a denial.  Sub-agents can ask nobody, and so not *handler* either.
    """
    global _permission_handler
    _check_function("set_permission_handler", handler)
    _permission_handler = handler


def permission_handler() -> PermissionHandler | None:
    """What `set_permission_handler` registered."""
    return _permission_handler
