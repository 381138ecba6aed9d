"""What `make bench FULL=1` does with a session of 100,000 nodes, with a short one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "store.py"


def test_a_long_session_is_measured_in_three_places_read_packed_and_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("measuring_the_store", SCRIPT)
    assert spec is not None and spec.loader is not None
    store = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, store)  # its dataclasses look there
    spec.loader.exec_module(store)

    found = list(store.long_session(tmp_path, 400, store.Progress("a session"), measured=5))

    told = {result.what: result.samples for result in found}
    assert told["400 nodes: out of order"] == [0.0]
    assert len([result for result in found if "growth" in result.what]) == 4
    assert len(told["400 nodes: a turn's commit"]) == 5
    assert len(told["400 messages: a search for a word"]) == 15
    assert "350 nodes; about 0 min left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
