"""What `make bench` does with a system that breaks down, and the pages that it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import store
from benchmarks.peers import compare, pages, scenarios
from benchmarks.peers.asking import Asker
from benchmarks.peers.contestants import BARE, OURS, SYSTEMS_ALL, System
from benchmarks.peers.pages import Row, Run, Stored
from benchmarks.peers.scenarios import Cause, Scenario
from op_jupyter.testing.fake_messages import FakeMessages

DOCS = Path(__file__).parents[2] / "docs"
WRITTEN = [name for name in pages.PAGES if (DOCS / f"{name}.json").exists()]
LOAD = next(s for s in scenarios.scenarios() if s.key == "load")


class Asked(Asker):
    """Systems that answer at once; those of *broken* break down."""

    def __init__(self, work: Path, broken: Mapping[str, int], garbled: str = "") -> None:
        super().__init__("http://localhost", work)
        self._garbled = garbled
        self._broken = dict(broken)
        self.asked: list[str] = []

    def ask(self, system: System, scenario: Scenario) -> dict[str, Any] | None:
        self.asked.append(system.title)
        if self.asked.count(system.title) > self._broken.get(system.title, 99):
            raise RuntimeError(f"{system.title} failed:\nno such table")
        if system.title == self._garbled:
            return {}
        return {"ms": 100.0 if system is OURS else 10.0}

    def profile(self, cause: Cause) -> pages.Parts:
        self.asked.append(cause.profiler)
        if "profile" in self._broken:
            raise RuntimeError("nobody looks")
        return {"opening it": {"op_jupyter.store": 90.0, "smaller parts": 10.0}}


@pytest.fixture
def service() -> Iterator[FakeMessages]:
    with FakeMessages() as fake:
        yield fake


def measuring(
    work: Path, fake: FakeMessages, broken: Mapping[str, int]
) -> tuple[compare.Measuring, Asked, Path]:
    asked, part = Asked(work, broken), work / "benchmarks.part.json"
    return compare.Measuring(asked, fake, 3, part), asked, part


def test_a_peer_that_breaks_down_is_a_cell_that_says_so_and_the_rest_goes_on(
    tmp_path: Path, service: FakeMessages
) -> None:
    peer = SYSTEMS_ALL[1].title
    run, asked, part = measuring(tmp_path, service, {peer: 1})

    run.asked_of_all([LOAD])

    (row,) = pages.kept(part).rows
    assert row.failed == {peer: "RuntimeError: no such table"}
    assert asked.asked.count(peer) == 2  # not a third time: it may take minutes to fail
    assert len(row.values[OURS.title]) == 3
    assert run.run.failed
    page = pages.page(pages.kept(part))
    assert "| 100 | failed | 10 |" in page
    assert f"- open 200 nodes: {peer} failed." in page


def test_a_peer_whose_answer_lacks_the_number_has_failed(
    tmp_path: Path, service: FakeMessages
) -> None:
    peer = SYSTEMS_ALL[1].title
    run = compare.Measuring(Asked(tmp_path, {}, garbled=peer), service, 3, None)

    run.asked_of_all([LOAD])

    (row,) = run.run.rows
    assert list(row.failed) == [peer]
    assert row.judged()


@pytest.mark.parametrize("broken", [OURS.title, BARE.title])
def test_a_goal_that_cannot_be_compared_is_neither_met_nor_missed(
    tmp_path: Path, service: FakeMessages, broken: str
) -> None:
    run, _, part = measuring(tmp_path, service, {broken: 1})

    run.asked_of_all([LOAD])

    assert not run.run.missed
    assert "open 200 nodes: ≤ 3 × the limit |  | not measured |" in pages.page(pages.kept(part))


def test_a_missed_goal_says_why_and_shows_where_the_time_goes(
    tmp_path: Path, service: FakeMessages
) -> None:
    run, _, part = measuring(tmp_path, service, {})

    run.asked_of_all([LOAD])

    assert run.run.missed
    assert not run.run.failed
    page = pages.page(pages.kept(part))
    assert f"- open 200 nodes: {LOAD.cause.reason}." in page
    assert "| op_jupyter.store | 90.00 |" in page
    assert "| all | **100.00** |" in page


def test_a_profile_that_breaks_down_leaves_what_was_measured(
    tmp_path: Path, service: FakeMessages
) -> None:
    run, _, part = measuring(tmp_path, service, {"profile": 0})

    run.asked_of_all([LOAD])

    found = pages.kept(part)
    assert found.rows[0].missed()
    assert found.failures == ["profile_load: RuntimeError: nobody looks"]
    assert "- profile_load: RuntimeError: nobody looks" in pages.page(found)


class WithoutBrowser(compare.Measuring):
    """A run on a machine whose browser does not start."""

    def graphs(self) -> None:
        raise OSError("no display")

    def lessons(self) -> None:
        self.add(Row("a lesson", "s"))


def test_a_part_of_the_run_that_breaks_down_does_not_take_the_others_with_it(
    tmp_path: Path, service: FakeMessages
) -> None:
    run = WithoutBrowser(Asked(tmp_path, {}), service, 3, None)

    run.usual(["graph", "lessons"])

    assert run.run.failures == ["graph: OSError: no display"]
    assert [row.title for row in run.run.rows] == ["a lesson"]
    assert run.run.failed


def test_what_the_store_measured_before_it_broke_down_is_kept_and_explained(
    tmp_path: Path, service: FakeMessages
) -> None:
    def results() -> Iterator[store.Result]:
        yield store.Result("100 nodes: raw", "ms/node", [1.0])
        yield store.Result("100 nodes: append", "×", [3.0, 3.1], 1.5, "append", 100)
        yield store.Result("100 nodes: append, with commits", "×", [4.0], 2.5, "append", 100)
        yield store.Result("100 nodes: a turn's commit", "ms", [5.0], 6.0, "commit", 100)
        raise OSError("no space left")

    run, asked, part = measuring(tmp_path, service, {})

    run.store(results())

    found = pages.kept(part)
    assert [row.missed() for row in found.store] == [False, True, True, False]
    assert asked.asked == ["profile_journal"]  # once for both
    assert found.failures == ["the store: OSError: no space left"]
    page = pages.page(found)
    assert f"- 100 nodes: append: {scenarios.of_store('append', 100).reason}." in page
    assert "“100 nodes: append” and “100 nodes: append, with commits”: Milliseconds" in page


class Here(System):
    """A system in the environment of the tests."""

    python = Path(sys.executable)


def test_a_scenario_that_never_ends_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(600)\n")
    sleeping = Here("peer", "a peer", str(script), (), "")

    with pytest.raises(RuntimeError, match=r"a peer failed at load, or took too long"):
        Asker("http://localhost", tmp_path, patience=0.3).ask(sleeping, LOAD)


def test_every_goal_has_a_reason_and_what_shows_the_time_for_when_it_is_missed() -> None:
    judged = [
        s for s in (*scenarios.scenarios(), *scenarios.long_scenarios()) if s.limit is not None
    ]
    assert len(judged) > 10
    for scenario in judged:
        assert scenario.cause.reason, scenario.key
        assert scenario.cause.profiler, scenario.key
    for kind in ("append", "growth", "commit", "load", "disk", "list", "search"):
        assert scenarios.of_store(kind, 100).profiler, kind


def test_what_explains_a_missed_goal_is_offered_by_our_script() -> None:
    script = (DOCS.parent / "benchmarks/peers/systems/op_jupyter_store.py").read_text("utf-8")
    causes = [s.cause for s in (*scenarios.scenarios(), *scenarios.long_scenarios())]
    causes += [
        scenarios.of_store(kind, 100)
        for kind in ("append", "growth", "commit", "load", "disk", "list", "search")
    ]
    for cause in causes:
        assert not cause.profiler or f'"{cause.profiler}": {cause.profiler},' in script


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_is_made_of_the_numbers_beside_it(name: str) -> None:
    """Write it again by ``python benchmarks/peers/pages.py docs/benchmarks.json``."""
    written = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert pages.PAGES[name](pages.kept(DOCS / f"{name}.json")) == written


def test_a_run_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    row = Row("a row", "ms", {OURS.title: [1.0, 2.0]}, limit=1.5, reason="it is slow", key="a")
    stored = Stored("100 nodes: raw", "ms/node", 2.0, (1.0, 3.0), 1.5, "so it is")
    run = Run([row], [stored], {"rounds": "2"}, ["the store: OSError: disk full"])

    pages.write(run, tmp_path, "benchmarks")

    assert pages.kept(tmp_path / "benchmarks.json") == run
    assert sorted(file.name for file in tmp_path.iterdir()) == ["benchmarks.json", "benchmarks.md"]
    assert json.loads((tmp_path / "benchmarks.json").read_text("utf-8"))["rows"][0]["unit"] == "ms"


def test_a_row_of_the_store_reads_as_the_store_itself_says_it() -> None:
    result = store.Result("a", "×", [1.0, 1.2, 1.3, 1.6, 2.0, 4.0, 1.1], 1.25)
    kept = Stored(result.what, result.unit, result.median, result.interval, result.goal)
    assert kept.result().row() == result.row()
    assert kept.result().verdict == "within noise"
