"""Which recordings a run needed: a line for each, from all of its processes, in one file."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Final

VARIABLE: Final = "OPENPROGRAM_CASSETTE_LOG"
"""Names the file to those that run; `op-jupyter cassette` sets it."""


def add_line(log: Path, cassette: Path, key: str, position: int) -> None:
    """Tell that the run needed recording number *position* of *key*.

    Raises:
        OSError: it cannot be written.
    """
    line = json.dumps([os.path.realpath(cassette), key, position]) + "\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())  # one write: lines of several processes stay whole
    finally:
        os.close(descriptor)


def read_log(log: Path) -> dict[Path, dict[str, int]]:
    """For each cassette that was used: how many recordings of each key were needed.

    Raises:
        OSError: it cannot be read.
    """
    used: dict[Path, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    if log.exists():
        for line in log.read_text("utf-8").splitlines():
            cassette, key, position = json.loads(line)
            counts = used[Path(cassette)]
            counts[key] = max(counts[key], position + 1)
    return used
