"""What has to be known about one endpoint that speaks the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from op_jupyter.core.values import dataclass
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.base import Capabilities

ANTHROPIC_URL: Final = "https://api.anthropic.com"
DEFAULT_MODEL: Final = "claude-opus-5-5"
AuthHeader: TypeAlias = Literal["bearer", "x-api-key", "both"]
"""The header that carries the key: ``Authorization: Bearer``, the older one, or the two."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class EndpointProfile:
    """An Anthropic-compatible endpoint.  Another server is another profile, not another provider.

    Attributes:
        name: for people: ``anthropic``, ``ollama``, ...
        base_url: without ``/v1``.
        api_key: sent as *auth* says; wins over *auth_token*, which always goes as a bearer.
        key_source: where the key came from, for messages: ``ANTHROPIC_API_KEY``.
        auth: the header that carries *api_key*.
        headers: added to every request (``anthropic-beta``); none that could carry a key.
        api_version: other than the SDK's own ``anthropic-version``.
        needs_key: refuse to start without a key.
        extra_body: fields added to every request, such as ``{"temperature": 0}``.
        thinking: the ``thinking`` field; None leaves the model at its default.
        supports_thinking: takes thinking blocks back; otherwise they are left out.
        supports_cache: takes ``cache_control`` breakpoints.
        supports_schema: takes ``output_config.format``; otherwise the schema goes into the prompt.
        read_timeout: longest silence, in seconds, before and between the bytes of an answer.
    """

    name: str = "anthropic"
    base_url: str = ANTHROPIC_URL
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    key_source: str = ""
    auth: AuthHeader = "bearer"
    headers: Mapping[str, str] = field(default_factory=dict)
    api_version: str | None = None
    needs_key: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    default_model: str = DEFAULT_MODEL
    context_tokens: int = 200_000
    max_output_tokens: int = 64_000
    max_tools: int | None = None
    small: bool = False
    thinking: Mapping[str, Any] | None = None
    supports_thinking: bool = True
    supports_cache: bool = True
    supports_schema: bool = True
    connect_timeout: float = 10
    read_timeout: float = 90

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            raise ConfigurationError(
                f"the base URL of {self.name} is {self.base_url!r};"
                " give one like https://host or http://localhost:11434",
            )
        parts = urlsplit(self.base_url)
        if parts.username or parts.password:
            raise ConfigurationError(
                f"the base URL of {self.name} holds a password; give the key separately"
            )
        for name in ("api_key", "auth_token"):
            object.__setattr__(self, name, self._clean_key(getattr(self, name)))
        url = self.base_url.rstrip("/").removesuffix("/v1")
        object.__setattr__(self, "base_url", url)

    def _clean_key(self, key: str | None) -> str | None:
        key = (key or "").strip()
        if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
            raise ConfigurationError(
                f"the key from {self.key_source or 'the settings'} holds characters that no key"
                " has; copy it again"
            )
        return key or None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name=self.name,
            default_model=self.default_model,
            context_tokens=self.context_tokens,
            max_output_tokens=self.max_output_tokens,
            max_tools=self.max_tools,
            small=self.small,
        )

    @property
    def is_loopback(self) -> bool:
        """The endpoint is on this machine: no proxy lies between."""
        return urlsplit(self.base_url).hostname in _LOOPBACK

    def redact(self, text: str) -> str:
        """*text* without this profile's secrets, which some servers repeat in their errors."""
        for secret in (self.api_key, self.auth_token):
            if secret:
                text = text.replace(secret, "[key]")
        return text


def _is_address(url: str) -> bool:
    """Whether *url* names a host, and a port if any, that can be asked over HTTP."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        return False
