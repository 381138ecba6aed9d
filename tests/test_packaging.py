"""What the built wheel holds, with Node and without, and that it works where only it is."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from jupyter_server.extension.config import ExtensionConfigManager
from jupyter_server.extension.manager import ExtensionPackage
from jupyterlab_server.config import get_federated_extensions

from op_jupyter import __version__

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = "data/share/jupyter/labextensions/op-jupyter-labextension"
BUILT = ROOT / "op_jupyter" / "labextension"
DRIVER = ROOT / "tests" / "support" / "wheel_quickstart.py"


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
    if not BUILT.is_dir():
        pytest.skip("the lab extension is not built: python3 tests/support/prepare.py labextension")
    source = copy_of_the_tree(tmp_path_factory.mktemp("built"))
    shutil.copytree(BUILT, source / "op_jupyter" / "labextension")
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
    extension = {file.partition(f"{EXTENSION}/")[2] for file in files if EXTENSION in file}
    built = {str(path.relative_to(BUILT)) for path in BUILT.rglob("*") if path.is_file()}
    assert extension == {"install.json", *built}
    assert not [file for file in files if file.startswith("op_jupyter/labextension")]


def test_the_wheel_holds_the_alias_the_kernel_and_the_type_marker(files: set[str]) -> None:
    assert {"openprogram.py", "op_jupyter/py.typed"} <= files
    assert "op_jupyter/_openprogram.py" not in files
    assert [file for file in files if file.endswith("kernels/openprogram/kernel.json")]


def test_the_wheel_holds_every_lesson_with_its_recording_and_its_data(files: set[str]) -> None:
    lessons = {file.partition("data/share/op-jupyter/notebooks/")[2] for file in files} - {""}
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    named = subprocess.run(listed, cwd=ROOT / "notebooks", capture_output=True, text=True)
    assert lessons == set(named.stdout.splitlines())
    assert {"quickstart.ipynb", "quickstart.cassette", "data/penguins.csv"} <= lessons


def test_what_an_index_of_packages_checks_is_right(built_wheel: tuple[Path, str]) -> None:
    files = sorted(built_wheel[0].parent.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


def test_a_package_index_shows_readme_without_anything_that_leads_nowhere_there(
    built_wheel: tuple[Path, str],
) -> None:
    with ZipFile(built_wheel[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(wheel.read(name))
    shown = str(metadata.get_payload())

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!https?://)[^)]*\)|<!--", shown) == []
    headings = re.findall(r"^## (.+)$", shown, re.MULTILINE)
    assert headings[:2] == ["Install", "Five minutes"] and headings[-1] == "Documentation"
    readme = (ROOT / "README.md").read_text("utf-8")
    assert shown.lstrip().startswith(readme.partition("![")[0])
    assert readme.count("|\n") - shown.count("|\n") == 4  # all tables but the one about a clone


def test_changelog_package_and_project_have_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    extension = json.loads((ROOT / "labextension" / "package.json").read_text("utf-8"))
    assert released[0] == project["version"] == __version__ == extension["version"]


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


# --- where only the wheel is


@pytest.fixture(scope="module")
def no_node(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A search path with git and nothing else."""
    folder = tmp_path_factory.mktemp("path")
    git = shutil.which("git")
    assert git is not None
    (folder / "git").symlink_to(git)
    return str(folder)


def environment_of(folder: Path, python: str, *requirements: str) -> Path:
    """A new environment; its Python."""
    made = folder / "environment"
    uv = shutil.which("uv")
    if uv:
        venv = [uv, "venv", "--quiet", "--python", python, str(made)]
        install = [uv, "pip", "install", "--quiet", "--python", str(made / "bin" / "python")]
    else:
        venv = [python, "-m", "venv", str(made)]
        install = [str(made / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for command in (venv, [*install, *requirements]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return made / "bin" / "python"


def alone(command: list[str | Path], folder: Path, path: str) -> str:
    """Run *command* in *folder* with nothing around it that could be the clone's; its stdout."""
    kept = {name: os.environ[name] for name in ("HOME", "PICTURES") if name in os.environ}
    done = subprocess.run(
        command, cwd=folder, env={"PATH": path, **kept}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def newer_pythons() -> Iterator[str]:
    """Interpreters of this machine that are newer than this one, one of each version."""
    installed = Path.home() / ".pyenv" / "versions"
    for minor in range(sys.version_info.minor + 1, 20):
        found = [shutil.which(f"python3.{minor}"), *installed.glob(f"3.{minor}.*/bin/python")]
        for python in map(str, filter(None, found)):
            if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
                yield python
                break


def name_of(python: str) -> str:
    """What an interpreter is called in the name of a test."""
    return Path(python).parts[-3]


# A minute each: `make matrix` opens both pages with the newer ones, too.
IN_PAGES = [sys.executable, *(newer_pythons() if "OPENPROGRAM_TEST_MATRIX" in os.environ else ())]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("python", IN_PAGES, ids=name_of)
def test_the_installed_wheel_runs_the_quickstart_in_both_front_ends_without_node(
    built_wheel: tuple[Path, str], tmp_path: Path, no_node: str, python: str
) -> None:
    wheel = f"{built_wheel[0]}[lab]"
    there = environment_of(tmp_path, python, wheel, "pandas", "playwright>=1.60,<2")
    alone([there.with_name("op-jupyter"), "lessons"], tmp_path, no_node)

    usual = os.environ["PATH"]  # Chromium is a script, and needs more than git
    driver = [there, "-I", DRIVER, tmp_path / "lessons", no_node]
    shown: dict[str, Any] = json.loads(alone(driver, tmp_path, usual))

    assert Path(shown.pop("package")).is_relative_to(there.parents[1])
    assert "/lab/" in shown["lab"]["address"] and "/notebooks/" in shown["notebook"]["address"]
    for front_end in shown.values():
        mean, maximum = front_end["answers"]
        assert "The mean of body_mass_g is 4,201.75." in mean
        assert "The maximum of body_mass_g is 6,300.00." in maximum
        assert [row.split()[0] for row in front_end["graph"]] == [
            *("user", "local", "column_stat", "local")
        ]
        assert front_end["drawings"] > 0
        assert front_end["problems"] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("python", list(newer_pythons()), ids=name_of)
def test_the_installed_wheel_plays_the_quickstart_on_newer_pythons(
    built_wheel: tuple[Path, str], tmp_path: Path, no_node: str, python: str
) -> None:
    there = environment_of(tmp_path, python, str(built_wheel[0]), "pandas", "nbval", "pytest")
    alone([there.with_name("op-jupyter"), "lessons"], tmp_path, no_node)

    command = [there, "-m", "pytest", "--nbval", "--op-replay", "quickstart.ipynb"]
    said = alone(command, tmp_path / "lessons", no_node)

    assert "6 passed" in said
