"""What asks the model: made when it is first needed, kept as long as the notebook."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from op_jupyter import bootstrap
from op_jupyter.config.settings import Settings
from op_jupyter.core.messages import ModelDelta, ModelRequest
from op_jupyter.engine.runtime import Runtime
from op_jupyter.providers.base import (
    Capabilities,
    Conversations,
    Provider,
    SessionProvider,
    keeps_connections,
)
from op_jupyter.providers.recorded_decisions import RecordedDecisions

Build = Callable[[], Runtime]
MakeRuntime = Callable[[Settings, bootstrap.Replay | None], Runtime]


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

    @property
    def conversations(self) -> Conversations:
        """Those of the real one, which keeps the conversation itself."""
        return cast("SessionProvider", self._ready().provider).conversations

    @property
    def keeps_connections(self) -> bool:
        """Whether the real one does."""
        return keeps_connections(self._ready().provider)

    async def aclose(self) -> None:
        """Close the real one, if it was ever made."""
        if self._runtime is not None:
            await self._runtime.provider.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        """The real one elsewhere: a worker knows nothing of this notebook's configuration."""
        return _made, (self._ready(),)


def _made(runtime: Runtime) -> DeferredProvider:
    return DeferredProvider(lambda: runtime)


class Service:
    """What asks the model, and the recorded decisions that go with it.

    The cassette is opened with the first question: a notebook names it after it has loaded us.
    """

    def __init__(
        self,
        make_runtime: MakeRuntime,
        chosen: Settings,
        open_replay: Callable[[], bootstrap.Replay | None],
        given: Runtime | None = None,
    ) -> None:
        self._replay = cache(open_replay)
        self._is_given = given is not None
        if given is not None:
            # Its own retries and limits hold.  It exists, so nothing is put off but the cassette.
            self.runtime = given.over(
                DeferredProvider(lambda: bootstrap.recorded(given, self._replay()))
            )
            return
        self.runtime = Runtime(
            provider=DeferredProvider(lambda: make_runtime(chosen, self._replay()))
        )

    def close(self) -> None:
        """End it, unless somebody else made it."""
        if not self._is_given:
            self.runtime.close()

    @property
    def decisions(self) -> RecordedDecisions | None:
        """Those of the cassette; None when nothing is recorded or replayed.

        Raises:
            ConfigurationError, CorruptRecord: there is no usable cassette for a replay.
        """
        return None if self.replay is None else self.replay.decisions

    @property
    def replay(self) -> bootstrap.Replay | None:
        """What is recorded or replayed; raises as `decisions` does."""
        return self._replay()


class Services:
    """One service for each way to configure one, kept until `close`."""

    def __init__(self, make_runtime: MakeRuntime) -> None:
        self._make_runtime = make_runtime
        self._made: dict[object, Service] = {}

    def get(
        self,
        chosen: Settings,
        workspace: Path,
        notebook: Path | None,
        given: Runtime | None = None,
    ) -> Service:
        """The service for these settings, or the one that was *given*; the same one each time."""
        values = [(name, setting.value) for name, setting in sorted(chosen.values.items())]
        key = (tuple(values), workspace, notebook, given)
        if key not in self._made:
            self._made[key] = Service(
                self._make_runtime,
                chosen,
                lambda: bootstrap.open_replay(chosen, workspace=workspace, beside=notebook),
                given,
            )
        return self._made[key]

    def close(self) -> None:
        """End all of them."""
        made, self._made = self._made, {}
        for service in made.values():
            service.close()


def configured_runtime(chosen: Settings, replay: bootstrap.Replay | None) -> Runtime:
    """The runtime that the settings ask for."""
    return bootstrap.create_runtime(chosen=chosen, replay=replay)
