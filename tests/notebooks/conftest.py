"""Everything here runs a lesson of `notebooks/`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from notebooks.harness import GUARD, LESSONS

# Every lesson in a real page takes minutes: `make matrix` runs it.
collect_ignore = [] if os.environ.get("OPENPROGRAM_TEST_MATRIX") else ["test_in_jupyterlab.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.notebooks)


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
