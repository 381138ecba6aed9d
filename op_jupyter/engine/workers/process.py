"""What runs in a process of a `WorkerPool`: one call after the other, until the pipe ends."""

from __future__ import annotations

import pickle
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from op_jupyter.engine.workers.parcels import pack, pack_own, portable_error


def serve(parent: Connection[Any, Any]) -> None:
    """Run what *parent* sends.  SIGINT reaches the call that runs, and nothing else."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):  # nobody waits for an answer any more
        while True:
            parent.send_bytes(_answer(parent.recv_bytes()))


def _answer(data: bytes) -> bytes:
    try:
        value = _run(data)
        if type(value) is bytes:  # what `run_order` returns
            return pack_own((True, value))
        return pack("what the call returned", (True, value))
    except BaseException as error:  # noqa: BLE001 -- foreign code; raised where it is waited for
        return pack("the error", (False, portable_error(error)))


def _run(data: bytes) -> Any:
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        function, args, kwargs = pickle.loads(data)
        return function(*args, **kwargs)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
