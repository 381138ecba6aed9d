"""Functions that are defined in a cell, sent to worker processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kernel.harness import IPYKERNELS, interpreter, running_kernel

DEFINE = """
import os, time
from pathlib import Path
from op_jupyter import Runtime, WorkerPool, agentic_function, agentic_map, llm, session_context

BANG = "!"

def think(content):
    return content[-1]["text"] + BANG

@agentic_function
def shout(word):
    "Shout."
    return llm(word) if len(word) < 3 else shout(word[:2])

@agentic_function
def endless(marker):
    "Go on."
    llm("one")
    Path(marker).touch()
    time.sleep(600)

runtime = Runtime(call=think)
pool = WorkerPool(1)
"""
FORK = """
import multiprocessing

@agentic_function
def whisper(word, runtime):
    "Whisper."
    return llm(word)

def in_child(word):
    return whisper(word, runtime=runtime)

with multiprocessing.get_context("fork").Pool(1) as children:
    print(children.map_async(in_child, ["b"]).get(20))
"""
TREE = """
from op_jupyter import current_session
print([(n.name, n.status, n.caller is None) for n in current_session().agent.dag])
"""


@pytest.mark.kernel
def test_functions_of_a_cell_run_in_workers_and_the_stop_button_stops_them(tmp_path: Path) -> None:
    version = IPYKERNELS[-1]
    if not interpreter(version).exists():
        pytest.skip(f"no environment for ipykernel {version}: run `make test` once")
    env = {"OPENPROGRAM_HOME": str(tmp_path / "sessions"), "HOME": str(tmp_path)}
    marker = tmp_path / "runs"
    with running_kernel(version, tmp_path, env) as kernel:
        kernel.check("%load_ext openprogram")
        kernel.check(DEFINE)
        said = kernel.check(
            "@agentic_function\n"
            "def several(words, runtime):\n"
            "    'Shout several words.'\n"
            "    return agentic_map(shout, words, pool)\n"
            "print(several(['a', 'bcd'], runtime=runtime))"
        )
        assert "['a!', 'bc!']" in said
        cell = kernel.send(
            "@agentic_function\n"
            "def stuck(runtime):\n"
            "    'Never end.'\n"
            f"    agentic_map(endless, [{str(marker)!r}], pool)\n"
            "stuck(runtime=runtime)"
        )
        while not marker.exists():
            time.sleep(0.01)  # it is no message of the kernel's; pytest's timeout ends this
        stopped = time.monotonic()
        kernel.interrupt()
        kernel.finish(cell)
        assert time.monotonic() - stopped < 5
        assert cell.error == "KeyboardInterrupt"
        tree = kernel.check(TREE)
        assert "('endless', 'cancelled', False), ('callable', 'completed', False)" in tree
        assert "'running'" not in tree
        forked = kernel.run(FORK, timeout=30)  # which has no sockets of its own to wait for
        assert forked.error == "ReadOnlySession", forked.reply
        kernel.check("%config AgentMagics.runtime = runtime")
        again = kernel.check("print(agentic_map(shout, ['x'], pool)); pool.shutdown()")
        assert "['x!']" in again
