"""Surroundings in which plain git fails, runs something, or writes something else."""

import os
import stat
from collections.abc import Callable
from pathlib import Path


class Surroundings:
    """A home folder and an environment; whatever runs there says so in `ran`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ran = home / "ran"
        home.mkdir()
        self.environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }

    def config(self, text: str) -> None:
        (self.home / ".gitconfig").write_text(text)

    def script(self, name: str) -> Path:
        path = self.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} >> {self.ran}\nexit 1\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def hooks(self) -> Path:
        for hook in ("pre-commit", "commit-msg", "post-commit", "reference-transaction"):
            self.script(f"hooks/{hook}")
        return self.home / "hooks"


def no_identity(s: Surroundings) -> None:
    s.config("[user]\n useConfigOnly = true\n")


def signing(s: Surroundings) -> None:
    s.config(f"[commit]\n gpgsign = true\n[gpg]\n program = {s.script('gpg')}\n")


def hooks_path(s: Surroundings) -> None:
    s.config(f"[core]\n hooksPath = {s.hooks()}\n")


def template_with_hooks(s: Surroundings) -> None:
    s.hooks()
    s.config(f"[init]\n templateDir = {s.home}\n")


def default_branch(s: Surroundings) -> None:
    s.config("[init]\n defaultBranch = weird/x\n")


def autocrlf(s: Surroundings) -> None:
    s.config("[core]\n autocrlf = true\n eol = crlf\n safecrlf = true\n")


def filters(s: Surroundings) -> None:
    (s.home / "attributes").write_text("* filter=bad text eol=crlf ident\n")
    s.config(
        f"[core]\n attributesFile = {s.home}/attributes\n"
        f'[filter "bad"]\n clean = {s.script("clean")}\n required = true\n'
    )


def excludes(s: Surroundings) -> None:
    (s.home / "excludes").write_text("*.jsonl\nmeta.json\n")
    s.config(f"[core]\n excludesFile = {s.home}/excludes\n")


def fsmonitor(s: Surroundings) -> None:
    s.config(f"[core]\n fsmonitor = {s.script('monitor')}\n")


def commit_encoding(s: Surroundings) -> None:
    s.config("[i18n]\n commitEncoding = no-such-encoding\n")


def eager_gc(s: Surroundings) -> None:
    s.config("[gc]\n auto = 1\n[core]\n sharedRepository = all\n")


def malformed(s: Surroundings) -> None:
    s.config("[core\nthis is no configuration = = =\n")


def unreadable_include(s: Surroundings) -> None:
    s.config(f"[include]\n path = {s.home}\n")


def git_dir(s: Surroundings) -> None:
    s.environ["GIT_DIR"] = str(s.home / "elsewhere.git")


def object_directory(s: Surroundings) -> None:
    s.environ["GIT_OBJECT_DIRECTORY"] = str(s.home / "objects")
    s.environ["GIT_COMMON_DIR"] = str(s.home / "common")
    s.environ["GIT_INDEX_FILE"] = str(s.home / "index")


def work_tree(s: Surroundings) -> None:
    s.environ["GIT_WORK_TREE"] = str(s.home)


def sha256(s: Surroundings) -> None:
    s.environ["GIT_DEFAULT_HASH"] = "sha256"


def author(s: Surroundings) -> None:
    s.environ["GIT_AUTHOR_NAME"] = s.environ["GIT_COMMITTER_NAME"] = "Somebody Else"
    s.environ["GIT_AUTHOR_DATE"] = s.environ["GIT_COMMITTER_DATE"] = "not a date"


def config_by_environment(s: Surroundings) -> None:
    s.environ["GIT_CONFIG_COUNT"] = "1"
    s.environ["GIT_CONFIG_KEY_0"] = "commit.gpgsign"
    s.environ["GIT_CONFIG_VALUE_0"] = "true"


def odd_refresh(s: Surroundings) -> None:
    s.environ["GIT_PYTHON_REFRESH"] = ""
    s.environ["GIT_PYTHON_GIT_EXECUTABLE"] = "/nonexistent/git"


def no_git(s: Surroundings) -> None:
    s.environ["PATH"] = ""


CASES: list[Callable[[Surroundings], None]] = [
    no_identity,
    signing,
    hooks_path,
    template_with_hooks,
    default_branch,
    autocrlf,
    filters,
    excludes,
    fsmonitor,
    commit_encoding,
    eager_gc,
    malformed,
    unreadable_include,
    git_dir,
    object_directory,
    work_tree,
    sha256,
    author,
    config_by_environment,
    odd_refresh,
    no_git,
]
