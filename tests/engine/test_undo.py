"""Files are put back exactly, only when asked, and never over what somebody else did."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect, PermissionAnswer, PermissionRequest
from op_jupyter.core.rules import parse_rule
from op_jupyter.engine import loop, registry
from op_jupyter.engine.cleaning import Cleaner
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.undo import (
    Undone,
    changed_in,
    changed_since,
    last_change,
    told,
    undo_calls,
)
from op_jupyter.errors import CorruptRecord, FilesChanged, SessionActive, UsageError
from op_jupyter.store.documents import to_json
from op_jupyter.store.interchange import import_path
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from op_jupyter.tools.backup_files import FILE_BYTES, WORKSPACE_ENTRIES
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.files import file_tools
from tests.engine.harness import (
    ALLOW,
    DENY,
    ScriptedAsker,
    assert_sound,
    run,
    start_in_background,
    states,
    tool_nodes,
)

Picture = dict[str, tuple[Any, ...]]


class CodeTool:
    """Runs Python on the workspace, as `python` and `shell` may."""

    effect: Effect = "execute"
    timeout = None
    trusted = False
    spec = ToolSpec("code", "Run code.", {"type": "object", "properties": {"code": {}}})

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        return CallDescription(code=arguments["code"], language="")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        exec(arguments["code"], {"here": context.workspace, "os": os})
        return ToolOutput((TextBlock("ran"),))


@pytest.fixture
def work(session: AgentSession, tmp_path: Path) -> Path:
    """A workspace with one file of each kind."""
    folder = session.workspace = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\r\ntwo\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o751)
    (folder / "binary.bin").write_bytes(bytes(range(256)))
    (folder / "latin.txt").write_bytes("Käse\n".encode("latin-1"))
    (folder / "large.bin").write_bytes(os.urandom(1024) * 1024 * 3)
    (folder / "src" / "b.txt").write_text("b")
    (folder / "link").symlink_to("a.txt")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "tree" / "inner" / "empty").mkdir(parents=True)
    (folder / "tree" / "inner").chmod(0o500)
    (folder / "tree" / "inner" / "x.bin").write_bytes(b"\xff\0")
    (folder / "tree" / "inner" / "up").symlink_to("../../a.txt")
    return folder


def picture(root: Path) -> Picture:
    """Everything below *root*: kind, mode, content or target."""
    found: Picture = {}
    for path in sorted(root.rglob("*")):
        status, name = path.lstat(), str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", stat.S_IMODE(status.st_mode))
        else:
            found[name] = ("file", stat.S_IMODE(status.st_mode), path.read_bytes())
    return found


def do(session: AgentSession, *calls: Any) -> str:
    """Run one turn that makes *calls*; returns its id."""
    tools = [*file_tools(), CodeTool()]
    provider = ScriptedProvider(reply(*calls), reply("done"))
    run(session, provider, tools, asker=ScriptedAsker([ALLOW] * len(calls)))
    assert set(states(session)) == {"succeeded"}
    return list(session.dag.turns)[-1]


def undo(session: AgentSession, turn_id: str, **options: Any) -> Undone:
    options.setdefault("ask", False)
    return loop.run_sync(lambda: undo_calls(session, changed_in(session, turn_id), **options))


EVERYTHING = [
    call("write_file", {"path": "new/deep/made.txt", "text": "new"}),
    call("write_file", {"path": "a.txt", "text": "other"}),
    call("edit_file", {"path": "link", "old_text": "other", "new_text": "through the link"}),
    call("move_file", {"path": "run.sh", "to": "bin/run.sh"}),
    call("move_file", {"path": "large.bin", "to": "big/large.bin"}),
    call("move_file", {"path": "dangling", "to": "moved-link"}),
    call("move_file", {"path": "tree", "to": "far/away/tree"}),
    call("delete_file", {"path": "far/away/tree/inner/empty"}),
    call("move_file", {"path": "far/away/tree/inner", "to": "inner"}),
    call("delete_file", {"path": "binary.bin"}),
    call("delete_file", {"path": "latin.txt"}),
    call("delete_file", {"path": "src/b.txt"}),
    call("delete_file", {"path": "src"}),
    call("delete_file", {"path": "link"}),
    call("write_file", {"path": "binary.bin", "text": "text now"}),
]


def test_a_turn_of_file_tools_is_undone_to_the_byte_and_the_undo_as_well(
    session: AgentSession, work: Path
) -> None:
    before = picture(work)
    turn_id = do(session, *EVERYTHING)
    after = picture(work)
    assert after != before
    undone = undo(session, turn_id)
    assert undone.notes == ()
    assert picture(work) == before
    undo(session, last_change(session) or "")
    assert picture(work) == after
    undo(session, last_change(session) or "")
    assert picture(work) == before
    assert_sound(session)


def test_files_can_be_put_back_after_the_session_went_through_a_document(
    session: AgentSession, work: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = picture(work)
    turn_id = do(session, *EVERYTHING)
    document = tmp_path_factory.mktemp("elsewhere") / "session.json"
    document.write_text(to_json(session.store.snapshot(), session.store.read_blob))
    store = MemoryStore()
    taken = registry.acquire(store, import_path(store, document).session_id)
    taken.workspace = work
    undo(taken, turn_id)
    assert picture(work) == before
    registry.release(taken)


CODE = """
(here / "made").mkdir(); (here / "made" / "x").write_bytes(b"\\0x")
(here / "a.txt").write_text("changed")
os.rename(here / "large.bin", here / "moved.bin")
(here / "run.sh").chmod(0o600)
(here / "binary.bin").unlink()
(here / "latin.txt").unlink(); (here / "latin.txt").mkdir()
os.unlink(here / "src" / "b.txt"); (here / "src").rmdir()
(here / "src").write_text("a file now")
os.unlink(here / "link"); os.symlink("b.txt", here / "link")
os.unlink(here / "dangling"); (here / "dangling").write_text("a file now")
"""


def test_what_code_did_to_a_small_workspace_is_undone_to_the_byte(
    session: AgentSession, work: Path
) -> None:
    before = picture(work)
    turn_id = do(session, call("code", {"code": CODE}))
    after = picture(work)
    assert undo(session, turn_id).notes == ()
    assert picture(work) == before
    undo(session, last_change(session) or "")
    assert picture(work) == after


def test_files_go_back_to_what_they_were_at_a_node_over_several_turns(
    session: AgentSession, work: Path
) -> None:
    do(session, call("write_file", {"path": "a.txt", "text": "1"}))
    middle = picture(work)
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "2"}))
    do(session, call("code", {"code": "(here / 'a.txt').write_text('3')"}))
    user = next(n.id for n in session.dag if n.turn_id == turn_id)
    undone = loop.run_sync(lambda: undo_calls(session, changed_since(session, user), ask=False))
    assert undone.paths == ("a.txt",)
    assert picture(work) == middle


def test_what_the_user_changed_since_is_never_lost_in_silence(
    session: AgentSession, work: Path
) -> None:
    turn_id = do(
        session,
        call("write_file", {"path": "a.txt", "text": "agent"}),
        call("write_file", {"path": "new.txt", "text": "agent"}),
    )
    (work / "a.txt").write_text("user")
    before = picture(work)
    with pytest.raises(FilesChanged, match=r"a\.txt: it was changed in another way since"):
        undo(session, turn_id)
    assert picture(work) == before
    undo(session, turn_id, force=True)
    assert (work / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert not (work / "new.txt").exists()
    undo(session, last_change(session) or "")
    assert picture(work) == before


@pytest.mark.parametrize("change", ["chmod", "unlink", "retarget"])
def test_any_other_change_is_noticed(session: AgentSession, work: Path, change: str) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    path = work / "a.txt"
    if change == "chmod":
        path.chmod(0o600)
    else:
        path.unlink()
        if change == "retarget":
            path.symlink_to("src/b.txt")
    with pytest.raises(FilesChanged):
        undo(session, turn_id)


def test_a_change_between_two_calls_is_noticed(session: AgentSession, work: Path) -> None:
    first = do(session, call("write_file", {"path": "a.txt", "text": "1"}))
    (work / "a.txt").write_text("user")
    do(session, call("write_file", {"path": "a.txt", "text": "2"}))
    user = next(n.id for n in session.dag if n.turn_id == first)
    with pytest.raises(FilesChanged, match="in between"):
        loop.run_sync(lambda: undo_calls(session, changed_since(session, user), ask=False))


def test_a_folder_that_holds_the_users_files_stays(session: AgentSession, work: Path) -> None:
    turn_id = do(session, call("write_file", {"path": "new/a.txt", "text": "agent"}))
    (work / "new" / "mine.txt").write_text("user")
    undone = undo(session, turn_id)
    assert undone.notes == ("new: the folder holds other files",)
    assert [p.name for p in (work / "new").iterdir()] == ["mine.txt"]


def test_it_asks_first_and_a_denial_touches_nothing(session: AgentSession, work: Path) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    after = picture(work)
    asker = session.asker = ScriptedAsker([DENY, ALLOW])
    assert undo(session, turn_id, ask=True).denied
    assert picture(work) == after
    undone = undo(session, turn_id, ask=True)
    assert (work / "a.txt").read_bytes() == b"one\r\ntwo\n"
    card = asker.requests[1]
    assert (card.tool, card.rule, card.arguments) == ("undo_files", "", {})
    assert "+one" in card.display["diff"]
    assert told(undone) == "Put back: a.txt. `%agent undo` takes that back."
    assert [d["answer"] for d in session.dag.decisions[-2:]] == ["deny", "allow"]
    node = session.dag.node(undone.node_id)
    assert (node.name, node.status, node.output) == ("undo_files", "completed", "put back a.txt")
    assert session.dag.decision_of(node) == session.dag.decisions[-1]
    assert session.dag.turns[node.turn_id or ""].status == "completed"


def test_the_model_is_told_what_was_put_back(session: AgentSession, work: Path) -> None:
    undo(session, do(session, call("write_file", {"path": "a.txt", "text": "agent"})))
    provider = ScriptedProvider(reply("seen"))
    run(session, provider)
    said = "".join(
        block.text
        for message in provider.requests[0].messages
        for block in message.content
        if isinstance(block, TextBlock)
    )
    assert "put back a.txt" in said


def test_nobody_to_ask_is_a_refusal(session: AgentSession, work: Path) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    with pytest.raises(UsageError, match="nobody can be asked"):
        undo(session, turn_id, ask=True)


def test_a_deny_rule_and_a_protected_path_hold_for_undoing_too(
    session: AgentSession, work: Path
) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    session.user_rules = (parse_rule("undo_files", "deny"),)
    with pytest.raises(UsageError, match="forbids"):
        undo(session, turn_id)
    session.user_rules = ()
    hook = str(work / ".git" / "hooks" / "pre-commit")
    node = changed_in(session, turn_id)[0]
    session.recorder.note(
        node.id, files=[[hook, {"kind": "link", "target": "/x"}, {"kind": "absent"}]]
    )
    with pytest.raises(UsageError, match="protected"):
        undo(session, turn_id)
    assert not (work / ".git").exists()


def test_a_stop_while_it_asks_touches_nothing_and_leaves_nothing_running(
    session: AgentSession, work: Path
) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    after = picture(work)
    asked = asyncio.Event()

    class Waiting(ScriptedAsker):
        async def decide(self, request: PermissionRequest) -> PermissionAnswer:
            asked.set()
            return await super().decide(request)

    session.asker = Waiting()

    async def cancelled() -> None:
        task = asyncio.ensure_future(undo_calls(session, changed_in(session, turn_id)))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_sync(cancelled)
    assert picture(work) == after
    assert_sound(session)
    assert session.pending_cards() == []


@pytest.mark.parametrize(
    "files",
    [
        "no list",
        [["a.txt", {"kind": "absent"}, None]],
        [["/x/..", {"kind": "absent"}, None]],
        [["/x/../y", {"kind": "absent"}, None]],
        [["/x", {"kind": "socket"}, None]],
        [["/x", {"kind": "file", "mode": -1}, None]],
        [["/x", {"kind": ["file"]}, None]],
        [["/x", {"kind": "file", "content": "y"}, None]],
    ],
)
def test_a_session_that_tells_nonsense_about_files_is_refused(
    session: AgentSession, work: Path, files: Any
) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    session.recorder.note(changed_in(session, turn_id)[0].id, files=files)
    with pytest.raises(CorruptRecord, match="does not say what it did"):
        undo(session, turn_id, force=True)
    assert (work / "a.txt").read_text() == "agent"


def test_content_that_is_not_what_was_kept_is_never_put_back(
    session: AgentSession, work: Path
) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    node = changed_in(session, turn_id)[0]
    (step,) = node.metadata["files"]
    other = session.recorder.keep_blob(b"something else", "text/plain")
    session.recorder.note(node.id, files=[[step[0], {**step[1], "blob": other}, step[2]]])
    with pytest.raises(CorruptRecord, match="damaged"):
        undo(session, turn_id)
    assert (work / "a.txt").read_text() == "agent"


def test_a_call_that_the_process_did_not_survive_needs_force(
    session: AgentSession, work: Path
) -> None:
    before = picture(work)
    for tool_call in (
        call("write_file", {"path": "a.txt", "text": "agent"}),
        call("code", {"code": "(here / 'a.txt').write_text('agent')"}),
    ):
        turn_id = do(session, tool_call)
        node = changed_in(session, turn_id)[0]
        killed = {k: v for k, v in node.metadata.items() if k != "files"}
        session.dag.nodes[node.id] = replace(node, status="interrupted", metadata=killed)
        with pytest.raises(FilesChanged, match="nobody knows"):
            undo(session, turn_id)
        undo(session, turn_id, force=True)
        assert picture(work) == before


def test_it_is_only_possible_while_nothing_runs(session: AgentSession, work: Path) -> None:
    done = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    gate = Gate()
    turn_id, job = start_in_background(session, ScriptedProvider((gate, *reply("x"))))
    with pytest.raises(SessionActive):
        undo(session, done)
    loop.run_sync(session.cancel_turn, turn_id)
    job.future.result()


def test_a_secret_is_not_kept_and_the_card_says_so(session: AgentSession, work: Path) -> None:
    (work / ".env").write_text("PASSWORD=x")
    asker = ScriptedAsker([ALLOW])
    provider = ScriptedProvider(
        reply(call("write_file", {"path": ".env", "text": "y"})), reply("done")
    )
    run(session, provider, file_tools(), asker=asker)
    assert asker.requests[0].undo == (
        "It cannot be undone: the old .env is not kept, because it may hold secrets."
    )
    undone = undo(session, last_change(session) or "")
    assert undone.notes == (".env: its old content was not kept, because it may hold secrets",)
    assert (work / ".env").read_text() == "y"


def test_a_card_for_code_says_whether_it_can_be_undone(
    session: AgentSession, work: Path, tmp_path: Path
) -> None:
    def asked() -> str:
        asker = ScriptedAsker([ALLOW])
        provider = ScriptedProvider(reply(call("code", {"code": "pass"})), reply("done"))
        run(session, provider, [CodeTool()], asker=asker)
        return asker.requests[0].undo

    assert "`%agent undo` puts them back" in asked()
    for number in range(WORKSPACE_ENTRIES):
        (work / f"f{number}").touch()
    assert "too large to be kept" in asked()
    assert "backup" not in tool_nodes(session)[-1].metadata


def test_a_file_that_is_too_large_is_not_kept_and_that_is_said(
    session: AgentSession, work: Path
) -> None:
    with (work / "huge").open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    turn_id = do(session, call("move_file", {"path": "huge", "to": "moved"}))
    undone = undo(session, turn_id, force=True)
    assert "larger than 64 MB" in undone.notes[0]


def test_what_is_too_large_to_be_kept_is_never_taken_away(
    session: AgentSession, work: Path
) -> None:
    with (work / "huge").open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    turn_id = do(session, call("move_file", {"path": "huge", "to": "moved"}))
    assert "not taken away" in told(undo(session, turn_id, force=True))
    assert (work / "moved").stat().st_size == FILE_BYTES + 1


def test_a_moved_secret_is_put_back_though_it_is_not_kept(
    session: AgentSession, work: Path
) -> None:
    (work / "settings").mkdir()
    (work / "settings" / ".env").write_text("TOKEN=hunter2")
    before = picture(work)
    moved = [
        call("move_file", {"path": "settings", "to": "conf"}),
        call("move_file", {"path": "conf/.env", "to": "conf/env.txt"}),
    ]
    turn_id = do(session, *moved)
    asker = ScriptedAsker([ALLOW])
    session.asker = asker
    assert undo(session, turn_id, ask=True).notes == ()
    assert picture(work) == before
    assert "hunter2" not in str(asker.requests[0].to_json()) and "moved back" in str(
        asker.requests[0].display
    )
    undo(session, last_change(session) or "")
    assert (work / "conf" / "env.txt").read_text() == "TOKEN=hunter2"


def test_an_undo_that_breaks_off_loses_no_secret_that_was_moved(
    session: AgentSession, work: Path
) -> None:
    (work / "settings").mkdir()
    (work / "settings" / ".env").write_text("TOKEN=hunter2")
    moved = call("move_file", {"path": "settings/.env", "to": "far/away/env.txt"})
    turn_id = do(session, moved, call("write_file", {"path": "z.txt", "text": "agent"}))

    class Meanwhile(ScriptedAsker):
        async def decide(self, request: PermissionRequest) -> PermissionAnswer:
            (work / "z.txt").write_text("mine")
            return ALLOW

    session.asker = Meanwhile()
    with pytest.raises(UsageError, match=r"not everything was put back: z\.txt was changed"):
        undo(session, turn_id, ask=True)
    assert (work / "settings" / ".env").read_text() == "TOKEN=hunter2"
    assert (work / "z.txt").read_text() == "mine"


def test_a_folder_in_which_somebody_put_a_file_since_is_left_with_it(
    session: AgentSession, work: Path
) -> None:
    turn_id = do(session, call("move_file", {"path": "src", "to": "lib"}))
    (work / "lib" / "mine.txt").write_text("mine")
    assert undo(session, turn_id).notes == ("lib: the folder holds other files",)
    assert (work / "lib" / "mine.txt").read_text() == "mine"
    assert (work / "src" / "b.txt").read_text() == "b"


def test_a_file_that_code_did_not_change_is_kept_once(session: AgentSession, work: Path) -> None:
    kept: list[int] = []
    store = session.recorder.store
    put = store.put_blob

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def put_blob(self, data: bytes, media_type: str) -> str:
            kept.append(len(data))
            return put(data, media_type)

    session.recorder._store = Counting()  # type: ignore[assignment]
    do(session, call("code", {"code": "(here / 'a.txt').write_text('2')"}))
    kept.clear()
    do(session, call("code", {"code": "(here / 'a.txt').write_text('3')"}))
    assert max(kept) < 100_000


def test_nothing_to_put_back_is_said(session: AgentSession, work: Path) -> None:
    turn_id = do(session, call("write_file", {"path": "a.txt", "text": "agent"}))
    (work / "a.txt").write_bytes(b"one\r\ntwo\n")
    assert told(undo(session, turn_id)) == "The files are as they were; nothing had to be put back."


def test_an_answer_edited_on_the_card_keeps_the_file_that_it_names(
    session: AgentSession, work: Path
) -> None:
    before = picture(work)
    edited = PermissionAnswer("allow", "click", {"path": "run.sh", "text": "edited"})
    asker = ScriptedAsker([edited])
    loop.run_sync(session.set_permission_mode, "read_only")
    provider = ScriptedProvider(
        reply(call("write_file", {"path": "a.txt", "text": "x"})), reply("done")
    )
    run(session, provider, file_tools(), asker=asker)
    assert (work / "run.sh").read_text() == "edited"
    undo(session, last_change(session) or "")
    assert picture(work) == before


def test_a_session_that_is_kept_in_the_workspace_is_no_part_of_its_own_backup(
    session: AgentSession, work: Path
) -> None:
    session.store_path = work / "sessions" / "s1"
    session.store_path.mkdir(parents=True)
    (session.store_path / "journal").write_text("1")
    code = "(here / 'a.txt').write_text('x'); (here / 'sessions/s1/journal').write_text('2')"
    turn_id = do(session, call("code", {"code": code}))
    assert undo(session, turn_id).paths == ("a.txt",)
    assert (session.store_path / "journal").read_text() == "2"


class SlowBackup(Cleaner):
    """Waits at a gate while the content of a file is looked through for secrets."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def text(self, text: str) -> str:
        if text == "b" and threading.current_thread().name == "op-tool":
            self.begun.set()
            assert self.go_on.wait(10)
        return super().text(text)


@pytest.mark.parametrize(
    "asked",
    [
        call("write_file", {"path": "src/b.txt", "text": "new"}),
        call("code", {"code": "(here / 'a.txt').unlink()"}),
    ],
)
def test_a_call_stopped_while_files_are_kept_has_touched_nothing_that_could_be_undone(
    store: MemoryStore, tmp_path: Path, asked: Any
) -> None:
    cleaner = SlowBackup()
    session = AgentSession(store.open(store.create_session()), cleaner=cleaner)
    session.workspace = tmp_path
    (tmp_path / "src").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "src" / "b.txt").write_text("b")
    before = picture(tmp_path)
    provider = ScriptedProvider(reply(asked))
    tools = [*file_tools(), CodeTool()]
    turn_id, job = start_in_background(session, provider, tools, asker=ScriptedAsker([ALLOW]))
    assert cleaner.begun.wait(10)
    loop.run_sync(session.cancel_turn, turn_id)
    cleaner.go_on.set()
    assert job.future.result(10).status == "cancelled"
    assert picture(tmp_path) == before
    assert states(session) == ["cancelled"]
    assert last_change(session) is None
    assert_sound(session)
