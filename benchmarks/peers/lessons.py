"""The lessons as `pytest --nbval` replays them, one at a time, its start and the kernel's included.

python benchmarks/peers/lessons.py
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from notebooks.harness import LESSONS, nbval  # noqa: E402

LIMIT_SECONDS = 10.0


@contextmanager
def copied() -> Iterator[list[Path]]:
    """The lessons, in a folder where they may write."""
    with tempfile.TemporaryDirectory(prefix="op-lessons-") as work:
        folder = Path(work) / "notebooks"
        shutil.copytree(LESSONS, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        yield sorted(folder.glob("*.ipynb"))


def replayed(lesson: Path, *arguments: str) -> tuple[float, str]:
    """The seconds that a copied lesson takes, and what pytest says, given *arguments*.

    Raises:
        RuntimeError: it did not show what is saved.
    """
    folder = lesson.parent
    began = time.perf_counter()
    done = nbval(folder, folder.parent / "attempts.txt", lesson.name, *arguments)
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{lesson.name} failed:\n{done.stdout[-4_000:]}{done.stderr}")
    return took, done.stdout


def profiled(lesson: Path) -> dict[str, float]:
    """The same seconds by where they go: the start, and each cell that takes some."""
    took, said = replayed(lesson, "--durations=0", "--durations-min=0.1")
    parts = {
        f"{cell}, its {phase}" if phase != "call" else cell: float(seconds)
        for seconds, phase, cell in _DURATION.findall(said)
    }
    return {**parts, "pytest itself, and shorter cells": took - sum(parts.values())}


_DURATION = re.compile(r"^ *([0-9.]+)s (\w+) +\S+::(.+)$", re.M)


if __name__ == "__main__":
    slow = False
    with copied() as those:
        for lesson in those:
            seconds, _ = replayed(lesson)
            print(f"{lesson.stem:24} {seconds:5.1f} s  (goal: {LIMIT_SECONDS:.0f} s)")
            slow |= seconds > LIMIT_SECONDS
    sys.exit(slow)
