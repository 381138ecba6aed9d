"""Search over all sessions: what is found, by whom, and what an index survives."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.core.search_text import indexed, query_words, shown
from op_jupyter.store.base import OpenSession, SearchHit
from op_jupyter.store.search import SearchIndex
from op_jupyter.store.sessions import SessionStore


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


@pytest.fixture
def index(store: SessionStore) -> SearchIndex:
    return SearchIndex(store.root_path)


def say(session: OpenSession, name: str, prompt: str, answer: str = "") -> None:
    """A finished turn with a prompt and an answer."""
    session.begin_turn(Turn(f"turn-{name}", base=session.dag.head))
    about = {"turn_id": f"turn-{name}"}
    asked = [{"type": "text", "text": prompt}]
    user = Node(f"user-{name}", "user", "user", asked, status="completed", metadata=about)
    session.append(user, advance_head=True)
    session.append(Node(f"llm-{name}", "llm", "m", metadata=about), advance_head=True)
    said = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
    session.update(f"llm-{name}", output=said, status="completed")
    session.end_turn(f"turn-{name}", "completed")


def record(store: SessionStore, session_id: str, *said: str, title: str = "") -> None:
    store.create_session(session_id, title=title)
    session = store.open(session_id)
    for number, text in enumerate(said):
        say(session, str(number), text, f"answer {number}")
    session.close()


def found(hits: list[SearchHit]) -> list[tuple[str, str]]:
    return [(hit.session_id, hit.node_id) for hit in hits]


def test_prompts_answers_and_titles_are_found_in_all_sessions(
    store: SessionStore, index: SearchIndex
) -> None:
    record(store, "one", "Plot the penguins", title="Antarctic birds")
    record(store, "two", "Why is the sky blue?")

    (asked,) = index.search("plot PENGUIN")
    assert (asked.session_id, asked.node_id, asked.turn_id) == ("one", "user-0", "turn-0")
    assert (asked.role, asked.snippet, asked.title) == (
        "user",
        "Plot the penguins",
        "Antarctic birds",
    )
    assert asked.at.startswith("20")
    assert {hit.role for hit in index.search("answer")} == {"assistant"}
    assert [hit.role for hit in index.search("antarctic")] == ["title"]
    assert index.search("penguin sky") == []


@pytest.mark.parametrize(
    ("text", "query", "fits"),
    [
        ("请分析一下数据", "数据", True),
        ("请分析一下数据", "分析", True),
        ("请分析一下数据", "据数", False),
        ("请分析一下数据", "分析数据", False),
        ("使用pandas分析", "pandas分析", True),
        ("日本語のテスト", "テスト", True),
        ("데이터 분석", "데이터", True),
        ("ＡＢＣ商事", "abc", True),
        ("Café crème", "cafe CREME", True),
        ("a_b-c.d", "b-c", True),
        ("x" * 10_000, "x" * 10_000, True),
    ],
)
def test_words_are_found_as_people_write_them(
    store: SessionStore, index: SearchIndex, text: str, query: str, fits: bool
) -> None:
    record(store, "one", text)

    assert [hit.role for hit in index.search(query)] == (["user"] if fits else [])


HOSTILE = ['"', "'", "*", "a AND", "NEAR(a, 2)", "col:x", "-a", "^a", "(", "a OR b NOT", "{a b}:c",
           "\0", "\ud800", "'; DROP TABLE words; --", "%", "a\u200bb", "🙂", "\u0301"]  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    store = SessionStore(tmp_path_factory.mktemp("filled"))
    record(store, "one", "words")
    index = SearchIndex(store.root_path)
    index.refresh()
    return index


@given(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40)))
@settings(max_examples=60, deadline=None)
def test_no_query_is_a_syntax_error(filled: SearchIndex, query: str) -> None:
    hits = filled.search(query)
    assert all(hit.session_id == "one" for hit in hits)
    assert filled._memory is None


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_what_is_indexed_can_be_shown_again(text: str) -> None:
    assert shown(indexed(text)) == shown(indexed(shown(indexed(text))))
    assert len(query_words(text)) <= len(text)


def test_it_is_live_while_a_turn_is_being_written(store: SessionStore, index: SearchIndex) -> None:
    session = store.open(store.create_session("live"))
    say(session, "0", "first words")
    assert len(index.search("first")) == 1

    session.begin_turn(Turn("turn-1", base=session.dag.head))
    asked = [{"type": "text", "text": "second words"}]
    session.append(Node("u", "user", "user", asked, metadata={"turn_id": "turn-1"}))
    assert found(index.search("second")) == [("live", "u")]
    session.append(Node("m", "llm", "m", metadata={"turn_id": "turn-1"}))
    assert index.search("thirdly") == []
    said = {"role": "assistant", "content": [{"type": "text", "text": "thirdly"}]}
    session.update("m", output=said)
    assert found(index.search("thirdly")) == [("live", "m")]
    session.set_meta(title="A new title")
    session.end_turn("turn-1", "completed")
    session.close()

    assert [hit.role for hit in index.search("title")] == ["title"]
    assert len(index.search("words")) == 2


def test_a_deleted_session_leaves_and_a_restored_one_is_back(
    store: SessionStore, index: SearchIndex
) -> None:
    record(store, "one", "needle")
    assert len(index.search("needle")) == 1
    store.delete("one")
    assert index.search("needle") == []
    store.restore("one")
    assert len(index.search("needle")) == 1


def test_long_messages_are_found_by_their_end_and_shown_around_the_word(
    store: SessionStore, index: SearchIndex
) -> None:
    record(store, "one", "hay " * 40_000 + "needle " + "straw " * 50, title="t" * 10_000)

    (hit,) = index.search("needle")
    assert "needle" in hit.snippet
    assert len(hit.snippet) < 200
    assert len(hit.title) < 200


@pytest.mark.parametrize("harm", ["garbage", "cut", "no table", "old", "gone", "folder gone"])
def test_an_index_that_is_of_no_use_is_made_again(
    store: SessionStore, index: SearchIndex, harm: str
) -> None:
    record(store, "one", *(f"needle {n}" for n in range(30)))
    assert len(index.search("needle", 100)) == 30
    path = Path(index.path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)

    match harm:
        case "garbage":
            path.write_bytes(b"no database" * 1000)
        case "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "no table" | "old":
            db = sqlite3.connect(path)
            db.execute("DROP TABLE segments" if harm == "no table" else "PRAGMA user_version = 99")
            db.commit()
            db.close()
        case "gone":
            path.unlink()
        case "folder gone":
            path.unlink()
            path.parent.rmdir()

    assert len(index.search("needle", 100)) == 30
    assert len(SearchIndex(store.root_path).search("needle", 100)) == 30


def test_where_no_index_can_be_written_it_is_kept_in_memory(
    store: SessionStore, index: SearchIndex
) -> None:
    record(store, "one", "needle")
    (store.root_path / ".index").write_text("in the way")

    assert len(index.search("needle")) == 1
    record(store, "two", "needle")
    assert len(index.search("needle")) == 2


def test_a_damaged_session_is_found_as_far_as_it_can_be_read(
    store: SessionStore, index: SearchIndex
) -> None:
    record(store, "one", "needle a", "needle b")
    segment = sorted(store.root_path.glob("one/history/*/*-agent-*"))[0]
    segment.write_bytes(segment.read_bytes().replace(b"needle", b"noodle"))
    (store.root_path / "one" / "meta.json").write_text("[")

    assert found(index.search("needle")) == [("one", "user-1")]


def test_a_clone_without_its_files_is_found(store: SessionStore, index: SearchIndex) -> None:
    record(store, "one", "needle")
    subprocess.run(
        ["git", "clone", "-q", "-n", store.root_path / "one", store.root_path / "two"], check=True
    )

    assert sorted(found(index.search("needle"))) == [("one", "user-0"), ("two", "user-0")]


def test_only_the_owner_can_read_it(store: SessionStore, index: SearchIndex) -> None:
    record(store, "one", "needle")
    index.search("needle")
    folder = store.root_path / ".index"

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir()} == {0o600}
    assert [info.id for info in store.sessions()] == ["one"]


SEARCHER = """
import sys
from op_jupyter.store.search import SearchIndex
for _ in range(6):
    index = SearchIndex(sys.argv[1])
    assert len(index.search("needle", 1000)) >= 40, len(index.search("needle", 1000))
    assert index._memory is None
"""


def test_two_processes_search_and_make_the_index_while_a_third_writes(store: SessionStore) -> None:
    for number in range(4):
        record(store, f"s{number}", *(f"needle {n}" for n in range(10)))
    command = [sys.executable, "-c", SEARCHER, str(store.root_path)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ) for _ in range(2)]
    record(store, "more", *(f"needle {n}" for n in range(10)))

    for process in both:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said.decode()
    assert len(SearchIndex(store.root_path).search("needle", 1000)) == 50


def test_a_session_with_a_hostile_title_hides_no_other(
    store: SessionStore, index: SearchIndex
) -> None:
    record(store, "one", "needle")
    record(store, "two", "needle")
    (store.root_path / "two/meta.json").write_text("[" * 100_000)
    assert sorted(found(index.search("needle"))) == [("one", "user-0"), ("two", "user-0")]
