"""`op-jupyter cassette`: look at recordings, find those that nothing uses, and record anew."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from op_jupyter.cli.exit_codes import ExitCode
from op_jupyter.cli.notebook_run import Answer, NotebookRun, answers_of
from op_jupyter.cli.output import print_table
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.errors import OpenProgramError
from op_jupyter.providers.live import RECORD_WITH
from op_jupyter.store.cassette_codec import Contents
from op_jupyter.store.cassette_merge import merged
from op_jupyter.store.cassette_use import VARIABLE as LOG
from op_jupyter.store.cassette_use import read_log
from op_jupyter.store.cassettes import FileCassette
from op_jupyter.store.whole_file import write_whole
from op_jupyter.views.cassettes import details, overview, summary, unused
from op_jupyter.views.text import count

_COLUMNS: Final = ("cassette", "recorded")
_NOTEBOOK: Final = ".ipynb"


class RunFailed(OpenProgramError):
    """What was run to find out what it uses failed; nothing was changed."""


def list_cassettes(paths: Sequence[Path]) -> None:
    """Print the cassettes among *paths*, or in folders of them."""
    found = [cassette for path in paths for cassette in _cassettes(path)]
    if found:
        rows = [(str(path), summary(FileCassette(path).contents())) for path in found]
        print_table(_COLUMNS, rows)
    else:
        print("There is no cassette here.")


def show(path: Path, key: str | None) -> None:
    """Print what is recorded in a cassette; with *key*, one request of it, whole."""
    contents = _existing(path).contents()
    print(overview(contents) if key is None else details(contents, key))


def check(targets: Sequence[Path], command: str | None) -> int:
    """Play *targets* and say what they did not use; the exit code."""
    stale = 0
    for path, used in _played(targets, command).items():
        contents = FileCassette(path).contents()
        unneeded = unused(contents, used)
        stale += unneeded
        print(f"{_shown(path)}: {_said(unneeded)}")
        if unneeded:
            print(overview(contents, used))
    return ExitCode.FAILED if stale else ExitCode.OK


def prune(targets: Sequence[Path], command: str | None) -> None:
    """Play *targets* and drop what they did not use."""
    for path, used in _played(targets, command).items():
        cassette = FileCassette(path)
        dropped = unused(cassette.contents(), used)
        cassette.keep_only(used)
        print(f"{_shown(path)}: {count(dropped, 'recording')} removed")


def merge(ours: Path, theirs: Path, base: Path | None) -> int:
    """Join two versions of a cassette, in place of the first; the exit code."""
    kept = _existing(ours)
    before = Contents() if base is None else _existing(base).contents()
    together, in_doubt = merged(before, kept.contents(), _existing(theirs).contents())
    kept.replace(together)
    for key in in_doubt:
        print(f"both sides changed {key}; {_shown(ours)} keeps its own", file=sys.stderr)
    return ExitCode.FAILED if in_doubt else ExitCode.OK


def record(path: Path, *, cards: Sequence[str], yes: bool, answers: Sequence[str]) -> None:
    """Run a notebook live, in place, and keep its outputs, model calls and decisions.

    *cards* and *answers* are typed at cards and questions, in order; *yes* at further cards.

    Raises:
        RunFailed: a cell failed; notebook and cassettes are as they were.
    """
    notebook = _notebook(path)
    with _log() as log, _put_back_on_failure(path):
        env = {"OPENPROGRAM_REPLAY": "record", RECORD_WITH: "", LOG: str(log)}
        answer = answers_of(cards=cards, yes=yes, given=answers, terminal=sys.stdin.isatty())
        _run(notebook, {**env, "OPENPROGRAM_HOME": str(log.parent / "sessions")}, answer)
        for used_path, used in read_log(log).items():
            cassette = FileCassette(used_path)
            cassette.keep_only(used)
            print(f"{_shown(used_path)}: {summary(cassette.contents())}")
        notebook.save(recorded=True)


def refresh(paths: Sequence[Path]) -> None:
    """Play notebooks and save what they show now; nothing is asked.

    Raises:
        RunFailed: a cell failed; that notebook, and those after it, are as they were.
    """
    for path in paths:
        _played([path], None, save=True)
        print(f"{_shown(path)}: outputs saved")


def _played(
    targets: Sequence[Path], command: str | None, *, save: bool = False
) -> Mapping[Path, Mapping[str, int]]:
    """What each cassette was used for, while *targets* were played, and perhaps saved."""
    with _log() as log:
        nothing = log.parent / "config.toml"
        nothing.touch()
        env = {
            "OPENPROGRAM_REPLAY": "replay",
            "OPENPROGRAM_HOME": str(log.parent / "sessions"),
            "OPENPROGRAM_CONFIG": str(nothing),
            RECORD_WITH: "op-jupyter cassette record NOTEBOOK",
            LOG: str(log),
        }
        if command is None:
            for notebook in map(_notebook, targets):
                _run(notebook, env, _nobody)
                if save:
                    notebook.save(recorded=False)
        else:
            _run_command(command, env, targets)
        used = dict(read_log(log))
    for target in targets:  # one of which nothing is used any more, too
        path = target.with_suffix(".cassette") if target.suffix == _NOTEBOOK else target
        if path.exists():
            used.setdefault(Path(os.path.realpath(path)), {})
    return used


def _nobody(prompt: str) -> None:
    """Nobody is there to type an answer."""


def _run(notebook: NotebookRun, env: Mapping[str, str], answer: Answer) -> None:
    problem = notebook.run(env, answer)
    if problem:
        raise RunFailed(f"{notebook.path}: {problem}")


def _run_command(command: str, env: Mapping[str, str], targets: Sequence[Path]) -> None:
    if len(targets) != 1:
        raise BadCommandLine("--run plays one cassette: name that file alone")
    cassette = str(_existing(targets[0]).path.absolute())
    try:
        done = subprocess.run(
            shlex.split(command),
            env={**os.environ, **env, "OPENPROGRAM_CASSETTE": cassette},
            check=False,
        )
    except (OSError, ValueError) as error:
        raise BadCommandLine(f"--run {command!r} cannot be run: {error}") from None
    if done.returncode:
        raise RunFailed(f"{command!r} ended with {done.returncode}; nothing was changed")


def _notebook(path: Path) -> NotebookRun:
    if path.suffix != _NOTEBOOK:
        raise BadCommandLine(
            f"{str(path)!r} is no notebook; for a program name its cassette, and what plays it: "
            '--run "python program.py"'
        )
    return NotebookRun.read(path)


@contextmanager
def _log() -> Iterator[Path]:
    """A file in a folder of its own, for what the run uses."""
    with TemporaryDirectory(prefix="op-cassette-") as folder:
        yield Path(folder) / "used.jsonl"


@contextmanager
def _put_back_on_failure(notebook: Path) -> Iterator[None]:
    """Leave the cassettes beside *notebook* as they were when the block fails."""
    before = {path: path.read_bytes() for path in _cassettes(notebook.parent)}
    try:
        yield
    except BaseException:
        for path in set(_cassettes(notebook.parent)) - before.keys():
            path.unlink()
        for path, content in before.items():
            if path.read_bytes() != content:
                write_whole(path, content)
        raise


def _cassettes(path: Path) -> Iterable[Path]:
    return sorted(path.glob("*.cassette")) if path.is_dir() else [_existing(path).path]


def _existing(path: Path) -> FileCassette:
    if not path.is_file():
        raise BadCommandLine(f"there is no file {str(path)!r}")
    return FileCassette(path)


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _said(unneeded: int) -> str:
    return f"{count(unneeded, 'recording')} not used" if unneeded else "all recordings are used"
