"""Whether model services may be asked from here: a test run that replays forbids it."""

from __future__ import annotations

import os
from typing import Final

from op_jupyter.errors import ConfigurationError

RECORD_WITH: Final = "OPENPROGRAM_RECORD_WITH"
"""When it is set, no service is asked; its value is the command that records what is missing."""

REFUSED_LOG: Final = "OPENPROGRAM_REFUSED_LOG"
"""Names a file that is told of each refused call: a program may go on after the error."""


def note_refusal(what: str) -> None:
    """Tell of a call that was refused, where a test run wants to know.

    Raises:
        OSError: the file cannot be written.
    """
    log = os.environ.get(REFUSED_LOG)
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{what}\n")


def check_live(service: str) -> None:
    """Refuse to ask *service* where live calls are forbidden.

    Raises:
        ConfigurationError: they are; says how to record.
    """
    command = os.environ.get(RECORD_WITH)
    if command:
        said = f"this would ask {service}, and live calls are forbidden here"
        note_refusal(said)
        raise ConfigurationError(f"{said}; record it with: {command}")
