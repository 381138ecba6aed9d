"""The seam to a model service.

A provider sends one request and yields what comes back.  It never retries, never waits
between attempts and keeps no policy: that is the runtime's (see `engine.retry`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Protocol

from op_jupyter.core.messages import ModelDelta, ModelRequest, ToolResultBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do, and how large its model is.

    Attributes:
        name: for people: ``anthropic``, ``local``, ...
        default_model: used when nobody names a model.
        context_tokens: window of the model.
        max_output_tokens: most it may be asked for.
        max_tools: most tools it can be offered; None: any number.
        has_session: it keeps the conversation itself; history is not sent.
        small: world state and prompts have to be tiny.
    """

    name: str
    default_model: str
    context_tokens: int = 200_000
    max_output_tokens: int = 8192
    max_tools: int | None = None
    has_session: bool = False
    small: bool = False


class Provider(Protocol):
    """One kind of model service, ready to be asked."""

    @property
    def capabilities(self) -> Capabilities: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Send *request*; yield deltas, then exactly one `ResponseDone`.

        Whoever leaves the stream before its end closes it (`contextlib.aclosing`); closing and
        cancelling end the request.

        Raises:
            ProviderError: translated once, here; ``retryable`` and ``semantic_output`` are
                right.  Never a half message.
        """

    async def aclose(self) -> None:
        """Free connections and processes.  Safe to call twice."""


def keeps_connections(provider: Provider) -> bool:
    """Whether *provider* keeps connections open between requests, and nothing of what was said.

    Such a provider says so by an attribute of this name; calls do well to share it.
    """
    return getattr(provider, "keeps_connections", False) is True


def holds_nothing(provider: Provider) -> bool:
    """Whether *provider* has nothing to free, so that nobody needs to wait for its end.

    Such a provider says so by an attribute of this name.
    """
    return getattr(provider, "holds_nothing", False) is True


CONVERSATION: Final = "provider_session"
"""In `ResponseDone.details`: the provider's own id of the conversation that it keeps."""


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool that a provider runs itself, once it is told that it may.

    *reads* and *writes* name the arguments that hold paths, *code* the one that holds source
    text in *language*.
    """

    spec: ToolSpec
    effect: Effect
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    code: str = ""
    language: str = ""


class Conversations(Protocol):
    """What else is said to a provider that keeps the conversation itself.

    An *exchange* is one loop of model and tool calls; it begins with the first request that
    names it (`ModelRequest.continuation`).  The calls of a response are settled in their order,
    each by one `deliver`.
    """

    @property
    def own_tools(self) -> Sequence[OwnTool]: ...

    async def remembers(self, conversation: str, folder: str) -> bool:
        """Whether that conversation can be gone on with."""

    async def run_own(self, exchange: str, arguments: Mapping[str, Any]) -> ToolResultBlock:
        """Let the provider run the call that is due, with *arguments*; what came out."""

    def deliver(self, exchange: str, result: ToolResultBlock) -> None:
        """The result of the call that is due."""

    def end(self, exchange: str) -> None:
        """The loop is over.  What the provider still does for it is stopped."""


class SessionProvider(Provider, Protocol):
    """A provider whose capabilities say ``has_session``."""

    @property
    def conversations(self) -> Conversations: ...
