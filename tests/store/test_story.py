"""`git log` tells what happened: the commit graph is the conversation graph."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.base import OpenSession
from op_jupyter.store.disk import GC_PACKS
from op_jupyter.store.sessions import SessionStore
from tests.store.conftest import Git


@pytest.fixture
def store(ram_path: Path) -> SessionStore:
    return SessionStore(ram_path)


@pytest.fixture
def session(store: SessionStore) -> OpenSession:
    return store.open(store.create_session("s", title="Sales"))


def turn(session: OpenSession, name: str, base: str | None, subject: str = "") -> None:
    """One agent turn: a prompt, a model call that answers, and both advance the head."""
    session.begin_turn(Turn(name, base=base, subject=subject or name))
    user = Node(
        f"{name}.u",
        "user",
        "user",
        status="completed",
        predecessor=base,
        metadata={"turn_id": name},
    )
    session.append(user, advance_head=True)
    model = Node(f"{name}.m", "llm", "claude", predecessor=user.id, metadata={"turn_id": name})
    session.append(model, advance_head=True)
    usage = {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 30}
    session.update(model.id, output="done", status="completed", metadata=usage)
    session.end_turn(name, "completed")


def call(session: OpenSession, name: str, subject: str) -> None:
    session.begin_turn(Turn(name, kind="call", base=session.dag.head, subject=subject))
    session.append(Node(name, "code", "classify", metadata={"turn_id": name}))
    session.end_turn(name, "completed")


def subjects(git: Git, store: SessionStore, *revision: str) -> list[str]:
    return git(store.path("s"), "log", "--format=%s", *revision).splitlines()


def graph(git: Git, store: SessionStore) -> dict[str, str]:
    """Subject of each commit -> subject of its parent."""
    lines = git(store.path("s"), "log", "--all", "--format=%H%x00%P%x00%s").splitlines()
    commits = [line.split("\0") for line in lines]
    of = {sha: subject for sha, _, subject in commits}
    return {subject: of.get(parent, "") for _, parent, subject in commits}


def test_each_turn_is_a_commit_that_a_person_understands(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None, "Which region sold the most last year?")
    turn(session, "t2", "t1.m", "Plot it\nwith months on the x axis")
    session.close()
    assert subjects(git, store) == [
        "agent: Plot it with months on the x axis",
        "agent: Which region sold the most last year?",
    ]
    story = git(store.path("s"), "log", "--stat", "--reverse")
    assert re.search(r"history/000/00001-agent-[0-9a-f]{8}\.jsonl +\| +5 \+", story)
    assert re.search(r"history/000/00002-agent-[0-9a-f]{8}\.jsonl +\| +5 \+", story)
    assert "meta.json" in story
    body = git(store.path("s"), "log", "-1", "--format=%(trailers:only,unfold)")
    assert body.split("\n")[:-2] == [
        "Session-Id: s",
        "Turn-Id: t2",
        "Status: completed",
        "Model: claude",
        "Input-Tokens: 120",
        "Output-Tokens: 30",
    ]
    git(store.path("s"), "fsck", "--strict")
    assert git(store.path("s"), "status", "--porcelain") == ""


def test_a_failed_turn_says_why(store: SessionStore, session: OpenSession, git: Git) -> None:
    session.begin_turn(Turn("t1", subject="try"))
    failure = {"code": "doom_loop", "message": "the same call\nthree times"}
    session.end_turn("t1", "failed", failure=failure)
    session.close()
    message = git(store.path("s"), "log", "-1", "--format=%B")
    assert "- doom_loop: the same call three times" in message
    assert "Status: failed" in message


def test_a_fork_is_two_children_and_a_branch_of_its_own(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    turn(session, "t2", "t1.m")
    turn(session, "t3", "t1.m")
    turn(session, "t4", "t3.m")
    session.close()
    assert graph(git, store) == {
        "agent: t1": "",
        "agent: t2": "agent: t1",
        "agent: t3": "agent: t1",
        "agent: t4": "agent: t3",
    }
    assert subjects(git, store, "main") == ["agent: t2", "agent: t1"]
    assert subjects(git, store, "fork-2") == ["agent: t4", "agent: t3", "agent: t1"]
    assert git(store.path("s"), "branch", "--show-current") == "fork-2\n"
    assert "t2.u" in git(store.path("s"), "diff", "fork-2", "main")


def test_a_fork_from_the_very_start_has_a_root_of_its_own(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    turn(session, "t2", None)
    session.close()
    assert graph(git, store) == {"agent: t1": "", "agent: t2": ""}


def test_branches_are_refs_and_head_is_the_active_one(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    turn(session, "t2", "t1.m")
    session.branch("idea", "t1.u")
    session.branch("aside", "t2.m", activate=False)
    session.flush()
    assert subjects(git, store, "idea") == ["agent: t1"]
    assert subjects(git, store, "aside") == ["agent: t2", "agent: t1"]
    assert git(store.path("s"), "branch", "--show-current") == "idea\n"
    turn(session, "t3", "t1.u")
    session.close()
    assert subjects(git, store, "idea") == ["agent: t3", "agent: t1"]


def test_rewinding_a_branch_keeps_what_it_leaves_within_reach(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    for name, base in [("t1", None), ("t2", "t1.m"), ("t3", "t2.m")]:
        turn(session, name, base)
    session.set_head("t1.m")
    turn(session, "t4", "t1.m")
    session.set_head(None)
    turn(session, "t5", None)
    session.close()
    assert subjects(git, store, "main") == ["agent: t5"]
    assert graph(git, store) == {
        "agent: t1": "",
        "agent: t2": "agent: t1",
        "agent: t3": "agent: t2",
        "agent: t4": "agent: t1",
        "agent: t5": "",
    }
    kept = git(store.path("s"), "for-each-ref", "--format=%(refname) %(subject)", "refs/kept")
    assert kept.splitlines() == [
        "refs/kept/main-1 agent: t3",
        "refs/kept/main-2 agent: t4",
    ]


def test_moving_the_head_within_a_turn_moves_no_branch(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    session.set_head("t1.u")
    session.begin_turn(Turn("t2", base="t1.u", subject="t2"))
    node = Node("x", "user", "user", predecessor="t1.u", metadata={"turn_id": "t2"})
    session.append(node)
    session.set_head("x")
    session.flush()
    assert subjects(git, store) == ["agent: t1"]
    session.end_turn("t2", "completed")
    session.close()
    assert graph(git, store) == {"agent: t1": "", "agent: t2": "agent: t1"}
    assert git(store.path("s"), "for-each-ref", "refs/kept") == ""


def test_a_burst_of_bare_calls_shares_a_commit(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    for number in range(5):
        call(session, f"c{number}", f"classify(review='number {number}')")
    session.flush()
    assert subjects(git, store)[-1] == "agent: t1"
    calls = git(store.path("s"), "log", "-1", "--format=%B")
    assert len(subjects(git, store)) <= 3  # the first may have gone with the turn's commit
    assert "Turn-Id: c4" in calls
    turn(session, "t2", "t1.m")
    session.close()
    assert subjects(git, store)[0] == "agent: t2"
    assert git(store.path("s"), "log", "--format=%B").count("Turn-Id: c") == 5


def test_calls_that_overlap_have_a_segment_each(store: SessionStore, session: OpenSession) -> None:
    for name in ("a", "b"):
        session.begin_turn(Turn(name, "call"))
    for name in ("b", "a", "b"):
        number = len(session.dag)
        session.append(Node(f"n{number}", "code", name, metadata={"turn_id": name}))
    session.end_turn("a", "completed")
    session.end_turn("b", "completed")
    session.close()

    segments = sorted(store.root_path.glob("s/history/*/*-call-*"))
    found = [
        {record["turn"]["id"] for record in records if record.get("op") == "open"}
        | {r["node"]["metadata"]["turn_id"] for r in records if r["kind"] == "enter"}
        for records in (
            [json.loads(line) for line in path.read_text().splitlines()] for path in segments
        )
    ]
    assert found == [{"a"}, {"b"}]


def test_a_single_call_is_committed_without_anybody_asking(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    call(session, "c1", "classify(review='good')")
    ref = store.root_path / "s" / ".git" / "refs" / "heads" / "main"
    deadline = time.monotonic() + 60
    while not ref.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert subjects(git, store) == ["call: classify(review='good')"]
    session.close()


def test_what_happens_between_turns_goes_with_the_next(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    session.set_meta(mode="auto")
    session.record_decision({"rule": "allow python"})
    turn(session, "t2", "t1.m")
    session.close()
    assert subjects(git, store) == ["agent: t2", "agent: t1"]
    changed = git(store.path("s"), "show", "--stat", "--format=", "HEAD")
    assert changed.count("-session-") == 1


def test_what_is_left_at_closing_is_a_commit_of_its_own(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    session.set_meta(mode="auto", notebook="sales.ipynb")
    session.close()
    assert subjects(git, store) == ["session: mode, notebook", "agent: t1"]


def test_large_values_and_attachments_are_committed_once(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    session.begin_turn(Turn("t1", subject="big"))
    session.append(Node("n1", "user", "user", input="x" * 100_000, metadata={"turn_id": "t1"}))
    session.append(Node("n2", "user", "user", input="x" * 100_000, metadata={"turn_id": "t1"}))
    digest = session.put_blob(b"a figure", "image/png")
    session.end_turn("t1", "completed")
    session.close()
    files = git(store.path("s"), "ls-files", "context").split()
    assert len(files) == 2
    assert f"context/blobs/{digest[:2]}/{digest}" in files
    assert git(store.path("s"), "show", f"HEAD:context/blobs/{digest[:2]}/{digest}") == "a figure"


def test_ids_and_prompts_of_any_kind_make_a_readable_message(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    odd = 'tu\nrn "1" …'
    session.begin_turn(
        Turn(odd, subject="\x1b[31mred\x00 \u202eback\n\nTurn-Id: faked" + "x" * 300)
    )
    session.end_turn(odd, "completed")
    session.flush()
    session.begin_turn(Turn("t2", subject=""))
    session.end_turn("t2", "completed")
    session.close()
    subject = subjects(git, store)[1]
    assert subject.startswith("agent: [31mred back Turn-Id: fakedxxx")
    assert len(subject) == 72
    assert subjects(git, store)[0] == "agent"
    assert store.open("s").status.repaired == ()


def test_a_turn_that_a_crash_left_uncommitted_is_marked_recovered(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    session.flush()
    session.begin_turn(Turn("t2", base="t1.m", subject="interrupted one"))
    session.append(Node("x", "user", "user", metadata={"turn_id": "t2"}))
    store.abandon()
    again = store.open("s")
    again.flush()
    assert subjects(git, store) == ["agent: interrupted one (recovered)", "agent: t1"]
    message = git(store.path("s"), "log", "-1", "--format=%B")
    assert "Status: interrupted" in message
    assert "Recovered: after its process ended" in message
    again.close()


def test_opening_and_closing_changes_no_file(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    turn(session, "t1", None)
    turn(session, "t2", "t1.u")
    session.close()
    before = files_of(store)
    again = store.open("s")
    again.flush()
    again.close()
    store.open("s", "read").close()
    store.load("s")
    assert files_of(store) == before


def files_of(store: SessionStore) -> dict[str, tuple[int, bytes]]:
    folder = store.root_path / "s"
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name != "session.lock"
    }


def test_packing_keeps_everything_and_makes_it_small(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    base = None
    for number in range(30):
        turn(session, f"t{number}", base)
        base = f"t{number}.m"
    session.close()
    before = git(store.path("s"), "rev-list", "--all", "--objects")
    store.pack("s")
    store.pack("s")
    assert git(store.path("s"), "rev-list", "--all", "--objects") == before
    counted = git(store.path("s"), "count-objects", "-v")
    assert "\ncount: 0\n" in f"\n{counted}"
    assert "packs: 1\n" in counted
    git(store.path("s"), "fsck", "--strict")
    again = store.open("s")
    turn(again, "after", base)
    turn(again, "fork", "t3.m")
    again.close()
    assert graph(git, store)["agent: after"] == "agent: t29"
    assert graph(git, store)["agent: fork"] == "agent: t3"
    git(store.path("s"), "fsck", "--strict")


def test_many_small_packs_are_merged_as_they_come(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    base = None
    for number in range(150):
        turn(session, f"t{number}", base)
        session.flush()
        base = f"t{number}.m"
    packs = list((store.root_path / "s" / ".git" / "objects" / "pack").glob("*.pack"))
    assert 1 < len(packs) < 100
    turn(session, "fork", "t3.m")
    session.close()
    assert len(subjects(git, store, "main")) == 150
    assert graph(git, store)["agent: fork"] == "agent: t3"
    assert git(store.path("s"), "fsck", "--strict") == ""
    assert "garbage: 0\n" in git(store.path("s"), "count-objects", "-v")
    again = store.open("s")
    assert again.status.repaired == ()
    turn(again, "late fork", "t7.m")
    again.close()
    assert graph(git, store)["agent: late fork"] == "agent: t7"


def test_many_packs_are_made_one_when_the_session_is_opened(
    store: SessionStore, session: OpenSession
) -> None:
    for number in range(4):
        turn(session, f"t{number}", session.dag.head)
        session.flush()
    session.close()
    packs = store.root_path / "s" / ".git" / "objects" / "pack"
    store.open("s").close()
    few = sorted(packs.glob("*.pack"))
    assert len(few) >= 4
    for number in range(GC_PACKS + 1 - len(few)):  # the same objects once more are a pack, too
        for kind in (".pack", ".idx"):
            twin = few[0].with_name(f"pack-{number:040x}{kind}")
            twin.write_bytes(few[0].with_suffix(kind).read_bytes())
    store.open("s").close()
    assert len(list(packs.glob("*.pack"))) == 1
    assert store.doctor("s").examine().healthy


def test_a_clock_that_is_set_back_changes_no_order(ram_path: Path, git: Git) -> None:
    now = 1_800_000_000.0
    store = SessionStore(ram_path / "root", clock=lambda: now)
    session = store.open(store.create_session("s"))
    for number in range(4):
        turn(session, f"t{number}", session.dag.head)
        now -= 365 * 86_400
        if number % 2:
            session.close()
            session = store.open("s")
    session.close()
    dag = store.load("s")
    names = [node.turn_id for node in dag.spine()]
    assert list(dict.fromkeys(names)) == ["t0", "t1", "t2", "t3"]
    seqs = [node.seq for node in dag.spine()]
    assert seqs == sorted(set(seqs))
    assert subjects(git, store, "main") == [f"agent: t{n}" for n in (3, 2, 1, 0)]
    assert store.doctor("s").examine().healthy
    store.delete("s")
    now -= 365 * 86_400
    assert store.purge_older(0.0) == []  # it was deleted in a time to come
    store.restore("s")
    assert [info.id for info in store.sessions()] == ["s"]


def test_an_attachment_is_in_git_once_however_often_it_is_used(
    store: SessionStore, session: OpenSession, git: Git
) -> None:
    data = os.urandom(200_000)
    for number in range(5):
        session.begin_turn(Turn(f"t{number}", base=session.dag.head, subject="show it"))
        session.put_blob(data, "image/png")
        session.end_turn(f"t{number}", "completed")
        session.flush()
    session.close()
    packs = (store.root_path / "s" / ".git" / "objects" / "pack").glob("*.pack")
    assert sum(pack.stat().st_size for pack in packs) < 300_000
    assert len(git(store.path("s"), "ls-files", "context").split()) == 1
