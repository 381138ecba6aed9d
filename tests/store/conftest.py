"""What the tests of the store share."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Git = Callable[..., str]


@pytest.fixture
def ram_path() -> Iterator[Path]:
    """A folder where fsync costs nothing, for tests that make thousands of them."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="op-jupyter-", dir=parent))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """The git executable as a user would run it, with an identity and nothing else."""
    if shutil.which("git") is None:
        pytest.skip("there is no git executable")

    def run(folder: Path, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_AUTHOR_NAME": "A Person",
                "GIT_AUTHOR_EMAIL": "person@example.org",
                "GIT_COMMITTER_NAME": "A Person",
                "GIT_COMMITTER_EMAIL": "person@example.org",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"git {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    return run
