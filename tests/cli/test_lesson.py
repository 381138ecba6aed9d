"""The lesson for a CSV that it has never seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from op_jupyter.cli.lesson import (
    FOLLOW_UP,
    QUESTION,
    SETUP,
    STATUS,
    lesson_folder,
    prepare_lesson,
    read_table,
)
from op_jupyter.cli.main import main
from op_jupyter.errors import ConfigurationError


def csv(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "measured.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_the_column_to_ask_about_holds_numbers_and_is_no_running_number(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "id,name,price\n1,a,2.5\n2,b,9\n3,c,4\n"))

    assert table.column == "price"
    assert table.options == {}


def test_a_name_that_is_easy_to_say_comes_first(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "Weight (kg),height\n70,1.7\n81,1.9\n60,1.5\n"))

    assert table.column == "height"


def test_short_numbers_come_before_long_ones(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "passengers,Runways (n)\n4246707,2\n1830456,4\n"))

    assert table.column == "Runways (n)"


@pytest.mark.parametrize(
    ("text", "encoding", "options", "column"),
    [
        ("Ort;Umsatz\nA;1,5\nB;2,25\n", "utf-8", {"sep": ";", "decimal": ","}, "Umsatz"),
        ("Ort;Umsatz\nA;1.5\nB;2.25\n", "utf-8", {"sep": ";"}, "Umsatz"),
        ("a\tb\nx\t1.5\ny\t3\n", "utf-8", {"sep": "\t"}, "b"),
        ("Größe,n\nx,1.5\ny,3\n", "latin-1", {"encoding": "latin-1"}, "n"),
    ],
)
def test_separator_decimal_sign_and_encoding_are_found(
    tmp_path: Path, text: str, encoding: str, options: dict[str, str], column: str
) -> None:
    table = read_table(csv(tmp_path, text, encoding))

    assert table.options == options
    assert table.column == column


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,town\na,b\n", "no column of numbers; its columns are name, town"),
        ("", "cannot be read as a CSV"),
        ("a,b\n", "no column of numbers"),
    ],
)
def test_a_file_without_numbers_is_refused_with_a_reason(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_table(csv(tmp_path, text))


def test_a_missing_file_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        prepare_lesson(tmp_path / "out", tmp_path / "none.csv")

    assert not (tmp_path / "out").exists()


def test_the_lesson_is_copied_with_its_data_and_without_outputs(tmp_path: Path) -> None:
    lesson = prepare_lesson(tmp_path)

    assert {*SETUP, QUESTION, STATUS, FOLLOW_UP} <= lesson.cells.keys()
    code = [cell for cell in lesson.read()["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    original = (lesson_folder() / "data" / "penguins.csv").read_bytes()
    assert (tmp_path / "data" / "penguins.csv").read_bytes() == original


def test_the_cells_ask_about_another_csv(tmp_path: Path) -> None:
    lesson = prepare_lesson(tmp_path / "out", csv(tmp_path, "Ort;Umsatz\nA;1,5\nB;2,25\n"))

    text = json.dumps(lesson.read(), ensure_ascii=False)
    sources = {cell["id"]: "".join(cell["source"]) for cell in lesson.read()["cells"]}
    assert lesson.name == "measured.ipynb"
    assert "Umsatz" in sources[QUESTION]
    assert "pd.read_csv(\"data/measured.csv\", sep=';', decimal=',')" in sources["data"]
    assert "penguin" not in text.lower()
    assert "body_mass_g" not in text


def test_a_notebook_that_somebody_works_in_is_kept(tmp_path: Path) -> None:
    lesson = prepare_lesson(tmp_path)
    changed = lesson.path.read_text().replace("Quickstart", "My own")
    lesson.path.write_text(changed)

    prepare_lesson(tmp_path, keep=True)
    assert lesson.path.read_text() == changed
    prepare_lesson(tmp_path)
    assert "My own" not in lesson.path.read_text()


def test_the_lessons_are_copied_and_what_is_there_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my lessons"
    assert main(["lessons", str(folder)]) == 0
    assert f"OPENPROGRAM_REPLAY=replay jupyter lab '{folder}'" in capsys.readouterr().out
    notebooks = sorted(folder.glob("*.ipynb"))
    assert len(notebooks) == 8
    assert all(path.with_suffix(".cassette").exists() for path in notebooks[:6])
    assert (folder / "embedded" / "triage.py").exists()
    assert not any("](../" in path.read_text("utf-8") for path in notebooks)  # nothing is there
    assert all(json.loads(path.read_text("utf-8"))["cells"] for path in notebooks)

    notebooks[0].write_text("mine")
    (folder / "quickstart.cassette").unlink()
    assert main(["lessons", str(folder)]) == 0
    assert "files existed already and were kept" in capsys.readouterr().out
    assert notebooks[0].read_text() == "mine"
    assert (folder / "quickstart.cassette").exists()


def test_lessons_are_not_copied_to_where_they_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["lessons", str(tmp_path / "file")]) == 1
    assert "the lessons cannot be written to" in capsys.readouterr().err
    assert main(["lessons", str(lesson_folder())]) == 1
    assert "name a folder outside of it" in capsys.readouterr().err
