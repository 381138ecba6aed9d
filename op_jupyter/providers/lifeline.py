"""Ends a child process with its parent, however the parent ends.

Some programs go on with what they do when their standard input closes.  The child is started
through a launcher, and beside it a shell waits for the end of a pipe that only we hold open:
when we are gone, killed or not, it ends the child.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PIPE: Final = "OP_JUPYTER_LIFELINE"
_PROGRAM: Final = "OP_JUPYTER_PROGRAM"
_LAUNCHER: Final = f"""#!/bin/sh
(
  read -r _ < "${_PIPE}/pipe"
  kill -TERM $$ 2>/dev/null
  rm -rf "${_PIPE}"
) </dev/null >/dev/null 2>&1 &
exec "${_PROGRAM}" "$@"
"""


class Lifeline:
    """For one child: start `launcher`, with `environment`, in place of *program*."""

    def __init__(self, program: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="op-jupyter-"))
        self._program = program
        os.mkfifo(self._folder / "pipe", 0o600)
        # Both ends, so that opening neither waits nor fails; never inherited.
        self._pipe: int | None = os.open(self._folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
        self.launcher.write_text(_LAUNCHER, encoding="utf-8")
        self.launcher.chmod(0o700)

    @property
    def launcher(self) -> Path:
        """What to start."""
        return self._folder / "launch"

    @property
    def environment(self) -> Mapping[str, str]:
        """What it has to find in its environment."""
        return {_PIPE: str(self._folder), _PROGRAM: str(self._program)}

    def keep(self, name: str, text: str) -> Path:
        """A file that lives as long as this does."""
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def close(self) -> None:
        """Let go, once the child has ended.  Safe to call twice."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
            shutil.rmtree(self._folder, ignore_errors=True)
