"""The lessons are tests: they replay offline, on every kernel, and notice a changed prompt."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kernel.harness import ENVIRONMENTS, IPYKERNELS, interpreter, running_kernel

LESSONS = Path(__file__).resolve().parents[2] / "notebooks"

# Every Python that starts with this folder on its path notes and refuses connections that leave
# the machine.
GUARD = """\
import socket

def _guarded(connect):
    def guarded(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            with open({log!r}, "a") as log:
                log.write(f"{{address}}\\n")
            raise OSError(f"no network in this test: {{address}}")
        return connect(self, address)
    return guarded

socket.socket.connect = _guarded(socket.socket.connect)
socket.socket.connect_ex = _guarded(socket.socket.connect_ex)
"""


@pytest.fixture
def lessons(tmp_path: Path) -> Path:
    """A copy of the lessons, as a clean clone has them."""
    folder = tmp_path / "notebooks"
    shutil.copytree(LESSONS, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    return folder


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    """Where the guard notes what tried to leave the machine."""
    guard = tmp_path / "guard"
    guard.mkdir()
    log = tmp_path / "attempts.txt"
    (guard / "sitecustomize.py").write_text(GUARD.format(log=str(log)))
    return log


def nbval(folder: Path, attempts: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pytest --nbval` on *folder*: no key, no model, no network."""
    secret = re.compile("ANTHROPIC_|OPENPROGRAM_|PYTEST_|PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if not secret.match(name)}
    env |= {
        "HOME": str(folder.parent),
        "JUPYTER_PATH": str(ENVIRONMENTS / "share" / "jupyter"),
        "OPENPROGRAM_LOCAL_MODEL": str(folder / "none.gguf"),
        "PYTHONPATH": str(attempts.parent / "guard"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval", "."]
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


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


@pytest.mark.parametrize("ipykernel", IPYKERNELS)
def test_lessons_replay_on_every_kernel(lessons: Path, attempts: Path, ipykernel: str) -> None:
    if not interpreter(ipykernel).exists():
        pytest.skip(f"no kernel {ipykernel}: python3 tests/support/prepare.py kernels")

    done = nbval(lessons, attempts, "--nbval-kernel-name", f"op-{ipykernel}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert not attempts.exists()


def test_a_changed_word_in_a_prompt_fails_and_is_named(lessons: Path, tmp_path: Path) -> None:
    """What the recording has instead is told, too."""
    env = {
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
        "OPENPROGRAM_REPLAY": "replay",
    }
    notebook = json.loads((lessons / "quickstart.ipynb").read_text())
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    with running_kernel("newest", lessons, env) as kernel:
        for cell in ("load", "data", "function"):
            kernel.check(sources[cell])
        failed = kernel.run(sources["question"].replace("the mean of", "the average of"))

    assert failed.reply is not None
    message = failed.reply["content"]["evalue"]
    assert failed.status == "error"
    assert "What is the mean of body_mass_g?" in message
    assert "What is the average of body_mass_g?" in message
    assert "--replay record" in message
