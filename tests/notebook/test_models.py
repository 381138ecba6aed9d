"""The provider that a notebook makes only when it is first needed."""

from __future__ import annotations

from engine.test_exchanges import KeepingProvider

from op_jupyter.engine.runtime import Runtime
from op_jupyter.notebook.models import DeferredProvider
from op_jupyter.testing.providers import ScriptedProvider


def test_it_passes_on_what_a_provider_that_keeps_the_conversation_needs() -> None:
    real = KeepingProvider()
    deferred = DeferredProvider(lambda: Runtime(provider=real))
    assert deferred.capabilities.has_session
    assert deferred.conversations is real


def test_nothing_is_made_before_it_is_needed() -> None:
    made: list[int] = []

    def build() -> Runtime:
        made.append(1)
        return Runtime(provider=ScriptedProvider())

    deferred = DeferredProvider(build)
    assert made == []
    assert not deferred.capabilities.has_session
    assert deferred.capabilities.name == "scripted"
    assert made == [1]
