"""The default executor: processes of this machine, each of which runs one call at a time.

`concurrent.futures.ProcessPoolExecutor` is not used: it fails every call when one process
dies, and has each process import the caller's ``__main__``, which runs a script once more.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import field
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final, ParamSpec, TypeVar

from op_jupyter.core.values import dataclass
from op_jupyter.engine.retry import is_whole
from op_jupyter.engine.workers.parcels import pack
from op_jupyter.errors import UsageError, WorkerLost

P = ParamSpec("P")
T = TypeVar("T")

MOST: Final = 8
"""Most processes of a pool that was not told how many."""
END_SECONDS: Final = 2.0
"""How long an idle process may take to end by itself."""
_RAW: Final[Mapping[Any, Any]] = getattr(os.environ, "_data", os.environ)
"""The environment as it is kept, encoded: to compare that takes a fiftieth of the time."""
_START: Final = (
    "import json, sys; from multiprocessing.connection import Connection; "
    "parent = Connection(int(sys.argv[1])); sys.path[:] = json.loads(parent.recv_bytes()); "
    "from op_jupyter.engine.workers.process import serve; serve(parent)"
)


class WorkerPool(Executor):
    """Runs functions in up to *workers* processes, which are started when they are needed.

    If a process dies, only the call that it was running fails, and the process is replaced.
    Processes get the environment and ``sys.path`` of the moment they start, and end with the
    pool.  Reuse a pool for many small maps: a process takes about half a second to start.
    """

    def __init__(self, workers: int | None = None) -> None:
        """*workers*: at least 1; None: one per processor, at least 2 and at most 8.

        Raises:
            UsageError: fewer than one, or no whole number.
        """
        if workers is not None and not is_whole(workers, 1):
            raise UsageError(f"workers={workers!r:.60}: a pool needs a whole number, at least one")
        self._most = workers or min(max(os.cpu_count() or 1, 2), MOST)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self._running: dict[Future[Any], _Process] = {}

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have ``fn(*args, **kwargs)`` run in a process.

        Raises:
            NotPortable: it cannot be pickled.
            RuntimeError: the pool is shut down.
        """
        task = _Task(pack("the call", (fn, args, kwargs)))
        with self._lock:
            if self._closed:
                raise RuntimeError("this pool is shut down; make another WorkerPool")
            self._tasks.put(task)
            if self._tasks.qsize() > self._idle and len(self._threads) < self._most:
                thread = threading.Thread(target=self._serve, name="op-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
        return task.future

    def kill(self, future: Future[Any]) -> None:
        """End the process that runs *future*, if one does: it fails with `WorkerLost`."""
        with self._lock:
            process = self._running.get(future)
        if process is not None:
            process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more, and end the processes when what was submitted is done."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while (task := self._tasks.get_nowait()) is not None:
                task.future.cancel()

    def _serve(self) -> None:
        process: _Process | None = None
        try:
            while (task := self._next()) is not None:
                if task.future.set_running_or_notify_cancel():
                    process = self._run(task, process)
        finally:
            if process is not None:
                process.end()

    def _next(self) -> _Task | None:
        with self._lock:
            self._idle += 1
        try:
            return self._tasks.get()
        finally:
            with self._lock:
                self._idle -= 1

    def _run(self, task: _Task, process: _Process | None) -> _Process | None:
        """Run *task*; what is returned may run the next one."""
        try:
            if process is None or process.outdated:
                if process is not None:
                    process.end()
                process = _Process()
            with self._lock:
                self._running[task.future] = process
            try:
                succeeded, value = process.call(task.data)
            finally:
                with self._lock:
                    del self._running[task.future]
        except (OSError, EOFError) as error:
            task.future.set_exception(_lost(process, error))
            return None
        if succeeded:
            task.future.set_result(value)
        else:
            task.future.set_exception(value)
        return process


def _lost(process: _Process | None, error: Exception) -> WorkerLost:
    if process is None:
        return WorkerLost(f"no worker process could be started: {error}")
    return WorkerLost(f"the worker process {process.pid} {process.how_it_ended()}")


@dataclass(eq=False, slots=True)
class _Task:
    data: bytes
    future: Future[Any] = field(default_factory=Future)


class _Process:
    """One process, and the pipe to it."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for us: we say what it means for each call
            )
        self._pipe: Connection[Any, Any] = ours
        self._environ = dict(_RAW)
        self._path = list(sys.path)
        ours.send_bytes(json.dumps(self._path).encode())

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def outdated(self) -> bool:
        """Whether a process that starts now would be another one: a key was set, for example."""
        return self._environ != _RAW or self._path != sys.path

    def call(self, data: bytes) -> tuple[bool, Any]:
        """Whether it worked, and what was returned or raised."""
        self._pipe.send_bytes(data)
        succeeded, value = pickle.loads(self._pipe.recv_bytes())
        return bool(succeeded), value

    def how_it_ended(self) -> str:
        code = self._wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        self._popen.kill()

    def end(self) -> None:
        """Have it end: it reads the end of the pipe."""
        self._pipe.close()
        self._wait()

    def _wait(self) -> int:
        self._pipe.close()
        try:
            return self._popen.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()


# -- the pool of who names none: there is one for as long as there is work for it

_pool_lock = threading.Lock()
_pool: WorkerPool | None = None
_borrowers = 0


def borrow_pool() -> WorkerPool:
    """The shared pool, started with its first borrower."""
    global _pool, _borrowers
    with _pool_lock:
        _pool = _pool or WorkerPool()
        _borrowers += 1
        return _pool


def give_pool_back() -> None:
    """Need it no longer; the last borrower waits until its processes have ended."""
    global _pool, _borrowers
    with _pool_lock:
        _borrowers -= 1
        if _borrowers > 0:
            return
        done, _pool = _pool, None
    if done is not None:
        done.shutdown()
