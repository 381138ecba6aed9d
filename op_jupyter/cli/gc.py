"""`op-jupyter gc`: have git pack what sessions keep, so that they take less of the disk."""

from __future__ import annotations

import sys

from op_jupyter.bootstrap import default_store
from op_jupyter.cli.exit_codes import ExitCode, code_of
from op_jupyter.cli.ids import session_id
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.sessions import SessionStore

_ALL = 1_000_000


def gc(given: str | None, *, everything: bool) -> int:
    """Pack one session, or all that nobody has open; the exit code.

    Raises:
        BadCommandLine: neither was said, or both.
        OpenProgramError: it cannot be packed now.
    """
    if (given is None) != everything:
        raise BadCommandLine("name a session, or say --all")
    store = default_store()
    if given is not None:
        print(_pack(store, session_id(store, given)))
        return ExitCode.OK
    store.purge_older(float("inf"))  # nothing is that old: only what a purge left half done
    code = ExitCode.OK
    for info in store.sessions(_ALL):
        try:
            print(_pack(store, info.id), flush=True)
        except OpenProgramError as error:
            code = code or code_of(error)
            print(f"op-jupyter: {error.message}", file=sys.stderr)
    return code


def _pack(store: SessionStore, wanted: str) -> str:
    before, after = store.pack(wanted)
    return f"{wanted}: {_size(before)} before, {_size(after)} now"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} KB"
