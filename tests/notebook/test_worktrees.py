"""``%%agent --worktree`` and what ends a worktree, with a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shells import Model, Shell

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.errors import SessionActive, UsageError
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.testing.providers import Gate, call, reply


@pytest.fixture
def repo(clean_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("mine")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    monkeypatch.chdir(folder)
    return folder


class Person:
    """Answers every card, and remembers it."""

    interactive = True

    def __init__(self, answer: PermissionAnswer) -> None:
        self._answer = answer
        self.cards: list[PermissionRequest] = []

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        self.cards.append(request)
        return self._answer

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        pass


def _person(notebook: Notebook, answer: PermissionAnswer) -> Person:
    person = Person(answer)
    notebook.session.asker = person  # type: ignore[assignment]
    return person


def _work(shell: Shell, model: Model) -> None:
    model.answers(reply(call("write_file", {"path": "a.txt", "text": "theirs"})), reply("done"))
    shell.value("%%agent --worktree try\nWrite")


def test_a_turn_works_in_its_worktree_and_the_next_one_does_not(
    repo: Path, notebook: Notebook, shell: Shell, model: Model
) -> None:
    _work(shell, model)
    made = repo.parent / "repo.worktrees" / "try"
    assert (made / "a.txt").read_text() == "theirs"
    assert (repo / "a.txt").read_text() == "mine"
    assert "git worktree" in model.sent()
    assert notebook.session.workspace == repo
    model.answers(reply(call("write_file", {"path": "b.txt", "text": "b"})), reply("done"))
    shell.value("%%agent\nWrite")
    assert (repo / "b.txt").exists()
    assert not (made / "b.txt").exists()
    assert shell.says("%agent worktrees") == f"try: 1 uncommitted file to merge ({made})"


def test_a_background_turn_stays_in_its_worktree_and_the_notebook_where_it_was(
    repo: Path, notebook: Notebook, shell: Shell, model: Model
) -> None:
    gate = Gate()
    writing = reply(call("write_file", {"path": "a.txt", "text": "theirs"}))
    model.answers([gate, *writing], reply("hello"), reply("done"))
    job = shell.value("%%agent --background --worktree try\nWrite")
    gate.wait_reached()
    made = repo.parent / "repo.worktrees" / "try"
    assert f"workspace    {repo}" in shell.says("%agent status")
    error = shell.error("%agent worktree drop try --yes --force")
    assert isinstance(error, SessionActive) and "works in 'try'" in str(error)
    shell.says("%agent new")
    assert str(shell.value("%%agent\nHello")) == "hello"
    shell.says(f"%agent resume {job.session_id}")  # the notebook takes the session up again
    gate.open()
    assert str(job.result()) == "done"
    assert (made / "a.txt").read_text() == "theirs"
    assert (repo / "a.txt").read_text() == "mine"
    assert shell.says("%agent worktrees") == f"try: 1 uncommitted file to merge ({made})"


def test_code_runs_in_the_worktree_and_leaves_the_notebook_where_it_was(
    repo: Path, notebook: Notebook, shell: Shell, model: Model
) -> None:
    code = (
        "import os, pathlib; where = os.getcwd()\n"
        "pathlib.Path('new.txt').write_text(kept); os.mkdir('deep'); os.chdir('deep')"
    )
    shell.value("kept = 'from the notebook'\n%agent allow python")
    model.answers(reply(call("python", {"code": code})), reply("done"))
    shell.value("%%agent --worktree\nRun it")
    made = repo.parent / "repo.worktrees" / "agent-1"
    assert shell.ip.user_ns["where"] == str(made)
    assert (made / "new.txt").read_text() == "from the notebook"
    assert Path.cwd() == repo


def test_a_merge_asks_first_and_is_recorded(
    repo: Path, notebook: Notebook, shell: Shell, model: Model
) -> None:
    _work(shell, model)
    assert isinstance(shell.error("%agent worktree merge try"), UsageError), "nobody is there"
    person = _person(notebook, PermissionAnswer("deny", "person"))
    assert "stays as it is" in shell.says("%agent worktree merge try")
    assert (repo / "a.txt").read_text() == "mine"
    assert "+theirs" in person.cards[0].display["diff"]
    _person(notebook, PermissionAnswer("allow", "person"))
    assert "Merged worktree try into main" in shell.says("%agent worktree merge try")
    assert (repo / "a.txt").read_text() == "theirs"
    nodes = [node for node in notebook.session.dag if node.name == "merge_worktree"]
    assert [node.status for node in nodes] == ["denied", "completed"]
    assert shell.says("%agent worktrees").startswith("There are no worktrees")


def test_uncommitted_work_is_dropped_only_once_somebody_confirmed_its_loss(
    repo: Path, notebook: Notebook, shell: Shell, model: Model
) -> None:
    _work(shell, model)
    made = repo.parent / "repo.worktrees" / "try"
    error = shell.error("%agent worktree drop try --yes")
    assert isinstance(error, UsageError)
    assert "uncommitted changes in a.txt" in str(error)
    person = _person(notebook, PermissionAnswer("deny", "person"))
    shell.says("%agent worktree drop try")
    assert person.cards[0].dangers == ("It would be lost: uncommitted changes in a.txt.",)
    assert (made / "a.txt").read_text() == "theirs"
    assert "is gone" in shell.says("%agent worktree drop try --yes --force")
    assert not made.exists()


def test_a_turn_without_a_repository_sends_nothing(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    error = shell.error("%%agent --worktree\nHello")
    assert isinstance(error, UsageError)
    assert "git init" in str(error)
    assert not model.provider.requests
