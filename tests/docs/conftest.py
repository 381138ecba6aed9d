"""The home of a reader who follows the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.pages import FILES, ROOT, SESSION, answer

from op_jupyter import SessionStore, llm, session_context
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the lessons' data, a model service, and a session of yesterday."""
    shutil.copytree(ROOT / "notebooks" / "data", tmp_path / "data")
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("MODEL", "REPLAY", "CASSETTE", "MODE"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    with FakeMessages() as fake:
        fake.set_default(answer)
        for name, value in {
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": fake.url,
            "HOME": str(tmp_path),
            "OPENPROGRAM_CONFIG": str(tmp_path / "config.toml"),
            "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
            "OPENPROGRAM_PROVIDER": "anthropic",
        }.items():
            monkeypatch.setenv(name, value)
        with session_context(SESSION, store=SessionStore(tmp_path / "sessions")):
            llm("What was there yesterday?")
        yield tmp_path
