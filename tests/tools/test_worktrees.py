"""Git worktrees: made, merged and dropped in real repositories; nothing is lost on the way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from op_jupyter.errors import SessionStateError, UsageError
from op_jupyter.tools.worktrees import Repository, losses


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", f"write {name}")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "a repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "a.txt", "one\n")
    return folder


def state(folder: Path) -> tuple[str, str, str]:
    return (
        git(folder, "rev-parse", "HEAD"),
        git(folder, "status", "--porcelain"),
        (folder / "a.txt").read_text(),
    )


def test_a_worktree_is_a_copy_on_a_branch_of_its_own(repo: Path) -> None:
    made = Repository(repo).ensure("try")
    assert made.path == repo.parent / "a repo.worktrees" / "try"
    assert made.branch == "openprogram/try"
    assert (made.path / "a.txt").read_text() == "one\n"
    assert git(repo, "status", "--porcelain") == ""
    assert Repository(repo).ensure("try") == made, "the same one again"
    assert [each.name for each in Repository(repo).worktrees()] == ["try"]
    assert Repository(repo).ensure().name == "agent-1"
    assert Repository(repo).ensure().name == "agent-2"


def test_the_folder_of_the_notebook_is_found_in_the_worktree(repo: Path) -> None:
    (repo / "sub").mkdir()
    (repo / "untracked").mkdir()
    commit(repo, "sub/b.txt", "b")
    inside = Repository(repo / "sub")
    made = inside.ensure("try")
    assert inside.workspace(made) == made.path / "sub"
    assert Repository(repo / "untracked").workspace(made) == made.path


def test_a_merge_brings_committed_and_uncommitted_work_and_takes_the_worktree_away(
    repo: Path,
) -> None:
    repository = Repository(repo)
    made = repository.ensure("try")
    commit(made.path, "b.txt", "b")
    (made.path / "a.txt").write_text("two\n")
    (made.path / "naïve\nname").write_text("new")
    seen = repository.contents("try")
    assert (seen.commits, seen.changed, seen.target) == (1, ("a.txt", "naïve\nname"), "main")
    assert "+two" in seen.diff
    (repo / "mine.txt").write_text("not committed")
    assert "Merged worktree try into main" in repository.merge(seen)
    assert (repo / "a.txt").read_text() == "two\n"
    assert (repo / "naïve\nname").read_text() == "new"
    assert git(repo, "status", "--porcelain") == "?? mine.txt"
    assert git(repo, "branch", "--list", "openprogram/*") == ""
    assert not repository.base.exists()
    assert git(repo, "log", "-1", "--format=%an") == "op-jupyter"


def test_what_git_ignores_keeps_the_worktree_after_a_merge(repo: Path) -> None:
    commit(repo, ".gitignore", "*.log\n")
    repository = Repository(repo)
    made = repository.ensure("try")
    commit(made.path, "b.txt", "b")
    (made.path / "run.log").write_text("result")
    assert "stays" in repository.merge(repository.contents("try"))
    assert (made.path / "run.log").read_text() == "result"
    assert (repo / "b.txt").exists()


def test_a_conflict_changes_nothing_in_the_repository_and_says_what_to_do(repo: Path) -> None:
    repository = Repository(repo)
    made = repository.ensure("try")
    (made.path / "a.txt").write_text("theirs\n")
    commit(repo, "a.txt", "mine\n")
    before = state(repo)
    with pytest.raises(SessionStateError, match=r"conflicts with main in a\.txt.*git merge main"):
        repository.merge(repository.contents("try"))
    assert state(repo) == before
    assert git(made.path, "show", "HEAD:a.txt") == "theirs", "it is committed"
    with pytest.raises(subprocess.CalledProcessError):
        git(made.path, "merge", "main")
    with pytest.raises(UsageError, match="unsolved conflicts"):
        repository.merge(repository.contents("try"))
    commit(made.path, "a.txt", "both\n")
    assert "Merged" in repository.merge(repository.contents("try"))
    assert (repo / "a.txt").read_text() == "both\n"


def test_a_repository_inside_of_a_worktree_is_not_lost_in_a_merge(repo: Path) -> None:
    repository = Repository(repo)
    made = repository.ensure("try")
    (made.path / "inner").mkdir()
    git(made.path / "inner", "init", "-q")
    commit(made.path / "inner", "b.txt", "b")
    with pytest.raises(UsageError, match="inner/ is a git repository of its own"):
        repository.merge(repository.contents("try"))
    assert "uncommitted changes in inner/" in losses(repository.contents("try"))
    assert (made.path / "inner" / "b.txt").read_text() == "b"


def test_uncommitted_changes_of_the_person_are_never_merged_over(repo: Path) -> None:
    repository = Repository(repo)
    made = repository.ensure("try")
    (made.path / "a.txt").write_text("theirs\n")
    (repo / "a.txt").write_text("mine, not committed\n")
    before = state(repo)
    with pytest.raises(SessionStateError, match="did not merge"):
        repository.merge(repository.contents("try"))
    assert state(repo) == before
    assert (made.path / "a.txt").read_text() == "theirs\n"


@pytest.mark.parametrize("act", ["merge", "drop"])
def test_a_worktree_that_changed_after_it_was_shown_is_left_alone(repo: Path, act: str) -> None:
    repository = Repository(repo)
    made = repository.ensure("try")
    (made.path / "b.txt").write_text("shown")
    seen = repository.contents("try")
    (made.path / "c.txt").write_text("not shown")
    with pytest.raises(SessionStateError, match="changed meanwhile"):
        getattr(repository, act)(seen)
    assert (made.path / "c.txt").read_text() == "not shown"


def test_a_drop_keeps_the_branch_while_only_that_has_the_commits(repo: Path) -> None:
    repository = Repository(repo)
    made = repository.ensure("try")
    commit(made.path, "b.txt", "b")
    assert "stay on branch openprogram/try" in repository.drop(repository.contents("try"))
    assert not made.path.exists()
    assert git(repo, "show", "openprogram/try:b.txt") == "b"
    with pytest.raises(UsageError, match="branch openprogram/try"):
        repository.ensure("try")


def test_what_a_drop_would_lose_is_named(repo: Path) -> None:
    commit(repo, ".gitignore", "*.log\n")
    repository = Repository(repo)
    made = repository.ensure("try")
    assert losses(repository.contents("try")) == ()
    git(made.path, "checkout", "-q", "--detach")
    commit(made.path, "b.txt", "b")
    (made.path / "a.txt").write_text("two")
    (made.path / "run.log").write_text("result")
    assert losses(repository.contents("try")) == (
        "uncommitted changes in a.txt",
        "what git ignores: run.log",
        "commits that no branch holds: 1",
    )


@pytest.mark.parametrize("name", ["..", "a/b", "-x", "a..b", "a.lock", "a b", "x" * 64, "a\n"])
def test_a_name_that_is_no_folder_and_branch_is_refused(repo: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a worktree"):
        Repository(repo).ensure(name)
    assert git(repo, "worktree", "list").count("\n") == 0


def test_no_repository_no_commit_and_no_git_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="in no git repository"):
        Repository(tmp_path)
    git(tmp_path, "init", "-q")
    with pytest.raises(UsageError, match="has no commit yet"):
        Repository(tmp_path).ensure("try")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install git"):
        Repository(tmp_path)


def test_no_hook_and_no_variable_of_the_person_has_a_say(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hook in ("post-checkout", "pre-commit", "pre-merge-commit", "post-merge"):
        path = repo / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {hook} >> '{repo.parent}/ran'\nexit 1\n")
        path.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(repo.parent / "elsewhere"))
    repository = Repository(repo)
    made = repository.ensure("try")
    (made.path / "b.txt").write_text("b")
    repository.merge(repository.contents("try"))
    assert (repo / "b.txt").exists()
    assert not (repo.parent / "ran").exists()
