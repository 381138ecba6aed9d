"""``%agent fork`` and ``%agent diff``: another way that the conversation could go."""

from __future__ import annotations

import pytest
from shells import Model, Shell

from op_jupyter.errors import UnknownNode, UsageError
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.testing.providers import reply


@pytest.fixture
def told(notebook: Notebook, shell: Shell, model: Model) -> list[str]:
    """A conversation of two turns; the ids of its prompts and answers."""
    model.answers(reply("Red."), reply("A rose."))
    shell.value("%%agent\nA colour?")
    shell.value("%%agent\nA flower of it?")
    return [node.id for node in notebook.session.dag.spine()]


def test_a_fork_before_a_prompt_leaves_the_line_that_was_there(
    notebook: Notebook, shell: Shell, model: Model, told: list[str]
) -> None:
    said = shell.says(f"%agent fork {told[2]} --name fruit")
    assert "On branch fruit now, after" in said and "Red." in said
    assert told[-1] in said  # where the other one ends
    model.answers(reply("A cherry."))
    shell.value("%%agent\nA fruit of it?")
    assert "rose" not in model.sent() and "Red." in model.sent()
    dag = notebook.session.dag
    assert (dag.active_branch, dag.branches["main"]) == ("fruit", told[-1])


def test_a_fork_without_a_node_begins_here(
    notebook: Notebook, shell: Shell, model: Model, told: list[str]
) -> None:
    assert "On branch fork-2 now" in shell.says("%agent fork")
    model.answers(reply("A thorn."))
    shell.value("%%agent\nWhat hurts?")
    assert "A rose." in model.sent()
    assert notebook.session.dag.branches["main"] == told[-1]


def test_a_call_of_a_cell_leads_to_where_it_was_made(
    notebook: Notebook, shell: Shell, model: Model, told: list[str]
) -> None:
    model.answers(reply("Calm."), reply("A thorn."), reply("Nothing."))
    shell.value(
        "from op_jupyter import agentic_function, llm\n"
        "@agentic_function\ndef mood(text: str) -> str:\n    'Name the mood.'\n"
        "    return llm(text)\nmood('Hm.')"
    )
    shell.value("%%agent\nWhat hurts?")
    dag = notebook.session.dag
    function = next(node for node in dag if node.name == "mood")
    (inside,) = dag.children(function.id)
    thorn = str(dag.head)
    for node in (function, inside):
        for command in ("fork", "rewind"):
            shell.value(f"%agent rewind {thorn}")
            said = shell.says(f"%agent {command} {node.id}")
            assert "A rose." in said and "There a cell called mood" in said
            assert dag.head == told[-1]
    shell.value("%%agent\nAnd now?")
    assert "Calm." in model.sent() and "thorn" not in model.sent()


@pytest.mark.parametrize(
    ("line", "kind"),
    [("main", UnknownNode), ("--name main", UsageError), ("--name a..b", UsageError)],
)
def test_a_fork_that_cannot_be_changes_nothing(
    notebook: Notebook, shell: Shell, told: list[str], line: str, kind: type[Exception]
) -> None:
    assert isinstance(shell.error(f"%agent fork {line}"), kind)
    assert notebook.session.dag.branches == {"main": told[-1]}


def test_diff_compares_two_branches_from_where_they_part(
    notebook: Notebook, shell: Shell, model: Model, told: list[str]
) -> None:
    shell.value(f"%agent fork {told[2]} --name fruit")
    model.answers(reply("A cherry."))
    shell.value("%%agent\nA fruit of it?")
    said = shell.says("%agent diff main fruit")
    assert "They share 2 nodes, up to" in said
    assert "--- main\n+++ fruit" in said
    for line in ("-A flower of it?", "+A fruit of it?", "-A rose.", "+A cherry."):
        assert line in said
    assert "colour" not in said


def test_diff_takes_turns_and_nodes_and_refuses_what_is_not_there(
    notebook: Notebook, shell: Shell, told: list[str]
) -> None:
    first, second = notebook.session.dag.turns
    assert "+A rose." in shell.says(f"%agent diff {first} {second}")
    assert "They say the same." in shell.says(f"%agent diff {second} {told[-1]}")
    assert isinstance(shell.error("%agent diff main nothing"), UnknownNode)
