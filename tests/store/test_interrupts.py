"""Ctrl-C at any moment leaves graph and disk the same."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from op_jupyter.core.nodes import Node
from op_jupyter.store.interrupts import Uninterrupted
from op_jupyter.store.sessions import SessionStore

WORK = """
import os, random, signal, sys, threading, time
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import picture

store = SessionStore(sys.argv[1])
session = store.open(store.create_session("s"))
session.begin_turn(Turn("t1"))
done = threading.Event()

def annoy():
    chance = random.Random(1)
    while not done.wait(chance.uniform(0, 0.003)):
        os.kill(os.getpid(), signal.SIGINT)

annoyer = threading.Thread(target=annoy)
interrupts, number = 0, 0
while interrupts < 150:
    try:
        if annoyer.ident is None:
            annoyer.start()
        number += 1
        node = Node(f"n{number}", "code", "f", input="x" * 5000, metadata={"turn_id": "t1"})
        session.append(node)
        session.update(node.id, output="y" * 5000, status="completed")
    except KeyboardInterrupt:
        interrupts += 1
while not done.is_set():
    try:
        done.set()
        annoyer.join()
    except KeyboardInterrupt:
        pass
assert picture(store.load("s")) == picture(session.dag)
session.end_turn("t1", "completed")
session.close()
assert picture(store.load("s")) == picture(session.dag)
print(len(session.dag))
"""


def test_what_was_interrupted_is_there_or_is_not(ram_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(ram_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_an_interrupt_that_waited_comes_at_the_end() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_change_made_by_another_thread_leaves_signals_alone(ram_path: Path) -> None:
    store = SessionStore(ram_path)
    session = store.open(store.create_session("s"))
    worker = threading.Thread(target=session.append, args=(Node("n1", "user", "user"),))
    worker.start()
    worker.join()
    session.close()
    assert [n.id for n in store.load("s")] == ["n1"]


def test_an_interrupted_close_lets_go_of_the_lock(ram_path: Path) -> None:
    code = """
import os, signal, sys, threading, traceback
from op_jupyter.core.nodes import Turn
from op_jupyter.store.sessions import SessionStore

closed, me = threading.Event(), threading.get_ident()

def interrupt_the_close():
    while not closed.wait(0.001):
        frames = traceback.walk_stack(sys._current_frames()[me])
        if any(frame.f_code is type(session).close.__code__ for frame, _ in frames):
            return os.kill(os.getpid(), signal.SIGINT)

store = SessionStore(sys.argv[1])
session = store.open(store.create_session("s"))
for number in range(50):
    session.begin_turn(Turn(f"t{number}"))
    session.end_turn(f"t{number}", "completed")
interrupter = threading.Thread(target=interrupt_the_close)
try:
    interrupter.start()
    session.close()
    closed.set()
    interrupter.join()
except KeyboardInterrupt:
    pass
again = store.open("s")
assert len(again.dag.turns) == 50
again.close()
assert again.status.git_behind == ""
"""
    subprocess.run([sys.executable, "-c", code, str(ram_path)], check=True, timeout=60)
