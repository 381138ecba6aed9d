"""Which programs can be asked: an old one takes words of a prompt for commands of its own."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Final

from op_jupyter.errors import ConfigurationError, ProviderTimeout

OLDEST: Final = (2, 1, 248)
"""The first one that leaves ``@path`` and ``/command`` in a prompt alone when it is told to."""

_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


async def check_program(program: Path, seconds: float) -> None:
    """Whether *program* takes prompts as they are; one that cannot start is told when it does.

    Raises:
        ConfigurationError: it is too old, or does not say how old it is.
        ProviderTimeout: it said nothing within *seconds*.
    """
    said = await asyncio.to_thread(_version_of, program, seconds)
    if said is None:
        return
    found = _VERSION.search(said)
    if found is None or tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        told = f"is version {found[0]}" if found else "does not say which version it is"
        raise ConfigurationError(
            f"{program} {told}, and Claude Code before {oldest} takes words of a prompt for "
            "commands; run `claude update`"
        )


def _version_of(program: Path, seconds: float) -> str | None:
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProviderTimeout(
            f"{program} did not say its version within {seconds:g} s; run `{program} --version` "
            "in a terminal to see why",
            retryable=False,
        ) from None
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
