"""What is measured: the rows, their goals, and where the time goes when a goal is missed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SAMPLED: Final = "Milliseconds, from looks at the threads, two thousand a second"
KILOBYTES: Final = "KB on disk, whole blocks counted"


@dataclass(frozen=True)
class Cause:
    """Why a goal is missed, whenever it is.

    Attributes:
        reason: where the time goes, in words that hold whatever the numbers of a run are.
        profiler: what of our script says it in numbers; empty: nothing does.
        parameters: what it is given.
        unit: what its numbers are.
    """

    reason: str = ""
    profiler: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unit: str = SAMPLED


NO_CAUSE: Final = Cause()


@dataclass(frozen=True)
class Scenario:
    """A row of the table.

    Attributes:
        ask: the scenario's name in the scripts, and its parameters.
        value: what of the answer is the row's number.
        limit: of ours; in the unit of the row.  None: there is no goal.
        against: the limit's own row, measured in the same rounds; the goal is a ratio then.
        reached: the key of the answer that says how much was done; less than was asked for, when
            the time was up.
        most_rounds: it is done no more often than that: counts are the same every time, and some
            take minutes.
        cause: of a missed goal.
    """

    key: str
    title: str
    unit: str
    ask: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    value: Callable[[Mapping[str, Any]], float | None] = lambda answer: answer["ms"]
    limit: float | None = None
    against: bool = False
    reached: str = ""
    most_rounds: int = 99
    folder: bool = True
    cause: Cause = NO_CAUSE


def _second_difference(answer: Mapping[str, Any]) -> float:
    """How much the second half of the turns added, against the first: 1 is linear, 3 quadratic."""
    first, middle, last = answer["bytes"]
    return (last - middle) / (middle - first) / 2


_DISK: Final = Cause(
    "what is said is on disk twice, as records that a person can read and, compressed, in git; "
    "and every file takes whole blocks",
    "profile_disk",
    {"nodes": 200},
    KILOBYTES,
)


def growth(nodes: int) -> Cause:
    """Of later nodes that take longer than those before, in a session of *nodes*."""
    return Cause(
        "a record is put at the end of a file and a commit renews the trees of the folder it "
        "touched, so neither reads what lies before; now and then a commit merges the small packs "
        "of those before it. What differs beyond that is the disk at two moments",
        "profile_growth",
        {
            "nodes": nodes,
            "some": max(nodes // 100, 1) * 10 if nodes < 20_000 else 1_000,
            "sessions": max(1, 2_000 // nodes),
        },
    )


def nothing(nodes: int) -> Cause:
    """Of a call that does nothing and takes long, in a session of *nodes*."""
    return Cause(
        "a call is two records: the node is made and checked against the graph, made into JSON "
        "and written, at its start and at its end",
        "profile_noop",
        {"nodes": nodes, "calls": 400},
    )


LOAD_EXTENSION: Final = Cause(
    "the modules that a kernel has not loaded yet are found, read and run, nearly all of them "
    "op_jupyter's own: IPython, traitlets and ipykernel are there before, and what is heavy (the "
    "providers' SDKs, ipywidgets, git) waits until it is needed. What they run is, for the larger "
    "part, Python making their dataclasses and compiling their patterns",
)
CLICK: Final = Cause(
    "a click is a message of the page; the thread of the cell that waits for the turn reads it, "
    "stores the decision, with a wait for the disk, and starts the tool"
)
FRAME: Final = Cause(
    "a frame is all that the page does when a node comes: the graph's own script, the layout and "
    "the painting, which the browser does with the processor where there is no graphics card"
)
MESSAGES: Final = Cause(
    "text waits for more of it before the page is told, for two dozen pieces or a second; a "
    "service that sends smaller pieces, or takes longer, causes more messages"
)
LESSON: Final = Cause(
    "pytest, a kernel and the extension start before the first cell, and every cell runs again"
)


def of_store(kind: str, nodes: int) -> Cause:
    """Of a goal that the store misses beside raw writes, by the *kind* of row."""
    journal = {"nodes": min(nodes, 1_000), "sessions": max(1, 1_000 // max(nodes, 1))}
    long = min(nodes, 10_000)  # longer ones take minutes to be written, and show the same
    appended = Cause(
        "raw writes wait for the disk twice a node, and so do we; what we take beyond that is "
        "making the node, checking it against the graph, and its JSON; with commits, also "
        "git's objects and the waits until they and the ref are on disk, which come while the "
        "next nodes wait for the same disk",
        "profile_journal",
        journal,
    )
    match kind:
        case "append":
            return appended
        case "growth":
            return growth(nodes)
        case "commit":
            return Cause(
                "a commit waits until its objects, the folder they are in and the ref are on "
                "disk, one after the other, and makes, renames and removes the files for that "
                "(`store.files`), now and then to merge small packs; the rest is hashing and "
                "compressing",
                "profile_commit",
                {"nodes": long, "commits": 100},
            )
        case "load":
            return Cause(
                "beside the JSON, each record is checked and made into a node of the graph",
                "profile_load",
                {"nodes": long, "times": 3},
            )
        case "disk":
            return Cause(_DISK.reason, _DISK.profiler, {"nodes": long}, KILOBYTES)
        case "list":
            return Cause(
                "the `meta.json` of every session is opened and read (`store.files`), whatever "
                "part of the list is shown: nothing else knows the newest",
                "profile_list",
                {"sessions": 2_000, "times": 5},
            )
        case "search":
            return Cause(
                "the index is asked, and before that compared with the journals; SQLite then "
                "ranks the messages that hold the words, or takes the newest of very many",
                "profile_search",
                {"nodes": long, "times": 20},
            )
    return NO_CAUSE


def scenarios() -> list[Scenario]:
    """The rows."""
    rows = [
        Scenario("import", "import what a program needs", "ms", "import", folder=False),
    ]
    for nodes in (100, 1_000):
        rows += _append(nodes, seconds=8, most_rounds=99)
    rows += [
        Scenario(
            "load",
            "open 200 nodes",
            "ms",
            "load",
            {"nodes": 200},
            limit=3.0,
            against=True,
            cause=Cause(
                "whatever the size, the folder is looked through and git is asked for what the "
                "folder may lack, and the limit's text is in memory already; `load` below, of "
                "10,000 nodes in files on both sides, is what the goal is about",
                "profile_load",
                {"nodes": 200, "times": 40},
            ),
        ),
        Scenario(
            "size",
            "bytes on disk against text, 200 turns",
            "×",
            "size",
            {"turns": [50, 100, 200]},
            value=lambda answer: answer["bytes"][-1] / answer["text"][-1],
            limit=2.0,
            most_rounds=1,
            cause=_DISK,
        ),
        Scenario(
            "slope",
            "… each of the last 100 turns against each of the 50 before",
            "×",
            "size",
            {"turns": [50, 100, 200]},
            value=_second_difference,
            limit=1.1,
            most_rounds=1,
            cause=_DISK,
        ),
        Scenario(
            "turn",
            "a turn beyond the bare request",
            "ms",
            "turn",
            {"turns": 40},
            limit=5.0,
            cause=Cause(
                "two waits for the disk (the start with the call and the name of its file; the "
                "answer with the end); asking from a loop in the background, with the service's "
                "async client instead of the other; the rest is Python around the call, most of "
                "it making the request, its hash, and two records",
                "profile_turn",
                {"turns": 40, "sessions": 8},
            ),
        ),
        Scenario("fork", "fork at the middle of 200 and go on", "ms", "fork", {"nodes": 200}),
        *_noop(50),
        *_noop(5_000),
        _memory("memory", turns=100, seconds=20, most_rounds=99),
        Scenario(
            "fan-out",
            "200 calls of 20 ms over 4 workers, against the ideal",
            "×",
            "fan_out",
            {"calls": 200, "workers": 4, "seconds": 0.02},
            value=lambda answer: answer["ratio"],
            limit=1.5,
            cause=Cause(
                "four workers share the processors with the process that stores what they send "
                "home: what a call takes of the processors, below, comes on top of the time that "
                "it waits, whenever all of them are busy",
                "profile_fan_out",
                {"calls": 200, "workers": 4, "seconds": 0.02},
            ),
        ),
    ]
    return rows


def long_scenarios() -> list[Scenario]:
    """The rows that take minutes.  Most peers would take hours: time ends them."""
    return [
        *_append(10_000, seconds=30, most_rounds=2),
        *_append(100_000, seconds=60, most_rounds=1, judged=False),
        _memory("memory-long", turns=1_000, seconds=60, most_rounds=1),
    ]


def _append(nodes: int, *, seconds: float, most_rounds: int, judged: bool = True) -> list[Scenario]:
    """What a node takes, and whether later ones take longer.

    A single round is not *judged*: minutes lie between ours and the limit.  The store beside raw
    writes has the same goals, and writes both at once.
    """
    asked = {"nodes": nodes, "seconds": seconds}
    title = f"append + update, {nodes:,} nodes"
    return [
        Scenario(
            f"append-{nodes}",
            title,
            "ms a node",
            "append",
            asked,
            limit=2.5 if judged else None,
            against=True,
            reached="nodes",
            most_rounds=most_rounds,
            cause=Cause(
                "the first nodes make the session, its folder, lock and repository, and the first "
                "commit loads what it needs, as the next row shows",
                "profile_append",
                {"nodes": nodes, "sessions": max(1, 2_000 // nodes)},
            ),
        ),
        Scenario(
            f"growth-{nodes}",
            "… last tenth against first",
            "×",
            "append",
            asked,
            value=lambda answer: answer["growth"],
            limit=1.2 if judged else None,
            most_rounds=most_rounds,
            cause=growth(nodes),
        ),
    ]


def _memory(key: str, *, turns: int, seconds: float, most_rounds: int) -> Scenario:
    return Scenario(
        key,
        f"memory a turn, over {turns:,} turns",
        "KB",
        "memory",
        {"warm": 20, "turns": turns, "seconds": seconds},
        value=lambda answer: answer["kb"],
        reached="turns",
        most_rounds=most_rounds,
    )


def _noop(nodes: int) -> list[Scenario]:
    """The whole time, fsyncs included, and the processor's alone."""
    title = f"a function that does nothing, {nodes:,} nodes"
    return [
        Scenario(f"noop-{nodes}", title, "ms", "noop", {"nodes": nodes}),
        Scenario(
            f"noop-cpu-{nodes}",
            "… of which the processor's",
            "ms",
            "noop",
            {"nodes": nodes},
            value=lambda answer: answer.get("cpu_ms"),
            limit=1.0,
            cause=nothing(nodes),
        ),
    ]
