"""What a session may be configured to, by whoever can make sessions.

A configuration chooses among what the user's own settings allow, and never widens it: it names no
program and no address, and asks for no permission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

from op_jupyter.core.agents import at_most
from op_jupyter.core.permissions import PermissionMode
from op_jupyter.core.turn import MAX_MODEL_CALLS
from op_jupyter.core.values import dataclass
from op_jupyter.errors import UsageError

_WIDENS: Final = frozenset({
    "allow", "allowall", "alloweverything", "alwaysallow", "deny", "rules", "permissions",
    "permissionrules", "sandbox", "shell", "extratools", "includeshelltools", "workspace", "home",
    "mcpservers", "command", "commands", "args", "env", "toolpath", "toolpaths", "executable",
    "path", "paths", "baseurl", "url", "urls", "endpoint", "endpoints", "apikey", "key",
    "headers", "skills", "skillroots", "replay", "cassette", "answertimeout",
})  # fmt: skip
"""Keys, without their ``_`` and ``-``, that would widen permissions, or name a program or place."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user's own settings allow.

    Attributes:
        providers: names that a session may choose from.
        mode: the widest mode.
        servers: names of the configured MCP servers.
    """

    providers: Sequence[str] = ()
    mode: PermissionMode = "accept_edits"
    servers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """A configuration that was checked.

    Attributes:
        tools: the only ones to offer; None: all.
        mcp: the only servers to offer; None: all.
        memory: offer `remember` and `recall`.
    """

    provider: str | None = None
    model: str | None = None
    mode: PermissionMode | None = None
    max_steps: int = MAX_MODEL_CALLS
    tools: tuple[str, ...] | None = None
    mcp: tuple[str, ...] | None = None
    memory: bool = False


def checked_config(config: Mapping[str, Any], limits: Limits) -> SessionConfig:
    """*config*, when it asks for nothing that *limits* do not allow.

    Raises:
        UsageError: it holds keys that mean nothing, or that a session may not set; names them.
    """
    names = [str(key) for key in config]
    refused = sorted(name for name in names if _plain(name) in _WIDENS)
    if refused:
        raise UsageError(
            f"a session may not set {', '.join(refused)}: what permits something or names a "
            "program or an address comes from your settings file alone"
        )
    if unknown := sorted(set(names) - set(_READERS)):
        raise UsageError(
            f"a session has no setting {', '.join(unknown)}; there are: {', '.join(_READERS)}"
        )
    return SessionConfig(**{name: _READERS[name](config[name], limits) for name in names})


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _provider(value: Any, limits: Limits) -> str:
    if value not in limits.providers:
        raise UsageError(
            f"provider {value!r:.80} is none that your settings know: "
            f"{', '.join(limits.providers) or 'none'}"
        )
    return str(value)


def _model(value: Any, _limits: Limits) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise UsageError(f"model {value!r:.80} is no name of a model")
    return value


def _mode(value: Any, limits: Limits) -> PermissionMode:
    if value not in get_args(PermissionMode):
        raise UsageError(f"mode {value!r:.80}: use {', '.join(get_args(PermissionMode))}")
    mode: PermissionMode = value
    if at_most(mode, limits.mode) != mode:
        raise UsageError(
            f"a session may not set mode {mode!r}: your settings allow {limits.mode!r} at most"
        )
    return mode


def _max_steps(value: Any, _limits: Limits) -> int:
    if type(value) is not int or not 1 <= value <= MAX_MODEL_CALLS:
        raise UsageError(f"max_steps {value!r:.80}: use a number from 1 to {MAX_MODEL_CALLS}")
    return value


def _names(what: str) -> Callable[[Any, Limits], tuple[str, ...]]:
    def read(value: Any, limits: Limits) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(n, str) for n in value):
            raise UsageError(f"{what} has to be a list of names, not {value!r:.80}")
        strange = [name for name in value if what == "mcp" and name not in limits.servers]
        if strange:
            raise UsageError(
                f"a session may choose among the MCP servers of your settings; "
                f"{', '.join(strange)} is none of them"
            )
        return tuple(value)

    return read


def _memory(value: Any, _limits: Limits) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"memory {value!r:.80}: use true or false")
    return value


_READERS: Final[Mapping[str, Callable[[Any, Limits], Any]]] = {
    "provider": _provider,
    "model": _model,
    "mode": _mode,
    "max_steps": _max_steps,
    "tools": _names("tools"),
    "mcp": _names("mcp"),
    "memory": _memory,
}
