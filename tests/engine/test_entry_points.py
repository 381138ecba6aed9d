"""The same function sends the same prompt, wherever it is called from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from op_jupyter import SessionStore, agentic_map, carry, session_context
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text
from op_jupyter.tools.summaries import to_json_value
from tests.engine.entry_function import CASE, classify

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("entry_function.py")
SCRIPT = """
from op_jupyter import session_context
from tests.engine.entry_function import CASE, classify
with session_context():
    print(classify(CASE))
"""
CELL = """
from tests.engine.entry_function import CASE, classify
classify(CASE)
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMessages]:
    with FakeMessages(default=lambda body: Reply([text("positive")])) as fake:
        values = {
            "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
            "OPENPROGRAM_CONFIG": os.devnull,
            "OPENPROGRAM_PROVIDER": "anthropic",
            "ANTHROPIC_BASE_URL": fake.url,
            "ANTHROPIC_API_KEY": API_KEY,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        }
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        yield fake


def sent(service: FakeMessages) -> bytes:
    """The one request that arrived, without the ids that it may carry."""
    (request,) = service.requests
    service.reset()
    body = {key: value for key, value in request.body.items() if key != "metadata"}
    return json.dumps(body, ensure_ascii=False).encode()


def in_a_test() -> None:
    with session_context():
        classify(CASE)


def in_a_thread() -> None:
    with session_context():
        thread = threading.Thread(target=carry(classify), args=(CASE,))
        thread.start()
        thread.join()


def in_a_worker_process() -> None:
    with session_context():
        agentic_map(classify, [CASE])


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "positive\n"


def in_a_script() -> None:
    run(sys.executable, "-c", SCRIPT)


def on_the_command_line() -> None:
    program = str(Path(sys.executable).with_name("op-jupyter"))
    case = to_json_value(CASE)
    run(program, "run", f"{FILE}:classify", "--arg", f"case={json.dumps(case)}")


@pytest.mark.slow  # four processes, each of which loads the SDK
def test_a_test_a_thread_a_worker_a_script_and_the_shell_send_the_same_bytes(
    service: FakeMessages, tmp_path: Path
) -> None:
    entries: list[Callable[[], None]] = [
        in_a_test,
        in_a_thread,
        in_a_worker_process,
        in_a_script,
        on_the_command_line,
    ]
    bodies: dict[str, bytes] = {}
    for enter in entries:
        enter()
        bodies[enter.__name__] = sent(service)
    assert set(bodies.values()) == {bodies["in_a_test"]}, bodies
    body = bodies["in_a_test"].decode()
    assert body.count("Weigh what speaks for it, and what against.") == 1
    assert "classify → weigh" in body and "Classify the sentiment" in body  # as what `by` says
    assert " at 0x" not in body
    store = SessionStore(root_path=tmp_path / "sessions")
    kept = [store.load(info.id) for info in store.sessions()]
    assert len(kept) == len(entries)
    assert all([n.name for n in dag][:1] == ["classify"] for dag in kept)


@pytest.mark.kernel
def test_a_cell_of_a_real_kernel_sends_the_same_bytes(
    service: FakeMessages, tmp_path: Path
) -> None:
    from kernel.harness import IPYKERNELS, interpreter, running_kernel

    version = IPYKERNELS[-1]
    if not interpreter(version).exists():
        pytest.skip(f"no environment for ipykernel {version}: run `make test` once")
    in_a_test()
    expected = sent(service)
    with running_kernel(version, tmp_path, {}) as kernel:
        kernel.check("%load_ext openprogram")
        kernel.check(CELL)
    assert sent(service) == expected


def test_the_same_call_twice_in_one_session_has_the_same_system_prompt(
    service: FakeMessages,
) -> None:
    systems: list[Any] = []
    with session_context():
        for _ in range(2):
            classify(CASE)
            systems.append(service.requests[-1].body["system"])
    assert systems[0] == systems[1]
