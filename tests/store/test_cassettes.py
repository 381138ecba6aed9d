"""Cassettes: text files that can be reviewed, merged and replayed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disks import mounted, no_file_over

from op_jupyter.core.recording import Recording, reply_in_history, request_key
from op_jupyter.errors import CorruptRecord, FormatTooNew, StoreError
from op_jupyter.store import cassette_codec, cassettes
from op_jupyter.store.cassette_codec import (
    Contents,
    Decision,
    Exchange,
    decision_key,
    decode,
    encode,
)
from op_jupyter.store.cassette_merge import merged
from op_jupyter.store.cassette_use import read_log
from op_jupyter.store.cassettes import FileCassette

SYSTEM = "You are careful.\nAnswer briefly."


def user(text):
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def request(*messages, system=SYSTEM):
    return {"model": "m", "system": system, "tools": [], "messages": list(messages)}


def says(text):
    return Recording([{"type": "text", "text": text}], "end_turn", "m", {"output_tokens": 3})


HELLO = request(user("hello"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lesson.cassette"


# --- what it does -------------------------------------------------------------------------


def test_a_reply_is_found_by_another_process(path):
    FileCassette(path).record_reply(HELLO, says("hi"))
    assert FileCassette(path).find_reply(request_key(HELLO)) == says("hi")
    assert FileCassette(path).find_reply("unknown") is None


def test_a_missing_file_is_an_empty_cassette_and_looking_makes_none(path):
    cassette = FileCassette(path)
    assert cassette.requests() == []
    assert cassette.find_provider(None) is None
    assert cassette.find_decision("python", {}) is None
    assert not path.exists()


def test_identical_requests_replay_in_order_and_then_the_last_repeats(path):
    recording = FileCassette(path)
    for text in ("one", "two", "three"):
        recording.record_reply(HELLO, says(text))
    replay = FileCassette(path)
    replies = [replay.find_reply(request_key(HELLO)) for _ in range(5)]
    assert [r.content[0]["text"] for r in replies] == ["one", "two", "three", "three", "three"]


def test_a_new_run_takes_the_place_of_the_last_one(path):
    first = FileCassette(path)
    first.record_reply(HELLO, says("old 1"))
    first.record_reply(HELLO, says("old 2"))
    FileCassette(path).record_reply(HELLO, says("new"))
    replay = FileCassette(path)
    assert [replay.find_reply(request_key(HELLO)) for _ in range(2)] == [says("new")] * 2


def test_recording_the_same_again_changes_no_byte(path):
    def run():
        cassette = FileCassette(path)
        cassette.record_provider("local", {"name": "local", "small": True})
        cassette.record_reply(HELLO, says("hi"))
        cassette.record_reply(HELLO, says("hi"))
        cassette.record_decision("python", {"code": "1"}, {"answer": "allow"})
        return path.read_bytes()

    assert run() == run()


def test_the_order_in_which_calls_end_does_not_change_the_file(tmp_path):
    requests = [request(user(f"item {i}")) for i in range(6)]

    def recorded(name, order):
        cassette = FileCassette(tmp_path / name)
        for i in order:
            cassette.record_reply(requests[i], says(f"answer {i}"))
        return (tmp_path / name).read_bytes()

    assert recorded("a", [0, 1, 2, 3, 4, 5]) == recorded("b", [3, 1, 5, 0, 4, 2])


def test_a_conversation_is_told_once_and_in_order(path):
    cassette = FileCassette(path)
    one = request(user("first question"))
    two = request(user("first question"), reply_in_history(says("first answer")), user("second"))
    cassette.record_reply(one, says("first answer"))
    cassette.record_reply(two, says("second answer"))
    text = path.read_text(encoding="utf-8")
    for once in ("first question", "first answer", "You are careful."):
        assert text.count(once) == 1
    assert text.index("first question") < text.index("second answer")
    assert FileCassette(path).find_reply(request_key(two)) == says("second answer")


def test_a_text_of_several_lines_stands_there_line_by_line(path):
    FileCassette(path).record_reply(request(user("line one\nline two")), says("ok"))
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    assert '"line one",' in lines
    assert '"line two"' in lines


def test_decisions_are_found_for_the_identical_call_alone(path):
    FileCassette(path).record_decision("python", {"code": "1 + 1"}, {"answer": "allow"})
    cassette = FileCassette(path)
    assert cassette.find_decision("python", {"code": "1 + 1"}) == {"answer": "allow"}
    assert cassette.find_decision("python", {"code": "1 + 2"}) is None
    assert cassette.find_decision("shell", {"code": "1 + 1"}) is None


def test_several_decisions_on_one_call_replay_in_order(path):
    recording = FileCassette(path)
    recording.record_decision("python", {}, {"answer": "deny"})
    recording.record_decision("python", {}, {"answer": "allow"})
    replay = FileCassette(path)
    answers = [replay.find_decision("python", {})["answer"] for _ in range(3)]
    assert answers == ["deny", "allow", "allow"]


def test_the_provider_recorded_with_last_is_the_one_replayed_by_default(path):
    cassette = FileCassette(path)
    cassette.record_provider("local", {"name": "local"})
    cassette.record_provider("anthropic", {"name": "anthropic"})
    replay = FileCassette(path)
    assert replay.find_provider(None) == {"name": "anthropic"}
    assert replay.find_provider("local") == {"name": "local"}


def test_both_sides_of_a_merge_kept_one_after_the_other_are_a_cassette(tmp_path):
    def branch(name, text):
        cassette = FileCassette(tmp_path / name)
        cassette.record_provider("local", {"name": "local"})
        cassette.record_reply(request(user(text)), says(f"on {name}"))
        return (tmp_path / name).read_text(encoding="utf-8")

    merged = tmp_path / "merged"
    merged.write_text(branch("ours", "a") + "\n" + branch("theirs", "b"), encoding="utf-8")
    cassette = FileCassette(merged)
    assert cassette.find_reply(request_key(request(user("a")))) == says("on ours")
    assert cassette.find_reply(request_key(request(user("b")))) == says("on theirs")


def test_a_word_changed_by_hand_changes_the_request_that_is_answered(path):
    FileCassette(path).record_reply(request(user("capital of France")), says("Paris"))
    path.write_text(path.read_text(encoding="utf-8").replace("France", "Spain"), encoding="utf-8")
    cassette = FileCassette(path)
    assert cassette.find_reply(request_key(request(user("capital of France")))) is None
    assert cassette.find_reply(request_key(request(user("capital of Spain")))) == says("Paris")


def test_several_objects_record_into_one_file_without_losing_anything(path):
    one, other = FileCassette(path), FileCassette(path)
    one.record_reply(request(user("a")), says("by one"))
    other.record_reply(request(user("b")), says("by the other"))
    one.record_decision("python", {}, {"answer": "allow"})
    assert other.find_reply(request_key(request(user("a")))) == says("by one")
    assert len(FileCassette(path).requests()) == 2
    assert other.find_decision("python", {}) == {"answer": "allow"}


def test_several_threads_record_into_one_file_without_losing_anything(path):
    def record(i):
        FileCassette(path).record_reply(request(user(f"item {i}")), says(f"answer {i}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(30)))
    assert len(FileCassette(path).requests()) == 30


# --- what goes wrong ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"cassette": 1}\n\n<<<<<<< ours\n{}', 3),
        ('{"cassette": 1}\n\n{"request": "a"', 3),
        ('{"cassette": 1}\n\n{"request": "a", "messages": [], "replies": []}', 3),
        ('{"cassette": 1}\n\n{"request": "a", "after": "gone", "model": "m"}', 3),
        ('{"cassette": 1}\n[]', 2),
        ('{"something": "else"}', 1),
        ("not JSON", 1),
        ('{"cassette": "one"}', 1),
        ('{"cassette": 1}\n\n{"request": "a",\n"request": "b"}', 3),
        ('{"cassette": 1}\n\n' + "[" * 100_000, 3),
        ('{"cassette": 1}\n\n{"shared": "a", "value": ' + '{"a":' * 900 + "1" + "}" * 901, 3),
        ('{"cassette": 1}\n\n{"shared": "a", "value": ' + "9" * 5000 + "}", 3),
        ('{"cassette": 1}\n\n{"shared": "a", "value": {"¶": [1]}}', 3),
        ('{"cassette": 1}\n\n{"request": "a", "model": "m", "messages": [], "replies": [1]}', 3),
        (
            '{"cassette": 1}\n\n{"decision": "a", "arguments": {}, "answers": [{"answer": "yes"}]}',
            3,
        ),
        ('{"cassette": 1}\n\n{"decision": "a", "arguments": [], "answers": []}', 3),
        ('{"cassette": NaN}', 1),
    ],
)
def test_a_damaged_cassette_is_refused_with_the_line(path, text, line):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorruptRecord, match=rf"lesson\.cassette line {line}:"):
        FileCassette(path)
    assert path.read_text(encoding="utf-8") == text


def test_a_file_that_is_no_text_is_refused(path):
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptRecord):
        FileCassette(path)


def test_a_cassette_of_a_newer_version_is_refused(path):
    path.write_text('{"cassette": 99}\n\n{"poem": 1}', encoding="utf-8")
    with pytest.raises(FormatTooNew, match="format 99"):
        FileCassette(path)


ASKED = {"request": "a", "model": "m", "messages": [user("hi")], "replies": []}
SAID = {"stop_reason": "end_turn", "content": [{"type": "text", "text": "hi"}]}


@pytest.mark.parametrize(
    "change",
    [
        {"model": 1},
        {"model": None},
        {"messages": {}},
        {"messages": [{"role": "system", "content": []}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "thinking"}]}]},
        {"after": "gone"},
        {"tools": "gone"},
        {"replies": [{**SAID, "stop_reason": "tired"}]},
        {"replies": [{**SAID, "content": "hi"}]},
        {"replies": [{**SAID, "content": [{"type": "tool_use", "id": "call_1"}]}]},
        {"replies": [{**SAID, "content": [{"type": "tool_result", "content": []}]}]},
        {"replies": [{**SAID, "usage": {"input_tokens": -1}}]},
        {"replies": [{**SAID, "usage": {"cents": 1}}]},
        {"replies": [{**SAID, "usage": {"input_tokens": 1e400}}]},
    ],
)
def test_what_could_not_be_replayed_is_refused_when_it_is_read(path, change):
    path.write_text(json.dumps({**ASKED, "replies": [SAID]}), encoding="utf-8")
    FileCassette(path)
    path.write_text(json.dumps({**ASKED, **change}), encoding="utf-8")
    with pytest.raises(CorruptRecord, match=r"lesson\.cassette line 1: a recording "):
        FileCassette(path)


def test_a_small_file_that_tells_an_enormous_conversation_is_refused(path, monkeypatch):
    monkeypatch.setattr(cassette_codec, "MOST_MESSAGES", 1000)
    documents = [{**ASKED, "request": "r0", "replies": [SAID]}]
    documents += [
        {**ASKED, "request": f"r{n}", "after": f"r{n - 1}", "replies": [SAID]}
        for n in range(1, 100)
    ]
    path.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    with pytest.raises(CorruptRecord, match="more than 1,000 messages"):
        FileCassette(path)


def test_a_file_that_is_too_large_to_be_a_cassette_is_not_read(path):
    with path.open("wb") as file:
        file.truncate(cassettes.MOST_BYTES + 1)
    with pytest.raises(CorruptRecord, match="one for each notebook"):
        FileCassette(path)


@given(st.text(max_size=200) | st.binary(max_size=200))
@settings(max_examples=100)
def test_any_file_is_a_cassette_or_one_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.cassette"
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    path.write_bytes(raw)
    with suppress(CorruptRecord):
        FileCassette(path)
    assert path.read_bytes() == raw


def test_what_a_killed_process_left_behind_is_no_obstacle(path):
    (path.parent / f".{path.name}.tmp").write_text("half a recor")
    FileCassette(path).record_reply(HELLO, says("hi"))
    assert FileCassette(path).find_reply(request_key(HELLO)) == says("hi")
    assert os.listdir(path.parent) == [path.name]


def test_a_process_that_is_killed_while_it_records_leaves_a_whole_file(path):
    code = f"""
import itertools
from pathlib import Path
from op_jupyter.core.recording import Recording
from op_jupyter.store.cassettes import FileCassette
for number in itertools.count():
    text = {{"type": "text", "text": f"question {{number}}"}}
    asked = {{"model": "m", "system": "", "tools": [],
             "messages": [{{"role": "user", "content": [text]}}]}}
    FileCassette(Path({str(path)!r})).record_reply(asked, Recording([text]))
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        for _ in range(10):
            process.stdout.readline()
            FileCassette(path).record_reply(HELLO, says("by another"))
        process.kill()
    contents = FileCassette(path).contents()
    assert len(contents.exchanges) >= 11
    FileCassette(path).record_reply(HELLO, says("and on"))
    assert os.listdir(path.parent) == [path.name]


# --- two versions of one ------------------------------------------------------------------


def test_both_sides_of_a_merge_are_joined_and_doubts_are_named(path):
    a, b, c, d = (request(user(name)) for name in "abcd")

    def version(**replies):
        path.unlink(missing_ok=True)
        cassette = FileCassette(path)
        for name, said in replies.items():
            cassette.record_reply(request(user(name)), says(said))
        return FileCassette(path).contents()

    base = version(a="1", b="1", c="1")
    together, doubts = merged(base, version(a="2", c="1", d="1"), version(a="1", b="1", c="2"))
    said = {key: e.replies for key, e in together.exchanges.items()}
    assert said == {
        request_key(a): [says("2")],
        request_key(c): [says("2")],
        request_key(d): [says("1")],
    }
    assert doubts == []
    together, doubts = merged(base, version(a="2"), version(a="3", b="1", c="1"))
    assert together.exchanges[request_key(a)].replies == [says("2")]
    assert doubts == [request_key(a)]
    assert request_key(b) not in together.exchanges


# --- what a run used ----------------------------------------------------------------------


def test_what_a_run_did_not_use_can_be_dropped(path, tmp_path):
    log = tmp_path / "used"
    recording = FileCassette(path)
    for text in ("one", "two"):
        recording.record_reply(HELLO, says(text))
    recording.record_reply(request(user("old")), says("old"))
    recording.record_decision("python", {"code": "1"}, {"answer": "allow"})
    recording.record_decision("python", {"code": "2"}, {"answer": "allow"})
    replay = FileCassette(path, log)
    replay.find_reply(request_key(HELLO))
    assert replay.find_reply("unknown") is None
    replay.find_decision("python", {"code": "2"})

    used = read_log(log)[path.resolve()]
    replay.keep_only(used)

    [left] = FileCassette(path).contents().exchanges.values()
    assert (left.request, left.replies) == (HELLO, [says("one")])
    assert [d.arguments for d in FileCassette(path).contents().decisions.values()] == [
        {"code": "2"}
    ]


def test_what_is_recorded_was_used(path, tmp_path):
    log = tmp_path / "used"
    recording = FileCassette(path, log)
    for text in ("one", "one", "two"):
        recording.record_reply(HELLO, says(text))
    assert read_log(log) == {path.resolve(): {request_key(HELLO): 2}}


def test_a_folder_that_cannot_be_written_is_said_and_the_old_file_stays(path):
    FileCassette(path).record_reply(HELLO, says("old"))
    before = path.read_bytes()
    cassette = FileCassette(path)
    (path.parent / f".{path.name}.tmp").mkdir()
    with pytest.raises(StoreError, match="could not be written"):
        cassette.record_reply(HELLO, says("new"))
    assert path.read_bytes() == before


def test_a_full_disk_is_said_and_there_is_no_half_of_a_cassette(path):
    cassette = FileCassette(path)
    cassette.record_reply(HELLO, says("old"))
    before = path.read_bytes()
    other = request(user("more"))
    with no_file_over(100), pytest.raises(StoreError, match="could not be written"):
        cassette.record_reply(other, says("new" * 1000))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]

    cassette.record_reply(other, says("with room"))
    again = FileCassette(path)
    assert again.find_reply(request_key(HELLO)) == says("old")
    assert again.find_reply(request_key(other)) == says("with room")


def test_a_real_disk_that_is_full_or_read_only_is_said(tmp_path):
    with mounted(tmp_path / "small") as disk:
        path = disk.path / "lesson.cassette"
        cassette = FileCassette(path)
        cassette.record_reply(HELLO, says("old"))
        before = path.read_bytes()
        disk.fill()
        with pytest.raises(StoreError, match="No space left"):
            cassette.record_reply(HELLO, says("new"))
        disk.empty()
        disk.remount("ro")
        with pytest.raises(StoreError, match="Read-only file system"):
            cassette.record_reply(HELLO, says("new"))
        assert path.read_bytes() == before
        assert FileCassette(path).find_reply(request_key(HELLO)) == says("old")
        disk.remount("rw")
        FileCassette(path).record_reply(HELLO, says("at last"))
        assert FileCassette(path).find_reply(request_key(HELLO)) == says("at last")


def test_a_cassette_keeps_the_mode_that_its_owner_gave_it(path):
    cassette = FileCassette(path)
    cassette.record_reply(HELLO, says("a"))
    path.chmod(0o640)
    cassette.record_reply(HELLO, says("b"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_that_a_stranger_put_beside_a_cassette_is_not_written_through(path):
    elsewhere = path.parent / "elsewhere"
    elsewhere.write_text("mine")
    for name in (f".{path.name}.tmp", path.name):
        (path.parent / name).symlink_to(elsewhere)
    cassette = FileCassette(path.parent / "other.cassette")
    (path.parent / ".other.cassette.tmp").symlink_to(elsewhere)
    cassette.record_reply(HELLO, says("hi"))
    with pytest.raises(CorruptRecord):
        FileCassette(path)
    assert elsewhere.read_text() == "mine"


def test_writing_leaves_nothing_but_the_cassette(path):
    FileCassette(path).record_reply(HELLO, says("hi"))
    assert os.listdir(path.parent) == [path.name]


# --- laws ---------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("a\nb\n")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.just("¶"), inner, max_size=3)
        | st.fixed_dictionaries({"¶": inner})
    ),
    max_leaves=6,
)
blocks = texts.map(lambda t: {"type": "text", "text": t}) | values.map(
    lambda v: {"type": "tool_use", "id": "call_1", "name": "n", "arguments": v}
)
recordings = st.builds(
    Recording,
    st.lists(blocks, max_size=2),
    st.just("end_turn"),
    texts,
    st.just({"input_tokens": 1}),
)
roles = st.sampled_from(["user", "assistant"])
messages = st.builds(lambda r, c: {"role": r, "content": c}, roles, st.lists(blocks, max_size=2))


@st.composite
def contents(draw):
    made = Contents(provider=draw(st.none() | texts))
    history: list[object] = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            history = []
        history = [*history, draw(messages)]
        asked = {
            "model": draw(texts),
            "system": draw(texts),
            "tools": draw(st.just([]) | st.just([{"name": "add"}])),
            "messages": history,
        }
        replies = draw(st.lists(recordings, min_size=1, max_size=2))
        made.exchanges[request_key(asked)] = Exchange(asked, replies)
        history = [*history, reply_in_history(draw(st.sampled_from(replies)))]
    for _ in range(draw(st.integers(0, 2))):
        tool, arguments = draw(texts), draw(st.dictionaries(texts, values, max_size=2))
        made.decisions[decision_key(tool, arguments)] = Decision(
            tool, arguments, [{"answer": "deny"}]
        )
    for name in draw(st.lists(texts, max_size=2, unique=True)):
        made.providers[name] = {"name": name, "max_tools": 2}
    return made


@given(contents())
def test_decoding_what_was_encoded_gives_it_back(made):
    text = encode(made)
    assert decode(text) == made
    assert encode(decode(text)) == text


@given(contents(), contents())
@settings(max_examples=30)
def test_a_merge_loses_nothing_that_was_added(ours, theirs):
    together, doubts = merged(Contents(), ours, theirs)
    assert together.exchanges == {**theirs.exchanges, **ours.exchanges}
    assert set(doubts) <= {*ours.exchanges, *ours.decisions} & {
        *theirs.exchanges,
        *theirs.decisions,
    }
    assert merged(ours, ours, theirs)[0].exchanges == theirs.exchanges
