"""Which recording a program plays, and what of the machine has a say in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from op_jupyter import bootstrap, create_runtime
from op_jupyter.core.messages import ModelRequest, user_text
from op_jupyter.core.prompt import SYSTEM_PROMPT
from op_jupyter.core.recording import Recording, canonical_request
from op_jupyter.errors import ConfigurationError, RecordingMissing
from op_jupyter.store.cassettes import FileCassette


@pytest.fixture
def cassette(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCassette:
    """A recording of a model that this machine does not have, for the question `hello`."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PROVIDER", "MODEL", "REPLAY"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CASSETTE", "x.cassette")
    made = FileCassette(tmp_path / "x.cassette")
    made.record_provider("far", {"name": "far", "default_model": "far-1", "max_tools": 3})
    folders = bootstrap.open_replay(bootstrap.settings({"replay": "record"}), workspace=tmp_path)
    assert folders is not None
    request = ModelRequest("far-1", (user_text("hello"),), system=SYSTEM_PROMPT)
    reply = Recording([{"type": "text", "text": "hi"}])
    made.record_reply(canonical_request(request, folders.folders), reply)
    return made


@pytest.mark.parametrize("mode", ["replay", "auto"])
def test_what_the_machine_prefers_does_not_decide_what_is_played(
    cassette: FileCassette, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_REPLAY", mode)
    monkeypatch.setenv("OPENPROGRAM_MODEL", "another-1")
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "claude-code")
    with create_runtime() as runtime:
        assert runtime.provider.capabilities.max_tools == 3
        assert runtime.exec("hello") == "hi"


def test_a_model_that_the_program_names_does(
    cassette: FileCassette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_REPLAY", "replay")
    with create_runtime(model="near-1") as runtime, pytest.raises(RecordingMissing) as missing:
        runtime.exec("hello")
    assert missing.value.difference.splitlines()[2:] == ["- model: far-1", "+ model: near-1"]


def test_in_ci_auto_asks_nobody_and_says_so(
    cassette: FileCassette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_REPLAY", "auto")
    monkeypatch.setenv("CI", "true")
    with create_runtime() as runtime:
        assert runtime.exec("hello") == "hi"
        with pytest.raises(RecordingMissing, match="auto asks nothing where CI is set"):
            runtime.exec("goodbye")


def test_two_runtimes_of_a_program_play_one_run(
    cassette: FileCassette, monkeypatch: pytest.MonkeyPatch
) -> None:
    [exchange] = cassette.contents().exchanges.values()
    second = FileCassette(cassette.path)
    for said in ("one", "two"):
        second.record_reply(exchange.request, Recording([{"type": "text", "text": said}]))
    monkeypatch.setenv("OPENPROGRAM_REPLAY", "replay")
    with create_runtime() as one, create_runtime() as other:
        assert [one.exec("hello"), other.exec("hello")] == ["one", "two"]
        bootstrap.begin_recorded_run()
    with create_runtime() as again:
        assert again.exec("hello") == "one"


@pytest.mark.parametrize("mode", ["record", "replay", "auto"])
def test_claude_code_is_refused_before_anything_is_asked(
    cassette: FileCassette, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_REPLAY", mode)
    with pytest.raises(ConfigurationError, match="cannot be recorded or replayed"):
        create_runtime("claude-code")


def test_a_mode_without_a_cassette_says_how_to_name_one(
    cassette: FileCassette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENPROGRAM_CASSETTE")
    monkeypatch.setenv("OPENPROGRAM_REPLAY", "replay")
    with pytest.raises(ConfigurationError, match="OPENPROGRAM_CASSETTE"):
        create_runtime()
