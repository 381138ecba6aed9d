"""Compare with peers: one command, one run, ratios anyone can check.

    python benchmarks/peers/compare.py [--full | --long] [--rounds 5] [--only append] [--out FOLDER]

*--only*: scenarios of ``systems/``, or ``resume``, ``cell``, ``click``, ``graph``, ``lessons``,
``store``.
*--full*: the long sessions, too; *--long*: nothing else.  They have a page of their own, which
stays as it is when the others are measured again.

Each system runs in an environment and in processes of its own, all of the same Python.  A round
asks every system once; rounds alternate in order (A B C, C B A, ...), so that whatever else the
machine does hits all alike.  Prints a Markdown table and, with ``--out docs``, writes
``benchmarks.md`` and ``benchmarks.json`` there, and README's table from them; of the long sessions
``benchmarks-long.md`` and ``benchmarks-long.json``.  Exits with 1 when a goal of ours is missed by
all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = Path(__file__).resolve().parent / "systems"
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks"), str(SYSTEMS.parent)]

import cells  # noqa: E402
import lessons  # noqa: E402
import readme_table  # noqa: E402
import store as beside_raw  # noqa: E402
from kernel.clicks import from_click_to_start  # noqa: E402
from kernel.harness import running_kernel_of  # noqa: E402
from views.in_page import browser_page, has_browser, painted_ms  # noqa: E402

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, ServiceRules, text  # noqa: E402
from op_jupyter.testing.message_stream import events as stream_events  # noqa: E402
from tests.support.prepare import KERNELS, prepare_venv  # noqa: E402

PATIENCE = 600
STREAM_TOKENS = 2_000
EVENT_SECONDS = 0.001


@dataclass(frozen=True)
class System:
    """A contestant.

    Attributes:
        script: what speaks for it, in ``systems/``.
        requirements: what its environment holds.
        durability: what is safe when its call returns.
        cell: how it is loaded and asked in a notebook; empty: it has no magic.
    """

    key: str
    title: str
    script: str
    requirements: tuple[str, ...]
    durability: str
    cell: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return KERNELS / f"bench-{self.key}" / "bin" / "python"


BARE = System("op-jupyter", "limit", "bare.py", (), "write + fsync of the same bytes")
SYSTEMS_ALL = (
    System(
        "op-jupyter",
        "op-jupyter",
        "op_jupyter_store.py",
        (f"-e{ROOT}",),
        "each record written and fsynced; a git commit per turn, made in the process",
        (
            "%load_ext openprogram",
            '%config AgentMagics.provider = "anthropic"',
            '%config AgentMagics.model = "claude-sonnet-5-5"',
            "%%agent --tools none\n{prompt}",
        ),
    ),
    System(
        "openprogram",
        "openprogram 0.5.0",
        "openprogram_store.py",
        ("openprogram==0.5.0",),
        "files renamed, no fsync; a git commit per turn, by the program `git`",
    ),
    System(
        "langgraph",
        "langgraph + sqlite",
        "langgraph_sqlite.py",
        ("langgraph>=1,<2", "langgraph-checkpoint-sqlite>=3,<4", "anthropic>=2.14,<3"),
        "SQLite, WAL, synchronous=FULL: a transaction per checkpoint",
    ),
    System(
        "burr",
        "apache-burr + sqlite",
        "burr_sqlite.py",
        ("apache-burr>=0.43,<0.44", "anthropic>=2.14,<3"),
        "SQLite, rollback journal, synchronous=FULL: a transaction per action",
    ),
    System(
        "jupyter-ai",
        "jupyter-ai magics",
        "",
        ("jupyter-ai-magic-commands==0.0.4", "ipykernel<8"),
        "nothing is kept",
        (
            "%load_ext jupyter_ai_magic_commands",
            "%ai alias bench anthropic/claude-sonnet-5-5 --api-base {url}",
            "%%ai bench\n{prompt}",
        ),
    ),
)
OURS = SYSTEMS_ALL[0]


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
        reason: where the time goes, for the page, as long as the goal is missed.
        profile: what `profile_<ask>` of ours is given then, to say it in numbers.
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
    reason: str = ""
    profile: Mapping[str, Any] = field(default_factory=dict)


def _second_difference(answer: Mapping[str, Any]) -> float:
    """How much the second half of the turns added, against the first: 1 is linear, 3 quadratic."""
    first, middle, last = answer["bytes"]
    return (last - middle) / (middle - first) / 2


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
            reason="a folder is looked through and a lock taken whatever the size; `load` below, "
            "of 10,000 nodes, is what the goal is about",
            profile={"nodes": 200, "times": 40},
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
        ),
        Scenario(
            "slope",
            "… 100 more turns against the 50 before: 1 is linear",
            "×",
            "size",
            {"turns": [50, 100, 200]},
            value=_second_difference,
            limit=1.1,
            most_rounds=1,
        ),
        Scenario(
            "turn",
            "a turn beyond the bare request",
            "ms",
            "turn",
            {"turns": 40},
            limit=5.0,
            reason="two waits for the disk (the start with the call and the name of its file; the "
            "answer with the end); a millisecond for asking from a loop in the background, with "
            "the service's async client instead of the other; the rest is Python around the call, "
            "most of it making the request, its hash, and two records",
            profile={"turns": 40, "sessions": 8},
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
            reason="four workers share the processors with the process that stores what they "
            "send home: about 3 ms of processor time a call in a worker, 1.5 ms at home",
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
            reason="the first nodes make the session, its folder, lock and repository, and the "
            "first commit loads what it needs, as the next row shows; the store beside raw "
            "writes, below, begins after that",
            profile={"nodes": nodes, "sessions": max(1, 2_000 // nodes)},
        ),
        Scenario(
            f"growth-{nodes}",
            f"… last tenth against first, {nodes:,} nodes",
            "×",
            "append",
            asked,
            value=lambda answer: answer["growth"],
            limit=1.2 if judged else None,
            most_rounds=most_rounds,
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
        ),
    ]


# --- asking a system --------------------------------------------------------------------


class Asker:
    """Runs one scenario of one system in a process of its own."""

    def __init__(self, url: str, work: Path) -> None:
        self._work = work
        self._home = work / "home"
        self._home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": API_KEY,
            "OPENPROGRAM_HOME": str(self._home / "op"),
        }

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder, gone afterwards: some systems write gigabytes."""
        made = Path(tempfile.mkdtemp(dir=self._work))
        try:
            yield made
        finally:
            shutil.rmtree(made)

    def start(
        self, system: System, ask: str, parameters: Mapping[str, Any]
    ) -> subprocess.Popen[str]:
        """The process that does it."""
        argv = [str(system.python), str(SYSTEMS / system.script), ask, json.dumps(parameters)]
        return subprocess.Popen(
            argv, env=self.env, stdout=subprocess.PIPE, stderr=self._errors(), text=True
        )

    def _errors(self) -> IO[str]:
        """Where its complaints go: shown when it fails."""
        return (self._work / "errors").open("w", encoding="utf-8")

    def profile(self, scenario: Scenario) -> dict[str, dict[str, float]]:
        """Milliseconds of ours by where they go."""
        asked = replace(scenario, ask=f"profile_{scenario.ask}", parameters=scenario.profile)
        answer = self.ask(OURS, asked)
        assert answer is not None
        return answer

    def fail(self, system: System, what: str) -> NoReturn:
        """Say what it complained about, and give up."""
        said = (self._work / "errors").read_text(encoding="utf-8")[-4_000:]
        raise RuntimeError(f"{system.title} failed at {what}:\n{said}")

    def ask(self, system: System, scenario: Scenario) -> dict[str, Any] | None:
        """What it measured; None: it does not offer that."""
        with self.folder() as folder:
            where = {"folder": str(folder)} if scenario.folder else {}
            running = self.start(system, scenario.ask, {**scenario.parameters, **where})
            said, _ = running.communicate(timeout=PATIENCE)
        if running.returncode:
            self.fail(system, scenario.key)
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        return None if answer.get("not_offered") else answer


def resumed(asker: Asker, system: System, fake: FakeMessages, turns: int) -> str | float | None:
    """Milliseconds to open what a killed process left and to get the next answer.

    The model must be sent all earlier turns; if it is not, the words say how many it was.
    """
    with asker.folder() as folder:
        where = {"folder": str(folder), "turns": turns}
        talking = asker.start(system, "talk", where)
        assert talking.stdout is not None
        for line in talking.stdout:
            if "not_offered" in line:
                talking.wait()
                return None
            if "talked" in line:
                break
        talking.send_signal(signal.SIGKILL)
        talking.wait()
        fake.reset()
        going_on = asker.start(system, "go_on", where)
        said, _ = going_on.communicate(timeout=PATIENCE)
        if going_on.returncode:
            asker.fail(system, "going on")
        sent = json.dumps(fake.requests[-1].body["messages"])
        known = sum(f'"{number}: ' in sent for number in range(turns))
    if known < turns:
        return f"the model was sent {known} of {turns} earlier turns"
    return float(json.loads(said.splitlines()[-1])["ms"])


# --- the run ----------------------------------------------------------------------------


@dataclass
class Row:
    """A line of the results; *values* by system, *reached* by those whose time was up."""

    title: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    limit: float | None = None
    against: bool = False
    reason: str = ""
    key: str = ""
    profile: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, system: str, value: float | str | None) -> None:
        if isinstance(value, str):
            self.words[system] = value
        elif value is not None:
            self.values.setdefault(system, []).append(value)

    def missed(self) -> bool:
        """Whether ours is beyond its goal in every round."""
        if self.limit is None or OURS.title not in self.values:
            return False
        return min(self.ours()) > self.limit

    def ours(self) -> list[float]:
        """Our numbers, as ratios where the goal is one."""
        mine = self.values[OURS.title]
        if not self.against:
            return mine
        return [a / b for a, b in zip(mine, self.values[BARE.title], strict=True)]


def _in_turn(systems: Sequence[System], rounds: int) -> Iterator[System]:
    for number in range(rounds):
        yield from systems if number % 2 == 0 else reversed(systems)


def asked_of_all(asker: Asker, wanted: Sequence[Scenario], rounds: int) -> list[Row]:
    """The rows of *wanted*; what several of them ask for is asked for once."""
    rows: list[Row] = []
    answers: dict[str, list[tuple[str, dict[str, Any] | None]]] = {}
    for scenario in wanted:
        asked = json.dumps([scenario.ask, dict(scenario.parameters)])
        if asked not in answers:
            systems = [s for s in SYSTEMS_ALL if s.script]
            if scenario.against:
                systems = [BARE, *systems]
            times = min(rounds, scenario.most_rounds)
            say(scenario.title + _at_most(scenario, len(systems) * times))
            answers[asked] = [(s.title, asker.ask(s, scenario)) for s in _in_turn(systems, times)]
        row = Row(
            scenario.title,
            scenario.unit,
            limit=scenario.limit,
            against=scenario.against,
            reason=scenario.reason,
            key=scenario.key,
        )
        for title, answer in answers[asked]:
            row.add(title, None if answer is None else scenario.value(answer))
            if answer is not None and scenario.reached:
                done = answer[scenario.reached]
                if done < scenario.parameters[scenario.reached]:
                    row.reached[title] = min(done, row.reached.get(title, done))
        if row.missed() and scenario.profile:
            row.profile = asker.profile(scenario)
        rows.append(row)
    return rows


def _at_most(scenario: Scenario, times: int) -> str:
    """How long a scenario may take, where there is a limit."""
    seconds = scenario.parameters.get("seconds") if scenario.reached else None
    return "" if seconds is None else f": at most {times * seconds / 60:.0f} min"


def measure(asker: Asker, fake: FakeMessages, *, rounds: int, only: Sequence[str]) -> list[Row]:
    """All rows, in order."""
    rows = asked_of_all(asker, [s for s in scenarios() if not only or s.ask in only], rounds)
    if not only or "noop" in only:
        early, late = (next(r for r in rows if r.key == f"noop-cpu-{n}") for n in (50, 5_000))
        flat = grown("… its processor time at 5,000 nodes against 50", late, early, 1.2)
        rows.insert(rows.index(late) + 1, flat)
    if not only or "resume" in only:
        say("reopen after a kill")
        row = Row("reopen after a kill and get the next answer, 50 turns", "ms")
        for system in _in_turn([s for s in SYSTEMS_ALL if s.script], rounds):
            row.add(system.title, resumed(asker, system, fake, 50))
        rows.append(row)
    if not only or "cell" in only:
        rows += streamed(asker, fake, rounds)
    if not only or "click" in only:
        rows.append(clicked(asker, fake, rounds))
    if not only or "graph" in only:
        rows += graphs(rounds)
    if not only or "lessons" in only:
        rows += replayed_lessons()
    return rows


def replayed_lessons() -> list[Row]:
    """One row a lesson; twice, for none of them is near its goal."""
    say("the lessons")
    rows: dict[str, Row] = {}
    for name, seconds in [*lessons.replayed(), *lessons.replayed()]:
        row = Row(f"the lesson {name}, replayed by nbval", "s", limit=lessons.LIMIT_SECONDS)
        rows.setdefault(name, row).add(OURS.title, seconds)
    return list(rows.values())


def clicked(asker: Asker, fake: FakeMessages, rounds: int) -> Row:
    """From a click on a card to the tool: only we have a card."""
    say("a click on a card")
    row = Row("from a click on a card until the tool runs", "ms", limit=100)
    for _ in range(rounds):
        with asker.folder() as folder, running_kernel_of(OURS.python, folder, asker.env) as kernel:
            for line in ("%load_ext openprogram", *OURS.cell[1:3]):
                kernel.check(line)
            waits = [from_click_to_start(kernel, fake, number) for number in range(4)]
            row.add(OURS.title, statistics.median(waits[1:]) * 1e3)  # the first imports everything
    return row


def graphs(rounds: int) -> list[Row]:
    """The graph in a browser, alone in a page; the peers have none that grows while one looks."""
    if not has_browser():
        say("no Chromium, no rows on the graph: python3 tests/support/prepare.py chromium")
        return []
    rows: list[Row] = []
    with browser_page() as page:
        for nodes in (100, 1_000, 5_000):
            say(f"a graph of {nodes:,} nodes")
            paint = Row(f"graph of {nodes:,} nodes in a browser: first paint", "ms")
            frame = Row("… a frame when a node comes", "ms", limit=16)
            for _ in range(rounds):
                measured = painted_ms(page, nodes)
                paint.add(OURS.title, measured["paint_ms"])
                frame.add(OURS.title, measured["frame_ms"])
            rows += [paint, frame]
    rows.append(grown("a frame at 5,000 nodes against one at 100", rows[-1], rows[1], 2.0))
    return rows


def grown(title: str, late: Row, early: Row, limit: float) -> Row:
    """How much more ours takes *late* than *early*, round by round."""
    row = Row(title, "×", limit=limit)
    for after, before in zip(late.values[OURS.title], early.values[OURS.title], strict=True):
        row.add(OURS.title, after / before)
    return row


def streamed(asker: Asker, fake: FakeMessages, rounds: int) -> list[Row]:
    """What a streamed answer of 2,000 tokens looks like on the wire of a real kernel."""
    say("a streamed answer in a cell")
    answer = " ".join([cells.MARK, *(f"word{n % 10}" for n in range(STREAM_TOKENS - 1))])
    events = len(list(stream_events(Reply([text(answer)]))))

    def service(body: Mapping[str, Any]) -> Reply:
        """A millisecond a token; who does not stream gets it all when the last would come."""
        if body.get("stream"):
            return Reply([text(answer)], delay=EVENT_SECONDS)
        return Reply([text(answer)], ttft=events * EVENT_SECONDS)

    fake.set_default(service)
    rows = {
        "load_ms": Row("load the extension in a kernel", "ms", limit=300),
        "first_ms": Row("a cell until the answer's first word shows", "ms"),
        "messages": Row("messages for 2,000 streamed tokens", "messages", limit=100),
        "kb": Row("… and their size", "KB", limit=1024),
    }
    for system in _in_turn([s for s in SYSTEMS_ALL if s.cell], rounds):
        codes = [c.format(url=fake.url, prompt="Write 2,000 words.") for c in system.cell]
        with asker.folder() as folder:
            got = cells.measured(system.python, asker.env, folder, codes[:-1], codes[-1], 3)
        for key, row in rows.items():
            row.add(system.title, got[key])
    fake.set_default(_short)
    return list(rows.values())


def _short(_body: Mapping[str, Any]) -> Reply:
    return Reply([text("ok")])


def say(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


# --- the table --------------------------------------------------------------------------


def shown(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(row: Row, title: str) -> str:
    if title in row.words:
        return row.words[title]
    values = row.values.get(title)
    if not values:
        return "not offered" if title != BARE.title else ""
    text = shown(statistics.median(values))
    if max(values) > min(values):
        text += f" ({shown(min(values))}–{shown(max(values))})"
    reached = row.reached.get(title)
    return text if reached is None else f"{text}, at {reached:,}"


def _goal(row: Row) -> str:
    if row.limit is None:
        return ""
    goal = f"≤ {shown(row.limit)}"
    if row.against:
        goal += f" × the limit: {shown(statistics.median(row.ours()))}"
    return goal + (" **missed**" if row.missed() else "")


def table(rows: Sequence[Row]) -> str:
    """Medians (and ranges) as Markdown."""
    titles = [s.title for s in SYSTEMS_ALL]
    head = ["", "unit", "goal of op-jupyter", *titles, BARE.title]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        columns = [row.title, row.unit, _goal(row)]
        columns += [_cell(row, title) for title in (*titles, BARE.title)]
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines)


def reasons(rows: Sequence[Row]) -> str:
    """Why goals are missed, as Markdown; empty when none is."""
    titled = zip(rows, whole_titles(rows), strict=True)
    missed = [(row, title) for row, title in titled if row.missed()]
    lines = [f"- {title}: {row.reason or 'not known yet'}." for row, title in missed]
    if not lines:
        return ""
    profiles = [text for row, title in missed if row.profile for text in (_profile(row, title), "")]
    return "\n".join(
        ["Goals that are missed, and where the time goes:", "", *lines, "", *profiles, ""]
    )


def _profile(row: Row, title: str) -> str:
    """Where the time of *row* goes, as a table: the largest part of the first column first."""
    parts = list(dict.fromkeys(part for column in row.profile.values() for part in column))
    columns = list(row.profile.values())
    lines = [
        f"Milliseconds of “{title}”, from looks at all threads, two thousand a second:",
        "",
        "| where | " + " | ".join(row.profile) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for part in parts:
        cells = [f"{column[part]:.2f}" if part in column else "–" for column in columns]
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    sums = [f"**{sum(column.values()):.2f}**" for column in columns]
    return "\n".join([*lines, "| all | " + " | ".join(sums) + " |"])


def whole_titles(rows: Sequence[Row]) -> Iterator[str]:
    """The title of each row where it stands alone: one that goes on names what it goes on from."""
    begun = ""
    for row in rows:
        if row.title.startswith("… "):
            yield f"{begun}, {row.title.removeprefix('… ')}"
        else:
            begun = row.title
            yield begun


def goals(rows: Sequence[Row]) -> str:
    """Every goal, and whether it is met, as Markdown."""
    lines = ["| goal | ours | |", "|---|---|---|"]
    for row, title in zip(rows, whole_titles(rows), strict=True):
        if row.limit is None or OURS.title not in row.values:
            continue
        unit = "× the limit" if row.against else row.unit
        met = "missed" if row.missed() else "met"
        if met == "met" and statistics.median(row.ours()) > row.limit:
            met = "met by some rounds"
        ours = shown(statistics.median(row.ours()))
        lines.append(f"| {title}: ≤ {shown(row.limit)} {unit} | {ours} | {met} |")
    return "\n".join(lines)


def page(rows: Sequence[Row], about: Mapping[str, str], store: str) -> str:
    """The page of the documentation."""
    described = "\n".join(f"| {s.title} | {s.durability} |" for s in (*SYSTEMS_ALL, BARE))
    return f"""# Benchmarks

One run of `make bench`, beside what else there is. Medians, with the range of the rounds in
brackets; each system in its own environment and processes, of the same Python, in the order
A B C … C B A. Numbers of different machines cannot be compared; ratios of one run can.

{_listed(about)}

{table(rows)}

*Limit* is what the same bytes cost with nothing around them. "Not offered" means that a system has
no such thing. A time limit ends a row early where a system gets slower and slower; "at 1,200" says
how far it came. Sessions of up to 100,000 nodes are measured by `make bench FULL=1`, which writes a
page of its own.

## Goals

{goals(rows)}

{reasons(rows)}## The store beside raw writes

`benchmarks/store.py`, in the same run: blocks of a few turns, by each contestant in turn and in
changing order; *raw* is `write` and `fsync` of the same bytes, the very records, into one file.

{store}

## Durability

What is on disk when a call returns:

| system | durability |
|---|---|
{described}
"""


def long_page(rows: Sequence[Row], about: Mapping[str, str], store: str) -> str:
    """The page on long sessions."""
    return f"""# Benchmarks of long sessions

One run of `make bench FULL=1`. What is measured, and beside what, is as in the
[benchmarks](benchmarks.md); this page stays as it is when those are measured again.

{_listed(about)}

{table(rows)}

Time ends a row, after 30 or 60 seconds a system: "at 1,200" says how far it came. The row of
100,000 nodes is of one round and has no goal: minutes lie between op-jupyter and the limit there.
Its goals are those of the last table, where both write at once.

## Goals

{goals(rows)}

{reasons(rows)}## A session of 100,000 nodes beside raw writes

`benchmarks/store.py`, in the same run: all that is compared writes all of the session, ten nodes a
turn; what it takes is measured for the first, the middle and the last thousand nodes. *Raw* is
`write` and `fsync` of the same bytes, the very records, into one file. That session then is
committed to, read, packed and searched.

{store}
"""


def _listed(about: Mapping[str, str]) -> str:
    return "\n".join(f"- {key}: {value}" for key, value in about.items())


_TELL_VERSIONS = (
    "import sys; from importlib.metadata import version; "
    "print(*[f'{name} {version(name)}' for name in sys.argv[1:]], sep=', ')"
)


def _versions() -> str:
    found = []
    for system in SYSTEMS_ALL[1:]:
        names = [r.split("==")[0].split(">")[0].split("<")[0] for r in system.requirements]
        asked = [str(system.python), "-c", _TELL_VERSIONS, *names]
        found.append(
            subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        )
    return ", ".join(found)


@dataclass
class Run:
    """Rows that were measured together, and what the machine was like."""

    rows: list[Row]
    store: beside_raw.Table
    about: dict[str, str]

    @property
    def missed(self) -> bool:
        """Whether a goal is missed by more than noise."""
        return any(row.missed() for row in self.rows) or bool(self.store.missed)

    def text(self) -> str:
        """All of it, for a terminal."""
        return f"{table(self.rows)}\n\n{goals(self.rows)}\n\n{reasons(self.rows)}{self.store.text}"

    def keep(self, folder: Path, name: str, as_page: Page) -> None:
        """Write the page and the numbers."""
        page_text = as_page(self.rows, self.about, self.store.text)
        (folder / f"{name}.md").write_text(page_text, encoding="utf-8")
        found = {
            "about": self.about,
            "rows": [
                {
                    "title": r.title,
                    "unit": r.unit,
                    "values": r.values,
                    "words": r.words,
                    **({"reached": r.reached} if r.reached else {}),
                    **({"profile": r.profile} if r.profile else {}),
                }
                for r in self.rows
            ],
            "store": [
                {"what": r.what, "unit": r.unit, "median": r.median, "goal": r.goal}
                for r in self.store.results
            ],
        }
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")


Page: TypeAlias = Callable[[Sequence[Row], Mapping[str, str], str], str]


def running(measured: Callable[[], list[Row]], sizes: Sequence[int], rounds: int) -> Run:
    """What is *measured*, then the store at *sizes*."""
    before, began = os.getloadavg()[0], time.perf_counter()
    rows, store = measured(), beside_raw.Table()
    if sizes:
        say("the store beside raw writes")
        store.fill(beside_raw.measure(Path.cwd(), sizes, 3))
    about = {
        "machine": f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "load before and after": f"{before:.1f}, {os.getloadavg()[0]:.1f}",
        "rounds": str(rounds),
        "took": f"{(time.perf_counter() - began) / 60:.0f} min",
        "versions": _versions(),
    }
    return Run(rows, store, about)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--full", action="store_true", help="long sessions, too; an hour")
    which.add_argument("--long", action="store_true", help="long sessions only; half an hour")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", type=lambda s: s.split(","), default=[], help="names of scenarios"
    )
    parser.add_argument("--out", type=Path, help="folder for the pages and the numbers")
    args = parser.parse_args(arguments)
    for system in SYSTEMS_ALL:
        prepare_venv(KERNELS / f"bench-{system.key}", list(system.requirements))
    with_store = not args.only or "store" in args.only
    work = Path(tempfile.mkdtemp(prefix="op-bench-"))
    missed = False
    try:
        with FakeMessages(default=_short, rules=ServiceRules(models=(), sampling=True)) as fake:
            asker = Asker(fake.url, work)

            def usual() -> list[Row]:
                return measure(asker, fake, rounds=args.rounds, only=args.only)

            def long() -> list[Row]:
                wanted = [s for s in long_scenarios() if not args.only or s.ask in args.only]
                return asked_of_all(asker, wanted, args.rounds)

            runs: list[tuple[str, Page, Callable[[], list[Row]], Sequence[int]]] = []
            if not args.long:
                runs.append(("benchmarks", page, usual, (100, 1_000, 10_000)))
            if args.full or args.long:
                runs.append(("benchmarks-long", long_page, long, (100_000,)))
            for name, as_page, measured, sizes in runs:
                run = running(measured, sizes if with_store else (), args.rounds)
                print(run.text(), end="\n\n")
                missed |= run.missed
                if args.out is not None:
                    run.keep(args.out, name, as_page)
                    if args.out.resolve() == readme_table.FOUND.parent and not args.only:
                        readme_table.main()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
