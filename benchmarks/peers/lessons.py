"""The lessons as `pytest --nbval` replays them, one at a time, its start and the kernel's included.

python benchmarks/peers/lessons.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from notebooks.harness import LESSONS, nbval  # noqa: E402

LIMIT_SECONDS = 10.0


def replayed() -> Iterator[tuple[str, float]]:
    """Each lesson's name, and the seconds that it took.

    Raises:
        RuntimeError: a lesson did not show what is saved.
    """
    work = Path(tempfile.mkdtemp(prefix="op-lessons-"))
    try:
        folder = work / "notebooks"
        shutil.copytree(LESSONS, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        for lesson in sorted(folder.glob("*.ipynb")):
            began = time.perf_counter()
            done = nbval(folder, work / "attempts.txt", lesson.name)
            took = time.perf_counter() - began
            if done.returncode:
                raise RuntimeError(f"{lesson.name} failed:\n{done.stdout[-4_000:]}{done.stderr}")
            yield lesson.stem, took
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    slow = False
    for name, seconds in replayed():
        print(f"{name:24} {seconds:5.1f} s  (goal: {LIMIT_SECONDS:.0f} s)")
        slow |= seconds > LIMIT_SECONDS
    sys.exit(slow)
