"""Code of the model in the user's namespace, in a real IPython shell."""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from IPython.core.interactiveshell import InteractiveShell

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.core.permissions import decide
from op_jupyter.notebook.namespace import PythonTool, run_code
from op_jupyter.tools.base import ToolContext, ToolOutput
from op_jupyter.tools.gate import gate_call, places_of

T = TypeVar("T")


class Here:
    """A main thread that is this one."""

    async def run(self, function: Callable[[], T]) -> T:
        return function()


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.content if isinstance(block, TextBlock))


def run(ip: InteractiveShell, code: str) -> tuple[str, str]:
    output = run_code(ip, code)
    return output.state, text_of(output)


# --- results


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("x = 1", "(no output)"),
        ("None", "(no output)"),
        ("1 + 1;", "(no output)"),
        ("'ä';  # quiet", "(no output)"),
        ("print('a')\nprint('b')\n3", "a\nb\n3"),
        ("import sys\nprint('err', file=sys.stderr)", "err"),
        (
            "from IPython.display import display\ndisplay('shown')\nprint('printed')",
            "'shown'\nprinted",
        ),
        ("from IPython.display import Markdown\nMarkdown('**a**')", "**a**"),
        ("for i in range(2):\n    i", "(no output)"),
        ("", "(no output)"),
        ("# only a comment", "(no output)"),
        ("class Thing: ...\nThing()", "<__main__.Thing>"),
    ],
)
def test_what_is_printed_and_the_last_value_come_back(
    ip: InteractiveShell, code: str, text: str
) -> None:
    assert run(ip, code) == ("succeeded", text)


def test_output_appears_in_the_cell_as_it_comes(
    ip: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    run(ip, "import sys\nprint('one')\nprint('two', file=sys.stderr)\n[1, 2]")
    shown = capsys.readouterr()
    assert shown.out == "one\n[1, 2]\n"
    assert shown.err == "two\n"


def test_a_frame_is_displayed_as_a_cell_would(ip: InteractiveShell) -> None:
    _, text = run(ip, "import pandas as pd\npd.DataFrame({'a': [1]})")
    assert text == "   a\n0  1"


def test_what_the_code_defines_stays_and_what_the_person_has_is_there(ip: InteractiveShell) -> None:
    ip.run_cell("given = 20")
    assert run(ip, "made = given + 1\ndef double(x):\n    return 2 * x") == (
        "succeeded",
        "(no output)",
    )
    assert ip.user_ns["made"] == 21
    assert ip.user_ns["double"](4) == 8
    assert "return 2 * x" in inspect.getsource(ip.user_ns["double"])


def test_it_is_no_cell(ip: InteractiveShell) -> None:
    seen: list[str] = []
    for event in ("pre_run_cell", "post_run_cell", "pre_execute", "post_execute"):
        ip.events.register(event, lambda *_, event=event: seen.append(event))
    ip.run_cell("41 + 1", store_history=True)
    seen.clear()
    before = (ip.execution_count, list(ip.user_ns["In"]), dict(ip.user_ns["Out"]), ip.user_ns["_"])
    run(ip, "print('x')\n'another value'")
    run(ip, "1 / 0")
    assert seen == []
    assert before == (
        ip.execution_count,
        list(ip.user_ns["In"]),
        dict(ip.user_ns["Out"]),
        ip.user_ns["_"],
    )


def test_a_future_import_of_the_person_holds_here_too(ip: InteractiveShell) -> None:
    ip.run_cell("from __future__ import annotations")
    assert run(ip, "def f(a: nowhere): ...\nf.__annotations__") == ("succeeded", "{'a': 'nowhere'}")


def test_a_great_deal_of_output_is_bounded_and_says_so(ip: InteractiveShell) -> None:
    _, text = run(ip, "for i in range(30_000):\n    print('line', i)")
    assert len(text) < 90_000
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 29999")
    assert "characters cut; whole: the output of the cell" in text


def test_a_secret_is_never_cut_in_half(ip: InteractiveShell) -> None:
    secret = "correct-horse-battery-staple"
    for shift in range(0, 40, 7):
        _, text = run(ip, f"print('x' * {shift})\nfor i in range(20_000):\n    print({secret!r})")
        rest = text.replace(secret, "")
        assert "correct" not in rest
        assert "staple" not in rest


def test_secrets_do_not_reach_the_cell(
    ip: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    def redact(text: str) -> str:
        return text.replace("s3cret-value", "[redacted]")

    run_code(ip, "print('a s3cret-value')\n'b s3cret-value'", redact)
    assert capsys.readouterr().out == "a [redacted]\n'b [redacted]'\n"


# --- errors


def test_an_error_shows_the_lines_of_the_code_and_the_message(ip: InteractiveShell) -> None:
    ip.run_cell("def half(x):\n    return x / 0")
    state, text = run(ip, "print('before')\ny = 1\nhalf(y)")
    assert state == "failed"
    assert text.splitlines() == [
        "before",
        "  line 3: half(y)",
        "  another cell, line 2, in half: return x / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_errors_inside_libraries_show_only_the_way_in(ip: InteractiveShell) -> None:
    _, text = run(ip, "import json\njson.loads('{')")
    assert text.splitlines()[0] == "  line 2: json.loads('{')"
    assert text.splitlines()[1].startswith("JSONDecodeError: ")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys\nsys.exit(3)", "SystemExit: 3; the code ended there, Python did not"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError"),
    ],
)
def test_whatever_the_code_raises_is_a_failed_result(
    ip: InteractiveShell, code: str, words: str
) -> None:
    state, text = run(ip, code)
    assert state == "failed"
    assert words in text


def test_after_an_error_everything_is_as_it_was(ip: InteractiveShell) -> None:
    before = (sys.stdout, sys.stderr, ip.display_pub, sys.displayhook, sys.excepthook)
    for code in ("1 / 0", "raise KeyboardInterrupt", "import sys; sys.exit()"):
        run(ip, code)
    assert before == (sys.stdout, sys.stderr, ip.display_pub, sys.displayhook, sys.excepthook)


def test_an_interrupt_is_a_cancelled_result_with_the_output_so_far(ip: InteractiveShell) -> None:
    assert run(ip, "print('so far')\nraise KeyboardInterrupt") == (
        "cancelled",
        "so far\n\n(interrupted)",
    )


def test_the_stop_button_ends_code_that_runs(ip: InteractiveShell) -> None:
    rounds = ip.user_ns["rounds"] = [0]

    def stop() -> None:
        # In the midst of a lock or a destructor on the way there, an interrupt can be lost.
        while rounds[0] < 2:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    stopper = threading.Thread(target=stop)
    stopper.start()
    state, _ = run(ip, "while True:\n    rounds[0] += 1")
    stopper.join()
    assert state == "cancelled"


def test_a_log_handler_made_by_the_code_goes_on_working(
    ip: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    run(ip, "import logging\nhandler = logging.StreamHandler()")
    handler = ip.user_ns["handler"]
    handler.emit(logging.LogRecord("n", 20, "p", 1, "later", None, None))
    assert capsys.readouterr().err == "later\n"


def test_output_of_a_thread_of_the_code_is_noted(ip: InteractiveShell) -> None:
    code = (
        "import threading\n"
        "t = threading.Thread(target=print, args=('from a thread',))\n"
        "t.start()\nt.join()"
    )
    assert run(ip, code) == ("succeeded", "from a thread")


# --- await


def test_await_works_where_no_loop_runs(ip: InteractiveShell) -> None:
    assert run(ip, "import asyncio\nawait asyncio.sleep(0, 'done')") == ("succeeded", "'done'")
    assert run(ip, "x = await asyncio.sleep(0, 5)\nx + 1") == ("succeeded", "6")


async def test_await_works_inside_the_running_loop_of_a_kernel(ip: InteractiveShell) -> None:
    code = (
        "import asyncio\n"
        "from IPython.display import display\n"
        "async def work():\n    print('inside')\n    display('shown')\n    return 7\n"
        "await work()"
    )
    assert run(ip, code) == ("succeeded", "inside\n'shown'\n7")
    state, text = run(ip, "async def fail():\n    1 / 0\nawait fail()")
    assert state == "failed"
    assert text.splitlines()[-2:] == [
        "  line 2, in fail: 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


async def test_an_interrupt_cancels_what_is_awaited(ip: InteractiveShell) -> None:
    started, cleaned = threading.Event(), threading.Event()
    ip.user_ns |= {"started": started, "cleaned": cleaned}

    def stop() -> None:
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    stopper = threading.Thread(target=stop)
    stopper.start()
    code = (
        "import asyncio\n"
        "async def wait():\n"
        "    try:\n"
        "        started.set()\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        cleaned.set()\n"
        "await wait()"
    )
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        state, _ = run(ip, code)
    finally:
        signal.signal(signal.SIGINT, previous)
        stopper.join()
    assert state == "cancelled"
    assert cleaned.wait(5)


# --- figures


@pytest.fixture
def inline(ip: InteractiveShell) -> Any:
    """matplotlib as a kernel sets it up: figures are drawn into the cell."""
    import matplotlib.pyplot as plt
    from matplotlib_inline.backend_inline import configure_inline_support
    from matplotlib_inline.config import InlineBackend as Config

    before = plt.get_backend()
    backend = "module://matplotlib_inline.backend_inline"
    plt.switch_backend(backend)
    configure_inline_support(ip, backend)
    plt.ion()
    yield plt
    configure_inline_support.current_backend = "unset"  # or the next shell gets no formats
    Config.clear_instance()
    plt.ioff()
    plt.close("all")
    plt.switch_backend(before)
    plt.uninstall_repl_displayhook()


def test_a_plot_is_shown_in_the_cell_and_goes_to_the_model(
    ip: InteractiveShell, inline: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run_code(ip, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn');")
    pictures = [block for block in output.content if isinstance(block, ImageBlock)]
    assert base64.b64decode(pictures[0].data).startswith(b"\x89PNG")
    assert text_of(output) == "drawn\n[image 1]"
    assert "<Figure size" in capsys.readouterr().out
    assert inline.get_fignums() == []


def test_only_the_first_pictures_go_to_the_model(ip: InteractiveShell, inline: Any) -> None:
    code = (
        "import matplotlib.pyplot as plt\nfor i in range(5):\n    plt.figure()\n    plt.plot([i])"
    )
    output = run_code(ip, code)
    assert sum(isinstance(block, ImageBlock) for block in output.content) == 3
    assert text_of(output).count("[an image that is not shown here]") == 2


# --- the tool


def context(main_thread: Any) -> ToolContext:
    return ToolContext(Path.cwd(), "c1", "t1", lambda _: None, main_thread)


async def test_the_tool_runs_code_on_the_main_thread(ip: InteractiveShell) -> None:
    tool = PythonTool(ip)
    output = await tool.run({"code": "6 * 7"}, context(Here()))
    assert (output.state, text_of(output)) == ("succeeded", "42")
    assert tool.timeout is None


async def test_before_code_holds_the_main_thread_the_view_is_told_that_clicks_wait(
    ip: InteractiveShell,
) -> None:
    told: list[str] = []
    place = ToolContext(Path.cwd(), "c1", "t1", told.append, Here())
    ip.user_ns["told"] = told
    output = await PythonTool(ip).run({"code": "len(told)"}, place)
    assert text_of(output) == "1" and "clicks wait until it ends" in told[0]


async def test_without_a_cell_that_waits_no_code_runs(ip: InteractiveShell) -> None:
    output = await PythonTool(ip).run({"code": "ran = 1"}, context(None))
    assert output.state == "failed"
    assert "ran" not in ip.user_ns


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1\nawait f()", ""),
        ("'\\d'", ""),
        ("x = (", "code: SyntaxError: '(' was never closed (line 1: x = ()"),
        (
            "!ls",
            "code: SyntaxError: invalid syntax (line 1: !ls); the code has to be plain Python, "
            "lines with % or ! do not work here",
        ),
        ("%pip install x", "lines with % or ! do not work here"),
        ("a\0b", "code: "),
    ],
)
def test_code_that_cannot_run_is_refused_before_anybody_is_asked(
    ip: InteractiveShell, code: str, problem: str
) -> None:
    found = PythonTool(ip).check({"code": code})
    assert problem in found
    assert bool(found) is bool(problem)


def test_a_call_without_code_is_refused(ip: InteractiveShell) -> None:
    assert PythonTool(ip).check({}) == "code: is missing"


def test_the_gate_sees_the_code(ip: InteractiveShell, tmp_path: Path) -> None:
    call = gate_call(PythonTool(ip), {"code": "import shutil\nshutil.rmtree('x')"}, tmp_path)
    verdict = decide(call, places=places_of(tmp_path), mode="auto", rules=(), interactive=True)
    assert (verdict.kind, verdict.code_lines) == ("ask", {2: "deletes folders"})


@pytest.mark.parametrize(
    "code",
    [
        "s('rm -rf x')",
        "o.system('rm -rf x')",
        "os.system(cmd)",
        "list(map(s, ['ls']))",
        "run(['rm', 'x'])",
        "shell.system('rm x')",
        "sx('rm x')",
        "open(key).read()",
        "(folder / 'x').write_text('')",
        "exec('s(cmd)')",
    ],
)
def test_the_gate_knows_what_earlier_cells_have_made_of_names(
    ip: InteractiveShell, tmp_path: Path, code: str
) -> None:
    ip.user_ns |= {"s": os.system, "o": os, "os": os, "cmd": "rm -rf x", "run": subprocess.run}
    ip.user_ns |= {"shell": ip, "sx": ip.system, "key": "/root/.ssh/id", "folder": Path("/etc")}
    call = gate_call(PythonTool(ip), {"code": code}, tmp_path)
    verdict = decide(call, places=places_of(tmp_path), mode="auto", rules=(), interactive=True)
    assert verdict.kind == "ask"


def test_to_judge_code_runs_nothing_of_the_values_it_names(
    ip: InteractiveShell, tmp_path: Path
) -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

        def __str__(self) -> str:
            raise AssertionError("asked for its text")

    ip.user_ns["x"] = Hostile()
    call = gate_call(PythonTool(ip), {"code": "x.go()"}, tmp_path)
    verdict = decide(call, places=places_of(tmp_path), mode="auto", rules=(), interactive=True)
    assert verdict.kind == "allow"


def test_several_runs_in_other_tasks_do_not_mix_their_output(ip: InteractiveShell) -> None:
    async def both() -> list[tuple[str, str]]:
        tool = PythonTool(ip)
        outputs = await asyncio.gather(
            *(tool.run({"code": f"print({i})"}, context(Here())) for i in range(3))
        )
        return [(output.state, text_of(output)) for output in outputs]

    assert asyncio.run(both()) == [("succeeded", str(i)) for i in range(3)]
