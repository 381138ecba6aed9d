"""Several fsyncs at once: a disk confirms them together, so they cost little more than one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_HELPERS: Final = 4


def fsync_all(fds: Sequence[int]) -> None:
    """Return when what was written to all of *fds* is on disk.

    Raises:
        OSError: one of them failed; none is waited for any more.
    """
    if len(fds) == 1:
        os.fsync(fds[0])
        return
    mine = list(fds[:1])
    others: list[Future[None]] = []
    for fd in fds[1:]:
        try:
            others.append(_helpers().submit(os.fsync, fd))
        except RuntimeError:  # the interpreter is ending: there are no new threads any more
            mine.append(fd)
    try:
        for fd in mine:
            os.fsync(fd)
    finally:
        failures = [other.exception() for other in others]
    for failure in failures:
        if failure is not None:
            raise failure


@cache
def _helpers() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # on first use: it loads slowly

    return ThreadPoolExecutor(_HELPERS, thread_name_prefix="op-jupyter-fsync")


if hasattr(os, "register_at_fork"):  # a forked child has the object but not its threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)
