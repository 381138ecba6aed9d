"""`op-jupyter push` and `op-jupyter pull`: sessions in other git repositories."""

from __future__ import annotations

import sys

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.exit_codes import ExitCode, code_of
from op_jupyter.core.visible import visible
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.sync import synced_text


def push(given: str, remote: str) -> None:
    """Push the session that *given* names.

    Raises:
        OpenProgramError: there is none, or the remote cannot be reached or refuses.
    """
    service = default_service()
    print(visible(synced_text(service.upkeep.push(service.find(given), remote))))


def pull(remote: str, given: str | None) -> int:
    """Pull one session, or all that are there; the exit code.

    Raises:
        OpenProgramError: there is none, or the remote cannot be reached.
    """
    upkeep = default_service().upkeep
    wanted: list[str | None] = [given] if given is not None else [*upkeep.pushed(remote)] or [None]
    code = ExitCode.OK
    for each in wanted:
        try:
            print(visible(synced_text(upkeep.pull(remote, each))), flush=True)
        except OpenProgramError as error:
            if len(wanted) == 1:
                raise
            code = code or code_of(error)
            print(f"op-jupyter: {visible(error.message)}", file=sys.stderr)
    return code
