"""kill -9 at any moment: the session opens again, with everything that was acknowledged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that uses git")
@pytest.mark.timeout(7200)
def test_fifty_kills_lose_nothing(ram_path: Path) -> None:
    """KILLS=500 in the environment for a longer run; `benchmarks/kills.py` says what is killed."""
    count = os.environ.get("KILLS", "50")
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "benchmarks/kills.py"),
            *("--count", count, "--seed", "1", "--folder", str(ram_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} kills" in done.stdout
