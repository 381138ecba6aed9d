"""The shell lines of README and docs run: each page's, in order, in the home of a reader."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from docs.pages import PAGES, ROOT, name_of

from op_jupyter import Runtime, SessionStore
from op_jupyter.cli.main import main, parser
from op_jupyter.core.messages import TextBlock
from op_jupyter.engine import loop, registry
from op_jupyter.engine.session import TurnStart
from op_jupyter.testing.providers import ScriptedProvider, reply

BLOCK: Final = re.compile(r"^ *```bash\n(?P<code>.*?)^ *```$", re.M | re.S)
FILE: Final = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.M | re.S)
OURS: Final = "op-jupyter "
TALKED, DELETED, OTHER = "talked-1", "deleted-1", "session-1c2b0a"

NOT_RUN: Final[Mapping[str, str]] = {
    r"pip install ": "takes minutes and the network; tests/test_packaging.py installs the wheel",
    r"op-jupyter local install": "fetches 93 MB; `make test` begins with it",
    r"op-jupyter cassette (record|check|prune|refresh)": (
        "starts a kernel for each notebook, or asks the local model; tests/cli/test_cassette.py"
    ),
    r"(OPENPROGRAM_REPLAY=replay )?jupyter lab": (
        "serves until it is stopped; tests/browser opens it, tests/notebooks runs the lessons there"
    ),
    r"jupyter (labextension|server extension) list": (
        "nine seconds; tests/test_packaging.py asks both of an installed wheel"
    ),
    r"pytest --nbval notebooks/": "tests/notebooks/test_replay.py does",
    r"python benchmarks/": "measures for minutes; `make bench` does",
}
"""Lines that begin like this are not run, and why."""

SAID: Final[Mapping[str, str]] = {
    "ID": TALKED,
    "REMOTE": "{home}/remote.git",
    "/media/stick/sessions.git": "{home}/stick.git",
    "session-1c2b…": OTHER,
    "COMMAND": "trash purge",
    "SHELL": "bash",
    "FILE:FUNCTION": "reviews.py:classify --arg review=fine",
    "trash put ID": f"trash put {OTHER}",
    "trash restore ID": f"trash restore {DELETED}",
    "trash purge ID": f"trash purge {DELETED}-too",
    "merge OURS THEIRS --base BASE": "merge ours.cassette theirs.cassette --base base.cassette",
}
"""What a reader puts in the place of these."""

SHOWN: Final[Mapping[str, str]] = {
    "op-jupyter sessions": "talked-1 .* 3 turns",
    "op-jupyter show ID --prompt": "--- user\n.*What is in df",
    "op-jupyter search": "talked-1 ",
    "op-jupyter run": "positive",
    "op-jupyter lessons": "quickstart.ipynb",
    "op-jupyter push": "main begun there",
    "op-jupyter trash list": DELETED,
    "op-jupyter doctor ID": r"nothing is wrong|\"findings\": \[\]",
    "op-jupyter help COMMAND": "--older-than",
    "git log": r"\* .*Sum it up",
    "pytest": "1 passed",
}
"""What the output of lines that begin like this holds, as a pattern."""


def blocks(page: Path) -> list[list[str]]:
    """The lines of each shell block of *page*, as they stand there."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [[line.strip() for line in match["code"].splitlines()] for match in found]


def spans(page: Path) -> list[str]:
    """The commands in its text; a heading is none."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^ *```.*?^ *```$|^#.*?$", "", text, flags=re.M | re.S)
    return [" ".join(span.split()) for span in re.findall(rf"`({OURS}[^`]+)`", prose)]


def why_not(line: str) -> str | None:
    """Which entry of `NOT_RUN` it falls under."""
    return next((start for start in NOT_RUN if re.match(start, line)), None)


def typed(line: str, home: Path) -> str:
    """*line* as a reader types it: without what is optional, with names of their own."""
    line = re.sub(r" ?\[[^]]*\]|\s#.*| > \S+$| …$", "", line, flags=re.M)
    for name in sorted(SAID, key=len, reverse=True):
        line = re.sub(rf"(?<![\w$]){re.escape(name)}(?!\w)", SAID[name].format(home=home), line)
    return line.strip()


def talk(store: SessionStore, session_id: str, *prompts: str) -> None:
    """A session of these turns, each of them after the first one."""
    session = registry.acquire(store, store.create_session(session_id))
    provider = ScriptedProvider(*(reply("Here you are.") for _ in prompts))
    base = None
    for prompt in prompts:
        start = TurnStart((TextBlock(prompt),), Runtime(provider=provider), base=base)
        loop.run_sync(session.run_turn, start)
        base = base or session.dag.head
    registry.release(session)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions, and deleted ones."""
    store = SessionStore(tmp_path_factory.mktemp("stored"))
    talk(store, TALKED, "What is in df?", "Plot the body mass", "Sum it up")
    for other in (OTHER, DELETED, f"{DELETED}-too"):
        talk(store, other, "Hello")
    for deleted in (DELETED, f"{DELETED}-too"):
        store.delete(deleted)
    return store.root_path


@pytest.fixture
def reader(home: Path, stored: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with sessions, the files that *page* names, an empty remote, and `op-jupyter`."""
    shutil.copytree(stored, home / "sessions", dirs_exist_ok=True)
    for name, code in FILE.findall(page.read_text(encoding="utf-8")):
        (home / name).write_text(code, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", "--bare", "remote.git"], cwd=home, check=True)
    for name in ("ours", "theirs", "base"):
        (home / f"{name}.cassette").touch()
    here = Path(sys.executable).parent
    for name, value in {
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(home)]),
        "PYTEST_ADDOPTS": "-p op_jupyter.testing.pytest_plugin",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of the tests around take seconds to load
    }.items():
        monkeypatch.setenv(name, value)
    return home


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page) or spans(page)], ids=name_of
)
def test_the_commands_of_a_page_run_in_their_order(
    page: Path, reader: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in [*blocks(page), *([span] for span in spans(page))]:
        lines = [line for line in block if line and not why_not(line)]
        together = any(line.startswith("cd ") for line in lines)
        for line in ["\n".join(lines)] if together else lines:
            said = run(typed(line, reader), capsys)
            for start, pattern in SHOWN.items():
                if re.search(rf"^{start}", line, re.M):
                    assert re.search(pattern, said, re.S), (line, said)


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What *command* prints; ours runs in this process."""
    if command.startswith(OURS):
        capsys.readouterr()
        assert main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
        return capsys.readouterr().out
    bash = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(bash, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def lines_of_pages() -> list[str]:
    """Every shell line of every page."""
    lines = [line for page in PAGES for block in blocks(page) for line in block]
    return [*lines, *(span for page in PAGES for span in spans(page))]


def test_what_is_not_run_still_stands_in_a_page_and_so_does_what_a_reader_replaces() -> None:
    lines = lines_of_pages()
    assert {why_not(line) for line in lines} == {*NOT_RUN, None}
    told = "\n".join(lines)
    assert [word for word in (*SAID, *SHOWN) if word not in told] == []


def test_what_is_not_run_is_at_least_a_command_that_is_taken(tmp_path: Path) -> None:
    for line in lines_of_pages():
        if line.startswith(OURS) and why_not(line):
            parser().parse_args(shlex.split(typed(line, tmp_path))[1:])


def test_every_block_of_commands_is_marked_as_one() -> None:
    """What is not marked would not be run."""
    programs = "op-jupyter|pip|jupyter|pytest|python|git|make"
    bare = re.compile(rf"^ *```\n *(?:[A-Z_]+=\S+ )?(?:{programs}) ", re.M)
    assert [page.name for page in PAGES if bare.search(page.read_text(encoding="utf-8"))] == []
