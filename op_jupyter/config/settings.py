"""Settings: where each value comes from, and which source wins.

Order: what the caller passes (traitlets, flags), the environment, the user's file, the default.
The file is TOML: ``provider``, ``model``, ``home``, ``replay``, ``cassette``, ``mode``,
``answer_timeout`` (seconds), ``attempts_at_once``, ``[permissions] allow = [...], deny = [...]``,
``[skills] roots = [...]``, one ``[endpoints.NAME]`` for each model service, one ``[mcp.NAME]``
(``command``, ``args``, ``env``) for each MCP server, one ``[prices."MODEL"]`` for each model
whose tokens are to be counted in money, and ``[timeouts] TOOL = seconds`` (or ``"none"``).
One switch is the environment's alone: ``OPENPROGRAM_ALLOW_EVERYTHING=1``, for CI.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Final

import platformdirs

from op_jupyter.core.prices import Price
from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.catalog import BUILT_IN
from op_jupyter.providers.endpoints import Endpoint, parse_endpoint
from op_jupyter.tools.mcp import ServerConfig, parse_server

APP: Final = "op-jupyter"
CONFIG_ENV: Final = "OPENPROGRAM_CONFIG"

ENVIRONMENT: Final[Mapping[str, str]] = {
    "provider": "OPENPROGRAM_PROVIDER",
    "model": "OPENPROGRAM_MODEL",
    "home": "OPENPROGRAM_HOME",
    "replay": "OPENPROGRAM_REPLAY",
    "cassette": "OPENPROGRAM_CASSETTE",
    "mode": "OPENPROGRAM_MODE",
    "answer_timeout": "OPENPROGRAM_ANSWER_TIMEOUT",
    "attempts_at_once": "OPENPROGRAM_ATTEMPTS_AT_ONCE",
}
ALLOW_EVERYTHING_ENV: Final = "OPENPROGRAM_ALLOW_EVERYTHING"
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "replay": ("off", "record", "replay", "auto"),
    "mode": ("read_only", "accept_edits", "auto"),
}
_TABLES: Final = frozenset({"permissions", "skills", "endpoints", "mcp", "prices", "timeouts"})
SKILL_ROOTS: Final = ("~/.agents/skills", "./.agents/skills")
_HERE: Final = "this notebook"
_MOST_DIGITS: Final = 9
DEFAULTS: Final[Mapping[str, str]] = {
    "replay": "off",
    "mode": "accept_edits",
    "attempts_at_once": "4",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it comes from."""

    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of this process.

    Attributes:
        allow, deny: permission rules of the user's file.
        endpoints: the servers that *file* names.
        allow_everything: the switch for CI is set.
        skill_roots: folders of skills; relative ones start at the workspace.
        mcp_servers: programs that offer tools.
        prices: of a million tokens, by model.
        timeouts: seconds that a call of a tool may take, by its name; `math.inf`: any time.
    """

    values: Mapping[str, Setting]
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    file: Path = field(default_factory=Path)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    allow_everything: bool = False
    skill_roots: tuple[str, ...] = SKILL_ROOTS
    mcp_servers: tuple[ServerConfig, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)
    timeouts: Mapping[str, float] = field(default_factory=dict)

    @property
    def answer_timeout(self) -> float | None:
        """Seconds until a question that nobody answers is a denial; None: never."""
        text = self.get("answer_timeout")
        return None if text is None else float(text)

    @property
    def attempts_at_once(self) -> int:
        """So many turns run at once in this process; a further one waits."""
        return int(self.get("attempts_at_once") or DEFAULTS["attempts_at_once"])

    def get(self, name: str) -> str | None:
        """The value of *name*, or None when nothing sets it."""
        setting = self.values.get(name)
        return None if setting is None else setting.value

    def of_the_program(self, name: str) -> str | None:
        """The value of *name* if the notebook or the program sets it, and not the machine."""
        setting = self.values.get(name)
        return setting.value if setting is not None and setting.origin == _HERE else None


def config_file(environ: Mapping[str, str]) -> Path:
    """The user's file; it need not exist, unless the environment names it."""
    named = environ.get(CONFIG_ENV)
    return Path(named) if named else platformdirs.user_config_path(APP) / "config.toml"


def load_settings(
    environ: Mapping[str, str], overrides: Mapping[str, str | None] | None = None
) -> Settings:
    """Read all sources.

    Raises:
        ConfigurationError: the file is not TOML, or holds a key or value that means nothing.
    """
    path = config_file(environ)
    from_file = _read_file(path, wanted=bool(environ.get(CONFIG_ENV)))
    permissions = from_file.pop("permissions", {})
    roots = _skill_roots(from_file.pop("skills", {}), path)
    endpoints = _endpoints(from_file.pop("endpoints", {}), path)
    servers = _servers(from_file.pop("mcp", {}), path)
    prices = _prices(from_file.pop("prices", {}), path)
    timeouts = _timeouts(from_file.pop("timeouts", {}), path)
    values: dict[str, Setting] = {}
    for name, variable in ENVIRONMENT.items():
        sources = (
            ((overrides or {}).get(name), _HERE),
            (environ.get(variable), variable),
            (from_file.get(name), str(path)),
            (DEFAULTS.get(name), "default"),
        )
        for value, origin in sources:
            if value:
                values[name] = Setting(_checked(name, value, origin), origin)
                break
    allow, deny = (_rules(permissions, kind, path) for kind in ("allow", "deny"))
    everything = _everything(environ)
    return Settings(
        values, allow, deny, path, endpoints, everything, roots, servers, prices, timeouts
    )


def _timeouts(table: Any, path: Path) -> dict[str, float]:
    if not isinstance(table, dict):
        raise ConfigurationError(f"timeouts in {path} has to be a table: TOOL = seconds")
    return {tool: _limit(f"timeouts.{tool}", value, path) for tool, value in table.items()}


def _limit(name: str, value: Any, path: Path) -> float:
    if value == "none":
        return math.inf
    try:
        return float(_seconds(name, value, str(path)))
    except ConfigurationError as error:
        raise ConfigurationError(f'{error.message}, or "none"') from None


def _prices(tables: Any, path: Path) -> dict[str, Price]:
    if not isinstance(tables, dict):
        raise ConfigurationError(f'prices in {path} has to be tables: [prices."MODEL"]')
    return {model: _price(model, table, path) for model, table in tables.items()}


def _price(model: str, table: Any, path: Path) -> Price:
    names = tuple(each.name for each in fields(Price))
    good = isinstance(table, dict) and {"input", "output"} <= set(table) <= set(names)
    if not good or not all(_is_amount(value) for value in table.values()):
        raise ConfigurationError(
            f"prices.{model} in {path} has to hold input and output, and may hold cache_read and "
            "cache_write: numbers, for a million tokens"
        )
    return Price(**table)


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _servers(tables: Any, path: Path) -> tuple[ServerConfig, ...]:
    if not isinstance(tables, dict):
        raise ConfigurationError(f"mcp in {path} has to be tables: [mcp.NAME] for each server")
    return tuple(parse_server(name, data, str(path)) for name, data in tables.items())


def _everything(environ: Mapping[str, str]) -> bool:
    value = environ.get(ALLOW_EVERYTHING_ENV, "")
    if value not in ("", "0", "1"):
        raise ConfigurationError(f"{ALLOW_EVERYTHING_ENV}={value!r}: use 1, or unset it")
    return value == "1"


def _checked(name: str, value: Any, origin: str) -> str:
    if name == "answer_timeout":
        return _seconds(name, value, origin)
    if name == "attempts_at_once":
        return _number(name, value, origin)
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} from {origin} has to be text, not {value!r}")
    choices = CHOICES.get(name)
    if choices is not None and value not in choices:
        raise ConfigurationError(f"{name}={value!r} from {origin}: use {', '.join(choices)}")
    return value


def _number(name: str, value: Any, origin: str) -> str:
    text = str(value)
    digits = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if isinstance(value, bool) or not digits or int(text) < 1:
        raise ConfigurationError(f"{name}={value!r:.60} from {origin}: use a number from 1 on")
    return text


def _seconds(name: str, value: Any, origin: str) -> str:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if isinstance(value, bool) or not 0 < seconds < math.inf:
        raise ConfigurationError(f"{name}={value!r} from {origin}: use a number of seconds")
    return str(value)


def _parse(text: str) -> dict[str, Any]:
    import tomllib  # on first use: most people have no such file, and loading should be quick

    return tomllib.loads(text)


def _read_file(path: Path, *, wanted: bool) -> dict[str, Any]:
    try:
        data = _parse(path.read_text(encoding="utf-8-sig"))  # Notepad writes a mark
    except FileNotFoundError:
        if wanted:
            raise ConfigurationError(
                f"{CONFIG_ENV} names {path}, which is not there; write that file (it may be "
                f"empty), or unset {CONFIG_ENV}"
            ) from None
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the settings file {path} cannot be read: {error}") from error
    if unknown := sorted(set(data) - set(ENVIRONMENT) - _TABLES):
        raise ConfigurationError(
            f"the settings file {path} has {', '.join(unknown)}, which mean nothing; "
            f"known are {', '.join(ENVIRONMENT)}, {', '.join(sorted(_TABLES))}"
        )
    return data


def _endpoints(tables: Any, path: Path) -> dict[str, Endpoint]:
    if not isinstance(tables, dict):
        raise ConfigurationError(f"endpoints in {path} has to hold tables: [endpoints.NAME]")
    if taken := sorted(set(tables) & set(BUILT_IN)):
        raise ConfigurationError(f"{path} calls an endpoint {taken[0]!r}; choose another name")
    try:
        return {name: parse_endpoint(name, table) for name, table in tables.items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"the settings file {path}: {error.message}") from None


def _skill_roots(table: Any, path: Path) -> tuple[str, ...]:
    if not isinstance(table, dict) or set(table) - {"roots"}:
        raise ConfigurationError(f"skills in {path} has to be a table with roots alone")
    roots = table.get("roots", list(SKILL_ROOTS))
    if not isinstance(roots, list) or not all(isinstance(r, str) and r.strip() for r in roots):
        raise ConfigurationError(f"skills.roots in {path} has to be a list of folders")
    return tuple(roots)


def _rules(permissions: Any, kind: str, path: Path) -> tuple[str, ...]:
    rules = permissions.get(kind, []) if isinstance(permissions, dict) else None
    if not isinstance(rules, list) or not all(isinstance(r, str) for r in rules):
        raise ConfigurationError(f"permissions.{kind} in {path} has to be a list of texts")
    return tuple(rules)
