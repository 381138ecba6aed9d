"""The embedded model's server: a real llama.cpp child with the real tiny model."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.errors import ConfigurationError, ProviderTimeout
from op_jupyter.providers import local_server
from op_jupyter.providers.local_model import install, model_path
from op_jupyter.providers.local_profile import CONTEXT_TOKENS, SAMPLING, prepare
from op_jupyter.providers.local_server import LocalServer, shared_server

PENGUINS = Path(__file__).parents[2] / "notebooks" / "data" / "penguins.csv"
STATISTICS = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
SALES = {"units": [12, 7, 31], "unit_price": [4.5, 9.25, 2.0], "Umsatz": [1200, 950, 3100]}


def missing() -> str:
    if importlib.util.find_spec("xllamacpp") is None:
        return "xllamacpp is not installed: pip install 'op-jupyter[local]'"
    if not model_path().is_file():
        return f"no model at {model_path()}: op-jupyter local install"
    return ""


@pytest.fixture
def real_model():
    """The real thing; its absence fails in CI and is a skip with a reason elsewhere."""
    if reason := missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture
def server(real_model, ended):
    return shared_server(context_tokens=CONTEXT_TOKENS)


@pytest.fixture(scope="module")
def ended():
    """Ends the servers after the last test: most tests share one, as users do."""
    yield
    local_server.close_servers()


def ask(server: LocalServer, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{server.base_url}/v1/messages",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {key or server.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int, seconds: float = 20) -> bool:
    return wait_until(lambda: not is_alive(pid), seconds)


def wait_until(happened: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happened()


# --- without a model: what is said then


def test_a_missing_library_is_said_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigurationError, match=r"op-jupyter\[local\]"):
        shared_server(tmp_path / "any.gguf", context_tokens=512)


@pytest.fixture
def library():
    pytest.importorskip("xllamacpp", reason=missing())


def test_a_missing_file_is_said_with_what_to_run(library, tmp_path):
    with pytest.raises(ConfigurationError, match="op-jupyter local install"):
        shared_server(tmp_path / "none.gguf", context_tokens=512)


def test_a_file_of_another_kind_is_no_model(library):
    with pytest.raises(ConfigurationError, match=r"penguins.csv is no GGUF model"):
        shared_server(PENGUINS, context_tokens=512)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be written to"):
        install(lambda _: None, target=blocked / "model.gguf")


def test_an_installed_model_is_left_alone(tmp_path):
    target = tmp_path / "model.gguf"
    target.write_bytes(b"GGUF and more")
    said: list[str] = []
    assert install(said.append, target=target) == target
    assert "is installed" in said[0]
    assert target.read_bytes() == b"GGUF and more"


@pytest.mark.localmodel
def test_a_damaged_model_is_said_and_leaves_no_child(real_model, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    with model_path().open("rb") as whole:
        damaged.write_bytes(whole.read(1_000_000))
    with pytest.raises(ConfigurationError, match="damaged"):
        shared_server(damaged, context_tokens=512)
    assert damaged not in local_server._servers


# --- the server's life


@pytest.mark.localmodel
def test_a_server_is_shared_and_replaced_when_it_died(server):
    assert shared_server(context_tokens=CONTEXT_TOKENS) is server
    os.kill(server.pid, signal.SIGKILL)
    # A killed process is a zombie a little before its parent can know: its threads end first.
    assert wait_until(lambda: not server.is_running)
    second = shared_server(context_tokens=CONTEXT_TOKENS)
    assert second is not server
    assert second.is_running


@pytest.mark.localmodel
def test_a_closed_server_is_gone_and_closing_twice_is_harmless(server):
    server.close()
    server.close()
    assert not is_alive(server.pid)


@pytest.mark.localmodel
def test_nobody_without_the_key_is_served(server):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(server, {"model": "local", "max_tokens": 1, "messages": []}, key="guessed")
    assert server.api_key not in Path(f"/proc/{server.pid}/cmdline").read_text()
    assert server.api_key not in repr(server)


@pytest.mark.localmodel
def test_a_server_that_is_not_ready_in_time_is_ended(real_model):
    with pytest.raises(ProviderTimeout, match=r"0\.01 s"):
        LocalServer.start(model_path(), context_tokens=512, timeout=0.01)


def run_until_killed(script: str) -> int:
    """Run *script*, kill it once it printed its server's process id, and return that id."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert is_alive(pid)
        process.kill()
    return pid


@pytest.mark.localmodel
@pytest.mark.parametrize(
    "before",
    ["", "import os, time\nif os.fork() == 0:\n    time.sleep(30)\n    os._exit(0)"],
    ids=["alone", "a fork outlives it"],
)
def test_a_killed_process_leaves_no_server(real_model, before):
    script = (
        "import signal\n"
        "from op_jupyter.providers.local_server import shared_server\n"
        "server = shared_server(context_tokens=512)\n"
        f"{before}\n"
        "print(server.pid, flush=True)\n"
        "signal.pause()\n"
    )
    assert wait_until_gone(run_until_killed(script))


@pytest.mark.localmodel
def test_a_server_outlives_the_thread_that_started_it(real_model):
    script = """
        import signal, threading
        from op_jupyter.providers import local_server
        start = lambda: local_server.shared_server(context_tokens=512)
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        print(start().pid, flush=True)
        signal.pause()
    """
    assert wait_until_gone(run_until_killed(script))


# --- what the model can do


def column_stat(table: dict[str, list[float]], arguments: dict[str, Any]) -> str:
    return f"{STATISTICS[arguments['statistic']](table[arguments['column']]):.2f}".rstrip(
        "0"
    ).rstrip(".")


def converse(server: LocalServer, table: dict[str, list[float]], *questions: str) -> list[Any]:
    """Ask *questions* in one conversation; the calls and the answer for each."""
    tool = {
        "name": "column_stat",
        "description": "Compute one statistic of one column of the table df.",
        "input_schema": {
            "type": "object",
            "properties": {
                "column": {"type": "string", "enum": list(table)},
                "statistic": {"type": "string", "enum": list(STATISTICS)},
            },
            "required": ["column", "statistic"],
        },
    }
    messages: list[dict[str, Any]] = []
    outcomes = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        calls = []
        for _ in range(3):
            body = {"model": "local", "max_tokens": 200, "messages": messages, "tools": [tool]}
            reply = ask(server, {**prepare(body), **SAMPLING})
            messages.append({"role": "assistant", "content": reply["content"]})
            uses = [b for b in reply["content"] if b["type"] == "tool_use"]
            if not uses:
                break
            calls += [use["input"] for use in uses]
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": use["id"],
                    "content": column_stat(table, use["input"]),
                }
                for use in uses
            ]
            messages.append({"role": "user", "content": results})
        outcomes.append((calls, "".join(b.get("text", "") for b in reply["content"])))
    return outcomes


def penguins() -> dict[str, list[float]]:
    with PENGUINS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    return {name: [float(r[name]) for r in rows if r[name] != "NA"] for name in names}


@pytest.mark.localmodel
def test_the_model_calls_a_typed_function_and_tells_its_number(server):
    ((calls, answer),) = converse(server, penguins(), "What is the mean of body_mass_g?")
    assert calls == [{"column": "body_mass_g", "statistic": "mean"}]
    assert "4201.75" in answer


@pytest.mark.localmodel
@pytest.mark.parametrize("column", SALES)
def test_the_model_copes_with_columns_it_never_saw(server, column):
    ((calls, answer),) = converse(server, SALES, f"What is the median of {column}?")
    assert calls == [{"column": column, "statistic": "median"}]
    assert column_stat(SALES, calls[0]) in answer


@pytest.mark.localmodel
def test_the_next_answer_builds_on_the_turn_before(server):
    """The second question does not name the column: it stands in the first turn alone."""
    _, (calls, answer) = converse(
        server, penguins(), "What is the mean of body_mass_g?", "And the maximum?"
    )
    assert calls == [{"column": "body_mass_g", "statistic": "max"}]
    assert "6300" in answer
