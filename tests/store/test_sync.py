"""Sessions on other machines: pushed, pulled, gone on with there; two lines stay two lines."""

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import SessionLocked, StoreError, UnknownSession, UsageError
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture
from tests.store.conftest import Git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git executable")


def turn(store: SessionStore, name: str, *, session_id: str = "s", kind: Any = "agent") -> None:
    """One more turn in a session, with a large value, on its active line."""
    session = store.open(session_id) if store.exists(session_id) else None
    session = session or store.open(store.create_session(session_id, title="Travels"))
    base = session.dag.head
    session.begin_turn(Turn(name, kind=kind, base=base, subject=name))
    node = Node(
        f"n-{name}",
        "user",
        "user",
        input=name * 9000,
        predecessor=base,
        status="completed",
        metadata={"turn_id": name},
    )
    session.append(node, advance_head=kind == "agent")
    session.end_turn(name, "completed")
    session.close()


def line(store: SessionStore, branch: str = "") -> list[str]:
    """The turns of a branch, from the first on."""
    dag = store.load("s")
    return [n.id.removeprefix("n-") for n in dag.spine(dag.branches[branch] if branch else None)]


@pytest.fixture
def here(ram_path: Path) -> SessionStore:
    store = SessionStore(ram_path / "here")
    turn(store, "one")
    turn(store, "two")
    return store


@pytest.fixture
def there(ram_path: Path) -> SessionStore:
    return SessionStore(ram_path / "there")


@pytest.fixture
def remote(ram_path: Path, git: Git) -> str:
    git(ram_path, "init", "-q", "--bare", "remote.git")
    return str(ram_path / "remote.git")


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``ssh`` that runs what it is asked to on this machine, and keeps what it was told."""
    told = tmp_path / "told"
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {told}\nfor last; do :; done\nexec sh -c "$last"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return told


def sound(store: SessionStore, git: Git) -> None:
    """The session is well, and its branches are refs, and plain git agrees."""
    assert store.doctor("s").examine().findings == ()
    folder = store.root_path / "s"
    git(folder, "fsck", "--strict")
    # What the branches are called here is in meta.json, and in no commit.
    assert git(folder, "status", "--porcelain") in ("", " M meta.json\n")
    dag = store.load("s")
    heads = git(folder, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert {name for name, head in dag.branches.items() if head} <= set(heads)
    assert git(folder, "for-each-ref", "refs/arrived") == ""
    assert os.listdir(store.root_path / ".incoming") == []


def test_a_session_goes_on_elsewhere_and_comes_back(
    here: SessionStore, there: SessionStore, remote: str, git: Git
) -> None:
    assert here.push("s", remote).changes == ("main begun there",)
    assert here.push("s", remote).changes == ()
    assert there.pushed(remote) == ["s"]
    assert there.pull(remote, "s").changes == ("new here, with 1 branch",)
    assert picture(there.load("s")) == picture(here.load("s"))
    sound(there, git)

    turn(there, "three")
    assert there.push("s", remote).changes == ("main moved forward there",)
    assert here.push("s", remote).changes == ()  # they are ahead
    assert here.pull(remote, "s").changes == ("main moved forward here",)
    assert here.pull(remote, "s").changes == ()
    assert line(here) == line(there) == ["one", "two", "three"]
    assert picture(there.load("s")) == picture(here.load("s"))
    sound(here, git)
    assert git(Path(remote), "log", "--format=%s", "s/main").splitlines() == [
        "agent: three",
        "agent: two",
        "agent: one",
    ]


def test_two_lines_stay_two_lines_on_both_sides(
    here: SessionStore, there: SessionStore, remote: str, git: Git
) -> None:
    here.push("s", remote)
    there.pull(remote, "s")
    turn(here, "mine")
    turn(here, "mine too")
    turn(there, "yours")
    there.push("s", remote)
    (said,) = here.push("s", remote).changes
    assert said == "main-2 begun there, since main went on there as well"
    assert here.push("s", remote).changes == ()

    assert here.pull(remote, "s").changes == ("main-2 begun here: main went on here as well",)
    assert there.pull(remote, "s").changes == ("main-2 begun here",)
    assert line(here) == line(there, "main-2") == ["one", "two", "mine", "mine too"]
    assert line(there) == line(here, "main-2") == ["one", "two", "yours"]
    for store in (here, there):
        assert store.load("s").active_branch == "main"
        sound(store, git)
        turn(store, f"after in {store.root_path.name}")
        assert line(store)[-1] == f"after in {store.root_path.name}"
    here.push("s", remote)
    there.push("s", remote)
    sound(here, git)


def test_lines_that_parted_settle_when_everybody_has_them(
    here: SessionStore, there: SessionStore, remote: str, git: Git
) -> None:
    here.push("s", remote)
    there.pull(remote, "s")
    turn(here, "mine")
    turn(there, "yours")
    for _ in range(3):
        for store in (here, there):
            store.push("s", remote)
            store.pull(remote, "s")
    assert here.push("s", remote).changes == there.push("s", remote).changes == ()
    assert here.pull(remote, "s").changes == there.pull(remote, "s").changes == ()
    third = SessionStore(here.root_path.parent / "third")
    third.pull(remote, "s")
    for store in (here, there, third):
        dag = store.load("s")
        assert {n.id for n in dag} == {"n-one", "n-two", "n-mine", "n-yours"}
        ends = {dag.branches[name] for name in dag.branches}
        assert {"n-mine", "n-yours"} <= ends
        sound(store, git)
    assert line(here)[-1] == "mine"
    assert line(there)[-1] == "yours"


def test_a_clone_by_plain_git_can_be_pulled(
    here: SessionStore, there: SessionStore, ram_path: Path, git: Git
) -> None:
    git(ram_path, "clone", "-q", "--bare", str(here.path("s")), "plain.git")
    assert there.pushed(str(ram_path / "plain.git")) == []
    assert there.pull(str(ram_path / "plain.git")).session_id == "s"
    assert line(there) == ["one", "two"]
    turn(here, "three")
    git(here.root_path / "s", "push", "-q", str(ram_path / "plain.git"), "main")
    assert there.pull(str(ram_path / "plain.git"), "s").changes == ("main moved forward here",)
    assert line(there) == ["one", "two", "three"]
    sound(there, git)


def test_several_sessions_share_a_remote(
    here: SessionStore, there: SessionStore, remote: str
) -> None:
    turn(here, "other", session_id="s.2")
    here.push("s", remote)
    here.push("s.2", remote)
    assert there.pushed(remote) == ["s", "s.2"]
    there.pull(remote, "s.2")
    assert [info.id for info in there.sessions()] == ["s.2"]
    with pytest.raises(UnknownSession, match=r"s\.2"):
        there.pull(remote, "s.3")
    with pytest.raises(UnknownSession):
        there.pull(remote)


def test_bare_calls_and_kept_tips_travel_too(
    here: SessionStore, there: SessionStore, remote: str, git: Git
) -> None:
    session = here.open("s")
    session.set_head("n-one")
    session.close()
    turn(here, "instead")
    turn(here, "call", kind="call")
    here.push("s", remote)
    there.pull(remote, "s")
    assert picture(there.load("s")) == picture(here.load("s"))
    assert "refs/kept/" in git(there.root_path / "s", "for-each-ref")
    sound(there, git)
    turn(here, "call again", kind="call")
    turn(there, "call there", kind="call")
    here.push("s", remote)
    there.push("s", remote)
    for store in (here, there):
        store.pull(remote, "s")
        assert {"n-call again", "n-call there"} <= set(store.load("s").nodes)
        assert line(store) == ["one", "instead"]
        sound(store, git)


def test_it_works_over_ssh(
    here: SessionStore, there: SessionStore, remote: str, ssh: Path, git: Git
) -> None:
    for address in (f"ssh://me@box.example{remote}", f"me@box.example:{remote}"):
        here.push("s", address)
        there.pull(address, "s")
        turn(there, f"by {address[:3]}")
        there.push("s", address)
        turn(here, f"here {address[:3]}")
        here.push("s", address)
        here.pull(address, "s")
        there.pull(address, "s")
    assert set(here.load("s").nodes) == set(there.load("s").nodes)
    sound(here, git)
    sound(there, git)
    assert "BatchMode=yes" in ssh.read_text()
    with pytest.raises(StoreError, match=r"box\.example:/none"):
        here.push("s", "box.example:/none")


def test_over_ssh_only_what_is_new_is_fetched_and_only_of_that_session(
    here: SessionStore, there: SessionStore, remote: str, ssh: Path, git: Git
) -> None:
    sent = ssh.with_name("sent")
    program = ssh.parent / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nfor last; do :; done\nsh -c "$last" | tee -a {sent}\n')

    def pulled_bytes() -> int:
        sent.write_bytes(b"")
        there.pull(f"box.example:{remote}", "s")
        return sent.stat().st_size

    other = here.open(here.create_session("other"))
    other.set_meta(title=os.urandom(200_000).hex())
    other.close()
    session = here.open("s")
    session.put_blob(os.urandom(300_000), "application/octet-stream")
    session.close()
    for session_id in ("s", "other"):
        here.push(session_id, remote)
    first = pulled_bytes()
    assert 300_000 < first < 400_000  # nothing of the other session

    turn(here, "small")
    here.push("s", remote)
    assert pulled_bytes() < 20_000
    assert line(there) == line(here)
    sound(there, git)

    turn(here, "more")
    here.push("s", remote)
    for pack in (there.root_path / "s").glob(".git/objects/pack/*.pack"):
        pack.chmod(0o600)
        pack.write_bytes(b"not a pack")  # then all of it is fetched
    with pytest.raises(StoreError):
        there.pull(f"box.example:{remote}", "s")
    assert os.listdir(there.root_path / ".incoming") == []


@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=x",
        "ext::sh -c touch% x",
        "fd::17",
        "http://h/x",
        "https://h/x",
        "git://h/x",
        "ftp://h/x",
        "ssh://-oProxy=x/y",
        "ssh://h",
        "ssh://u:secret@h/x",
        "ssh://-u@h/x",
        "ssh://h/x?y",
        "ssh://[/x",
        "a\nb",
        "file://other/x",
        "transport::/x",
        "-h:x",
        "ssh://h:99999/x",
        "~nobody-has-this-name/x",
    ],
)
def test_addresses_that_could_run_something_are_refused(here: SessionStore, address: str) -> None:
    for call in (lambda: here.push("s", address), lambda: here.pull(address, "s")):
        with pytest.raises(UsageError):
            call()


def test_a_path_without_a_repository_is_an_error(here: SessionStore, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "-x"):
        with pytest.raises(StoreError, match="git init --bare"):
            here.push("s", str(path))


def test_a_repository_whose_parts_are_elsewhere_is_an_error(
    here: SessionStore, remote: str, ram_path: Path
) -> None:
    for part in ("objects", "refs", "objects/pack"):
        whole = Path(remote, part)
        whole.rename(ram_path / "elsewhere")
        whole.symlink_to(ram_path / "elsewhere")
        for call in (lambda: here.push("s", remote), lambda: here.pull(remote, "s")):
            with pytest.raises(StoreError, match="folder of its own"):
                call()
        whole.unlink()
        (ram_path / "elsewhere").rename(whole)
    Path(remote, "objects/info/alternates").write_text("/etc")
    with pytest.raises(StoreError, match="not a plain repository"):
        here.push("s", remote)


def test_a_hostile_repository_on_disk_runs_nothing(
    here: SessionStore, there: SessionStore, remote: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho ran >> {ran}\n")
    script.chmod(0o755)
    for hook in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction"):
        shutil.copy(script, Path(remote, "hooks", hook))
    for key in (
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
        "core.fsmonitor",
        "core.sshCommand",
        "core.gitProxy",
        "core.pager",
        "core.askPass",
        "gpg.program",
    ):
        subprocess.run(["git", "-C", remote, "config", key, str(script)], check=True)
    for key, value in (
        ("extensions.partialClone", "evil"),
        ("remote.evil.promisor", "true"),
        ("remote.evil.url", f"ext::{script}"),
        ("remote.evil.uploadpack", str(script)),
        ("protocol.ext.allow", "always"),
        ("core.repositoryFormatVersion", "1"),
    ):
        subprocess.run(["git", "-C", remote, "config", key, value], check=True)
    here.push("s", remote)
    there.pull(remote, "s")
    turn(there, "three")
    there.push("s", remote)
    assert line(there) == ["one", "two", "three"]
    assert not ran.exists()


def test_names_of_refs_lead_nowhere_else(
    here: SessionStore, there: SessionStore, remote: str, ram_path: Path
) -> None:
    here.push("s", remote)
    tip = Path(remote, "refs/heads/s/main").read_text().strip()
    names = ["../../../../evil", "a/../../b", ".x", "x.lock", "a b", "-x", "\x1b[31m", "x//y"]
    names += ["\u202e", "y.", "z~1", "*"]
    with Path(remote, "packed-refs").open("w") as file:
        file.writelines(f"{tip} refs/heads/s/{name}\n" for name in names)
    there.pull(remote, "s")
    assert os.listdir(there.root_path / "s/.git/refs/heads") == ["main"]
    assert not (ram_path / "evil").exists()
    assert not list(ram_path.rglob("*evil*"))


def test_a_stranger_cannot_bring_leave_to_run_things(
    here: SessionStore, there: SessionStore, remote: str
) -> None:
    here.push("s", remote)
    there.pull(remote, "s")
    session = here.open("s")
    rules = {"allow": ["shell(*)"], "deny": ["write_file(*)"]}
    session.set_meta(rules=rules, mode="auto", extra_tools=["shell"], config={"mode": "auto"})
    session.close()
    turn(here, "three")
    here.push("s", remote)
    there.pull(remote, "s")
    assert line(there)[-1] == "three"
    meta = there.load("s").meta
    assert (meta["rules"], meta["mode"]) == ({"allow": [], "deny": []}, "accept_edits")
    assert (meta["extra_tools"], meta["config"]) == ([], {})

    fresh = SessionStore(here.root_path.parent / "fresh")
    synced = fresh.pull(remote, "s")
    assert "not taken over" in synced.notes[0]
    meta = fresh.load("s").meta
    assert meta["rules"] == {"allow": [], "deny": ["write_file(*)"]}
    assert (meta["mode"], meta["extra_tools"], meta["config"]) == ("accept_edits", [], {})
    assert here.load("s").meta["rules"] == rules


def test_another_session_with_the_same_id_is_refused(
    here: SessionStore, there: SessionStore, remote: str
) -> None:
    turn(there, "different")
    here.push("s", remote)
    before = picture(there.load("s"))
    with pytest.raises(StoreError, match="another one that has the same id"):
        there.pull(remote, "s")
    assert picture(there.load("s")) == before
    there.push("s", remote)  # a line of its own there, nothing is overwritten
    assert Path(remote, "refs/heads/s/main-2").exists()


def test_damage_that_comes_in_is_refused_as_a_whole(
    here: SessionStore, there: SessionStore, remote: str, ram_path: Path, git: Git
) -> None:
    here.push("s", remote)
    there.pull(remote, "s")
    git(ram_path, "clone", "-q", "-b", "s/main", remote, "work")
    path = min((ram_path / "work").glob("history/000/*-agent-*"))
    path.with_name("00099-agent-01234567.jsonl").write_text("not a record\n")
    git(ram_path / "work", "add", ".")
    git(ram_path / "work", "commit", "-qm", "evil")
    git(ram_path / "work", "push", "-q", "origin", "HEAD:s/main")
    before = picture(there.load("s"))
    for store in (there, SessionStore(ram_path / "new")):
        with pytest.raises(StoreError, match="byte 0"):
            store.pull(remote, "s")
    assert picture(there.load("s")) == before
    assert not (ram_path / "new" / "s").exists()
    assert there.doctor("s").examine().healthy


def test_a_session_that_is_open_is_pushed_as_far_as_it_is_committed_and_not_pulled(
    here: SessionStore, there: SessionStore, remote: str
) -> None:
    session = here.open("s")
    session.begin_turn(Turn("late", base=session.dag.head))
    synced = here.push("s", remote)
    assert synced.changes == ("main begun there",)
    assert "open for writing in this process" in synced.notes[0]
    assert here.pull(remote, "s").changes == ()
    there.pull(remote, "s")
    turn(there, "three")
    there.push("s", remote)
    with pytest.raises(SessionLocked):
        here.pull(remote, "s")
    session.close()


def test_a_remote_may_be_on_another_disk(
    here: SessionStore, there: SessionStore, tmp_path: Path, git: Git
) -> None:
    folder = tmp_path / 'a "stick": with a colon\\'
    folder.mkdir()
    git(folder, "init", "-q", "--bare", "remote.git")
    remote = str(folder / "remote.git")
    if os.stat(folder).st_dev == os.stat(here.root_path).st_dev:
        pytest.skip("there is one disk alone")
    here.push("s", remote)
    there.pull(remote, "s")
    turn(there, "three")
    there.push("s", remote)
    here.pull(remote, "s")
    assert line(here) == ["one", "two", "three"]
    sound(here, git)
    for path in (here.root_path / "s" / ".git", there.root_path / "s" / ".git", Path(remote)):
        assert list(path.glob("objects/pack/tmp_*")) == []


def test_without_git_there_is_one_clear_error(
    here: SessionStore, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for call in (lambda: here.push("s", remote), lambda: here.push("s", "h:/x")):
        with pytest.raises(StoreError, match="no git executable"):
            call()


def test_a_shared_remote_stays_one_for_its_group(here: SessionStore, remote: str) -> None:
    for path in [Path(remote), *Path(remote).rglob("*")]:
        path.chmod(0o770 if path.is_dir() else 0o660)
    here.push("s", remote)
    for path in Path(remote).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o660 == 0o660, path
    modes = {stat.S_IMODE(p.stat().st_mode) & 0o077 for p in (here.root_path / "s").rglob("*")}
    assert modes == {0}
