"""kill -9 at any moment, again and again: nothing that was acknowledged may be lost.

    python benchmarks/kills.py [--count 500] [--seed 1] [--folder PATH] [--only NUMBER]

One process imports everything and forks a child for each kill.  A child works on a session
(turns with forks and large values, packing, the trash, pushing, pulling, importing, repairing) and
tells what was acknowledged; it is killed from outside after a random time, or by itself at a
random call that changes something on disk, in the middle of a write for instance.  Then the
session is opened, held against what was acknowledged, gone on with, and looked at by the doctor
and by `git fsck`.  Prints what was killed where.  Exits with 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn, TurnKind
from op_jupyter.store.base import Ended, Fill, OpenSession, Tip
from op_jupyter.store.documents import to_json
from op_jupyter.store.files import FileSystem
from op_jupyter.store.git import load_git
from op_jupyter.store.interchange import copy_session, import_path
from op_jupyter.store.sessions import SessionStore

SESSION = "s"
LIVES = 40  # kills that one set of sessions goes through
LONGEST = 0.25  # seconds until a kill from outside
CALLS = 400  # calls until a kill from inside


class Deadly(FileSystem):
    """Kills its process at the *at*-th call that changes something; 0: never."""

    def __init__(self, at: int) -> None:
        self._left = at

    def _step(self) -> bool:
        self._left -= 1
        return self._left == 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self._step():
            os.write(fd, memoryview(data)[: len(data) // 2])
            die()
        return super().write(fd, data)

    def fsync(self, *fds: int) -> None:
        for done in range(len(fds)):
            if self._step():
                super().fsync(*fds[:done])
                die()
        super().fsync(*fds)

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        if self._step():
            die()

    def rename(self, old: str, new: str) -> None:
        if self._step():
            die()
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        super().link(old, new)
        if self._step():
            die()

    def unlink(self, path: str) -> None:
        if self._step():
            die()
        super().unlink(path)


def die() -> None:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


Say = Callable[[str, str], None]


# --- what children do until they are killed ---------------------------------------------


def take_turn(session: OpenSession, name: str, chance: random.Random, say: Say) -> None:
    """A turn with some nodes, on this line or on another; at times stored as one with them."""
    kind: TurnKind = chance.choice(["agent", "agent", "call"])
    base = chance.choice([session.dag.head, session.dag.head, any_node(session.dag, chance)])
    turn = Turn(name, kind=kind, base=base, subject=f"do {name}")
    together, last = chance.random() < 0.5, chance.randrange(3)
    if not together:
        session.begin_turn(turn)
    for number in range(last + 1):
        node_id = f"{name}.{number}"
        text = "x" * chance.choice([10, 1000, 20_000, 100_000])
        metadata = {"turn_id": name}
        node = Node(node_id, "llm", "model", input=text, predecessor=base, metadata=metadata)
        if together and number == 0:
            session.write([turn, Tip(node) if kind == "agent" else node])
        else:
            session.append(node, advance_head=kind == "agent")
        say(node_id, "running")
        base = node_id if kind == "agent" else base
        if together and number == last:
            end = Fill(node_id, {"output": text, "status": "completed"})
            session.write([end, Ended(name, "completed")])
        else:
            session.update(node_id, output=text, status="completed")
        say(node_id, "completed")
    if not together:
        session.end_turn(name, "completed")
    say(name, "ended")
    if chance.random() < 0.2:
        session.flush()


def any_node(dag: Dag, chance: random.Random) -> str | None:
    return chance.choice(list(dag.nodes)) if dag.nodes else None


@dataclass(frozen=True)
class Child:
    """What a child works with."""

    name: str
    place: Path
    files: FileSystem
    chance: random.Random
    say: Say

    @property
    def here(self) -> SessionStore:
        return SessionStore(self.place / "here", files=self.files)

    @property
    def there(self) -> SessionStore:
        return SessionStore(self.place / "there", files=self.files)

    @property
    def remote(self) -> str:
        return str(self.place / "remote.git")

    def names(self) -> Iterator[str]:
        """Names of turns that nobody has yet."""
        number = 0
        while True:
            yield f"{self.name}-{number}"
            number += 1

    def turns(self) -> None:
        session = self.here.open(SESSION)
        for name in self.names():
            take_turn(session, name, self.chance, self.say)

    def short_turns(self) -> None:
        for name in self.names():
            session = self.here.open(SESSION)
            take_turn(session, name, self.chance, self.say)
            session.close()

    def gc(self) -> None:
        for name in self.names():
            session = self.here.open(SESSION)
            take_turn(session, name, self.chance, self.say)
            session.close()
            self.here.pack(SESSION)

    def trash(self) -> None:
        store = self.here
        for name in self.names():
            session = store.open(store.create_session(name))
            session.append(Node("n", "user", "user"))
            session.close()
            store.delete(SESSION)
            store.delete(name)
            store.restore(SESSION)
            store.purge(name)

    def push(self) -> None:
        for name in self.names():
            session = self.here.open(SESSION)
            take_turn(session, name, self.chance, self.say)
            session.close()
            self.here.push(SESSION, self.remote)
            self.say(name, "pushed")

    def pull(self) -> None:
        """The other side goes on, and this side takes that."""
        for name in self.names():
            if self.chance.random() < 0.7:
                other = SessionStore(self.place / "there")  # has its own life, and its own kills
                if not other.exists(SESSION):
                    other.pull(self.remote, SESSION)
                session = other.open(SESSION)
                take_turn(session, f"{name}-there", self.chance, lambda *_: None)
                session.close()
                other.push(SESSION, self.remote)
            self.here.pull(self.remote, SESSION)
            if self.chance.random() < 0.3:
                session = self.here.open(SESSION)
                take_turn(session, name, self.chance, self.say)
                session.close()

    def pull_there(self) -> None:
        """The other machine is killed; it may begin with nothing."""
        if self.chance.random() < 0.3:
            shutil.rmtree(self.place / "there", ignore_errors=True)
        for name in self.names():
            store = self.there
            store.pull(self.remote, SESSION)
            session = store.open(SESSION)
            take_turn(session, f"{name}-there", self.chance, lambda *_: None)
            session.close()
            store.push(SESSION, self.remote)

    def take_in(self) -> None:
        """Documents are imported, and sessions are copied."""
        document = self.place / f"{self.name}.json"
        source = self.here.open(SESSION, "read")
        document.write_text(to_json(source.dag, source.read_blob, whole=True))
        for name in self.names():
            import_path(self.here, document, f"taken-{name}")
            copy_session(self.here, SESSION, f"taken-copy-{name}")

    def repair(self) -> None:
        while True:
            damage(self.place / "here" / SESSION, self.chance)
            self.here.doctor(SESSION).mend()


def damage(folder: Path, chance: random.Random) -> None:
    """Change a byte of a committed segment."""
    segments = sorted(folder.glob("history/*/*-agent-*.jsonl"))[:-1]
    if segments:
        path = chance.choice(segments)
        data = bytearray(path.read_bytes())
        data[chance.randrange(max(len(data) - 1, 1))] ^= 1
        path.write_bytes(data)


JOBS: dict[str, Callable[[Child], None]] = {
    "turns": Child.turns,
    "turns, opened each time": Child.short_turns,
    "gc": Child.gc,
    "trash": Child.trash,
    "push": Child.push,
    "pull": Child.pull,
    "pull elsewhere": Child.pull_there,
    "import": Child.take_in,
    "repair": Child.repair,
}


# --- killing ----------------------------------------------------------------------------


@dataclass
class World:
    """One set of sessions, and what was acknowledged of them.

    Attributes:
        nodes: last acknowledged status, by id.
    """

    place: Path
    nodes: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    pushed: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """A session of one turn, here and in the remote."""
        subprocess.run(["git", "init", "-q", "--bare", str(self.place / "remote.git")], check=True)
        store = SessionStore(self.place / "here")
        session = store.open(store.create_session(SESSION))
        take_turn(session, "first", random.Random(0), self.told)
        session.close()
        store.push(SESSION, str(self.place / "remote.git"))

    def told(self, what: str, status: str) -> None:
        """Something was acknowledged."""
        if status in ("running", "completed"):
            self.nodes[what] = status
        elif status == "ended":
            self.ended.add(what)
        else:
            self.pushed.add(what)

    def check(self, *, mended: bool) -> None:
        """Everything acknowledged is there, and the session goes on."""
        store = SessionStore(self.place / "here")
        if not store.exists(SESSION):
            store.restore(SESSION)  # killed between the two
        if mended:
            store.doctor(SESSION).mend()
        session = store.open(SESSION)
        dag = session.dag
        self.check_taken(store, dag)
        for node_id, status in self.nodes.items():
            found = dag.node(node_id)
            expected = ("completed",) if status == "completed" else ("completed", "interrupted")
            assert found.status in expected, f"{node_id} was {status} and is {found.status}"
            assert status == "running" or found.output == found.input, node_id
        for turn_id in self.ended:
            assert dag.turns[turn_id].status == "completed", turn_id
        assert all(node.status != "running" for node in dag)
        assert all(turn.status != "running" for turn in dag.turns.values())
        take_turn(session, f"after {len(dag.turns)}", random.Random(len(dag)), self.told)
        session.flush()
        assert session.status.git_behind == "", session.status.git_behind
        session.close()
        examined = store.doctor(SESSION).examine(thorough=False)
        assert examined.healthy, examined.findings
        other = SessionStore(self.place / "there")
        if other.exists(SESSION):
            other.open(SESSION).close()
            assert other.doctor(SESSION).examine(thorough=False).healthy

    def check_taken(self, store: SessionStore, dag: Dag) -> None:
        """What was taken in, of a session that nobody wrote to, is whole or not there."""
        for info in store.sessions(limit=10_000):
            if info.id.startswith("taken-"):
                assert list(store.load(info.id).nodes) == list(dag.nodes), info.id
                store.open(info.id).close()
                assert store.doctor(info.id).examine(thorough=False).healthy
                store.delete(info.id)
                store.purge(info.id)

    def end(self) -> None:
        """git agrees, and what was pushed can be pulled by somebody who has nothing."""
        examined = SessionStore(self.place / "here").doctor(SESSION).examine()
        assert examined.healthy, examined.findings
        fresh = SessionStore(self.place / "fresh")
        fresh.pull(str(self.place / "remote.git"), SESSION)
        missing = self.pushed - set(fresh.load(SESSION).turns)
        assert not missing, f"pushed, and not there: {missing}"


def run_child(number: int, seed: int, job: str, place: Path, say_to: int) -> None:
    """In the child: work until killed."""
    chance = random.Random(seed * 1_000_003 + number)
    inside = chance.random() < 0.6

    def say(what: str, status: str) -> None:
        os.write(say_to, f"{what} {status}\n".encode())

    files = Deadly(chance.randrange(1, CALLS) if inside else 0)
    try:
        JOBS[job](Child(f"k{number}", place, files, chance, say))
    except BaseException:  # noqa: BLE001 -- a child has nobody else to tell
        os.write(say_to, f"! {traceback.format_exc()}".encode())
    os._exit(3)


def kill_one(number: int, seed: int, job: str, world: World) -> int:
    """Fork a child, have it killed; how much it had acknowledged."""
    read, write = os.pipe()
    chance = random.Random(seed * 7_000_003 + number)
    child = os.fork()
    if child == 0:
        os.close(read)
        run_child(number, seed, job, world.place, write)
    os.close(write)
    deadline = time.monotonic() + chance.uniform(0.01, LONGEST)
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read) as told:
        text = told.read()
    assert not text.rpartition("\n! ")[1] and not text.startswith("! "), text
    lines = text.rpartition("\n")[0].splitlines()
    for line in lines:
        world.told(*line.rsplit(" ", 1))
    return len(lines)


def kill_often(folder: Path, count: int, seed: int, only: int | None = None) -> list[str]:
    """Kill *count* times; what went wrong, with the number to repeat it by."""
    load_git()
    kills: Counter[str] = Counter()
    told: Counter[str] = Counter()
    wrong: list[str] = []
    jobs = list(JOBS)
    for start in range(0, count, LIVES):
        with tempfile.TemporaryDirectory(dir=folder, prefix="kills-") as place:
            world = World(Path(place))
            world.begin()
            for number in range(start, min(start + LIVES, count)):
                job = jobs[number % len(jobs)]
                if only is not None and not start <= only < start + LIVES:
                    break
                try:
                    told[job] += kill_one(number, seed, job, world)
                    kills[job] += 1
                    world.check(mended=job == "repair")
                except Exception:  # noqa: BLE001 -- it is what the report is about
                    wrong.append(f"number {number}, {job}: {traceback.format_exc()}")
                    break
            else:
                try:
                    world.end()
                except Exception:  # noqa: BLE001
                    wrong.append(f"after number {number}: {traceback.format_exc()}")
    print(f"seed {seed}, {sum(kills.values())} kills")
    for job in jobs:
        print(f"  {job:<24} {kills[job]:>4} kills, {told[job]:>6} acknowledged")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Kill, and say what was lost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where the sessions are (default: memory)")
    parser.add_argument("--only", type=int, help="just the sessions of this number, up to it")
    chosen = parser.parse_args(arguments)
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    wrong = kill_often(chosen.folder or memory, chosen.count, chosen.seed, chosen.only)
    for each in wrong:
        print(each)
    print(f"{len(wrong)} went wrong" if wrong else "nothing was lost, every session opens")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
