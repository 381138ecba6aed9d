"""A page that stays open for a day: what a hundred turns leave behind in JupyterLab.

The cell runs again and again, so that its output is all that may be there; Chromium counts what
is left once it has collected its garbage.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from browser.harness import served
from support.code_cells import write_notebook

from op_jupyter.cli.notebook_page import NotebookPage, running_browser
from op_jupyter.testing.fake_messages import FakeMessages, Reply, text

WARM, TURNS = 20, 100
LISTENERS_PER_TURN: Final = 1.0
NODES_PER_TURN: Final = 20.0
HEAP_KIB_PER_TURN: Final = 40.0
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[NotebookPage]:
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed: python3 tests/support/prepare.py chromium")
    with FakeMessages() as fake, served(tmp_path, "lab", fake) as server, running_browser() as run:
        fake.set_default(lambda body: Reply([text("The answer. " * 40)]))
        write_notebook(tmp_path / "long.ipynb", ["%load_ext openprogram", "%%agent\nGo on"])
        page = NotebookPage(run, server, "long.ipynb")
        page.run(0)
        yield page
        page.close()


def test_a_hundred_turns_leave_little_in_the_page(page: NotebookPage, benchmark: Any) -> None:
    chromium = page.page.context.new_cdp_session(page.page)
    chromium.send("Performance.enable")

    def left() -> dict[str, float]:
        for _ in range(3):  # what one collection frees may be all that held something else
            chromium.send("HeapProfiler.collectGarbage")
        metrics = chromium.send("Performance.getMetrics")["metrics"]
        return {each["name"]: float(each["value"]) for each in metrics}

    def turns(number: int) -> dict[str, float]:
        for _ in range(number):
            page.run(1)
        return left()

    before = turns(WARM)
    after = benchmark.pedantic(turns, args=(TURNS,), rounds=1)
    grown = {name: (after[name] - before[name]) / TURNS for name in after}
    told = {
        "listeners_per_turn": grown["JSEventListeners"],
        "nodes_per_turn": grown["Nodes"],
        "heap_kib_per_turn": grown["JSHeapUsedSize"] / 1024,
    }
    benchmark.extra_info.update(told)
    print(f"\n{told}")
    assert told["listeners_per_turn"] <= LISTENERS_PER_TURN
    assert told["nodes_per_turn"] <= NODES_PER_TURN
    assert told["heap_kib_per_turn"] <= HEAP_KIB_PER_TURN
