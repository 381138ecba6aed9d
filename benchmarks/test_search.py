"""Search over 100,000 messages of 200 sessions, index brought up to date: under 50 ms of CPU."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store import codec
from op_jupyter.store.search import SearchIndex
from op_jupyter.store.sessions import SessionStore

SESSIONS: Final = 200
TURNS: Final = 250
MOST_SECONDS: Final = 0.05
WORDS: Final = [f"word{n}" for n in range(5_000)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    """200 sessions of 250 prompts and answers, written as a journal writes them, and indexed."""
    store = SessionStore(tmp_path_factory.mktemp("sessions"))
    chance = random.Random(4)
    for number in range(SESSIONS):
        folder = store.root_path / f"session-{number:04}" / "history" / "000"
        folder.mkdir(parents=True)
        lines = (codec.encode(record).line for record in _records(chance))
        (folder / f"00000-agent-{number:08x}.jsonl").write_bytes(b"".join(lines))
    made = SearchIndex(store.root_path)
    made.refresh()
    return made


def _records(chance: random.Random) -> Iterator[dict[str, Any]]:
    yield codec.opening(Turn("t", started_at="2026-01-01"), "main", 1)
    for number in range(TURNS):
        about = {"turn_id": "t"}
        asked = [{"type": "text", "text": _text(chance)}]
        yield codec.entering(
            Node(f"u{number}", "user", "user", asked, metadata=about), 2 + 2 * number, "", None
        )
        said = {"role": "assistant", "content": [{"type": "text", "text": _text(chance)}]}
        yield codec.entering(
            Node(f"m{number}", "llm", "m", output=said, metadata=about), 3 + 2 * number, "", None
        )
    yield codec.closing("t", {"status": "completed", "finished_at": ""}, 3 + 2 * TURNS)


def _text(chance: random.Random) -> str:
    return " ".join([*chance.choices(WORDS, k=30), "common", "数据分析"])


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("query", ["word4711", "common", "wor", "word17 common", "数据", "nothing"])
def test_a_search_over_100_000_messages(benchmark: Any, index: SearchIndex, query: str) -> None:
    hits = benchmark.pedantic(index.search, (query,), rounds=7, warmup_rounds=1)

    assert bool(hits) == (query != "nothing")
    if benchmark.enabled:
        assert benchmark.stats.stats.median < MOST_SECONDS
    assert Path(index.path).exists()
