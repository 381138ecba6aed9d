"""The limits: what the same bytes cost without any system."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from _work import Texts, main, timed_nodes

TEXTS = Texts()


def _lines(number: int) -> tuple[bytes, bytes]:
    entered = {"id": f"n{number}", "input": TEXTS.asked(number), "status": "running"}
    filled = {"id": f"n{number}", "output": TEXTS.said(number), "status": "completed"}
    return json.dumps(entered).encode() + b"\n", json.dumps(filled).encode() + b"\n"


def append(folder: str, nodes: int, seconds: float) -> dict[str, Any]:
    """Two lines a node into one file, each with an fsync."""
    return timed_nodes(writing(f"{folder}/raw"), nodes, seconds)


def writing(path: str) -> Callable[[int], None]:
    """What appends the two lines of a node to the file at *path*, each with an fsync."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(number: int) -> None:
        for line in _lines(number):
            os.write(file, line)
            os.fsync(file)

    return write


def load(folder: str, nodes: int) -> dict[str, Any]:
    """`json.loads` of the same text, which is in memory already."""
    text = [line for number in range(nodes) for line in _lines(number)]
    at = time.perf_counter()
    for line in text:
        json.loads(line)
    return {"ms": (time.perf_counter() - at) * 1e3}


if __name__ == "__main__":
    main({"append": append, "load": load})
