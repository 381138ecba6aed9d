"""``%agent cassette``: what is recorded of this notebook."""

from __future__ import annotations

import pytest
from shells import Shell

from op_jupyter import bootstrap
from op_jupyter.notebook.notebook import Notebook


def test_a_notebook_lists_shows_and_prunes_its_recordings(
    notebook: Notebook, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPROGRAM_CASSETTE", "own.cassette")
    shell.value("from op_jupyter import Runtime, llm")
    shell.value("%config AgentMagics.replay = 'record'")
    shell.value("%config AgentMagics.runtime = Runtime(call=lambda content: 'an answer')")
    for question in ("one", "two"):
        shell.value("%agent new")
        shell.value(f"llm('question {question}')")
    listed = shell.says("%agent cassette").splitlines()
    assert listed[0] == "own.cassette (record): 2 model calls, 0 decisions, by callable"
    key = listed[1].split()[0]
    assert "reply 1 (end_turn)\nan answer" in shell.says(f"%agent cassette show {key[:8]}")
    assert "0 recordings not used" in shell.says("%agent cassette check")

    bootstrap.begin_recorded_run()  # another kernel
    shell.value("%config AgentMagics.replay = 'replay'")
    shell.value("%agent new")
    shell.value("llm('question two')")
    checked = shell.says("%agent cassette check")
    assert "1 recording not used" in checked
    assert "question one -> an answer  [1 of 1 not used]" in checked
    assert shell.says("%agent cassette prune") == "own.cassette: 1 recording removed"
    assert "question one" not in shell.says("%agent cassette list")


def test_without_a_recording_it_says_so(notebook: Notebook, shell: Shell) -> None:
    assert "nothing is recorded or replayed here" in str(shell.error("%agent cassette"))
    assert "invalid choice" in str(shell.error("%agent cassette burn"))
