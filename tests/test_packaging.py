"""What the built wheel holds, with Node and without."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from jupyter_server.extension.config import ExtensionConfigManager
from jupyter_server.extension.manager import ExtensionPackage
from jupyterlab_server.config import get_federated_extensions

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = "data/share/jupyter/labextensions/op-jupyter-labextension"
PACKAGE = (ROOT / "labextension" / "package.json").read_text()


def copy_of_the_tree(folder: Path) -> Path:
    """The source tree as a fresh clone would have it: nothing built."""
    copy = folder / "source"
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
    tmp_path: Path,
) -> None:
    output, files = build_without_node(copy_of_the_tree(tmp_path))

    (line,) = [line for line in output.splitlines() if "wheel is built WITHOUT" in line]
    assert "npm was not found" in line
    assert not [file for file in files if "labextensions" in file]
    assert "op_jupyter/__init__.py" in files


@pytest.fixture(scope="module")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A wheel of a tree whose lab extension is built, and what its build said."""
    source = copy_of_the_tree(tmp_path_factory.mktemp("built"))
    static = source / "op_jupyter" / "labextension" / "static"
    static.mkdir(parents=True)
    (static.parent / "package.json").write_text(PACKAGE)
    (static / "remoteEntry.js").write_text("")
    output, _ = build_without_node(source)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel, output


@pytest.fixture
def files(built_wheel: tuple[Path, str]) -> set[str]:
    """What the wheel holds."""
    return set(ZipFile(built_wheel[0]).namelist())


def test_built_files_go_through_the_sdist_so_that_the_wheel_needs_no_node(
    built_wheel: tuple[Path, str], files: set[str]
) -> None:
    assert "WITHOUT" not in built_wheel[1]
    extension = {file.partition(EXTENSION)[2] for file in files if EXTENSION in file}
    assert extension == {"/install.json", "/package.json", "/static/remoteEntry.js"}
    assert not [file for file in files if file.startswith("op_jupyter/labextension")]


def test_the_wheel_holds_the_alias_the_kernel_and_the_type_marker(files: set[str]) -> None:
    assert {"openprogram.py", "op_jupyter/py.typed"} <= files
    assert "op_jupyter/_openprogram.py" not in files
    assert [file for file in files if file.endswith("kernels/openprogram/kernel.json")]


def test_the_wheel_holds_the_lesson_that_the_demo_plays(files: set[str]) -> None:
    lessons = {file.partition("data/share/op-jupyter/notebooks/")[2] for file in files} - {""}
    assert lessons == {"quickstart.ipynb", "data/README.md", "data/penguins.csv"}


def test_jupyter_finds_both_extensions_where_the_wheel_puts_its_data(
    built_wheel: tuple[Path, str], tmp_path: Path
) -> None:
    with ZipFile(built_wheel[0]) as wheel:
        wheel.extractall(tmp_path)
    (prefix,) = tmp_path.glob("*.data/data")

    lab = get_federated_extensions([str(prefix / "share/jupyter/labextensions")])
    server = ExtensionConfigManager(read_config_path=[str(prefix / "etc/jupyter")])

    assert lab["op-jupyter-labextension"]["install"]["packageName"] == "op-jupyter"
    assert server.get_jpserver_extensions() == {"op_jupyter.server": True}
    assert ExtensionPackage(name="op_jupyter.server").validate()
