"""Run a notebook from start to end, in a kernel of its own, with answers for what it asks."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from queue import Empty
from typing import Any, Final

from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.errors import ConfigurationError

Answer = Callable[[str], str | None]
"""What is typed at a prompt; None: nobody is there."""

CELL_SECONDS: Final = 600
_LOOK_SECONDS: Final = 0.5
_END_OF_INPUT: Final = "\x04"
_DIFFERS: Final = "nbval-ignore-output"
_KEPT: Final = "keep-output"
_CARD: Final = "Permission: "


def answers_of(*, cards: Sequence[str], yes: bool, given: Sequence[str], terminal: bool) -> Answer:
    """Answer cards from *cards*, and with yes if *yes*; questions from *given*; then ask."""
    for_cards, for_questions = deque(cards), deque(given)

    def answer(prompt: str) -> str | None:
        is_card = prompt.startswith(_CARD)
        waiting = for_cards if is_card else for_questions
        if waiting or (is_card and yes):
            said = waiting.popleft() if waiting else "y"
            print(f"{prompt}{said}")
            return said
        try:
            return input(prompt) if terminal else None
        except EOFError:
            return None

    return answer


class NotebookRun:
    """A notebook that is run as it is, and saved with what came of it.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, notebook: Any) -> None:
        self.path = path
        self._notebook = notebook
        self._before = deepcopy(notebook)

    @classmethod
    def read(cls, path: Path) -> NotebookRun:
        """The notebook in that file.

        Raises:
            BadCommandLine: it is none.
            ConfigurationError: what runs notebooks is not installed.
        """
        try:
            import nbformat
        except ImportError:
            raise ConfigurationError(
                'running a notebook needs more packages: pip install "op-jupyter[lab]"'
            ) from None
        try:
            notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise BadCommandLine(f"{str(path)!r} cannot be read as a notebook: {error}") from None
        return cls(path, notebook)

    def run(self, env: Mapping[str, str], answer: Answer) -> str:
        """Run all cells; what went wrong, or nothing.  *env* is added to the environment."""
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

        client = NotebookClient(
            self._notebook,
            timeout=CELL_SECONDS,
            kernel_name=self._notebook.metadata.get("kernelspec", {}).get("name", "python3"),
            resources={"metadata": {"path": str(self.path.parent)}},
        )
        named = {"JPY_SESSION_NAME": str(self.path.absolute())}
        try:
            asyncio.run(_run(client, {**os.environ, **named, **env}, answer))
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            said = str(getattr(error, "evalue", "") or error)
            return said.strip()
        return ""

    def save(self, *, recorded: bool) -> None:
        """Write it with its outputs, without what differs from run to run.

        A cell whose output nbval ignores has none where the run was *recorded*, unless it is
        tagged `keep-output`; otherwise it goes on having what it had.
        """
        import nbformat

        self._notebook["metadata"] = self._before["metadata"]
        for cell, before in zip(self._notebook["cells"], self._before["cells"], strict=True):
            cell["metadata"].pop("execution", None)
            if "outputs" not in cell:
                continue
            # A note that was taken back leaves a display without data.
            cell["outputs"] = [out for out in cell["outputs"] if out.get("data", True)]
            for output in cell["outputs"]:
                if "metadata" in output:
                    output["metadata"] = {}  # ids of this very run
            tags = cell["metadata"].get("tags", ())
            if _DIFFERS in tags and not recorded:
                cell["outputs"] = before["outputs"]
            elif _DIFFERS in tags and _KEPT not in tags:
                cell["outputs"] = []
        nbformat.write(self._notebook, self.path)  # type: ignore[no-untyped-call]


async def _run(client: Any, env: Mapping[str, str], answer: Answer) -> None:
    async with client.async_setup_kernel(env=dict(env)):
        client.kc.allow_stdin = True
        answering = asyncio.create_task(_answer(client.kc, answer))
        try:
            for number, cell in enumerate(client.nb.cells):
                await client.async_execute_cell(cell, number)
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering


async def _answer(kernel: Any, answer: Answer) -> None:
    """Type what *answer* says whenever the kernel asks for input."""
    while True:
        try:
            message = await kernel.get_stdin_msg(timeout=_LOOK_SECONDS)
        except Empty:
            continue
        said = await asyncio.to_thread(answer, message["content"]["prompt"])
        kernel.input(_END_OF_INPUT if said is None else said)
