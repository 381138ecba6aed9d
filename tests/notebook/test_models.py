"""The provider that a notebook makes only when it is first needed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from engine.test_exchanges import KeepingProvider
from shells import Model, Shell

from op_jupyter.engine.runtime import Runtime
from op_jupyter.notebook.extension import unload
from op_jupyter.notebook.models import DeferredProvider
from op_jupyter.notebook.notebook import Notebook
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


def shout(content: list[dict[str, str]]) -> str:
    return content[-1]["text"].upper()


def test_a_worker_gets_the_real_one_with_its_model() -> None:
    build = DeferredProvider(lambda: Runtime(call=shout, model="loud"))
    elsewhere = pickle.loads(pickle.dumps(Runtime(provider=build)))
    assert elsewhere.provider.capabilities.default_model == "loud"
    assert elsewhere.exec("hello") == "HELLO"
    elsewhere.close()


# -- a runtime of one's own


def test_a_runtime_of_ones_own_is_asked_by_cells_and_by_plain_calls(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    shell.ip.push({"shout": shout})
    shell.value(
        "from op_jupyter import Runtime, llm\n%config AgentMagics.runtime = Runtime(call=shout)"
    )
    assert str(shell.value("%%agent --tools none\nhello")).strip() == "HELLO"
    assert shell.value("llm('again')") == "AGAIN"
    assert model.settings == []
    assert "runtime      <Runtime callable default model>" in shell.says("%agent status")
    shell.value("%config AgentMagics.runtime = Runtime(call=lambda content: 'other')")
    assert shell.value("llm('again')") == "other"


def test_what_is_configured_counts_in_the_same_cell(notebook: Notebook, shell: Shell) -> None:
    shell.ip.push({"shout": shout})
    shell.value("from op_jupyter import Runtime, llm")
    answer = shell.value("%config AgentMagics.runtime = Runtime(call=shout)\nllm('hello')")
    assert answer == "HELLO"
    shell.value("%config AgentMagics.mode = 'auto'\n")  # before anything else is asked
    assert shell.value("llm('hello')") == "HELLO"


def test_a_runtime_of_ones_own_keeps_its_retries(notebook: Notebook, shell: Shell) -> None:
    tried: list[int] = []

    def broken(content: object) -> str:
        tried.append(1)
        raise ConnectionError("gone")

    shell.ip.push({"broken": broken})
    shell.value("from op_jupyter import Runtime, llm")
    shell.value("%config AgentMagics.runtime = Runtime(call=broken, max_retries=0)")
    assert "gone" in str(shell.error("llm('hello')"))
    assert tried == [1]


def test_a_runtime_of_ones_own_is_recorded_and_replayed(
    notebook: Notebook, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENPROGRAM_CASSETTE", "own.cassette")
    shell.ip.push({"shout": shout})
    shell.value("from op_jupyter import Runtime, llm")
    shell.value("%config AgentMagics.replay = 'record'")
    shell.value("%config AgentMagics.runtime = Runtime(call=shout)")
    assert shell.value("llm('hello')") == "HELLO"
    shell.value("%agent new\n")
    shell.value("%config AgentMagics.replay = 'replay'")
    shell.value("%config AgentMagics.runtime = Runtime(call=lambda content: 'live')")
    assert shell.value("llm('hello')") == "HELLO"
    assert "no recording" in str(shell.error("llm('something else')"))


def test_a_runtime_of_ones_own_is_left_open(notebook: Notebook, shell: Shell) -> None:
    own = Runtime(provider=(provider := ScriptedProvider()))
    shell.ip.push({"own": own})
    shell.value("%config AgentMagics.runtime = own")
    notebook.service()
    unload(shell.ip)
    assert not own.closed
    assert not provider.closed


def test_a_runtime_that_keeps_the_conversation_cannot_be_recorded(
    notebook: Notebook, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_CASSETTE", "own.cassette")
    shell.ip.push({"own": Runtime(provider=KeepingProvider())})
    shell.value("%config AgentMagics.replay = 'record'")
    shell.value("%config AgentMagics.runtime = own")
    assert "cannot be recorded" in str(shell.error("%%agent\nhello"))


def test_what_is_no_runtime_is_refused(notebook: Notebook, shell: Shell) -> None:
    shell.value("%config AgentMagics.runtime = print")  # traitlets says so, and goes on
    assert notebook.config.runtime is None
