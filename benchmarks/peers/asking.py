"""Asking a system: each scenario in a process of its own, which cannot take the run with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.peers.contestants import OURS, SYSTEMS, System
from benchmarks.peers.pages import Parts
from benchmarks.peers.scenarios import Cause, Scenario
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages

PATIENCE = 600


def say(what: str) -> None:
    """Tell whoever waits what is being done."""
    print(f"… {what}", file=sys.stderr, flush=True)


@contextmanager
def surviving(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Go on after the block whatever happens in it: *tell* is given what went wrong, in a line."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- minutes have been measured; one row is lost
        traceback.print_exc(limit=-3)
        last = (str(error).strip().splitlines() or [""])[-1]
        say(f"{what} failed; going on")
        tell(f"{type(error).__name__}: {last}"[:300])


class Asker:
    """Runs one scenario of one system in a process of its own."""

    def __init__(self, url: str, work: Path, patience: float = PATIENCE) -> None:
        """*patience*: seconds for one scenario of one system; what takes longer has failed."""
        self._work = work
        self._patience = patience
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
            shutil.rmtree(made, ignore_errors=True)

    @contextmanager
    def started(
        self, system: System, ask: str, parameters: Mapping[str, Any]
    ) -> Iterator[subprocess.Popen[str]]:
        """The process that does it; gone afterwards, and when it takes too long."""
        argv = [str(system.python), str(SYSTEMS / system.script), ask, json.dumps(parameters)]
        with (
            self._errors.open("w", encoding="utf-8") as errors,
            subprocess.Popen(
                argv, env=self.env, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as running,
        ):
            timer = threading.Timer(self._patience, running.kill)
            timer.start()
            try:
                yield running
            finally:
                timer.cancel()
                running.kill()

    @property
    def _errors(self) -> Path:
        """Where its complaints go: shown when it fails."""
        return self._work / "errors"

    def told(self, running: subprocess.Popen[str], system: System, what: str) -> dict[str, Any]:
        """What the last line of its output says.

        Raises:
            RuntimeError: it failed, or took too long.
        """
        said, _ = running.communicate()
        if running.returncode:
            self.fail(system, what)
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        return answer

    def fail(self, system: System, what: str) -> NoReturn:
        """Say what it complained about, and give up."""
        said = self._errors.read_text(encoding="utf-8")[-4_000:]
        raise RuntimeError(f"{system.title} failed at {what}, or took too long:\n{said}")

    def profile(self, cause: Cause) -> Parts:
        """Ours, by where it goes."""
        answer = self._asked(OURS, cause.profiler, cause.parameters, cause.profiler)
        return {column: parts for column, parts in answer.items() if parts}

    def ask(self, system: System, scenario: Scenario) -> dict[str, Any] | None:
        """What it measured; None: it does not offer that.

        Raises:
            RuntimeError: it failed, or took too long.
        """
        answer = self._asked(
            system, scenario.ask, scenario.parameters, scenario.key, folder=scenario.folder
        )
        return None if answer.get("not_offered") else answer

    def _asked(
        self,
        system: System,
        ask: str,
        parameters: Mapping[str, Any],
        what: str,
        *,
        folder: bool = True,
    ) -> dict[str, Any]:
        with self.folder() as made:
            where = {"folder": str(made)} if folder else {}
            with self.started(system, ask, {**parameters, **where}) as running:
                return self.told(running, system, what)


def resumed(asker: Asker, system: System, fake: FakeMessages, turns: int) -> str | float | None:
    """Milliseconds to open what a killed process left and to get the next answer.

    The model must be sent all earlier turns; if it is not, the words say how many it was.
    """
    with asker.folder() as folder:
        where = {"folder": str(folder), "turns": turns}
        with asker.started(system, "talk", where) as talking:
            assert talking.stdout is not None
            told = (line for line in talking.stdout if "not_offered" in line or "talked" in line)
            said = next(told, "")
            if "not_offered" in said:
                return None
            if not said:
                asker.fail(system, "talking")
            talking.send_signal(signal.SIGKILL)
            talking.wait()
        fake.reset()
        with asker.started(system, "go_on", where) as going_on:
            answer = asker.told(going_on, system, "going on")
        sent = json.dumps(fake.requests[-1].body["messages"])
        known = sum(f'"{number}: ' in sent for number in range(turns))
    if known < turns:
        return f"the model was sent {known} of {turns} earlier turns"
    return float(answer["ms"])
