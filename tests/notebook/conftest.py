"""A real IPython shell with the extension loaded, a scripted model and a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from shells import Model, Shell

from op_jupyter.notebook.extension import load, unload
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.store.memory import MemoryStore


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the machine, and a folder of the test's own to work in."""
    for name in ("PROVIDER", "MODEL", "HOME", "REPLAY", "CASSETTE", "MODE"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A bare shell of this test alone."""
    made = Shell(tmp_path / "ipython")
    yield made
    unload(made.ip)
    made.end()


@pytest.fixture
def ip(tmp_path: Path) -> Iterator[InteractiveShell]:
    """A bare shell that prints what it displays."""
    made = Shell(tmp_path / "ipython", watched=False)
    yield made.ip
    made.end()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def notebook(clean_environment: None, shell: Shell, model: Model, store: MemoryStore) -> Notebook:
    """The extension, loaded into `shell`."""
    loaded = load(shell.ip, store=store, make_runtime=model.runtime)
    loaded.install()
    return loaded
