"""The seam to a model service.

A provider sends one request and yields what comes back.  It never retries, never waits
between attempts and keeps no policy: that is the runtime's (see `agent.retry`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from op_jupyter.core.messages import ModelDelta, ModelRequest


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
