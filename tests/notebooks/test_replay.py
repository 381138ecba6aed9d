"""The lessons are tests: they replay offline, on every kernel, and notice a changed prompt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kernel.harness import IPYKERNELS, ROOT, interpreter
from notebooks.harness import LESSONS, nbval, shown

from op_jupyter.store.cassettes import FileCassette

pytestmark = pytest.mark.timeout(600)  # each runs eight notebooks, some of them twice

TRACES = re.compile(
    r"\b(?:nb|session|turn|llm|call|task|frame|question|toolu|msg|req)[-_][0-9a-f]{8,}\b"
    r"|\b0x[0-9a-f]{8,}\b"
    r"|\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d"
    r"|(?<![\w.])/(?:home|root|tmp|Users|var|work)/"
    r"|\b(?:sk-ant-|ghp_|hf_)[A-Za-z0-9]{10,}"
)
"""Ids, addresses, times, folders of a machine, keys."""


@pytest.mark.parametrize("path", sorted(LESSONS.glob("*.cassette")), ids=lambda path: path.stem)
def test_a_lesson_tells_nothing_of_who_made_it_and_when(path: Path) -> None:
    notebook = json.loads(path.with_suffix(".ipynb").read_text("utf-8"))
    compared = [
        output
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if "nbval-ignore-output" not in cell["metadata"].get("tags", ())
    ]
    texts = [json.dumps(compared, ensure_ascii=False), *requests(path)]

    assert [match.group() for text in texts for match in TRACES.finditer(text)] == []
    assert not any(output.get("metadata") for output in compared)


def requests(path: Path) -> list[str]:
    """What the requests and replies of a cassette say, as it would be sent again."""
    contents = FileCassette(path).contents()
    return [
        json.dumps([e.request, [reply.content for reply in e.replies]], ensure_ascii=False)
        for e in contents.exchanges.values()
    ]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_guard_refuses_what_leaves_the_machine(attempts: Path) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80))"
    env = {**os.environ, "PYTHONPATH": str(attempts.parent / "guard")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )

    assert "no network in this test" in done.stderr
    assert "192.0.2.1" in attempts.read_text()


def test_lessons_replay_twice_without_key_model_or_network(lessons: Path, attempts: Path) -> None:
    before = contents(lessons)

    for _ in range(2):
        done = nbval(lessons, attempts)
        assert done.returncode == 0, done.stdout + done.stderr

    assert contents(lessons) == before
    assert not attempts.exists()


@pytest.mark.parametrize("ipykernel", [name for name in IPYKERNELS if name != "newest"])
def test_lessons_replay_on_older_kernels(lessons: Path, attempts: Path, ipykernel: str) -> None:
    """The newest one ran them twice."""
    if not interpreter(ipykernel).exists():
        pytest.skip(f"no kernel {ipykernel}: python3 tests/support/prepare.py kernels")

    done = nbval(lessons, attempts, ".", "--nbval-kernel-name", f"op-{ipykernel}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert not attempts.exists()


def test_a_changed_word_in_a_prompt_fails_and_is_named(lessons: Path, attempts: Path) -> None:
    """What the recording has instead is told, too; here the plugin has it replay."""
    (lessons / "conftest.py").unlink()
    path = lessons / "quickstart.ipynb"
    text = path.read_text("utf-8")
    changed = text.replace(
        "What is the mean of body_mass_g?", "What is the average of body_mass_g?"
    )
    path.write_text(changed, "utf-8")

    plugin = ("-p", "op_jupyter.testing.pytest_plugin", "--op-replay")
    done = nbval(lessons, attempts, *plugin, "quickstart.ipynb")

    assert done.returncode == 1
    assert "- user: What is the mean of body_mass_g?" in done.stdout
    assert "+ user: What is the average of body_mass_g?" in done.stdout
    assert "record it with op-jupyter cassette record quickstart.ipynb" in done.stdout
    assert not attempts.exists()


@pytest.mark.parametrize("program", ["nbconvert --execute --to notebook --stdout", "papermill"])
def test_other_programs_run_a_lesson_as_nbval_does(
    lessons: Path, attempts: Path, program: str
) -> None:
    """Decisions come from the recording, and what is shown is what is saved."""
    path = lessons / "quickstart.ipynb"
    env = {
        "OPENPROGRAM_HOME": str(lessons.parent / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
        "OPENPROGRAM_REPLAY": "replay",
        "PYTHONPATH": os.pathsep.join([str(attempts.parent / "guard"), str(ROOT)]),
        "PATH": os.environ["PATH"],
        "HOME": str(lessons.parent),
    }
    command = [sys.executable, "-m", *program.split(), str(path)]
    if program == "papermill":
        command += ["-", "--no-progress-bar"]  # the notebook goes to stdout
    done = subprocess.run(command, cwd=lessons, env=env, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr.decode()
    saved, made = (shown(json.loads(text)) for text in (path.read_bytes(), done.stdout))
    assert made == saved
    assert not attempts.exists()
