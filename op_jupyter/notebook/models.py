"""The runtimes of one notebook: built when a model is first asked, kept until the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from op_jupyter.core.messages import ModelDelta, ModelRequest
from op_jupyter.engine.runtime import Runtime
from op_jupyter.providers.base import Capabilities, Provider

Build = Callable[[], Runtime]


class DeferredProvider:
    """A provider that is made when it is first needed.

    Loading the extension may not wait for an SDK, ask for a key or start a model; a notebook
    without any configured provider still records what its functions do.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._runtime: Runtime | None = None

    def _ready(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._build()
        return self._runtime

    @property
    def capabilities(self) -> Capabilities:
        """Those of the real one; its runtime's model is the default.

        Raises:
            ConfigurationError: no provider can be made; says how to configure one.
        """
        runtime = self._ready()
        told = runtime.provider.capabilities
        return replace(told, default_model=runtime.model or told.default_model)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """What the real one streams."""
        provider: Provider = self._ready().provider
        return provider.stream(request)

    async def aclose(self) -> None:
        """Close the real one, if it was ever made."""
        if self._runtime is not None:
            await self._runtime.provider.aclose()


class Runtimes:
    """One runtime for each way to configure one."""

    def __init__(self) -> None:
        self._made: dict[object, Runtime] = {}

    def get(self, key: object, build: Build) -> Runtime:
        """The runtime for *key*; the same one each time."""
        if key not in self._made:
            self._made[key] = Runtime(provider=DeferredProvider(build))
        return self._made[key]

    def close(self) -> None:
        """End all of them."""
        made, self._made = self._made, {}
        for runtime in made.values():
            runtime.close()
