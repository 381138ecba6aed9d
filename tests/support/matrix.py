"""Run every front end with every kernel, and write what came of it into docs/front-ends.md.

make matrix                    all rows: the better part of an hour
make matrix ONLY="lab 7.3.0"   the rows that hold all of these words; the others stay as they are
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "front-ends.md"
HEADER = "| front end | ipykernel | comms over subshells | what is run | result |"
VERSIONS = ("6.30.1", "7.3.0", "newest")
TURNS = "tests/kernel/test_turns.py"
CLICK = "tests/browser/test_turns.py::test_a_click_in_a_running_cell_lets_the_turn_go_on"
CLIENTS = "tests/kernel/test_clients.py"
POLICY = f"{CLIENTS}::test_a_client_that_cannot_answer_gets_the_policy_and_one_final_display"
NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, and the tests that it stands for."""

    front_end: str
    kernel: str
    subshells: str
    what: str
    tests: str
    select: str = ""
    env: dict[str, str] = field(default_factory=dict)

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
                yield Row(shown, version, subshells, "a turn with a card", CLICK, name, env)
        every = {"OPENPROGRAM_TEST_KERNELS": "newest"}
        tests = "tests/browser/test_turns.py"
        yield Row(shown, "newest", "as it comes", "all scenarios", tests, app, every)
    for version in VERSIONS:
        yield Row("jupyter_client", version, "main and subshell", "all of turns", TURNS, version)
    for name in ("nbclient", "papermill", "nbconvert"):
        yield Row(name, "newest", "none", "nobody can answer", POLICY, name)
    console = f"{CLIENTS}::test_jupyter_console_asks_on_its_terminal_and_ctrl_c_stops"
    yield Row("jupyter console", "newest", "none", "question, Ctrl-C", console)
    yield Row("IPython", "none", "none", "in a terminal", "tests/notebook/test_terminal.py")


def run(row: Row) -> str:
    """The last line of pytest, as a word for the table."""
    command = [sys.executable, "-m", "pytest", "-q", row.tests]
    command += ["-k", row.select] if row.select else []
    env = {**os.environ, **row.env}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    counts = re.sub(r" in .*", "", last[0]) if last else "nothing"
    counts = re.sub(r",? ?\d+ deselected", "", counts)
    return f"ok: {counts}" if done.returncode == 0 and "passed" in counts else f"FAILED: {counts}"


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
    words = [word.lower() for word in parser.parse_args().words]
    results, failed = known_results(), False
    for row in rows():
        told = " ".join(row.key)
        if all(word in told.lower() for word in words):
            results[row.key] = said = run(row)
            failed = failed or not said.startswith("ok")
            print(f"{told}: {said}", flush=True)
            PAGE.write_text(written(results), encoding="utf-8")  # what was run is kept
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
