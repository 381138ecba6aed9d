"""Plugin of pytest: tests and notebooks that replay, and fail on any live call.

    pytest --op-replay                  every test and notebook plays its cassette
    pytest --op-replay=record           ... and is recorded anew

    @pytest.mark.op_replay("reviews.cassette")
    def test_a_review_is_classified(op_session): ...

Every pytest of the environment loads this module, so it imports nothing that is not there anyway.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from op_jupyter.core.values import dataclass

if TYPE_CHECKING:
    from op_jupyter.engine.context import SessionHandle

MODES: Final = ("record", "replay", "auto", "off")
_MEANING: Final = {
    None: "play recorded model calls in every test and notebook, and fail on any live call",
    "record": "ask live, and record the calls of every test and notebook anew",
    "replay": "the same as without a mode",
    "auto": "play what is recorded; ask live and record what is not",
    "off": "ask live, and record nothing",
}
_FIXTURES: Final = frozenset({"op_replay", "op_session"})
_HOME: Final = pytest.StashKey[Path]()
_REPLAYED: Final = pytest.StashKey["Replayed"]()


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a test plays or records.

    Attributes:
        cassette: its file; it need not exist.
        mode: ``record``, ``replay``, ``auto`` or ``off``.
        home: folder of the test run where sessions are kept.
    """

    cassette: Path
    mode: str
    home: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--op-replay``, alone or with a mode."""
    group = parser.getgroup("op-jupyter")
    for mode in (None, *MODES):
        # Not one option with an optional value: that would take a path which follows for a mode.
        group.addoption(
            "--op-replay" if mode is None else f"--op-replay={mode}",
            action="store_const",
            const=mode or "replay",
            dest="op_replay",
            help=_MEANING[mode],
        )


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the marker."""
    config.addinivalue_line(
        "markers",
        "op_replay(cassette, mode): play the model calls of this test from a cassette beside it "
        "(default: the name of the test's file); mode='off' lets it ask live",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a marker that cannot be meant."""
    _marked(item, item.get_closest_marker("op_replay"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Drop the sessions of the run."""
    home = config.stash.get(_HOME, None)
    if home is not None:
        shutil.rmtree(home, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Set the environment of a test that replays; its kernels and processes inherit it."""
    replayed = _replayed(item)
    if replayed is None:
        return (yield)
    item.stash[_REPLAYED] = replayed
    _begin_run()
    with _environment(_variables(item, replayed)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that went on after a call was refused: it would not pass with a model."""
    log = _refused(item)
    if log is None:
        return (yield)
    log.unlink(missing_ok=True)
    result = yield
    if log.exists():
        refused = log.read_text(encoding="utf-8").strip()
        pytest.fail(f"the test went on after a call was refused:\n{refused}", pytrace=False)
    return result


def _refused(item: pytest.Item) -> Path | None:
    """Where the refused calls of *item* are noted, if it replays."""
    replayed = item.stash.get(_REPLAYED, None)
    is_played = replayed is not None and replayed.mode == "replay"
    return replayed.home / "refused.txt" if replayed is not None and is_played else None


@pytest.fixture
def op_replay(request: pytest.FixtureRequest) -> Replayed:
    """What this test plays or records."""
    replayed: Replayed = request.node.stash[_REPLAYED]
    return replayed


@pytest.fixture
def op_session(op_replay: Replayed) -> Iterator[SessionHandle]:
    """A session of the test's own; what is called in the test is recorded in it."""
    from op_jupyter import SessionStore, session_context

    with session_context(store=SessionStore(op_replay.home), source="test") as handle:
        yield handle


def _replayed(item: pytest.Item) -> Replayed | None:
    """What *item* plays; None: it is no business of ours."""
    chosen: str | None = item.config.getoption("op_replay")
    marker = item.get_closest_marker("op_replay")
    wanted = bool(_FIXTURES & set(getattr(item, "fixturenames", ())))
    if chosen is None and marker is None and not wanted:
        return None
    named, own = _marked(item, marker)
    mode = "off" if own == "off" else chosen or own or os.environ.get("OPENPROGRAM_REPLAY")
    cassette = item.path.parent / named if named else item.path.with_suffix(".cassette")
    return Replayed(cassette, mode or "replay", _home(item.config))


def _marked(item: pytest.Item, marker: pytest.Mark | None) -> tuple[str | None, str | None]:
    """Cassette and mode of the marker."""
    if marker is None:
        return None, None
    values = {**dict(zip(("cassette", "mode"), marker.args, strict=False)), **marker.kwargs}
    cassette, mode = values.pop("cassette", None), values.pop("mode", None)
    if values or len(marker.args) > 2 or mode not in (None, *MODES):
        raise pytest.UsageError(
            f"{item.nodeid}: op_replay takes a cassette and a mode ({', '.join(MODES)})"
        )
    return None if cassette is None else os.fspath(cassette), mode


def _home(config: pytest.Config) -> Path:
    if _HOME not in config.stash:
        config.stash[_HOME] = Path(tempfile.mkdtemp(prefix="op-replay-"))
    return config.stash[_HOME]


def _variables(item: pytest.Item, replayed: Replayed) -> dict[str, str | None]:
    values: dict[str, str | None] = {
        "OPENPROGRAM_REPLAY": replayed.mode,
        "OPENPROGRAM_CASSETTE": str(replayed.cassette),
        "OPENPROGRAM_HOME": str(replayed.home / "sessions"),
        "OPENPROGRAM_RECORD_WITH": None,
        "OPENPROGRAM_REFUSED_LOG": None,
    }
    if replayed.mode == "replay":
        # The rules and the model that this person configured are not the next one's.
        nothing = replayed.home / "config.toml"
        nothing.touch()
        values |= {
            "OPENPROGRAM_CONFIG": str(nothing),
            "OPENPROGRAM_RECORD_WITH": _command(item),
            "OPENPROGRAM_REFUSED_LOG": str(replayed.home / "refused.txt"),
            **dict.fromkeys(("OPENPROGRAM_PROVIDER", "OPENPROGRAM_MODEL", "OPENPROGRAM_MODE")),
        }
    return values


def _command(item: pytest.Item) -> str:
    if item.path.suffix == ".ipynb":
        return f"op-jupyter cassette record {os.path.relpath(item.path)}"
    return f"pytest --op-replay=record {item.nodeid}"


@contextmanager
def _environment(values: dict[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)
        _begin_run()


def _set(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _begin_run() -> None:
    bootstrap = sys.modules.get("op_jupyter.bootstrap")  # not loaded: there was no run
    if bootstrap is not None:
        bootstrap.begin_recorded_run()
