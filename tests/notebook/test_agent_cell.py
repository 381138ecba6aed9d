"""``%%agent``: what is sent, what comes back, what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from shells import Model, Shell

from op_jupyter.errors import (
    EmptyInput,
    ProviderError,
    SubstitutionError,
    TurnFailed,
    UnknownSession,
    UsageError,
)
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.result import TurnResult
from op_jupyter.testing.providers import call, reply


def test_the_value_of_the_cell_is_the_result(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Four."))
    result = shell.value("%%agent\nWhat is 2 + 2?")
    assert isinstance(result, TurnResult)
    assert str(result) == result.text == "Four."
    assert result.status == "completed"
    assert result.session_id == notebook.session.session_id
    assert result.turn_id in notebook.session.dag.turns
    assert [node.role for node in result.nodes] == ["user", "llm"]
    assert (result.steps, result.usage.input_tokens) == (1, 10)


def test_a_turn_has_one_display_and_no_second_output(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Four."))
    shell.value("%%agent\nWhat is 2 + 2?")
    (shown,) = shell.shown
    assert shown["text/plain"].startswith("Four.")
    assert "text/html" in shown


def test_the_ids_are_in_the_metadata(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("Four."))
    result = shell.value("%%agent\nWhat is 2 + 2?")
    named = {"session_id": result.session_id, "turn_id": result.turn_id}
    assert shell.metadata == [{"openprogram": named}]


def test_a_session_is_named_after_its_first_prompt(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Four."), reply("Nine."))
    shell.value("%%agent\nWhat is 2 + 2?\nAnswer in a word.")
    shell.value("%%agent\nAnd 3 * 3?")
    (info,) = notebook.store.sessions()
    assert info.title == "What is 2 + 2?…"


def test_fresh_and_session_contradict_each_other(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    before = notebook.session.session_id
    assert isinstance(shell.error("%%agent --fresh --session x\nHello"), UsageError)
    assert notebook.session.session_id == before


def test_a_result_is_shown_again_in_a_later_cell(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("Four."))
    shell.value("%%agent -o answer\nWhat is 2 + 2?")
    shell.value("answer")
    first, second = shell.shown
    assert first == second


def test_the_saved_text_holds_no_ids(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("Four."))
    result = shell.value("%%agent\nWhat is 2 + 2?")
    everything = repr(shell.shown) + repr(result)
    for identifier in (result.session_id, result.turn_id, *(n.id for n in result.nodes)):
        assert identifier not in everything


@pytest.mark.parametrize(
    "body",
    [
        'Braces {x} {0} {} {"a": {"b": []}} and $HOME %timeit !ls what?',
        ">>> print(1)\n1\n>>> x?\nIn [1]: y",
        "  indented\n\n\ttab, \\frac{a}{b}, f'{x!r}'\n\n",
        "%%timeit\npass",
        "naïve 😀 \u202e text\r\nnext",
    ],
)
def test_the_prompt_arrives_byte_for_byte(
    notebook: Notebook, shell: Shell, model: Model, body: str
) -> None:
    shell.value("x = 1")
    model.answers(reply("ok"))
    shell.value("%%agent\n" + body)
    assert notebook.session.dag.spine()[0].input[0]["text"] == body


def test_variables_are_inserted(notebook: Notebook, shell: Shell, model: Model) -> None:
    shell.value("city = 'Lyon {{nothing}}'")
    model.answers(reply("ok"))
    shell.value("%%agent\nTell me about {{city}}")
    assert "Tell me about Lyon {{nothing}}" in model.sent()


def test_an_undefined_variable_sends_nothing(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    assert isinstance(shell.error("%%agent\nTell me about {{town}}"), SubstitutionError)
    assert model.provider.requests == []
    assert len(notebook.session.dag) == 0


def test_an_empty_cell_is_an_error(notebook: Notebook, shell: Shell, model: Model) -> None:
    assert isinstance(shell.error("%%agent\n   \n"), EmptyInput)
    assert len(notebook.session.dag) == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--bogus", "--bogus"),
        ("--max 3", "--max"),  # no abbreviations
        ("--mode everything", "everything"),
        ("--max-steps 0", "above zero"),
        ("-o 1x", "variable name"),
        ("-o class", "variable name"),
        ("--tools ,", "at least one"),
        ("--model 'x", "quotation"),
        ("hello", "hello"),
    ],
)
def test_a_wrong_flag_is_an_error_that_names_it(
    notebook: Notebook, shell: Shell, model: Model, line: str, says: str
) -> None:
    error = shell.error(f"%%agent {line}\nHello")
    assert isinstance(error, UsageError)
    assert says in str(error)
    assert model.provider.requests == []


def test_help_lists_every_flag(notebook: Notebook, shell: Shell) -> None:
    text = shell.says("%%agent --help\nHello")
    for flag in ("--session", "--fresh", "--model", "--provider", "--mode", "--tools"):
        assert flag in text
    for flag in ("--max-steps", "--replay", "--output", "--quiet", "--background", "--help"):
        assert flag in text


def test_an_unknown_flag_or_one_without_its_value_does_not_parse(
    notebook: Notebook, shell: Shell
) -> None:
    for flag in ("--colour red", "--budget", "--budget many", "--skill"):
        assert isinstance(shell.error(f"%%agent {flag}\nHello"), UsageError)


def test_a_failed_turn_raises_one_short_error_and_keeps_the_result(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers([ProviderError("the service is on fire")])
    error = shell.error("%%agent -o result\nHello")
    assert isinstance(error, TurnFailed)
    assert "the service is on fire" in str(error)
    assert len(error._render_traceback_()) == 1
    assert shell.ip.user_ns["result"].status == "failed"
    assert notebook.session.dag.turns[error.turn_id].status == "failed"


def test_quiet_shows_nothing(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("Four."))
    result = shell.value("%%agent --quiet\nWhat is 2 + 2?")
    assert shell.shown == []
    assert result.text == "Four."


def test_the_model_flag_names_the_model_of_this_cell_alone(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("a"), reply("b"))
    shell.value("%%agent --model large\nHello")
    shell.value("%%agent\nHello")
    assert [r.model for r in model.provider.requests] == ["large", "scripted-model"]


def test_the_provider_and_replay_flags_pick_another_runtime(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("a"), reply("b"))
    shell.value("%config AgentMagics.cassette = 'calls.cassette'")
    shell.value("%%agent --provider local --replay auto\nHello")
    shell.value("%%agent\nHello")
    first, second = model.settings
    assert (first.get("provider"), first.get("replay")) == ("local", "auto")
    assert (second.get("provider"), second.get("replay")) == (None, "off")


def test_max_steps_bounds_the_model_calls(notebook: Notebook, shell: Shell, model: Model) -> None:
    from op_jupyter.testing.providers import call

    shell.value("def look() -> str:\n    'Look.'\n    return 'nothing'")
    notebook.session.add_rule("allow", "look")
    model.answers(reply(call("look", {})), reply(call("look", {"": 1})))
    error = shell.error("%%agent --max-steps 2 --tools look\nHello")
    assert isinstance(error, TurnFailed)
    assert error.code == "max_model_calls"
    assert len(model.provider.requests) == 2


def test_the_next_cell_goes_on_with_the_conversation(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("I am Ada."), reply("Ada, as I said."))
    shell.value("%%agent\nWho are you?")
    shell.value("%%agent\nSay it again.")
    assert "I am Ada." in model.sent()
    assert len(notebook.session.dag.spine()) == 4


def test_fresh_begins_a_new_session(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("one"), reply("two"))
    first = shell.value("%%agent\nOne")
    second = shell.value("%%agent --fresh\nTwo")
    assert first.session_id != second.session_id == notebook.session.session_id
    assert "One" not in model.sent()


def test_another_session_runs_one_cell_and_the_notebook_comes_back(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("one"), reply("two"), reply("three"))
    own = shell.value("%%agent\nOne").session_id
    other = shell.value("%%agent --fresh\nTwo").session_id
    third = shell.value(f"%%agent --session {own}\nThree")
    assert third.session_id == own
    assert "One" in model.sent()
    assert notebook.session.session_id == other


def test_an_unknown_session_is_an_error_that_names_the_nearest(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("one"))
    known = shell.value("%%agent\nOne").session_id
    error = shell.error(f"%%agent --session {known[:-1]}0x\nTwo")
    assert isinstance(error, UnknownSession)
    assert known in str(error)


def test_a_megabyte_with_braces_and_quotes_goes_through(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    body = "{\"'`}\\" * 150_000
    model.answers(reply("ok"))
    shell.value("%%agent\n" + body)
    assert notebook.session.dag.spine()[0].input[0]["text"] == body


def test_a_function_of_the_notebook_is_a_tool_that_asks(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    from op_jupyter.testing.providers import call

    shell.value(
        "ran = []\ndef double(n: int) -> int:\n    'Double a number.'\n    ran.append(n)\n"
        "    return 2 * n"
    )
    model.answers(reply(call("double", {"n": 21})), reply("I may not."))
    denied = shell.value("%%agent --tools double\nDouble 21")
    assert denied.text == "I may not."
    assert shell.ip.user_ns["ran"] == []
    assert [t.name for t in model.provider.requests[0].tools] == ["double"]
    shell.value("%agent allow double")
    model.answers(reply(call("double", {"n": 21})), reply("42"))
    shell.value("%%agent --tools double\nDouble 21")
    assert shell.ip.user_ns["ran"] == [21]


@pytest.mark.parametrize(
    ("tools", "says"),
    [("duble", "duble"), ("number", "is a int"), ("several", "'*names'")],
)
def test_what_cannot_be_a_tool_is_said_before_anything_runs(
    notebook: Notebook, shell: Shell, model: Model, tools: str, says: str
) -> None:
    shell.value("number = 3\ndef several(*names):\n    'Some.'")
    error = shell.error(f"%%agent --tools {tools}\nHello")
    assert says in str(error)
    assert model.provider.requests == []


def test_tools_none_offers_nothing(notebook: Notebook, shell: Shell, model: Model) -> None:
    model.answers(reply("ok"))
    shell.value("%%agent --tools none\nHello")
    assert model.provider.requests[0].tools == ()


def test_the_mode_flag_is_kept_with_the_session(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("ok"))
    shell.value("%%agent --mode read_only\nHello")
    assert notebook.session.permission_mode == "read_only"


def write_skill(folder: Path, name: str, text: str = "Use blue.") -> None:
    path = folder / ".agents" / "skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n{text}\n")


def test_the_model_is_told_of_skills_and_agents_md(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    write_skill(tmp_path, "plots")
    write_skill(tmp_path, "tables")
    (tmp_path / "AGENTS.md").write_text("Answer in French.")
    model.answers(reply("Oui."), reply("Non."))
    shell.value("%%agent --no-skill tables\nHello")
    told = str(model.provider.requests[0].messages)
    assert "Answer in French." in told and "- plots: About plots." in told
    assert "tables" not in told
    shell.value("%%agent\nAgain")
    assert "- tables: About tables." in str(model.provider.requests[1].messages)


def test_a_skill_is_sent_along_and_allows_nothing(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    write_skill(tmp_path, "plots", "allowed-tools: python\nRun python without asking.")
    model.answers(reply(call("python", {"code": "x = 1"})), reply("denied"))
    shell.value("%%agent --skill plots\nPlot it")
    blocks = model.provider.requests[0].messages[-1].content
    assert "Run python without asking." in str(blocks[-2]) and "Plot it" in str(blocks[-1])
    assert "x" not in shell.ip.user_ns
    assert "you: Plot it" in shell.says("%agent history")


def test_an_unknown_skill_is_said_and_nothing_is_sent(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    write_skill(tmp_path, "plots")
    error = shell.error("%%agent --skill plot\nHello")
    assert isinstance(error, UsageError) and "the skills are: plots" in str(error)
    assert model.provider.requests == []


def test_status_names_the_skills_and_what_is_wrong_with_others(
    notebook: Notebook, shell: Shell, tmp_path: Path
) -> None:
    write_skill(tmp_path, "plots")
    (tmp_path / ".agents" / "skills" / "bad").mkdir()
    said = shell.says("%agent status")
    assert "skills       plots" in said and "bad cannot be used: there is no SKILL.md" in said


def test_configured_skill_folders_are_used_and_no_tool_may_write_them(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    write_skill(tmp_path / "own", "plots")
    root = tmp_path / "own" / ".agents" / "skills"
    root.rename(tmp_path / "know-how")
    (tmp_path / "config.toml").write_text('[skills]\nroots = ["know-how"]\n')
    shell.value("%agent new")
    arguments = {"path": "know-how/plots/SKILL.md", "text": "x"}
    settings = {"path": "config.toml", "text": "x"}
    model.answers(
        reply(call("write_file", arguments), call("write_file", settings)), reply("denied")
    )
    shell.value("%%agent --skill plots --mode auto\nHello")
    assert "About plots." in str(model.provider.requests[0].messages)
    nodes = [n for n in notebook.session.dag if n.metadata.get("kind") == "tool"]
    assert [n.status for n in nodes] == ["denied", "denied"]
