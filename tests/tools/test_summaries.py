"""Values as text and as JSON: bounded, the same every time, and whole when they fit."""

from __future__ import annotations

import asyncio
import collections
import datetime
import decimal
import enum
import json
import math
import pathlib
import re
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.tools.summaries import (
    brief_value,
    content_of,
    describe_value,
    to_json_value,
    without_addresses,
)


@dataclass
class Point:
    x: int
    y: float = 0.5
    hidden: str = field(default="no", repr=False)


class Model(pydantic.BaseModel):
    name: str
    points: list[int]


class Colour(enum.Enum):
    RED = "red"


class Plain:
    pass


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Chatty:
    def __repr__(self) -> str:
        return "x" * 5_000_000


Pair = collections.namedtuple("Pair", "left right")


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(json_values)
def test_a_value_that_json_can_hold_comes_back_whole(value: Any) -> None:
    assert to_json_value(value, 1_000_000) == value


@given(json_values | st.lists(st.text(), min_size=50), st.integers(100, 2_000))
def test_whatever_the_value_its_json_stays_near_the_limit(value: Any, limit: int) -> None:
    text = json.dumps(to_json_value(value, limit), ensure_ascii=False)
    assert len(text) <= 3 * limit + 500


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ((1, 2), [1, 2]),
        ({3, 1, 2, -1}, [-1, 1, 2, 3]),
        ({"b", "a"}, ["a", "b"]),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        ({1: "a", "1": "b"}, {"1": "a", "1 (str 1)": "b"}),
        (Colour.RED, "red"),
        (Point(1), {"x": 1, "y": 0.5}),
        (Pair(1, [2]), {"left": 1, "right": [2]}),
        (Model(name="n", points=[1]), {"name": "n", "points": [1]}),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.timedelta(seconds=3), "0:00:03"),
        (decimal.Decimal("1.50"), "1.50"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"ab", "bytes of 2: b'ab'"),
        (2**70, 2**70),
        (Plain(), "<test_summaries.Plain object>"),
    ],
)
def test_other_values_become_the_nearest_json(value: Any, expected: Any) -> None:
    found = to_json_value(value)
    if isinstance(value, Plain):
        found = str(found).replace(f"{Plain.__module__}.", "test_summaries.")
    assert found == expected


def test_what_is_cut_says_so_in_place() -> None:
    numbers = to_json_value(list(range(100_000)), 200)
    assert isinstance(numbers, list)
    assert numbers[:3] == [0, 1, 2]
    assert numbers[-1] == f"… {100_000 - len(numbers) + 1} more"
    text = to_json_value("x" * 100_000, 200)
    assert str(text).endswith("x… (100000 characters)")
    members = to_json_value({str(i): i for i in range(1000)}, 100)
    assert isinstance(members, dict)
    assert members["…"] == f"{1000 - len(members) + 1} more"


def test_an_integer_too_long_to_write_is_described() -> None:
    assert to_json_value(10**5000) == "int of 16610 bits"


def test_a_value_inside_itself_ends() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert to_json_value(loop) == [1, "… list inside itself or too deep"]
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    assert "too deep" in json.dumps(to_json_value(deep), ensure_ascii=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("abc", "'abc'"),
        ([1, 2], "list of 2: [1, 2]"),
        (list(range(100)), "list of 100: [0, 1, 2, 3, 4, 5, 6, 7, …]"),
        ({"a": [1]}, "dict of 1: {'a': list of 1: [1]}"),
        ({"b", "a"}, "set of 2: {'a', 'b'}"),
        ((1,), "tuple of 1: (1)"),
        (Point(1), "Point(x=1, y=0.5)"),
        (add, "function add(a: int, b: int = 2) -> int"),
        (math, "module math"),
        (len, "function len(obj, /)"),
        (Plain, "class Plain()"),
        (Broken(), "Broken (looking at it raises RuntimeError)"),
        ("x" * 500, "str of 500: '" + "x" * 106 + "…"),
    ],
)
def test_one_line_tells_type_and_value(value: Any, text: str) -> None:
    assert brief_value(value) == text


def test_a_function_is_described_with_its_docstring() -> None:
    assert describe_value(add).endswith("Add two numbers.")


@pytest.mark.parametrize(
    "value",
    [
        Plain(),
        [].append,
        (i for i in range(3)),
        lambda x: x,
        [Plain()],
        {"a": Plain()},
        object(),
    ],
)
def test_no_memory_address_is_ever_shown(value: Any) -> None:
    for text in (brief_value(value), describe_value(value), json.dumps(to_json_value(value))):
        assert re.search(r"0x[0-9a-f]{4}", text) is None, text


def test_a_generator_is_not_consumed() -> None:
    numbers = (i for i in range(3))
    for view in (brief_value, describe_value, to_json_value):
        view(numbers)
    assert list(numbers) == [0, 1, 2]


@pytest.mark.parametrize(
    "value",
    [Chatty(), "x" * 5_000_000, ["y" * 1_000_000] * 5, {"k" * 1_000_000: 1}, b"z" * 5_000_000],
)
def test_nothing_is_ever_megabytes(value: Any) -> None:
    assert len(brief_value(value)) <= 120
    assert len(describe_value(value)) <= 4_100
    assert len(json.dumps(to_json_value(value), ensure_ascii=False)) <= 25_000


class Walled(dict[str, Any]):
    def __len__(self) -> int:
        raise RuntimeError("no")

    items = values = keys = __iter__ = __len__  # type: ignore[assignment]


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


class Loud(enum.Enum):
    ONE = Silent()


@dataclass
class Closed:
    word: str

    def __getattribute__(self, name: str) -> Any:
        if name == "word":
            raise RuntimeError("no")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("value", [Walled(a=1), Silent(), Loud.ONE, Closed("x")])
def test_a_value_whose_own_code_fails_is_described_and_so_is_what_holds_it(value: Any) -> None:
    for held in (value, [value], {"in": value}):
        for text in (brief_value(held), describe_value(held), json.dumps(to_json_value(held))):
            assert "looking at it raises RuntimeError" in text or "…" in text
    assert to_json_value([1, value, 2])[::2] == [1, 2]  # type: ignore[index,call-overload]


class Leaving:
    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __repr__(self) -> str:
        raise self._error


class Odd(BaseException):
    pass


def _looked_at(error: type[BaseException]) -> list[str]:
    held = [Leaving(error), [Leaving(error)], {Leaving(error): 1}]
    looks = (brief_value, describe_value, lambda value: json.dumps(to_json_value(value)))
    return [look(value) for value in held for look in looks]


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError, Odd])
def test_a_value_cannot_end_the_program_that_looks_at_it(error: type[BaseException]) -> None:
    for text in _looked_at(error):
        assert f"looking at it raises {error.__name__}" in text or "…" in text


def test_an_interrupt_of_a_value_is_the_stop_button_on_the_main_thread_alone() -> None:
    with ThreadPoolExecutor(1) as threads:
        texts = threads.submit(_looked_at, KeyboardInterrupt).result()
    assert all("looking at it raises KeyboardInterrupt" in text or "…" in text for text in texts)
    with pytest.raises(KeyboardInterrupt):
        brief_value(Leaving(KeyboardInterrupt))


class Wordy:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@pytest.mark.parametrize("text", [" " * 390_000 + "x", "0x" * 190_000, "x" * 20_000_000])
def test_a_text_made_to_be_slow_is_described_at_once(text: str) -> None:
    began = time.monotonic()
    said = describe_value(Wordy(text))
    assert len(said) <= 4_100 and "characters cut" in said
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("seed", ["1", "2"])
def test_sets_read_the_same_in_every_process(seed: str) -> None:
    code = (
        "from op_jupyter.tools.summaries import *\n"
        "print(to_json_value({'pear', 'apple', 'fig', 3, 2.5, ('a',)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[2.5, 3, 'apple', 'fig', 'pear', ['a']]\n"


def test_looking_at_values_imports_no_library() -> None:
    code = (
        "import sys\n"
        "from op_jupyter.tools.summaries import *\n"
        "for v in (1, [1], {1}, 'a', len): brief_value(v), describe_value(v), to_json_value(v)\n"
        "print(sorted({'numpy', 'pandas', 'matplotlib', 'PIL', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_content_of_a_text_is_the_text() -> None:
    assert content_of("as it is\n") == (TextBlock("as it is\n"),)


def test_content_of_data_is_json_and_of_an_object_its_description() -> None:
    assert content_of({"a": (1, None)}) == (TextBlock('{"a": [1, null]}'),)
    assert content_of(None) == (TextBlock("null"),)
    assert content_of(add)[0] == TextBlock(describe_value(add))


def test_content_blocks_stay_what_they_are() -> None:
    block = ImageBlock("image/png", "AAAA")
    assert content_of(block) == (block,)


def test_addresses_are_taken_out_of_a_text() -> None:
    assert without_addresses("<a.B object at 0x7f12ab>") == "<a.B object>"
    assert without_addresses("hash 0xdeadbeef") == "hash 0xdeadbeef"
