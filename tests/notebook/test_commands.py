"""``%agent WORD``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shells import Model, Shell

from op_jupyter.core.compaction import HEADINGS
from op_jupyter.errors import (
    FilesChanged,
    InvalidRule,
    PermissionNotPending,
    ReloadRequired,
    ToolNotFound,
    TurnFailed,
    UnknownNode,
    UnknownSession,
    UsageError,
)
from op_jupyter.notebook.commands import COMMANDS
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.testing.providers import call, reply


def test_help_lists_every_command(notebook: Notebook, shell: Shell) -> None:
    text = shell.says("%agent help")
    for word in COMMANDS:
        assert f"%agent {word}" in text


@pytest.mark.parametrize("word", [w for w in COMMANDS if w != "help"])
def test_every_command_has_help_of_its_own(notebook: Notebook, shell: Shell, word: str) -> None:
    assert "--help" in shell.says(f"%agent {word} --help")


def test_an_unknown_word_names_the_nearest_and_how_to_send_a_prompt(
    notebook: Notebook, shell: Shell
) -> None:
    error = shell.error("%agent statsu")
    assert isinstance(error, UsageError)
    assert "%agent status" in str(error)
    assert "%%agent" in str(error)


def test_what_is_no_command_is_refused(notebook: Notebook, shell: Shell) -> None:
    for word in ("statsu", "tell me a joke"):
        assert isinstance(shell.error(f"%agent {word}"), UsageError)


def test_status_tells_where_settings_come_from(
    notebook: Notebook, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_MODEL", "from-the-environment")
    text = shell.says("%agent")
    assert notebook.session.session_id in text
    assert "accept_edits" in text
    assert "from-the-environment (from OPENPROGRAM_MODEL)" in text
    shell.value("%config AgentMagics.model = 'mine'")
    assert "mine (from this notebook)" in shell.says("%agent status")


def test_sessions_marks_the_current_one(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("one"), reply("two"))
    shell.value("%%agent\nOne")
    shell.value("%%agent --fresh\nTwo")
    lines = shell.says("%agent sessions").split("\n")
    assert [line for line in lines if line.startswith("*")] == [
        line for line in lines if notebook.session.session_id in line
    ]
    assert len(lines) == 2


def test_new_begins_a_session_without_ids_in_the_text(notebook: Notebook, shell: Shell) -> None:
    before = notebook.session.session_id
    text = shell.says("%agent new")
    assert notebook.session.session_id != before
    assert notebook.session.session_id not in text
    assert shell.metadata[-1]["openprogram"]["session_id"] == notebook.session.session_id


def test_resume_of_an_unknown_id_is_an_error_and_the_session_stays(
    notebook: Notebook, shell: Shell
) -> None:
    before = notebook.session.session_id
    assert isinstance(shell.error("%agent resume nothing-like-it"), UnknownSession)
    assert notebook.session.session_id == before


def test_history_lists_the_active_line(notebook: Notebook, shell: Shell, model: Model) -> None:
    assert "Nothing has happened" in shell.says("%agent history")
    model.answers(reply("Four."))
    shell.value("%%agent\nWhat is 2 + 2?")
    lines = shell.says("%agent history").split("\n")
    assert "you: What is 2 + 2?" in lines[0]
    assert "Four." in lines[1]


def test_compact_puts_a_summary_in_place_of_the_conversation_and_rewind_takes_it_back(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    summary = "\n".join(f"## {heading}\nnone" for heading in HEADINGS)
    model.answers(reply("Four."), reply(summary), reply("Five."), reply("Six."))
    shell.value("%%agent\nWhat is 2 + 2?")
    said = shell.says("%agent compact")
    assert "stands for 2 nodes now" in said and "## Next safe action" in said
    node = notebook.session.dag.head
    assert f"%agent rewind {node}" in said
    shell.value("%%agent\nAnd 2 + 3?")
    assert "What is 2 + 2?" not in str(model.provider.requests[-1].messages)
    assert "after scripted-model: Four." in shell.says(f"%agent rewind {node}")
    shell.value("%%agent\nAnd 3 + 3?")
    told = str(model.provider.requests[-1].messages)
    assert "What is 2 + 2?" in told and "And 2 + 3?" not in told


def test_rewind_says_where_the_conversation_goes_on_and_what_was_left(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Four."))
    shell.value("%%agent\nWhat is 2 + 2?")
    prompt, answer = (node.id for node in notebook.session.dag.spine())
    assert "already ends there" in shell.says(f"%agent rewind {answer}")
    said = shell.says(f"%agent rewind {prompt}")
    assert "at its beginning" in said and answer in said
    assert notebook.session.dag.head is None
    assert isinstance(shell.error("%agent rewind nothing"), UnknownNode)


def test_compact_says_what_went_wrong_and_changes_nothing(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    assert "no answer yet" in str(shell.error("%agent compact"))
    model.answers(reply("Four."), *(reply("no summary"),) * 3)
    shell.value("%%agent\nWhat is 2 + 2?")
    head = notebook.session.dag.head
    error = shell.error("%agent compact")
    assert isinstance(error, TurnFailed) and error.code == "compaction_error"
    assert notebook.session.dag.head == head


def test_resume_reloads_a_session_that_asks_for_it(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Four."))
    shell.value("%%agent\nWhat is 2 + 2?")
    notebook.session.require_reload("its memory is behind its store")
    error = shell.error("%%agent\nAnd 2 + 3?")
    assert isinstance(error, ReloadRequired)
    command = f"%agent resume {notebook.session.session_id}"
    assert command in str(error)
    shell.value(command)
    model.answers(reply("Five."))
    assert str(shell.value("%%agent\nAnd 2 + 3?")) == "Five."


def test_dag_draws_every_node(notebook: Notebook, shell: Shell, model: Model) -> None:
    assert "Nothing has happened" in shell.says("%agent dag")
    model.answers(reply("Four."))
    shell.value("%%agent\nWhat is 2 + 2?")
    assert len(shell.says("%agent dag").split("\n")) == 2
    drawn = shell.shown[-1]
    assert "<svg" in drawn["text/html"]
    assert drawn["text/markdown"] == f"```text\n{drawn['text/plain']}\n```"


def test_a_session_s_handle_is_shown_as_its_graph(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    def shown() -> Any:
        return shell.ip.display_formatter.format(notebook.handle)[0]

    assert shown()["text/plain"].startswith("Nothing has happened")
    model.answers(reply("Four."))
    shell.value("%%agent\nWhat is 2 + 2?")
    assert "What is 2 + 2?" in shown()["text/plain"] and "<svg" in shown()["text/html"]
    assert "text/markdown" in shown()


def test_show_prints_a_node_and_the_prompt_of_a_model_call(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Positive."))
    shell.value(
        "from op_jupyter import agentic_function, llm\n"
        "@agentic_function\ndef mood(text: str) -> str:\n"
        "    '''Name the mood of a text.'''\n    return llm(text)\n"
        "mood('What a day!')"
    )
    function, asked = list(notebook.session.dag)
    assert "What a day!" in shell.says(f"%agent show {function.id}")
    prompt = shell.says(f"%agent show {asked.id} --prompt")
    assert prompt.count("Name the mood of a text.") == 1
    assert "mood" in prompt
    assert "not proven" not in prompt


def test_show_tells_who_decided_about_a_call(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply(call("list_files", {}), call("python", {"code": "1"})), reply("Done."))
    shell.value("%agent deny python")
    shell.value("%%agent\nLook around.")
    listed, ran = (n for n in notebook.session.dag if n.metadata.get("kind") == "tool")
    assert "--- permission\nallowed by mode: accept_edits" in shell.says(f"%agent show {listed.id}")
    assert "--- permission\ndenied by rule: python" in shell.says(f"%agent show {ran.id}")


def test_show_takes_the_beginning_of_an_id(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("Four."))
    result = shell.value("%%agent\nHello")
    user = result.nodes[0].id
    assert user in shell.says(f"%agent show {user[:-2]}")
    assert isinstance(shell.error("%agent show nothing"), UnknownNode)
    assert isinstance(shell.error(f"%agent show {user} --prompt"), UsageError)


def test_rules_are_listed_and_can_be_taken_back(notebook: Notebook, shell: Shell) -> None:
    shell.value("%agent allow edit_file(src/**)")
    shell.value("""%agent deny python(print("a  b"))""")
    listed = shell.says("%agent permissions")
    assert "allow  edit_file(src/**)" in listed
    assert 'deny   python(print("a  b"))' in listed
    shell.value("""%agent forget python(print("a  b"))""")
    assert "print" not in shell.says("%agent permissions")
    assert isinstance(shell.error("%agent forget python"), UsageError)


def test_a_rule_may_stand_in_quotes_as_messages_show_it(notebook: Notebook, shell: Shell) -> None:
    assert shell.says('%agent allow "python(*)"') == "allowed from now on: python(*)"
    assert shell.says("%agent deny 'shell(rm *)'") == "denied from now on: shell(rm *)"
    assert shell.says('%agent forget "python(*)"') == "taken back: python(*)"
    assert isinstance(shell.error('%agent allow "'), InvalidRule)


def test_a_rule_that_cannot_be_read_changes_nothing(notebook: Notebook, shell: Shell) -> None:
    assert isinstance(shell.error("%agent allow (((("), InvalidRule)
    assert isinstance(shell.error("%agent allow"), UsageError)
    assert notebook.session.rules == {"allow": [], "deny": []}


def test_show_without_a_node_shows_the_newest_model_call(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    assert "no model has been asked" in str(shell.error("%agent show --prompt"))
    model.answers(reply("Hello."))
    shell.value("%%agent\nFirst")
    model.answers(reply("Hello again."))
    shell.value("%%agent\nSecond")
    assert shell.says("%agent show --prompt").endswith("Second")
    assert "Hello again." in shell.says("%agent show")


def test_a_variable_may_stand_in_a_command(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("Hello."))
    shell.value("%%agent -o answer\nFirst")
    assert shell.says("%agent resume {{answer.session_id}}").startswith("Resumed")
    assert "Hello." in shell.says("%agent show {{answer.nodes[-1].id}}")
    shell.ip.push({"spaced": "two words"})
    assert "'two words'" in str(shell.error("%agent show {{spaced}}"))
    error = str(shell.error("%agent show {{anser}}"))
    assert "in the command: there is no variable 'anser'" in error
    assert "did you mean 'answer'" in error
    assert "nothing was done" in error


def test_braces_of_a_rule_stay_what_they_are(notebook: Notebook, shell: Shell) -> None:
    shell.ip.push({"name": "no"})
    assert "python({{name}})" in shell.says("%agent allow python({{name}})")


def test_mode_is_shown_set_and_checked(notebook: Notebook, shell: Shell) -> None:
    assert shell.says("%agent mode") == "mode: accept_edits"
    assert shell.says("%agent mode auto") == "mode: auto"
    assert notebook.session.permission_mode == "auto"
    assert isinstance(shell.error("%agent mode everything"), UsageError)


def test_nothing_waits_for_an_answer(notebook: Notebook, shell: Shell) -> None:
    assert isinstance(shell.error("%agent approve"), PermissionNotPending)
    assert isinstance(shell.error("%agent reject"), PermissionNotPending)


def test_a_call_in_a_thread_can_be_approved_from_a_cell(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply(call("double", {"n": 21})), reply("42"))
    shell.value(
        "import threading, time\nfrom contextvars import copy_context\n"
        "from op_jupyter import agent\nfrom op_jupyter.tools.functions import as_tool\n"
        "from op_jupyter.tools.toolset import Toolset\n"
        "def double(n: int) -> int:\n    'Double.'\n    return 2 * n\n"
        "said = []\n"
        "def work():\n"
        "    said.append(agent('Double 21', tools=Toolset([as_tool(double)])))\n"
    )

    class Patient:
        interactive = True

        async def decide(self, request: object) -> object:
            import asyncio

            return await asyncio.Event().wait()

        def answered(self, request: object, answer: object) -> None:
            pass

    notebook.session.asker = Patient()  # type: ignore[assignment]
    shell.value(
        "thread = threading.Thread(target=copy_context().run, args=(work,)); thread.start()\n"
        "session = current_session().agent if 'current_session' in globals() else None"
    )
    while not notebook.session.pending_cards():
        pass
    assert "double" in shell.says("%agent permissions")
    assert "allowed once" in shell.says("%agent approve")
    shell.value("thread.join()")
    assert shell.ip.user_ns["said"] == ["42"]


def test_undo_puts_the_files_of_the_newest_turn_back_once_it_may(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("mine")
    writing = call("write_file", {"path": "a.txt", "text": "theirs"})
    model.answers(reply(writing), reply("written"))
    shell.value("%%agent\nWrite")
    error = shell.error("%agent undo")
    assert isinstance(error, UsageError), "nobody can be asked in this shell"
    assert (tmp_path / "a.txt").read_text() == "theirs"
    assert shell.says("%agent undo --yes") == "Put back: a.txt. `%agent undo` takes that back."
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert "Put back" in shell.says("%agent undo --yes")
    assert (tmp_path / "a.txt").read_text() == "theirs"
    (tmp_path / "a.txt").write_text("changed since")
    assert isinstance(shell.error("%agent undo --yes"), FilesChanged)
    assert "Put back" in shell.says("%agent undo --yes --force")


def test_undo_without_changes_says_so(notebook: Notebook, shell: Shell) -> None:
    assert "No call of this session changed a file" in shell.says("%agent undo")
    assert isinstance(shell.error("%agent undo nothing"), UnknownNode)


def test_a_rewind_to_a_call_of_a_cell_puts_the_files_of_all_of_it_back(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("mine")
    writing = call("write_file", {"path": "a.txt", "text": "theirs"})
    model.answers(reply("Hello."), reply(writing), reply("written"))
    shell.value("%%agent\nHello")
    head = notebook.session.dag.head
    shell.value("from op_jupyter import agent\nagent('Write')")
    answer = next(n for n in reversed(list(notebook.session.dag)) if n.role == "llm")
    assert "Put back: a.txt" in shell.says(f"%agent rewind {answer.id} --files --yes")
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert notebook.session.dag.head == head


def test_a_rewind_with_files_puts_both_back(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("mine")
    for text in ("1", "2"):
        writing = call("write_file", {"path": "a.txt", "text": text})
        model.answers(reply(writing), reply(f"wrote {text}"))
        shell.value(f"%%agent\nWrite {text}")
    spine = notebook.session.dag.spine()
    first_answer = next(n for n in spine if n.role == "llm")
    users = [n.id for n in spine if n.role == "user"]
    assert isinstance(shell.error(f"%agent rewind {users[1]} --files"), UsageError)
    assert notebook.session.dag.head == spine[-1].id, "nobody could be asked: nothing moved"
    said = shell.says(f"%agent rewind {users[1]} --files --yes")
    assert "Put back: a.txt" in said
    assert (tmp_path / "a.txt").read_text() == "1"
    said = shell.says(f"%agent rewind {first_answer.id} --files --yes")
    assert (tmp_path / "a.txt").read_text() == "1", "what the answer itself did stays"
    shell.says(f"%agent rewind {users[0]} --files --yes")
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert notebook.session.dag.head is None


def test_the_shell_is_offered_once_it_was_asked_for(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    assert "shell" not in shell.says("%agent tools")
    assert "sandbox: none" in shell.says("%agent tools")
    said = shell.says("%agent tools +shell")
    assert ", shell" in said
    assert notebook.session.snapshot().sandbox == said.split("sandbox: ")[1]
    assert ", shell" not in shell.says("%agent tools -shell")
    assert isinstance(shell.error("%agent tools +nothing"), ToolNotFound)
    assert isinstance(shell.error("%agent tools shell"), UsageError)
    model.answers(reply("x"))
    shell.value("%%agent --tools shell\nX")
    assert [tool.name for tool in model.provider.requests[0].tools] == ["shell"]
