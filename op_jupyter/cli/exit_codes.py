"""What the number means that a command ends with.  Scripts branch on it, so it never changes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.errors import (
    Busy,
    CorruptRecord,
    FormatTooNew,
    InvalidSessionId,
    OpenProgramError,
    SessionActive,
    SessionLocked,
    TurnCancelled,
    UnknownNode,
    UnknownSession,
)


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    WRONG_USAGE = 2
    NOT_FOUND = 3
    BUSY = 4
    DAMAGED = 5
    INTERRUPTED = 130


MEANING: Final[Mapping[ExitCode, str]] = {
    ExitCode.OK: "Success.",
    ExitCode.FAILED: "Failure; one line on stderr says why.",
    ExitCode.WRONG_USAGE: "The command line is wrong; nothing was done.",
    ExitCode.NOT_FOUND: "No session, node or deleted session has that id.",
    ExitCode.BUSY: "Another process holds the session, or a turn is running; try again later.",
    ExitCode.DAMAGED: "The session is damaged, or was written by a newer version.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C.",
}

_BY_ERROR: Final[tuple[tuple[tuple[type[OpenProgramError], ...], ExitCode], ...]] = (
    ((BadCommandLine, InvalidSessionId), ExitCode.WRONG_USAGE),
    ((UnknownSession, UnknownNode), ExitCode.NOT_FOUND),
    ((SessionLocked, Busy, SessionActive), ExitCode.BUSY),
    ((CorruptRecord, FormatTooNew), ExitCode.DAMAGED),
    ((TurnCancelled,), ExitCode.INTERRUPTED),
)


def code_of(error: OpenProgramError) -> ExitCode:
    """The exit code of a command that *error* ended."""
    return next((code for kinds, code in _BY_ERROR if isinstance(error, kinds)), ExitCode.FAILED)
