"""What keeping a session costs, beside raw ``write`` + ``fsync`` of the same bytes, in one run.

    python benchmarks/store.py [--sizes 100,1000,10000] [--rounds 3] [--folder PATH]

FULL=1 in the environment adds a session of 100,000 nodes, which takes about ten minutes, 3 GB of
disk and 2 GB of memory.  Sessions as long as that are measured at their start, in the middle and
at their end; the nodes between are laid down by the same stores, ten at a time.

Everything is a ratio of what was measured side by side: work is done in blocks of
a few turns, by each contestant in turn and in changing order, so that whatever else the
machine does hits all alike.  Prints a Markdown table.  Exits with 1 when a goal is missed by
more than noise: when the whole 95 % confidence interval of the median lies beyond it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store import codec
from op_jupyter.store.base import Ended, Fill, OpenSession, Tip
from op_jupyter.store.search import SearchIndex
from op_jupyter.store.sessions import SessionStore

TURN = 10  # nodes in a turn, and so in a commit
BLOCK = 5  # turns between two looks at the clock
LONG = 20_000  # nodes from which on a session is measured in three places only
MEASURED = 100  # turns in each of these places
HEAD = "| measure | median | 95 % interval | goal | |\n|---|---|---|---|---|"
AT = "2026-01-01T00:00:00.000000+00:00"


# --- the work ---------------------------------------------------------------------------


class Nodes:
    """Model calls of about 5 KB, the same ones for everybody; *words*: of the first answer."""

    def __init__(self) -> None:
        chance = random.Random(7)
        words = [
            "".join(chance.choices("abcdefghijklmnop", k=chance.randrange(2, 9)))
            for _ in range(3000)
        ]
        self._asked = [self._text(chance, words, 250) for _ in range(100)]
        self._said = [self._text(chance, words, 550) for _ in range(100)]
        self.words = self._said[0].split()

    @staticmethod
    def _text(chance: random.Random, words: Sequence[str], count: int) -> str:
        return " ".join(chance.choices(words, k=count))

    def entered(self, number: int) -> Node:
        """Node *number* as it is appended."""
        content = [{"type": "text", "text": self._asked[number % 100]}]
        return Node(
            f"n{number}",
            "llm",
            "model",
            input={"messages": [{"role": "user", "content": content}], "max_tokens": 8192},
            predecessor=f"n{number - 1}" if number else None,
            reads={"head": f"n{number - 1}", "sha256": "0" * 64},
            metadata={"turn_id": f"t{number // TURN}"},
        )

    def filled(self, number: int) -> dict[str, Any]:
        """What is filled into it."""
        return {
            "output": {"content": [{"type": "text", "text": self._said[number % 100]}]},
            "status": "completed",
            "metadata": {"gen_ai.usage.input_tokens": 400, "gen_ai.usage.output_tokens": 900},
        }

    def lines(self, number: int) -> tuple[bytes, bytes]:
        """The two records of node *number*, as bytes."""
        seq = 2 * number + 2
        return (
            codec.encode(codec.entering(self.entered(number), seq, AT, "main")).line,
            codec.encode(codec.updating(f"n{number}", self.filled(number), seq + 1)).line,
        )


NODES = Nodes()


def write_node(session: OpenSession, number: int) -> None:
    """Append a node and fill it in."""
    session.append(NODES.entered(number), advance_head=True)
    session.update(f"n{number}", **NODES.filled(number))


def lay_turn(session: OpenSession, turn: int) -> None:
    """The same records with two waits for the disk, and the commit: nothing to measure."""
    numbers = range(turn * TURN, (turn + 1) * TURN)
    begun = Turn(f"t{turn}", base=session.dag.head, subject=f"Turn number {turn}")
    session.write([begun, *(Tip(NODES.entered(number)) for number in numbers)])
    filled = (Fill(f"n{number}", NODES.filled(number)) for number in numbers)
    session.write([*filled, Ended(f"t{turn}", "completed")])


def write_turn(session: OpenSession, turn: int) -> None:
    """A whole turn, which is a commit."""
    session.begin_turn(Turn(f"t{turn}", base=session.dag.head, subject=f"Turn number {turn}"))
    for number in range(turn * TURN, (turn + 1) * TURN):
        write_node(session, number)
    session.end_turn(f"t{turn}", "completed")


# --- who is compared --------------------------------------------------------------------


class Raw:
    """The least that durability costs: write and fsync, into one file."""

    def __init__(self, folder: Path, size: int) -> None:
        self._fd = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lines = [NODES.lines(number) for number in range(min(size, 1000))]

    def block(self, turns: range) -> None:
        for turn in turns:
            for number in range(turn * TURN, (turn + 1) * TURN):
                for line in self._lines[number % len(self._lines)]:
                    os.write(self._fd, line)
                    os.fsync(self._fd)

    def lay(self, turns: range) -> None:
        for turn in turns:
            for number in range(turn * TURN, (turn + 1) * TURN):
                os.write(self._fd, b"".join(self._lines[number % len(self._lines)]))
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Journal:
    """The journal alone: no turn ends, so there is nothing to commit."""

    def __init__(self, folder: Path, size: int) -> None:
        store = SessionStore(folder / "journal")
        self._session = store.open(store.create_session("s"))

    def block(self, turns: range) -> None:
        for turn in turns:
            for number in range(turn * TURN, (turn + 1) * TURN):
                write_node(self._session, number)

    def lay(self, turns: range) -> None:
        for start in turns[::BLOCK]:
            numbers = range(start * TURN, min(start + BLOCK, turns.stop) * TURN)
            self._session.write([Tip(NODES.entered(number)) for number in numbers])
            self._session.write([Fill(f"n{number}", NODES.filled(number)) for number in numbers])

    def close(self) -> None:
        self._session.abandon()


class WithCommits:
    """The whole store: a turn every ten nodes, committed before the clock stops."""

    def __init__(self, folder: Path, size: int) -> None:
        self.store = SessionStore(folder / "commits")
        self.session = self.store.open(self.store.create_session("s"))

    def block(self, turns: range) -> None:
        for turn in turns:
            write_turn(self.session, turn)
        self.session.flush()

    def lay(self, turns: range) -> None:
        for turn in turns:
            lay_turn(self.session, turn)
        self.session.flush()

    def close(self) -> None:
        self.session.close()


CONTESTANTS = {"raw": Raw, "journal": Journal, "commits": WithCommits}
AGAINST_RAW = (
    ("journal", "append + update", 1.5),
    ("commits", "append + update, a commit every 10 nodes", 2.5),
)


# --- measuring --------------------------------------------------------------------------


class Progress:
    """Tells on stderr what is being done, and how long the rest takes if it goes on like that."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()

    def tell(self, doing: str, done: float) -> None:
        """*done*: the part of all that lies behind, 0 to 1, on a quiet machine."""
        left = ""
        if done > 0.02:
            left = f"; about {(time.monotonic() - self._began) * (1 / done - 1) / 60:.0f} min left"
        print(f"… {self._what}: {doing}{left}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Result:
    """A row of the table: *samples* of a measure whose median should be at most *goal*.

    *kind* and *nodes*: what sort of cost that is, and of a session of what size.
    """

    what: str
    unit: str
    samples: Sequence[float]
    goal: float | None = None
    kind: str = ""
    nodes: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median, from the order of the samples."""
        ordered, count = sorted(self.samples), len(self.samples)
        reach = int(0.98 * math.sqrt(count))
        middle = (count - 1) / 2
        low, high = math.floor(middle - reach), math.ceil(middle + reach)
        return ordered[max(low, 0)], ordered[min(high, count - 1)]

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        if self.median <= self.goal:
            return "met"
        return "missed" if self.interval[0] > self.goal else "within noise"

    def row(self) -> str:
        low, high = self.interval
        spread = f"{low:.2f}–{high:.2f}"
        goal = "" if self.goal is None else f"≤ {self.goal:.3g}"
        cells = [self.what, f"{self.median:.2f} {self.unit}", spread, goal, self.verdict]
        return f"| {' | '.join(cells)} |"


@dataclass(slots=True)
class Table:
    """All rows, as Markdown."""

    results: list[Result] = field(default_factory=list)

    def fill(self, results: Iterable[Result]) -> None:
        """Take *results* as they come."""
        self.results.extend(results)

    @property
    def missed(self) -> int:
        """How many goals are missed by more than noise."""
        return sum(result.verdict == "missed" for result in self.results)

    @property
    def text(self) -> str:
        return "\n".join([HEAD, *(result.row() for result in self.results)])


def race(runners: Mapping[str, Any], turns: range) -> dict[str, list[float]]:
    """Seconds that each of *runners* takes for each block of *turns*."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = list(runners)
    for start in turns[::BLOCK]:
        random.shuffle(order)
        for name in order:
            block = partial(runners[name].block, range(start, start + BLOCK))
            times[name].append(timed(block))
    return times


def side_by_side(folder: Path, size: int, rounds: int) -> Iterator[Result]:
    """All contestants write *size* nodes, block by block, *rounds* times."""
    times: dict[str, list[list[float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):
        with scratch(folder) as place:
            runners: dict[str, Any] = {n: make(place, size) for n, make in CONTESTANTS.items()}
            for name, taken in race(runners, range(size // TURN)).items():
                times[name].append(taken)
            for runner in runners.values():
                runner.close()
    per_node = 1000 / (BLOCK * TURN)
    raw = times["raw"]
    yield Result(f"{size} nodes: raw", "ms/node", [s * per_node for r in raw for s in r])
    for name, what, goal in AGAINST_RAW:
        ratios = [
            [s / r for s, r in zip(a, b, strict=True)]
            for a, b in zip(times[name], raw, strict=True)
        ]
        all_ratios = [x for r in ratios for x in r]
        yield Result(f"{size} nodes: {what}, against raw", "×", all_ratios, goal, "append", size)
        if size >= 1000:
            tenth = max(len(ratios[0]) // 10, 1)
            growth = [statistics.median(r[-tenth:]) / statistics.median(r[:tenth]) for r in ratios]
            title = f"{size} nodes: {what}: growth, last 10 % / first"
            yield Result(title, "×", growth, 1.2, "growth", size)


def commits(folder: Path, size: int) -> Iterator[Result]:
    """What a single commit takes in a session of *size* nodes."""
    with scratch(folder) as place:
        runner = WithCommits(place, size)
        runner.lay(range(size // TURN))
        yield from single_commits(runner, place, size)
        runner.close()


def single_commits(
    runner: WithCommits, place: Path, size: int, count: int = MEASURED
) -> Iterator[Result]:
    """What a single commit takes after *size* nodes: *count* more turns, one by one."""
    fsyncs, made, taken = [], [], []
    for turn in range(size // TURN, size // TURN + count):
        write_turn(runner.session, turn)
        taken.append(timed(runner.session.flush) * 1000)
        fsyncs.append(one_fsync(place) * 1000)
        made.append(timed(lambda file=place / f"made-{turn}": file.touch(0o600)) * 1000)
    fsync = statistics.median(fsyncs)
    yield Result(f"{size} nodes: one fsync", "ms", fsyncs)
    yield Result(f"{size} nodes: one file made, of which a commit makes four", "ms", made)
    # 6 ms is meant for a disk that takes 0.3 ms; on a slower or busier one, as many fsyncs.
    goal = max(6.0, 20 * fsync)
    yield Result(f"{size} nodes: a turn's commit", "ms", taken, goal, "commit", size)
    p95 = sorted(taken)[int(len(taken) * 0.95)]
    yield Result(f"{size} nodes: a turn's commit, 95th percentile", "ms", [p95])


def one_fsync(folder: Path) -> float:
    """Seconds for appending a little and making it durable."""
    with (folder / "probe").open("ab", buffering=0) as file:
        file.write(b"x" * 1000)
        return timed(lambda: os.fsync(file.fileno()))


def loading(folder: Path, size: int, rounds: int) -> Iterator[Result]:
    """Reading a session of *size* nodes, and what it takes on disk."""
    with scratch(folder) as place:
        runner = WithCommits(place, size)
        runner.lay(range(size // TURN))
        runner.close()
        yield from reading(place / "commits", size, max(rounds, 3) * 3)


def reading(root: Path, size: int, rounds: int) -> Iterator[Result]:
    """Reading what `WithCommits` wrote, at least *size* nodes, and what it takes on disk."""
    store, files = SessionStore(root), sorted(root.glob("s/history/*/*"))
    text = sum(file.stat().st_size for file in files)
    ratios = []
    for _ in range(rounds):
        plain = timed(lambda: [parse(file) for file in files])
        ratios.append(timed(lambda: store.load("s")) / plain)
    yield Result(f"{size} nodes: load, against json.loads", "×", ratios, 3, "load", size)
    found = [node.id for node in store.load("s")]
    in_order = len(found) >= size and found == [f"n{n}" for n in range(len(found))]
    yield Result(f"{size} nodes: out of order", "", [0.0 if in_order else 1.0], 0)
    before = disk_usage(root) / text
    yield Result(f"{size} nodes: disk, against the text of all records", "×", [before])
    if shutil.which("git"):
        store.pack("s")
        after = disk_usage(root) / text
        yield Result(f"{size} nodes: disk after gc", "×", [after], 2, "disk", size)


def searching(root: Path, size: int) -> Iterator[Result]:
    """Finding words in the *size* messages of the session that `WithCommits` wrote."""
    index = SearchIndex(root)
    first = timed(index.refresh)
    yield Result(f"{size} messages: to index them all, for the first search", "s", [first])
    words = NODES.words
    for what, query in (
        ("a word", words[0]),
        ("two words", " ".join(words[:2])),
        ("the first letters of one", words[0][:3]),
        ("a word that is nowhere", "nowhere"),
    ):
        taken = [timed(partial(index.search, query)) * 1000 for _ in range(15)]
        yield Result(f"{size} messages: a search for {what}", "ms", taken, 50, "search", size)


def long_session(
    folder: Path, size: int, progress: Progress, measured: int = MEASURED
) -> Iterator[Result]:
    """A session that is too long for all of it to be measured, side by side with raw writes.

    All contestants write all of it; the first, the middle and the last *measured* turns are
    measured.  The same session then is committed to, read, packed and searched.
    """
    turns = size // TURN
    places = [range(at, at + measured) for at in (0, turns // 2, turns - measured)]
    with scratch(folder) as place:
        runners: dict[str, Any] = {name: make(place, size) for name, make in CONTESTANTS.items()}
        found: list[dict[str, list[float]]] = []
        laid = 0
        for those in places:
            while laid < those.start:
                several = range(laid, min(laid + 500, those.start))
                progress.tell(f"{laid * TURN:,} of {size:,} nodes", 0.45 * laid / turns)
                for runner in runners.values():
                    runner.lay(several)
                laid = several.stop
            progress.tell(f"measuring at {laid * TURN:,} nodes", 0.45 * laid / turns)
            found.append(race(runners, those))
            laid = those.stop
        yield from _in_three_places(size, measured * TURN, found)
        progress.tell("single commits", 0.45)
        yield from single_commits(runners["commits"], place, size, measured)
        for name in list(runners):
            runners.pop(name).close()
        progress.tell("reading and packing", 0.48)
        yield from reading(place / "commits", size, 3)
        progress.tell("searching", 0.75)
        yield from searching(place / "commits", size)


def _in_three_places(
    size: int, count: int, found: Sequence[Mapping[str, Sequence[float]]]
) -> Iterator[Result]:
    """What was *found* at the start, in the middle and at the end, *count* nodes each."""
    per_node = 1000 / (BLOCK * TURN)
    raw = [seconds * per_node for times in found for seconds in times["raw"]]
    yield Result(f"{size} nodes: raw", "ms/node", raw)
    for name, what, goal in AGAINST_RAW:
        start, middle, end = (
            [mine / least for mine, least in zip(times[name], times["raw"], strict=True)]
            for times in found
        )
        title = f"{size} nodes: {what}, against raw, the last {count}"
        yield Result(title, "×", end, goal, "append", size)
        for where, late in (("middle", middle), ("last", end)):
            growth = [after / before for after, before in zip(late, start, strict=True)]
            title = f"{size} nodes: {what}: growth, the {where} {count} against the first"
            yield Result(title, "×", growth, 1.2, "growth", size)


def parse(file: Path) -> list[Any]:
    """The least that reading costs: every line through json.loads."""
    with file.open("rb") as lines:
        return [json.loads(line) for line in lines]


def listing(folder: Path, count: int) -> Iterator[Result]:
    """A list of *count* sessions."""
    with scratch(folder) as place:
        store = SessionStore(place)
        session = store.open(store.create_session("s0", title="One of many"))
        write_turn(session, 0)
        session.close()
        meta = (place / "s0" / "meta.json").read_bytes()
        for number in range(1, count):
            (place / f"s{number}").mkdir()
            (place / f"s{number}" / "meta.json").write_bytes(meta)
        taken = [timed(lambda: store.sessions(limit=50)) for _ in range(7)]
        yield Result(f"a list of {count} sessions", "s", taken, 0.3, "list", count)


# --- tools ------------------------------------------------------------------------------


def timed(call: Callable[[], Any]) -> float:
    """Seconds that *call* takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def disk_usage(folder: Path) -> int:
    """Bytes that a folder takes, whole blocks and folders included."""
    return sum(path.lstat().st_blocks * 512 for path in [folder, *folder.rglob("*")])


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder on the disk that is measured."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="store-") as place:
        yield Path(place)


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and say whether every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    full = ",100000" if os.environ.get("FULL") == "1" else ""
    parser.add_argument("--sizes", default=f"100,1000,10000{full}", help="nodes in a session")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on the disk to measure")
    chosen = parser.parse_args(arguments)
    sizes = [int(size) for size in chosen.sizes.split(",")]
    print(
        f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}\n"
    )
    print(HEAD)
    missed = 0
    for result in measure(chosen.folder, sizes, chosen.rounds):
        print(result.row(), flush=True)
        missed += result.verdict == "missed"
    print(f"\n{missed} goals missed" if missed else "\nevery goal met")
    return 1 if missed else 0


def measure(folder: Path, sizes: Sequence[int], rounds: int) -> Iterator[Result]:
    """All rows."""
    short = [size for size in sizes if size < LONG]
    # Before the others leave removed files behind: ext4 makes new ones slowly for minutes then.
    for size in sorted({*short[:1], *short[-1:]}):
        yield from commits(folder, size)
    for size in short:
        yield from side_by_side(folder, size, max(rounds, 2000 // size) if size < 5000 else 1)
    if short:
        yield from loading(folder, short[-1], rounds)
    for size in sizes:
        if size >= LONG:
            yield from long_session(folder, size, Progress(f"a session of {size:,} nodes"))
    yield from listing(folder, 2000)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
