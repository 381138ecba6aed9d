"""What the built wheel holds, with Node and without."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = "data/share/jupyter/labextensions/op-jupyter-labextension"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the source tree as a fresh clone would have it: nothing built."""
    copy = tmp_path / "source"
    built = shutil.ignore_patterns("node_modules", "__pycache__")
    copy.mkdir()
    for name in ("op_jupyter", "labextension", "notebooks"):
        shutil.copytree(ROOT / name, copy / name, ignore=built)
    shutil.rmtree(copy / "op_jupyter" / "labextension", ignore_errors=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def build_without_node(source: Path) -> tuple[str, set[str]]:
    """Build sdist and wheel where no `npm` can be found; return output and wheel files."""
    folder = source.parent / "bin"
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        # The tools of this environment, so that the test needs no network.
        [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", str(source)],
        env={**os.environ, "PATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (wheel,) = (source / "dist").glob("*.whl")
    return done.stdout, set(ZipFile(wheel).namelist())


def test_without_node_the_wheel_lacks_the_lab_extension_and_the_build_says_so(
    source: Path,
) -> None:
    output, files = build_without_node(source)

    (line,) = [line for line in output.splitlines() if "wheel is built WITHOUT" in line]
    assert "npm was not found" in line
    assert not [file for file in files if "labextensions" in file]
    assert "op_jupyter/__init__.py" in files


def test_built_files_go_through_the_sdist_so_that_the_wheel_needs_no_node(source: Path) -> None:
    built = source / "op_jupyter" / "labextension"
    (built / "static").mkdir(parents=True)
    (built / "package.json").write_text("{}")
    (built / "static" / "remoteEntry.js").write_text("")

    output, files = build_without_node(source)

    assert "WITHOUT" not in output
    extension = {file.partition(EXTENSION)[2] for file in files if EXTENSION in file}
    assert extension == {"/install.json", "/package.json", "/static/remoteEntry.js"}
    assert not [file for file in files if file.startswith("op_jupyter/labextension")]


def test_the_wheel_holds_the_alias_the_kernel_and_the_type_marker(source: Path) -> None:
    _, files = build_without_node(source)

    assert {"openprogram.py", "op_jupyter/py.typed"} <= files
    assert "op_jupyter/_openprogram.py" not in files
    assert [file for file in files if file.endswith("kernels/openprogram/kernel.json")]


def test_the_wheel_holds_the_lesson_that_the_demo_plays(source: Path) -> None:
    _, files = build_without_node(source)

    lessons = {file.partition("data/share/op-jupyter/notebooks/")[2] for file in files} - {""}
    assert lessons == {"quickstart.ipynb", "data/README.md", "data/penguins.csv"}
