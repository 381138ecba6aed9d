"""The pages of measurements, and the numbers they are made of.

    python benchmarks/peers/pages.py docs/benchmarks.json     writes the page again, beside it

`compare.py` writes both.  The numbers hold all that the page says of a run, so that its wording
can be mended without another one, and a run that was broken off can be read.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from benchmarks.peers.contestants import BARE, OURS, SYSTEMS_ALL  # noqa: E402
from benchmarks.store import HEAD, Result  # noqa: E402

Parts = dict[str, dict[str, float]]
"""What a column holds, by where it goes."""


@dataclass
class Row:
    """A line of the results.

    Attributes:
        values: by system, one number a round.
        words: what a system has instead of a number.
        reached: how far those came whose time was up.
        failed: what the systems said that broke down.
        limit: our goal; a ratio to the limit's own row if it is *against* that.
        reason: why the goal is missed, when it is.
        profile: the same in numbers, by column, in *profile_unit*.
    """

    title: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    limit: float | None = None
    against: bool = False
    reason: str = ""
    key: str = ""
    profile: Parts = field(default_factory=dict)
    profile_unit: str = ""

    def add(self, system: str, value: float | str | None) -> None:
        """One more round of *system*; words take the place of a number."""
        if isinstance(value, str):
            self.words[system] = value
        elif value is not None:
            self.values.setdefault(system, []).append(value)

    def missed(self) -> bool:
        """Whether ours is beyond its goal in every round."""
        return self.limit is not None and self.judged() and min(self.ours()) > self.limit

    def judged(self) -> bool:
        """Whether there is something to compare the goal with."""
        broken = {OURS.title, BARE.title} & self.failed.keys()
        return self.limit is not None and not broken and bool(self.ours())

    def ours(self) -> list[float]:
        """Our numbers, as ratios where the goal is one."""
        mine = self.values.get(OURS.title, [])
        if not self.against:
            return mine
        return [a / b for a, b in zip(mine, self.values.get(BARE.title, []), strict=False)]


@dataclass
class Stored:
    """A row on the store beside raw writes; *median* and *interval* as in `benchmarks/store.py`."""

    what: str
    unit: str
    median: float
    interval: tuple[float, float]
    goal: float | None = None
    reason: str = ""
    profile: Parts = field(default_factory=dict)
    profile_unit: str = ""

    def result(self) -> Result:
        """As the store's own table has it: these three have that median and that interval."""
        return Result(self.what, self.unit, [*self.interval, self.median], self.goal)

    def missed(self) -> bool:
        """Whether the goal is missed by more than noise."""
        return self.result().verdict == "missed"


@dataclass
class Run:
    """What was measured together, what the machine was like, and what could not be measured."""

    rows: list[Row] = field(default_factory=list)
    store: list[Stored] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def missed(self) -> bool:
        """Whether a goal is missed by more than noise."""
        return any(row.missed() for row in self.rows) or any(row.missed() for row in self.store)

    @property
    def failed(self) -> bool:
        """Whether something could not be measured."""
        return bool(self.failures) or any(row.failed for row in self.rows)

    def text(self) -> str:
        """All of it, for a terminal."""
        parts = (table(self.rows), goals(self.rows), reasons(self), store_table(self.store))
        return "\n\n".join(part for part in parts if part)


# --- on disk ----------------------------------------------------------------------------


def keep(run: Run, path: Path) -> None:
    """Put the numbers of *run* into a file, whole or not at all."""
    found = {
        "about": run.about,
        "rows": [_told(row, ("title", "unit", "values", "words")) for row in run.rows],
        "store": [_told(row, ("what", "unit", "median", "interval", "goal")) for row in run.store],
        **({"failures": run.failures} if run.failures else {}),
    }
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    new.replace(path)


def kept(path: Path) -> Run:
    """The run that `keep` put there."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Run(
        [Row(**row) for row in found["rows"]],
        [Stored(**{**row, "interval": tuple(row["interval"])}) for row in found["store"]],
        found["about"],
        found.get("failures", []),
    )


def _told(row: Row | Stored, always: Sequence[str]) -> dict[str, Any]:
    """What *row* says: *always*, and what it has of the rest."""
    return {name: value for name, value in vars(row).items() if value or name in always}


def write(run: Run, folder: Path, name: str) -> None:
    """Write the page and the numbers."""
    keep(run, folder / f"{name}.json")
    (folder / f"{name}.md").write_text(PAGES[name](run), encoding="utf-8")


# --- the table --------------------------------------------------------------------------


def shown(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(row: Row, title: str) -> str:
    if title in row.failed:
        return "failed"
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
    if row.against and row.judged():
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


def store_table(rows: Sequence[Stored]) -> str:
    """The store beside raw writes, as `benchmarks/store.py` prints it."""
    return "\n".join([HEAD, *(row.result().row() for row in rows)])


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
        if row.limit is None:
            continue
        unit = "× the limit" if row.against else row.unit
        ours, met = "", "not measured"
        if row.judged():
            middle = statistics.median(row.ours())
            ours, met = shown(middle), "missed" if row.missed() else "met"
            if met == "met" and middle > row.limit:
                met = "met by some rounds"
        lines.append(f"| {title}: ≤ {shown(row.limit)} {unit} | {ours} | {met} |")
    return "\n".join(lines)


# --- why --------------------------------------------------------------------------------


def reasons(run: Run) -> str:
    """Why goals are missed, and what could not be measured, as Markdown; empty if nothing is."""
    named = [*zip(run.rows, whole_titles(run.rows), strict=True)]
    missed = [
        *((row, title) for row, title in named if row.missed()),
        *((row, row.what) for row in run.store if row.missed()),
    ]
    parts = []
    if missed:
        lines = [f"- {title}: {row.reason or 'not known yet'}." for row, title in missed]
        parts += ["Goals that are missed, and where the time goes:", "\n".join(lines)]
        parts += _profiles(missed)
    broken = [
        *(f"- {title}: {who} failed." for row, title in named for who in row.failed),
        *(f"- {failure}" for failure in run.failures),
    ]
    if broken:
        parts += ["What could not be measured:", "\n".join(broken)]
    return "\n\n".join(parts)


def _profiles(missed: Iterable[tuple[Row | Stored, str]]) -> list[str]:
    """A table for each profile; the rows that share one share its table."""
    titles: dict[str, list[str]] = {}
    profiles: dict[str, Row | Stored] = {}
    for row, title in missed:
        if row.profile:
            same = json.dumps(row.profile)
            titles.setdefault(same, []).append(f"“{title}”")
            profiles[same] = row
    return [_profile(row, " and ".join(titles[same])) for same, row in profiles.items()]


def _profile(row: Row | Stored, title: str) -> str:
    """Where the time of *row* goes, as a table: the largest part of the first column first."""
    parts = list(dict.fromkeys(part for column in row.profile.values() for part in column))
    columns = list(row.profile.values())
    lines = [
        f"{title}: {row.profile_unit}.",
        "",
        "| where | " + " | ".join(row.profile) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for part in parts:
        cells = [f"{column[part]:,.2f}" if part in column else "–" for column in columns]
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    sums = [f"**{sum(column.values()):,.2f}**" for column in columns]
    return "\n".join([*lines, "| all | " + " | ".join(sums) + " |"])


# --- the pages --------------------------------------------------------------------------

_JUDGED: Final = """A goal is *met* when the median of the rounds is within it, *met by some rounds*
when the median is not but the best of them is, and *missed* when none is."""
_JUDGED_BY_INTERVAL: Final = """A goal of this table is *met* when the median is within it, *missed*
when the whole 95 % interval of the median is beyond it, and *within noise* in between. A commit's
goal is 6 ms, or twenty times what an fsync takes if that is more: it has to wait for several."""


def page(run: Run) -> str:
    """The page of the documentation."""
    return f"""# Benchmarks

One run of `make bench`, beside what else there is. Medians, with the range of the rounds in
brackets; each system in its own environment and processes, of the same Python, in the order
A B C … C B A. Numbers of different machines cannot be compared; ratios of one run can.

{_listed(run.about)}

Who is compared, and what is on disk when a call returns:

{_systems()}

No model is asked: a service on the same machine answers all systems alike, and at once; only the
2,000 streamed tokens come one a millisecond. A node is a call of a model or a function, as it is
kept: a question of about 1.5 KB and an answer of about 3.5 KB. A turn is what a person asks once,
with the answer.

{table(run.rows)}

*Limit* is what the same bytes cost with nothing around them. "Not offered" means that a system has
no such thing. A time limit ends a row early where a system gets slower and slower; "at 1,200" says
how far it came. Sessions of up to 100,000 nodes are measured by `make bench FULL=1`, which writes a
page of its own.

## Goals

They are op-jupyter's own, for its own numbers; the peers have none.
{_JUDGED}

{goals(run.rows)}

{_ended(reasons(run))}## The store beside raw writes

`benchmarks/store.py`, in the same run: blocks of a few turns, by each contestant in turn and in
changing order; *raw* is `write` and `fsync` of the same bytes, the very records, into one file.
{_JUDGED_BY_INTERVAL}

{store_table(run.store)}
"""


def long_page(run: Run) -> str:
    """The page on long sessions."""
    return f"""# Benchmarks of long sessions

One run of `make bench FULL=1`. What is measured, and beside what, is as in the
[benchmarks](benchmarks.md); this page stays as it is when those are measured again.

{_listed(run.about)}

{table(run.rows)}

Time ends a row, after 30 or 60 seconds a system: "at 1,200" says how far it came. The row of
100,000 nodes is of one round and has no goal: minutes lie between op-jupyter and the limit there.
Its goals are those of the last table, where both write at once.

## Goals

{_JUDGED}

{goals(run.rows)}

{_ended(reasons(run))}## A session of 100,000 nodes beside raw writes

`benchmarks/store.py`, in the same run: all that is compared writes all of the session, ten nodes a
turn; what it takes is measured for the first, the middle and the last thousand nodes. *Raw* is
`write` and `fsync` of the same bytes, the very records, into one file. That session then is
committed to, read, packed and searched.
{_JUDGED_BY_INTERVAL}

{store_table(run.store)}
"""


PAGES: Final = {"benchmarks": page, "benchmarks-long": long_page}
"""By the name of the file."""


def _systems() -> str:
    lines = ["| system | what it is | durability |", "|---|---|---|"]
    lines += [f"| {s.title} | {s.what} | {s.durability} |" for s in (*SYSTEMS_ALL, BARE)]
    return "\n".join(lines)


def _listed(about: Mapping[str, str]) -> str:
    return "\n".join(f"- {key}: {value}" for key, value in about.items())


def _ended(text: str) -> str:
    return f"{text}\n\n" if text else ""


def main(arguments: Sequence[str]) -> None:
    """Write the page of each file of numbers again."""
    for argument in arguments:
        path = Path(argument)
        as_page = PAGES[path.name.partition(".")[0]]
        path.with_suffix(".md").write_text(as_page(kept(path)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
