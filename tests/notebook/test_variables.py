"""What the model is told of the notebook's variables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from IPython.core.interactiveshell import InteractiveShell

from op_jupyter.core.messages import TextBlock
from op_jupyter.notebook.variables import InspectTool, user_variables, variables_section
from op_jupyter.tools.base import MainThread, ToolContext

T = TypeVar("T")


class Recording:
    """A main thread that notes that it was used."""

    def __init__(self) -> None:
        self.used = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.used += 1
        return function()


async def look(
    ip: InteractiveShell, name: str | None = None, main_thread: MainThread | None = None
) -> tuple[str, str]:
    context = ToolContext(Path("/w"), "c1", "t1", lambda _: None, main_thread)
    output = await InspectTool(ip).run({} if name is None else {"name": name}, context)
    (block,) = output.content
    assert isinstance(block, TextBlock)
    return output.state, block.text


def test_a_fresh_notebook_has_no_variables(ip: InteractiveShell) -> None:
    assert user_variables(ip) == {}
    assert variables_section(ip) == ""


def test_variables_are_listed_with_type_and_shape(ip: InteractiveShell) -> None:
    ip.run_cell(
        "import numpy as np, pandas as pd, json\n"
        "df = pd.DataFrame({'month': ['a'], 'revenue': [1.5]})\n"
        "matrix = np.zeros((2, 3))\n"
        "count = 3\n"
        "_private = 1\n"
        "def mean(values: list, digits: int = 2) -> float:\n    return 0.0\n"
        "class Shop:\n    pass\n"
        "shop = Shop()\n"
    )
    dtype = ip.user_ns["df"]["month"].dtype
    assert variables_section(ip).splitlines() == [
        "count: 3",
        f"df: DataFrame 1 × 2 (month {dtype}, revenue float64)",
        "matrix: ndarray, shape (2, 3), float64",
        "shop: <__main__.Shop object>",
        "functions: mean(values: list, digits: int = 2) -> float",
        "classes: Shop",
        "modules: json, np = numpy, pd = pandas",
    ]


def test_a_name_of_the_shell_that_the_person_took_is_theirs(ip: InteractiveShell) -> None:
    ip.user_ns["quit"] = "mine"
    assert variables_section(ip) == "quit: 'mine'"


def test_many_variables_are_bounded_and_the_rest_is_named(ip: InteractiveShell) -> None:
    ip.user_ns |= {f"variable_{i:04}": "x" * 500 for i in range(500)}
    text = variables_section(ip, 2_000)
    assert len(text) < 2_600
    assert text.splitlines()[0].startswith("variable_0000: ")
    assert " more: variable_" in text
    assert text.endswith(" more")


def test_many_functions_share_a_bounded_line(ip: InteractiveShell) -> None:
    ip.run_cell("\n".join(f"def function_{i:03}(x): ..." for i in range(200)))
    (line,) = variables_section(ip).splitlines()
    assert line.startswith("functions: function_000(x), function_001(x)")
    assert line.endswith(" more")
    assert len(line) < 700


def test_the_section_has_the_same_bytes_each_time(ip: InteractiveShell) -> None:
    ip.run_cell("s = {'b', 'a'}\no = object()\nf = lambda x: x\ng = (i for i in s)")
    assert variables_section(ip) == variables_section(ip)
    assert "0x" not in variables_section(ip)


def test_a_value_that_cannot_be_looked_at_is_no_problem(ip: InteractiveShell) -> None:
    ip.run_cell("class Bad:\n    def __repr__(self):\n        raise ValueError\nbad = Bad()")
    assert "bad: Bad (looking at it raises ValueError)" in variables_section(ip)
    ip.run_cell(
        "class Worse:\n    @property\n    def __class__(self):\n        raise ValueError\n"
        "worse = Worse()\ndef loops(): ...\nloops.__wrapped__ = loops\n"
        "import types\nnameless = types.ModuleType('x')\ndel nameless.__name__"
    )
    lines = variables_section(ip).split("\n")
    assert "worse: Worse (looking at it raises ValueError)" in lines
    assert "functions: loops" in lines and "modules: nameless, types" in lines


@pytest.mark.parametrize("name", ["api_key", "DB_PASSWORD", "token"])
async def test_a_variable_named_like_a_secret_is_not_shown(ip: InteractiveShell, name: str) -> None:
    ip.user_ns[name] = "correct-horse-battery"
    assert variables_section(ip) == f"{name}: str of 21 characters, not shown"
    assert "correct" not in (await look(ip, name))[1]


async def test_inspect_without_a_name_lists(ip: InteractiveShell) -> None:
    assert await look(ip) == ("succeeded", "(the notebook has no variables yet)")
    ip.user_ns["x"] = 1
    assert await look(ip) == ("succeeded", "x: 1")


async def test_inspect_shows_a_table_in_depth(ip: InteractiveShell) -> None:
    ip.run_cell("import pandas as pd\ndf = pd.DataFrame({'a': [1, None]})")
    state, text = await look(ip, "df")
    assert state == "succeeded"
    assert text.startswith("df: DataFrame, 2 rows × 1 columns\n  a: float64 (1 missing)\nfirst 2")


async def test_inspect_shows_a_function_with_its_source(ip: InteractiveShell) -> None:
    ip.run_cell('def half(x: float) -> float:\n    """Halve it."""\n    return x / 2')
    _, text = await look(ip, "half")
    assert text == (
        "half: function half(x: float) -> float\nHalve it.\n\n"
        'def half(x: float) -> float:\n    """Halve it."""\n    return x / 2\n'
    )


async def test_inspect_shows_what_modules_and_classes_hold(ip: InteractiveShell) -> None:
    ip.run_cell("import json\nclass Shop:\n    size = 1\n    def sell(self): ...\n")
    assert "members: JSONDecodeError" in (await look(ip, "json"))[1]
    assert (await look(ip, "Shop"))[1] == "Shop: class Shop()\nmembers: sell, size"


async def test_inspect_of_an_unknown_name_says_what_there_is(ip: InteractiveShell) -> None:
    ip.user_ns |= {"revenue": 1, "other": 2}
    assert await look(ip, "revenu") == (
        "failed",
        "there is no variable 'revenu'; there is: revenue",
    )
    assert (await look(ip, "zzz"))[
        1
    ] == "there is no variable 'zzz'; the variables are: other, revenue"
    assert "use the python tool for expressions" in (await look(ip, "df.head()"))[1]


async def test_looking_happens_on_the_main_thread_when_there_is_one(ip: InteractiveShell) -> None:
    main_thread = Recording()
    await look(ip, main_thread=main_thread)
    assert main_thread.used == 1
    ip.run_cell(
        "import threading\n"
        "class Where:\n    def __repr__(self):\n        return threading.current_thread().name\n"
        "where = Where()"
    )
    assert threading.main_thread().name in (await look(ip, "where", main_thread))[1]
    assert threading.main_thread().name not in (await look(ip, "where"))[1]


def test_inspect_only_reads(ip: InteractiveShell) -> None:
    tool = InspectTool(ip)
    assert (tool.effect, tool.trusted) == ("read", False)
    assert tool.check({"name": 3}).startswith("name: ")
