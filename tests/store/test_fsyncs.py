"""Waiting for several files at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from op_jupyter.store.fsyncs import fsync_all

AT_THE_END = """
import atexit, os, sys
from op_jupyter.store.fsyncs import fsync_all

fds = [os.open(f"{sys.argv[1]}/{n}", os.O_WRONLY | os.O_CREAT) for n in range(5)]

def at_the_end():
    fsync_all(fds)
    print("synced at the end")

atexit.register(at_the_end)
if sys.argv[2] == "used":
    fsync_all(fds)
child = os.fork()
if child:
    print("child:", os.waitpid(child, 0)[1], flush=True)
else:
    fsync_all(fds)
    os._exit(0)
"""


def test_the_failure_of_any_file_is_told_after_all_others_were_waited_for(tmp_path: Path) -> None:
    good = [os.open(tmp_path / str(n), os.O_WRONLY | os.O_CREAT) for n in range(3)]
    read, write = os.pipe()  # no disk confirms that
    try:
        fsync_all(good)
        for place in range(4):
            with pytest.raises(OSError, match="Invalid argument"):
                fsync_all([*good[:place], write, *good[place:]])
    finally:
        for fd in (*good, read, write):
            os.close(fd)


@pytest.mark.parametrize("before", ["used", "unused"])
def test_it_works_in_a_forked_child_and_when_the_interpreter_ends(
    tmp_path: Path, before: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END, str(tmp_path), before],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "child: 0\nsynced at the end\n"
