"""`op-jupyter gc`: have git pack what sessions keep, so that they take less of the disk."""

from __future__ import annotations

import sys

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.exit_codes import ExitCode, code_of
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.engine.service import ALL
from op_jupyter.engine.upkeep import Upkeep
from op_jupyter.errors import OpenProgramError


def gc(given: str | None, *, everything: bool) -> int:
    """Pack one session, or all that nobody has open; the exit code.

    Raises:
        BadCommandLine: neither was said, or both.
        OpenProgramError: it cannot be packed now.
    """
    if (given is None) != everything:
        raise BadCommandLine("name a session, or say --all")
    service = default_service()
    if given is not None:
        print(_pack(service.upkeep, service.find(given)))
        return ExitCode.OK
    service.upkeep.clear_leftovers()
    code = ExitCode.OK
    for info in service.list_sessions(ALL, archived=None, sub_agents=True):
        try:
            print(_pack(service.upkeep, info.id), flush=True)
        except OpenProgramError as error:
            code = code or code_of(error)
            print(f"op-jupyter: {error.message}", file=sys.stderr)
    return code


def _pack(upkeep: Upkeep, wanted: str) -> str:
    before, after = upkeep.pack(wanted)
    return f"{wanted}: {_size(before)} before, {_size(after)} now"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} KB"
