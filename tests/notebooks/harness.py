"""Running the lessons as a clean clone does: no key, no model, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from kernel.harness import ENVIRONMENTS, ROOT

LESSONS = ROOT / "notebooks"

# Every Python that starts with this folder on its path notes and refuses connections that leave
# the machine.
GUARD = """\
import socket

def _guarded(connect):
    def guarded(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            with open({log!r}, "a") as log:
                log.write(f"{{address}}\\n")
            raise OSError(f"no network in this test: {{address}}")
        return connect(self, address)
    return guarded

socket.socket.connect = _guarded(socket.socket.connect)
socket.socket.connect_ex = _guarded(socket.socket.connect_ex)
"""


@cache
def without_network() -> tuple[str, ...]:
    """What a command line has to begin with to run where only the loopback is."""
    isolated = ("unshare", "-rn", sys.executable, str(ROOT / "tests" / "support" / "loopback.py"))
    try:
        done = subprocess.run([*isolated, "true"], check=False, capture_output=True, timeout=30)
    except OSError:
        return ()
    return isolated if done.returncode == 0 else ()


def nbval(folder: Path, attempts: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pytest --nbval` on *folder*: no key, no model, no network, an empty environment."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder.parent),
        "JUPYTER_PATH": str(ENVIRONMENTS / "share" / "jupyter"),
        "OPENPROGRAM_LOCAL_MODEL": str(folder / "none.gguf"),
        "OPENPROGRAM_CLAUDE": str(folder / "none"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of the tests around take seconds to load
        "PYTHONPATH": os.pathsep.join([str(attempts.parent / "guard"), str(ROOT)]),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "nbval.plugin"]
    return subprocess.run(
        [*without_network(), *command, "--nbval", *(arguments or ["."])],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def shown(notebook: dict[str, object]) -> list[object]:
    """What the turns of a notebook show."""
    return [
        output["data"]
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if "application/vnd.openprogram.turn+json" in output.get("data", {})
    ]
