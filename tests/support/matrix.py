"""Run every front end with every kernel, and write what came of it into docs/front-ends.md.

make matrix                    all rows: the better part of an hour
make matrix ONLY="lab 7.3.0"   the rows that hold all of these words; the others stay as they are
make matrix MISSING=1          the rows that never ran, or failed; to go on where a run was stopped
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.prepare import OLDEST_LAB

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "front-ends.md"
HEADER = "| front end | ipykernel | comms over subshells | what is run | result |"
VERSIONS = ("6.30.1", "7.3.0", "newest")
TURNS = "tests/kernel/test_turns.py"
TURNS_ON_PAGE = "tests/browser/test_turns.py"
CLICK = f"{TURNS_ON_PAGE}::test_a_click_in_a_running_cell_lets_the_turn_go_on"
LAB_EXTENSION = ("tests/browser/test_lab_extension.py", "tests/browser/test_saved_turn.py")
LESSONS = "tests/notebooks/test_in_jupyterlab.py"
CLIENTS = "tests/kernel/test_clients.py"
POLICY = f"{CLIENTS}::test_a_client_that_cannot_answer_gets_the_policy_and_one_final_display"
WHEEL = (
    "tests/test_packaging.py"
    "::test_the_installed_wheel_runs_the_quickstart_in_both_front_ends_without_node"
)
NOT_RUN = "not run"
ROW_SECONDS = 1800.0  # a row that takes longer hangs
TOLD_CHARS = 6000  # of the output of a row that failed
NICENESS = 10  # the person at this machine goes on working


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, and the tests that it stands for."""

    front_end: str
    kernel: str
    subshells: str
    what: str
    tests: tuple[str, ...]
    select: str = ""
    env: dict[str, str] = field(default_factory=dict)
    is_oldest: bool = False  # runs in the environment of the oldest front ends

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Its place in the table."""
        return (self.front_end, self.kernel, self.subshells, self.what)


def rows() -> Iterator[Row]:
    """The whole matrix."""
    for app, shown in (("lab", "JupyterLab"), ("notebook", "Notebook 7")):
        for version in VERSIONS:
            for subshells in ("as it comes", "disabled", "perComm"):
                env = {"OPENPROGRAM_TEST_KERNELS": version}
                if subshells != "as it comes":
                    env["OPENPROGRAM_TEST_SUBSHELLS"] = subshells
                name = f"{app}-op-{version}"
                yield Row(shown, version, subshells, "a turn with a card", (CLICK,), name, env)
        yield from everything(app, shown)
    yield Row("JupyterLab", "newest", "as it comes", "lessons, saved, then nbval", (LESSONS,))
    yield from everything("lab", "JupyterLab 4.4", is_oldest=True)
    yield from everything("notebook", "Notebook 7.4", is_oldest=True)
    for version in VERSIONS:
        tests = (TURNS,)
        yield Row("jupyter_client", version, "main and subshell", "all of turns", tests, version)
    for name in ("nbclient", "papermill", "nbconvert"):
        yield Row(name, "newest", "none", "nobody can answer", (POLICY,), name)
    console = f"{CLIENTS}::test_jupyter_console_completes_and_asks_on_its_terminal_and_ctrl_c_stops"
    yield Row("jupyter console", "newest", "none", "question, Ctrl-C", (console,))
    yield Row("IPython", "none", "none", "in a terminal", ("tests/notebook/test_terminal.py",))
    both = "JupyterLab, Notebook 7"
    yield Row(both, "newest", "as it comes", "installed wheel, every Python", (WHEEL,))


def everything(app: str, shown: str, *, is_oldest: bool = False) -> Iterator[Row]:
    """All that a page can show, with the newest kernel."""
    env = {"OPENPROGRAM_TEST_KERNELS": "newest"}
    place = (shown, "newest", "as it comes")
    yield Row(*place, "all scenarios", (TURNS_ON_PAGE,), app, env, is_oldest)
    yield Row(*place, "lab extension, saved turns", LAB_EXTENSION, app, env, is_oldest)


def run(row: Row) -> str:
    """The last line of pytest, as a word for the table."""
    python = sys.executable
    if row.is_oldest:
        prepare = [python, "tests/support/prepare.py", "oldest-lab"]
        subprocess.run(prepare, cwd=ROOT, check=True)
        python = str(OLDEST_LAB / "bin" / "python")
    command = [python, "-m", "pytest", "-q", *row.tests]
    command += ["-k", row.select] if row.select else []
    env = {**os.environ, "OPENPROGRAM_TEST_MATRIX": "1", **row.env}
    # In a file: servers that outlive a pytest that was ended would hold a pipe open.
    with tempfile.TemporaryFile("w+") as output:
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, stdout=output, timeout=ROW_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"FAILED: not done after {ROW_SECONDS / 60:.0f} minutes"
        output.seek(0)
        told = output.read().strip()
    last = told.splitlines()[-1:]
    counts = re.sub(r" in [0-9.]+s.*", "", last[0]) if last else "nothing"
    counts = re.sub(r",? ?\d+ deselected", "", counts)
    if done.returncode == 0 and "passed" in counts:
        return f"ok: {counts}"
    print(told[-TOLD_CHARS:], flush=True)
    return f"FAILED: {counts}"


def known_results() -> dict[tuple[str, ...], str]:
    """The results that the page has by now."""
    found: dict[tuple[str, ...], str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5:
            found[tuple(cells[:4])] = cells[4]
    return found


def written(results: dict[tuple[str, ...], str]) -> str:
    """The page with these results in its table."""
    text = PAGE.read_text(encoding="utf-8")
    before = text[: text.index(HEADER)]
    lines = [f"| {' | '.join(row.key)} | {results.get(row.key, NOT_RUN)} |" for row in rows()]
    return before + "\n".join([HEADER, "|---|---|---|---|---|", *lines, ""])


def main() -> int:
    """Run the rows that were asked for; 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only rows that hold all of these words")
    parser.add_argument("--missing", action="store_true", help="only rows without a good result")
    args = parser.parse_args()
    words = [word.lower() for word in args.words]
    results, failed = known_results(), False
    os.nice(NICENESS)
    for row in rows():
        told = " ".join(row.key)
        if args.missing and results.get(row.key, NOT_RUN).startswith("ok"):
            continue
        if all(word in told.lower() for word in words):
            results[row.key] = said = run(row)
            failed = failed or not said.startswith("ok")
            print(f"{told}: {said}", flush=True)
            PAGE.write_text(written(results), encoding="utf-8")  # what was run is kept
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
