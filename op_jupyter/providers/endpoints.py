"""Endpoints that the user named in the settings file.

    [endpoints.work]
    base_url = "https://gateway.example.com"
    key_env = "WORK_KEY"
    models = ["claude-opus-5-5", "claude-haiku-5-5"]

A table says what it changes; the rest is as for an unknown compatible server.  The key itself
never stands in the file: `key_env` names the environment variable that holds it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, cast, get_args

from op_jupyter.core.redact import is_secret_name
from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.profile import AuthHeader, EndpointProfile

_SECRET_HEADERS: Final = frozenset({"authorization", "x-api-key", "proxy-authorization", "cookie"})
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LITERAL_KEYS: Final = frozenset({"api_key", "key", "auth_token", "token", "password"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One table ``[endpoints.NAME]``, checked.

    Attributes:
        name: what ``provider`` calls it.
        base_url: without ``/v1``.
        key_env: variable that holds the key; None: the server wants none.
        auth: the header that carries the key.
        api_version: ``anthropic-version`` to send; None: the SDK's.
        models: what it serves, the default first; empty: anything, and a call has to say what.
        context_tokens, max_output_tokens: of its models.
        thinking, cache, schema: it understands thinking blocks, cache breakpoints and
            ``output_config.format``.
        headers: added to every request; none that could carry a key.
        extra_body: fields added to every request.
        read_timeout: longest silence, in seconds.
    """

    name: str
    base_url: str
    key_env: str | None = None
    auth: AuthHeader = "both"
    api_version: str | None = None
    models: tuple[str, ...] = ()
    context_tokens: int = 32_768
    max_output_tokens: int = 8_192
    thinking: bool = False
    cache: bool = False
    schema: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    read_timeout: float = 600  # a large prompt on a small machine is silent for minutes

    def profile(self, model: str | None, environ: Mapping[str, str]) -> EndpointProfile:
        """The profile to ask *model* with; None: the first of `models`.

        Raises:
            ConfigurationError: it does not serve *model*, or its key is not set.
        """
        return EndpointProfile(
            name=self.name,
            base_url=self.base_url,
            api_key=self._key(environ),
            key_source=self.key_env or "",
            auth=self.auth,
            headers=self.headers,
            api_version=self.api_version,
            needs_key=self.key_env is not None,
            extra_body=self.extra_body,
            default_model=self._model(model),
            context_tokens=self.context_tokens,
            max_output_tokens=self.max_output_tokens,
            supports_thinking=self.thinking,
            supports_cache=self.cache,
            supports_schema=self.schema,
            read_timeout=self.read_timeout,
        )

    def _model(self, model: str | None) -> str:
        if not self.models and not model:
            raise ConfigurationError(f"{self.name} serves many models: say which one (model=...)")
        if model and self.models and model not in self.models:
            near = difflib.get_close_matches(model, self.models, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigurationError(
                f"{self.name} does not serve {model!r}: {meant}it serves {', '.join(self.models)}"
            )
        return model or self.models[0]

    def _key(self, environ: Mapping[str, str]) -> str | None:
        if self.key_env is None:
            return None
        if not environ.get(self.key_env):
            raise ConfigurationError(
                f"there is no key for {self.name}: set the environment variable {self.key_env}"
            )
        return environ[self.key_env]


def parse_endpoint(name: str, table: object) -> Endpoint:
    """The endpoint that a table of the settings file describes.

    Raises:
        ConfigurationError: a word or value means nothing, or a key stands in it; never shows it.
    """
    where = f"endpoints.{name}"
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{where} has to be a table with at least a base_url")
    if literal := sorted(_LITERAL_KEYS & set(table)):
        raise ConfigurationError(
            f"{where} holds {literal[0]}: keep keys out of the file, put it into an environment"
            " variable and name that with key_env"
        )
    known = [f.name for f in fields(Endpoint) if f.name != "name"]
    if unknown := sorted(set(table) - set(known)):
        raise ConfigurationError(
            f"{where} has {', '.join(unknown)}, which mean nothing; known are {', '.join(known)}"
        )
    if "base_url" not in table:
        raise ConfigurationError(f"{where} needs a base_url, like http://localhost:11434")
    values = {word: _checked(f"{where}.{word}", word, value) for word, value in table.items()}
    endpoint = Endpoint(name=name, **values)
    if "max_output_tokens" not in values:
        most = min(endpoint.max_output_tokens, endpoint.context_tokens)
        endpoint = replace(endpoint, max_output_tokens=most)
    if endpoint.key_env is not None and not is_secret_name(endpoint.key_env):
        raise ConfigurationError(
            f"{where}.key_env is {endpoint.key_env!r}, which does not read like a key's name:"
            " its value would stand in records; give the variable a name like WORK_API_KEY"
        )
    if endpoint.max_output_tokens > endpoint.context_tokens:
        raise ConfigurationError(
            f"{where}.max_output_tokens is {endpoint.max_output_tokens}, more than its window has"
            f" room for: context_tokens is {endpoint.context_tokens}"
        )
    EndpointProfile(name=name, base_url=endpoint.base_url)  # refuses a URL that is none
    return endpoint


def _checked(where: str, word: str, value: Any) -> Any:
    match word:
        case "models":
            if not _is_texts(value) or not value:
                raise ConfigurationError(f"{where} has to be a list of model names")
            return tuple(value)
        case "auth":
            if value not in get_args(AuthHeader):
                raise ConfigurationError(
                    f"{where} is {value!r}; use {', '.join(get_args(AuthHeader))}"
                )
            return cast("AuthHeader", value)
        case "headers":
            return _checked_headers(where, value)
        case "extra_body":
            if not isinstance(value, Mapping):
                raise ConfigurationError(f"{where} has to be a table")
            return dict(value)
        case "context_tokens" | "max_output_tokens":
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{where} has to be a whole number above 0")
            return value
        case "read_timeout":
            if type(value) not in (int, float) or not 0 < value < float("inf"):
                raise ConfigurationError(f"{where} has to be a number of seconds above 0")
            return float(value)
        case "thinking" | "cache" | "schema":
            if not isinstance(value, bool):
                raise ConfigurationError(f"{where} has to be true or false")
            return value
        case _:
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{where} has to be text")
            return value


def _checked_headers(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not _is_texts(list(value.values())):
        raise ConfigurationError(f"{where} has to be a table of texts")
    if secret := sorted(name for name in value if name.lower() in _SECRET_HEADERS):
        raise ConfigurationError(
            f"{where} sets {secret[0]}: keep keys out of the file, name the variable with key_env"
        )
    odd = [
        n
        for n, v in value.items()
        if not _HEADER.fullmatch(n) or not v.isascii() or not v.isprintable()
    ]
    if odd:
        raise ConfigurationError(f"{where} has {odd[0]!r}, which cannot be sent as a header")
    return dict(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
