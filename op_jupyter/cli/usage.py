"""What is wrong with a command line, beyond what its parser can know."""

from __future__ import annotations

from op_jupyter.errors import UsageError


class BadCommandLine(UsageError):
    """The command line names something that is not there, or does not fit."""
