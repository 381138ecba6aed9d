"""Put on this machine what the tests need; each step is skipped when it is already done.

Runs on the bare system Python (3.11 or newer), before anything is installed:

    python3 tests/support/prepare.py venv .venv   an environment with the project and its tools
    python3 tests/support/prepare.py labextension the built lab extension, where Node is there
    python3 tests/support/prepare.py kernels      one environment per ipykernel that we support
    python3 tests/support/prepare.py chromium     a browser, where apt-get may install one
    python3 tests/support/prepare.py shells       those whose completion is tested, likewise
    python3 tests/support/prepare.py oldest-lab   the oldest front ends, for `make matrix`
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / ".envs"
LABEXTENSION = ROOT / "op_jupyter" / "labextension"
LAB_SOURCES = ROOT / "labextension"

# Each changed how comm messages reach a busy cell: 6.30 never, 7.3 by subshells, newest (7.4 on)
# by the shell that made the widget.
IPYKERNELS = {"6.30.1": "ipykernel==6.30.1", "7.3.0": "ipykernel==7.3.0", "newest": "ipykernel<8"}

PROGRAMS = ("chromium", "zsh", "fish")
"""Packages of Debian whose program is called like them."""

# The oldest front ends that we support, with what the tests in a browser need themselves.
OLDEST_LAB = KERNELS / "jupyterlab-4.4"
_OLDEST_LAB_HOLDS = (
    *(f"-e{ROOT}[testing]", "jupyterlab==4.4.*", "notebook==7.4.*"),
    *("hypothesis", "playwright>=1.60,<2", "pytest-asyncio", "pytest-benchmark", "pytest-timeout"),
    "pytest-xdist",
)


def main() -> None:
    """Parse the step and run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    steps = parser.add_subparsers(dest="step", required=True)
    venv = steps.add_parser("venv")
    venv.add_argument("folder", type=Path)
    venv.add_argument("--extras", default="dev,docs,lab,local")
    steps.add_parser("labextension")
    steps.add_parser("kernels")
    steps.add_parser("chromium")
    steps.add_parser("shells")
    steps.add_parser("oldest-lab")
    args = parser.parse_args()
    match args.step:
        case "venv":
            prepare_venv(args.folder.absolute(), [f"-e{ROOT}[{args.extras}]", "pip"])
        case "labextension":
            prepare_labextension()
        case "kernels":
            prepare_kernels()
        case "chromium":
            prepare_programs("chromium", "chromium", "fonts-dejavu")
        case "shells":
            prepare_programs("the completion of zsh and fish", "zsh", "fish")
        case "oldest-lab":
            prepare_venv(OLDEST_LAB, [*_OLDEST_LAB_HOLDS])


def prepare_venv(folder: Path, requirements: list[str]) -> None:
    """Make *folder* an environment that holds *requirements*, unless it is one already."""
    inputs = [ROOT / "pyproject.toml", ROOT / "hatch_build.py", LAB_SOURCES / "package.json"]
    # Editable installs copy the lab extension, the alias, the kernelspec and what switches the
    # server extension on: reinstall on change.
    inputs += [ROOT / "op_jupyter" / "_openprogram.py", *_files(LABEXTENSION)]
    inputs += _files(ROOT / "op_jupyter" / "kernel" / "spec")
    inputs += _files(ROOT / "op_jupyter" / "server" / "config")
    wanted = _digest(inputs, [sys.version, *requirements])
    stamp = folder / ".prepared"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"installing into {_short(folder)}")
    uv = shutil.which("uv")
    python = folder / "bin" / "python"
    if uv:
        if not python.exists():
            _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *requirements])
    else:
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", *requirements])
    stamp.write_text(wanted)


def prepare_labextension() -> None:
    """Build the lab extension if its sources changed; without Node say so and go on."""
    sources = [path for path in _files(LAB_SOURCES) if "node_modules" not in path.parts]
    sources += _files(ROOT / "op_jupyter" / "views" / "static")  # shared with the live view
    wanted = _digest(sources, [])
    stamp = KERNELS / "labextension.prepared"
    if LABEXTENSION.is_dir() and stamp.exists() and stamp.read_text() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        say("npm was not found: going on without the lab extension (install Node to build it)")
        return
    say("building the lab extension")
    builder = KERNELS / "builder"
    prepare_venv(builder, ["jupyter-builder>=1.3,<2"])
    path = f"{builder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    _run([npm, "install", "--silent"], cwd=LAB_SOURCES)
    _run([npm, "run", "--silent", "build"], cwd=LAB_SOURCES, path=path)
    stamp.write_text(wanted)


def prepare_kernels() -> None:
    """Make one environment per supported ipykernel, each with a kernelspec under `.envs/share`.

    Tests reach them with `JUPYTER_PATH=.envs/share/jupyter` as `op-6.30.1`, `op-7.3.0`, …
    """
    for name, ipykernel in IPYKERNELS.items():
        folder = KERNELS / f"ipykernel-{name}"
        prepare_venv(folder, [f"-e{ROOT}", ipykernel, "pandas", "matplotlib", "distributed"])
        if not (KERNELS / "share" / "jupyter" / "kernels" / f"op-{name}").is_dir():
            _run(
                [
                    *(str(folder / "bin" / "python"), "-m", "ipykernel", "install"),
                    *("--prefix", str(KERNELS), "--name", f"op-{name}"),
                    *("--display-name", f"ipykernel {name}"),
                ]
            )


def prepare_programs(tested: str, *packages: str) -> None:
    """Install *packages* of Debian, where the programs are missing and we may.

    Otherwise say that *tested* is not.
    """
    wanted = [name for name in packages if name in PROGRAMS]
    if all(map(shutil.which, wanted)):
        return
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        say(f"only root may install {', '.join(wanted)}: tests of {tested} will be skipped")
        return
    say(f"installing {', '.join(wanted)}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    _run([apt, "update", "-qq"])
    _run([apt, "install", "-y", "-qq", "--no-install-recommends", *packages])


def say(message: str) -> None:
    """Print one line of progress."""
    print(f"prepare: {message}", flush=True)


def _run(command: list[str], *, cwd: Path = ROOT, path: str | None = None) -> None:
    """Run *command* and stop with its output if it fails."""
    env = {**os.environ, "UV_COMPILE_BYTECODE": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # kernels start twice as slow without bytecode
    if path:
        env["PATH"] = path
    done = subprocess.run(
        command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"prepare: failed ({done.returncode}): {' '.join(command)}")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(files: Iterable[Path], words: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode())
    for path in files:
        if path.exists():
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    main()
