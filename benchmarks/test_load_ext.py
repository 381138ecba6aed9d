"""Loading the extension costs at most 0.3 s over a bare kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import IPYKERNELS, Kernel, interpreter, running_kernel

LIMIT_SECONDS = 0.3
ROUNDS = 5


@pytest.mark.parametrize("ipykernel", IPYKERNELS)
def test_load_ext(ipykernel: str, tmp_path: Path, benchmark: Any) -> None:
    if not interpreter(ipykernel).exists():
        pytest.skip(f"no environment for ipykernel {ipykernel}: run `make test` once")
    with Fresh(ipykernel, tmp_path) as fresh:
        benchmark.pedantic(load, setup=fresh.kernel, rounds=ROUNDS)
    # The fastest of some rounds: what else the machine does only adds.
    assert benchmark.stats.stats.min <= LIMIT_SECONDS


def load(kernel: Kernel) -> None:
    assert kernel.run("%load_ext op_jupyter").status == "ok"


class Fresh:
    """A new kernel for each round; the one before is gone by then."""

    def __init__(self, ipykernel: str, folder: Path) -> None:
        self._ipykernel = ipykernel
        self._folder = folder
        self._running: Iterator[Kernel] | None = None

    def __enter__(self) -> Fresh:
        return self

    def kernel(self) -> tuple[tuple[Kernel], dict[str, Any]]:
        self._end()
        self._running = self._run()
        kernel = next(self._running)
        kernel.run("1 + 1")  # the first cell of any kernel is slow
        return (kernel,), {}

    def _run(self) -> Iterator[Kernel]:
        env = {"OPENPROGRAM_HOME": str(self._folder), "HOME": str(self._folder)}
        with running_kernel(self._ipykernel, self._folder, env) as kernel:
            yield kernel

    def _end(self) -> None:
        if self._running is not None:
            next(self._running, None)

    def __exit__(self, *_: object) -> None:
        self._end()
