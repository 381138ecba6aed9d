"""One session per notebook: which one it is, across cells, reruns and restarts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shells import Model, Shell

from op_jupyter.core.graph import Dag
from op_jupyter.engine.context import current_session
from op_jupyter.errors import CorruptRecord, SessionLocked, UnknownSession
from op_jupyter.notebook.extension import load, unload
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.store.memory import MemoryStore
from op_jupyter.store.notes import Notes
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import reply


class FakeKernel:
    """As much of a kernel as names a notebook and its cells; nobody can answer in it."""

    shell_stream = object()
    io_loop = None
    parent = SimpleNamespace(connection_file="/run/kernel-1.json")

    def __init__(self) -> None:
        self.cell_id = "cell-1"
        self.runs = 0

    def get_parent(self, _channel: str) -> dict[str, Any]:
        return {
            "header": {"msg_id": f"request-{self.runs}"},
            "metadata": {"cellId": self.cell_id},
            "content": {"allow_stdin": False},
        }


class Front:
    """Runs cells as a front end does: each has an id, and each run has one."""

    def __init__(self, shell: Shell) -> None:
        self.kernel = shell.ip.kernel = FakeKernel()  # type: ignore[attr-defined]
        self.shell = shell

    def run(self, cell_id: str, prompt: str, flags: str = "") -> Any:
        self.kernel.cell_id = cell_id
        self.kernel.runs += 1
        return self.shell.value(f"%%agent {flags}\n{prompt}")


@pytest.fixture
def front(clean_environment: None, shell: Shell) -> Front:
    return Front(shell)


def said(dag: Dag) -> list[str]:
    """The prompts on the active line."""
    return [n.input[0]["text"] for n in dag.spine() if n.role == "user"]


def echo(request: Any) -> Any:
    return reply(f"heard {len(request.messages)}")


@pytest.fixture
def talkative(model: Model) -> Model:
    """A model that answers whatever it is asked."""
    model.provider._default = echo
    return model


def test_running_a_cell_again_takes_the_place_of_its_turn(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.run("a", "One")
    front.run("b", "Two")
    front.run("c", "Three")
    front.run("b", "Two, better")
    dag = notebook.session.dag
    assert said(dag) == ["One", "Two, better"]
    assert "Two" not in talkative.sent().replace("Two, better", "")
    assert "One" in talkative.sent()
    old = [n for n in dag if n.role == "user" and n.input[0]["text"] == "Three"]
    assert len(old) == 1  # still there, on the branch that was left


def test_running_the_first_cell_again_starts_over(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.run("a", "One")
    front.run("a", "One, better")
    assert said(notebook.session.dag) == ["One, better"]


def test_rerun_may_be_set_to_append(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    shell.value("%config AgentMagics.on_rerun = 'append'")
    front.run("a", "One")
    front.run("a", "Again")
    assert said(notebook.session.dag) == ["One", "Again"]


def test_rerun_may_be_set_to_show_an_unchanged_turn_again(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    shell.value("%config AgentMagics.on_rerun = 'replay'")
    first = front.run("a", "One")
    front.run("b", "Two")
    asked, shown = len(talkative.provider.requests), dict(shell.shown[0])
    again = front.run("a", "One")
    assert len(talkative.provider.requests) == asked
    assert (again.text, again.turn_id) == (first.text, first.turn_id)
    assert shell.shown[-1] == shown
    assert said(notebook.session.dag) == ["One", "Two"]  # nothing is added, nothing left
    front.run("a", "One, better")
    assert said(notebook.session.dag) == ["One, better"]


def ask_each(shell: Shell, *prompts: str) -> list[Any]:
    """One run of a cell that asks more than once."""
    magic = shell.ip.run_cell_magic
    return [magic("agent", "", prompt) for prompt in prompts]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("cell_id", ["a", None])
def test_a_cell_may_ask_more_than_once(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore, cell_id: Any
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.kernel.cell_id = cell_id
    first, second, third = ask_each(shell, "One", "Two", "Two")
    assert said(notebook.session.dag) == ["One", "Two", "Two"]
    assert len({first.turn_id, second.turn_id, third.turn_id}) == 3
    assert (first.text, third.text) == ("heard 1", "heard 5")


def test_a_cell_that_asks_more_than_once_takes_the_place_of_all_it_asked_before(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.run("a", "Zero")
    front.kernel.cell_id = "b"
    for prompts in (("One", "Two", "Three"), ("Uno", "Due"), ("Eins", "Zwei", "Drei")):
        front.kernel.runs += 1
        ask_each(shell, *prompts)
        assert said(notebook.session.dag) == ["Zero", *prompts]


def test_without_a_cell_id_a_turn_appends(
    notebook: Notebook, shell: Shell, talkative: Model
) -> None:
    for prompt in ("One", "One"):
        shell.value(f"%%agent\n{prompt}")
    assert said(notebook.session.dag) == ["One", "One"]


# -- every cell sees the session


def test_every_kind_of_cell_sees_the_session(notebook: Notebook, shell: Shell) -> None:
    code = "from op_jupyter import current_session\nseen = current_session().session_id"
    shell.value(code)
    assert shell.ip.user_ns["seen"] == notebook.session.session_id
    shell.ip.user_ns["seen"] = None
    shell.value(f"import asyncio\nawait asyncio.sleep(0)\n{code}")
    assert shell.ip.user_ns["seen"] == notebook.session.session_id


def test_a_plain_call_in_a_cell_is_recorded_in_the_notebook_s_session(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("positive"))
    shell.value(
        "from op_jupyter import agentic_function, llm\n"
        "@agentic_function\n"
        "def mood(text: str) -> str:\n"
        "    '''Name the mood.'''\n"
        "    return llm(text)\n"
    )
    assert shell.value("mood('What a day!')") == "positive"
    assert [n.name for n in notebook.session.dag if n.role == "code"] == ["mood"]
    assert shell.shown == []  # not by surprise


def test_a_plain_call_in_an_async_cell_is_recorded_too(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("positive"))
    shell.value("from op_jupyter import llm")
    assert shell.value("await llm.aio('How is it?')") == "positive"
    assert len(notebook.session.dag.turns) == 1


# -- restarts


def restart(front: Front, store: MemoryStore, model: Model, **config: str) -> Notebook:
    """A new kernel of the same notebook."""
    shell = front.shell
    unload(shell.ip)
    shell.end()
    shell.start()
    shell.ip.kernel = front.kernel  # type: ignore[attr-defined]
    shell.ip.config.AgentMagics.update(config)
    return load(shell.ip, store=store, make_runtime=model.runtime)


def test_a_session_is_resumed_by_id_and_the_model_hears_the_earlier_turns(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.run("a", "My name is Ada.")
    session_id = notebook.session.session_id
    notebook = restart(front, store, talkative)
    shell.value(f"%agent resume {session_id}")
    front.run("b", "What is my name?")
    assert notebook.session.session_id == session_id
    assert "My name is Ada." in talkative.sent()
    assert said(notebook.session.dag) == ["My name is Ada.", "What is my name?"]


def test_a_session_that_cannot_be_gone_on_with_is_let_go(
    notebook: Notebook, shell: Shell, model: Model, store: MemoryStore, tmp_path: Path
) -> None:
    other = store.open(store.create_session("other"))
    other.set_meta(title="another one")
    other.close()
    model.answers(reply("ok"))
    shell.value("%%agent\nhello")
    mine = notebook.session.session_id
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "current folder is gone" in str(shell.error("%agent resume other"))
    os.chdir(tmp_path)
    assert notebook.session.session_id == mine
    store.open("other").close()


def test_the_first_prompt_after_a_resume_tells_that_variables_are_gone(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.run("a", "One")
    assert "kernel was restarted" not in talkative.sent()
    for number in (1, 2):
        restart(front, store, talkative)
        shell.value("%agent resume")
        front.run(f"b{number}", "Two")
        assert f"restart {number} of this session" in talkative.sent()
        before = talkative.sent().count("kernel was restarted")
        front.run(f"c{number}", "Three")
        assert talkative.sent().count("kernel was restarted") == before  # told once


def test_resume_ask_begins_anew_and_offers_the_earlier_session(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    first = front.run("a", "One").session_id
    notebook = restart(front, store, talkative)
    assert notebook.session.session_id != first
    assert first in shell.says("%agent status")
    assert "%agent resume" in shell.says("%agent status")


def test_resume_auto_goes_on_by_itself(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    first = front.run("a", "One").session_id
    notebook = restart(front, store, talkative, resume="auto")
    assert notebook.session.session_id == first


def test_resume_never_offers_nothing(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    first = front.run("a", "One").session_id
    notebook = restart(front, store, talkative, resume="never")
    assert notebook.session.session_id != first
    assert notebook.offered() is None


@pytest.mark.parametrize("config", [{"resume": "auto"}, {"session": "named"}])
def test_a_damaged_session_is_said_and_no_empty_one_takes_its_place(
    front: Front, shell: Shell, talkative: Model, tmp_path: Path, config: dict[str, str]
) -> None:
    store: Any = SessionStore(tmp_path / "sessions")
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    first = front.run("a", "One").session_id
    (path,) = (tmp_path / "sessions" / first).glob("history/000/*-agent-*")
    path.write_bytes(path.read_bytes().replace(b"One", b"Two"))
    if "session" in config:
        config = {"session": first}
    restart(front, store, talkative, **config)
    for _ in range(2):
        assert isinstance(shell.error("%%agent\nAnd now?"), CorruptRecord)
    assert [folder.name for folder in (tmp_path / "sessions").glob("nb-*")] == [first]
    assert shell.value("1 + 1") == 2


def test_a_configured_session_is_opened(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    first = front.run("a", "One").session_id
    front.run("b", "Two", "--fresh")
    notebook = restart(front, store, talkative, session=first)
    assert notebook.session.session_id == first


def test_the_session_of_another_notebook_is_not_offered(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    front.run("a", "One")
    front.kernel.parent = SimpleNamespace(connection_file="/run/kernel-2.json")
    notebook = restart(front, store, talkative)
    assert notebook.earlier() is None
    assert isinstance(shell.error("%agent resume"), UnknownSession)


def test_a_session_that_another_kernel_holds_is_an_error_and_the_own_one_stays(
    notebook: Notebook, shell: Shell, store: MemoryStore
) -> None:
    held = store.create_session("held")
    other = store.open(held)
    mine = notebook.session.session_id
    assert isinstance(shell.error("%agent resume held"), SessionLocked)
    assert notebook.session.session_id == mine
    other.close()
    shell.value("%agent resume held")
    assert notebook.session.session_id == "held"


def test_reloading_the_extension_goes_on_with_the_session(
    front: Front, shell: Shell, talkative: Model, store: MemoryStore
) -> None:
    load(shell.ip, store=store, make_runtime=talkative.runtime)
    first = front.run("a", "One").session_id
    unload(shell.ip)
    notebook = load(shell.ip, store=store, make_runtime=talkative.runtime)
    assert notebook.session.session_id == first
    front.run("b", "Two")
    assert "kernel was restarted" not in talkative.sent()


def test_threads_of_ours_keep_the_session(notebook: Notebook, shell: Shell) -> None:
    code = (
        "import asyncio\nfrom op_jupyter import current_session\n"
        "await asyncio.to_thread(lambda: current_session().session_id)"
    )
    assert shell.value(code) == notebook.session.session_id


def test_unloading_lets_the_session_go(
    notebook: Notebook, shell: Shell, store: MemoryStore
) -> None:
    shell.value("%agent allow look")  # something to keep
    session_id = notebook.session.session_id
    unload(shell.ip)
    assert current_session() is None
    store.open(session_id).close()
    asyncio.run(asyncio.sleep(0))


def test_a_session_is_exported_beside_the_notebook_and_never_over_a_file(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    model.answers(reply("42"))
    shell.value("%%agent\nWhat is the answer?")

    assert shell.says("%agent export mine.md") == "Written: mine.md"
    assert "What is the answer?" in (tmp_path / "mine.md").read_text()
    assert "File exists" in str(shell.error("%agent export mine.md"))
    assert "no format 'pdf'" in str(shell.error("%agent export mine.pdf"))
    shell.ip.push({"place": "of {{ mine's.md"})
    assert shell.says('%agent export "two words.md"') == "Written: two words.md"
    assert shell.says("%agent export {{place}}") == "Written: of {{ mine's.md"
    assert (tmp_path / "two words.md").exists() and (tmp_path / "of {{ mine's.md").exists()
    assert "No closing quotation" in str(shell.error('%agent export "mine.md'))


def test_sessions_on_disk_are_searched(
    clean_environment: None, shell: Shell, model: Model, tmp_path: Path
) -> None:
    notebook = load(shell.ip, store=SessionStore(tmp_path / "sessions"), make_runtime=model.runtime)
    model.answers(reply("Forty-two"))
    shell.value('%%agent\nIt\'s the "answer" to 数据?')

    found = shell.says('%agent search it\'s "answer" 数据')
    assert found.startswith(notebook.session.session_id)
    assert shell.says("%agent search nowhere") == "Nothing was found."


def test_the_list_counts_the_turn_that_has_just_ended(
    clean_environment: None, shell: Shell, model: Model, tmp_path: Path
) -> None:
    load(shell.ip, store=SessionStore(tmp_path / "sessions"), make_runtime=model.runtime)
    for _ in range(3):  # what is stored for the list follows with the commit, a moment later
        model.answers(reply("Hello"))
        shell.value("%%agent --fresh\nHello")
        assert ", 1 turn, " in shell.says("%agent sessions").splitlines()[0]


def test_notes_across_sessions_are_offered_listed_and_forgotten(
    clean_environment: None, shell: Shell, model: Model, tmp_path: Path
) -> None:
    store = SessionStore(tmp_path / "sessions")
    load(shell.ip, store=store, make_runtime=model.runtime)
    assert shell.says("%agent memory") == "No agent has kept a note."
    assert "remember" not in shell.says("%agent tools")
    assert "remember, recall" in shell.says("%agent tools +remember +recall")
    note = Notes(store.root_path).add("Plots in blue.", "s")

    assert shell.says("%agent memory").endswith("  Plots in blue.")
    assert shell.says(f"%agent memory --delete {note.id}") == f"Forgotten: {note.id}"
    assert "no note" in str(shell.error(f"%agent memory --delete {note.id}"))
