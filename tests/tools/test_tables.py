"""Tables, arrays and pictures in prompts."""

from __future__ import annotations

import base64
import io
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.tools.figures import image_block
from op_jupyter.tools.summaries import brief_value, content_of, describe_value, to_json_value


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "month": ["2026-01", "2026-02", "2026-03"],
            "revenue": [1.5, None, 3.123456789],
            "n": [1, 2, 3],
        }
    )


def test_a_frame_shows_its_shape_types_missing_values_and_head() -> None:
    text = str(frame().dtypes.iloc[0])
    assert describe_value(frame()) == (
        "DataFrame, 3 rows × 3 columns\n"
        f"  month: {text}\n"
        "  revenue: float64 (1 missing)\n"
        "  n: int64\n"
        "first 3 rows:\n"
        "    month  revenue  n\n"
        "  2026-01      1.5  1\n"
        "  2026-02      nan  2\n"
        "  2026-03  3.12346  3"
    )


def test_a_frame_shows_only_its_first_rows_and_columns() -> None:
    wide = pd.DataFrame(np.zeros((1000, 500)), columns=[f"c{i}" for i in range(500)])
    text = describe_value(wide)
    assert text.startswith("DataFrame, 1000 rows × 500 columns\n")
    assert "… 470 more columns" in text
    assert "first 5 rows:" in text
    assert len(text) < 3_000


def test_an_index_that_says_something_is_shown() -> None:
    text = describe_value(frame().set_index("month"))
    assert "index: month" in text
    assert text.splitlines()[-1].split() == ["2026-03", "3.12346", "3"]


def test_display_options_of_the_person_change_nothing() -> None:
    before = describe_value(frame())
    with pd.option_context("display.precision", 1, "display.max_rows", 1):
        assert describe_value(frame()) == before


def test_frames_with_odd_columns_are_no_problem() -> None:
    odd = pd.DataFrame([[1, 2, "a\nb" * 50]], columns=["x", "x", ("t", 1)])
    assert describe_value(odd).splitlines()[0] == "DataFrame, 1 rows × 3 columns"
    assert describe_value(pd.DataFrame()) == "DataFrame, 0 rows × 0 columns"
    grouped = frame().groupby("month").agg({"n": ["min", "max"]})
    assert "('n', 'min'): int64" in describe_value(grouped)


def test_a_frame_in_one_line() -> None:
    text = str(frame().dtypes.iloc[0])
    assert brief_value(frame()) == f"DataFrame 3 × 3 (month {text}, revenue float64, n int64)"


def test_series_index_and_arrays_show_their_first_values() -> None:
    assert describe_value(frame()["revenue"]) == (
        "Series 'revenue', 3 values, float64, 1 missing: 1.5, nan, 3.12346"
    )
    assert brief_value(pd.Series([1, 2])) == "Series, 2 values, int64"
    assert describe_value(np.arange(20)) == (
        "ndarray, shape (20,), int64: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"
    )
    assert describe_value(pd.Index([1, 2])) == "Index, 2 values, int64: 1, 2"
    assert brief_value(np.zeros((2, 3))) == "ndarray, shape (2, 3), float64"


def test_numpy_numbers_are_numbers_and_tables_are_described_in_json() -> None:
    value = to_json_value(
        {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": frame()}
    )
    assert isinstance(value, dict)
    assert (value["a"], value["b"], value["c"]) == (3, 0.5, True)
    assert str(value["d"]).startswith("DataFrame, 3 rows × 3 columns")


def test_a_time_stamp_is_written_as_iso() -> None:
    assert to_json_value([pd.Timestamp("2026-01-02"), pd.NaT]) == ["2026-01-02T00:00:00", "NaT"]


def test_content_of_a_frame_is_its_summary() -> None:
    assert content_of(frame()) == (TextBlock(describe_value(frame())),)


class _Column:
    def null_count(self) -> int:
        return 1


class _Frame:
    """Has what is used of a polars frame."""

    shape = (2, 1)
    columns = ("a",)
    dtypes = ("Int64",)

    def __getitem__(self, name: str) -> _Column:
        return _Column()

    def head(self, n: int) -> _Frame:
        return self

    def rows(self) -> list[tuple[Any, ...]]:
        return [(1,), (None,)]


def test_a_polars_frame_reads_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    polars = ModuleType("polars")
    polars.DataFrame = _Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert describe_value(_Frame()).splitlines() == [
        "_Frame, 2 rows × 1 columns",
        "  a: Int64 (1 missing)",
        "first 2 rows:",
        "     a",
        "     1",
        "  None",
    ]


@pytest.fixture
def axes() -> Any:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(4, 3)).subplots()
    axes.plot([1, 2, 3])
    axes.set_title("Revenue")
    axes.set_ylabel("EUR")
    return axes


def test_a_figure_goes_to_the_model_as_a_line_and_an_image(axes: Any) -> None:
    text, image = content_of(axes.figure)
    assert text == TextBlock("Figure with 1 axes: 'Revenue'; 'EUR over x'")
    assert isinstance(image, ImageBlock)
    assert base64.b64decode(image.data).startswith(b"\x89PNG")
    assert content_of(axes)[1] == image


def test_a_huge_figure_is_drawn_smaller(axes: Any) -> None:
    from PIL import Image

    axes.figure.set_size_inches(100, 10)
    (_, image) = content_of(axes.figure)
    assert isinstance(image, ImageBlock)
    assert max(Image.open(io.BytesIO(base64.b64decode(image.data))).size) <= 1_000


def test_an_image_goes_to_the_model_scaled_down() -> None:
    from PIL import Image

    picture = Image.new("LA", (3000, 1000))
    text, image = content_of(picture)
    assert text == TextBlock("Image 3000 × 1000, LA")
    assert isinstance(image, ImageBlock)
    assert Image.open(io.BytesIO(base64.b64decode(image.data))).size == (1000, 333)


def test_an_image_that_is_too_large_is_left_out() -> None:
    assert image_block(b"x" * 1_000_000) is None
