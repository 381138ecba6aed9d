"""What a person waits for in a notebook, measured where it happens: in a real kernel.

A page without a browser listens to the view; the model is a service on loopback.  The median
counts, as what else the machine does only adds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kernel.clicks import from_click_to_start
from kernel.harness import Cell, Kernel, interpreter, running_kernel
from kernel.page import Page

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text

FIRST_OUTPUT_SECONDS = 0.2
CLICK_SECONDS = 0.1
MESSAGES, MESSAGE_BYTES, TOKENS = 100, 1_000_000, 2_000
TURNS, WARM, WATCHED = 500, 100, 5
GROWN_KIB = 48 * 1024
"""500 turns are a graph of a thousand nodes and a longer prompt; a leak would be far more."""
ROUNDS = 9
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeMessages]:
    with FakeMessages() as service:
        yield service


@pytest.fixture(scope="module")
def kernel(fake: FakeMessages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    if not interpreter("newest").exists():
        pytest.skip("no environment for ipykernel newest: run `make test` once")
    folder: Path = tmp_path_factory.mktemp("front-end")
    env = {
        "HOME": str(folder),
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(folder / "sessions"),
    }
    with running_kernel("newest", folder, env) as running:
        running.check("%load_ext op_jupyter")
        running.finish(ask(running, "The first turn imports everything"))
        yield running


def ask(kernel: Kernel, prompt: str) -> Cell:
    return kernel.send(f"%%agent\n{prompt}", allow_stdin=True)


def watched(kernel: Kernel, prompt: str) -> tuple[Cell, Page]:
    cell = ask(kernel, prompt)
    page = Page(kernel, cell)
    page.send({"kind": "ready"})
    return cell, page


def test_the_first_words_are_seen_at_once(
    kernel: Kernel, fake: FakeMessages, benchmark: Any
) -> None:
    sent: list[float] = []

    def answer(body: Mapping[str, Any]) -> Reply:
        sent.append(time.monotonic())  # the first chunk follows on this
        return Reply([text("word " * 100)], delay=0.005)

    def until_seen() -> float:
        cell, page = watched(kernel, "Hello")
        kernel.wait_for(lambda: page.saw_text(), "the first words")
        seen = time.monotonic() - sent[-1]
        kernel.finish(cell)
        return seen

    fake.set_default(answer)
    waits = [until_seen() for _ in range(ROUNDS)]
    benchmark.pedantic(lambda: None)
    benchmark.extra_info["first_output_seconds"] = statistics.median(waits)
    assert statistics.median(waits) <= FIRST_OUTPUT_SECONDS


def test_a_long_answer_is_few_and_small_messages(
    kernel: Kernel, fake: FakeMessages, benchmark: Any
) -> None:
    fake.set_default(lambda body: Reply([text("word " * TOKENS)]))

    def stream() -> list[dict[str, Any]]:
        cell, page = watched(kernel, "Tell a long story")
        kernel.finish(cell)
        return kernel.comms[page.comm]

    messages = benchmark.pedantic(stream, rounds=1)
    sizes = [len(str(message["content"])) for message in messages]
    benchmark.extra_info.update(messages=len(sizes), bytes=sum(sizes))
    assert len(sizes) <= MESSAGES
    assert sum(sizes) <= MESSAGE_BYTES


def test_a_click_starts_the_tool_at_once(
    kernel: Kernel, fake: FakeMessages, benchmark: Any
) -> None:
    waits = [from_click_to_start(kernel, fake, number) for number in range(ROUNDS)]
    benchmark.pedantic(lambda: None)
    benchmark.extra_info["click_seconds"] = statistics.median(waits)
    assert statistics.median(waits) <= CLICK_SECONDS


def test_five_hundred_turns_leave_no_comms_and_little_memory(
    kernel: Kernel, fake: FakeMessages, benchmark: Any
) -> None:
    fake.set_default(lambda body: Reply([text("So.")]))

    def turns(number: int) -> tuple[int, int]:
        for turn in range(number):
            # A page that looks on, and is closed without a word: its view may not stay for ever.
            looks = turn % WATCHED == 0
            cell = watched(kernel, "Go on")[0] if looks else ask(kernel, "Go on")
            kernel.finish(cell)
            kernel.cells.clear()
            kernel.comms.clear()
        status = kernel.check("print(open('/proc/self/status').read())")
        memory = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return len(kernel.request("comm_info_request", {})["comms"]), int(memory.split()[1])

    comms, memory = turns(WARM)
    comms_after, memory_after = benchmark.pedantic(turns, args=(TURNS - WARM,), rounds=1)
    benchmark.extra_info.update(comms=comms_after, grown_kib=memory_after - memory)
    assert comms_after == comms
    assert memory_after - memory <= GROWN_KIB
