"""Where the time of a call goes: all threads are looked at, about two thousand times a second.

Looking counts what waits as well as what computes, and slows the call down by little, so that the
parts can be compared with the whole; a profiler that is told of every call does neither.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path, PurePath
from types import FrameType, TracebackType
from typing import Any, Final

EVERY: Final = 0.0005
"""Seconds between two looks."""

DISK: Final = "waiting for the disk"
IDLE: Final = "waiting for the service, or for another thread or process"
REST: Final = "Python's own library"
IMPORTING: Final = "Python's import system: finding, reading and checking modules"

_PACKAGES: Final = {
    "git": "GitPython",
    "gitdb": "GitPython",
    "smmap": "GitPython",
    **dict.fromkeys(
        ("anthropic", "httpx", "httpcore", "h11", "anyio", "sniffio", "pydantic", "pydantic_core"),
        "the provider's SDK and its HTTP client",
    ),
}
_WAITING: Final = {
    ("threading.py", "wait"),
    ("threading.py", "_wait_for_tstate_lock"),
    ("selectors.py", "select"),
    ("thread.py", "_worker"),
    ("sync.py", "read"),  # httpcore's socket
    ("connection.py", "_recv"),  # what another process says
    ("pool.py", "_next"),  # a worker's thread, for work
}


class Sampler:
    """Looks at all other threads as long as its block runs; what several blocks show adds up.

    Args:
        depth: how far the names of op_jupyter's own modules go: 1 is ``op_jupyter.store``, 2
            ``op_jupyter.store.disk``.
    """

    def __init__(self, depth: int = 1) -> None:
        self._depth = depth
        self._found: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._seconds = 0.0
        self._interval = sys.getswitchinterval()

    def __enter__(self) -> Sampler:
        sys.setswitchinterval(EVERY / 10)  # else a thread that computes is seen when it waits
        self._stopped.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._seconds += time.perf_counter() - self._began
        self._stopped.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def parts(self, calls: int) -> dict[str, float]:
        """Milliseconds of each of *calls* by where they went, the largest part first."""
        looks = self._found.total()
        each = self._seconds * 1e3 / calls / max(looks, 1)
        return {where: count * each for where, count in self._found.most_common()}

    def _look(self) -> None:
        me = threading.get_ident()
        while not self._stopped.wait(EVERY):
            seen = [self._doing(f) for i, f in sys._current_frames().items() if i != me]
            busy = [what for what in seen if what not in (None, DISK)]
            self._found[(busy[-1] if busy else None) or (DISK if DISK in seen else IDLE)] += 1

    def _doing(self, frame: FrameType) -> str | None:
        """Whose code a thread is in; None: it waits for another."""
        code = frame.f_code
        at = (PurePath(code.co_filename).name, code.co_name)
        if at in _WAITING:
            return None
        line = linecache.getline(code.co_filename, frame.f_lineno or 0)
        if at == ("thread.py", "run") or "fsync(" in line:
            return DISK  # helpers run nothing but `os.fsync`, which has no frame of its own
        outer: FrameType | None = frame
        while outer is not None:
            named = self._named(outer.f_code.co_filename)
            if named:
                return named
            outer = outer.f_back
        return REST

    def _named(self, file: str) -> str:
        parts = PurePath(file).with_suffix("").parts
        if "site-packages" in parts:
            return _PACKAGES.get(parts[parts.index("site-packages") + 1], "")
        if "op_jupyter" in parts[:-1]:
            last = len(parts) - parts[::-1].index("op_jupyter")
            return ".".join(("op_jupyter", *parts[last : last + self._depth]))
        return ""


class ImportSampler(Sampler):
    """Looks at the main thread alone, while it loads modules.

    What a module's own code does is its package's; what the import system does is told apart from
    that, and so are the classes and patterns that are made.
    """

    def _look(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._stopped.wait(EVERY):
            self._found[self._running(sys._current_frames()[main])] += 1

    def _running(self, frame: FrameType) -> str:
        outer: FrameType | None = frame
        while outer is not None:
            file = outer.f_code.co_filename
            if file.startswith("<frozen importlib"):
                return IMPORTING if outer is frame else REST
            path = PurePath(file).with_suffix("")
            if path.name in _MAKING or path.parent.name in _MAKING:
                return _MAKING.get(path.name) or _MAKING[path.parent.name]
            if "site-packages" in path.parts:
                return path.parts[path.parts.index("site-packages") + 1]
            if named := self._named(file):
                return f"other code of {named}"
            outer = outer.f_back
        return REST


_MAKING: Final = {
    "dataclasses": "making dataclasses",
    "enum": "making enumerations",
    "re": "compiling patterns",
    "typing": "Python's `typing`",
}
"""What statements of a module run that is loaded, by the module or package of Python's."""


def children_cpu_ms() -> float:
    """Milliseconds that the living processes below this one have had of the processors."""
    ticks, below = 0, {os.getpid()}
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        stats[int(folder.name)] = stat.rpartition(")")[2].split()
    for pid, fields in sorted(stats.items()):  # a child's number is higher than its parent's
        if int(fields[1]) in below:
            below.add(pid)
            ticks += int(fields[11]) + int(fields[12])
    return ticks * 1e3 / os.sysconf("SC_CLK_TCK")


def disk_kilobytes(folder: str) -> dict[str, float]:
    """What is in *folder* by its first two names, whole blocks and folders included, in KB."""
    found: Counter[str] = Counter()
    for place, _, files in os.walk(folder):
        inside = PurePath(place).relative_to(folder).parts[:2]
        for path in [place, *(os.path.join(place, file) for file in files)]:
            found["/".join(inside) or "."] += os.lstat(path).st_blocks * 512
    return {where: size / 1024 for where, size in found.most_common()}


def larger(parts: dict[str, float], least: float = 0.02) -> dict[str, Any]:
    """*parts* with all that are less than the share *least* of the whole put together."""
    whole = sum(parts.values())
    kept = {where: ms for where, ms in parts.items() if ms >= least * whole}
    rest = whole - sum(kept.values())
    return {**kept, "smaller parts": rest} if rest else kept
