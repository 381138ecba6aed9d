"""What every system is given to do; standard library only, as each has its own environment."""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODEL = "claude-sonnet-5-5"
TURN = 10
"""Nodes between two commits, where a system has commits."""


class Texts:
    """A question of about 1.5 KB and an answer of about 3.5 KB, the same ones for everybody."""

    def __init__(self) -> None:
        chance = random.Random(7)
        words = ["".join(chance.choices("abcdefghijklmnop", k=1 + n % 8)) for n in range(3000)]
        self._asked = [" ".join(chance.choices(words, k=270)) for _ in range(50)]
        self._said = [" ".join(chance.choices(words, k=640)) for _ in range(50)]

    def asked(self, number: int) -> str:
        """The question of node *number*."""
        return f"{number}: {self._asked[number % 50]}"

    def said(self, number: int) -> str:
        """The answer of node *number*."""
        return f"{number}: {self._said[number % 50]}"

    def size(self, nodes: int) -> int:
        """Bytes of all questions and answers of the first *nodes*."""
        return sum(len(self.asked(n)) + len(self.said(n)) for n in range(nodes))


def timed_nodes(write: Callable[[int], None], nodes: int, seconds: float) -> dict[str, Any]:
    """Write nodes 0, 1, ... until *nodes* are there or *seconds* are over.

    Returns the milliseconds a node took (mean, since commits come every ten) and the last tenth
    against the first.
    """
    blocks: list[float] = []
    began = time.perf_counter()
    for start in range(0, nodes, TURN):
        at = time.perf_counter()
        for number in range(start, start + TURN):
            write(number)
        blocks.append((time.perf_counter() - at) / TURN)
        if time.perf_counter() - began > seconds:
            break
    tenth = max(1, len(blocks) // 10)
    return {
        "ms": statistics.fmean(blocks) * 1e3,
        "growth": statistics.median(blocks[-tenth:]) / statistics.median(blocks[:tenth]),
        "nodes": len(blocks) * TURN,
    }


def interleaved(bare: Callable[[int], Any], turn: Callable[[int], Any], turns: int) -> Any:
    """Milliseconds that *turn* takes beyond *bare*, the same request without the system.

    The two take turns, so that whatever else the machine does hits both.
    """
    bare(0), turn(0)  # connections, imports
    differences = []
    for number in range(1, turns + 1):
        at = time.perf_counter()
        bare(number)
        between = time.perf_counter()
        turn(number)
        differences.append(time.perf_counter() - between - (between - at))
    return {"ms": statistics.median(differences) * 1e3}


def median_ms(call: Callable[[], Any], rounds: int) -> float:
    """The median of *rounds* calls, in milliseconds."""
    taken = []
    for _ in range(rounds):
        at = time.perf_counter()
        call()
        taken.append(time.perf_counter() - at)
    return statistics.median(taken) * 1e3


def bytes_below(folder: Path) -> int:
    """Bytes of all files, as their lengths say."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(turn: Callable[[int], Any], warm: int, turns: int, seconds: float) -> Any:
    """Kilobytes that each of *turns* turns, or as many as *seconds* allow, adds after *warm*."""
    for number in range(warm):
        turn(number)
    before, began, done = resident_bytes(), time.perf_counter(), 0
    while done < turns and time.perf_counter() - began < seconds:
        turn(warm + done)
        done += 1
    return {"kb": (resident_bytes() - before) / done / 1024, "turns": done}


def sizes(write: Callable[[int], Any], folder: str, turns: list[int]) -> dict[str, Any]:
    """Bytes on disk, and of the text alone, when so many turns are written."""
    texts, found, done = Texts(), [], 0
    for count in turns:
        for number in range(done, count):
            write(number)
        done = count
        found.append(bytes_below(Path(folder)))
    return {"bytes": found, "text": [texts.size(count) for count in turns]}


def talk_on(turn: Callable[[int], Any], turns: int) -> dict[str, Any]:
    """Turns, then nothing: the caller kills this process."""
    for number in range(turns):
        turn(number)
    print("talked", flush=True)
    time.sleep(600)
    return {}


def reopened(turn_in: Callable[[str], Callable[[int], Any]], folder: str, turns: int) -> Any:
    """Open what is in *folder* and ask on, in a process that has talked before."""
    other = Path(f"{folder}-other")
    other.mkdir()
    turn_in(str(other))(0)
    result: dict[str, Any] = {}
    with clock(result):
        turn_in(folder)(turns)
    return result


class Service:
    """The model, asked by its own SDK."""

    def __init__(self) -> None:
        import anthropic

        self._client, self._texts = anthropic.Anthropic(), Texts()
        self._talk: list[Any] = []

    def __call__(self, messages: list[Any]) -> dict[str, str]:
        said = self._client.messages.create(model=MODEL, max_tokens=1000, messages=messages)
        return {"role": "assistant", "content": said.content[0].text}

    def bare(self, number: int) -> None:
        """The request of a turn, all earlier turns in it, without any system around it."""
        self._talk.append({"role": "user", "content": self._texts.asked(number)})
        self._talk.append(self(self._talk))

    def streamed(self, number: int) -> None:
        """The same, for systems that stream."""
        self._talk.append({"role": "user", "content": self._texts.asked(number)})
        events = self._client.messages.create(
            model=MODEL, max_tokens=1000, messages=self._talk, stream=True
        )
        said = "".join(e.delta.text for e in events if e.type == "content_block_delta")
        self._talk.append({"role": "assistant", "content": said})


@contextmanager
def clock(result: dict[str, Any], key: str = "ms") -> Iterator[None]:
    """Put what the block took, in milliseconds, into *result*."""
    at = time.perf_counter()
    yield
    result[key] = (time.perf_counter() - at) * 1e3


def main(scenarios: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Run the scenario that the command line names, and print what it measured as JSON."""
    name, parameters = sys.argv[1], json.loads(sys.argv[2])
    if name not in scenarios:
        print(json.dumps({"not_offered": True}))
        return
    print("\n" + json.dumps(scenarios[name](**parameters)), flush=True)
