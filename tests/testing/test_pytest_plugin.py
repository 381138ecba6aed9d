"""The plugin of pytest, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, echo

pytest_plugins = ["pytester"]

NAME = "op_jupyter.testing.pytest_plugin"
OPTIONS = ["-p", "no:cacheprovider", "-p", NAME]

TESTS = '''
import os
import pytest
from op_jupyter import agentic_function, create_runtime, current_session, llm

@agentic_function
def classify(review: str) -> str:
    """Classify the sentiment of a review in WORDS word."""
    return llm(review)

@pytest.mark.op_replay("reviews.cassette")
def test_marked(op_session):
    assert classify("good").endswith("good")
    assert current_session().session_id == op_session.session_id
    assert len(op_session.agent.dag) == 2

def test_with_the_fixture(op_replay):
    assert classify("bad").endswith("bad")
    assert op_replay.cassette.name == "test_reviews.cassette"
    assert str(op_replay.home) in os.environ["OPENPROGRAM_HOME"]

@pytest.mark.op_replay(mode="off")
def test_off(op_replay):
    assert (op_replay.mode, os.environ.get("OPENPROGRAM_RECORD_WITH")) == ("off", None)

def test_of_somebody_else():
    assert "OPENPROGRAM_CASSETTE" not in os.environ
'''

LIVE = """
from contextlib import suppress
import pytest
from op_jupyter import Runtime, llm
from op_jupyter.providers.local import LocalProvider

@pytest.mark.op_replay
def test_live():
    with Runtime(provider=LocalProvider()) as runtime:
        runtime.exec("hello")

@pytest.mark.op_replay
def test_that_goes_on():
    with Runtime(provider=LocalProvider()) as runtime, suppress(Exception):
        runtime.exec("hello")

@pytest.mark.op_replay("reviews.cassette")
def test_that_goes_on_without_a_recording():
    with suppress(Exception):
        llm("something else")

@pytest.mark.op_replay
def test_after_them():
    pass
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with tests, and an environment that knows no model."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name in ("REPLAY", "CASSETTE", "HOME", "CONFIG"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "anthropic")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it takes longer than the tests
    pytester.makepyfile(test_reviews=TESTS.replace("WORDS", "one"))
    return pytester


def test_tests_are_recorded_once_and_then_replay_without_key_or_network(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeMessages() as fake:
        fake.set_default(echo)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
        recorded = inner.runpytest_subprocess(*OPTIONS, "--op-replay=record", "-k", "not somebody")
        assert len(fake.requests) == 2
    recorded.assert_outcomes(passed=3, deselected=1)
    files = {path.name: path.read_bytes() for path in inner.path.glob("*.cassette")}
    assert set(files) == {"reviews.cassette", "test_reviews.cassette"}

    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("OPENPROGRAM_MODEL", "what-this-machine-prefers")
    inner.makepyfile(test_live=LIVE)
    replayed = inner.runpytest_subprocess(*OPTIONS)
    replayed.assert_outcomes(passed=5, failed=3, errors=0)
    assert {path.name: path.read_bytes() for path in inner.path.glob("*.cassette")} == files
    replayed.stdout.fnmatch_lines_random(
        [
            "*live calls are forbidden here; record it with: pytest --op-replay=record "
            "test_live.py::test_live*",
            "the test went on after a call was refused:",
            "this would ask *",
            "*reviews.cassette has no recording of this request (something else)*",
        ]
    )


def test_a_changed_word_fails_and_says_how_to_record(inner: pytest.Pytester) -> None:
    done = inner.runpytest_subprocess(*OPTIONS, "--op-replay", "test_reviews.py", "-k", "fixture")
    done.assert_outcomes(failed=1, deselected=3)
    done.stdout.fnmatch_lines(
        [
            "*test_reviews.cassette has no recording of this request*record it with pytest "
            "--op-replay=record test_reviews.py::test_with_the_fixture*"
        ]
    )


def test_a_misspelt_marker_is_refused_before_anything_runs(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_reviews=TESTS.replace("mode=", "modus="))
    done = inner.runpytest_subprocess(*OPTIONS)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*test_off: op_replay takes a cassette and a mode (record, *"])


def test_it_is_there_where_the_package_is_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"op_jupyter": NAME}


def test_loading_it_loads_nothing_heavy() -> None:
    code = f"""import sys, pytest
before = set(sys.modules)
import {NAME}
print(*sorted(name for name in set(sys.modules) - before if "." not in name or "op_j" in name))"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    ours = {
        "op_jupyter",
        "op_jupyter.core",
        "op_jupyter.core.values",
        "op_jupyter.engine",
        "op_jupyter.engine.hooks",
        "op_jupyter.errors",
        "op_jupyter.testing",
        NAME,
    }
    assert set(done.stdout.split()) == ours
