"""What a turn works with, and what it takes: ``%agent model``, ``provider``, ``cost``."""

from __future__ import annotations

from pathlib import Path

import pytest
from shells import Model, Shell

from op_jupyter.config.settings import Settings
from op_jupyter.core.messages import Usage
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import ConfigurationError, TurnFailed, UsageError
from op_jupyter.notebook.extension import load
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import call, reply


def test_a_model_is_asked_until_the_choice_is_taken_back(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    assert "none is named" in shell.says("%agent model")
    assert shell.says("%agent model little") == "model: little (from this notebook)"
    model.answers(reply("a"))
    shell.value("from op_jupyter import llm\nllm('Hello')")
    assert model.settings[-1].get("model") == "little"
    assert "none is named" in shell.says("%agent model default")


def test_a_provider_that_cannot_be_used_is_refused_at_once(
    clean_environment: None, shell: Shell, model: Model, store: MemoryStore
) -> None:
    def picky(settings: Settings, replay: object) -> Runtime:
        if settings.get("provider") == "nonsense":
            raise ConfigurationError("no provider 'nonsense'")
        return model.runtime(settings, replay)

    notebook = load(shell.ip, store=store, make_runtime=picky)
    assert isinstance(shell.error("%agent provider nonsense"), ConfigurationError)
    assert notebook.config.provider == ""
    assert shell.says("%agent provider local") == "provider: local (from this notebook)"


def test_what_is_asked_unasked_is_told_with_the_reason(
    notebook: Notebook, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENPROGRAM_CLAUDE", "OPENPROGRAM_LOCAL_MODEL"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    assert "provider     none yet: no model is configured: set" in shell.says("%agent status")
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("OPENPROGRAM_CLAUDE", str(tmp_path / "claude"))
    told = "claude-code, claude-opus-5-5 (no key is set, and Claude Code is installed)"
    assert f"provider     {told}" in shell.says("%agent status")
    assert told in shell.says("%agent provider")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-1234")
    assert "claude-opus-5-5 (ANTHROPIC_API_KEY)" in shell.says("%agent status")
    shell.value("%config AgentMagics.provider = 'local'")
    assert "claude-opus-5-5" not in shell.says("%agent status")


def test_cost_counts_tokens_by_model_and_money_by_the_prices_of_the_file(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    assert shell.says("%agent cost") == "No model was asked yet."
    used = Usage(1_000, 200, cache_read_tokens=600)
    model.answers(reply("a", usage=used), reply("b", usage=used))
    first = shell.value("%%agent\nOne")
    shell.value("%%agent\nTwo")
    said = shell.says("%agent cost")
    assert "2 calls, 2,000 tokens sent (1,200 cached), 400 received" in said
    name = notebook.session.dag.spine()[-1].name
    assert f"no price for {name}" in said
    (tmp_path / "config.toml").write_text(
        f'[prices."{name}"]\ninput = 10.0\noutput = 50\ncache_read = 1.0\n'
    )
    # 400 plain, 600 cached, 200 received
    assert f"cost {(400 * 10 + 600 * 1 + 200 * 50) / 1e6:.4f}" in shell.says(
        f"%agent cost {first.turn_id}"
    )
    assert isinstance(shell.error("%agent cost nothing"), UsageError)


@pytest.mark.parametrize(
    "prices", ["prices = 3", "[prices.m]\ninput = 1", "[prices.m]\ninput = -1\noutput = 1"]
)
def test_prices_that_mean_nothing_are_refused(
    notebook: Notebook, shell: Shell, tmp_path: Path, prices: str
) -> None:
    (tmp_path / "config.toml").write_text(prices)
    assert "prices" in str(shell.error("%agent cost"))


@pytest.mark.parametrize("way", ["flag", "config"])
def test_a_budget_ends_the_turn_before_the_next_call(
    notebook: Notebook, shell: Shell, model: Model, way: str
) -> None:
    looks = [reply(call("inspect", {}), usage=Usage(400, 200)) for _ in range(3)]
    model.answers(*looks)
    if way == "config":
        shell.value("%config AgentMagics.budget = 1_000")
    error = shell.error(f"%%agent{' --budget 1000' if way == 'flag' else ''}\nHello")
    assert isinstance(error, TurnFailed) and error.code == "token_budget"
    assert "1,200 were used in 2 model calls" in str(error)
    assert len(model.provider.requests) == 2
    turn = list(notebook.session.dag.turns.values())[-1]
    assert (turn.failure or {})["code"] == "token_budget"


def test_an_answer_within_the_budget_is_kept(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Fine.", usage=Usage(900, 900)))
    assert str(shell.value("%%agent --budget 10\nHello")) == "Fine."


def test_status_says_where_each_value_came_from_and_no_secret(
    clean_environment: None,
    shell: Shell,
    model: Model,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell.ip.config.AgentMagics.on_rerun = "append"
    load(shell.ip, store=store, make_runtime=model.runtime)
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "https://me:pass-word-1@host.example/v?key=abc")
    shell.value("%config AgentMagics.max_steps = 3")
    said = shell.says("%agent status")
    assert "provider     https://host.example/v (from OPENPROGRAM_PROVIDER)" in said
    assert "max_steps    3 (from this notebook)" in said
    assert "on_rerun     append (from IPython's configuration)" in said
    assert "pass-word-1" not in said and "abc" not in said
