"""The numbers of README are those that were measured."""

from __future__ import annotations

import json

import pytest

from benchmarks.readme_table import BEGIN, END, FOUND, README, measured, rewritten, shown


def test_the_table_of_readme_is_that_of_the_measurements() -> None:
    """Write it again by ``python benchmarks/readme_table.py``."""
    readme = README.read_text(encoding="utf-8")
    assert rewritten(readme, json.loads(FOUND.read_text(encoding="utf-8"))) == readme


def test_a_table_takes_the_place_of_the_one_before_and_nothing_else() -> None:
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    text = f"above\n{BEGIN}\n| old | table |\n{END}\nbelow\n"
    assert rewritten(text, found) == f"above\n{BEGIN}\n{measured(found)}\n{END}\nbelow\n"
    with pytest.raises(ValueError, match="has 0 parts"):
        rewritten("no marks", found)


def test_a_row_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="append"):
        measured({"rows": [{"title": "else", "unit": "ms", "values": {}}]})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.98, "ms a node", "2.0 ms"),
        (0.147, "×", "0.15 ×"),
        (11.4, "ms", "11 ms"),
        (99.6, "ms", "100 ms"),
        (308.2, "×", "308 ×"),
        (5482.0, "ms", "5.5 s"),
        (1234.0, "KB", "1,234 KB"),
    ],
)
def test_numbers_are_short(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text
