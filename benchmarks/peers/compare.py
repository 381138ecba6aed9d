"""Compare with peers: one command, one run, ratios anyone can check.

    python benchmarks/peers/compare.py [--full | --long] [--rounds 5] [--only append] [--out FOLDER]
    python benchmarks/peers/compare.py --rounds 1 --sizes 100      tries all of it, in some minutes

*--only*: scenarios of ``systems/``, or ``resume``, ``cell``, ``click``, ``graph``, ``lessons``,
``store``.
*--full*: the long sessions, too; *--long*: nothing else.  They have a page of their own, which
stays as it is when the others are measured again.

Each system runs in an environment and in processes of its own, all of the same Python.  A round
asks every system once; rounds alternate in order (A B C, C B A, ...), so that whatever else the
machine does hits all alike.  Prints Markdown tables and, with ``--out docs``, writes
``benchmarks.md`` and ``benchmarks.json`` there, and README's table from them; of the long sessions
``benchmarks-long.md`` and ``benchmarks-long.json``.

What breaks down is a row that says so, and the rest goes on.  What is measured so far is in
``benchmarks.part.json`` beside them at any moment; `pages.py` makes a page of it.  Exits with 2
when something could not be measured, else with 1 when a goal of ours is missed by all rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from kernel.clicks import from_click_to_start  # noqa: E402
from kernel.harness import running_kernel_of  # noqa: E402
from views.in_page import browser_page, has_browser, painted_ms  # noqa: E402

from benchmarks import readme_table  # noqa: E402
from benchmarks import store as beside_raw  # noqa: E402
from benchmarks.peers import cells, lessons, pages, scenarios  # noqa: E402
from benchmarks.peers.asking import Asker, resumed, say, surviving  # noqa: E402
from benchmarks.peers.contestants import BARE, OURS, SYSTEMS, SYSTEMS_ALL, System  # noqa: E402
from benchmarks.peers.pages import Parts, Row, Run, Stored  # noqa: E402
from benchmarks.peers.scenarios import Cause, Scenario  # noqa: E402
from benchmarks.store import Result  # noqa: E402
from op_jupyter.testing.fake_messages import FakeMessages, Reply, ServiceRules, text  # noqa: E402
from op_jupyter.testing.message_stream import events as stream_events  # noqa: E402
from tests.support.prepare import KERNELS, prepare_venv  # noqa: E402

STREAM_TOKENS = 2_000
EVENT_SECONDS = 0.001
STORE_SIZES: Final = (100, 1_000, 10_000)
LONG_SIZES: Final = (100_000,)


class Measuring:
    """A run as it goes on.

    Attributes:
        run: what there is so far.
    """

    def __init__(self, asker: Asker, fake: FakeMessages, rounds: int, part: Path | None) -> None:
        """*part*: the file that always holds what there is so far."""
        self.run = Run()
        self._asker = asker
        self._fake = fake
        self._rounds = rounds
        self._part = part

    def add(self, *rows: Row) -> None:
        """These are measured."""
        self.run.rows += rows
        self.keep()

    def keep(self) -> None:
        """Put what there is where it outlives this process."""
        if self._part is not None:
            pages.keep(self.run, self._part)

    def usual(self, only: Sequence[str]) -> None:
        """All rows, in order, that are not of long sessions."""
        self.asked_of_all([s for s in scenarios.scenarios() if not only or s.ask in only])
        others: Mapping[str, Callable[[], None]] = {
            "resume": self.resumed,
            "cell": self.streamed,
            "click": self.clicked,
            "graph": self.graphs,
            "lessons": self.lessons,
        }
        for name, measure in others.items():
            if not only or name in only:
                with surviving(name, self._failure(name)):
                    measure()

    def _failure(self, what: str) -> Callable[[str], None]:
        """What to call with an error that is no system's."""
        return lambda error: self.run.failures.append(f"{what}: {error}")

    # -- scenarios of the scripts

    def asked_of_all(self, wanted: Sequence[Scenario]) -> None:
        """The rows of *wanted*; what several of them ask for is asked for once."""
        answers: dict[str, _Answers] = {}
        for scenario in wanted:
            asked = repr((scenario.ask, scenario.parameters))
            if asked not in answers:
                answers[asked] = self._answers(scenario)
            row = Row(
                scenario.title,
                scenario.unit,
                limit=scenario.limit,
                against=scenario.against,
                key=scenario.key,
                failed=dict(answers[asked].failed),
            )
            for title, answer in answers[asked].given:
                with _failing(row.failed, title, scenario.key):
                    _enter(row, scenario, title, answer)
            self._explain(row, scenario.cause)
            self.add(row)
            if scenario.key == "noop-cpu-5000":
                self._add_flat(row)

    def _answers(self, scenario: Scenario) -> _Answers:
        """What all systems say, round by round; one that breaks down is not asked again."""
        systems = [s for s in SYSTEMS_ALL if s.script]
        if scenario.against:
            systems = [BARE, *systems]
        times = min(self._rounds, scenario.most_rounds)
        say(scenario.title + _at_most(scenario, len(systems) * times))
        answers = _Answers([], {})
        for system in _in_turn(systems, times):
            if system.title not in answers.failed:
                with _failing(answers.failed, system.title, scenario.key):
                    answers.given.append((system.title, self._asker.ask(system, scenario)))
        return answers

    def _add_flat(self, late: Row) -> None:
        """Whether a call costs the same in a long session, of the row *late*."""
        early = next(row for row in self.run.rows if row.key == "noop-cpu-50")
        flat = grown("… its processor time at 5,000 nodes against 50", late, early, 1.2)
        self._explain(flat, scenarios.nothing(5_000))
        self.add(flat)

    def _explain(self, row: Row | Stored, cause: Cause) -> None:
        """Say why *row* misses its goal, if it does."""
        row.reason = cause.reason
        if row.missed() and cause.profiler:
            row.profile = self._profile(cause)
            row.profile_unit = cause.unit if row.profile else ""

    def _profile(self, cause: Cause) -> Parts:
        """In numbers; nothing where that breaks down: the row is measured all the same."""
        say(f"where the time goes: {cause.profiler}")
        with surviving(cause.profiler, self._failure(cause.profiler)):
            return self._asker.profile(cause)
        return {}

    # -- what takes more than one process

    def resumed(self) -> None:
        """Reopen after a kill."""
        say("reopen after a kill")
        row = Row("reopen after a kill and get the next answer, 50 turns", "ms")
        for system in _in_turn([s for s in SYSTEMS_ALL if s.script], self._rounds):
            if system.title not in row.failed:
                with _failing(row.failed, system.title, "reopening"):
                    row.add(system.title, resumed(self._asker, system, self._fake, 50))
        self.add(row)

    def lessons(self) -> None:
        """One row a lesson; twice, for none of them is near its goal."""
        say("the lessons")
        with lessons.copied() as copies:
            for lesson in copies:
                title = f"the lesson {lesson.stem}, replayed by nbval"
                row = Row(title, "s", limit=lessons.LIMIT_SECONDS)
                with _failing(row.failed, OURS.title, lesson.stem):
                    for _ in range(2):
                        row.add(OURS.title, lessons.replayed(lesson)[0])
                self._explain(row, scenarios.LESSON)
                if row.missed():
                    with surviving(lesson.stem, self._failure(f"the profile of {lesson.stem}")):
                        row.profile = {"once more": lessons.profiled(lesson)}
                        row.profile_unit = "Seconds, as pytest tells the longest"
                self.add(row)

    def clicked(self) -> None:
        """From a click on a card to the tool: only we have a card."""
        say("a click on a card")
        row = Row("from a click on a card until the tool runs", "ms", limit=100)
        with _failing(row.failed, OURS.title, "a click"):
            for _ in range(self._rounds):
                row.add(OURS.title, self._click_ms())
        self._explain(row, scenarios.CLICK)
        self.add(row)

    def _click_ms(self) -> float:
        with (
            self._asker.folder() as folder,
            running_kernel_of(OURS.python, folder, self._asker.env) as kernel,
        ):
            for line in ("%load_ext openprogram", *OURS.cell[1:3]):
                kernel.check(line)
            waits = [from_click_to_start(kernel, self._fake, number) for number in range(4)]
        return statistics.median(waits[1:]) * 1e3  # the first imports everything

    def graphs(self) -> None:
        """The graph in a browser, alone in a page; peers have none that grows while one looks."""
        if not has_browser():
            say("no Chromium, no rows on the graph: python3 tests/support/prepare.py chromium")
            return
        frames: list[Row] = []
        with browser_page() as page:
            for nodes in (100, 1_000, 5_000):
                say(f"a graph of {nodes:,} nodes")
                paint = Row(f"graph of {nodes:,} nodes in a browser: first paint", "ms")
                title = f"a frame when a node comes to a graph of {nodes:,} nodes"
                frame = Row(title, "ms", limit=16)
                for _ in range(self._rounds):
                    measured = painted_ms(page, nodes)
                    paint.add(OURS.title, measured["paint_ms"])
                    frame.add(OURS.title, measured["frame_ms"])
                self._explain(frame, scenarios.FRAME)
                self.add(paint, frame)
                frames.append(frame)
        row = grown("a frame at 5,000 nodes against one at 100", frames[-1], frames[0], 2.0)
        self._explain(row, scenarios.FRAME)
        self.add(row)

    # -- cells of a kernel

    def streamed(self) -> None:
        """What a streamed answer of 2,000 tokens looks like on the wire of a real kernel."""
        say("a streamed answer in a cell")
        answer = " ".join([cells.MARK, *(f"word{n % 10}" for n in range(STREAM_TOKENS - 1))])
        events = len(list(stream_events(Reply([text(answer)]))))

        def service(body: Mapping[str, Any]) -> Reply:
            """A millisecond a token; who does not stream gets it all when the last would come."""
            if body.get("stream"):
                return Reply([text(answer)], delay=EVENT_SECONDS)
            return Reply([text(answer)], ttft=events * EVENT_SECONDS)

        rows = {
            "load_ms": Row("load the extension in a kernel", "ms", limit=300),
            "first_ms": Row("a cell until the answer's first word shows", "ms"),
            "messages": Row("messages for 2,000 streamed tokens", "messages", limit=100),
            "kb": Row("… and their size", "KB", limit=1024),
        }
        failed: dict[str, str] = {}
        last: dict[str, Any] = {}
        self._fake.set_default(service)
        try:
            for system in _in_turn([s for s in SYSTEMS_ALL if s.cell], self._rounds):
                if system.title in failed:
                    continue
                with _failing(failed, system.title, "a streamed answer"):
                    got = self._cells_of(system)
                    for key, row in rows.items():
                        row.add(system.title, got[key])
                    last[system.title] = got
        finally:
            self._fake.set_default(_short)
        for row in rows.values():
            row.failed.update(failed)
        self._explain_cells(rows, last.get(OURS.title, {}))
        self.add(*rows.values())

    def _cells_of(self, system: System) -> dict[str, Any]:
        codes = [
            code.format(url=self._fake.url, prompt="Write 2,000 words.") for code in system.cell
        ]
        with self._asker.folder() as folder:
            return cells.measured(system.python, self._asker.env, folder, codes[:-1], codes[-1], 3)

    def _explain_cells(self, rows: Mapping[str, Row], ours: Mapping[str, Any]) -> None:
        """Say why they miss their goals, those that do."""
        rows["load_ms"].reason = scenarios.LOAD_EXTENSION.reason
        if rows["load_ms"].missed():
            with surviving("profile_load_ext", self._failure("profile_load_ext")):
                rows["load_ms"].profile = {"loading": self._load_profile()}
                rows["load_ms"].profile_unit = scenarios.LOAD_EXTENSION.unit
        for key in ("messages", "kb"):
            rows[key].reason = scenarios.MESSAGES.reason
            if rows[key].missed():
                rows[key].profile = {"one answer": ours[f"{key}_by"]}
                rows[key].profile_unit = f"{rows[key].unit} of a kernel, by their type"

    def _load_profile(self) -> dict[str, float]:
        """Milliseconds of loading ours, the mean of fresh kernels, by where they go."""
        say("where the time goes: loading the extension")
        total: Counter[str] = Counter()
        for _ in range(self._rounds):
            with self._asker.folder() as folder:
                total.update(
                    cells.load_profile(OURS.python, self._asker.env, folder, SYSTEMS, "openprogram")
                )
        whole = total.total()
        large = {part: ms / self._rounds for part, ms in total.most_common() if ms > whole / 50}
        rest = whole / self._rounds - sum(large.values())
        return {**large, "smaller parts": rest} if rest else large

    # -- the store

    def store(self, results: Iterable[Result]) -> None:
        """The store beside raw writes, as the *results* come."""
        say("the store beside raw writes")
        missed: list[tuple[Stored, Cause]] = []
        with surviving("the store beside raw writes", self._failure("the store")):
            for result in results:
                row = Stored(result.what, result.unit, result.median, result.interval, result.goal)
                self.run.store.append(row)
                self.keep()
                cause = scenarios.of_store(result.kind, result.nodes)
                row.reason = cause.reason if row.goal is not None else ""
                if row.missed():
                    missed.append((row, cause))
        found: dict[str, Parts] = {}
        for row, cause in missed:  # not between two rows: that would take time from the next
            asked = repr((cause.profiler, cause.parameters))
            if cause.profiler and asked not in found:
                found[asked] = self._profile(cause)
            if found.get(asked):
                row.profile, row.profile_unit = found[asked], cause.unit
        self.keep()


@dataclass(frozen=True)
class _Answers:
    """What systems *given*, in the order of asking, and why others *failed*."""

    given: list[tuple[str, dict[str, Any] | None]]
    failed: dict[str, str]


def _failing(failed: dict[str, str], title: str, what: str) -> AbstractContextManager[None]:
    """Go on after the block; if it breaks down, *failed* says so of the system called *title*."""
    return surviving(f"{title}, {what}", lambda error: failed.update({title: error}))


def _enter(row: Row, scenario: Scenario, title: str, answer: Mapping[str, Any] | None) -> None:
    """Put what a system answered once into *row*."""
    row.add(title, None if answer is None else scenario.value(answer))
    if answer is not None and scenario.reached:
        done = answer[scenario.reached]
        if done < scenario.parameters[scenario.reached]:
            row.reached[title] = min(done, row.reached.get(title, done))


def _in_turn(systems: Sequence[System], rounds: int) -> Iterator[System]:
    for number in range(rounds):
        yield from systems if number % 2 == 0 else reversed(systems)


def _at_most(scenario: Scenario, times: int) -> str:
    """How long a scenario may take, where there is a limit."""
    seconds = scenario.parameters.get("seconds") if scenario.reached else None
    return "" if seconds is None else f": at most {times * seconds / 60:.0f} min"


def grown(title: str, late: Row, early: Row, limit: float) -> Row:
    """How much more ours takes *late* than *early*, round by round."""
    row = Row(title, "×", limit=limit, failed={**early.failed, **late.failed})
    both = zip(late.values.get(OURS.title, []), early.values.get(OURS.title, []), strict=False)
    for after, before in both:
        row.add(OURS.title, after / before)
    return row


def _short(_body: Mapping[str, Any]) -> Reply:
    return Reply([text("ok")])


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


def _machine() -> str:
    """What is measured on, as far as it says so itself."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = ""
    if (cpu := Path("/proc/cpuinfo")).exists():
        lines = cpu.read_text(encoding="utf-8", errors="replace").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = f" ({named[0]})" if named else ""
    system = f"{platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} processors{model}, {memory:.0f} GB of memory, {system}"


def _about(rounds: int) -> dict[str, str]:
    """The machine, before anything is measured."""
    return {
        "machine": _machine(),
        "Python": platform.python_version(),
        "load before and after": f"{os.getloadavg()[0]:.1f}",
        "rounds": str(rounds),
        "took": "",
        "versions": _versions(),
    }


def _measured(
    measuring: Measuring, measure: Callable[[], None], sizes: Sequence[int], rounds: int
) -> Run:
    """What *measure* finds, then the store at *sizes*; printed even if it is broken off."""
    began, run = time.perf_counter(), measuring.run
    run.about = _about(rounds)
    try:
        measure()
        if sizes:
            measuring.store(beside_raw.measure(Path.cwd(), sizes, 3))
    finally:
        run.about["load before and after"] += f", {os.getloadavg()[0]:.1f}"
        run.about["took"] = f"{(time.perf_counter() - began) / 60:.0f} min"
        measuring.keep()
        print(run.text(), end="\n\n", flush=True)
    return run


def _write(run: Run, out: Path, name: str, *, readme: bool) -> bool:
    """Write the page, and README's table of it; whether that could be made."""
    pages.write(run, out, name)
    (out / f"{name}.part.json").unlink()
    if readme and out.resolve() == readme_table.FOUND.parent:
        try:
            readme_table.main()
        except (KeyError, ValueError) as missing:
            say(f"README keeps its table: {missing} is not there")
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--full", action="store_true", help="long sessions, too; an hour")
    which.add_argument("--long", action="store_true", help="long sessions only; half an hour")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", type=lambda s: s.split(","), default=[], help="names of scenarios"
    )
    parser.add_argument(
        "--sizes",
        type=lambda s: [int(size) for size in s.split(",")],
        help="nodes in the sessions beside raw writes; fewer than usual to try this out",
    )
    parser.add_argument("--out", type=Path, help="folder for the pages and the numbers")
    args = parser.parse_args(arguments)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    for system in SYSTEMS_ALL:
        prepare_venv(KERNELS / f"bench-{system.key}", list(system.requirements))
    with_store = not args.only or "store" in args.only
    wanted = [s for s in scenarios.long_scenarios() if not args.only or s.ask in args.only]
    names = ["benchmarks"] * (not args.long) + ["benchmarks-long"] * (args.full or args.long)
    work = Path(tempfile.mkdtemp(prefix="op-bench-"))
    missed = failed = False
    try:
        with FakeMessages(default=_short, rules=ServiceRules(models=(), sampling=True)) as fake:
            asker = Asker(fake.url, work)
            for name in names:
                part = None if args.out is None else args.out / f"{name}.part.json"
                measuring = Measuring(asker, fake, args.rounds, part)
                if name == "benchmarks":
                    measure, sizes = partial(measuring.usual, args.only), STORE_SIZES
                else:
                    measure, sizes = partial(measuring.asked_of_all, wanted), LONG_SIZES
                store_sizes = (args.sizes or sizes) if with_store else ()
                run = _measured(measuring, measure, store_sizes, args.rounds)
                missed |= run.missed
                failed |= run.failed
                if args.out is not None:
                    whole = name == "benchmarks" and not args.only
                    failed |= not _write(run, args.out, name, readme=whole)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 2 if failed else int(missed)


if __name__ == "__main__":
    sys.exit(main())
