"""Canonical JSON, and what cannot be in it."""

from __future__ import annotations

from typing import Any

import pytest

from op_jupyter.core.keys import canonical_arguments, canonical_json, nests_deeper, sha256


def nested(levels: int) -> Any:
    value: Any = 1
    for number in range(levels):
        value = [value, 2] if number % 2 else {"x": value, "y": 3}
    return value


def test_the_same_value_is_the_same_text() -> None:
    assert canonical_json({"b": 1, "a": ["é", None]}) == '{"a":["é",null],"b":1}'
    assert sha256({"b": 1, "a": 2}) == sha256({"a": 2, "b": 1})


@pytest.mark.parametrize("raw", ["{oops", "[" * 100_000, '{"a": NaN}', "\0", ""])
def test_arguments_that_are_no_json_are_their_own_canonical_form(raw: str) -> None:
    assert canonical_arguments(raw) == raw


@pytest.mark.parametrize("levels", [0, 1, 2, 7, 100])
def test_depth_is_counted_in_arrays_and_objects(levels: int) -> None:
    assert not nests_deeper(nested(levels), levels)
    assert levels == 0 or nests_deeper(nested(levels), levels - 1)


def test_depth_of_a_wide_value_is_found_without_recursion() -> None:
    assert nests_deeper([nested(5_000), list(range(1_000))], 4_000)
