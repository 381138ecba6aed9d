"""One writer a session: across processes, forks and machines."""

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import SessionLocked, StoreError
from op_jupyter.store.files import FileSystem
from op_jupyter.store.lock import this_process
from op_jupyter.store.sessions import SessionStore
from tests.store.conftest import Git


@pytest.fixture
def store(ram_path: Path) -> SessionStore:
    return SessionStore(ram_path, kernel_id="kernel-7")


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process, with its standard streams."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLD = """
    import sys
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.core.nodes import Node, Turn
    store = SessionStore(sys.argv[1], kernel_id="kernel-9")
    session = store.open("s") if store.exists("s") else store.open(store.create_session("s"))
    session.begin_turn(Turn(f"t{len(session.dag.turns)}", subject="hold it"))
    session.append(Node(f"n{len(session.dag)}", "user", "user"))
    print("held", flush=True)
    sys.stdin.readline()
    session.close()
    print("closed", flush=True)
"""


def held_by_another(root: Path) -> subprocess.Popen[str]:
    holder = python(HOLD, root)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_the_error_names_the_holder_and_three_ways_on(store: SessionStore) -> None:
    with held_by_another(store.root_path) as holder:
        with pytest.raises(SessionLocked) as caught:
            store.open("s")
        said = str(caught.value)
        assert f"process {holder.pid}" in said
        assert "kernel kernel-9" in said
        for way in ("timeout", "mode='read'", "fork"):
            assert way in said
        assert caught.value.holder.pid == holder.pid
        with pytest.raises(SessionLocked):
            store.delete("s")
        assert len(store.load("s")) == 1
        holder.communicate("\n")


def test_waiting_ends_when_the_holder_lets_go(store: SessionStore) -> None:
    with held_by_another(store.root_path) as holder:
        with pytest.raises(SessionLocked):
            store.open("s", timeout=0.1)
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        session = store.open("s", timeout=30)
        session.append(Node("mine", "user", "user"))
        session.close()
        holder.communicate()


def test_a_killed_holder_leaves_the_lock_free(store: SessionStore) -> None:
    with held_by_another(store.root_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        session = store.open("s")
        assert [t.status for t in session.dag.turns.values()] == ["interrupted"]
        assert len(session.status.repaired) == 2
        session.close()


def test_force_does_not_take_a_session_from_a_live_process(store: SessionStore) -> None:
    with held_by_another(store.root_path) as holder:
        with pytest.raises(SessionLocked):
            store.open("s", force=True)
        holder.communicate("\n")


def lock_file(store: SessionStore) -> Path:
    return store.root_path / "s" / ".git" / "session.lock"


def test_the_lock_file_says_who_holds_it_and_is_empty_afterwards(store: SessionStore) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    said = json.loads(lock_file(store).read_text())
    assert (said["pid"], said["kernel"]) == (os.getpid(), "kernel-7")
    assert said["boot"]
    session.close()
    assert lock_file(store).read_text() == ""


@pytest.mark.parametrize("boot", ["another start", ""])
def test_a_lock_that_another_machine_never_let_go_needs_force(
    store: SessionStore, boot: str
) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    session.close()
    theirs = {"pid": 1, "host": "elsewhere", "boot": boot, "kernel": "", "since": "yesterday"}
    lock_file(store).write_text(json.dumps(theirs))
    with pytest.raises(SessionLocked, match=r"elsewhere.*force=True"):
        store.open("s")
    assert json.loads(lock_file(store).read_text()) == theirs
    store.open("s", force=True).close()
    store.open("s").close()


def test_a_lock_of_this_machine_before_it_was_restarted_is_stale(store: SessionStore) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    mine = json.loads(lock_file(store).read_text())
    session.close()
    lock_file(store).write_text(json.dumps({**mine, "boot": "an earlier start"}))
    store.open("s").close()


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"pid": "x"}'])
def test_a_lock_file_that_says_nothing_sensible_locks_nobody_out(
    store: SessionStore, text: str
) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    session.close()
    lock_file(store).write_text(text)
    store.open("s").close()


@pytest.mark.parametrize("git_is_in_the_way", [False, True])
def test_a_session_that_nobody_holds_lets_go_of_its_lock(
    store: SessionStore, git: Git, git_is_in_the_way: bool
) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    if git_is_in_the_way:
        (store.root_path / "s" / ".git" / "HEAD.lock").touch()
    session.begin_turn(Turn("t", subject="left open"))
    session.end_turn("t", "completed")
    session.begin_turn(Turn("running"))
    del session
    gc.collect()

    again = store.open("s", timeout=30)
    assert again.dag.turns["t"].status == "completed"
    assert again.dag.turns["running"].status == "interrupted"
    again.close()
    if not git_is_in_the_way:
        subjects = git(store.root_path / "s", "log", "--format=%s").splitlines()
        assert "agent: left open" in subjects  # in time, and not recovered


FORGET = """
    import gc, os, sys
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.core.nodes import Node, Turn
    session = SessionStore(sys.argv[1]).open("s")
    session.begin_turn(Turn("t"))
    child = os.fork()
    if child == 0:
        del session
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    print("forgotten", flush=True)
    sys.stdin.readline()
    session.end_turn("t", "completed")
    session.close()
"""


def test_a_child_that_forgets_the_session_takes_nothing_from_its_parent(
    store: SessionStore,
) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    session.close()
    with python(FORGET, store.root_path) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forgotten\n"
        with pytest.raises(SessionLocked):
            store.open("s")
        parent.communicate("\n")
        assert parent.returncode == 0
    assert store.load("s").turns["t"].status == "completed"


FORK = """
    import os, sys
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.core.nodes import Node, Turn
    from op_jupyter.errors import ReadOnlySession
    session = SessionStore(sys.argv[1]).open("s")
    session.append(Node("parent", "user", "user"))
    if os.fork() == 0:
        try:
            session.append(Node("child", "user", "user"))
        except ReadOnlySession as exc:
            print("refused:", exc, flush=True)
        session.flush()
        session.close()
        sys.stdin.readline()
        os._exit(0)
    sys.stdin.readline()
    os._exit(1)
"""


def test_a_forked_child_neither_writes_nor_keeps_the_lock(store: SessionStore) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    session.close()
    with python(FORK, store.root_path) as parent:
        assert parent.stdout is not None
        assert "forked" in parent.stdout.readline()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        again = store.open("s")  # although the child lives on
        assert [n.id for n in again.dag] == ["n", "parent"]
        again.close()
        parent.communicate("\n\n")


TAKE_TURNS = """
    import sys
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.core.nodes import Node, Turn
    store = SessionStore(sys.argv[1])
    for number in range(200):
        if number % TOGETHER == 0:
            session = store.open("s", timeout=60)
        turn_id = f"{sys.argv[2]}{number}"
        session.begin_turn(Turn(turn_id, base=session.dag.head, subject=turn_id))
        node = Node(turn_id, "user", "user", predecessor=session.dag.head, status="completed",
                    metadata={"turn_id": turn_id})
        session.append(node, advance_head=True)
        session.end_turn(turn_id, "completed")
        if number % TOGETHER == TOGETHER - 1:
            session.close()
            assert session.status.git_behind == ""
"""


def test_two_processes_of_two_hundred_turns_each_lose_nothing(
    store: SessionStore, git: Git
) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user", status="completed"))
    session.close()
    # Turns while it is open; 1 for a longer run.
    together = int(os.environ.get("TOGETHER", "10"))
    code = TAKE_TURNS.replace("TOGETHER", str(together))
    workers = [python(code, store.root_path, name) for name in "ab"]
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    dag = store.load("s")
    assert len(dag) == 2 * 200 + 1
    assert len(dag.spine()) == 2 * 200
    seqs = [node.seq for node in dag]
    assert seqs == sorted(set(seqs))
    whose = "".join(node.id[0] for node in dag.spine())
    assert "a" * (200 - together + 1) not in whose  # whoever waits comes next
    assert git(store.root_path / "s", "log", "--format=%B").count("Turn-Id:") == 2 * 200
    assert store.doctor("s").examine().healthy


MAKE_SESSIONS = """
    import sys
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.core.nodes import Node
    store = SessionStore(sys.argv[1])
    sys.stdin.readline()
    for number in range(10):
        session = store.open(store.create_session(f"{sys.argv[2]}{number}"))
        session.append(Node("n", "user", "user"))
        session.close()
"""


def test_two_processes_make_different_sessions_under_one_new_root(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there yet"
    workers = [python(MAKE_SESSIONS, root, name) for name in "ab"]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    store = SessionStore(root)
    assert {info.id for info in store.sessions()} == {f"{x}{n}" for x in "ab" for n in range(10)}
    assert all(len(store.load(info.id)) == 1 for info in store.sessions())


def test_two_stores_of_one_process_see_each_others_locks(store: SessionStore) -> None:
    session = store.open(store.create_session("s"))
    session.append(Node("n", "user", "user"))
    with pytest.raises(SessionLocked, match="this process"):
        SessionStore(store.root_path).open("s")
    session.close()


def test_two_that_make_the_same_new_session_do_not_mix(store: SessionStore) -> None:
    other = SessionStore(store.root_path)
    first, second = store.open(store.create_session("s")), other.open(other.create_session("s"))
    first.append(Node("mine", "user", "user"))
    with pytest.raises(SessionLocked):
        second.append(Node("yours", "user", "user"))
    first.close()
    with pytest.raises(StoreError, match="made elsewhere"):
        second.append(Node("yours", "user", "user"))
    second.close()
    assert [n.id for n in store.load("s")] == ["mine"]


READ_ALONG = """
    import sys
    from op_jupyter.store.sessions import SessionStore
    store = SessionStore(sys.argv[1])
    print("reading", flush=True)
    seen = 0
    while seen < int(sys.argv[2]):
        dag = store.load("s")
        assert len(dag) >= seen
        seen = len(dag)
        assert [n.id for n in dag.spine()] == [f"n{i}" for i in range(seen)], seen
        assert [t.id for t in dag.turns.values()] == [f"t{i}" for i in range(len(dag.turns))]
    print("done", flush=True)
"""


def test_a_reader_sees_a_beginning_of_the_story_at_any_moment(store: SessionStore) -> None:
    count = 300
    session = store.open(store.create_session("s"))
    session.begin_turn(Turn("t0"))
    with python(READ_ALONG, store.root_path, count) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        for number in range(count):
            node = Node(
                f"n{number}",
                "user",
                "user",
                predecessor=session.dag.head,
                metadata={"turn_id": f"t{number // 3}"},
            )
            session.append(node, advance_head=True)
            if number % 3 == 2:
                session.end_turn(f"t{number // 3}", "completed")
                session.begin_turn(Turn(f"t{number // 3 + 1}", base=session.dag.head))
        assert reader.communicate()[0] == "done\n"
    session.close()


FORK_AND_GO_ON = """
    import os, sys
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.core.nodes import Node, Turn
    from op_jupyter.errors import SessionLocked
    store = SessionStore(sys.argv[1])
    session = store.open(store.create_session("s"))
    session.append(Node("n1", "user", "user"))
    child = os.fork()
    if child == 0:
        session.close()
        os._exit(0)
    os.waitpid(child, 0)
    try:
        SessionStore(sys.argv[1]).open("s")
    except SessionLocked:
        session.append(Node("n2", "user", "user"))
    session.close()
"""


def test_closing_in_a_child_leaves_the_parent_its_session(store: SessionStore) -> None:
    with python(FORK_AND_GO_ON, store.root_path) as parent:
        parent.communicate()
    assert [n.id for n in store.load("s")] == ["n1", "n2"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 4000,
        '{"pid": 1e999}',
        f'{{"pid": {10**30}, "host": "here", "boot": "BOOT", "kernel": "", "since": ""}}',
        "\xff\x00",
    ],
)
def test_a_lock_file_that_says_nonsense_keeps_nobody_out(store: SessionStore, text: str) -> None:
    dying = store.open(store.create_session("s"))
    dying.set_meta(title="one")
    store.abandon()
    boot = this_process("", "").boot
    path = store.root_path / "s/.git/session.lock"
    path.write_text(text.replace("BOOT", boot), encoding="latin-1")
    store.doctor("s").examine()
    again = SessionStore(store.root_path).open("s")
    again.close()
    assert path.read_bytes() == b""


def test_new_sessions_can_be_opened_in_many_threads_at_once(store: SessionStore) -> None:
    def open_some(thread: int) -> None:
        ids = (f"s-{thread}-{number}" for number in range(60))
        kept.extend(store.open(store.create_session(session_id)) for session_id in ids)

    kept: list[object] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(open_some, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(kept) == 240


def test_a_lock_that_always_has_a_second_name_is_an_error_and_no_endless_wait(
    tmp_path: Path,
) -> None:
    class Linked(FileSystem):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if new.endswith("session.lock"):
                os.link(new, tmp_path / f"again-{len(os.listdir(tmp_path))}")

    store = SessionStore(tmp_path / "sessions")
    with closing(store.open(store.create_session("s"))) as session:
        session.set_meta(title="kept")
    lock = tmp_path / "sessions" / "s" / ".git" / "session.lock"
    os.link(lock, tmp_path / "again")
    with pytest.raises(StoreError, match="again and again"):
        SessionStore(tmp_path / "sessions", files=Linked()).open("s")
    store.open("s").close()  # by somebody who is left alone
