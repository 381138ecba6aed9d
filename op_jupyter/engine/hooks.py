"""Seams where a host reaches into the engine.  The engine never imports a user interface.

`set_defaults` is called once by the package itself: it tells where a default runtime and a
default store come from, without the engine importing the layer above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from op_jupyter.errors import ConfigurationError

if TYPE_CHECKING:
    from op_jupyter.engine.runtime import Runtime
    from op_jupyter.engine.session import AgentSession
    from op_jupyter.store.base import Store


class Defaults(Protocol):
    """What the composition root offers."""

    def create_runtime(self, provider: str | None = None, model: str | None = None) -> Runtime: ...

    def default_store(self) -> Store: ...

    def guard(self, session: AgentSession) -> None:
        """Give a session that was just opened the rules and limits of the configuration."""


_load_defaults: Callable[[], Defaults] | None = None


def set_defaults(load: Callable[[], Defaults] | None) -> None:
    """Register where defaults come from; *load* is called on first use."""
    global _load_defaults
    _load_defaults = load


def guard(session: AgentSession) -> None:
    """Give *session* the rules and limits that are configured, where defaults are registered."""
    if _load_defaults is not None:
        _load_defaults().guard(session)


def defaults() -> Defaults:
    """What `set_defaults` registered.

    Raises:
        ConfigurationError: nothing was.
    """
    if _load_defaults is None:
        raise ConfigurationError("no default runtime and store are registered; pass your own")
    return _load_defaults()
