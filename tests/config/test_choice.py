"""What is asked where nobody named a provider, on machines that differ in what is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from op_jupyter import bootstrap, create_runtime
from op_jupyter.errors import ConfigurationError
from op_jupyter.providers import claude_program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without key, settings, local model and Claude Code: its package is there, no program is."""
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    for name in ("PROVIDER", "MODEL", "REPLAY", "CASSETTE", "CLAUDE"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_LOCAL_MODEL", str(tmp_path / "nowhere"))
    package = tmp_path / "packages" / "claude_agent_sdk"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('looking is not importing')")
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def bundle(machine: Path) -> Path:
    return program(machine / "packages" / "claude_agent_sdk" / "_bundled" / "claude")


def asked() -> str:
    with create_runtime() as runtime:
        return runtime.provider.capabilities.name


def test_claude_code_is_asked_where_its_package_and_its_program_are(machine: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"or Claude Code \(pip install"):
        create_runtime()
    bundle(machine)
    assert asked() == "claude-code"
    said = bootstrap.told_provider(bootstrap.settings())
    assert said.endswith("(no key is set, and Claude Code is installed)")


def test_the_program_is_the_one_that_is_named_the_packages_or_that_on_the_path(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_path = program(machine / "bin" / "claude")
    assert claude_program.find_program() == on_the_path
    bundled = bundle(machine)
    assert claude_program.find_program() == bundled
    own = program(machine / "mine")
    monkeypatch.setenv("OPENPROGRAM_CLAUDE", str(own))
    assert claude_program.find_program() == own
    own.chmod(0o600)
    assert claude_program.find_program() is None


def test_without_its_package_the_program_is_of_no_use(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(machine / "bin" / "claude")
    assert asked() == "claude-code"
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(ConfigurationError, match="set ANTHROPIC_API_KEY"):
        create_runtime()


def test_what_is_configured_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle(machine)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert asked() == "anthropic"
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "claude-code")
    assert asked() == "claude-code"


def test_nothing_is_recorded_of_what_was_chosen_unasked(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(machine)
    monkeypatch.setenv("OPENPROGRAM_REPLAY", "record")
    monkeypatch.setenv("OPENPROGRAM_CASSETTE", "x.cassette")
    with (
        create_runtime() as runtime,
        pytest.raises(ConfigurationError, match=r"Code is installed.*choose another provider"),
    ):
        runtime.exec("hello")
