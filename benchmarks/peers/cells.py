"""A streamed answer in a cell of a real kernel: when it shows, in how many messages and bytes."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

PATIENCE = 90
MARK = "¶"
"""The answer begins with it: the first message that holds it shows something."""


@dataclass(frozen=True)
class Cell:
    """What a cell put on the wire.

    Attributes:
        first_ms: from the request to execute until the answer's first word was shown; None: never.
        sizes: of all outputs and comm messages, in bytes, by their type.
        text: what was printed.
    """

    first_ms: float | None
    sizes: dict[str, list[int]]
    text: str

    @property
    def messages(self) -> int:
        """How many messages."""
        return sum(map(len, self.sizes.values()))

    @property
    def bytes(self) -> int:
        """Of all messages."""
        return sum(map(sum, self.sizes.values()))


class _OneSpec(KernelSpecManager):
    """Knows the one kernel that runs in *python*."""

    def __init__(self, python: Path) -> None:
        super().__init__()
        self._argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(argv=self._argv, display_name="bench", language="python")


@dataclass
class Kernel:
    """A kernel of another environment."""

    client: BlockingKernelClient
    shown: list[str] = field(default_factory=list)

    def run(self, code: str, *, quiet: bool = True) -> Cell:
        """Execute *code* and watch what comes."""
        began = time.perf_counter()
        first: float | None = None
        sizes: dict[str, list[int]] = {}
        printed: list[str] = []
        sent = self.client.execute(code, allow_stdin=True)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            kind, content = message["msg_type"], message["content"]
            if kind == "error":
                raise RuntimeError("\n".join(content["traceback"]))
            if kind == "status":
                if (
                    content["execution_state"] == "idle"
                    and message["parent_header"].get("msg_id") == sent
                ):
                    return Cell(first, sizes, "".join(printed))
                continue
            if kind == "execute_input":
                continue
            text = json.dumps(content, default=str, ensure_ascii=False)
            size = len(text) + sum(len(b) for b in message.get("buffers", ()))
            sizes.setdefault(kind, []).append(size)
            if kind == "stream":
                printed.append(content["text"])
            if first is None and MARK in text:
                first = (time.perf_counter() - began) * 1e3
        raise TimeoutError(code)


@contextmanager
def kernel(python: Path, env: Mapping[str, str], folder: Path) -> Iterator[Kernel]:
    """A fresh kernel of the environment that *python* belongs to."""
    manager = KernelManager(kernel_spec_manager=_OneSpec(python), kernel_name="bench")
    whole = {**os.environ, **env}
    whole.pop("PYTHONDONTWRITEBYTECODE", None)
    manager.start_kernel(env=whole, cwd=str(folder))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def measured(
    python: Path,
    env: Mapping[str, str],
    folder: Path,
    setup: Sequence[str],
    prompt: str,
    rounds: int,
) -> dict[str, Any]:
    """Milliseconds to load, then medians of *rounds* cells that ask *prompt*."""
    with kernel(python, env, folder) as running:
        running.run("1 + 1")
        began = time.perf_counter()
        running.run(setup[0])
        loaded = (time.perf_counter() - began) * 1e3
        for code in setup[1:]:
            running.run(code)
        running.run(prompt)  # imports and connections
        cells = [running.run(prompt) for _ in range(rounds)]
    firsts = [cell.first_ms for cell in cells]
    if None in firsts:
        raise RuntimeError(f"the answer was never shown by {prompt!r}")
    return {
        "load_ms": loaded,
        "first_ms": statistics.median(first for first in firsts if first is not None),
        "messages": statistics.median(cell.messages for cell in cells),
        "kb": statistics.median(cell.bytes for cell in cells) / 1024,
        "messages_by": {kind: len(sizes) for kind, sizes in cells[-1].sizes.items()},
        "kb_by": {kind: sum(sizes) / 1024 for kind, sizes in cells[-1].sizes.items()},
    }


def load_profile(
    python: Path, env: Mapping[str, str], folder: Path, sampling: Path, extension: str
) -> dict[str, float]:
    """Milliseconds of loading *extension* in a fresh kernel, by where they go.

    Args:
        sampling: the folder of `_sampling`.
    """
    looked = (
        "with _sampling.ImportSampler() as _looked:\n"
        f"    get_ipython().run_line_magic('load_ext', {extension!r})"
    )
    with kernel(python, env, folder) as running:
        running.run(f"import json, sys; sys.path.insert(0, {str(sampling)!r}); import _sampling")
        running.run(looked)
        found: dict[str, float] = json.loads(
            running.run("print(json.dumps(_looked.parts(1)))").text
        )
    return found
