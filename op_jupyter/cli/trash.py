"""`op-jupyter trash`: delete sessions, bring them back, or remove them for good."""

from __future__ import annotations

import argparse
import re
from typing import Final

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.output import print_json, print_table
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.store.summary import session_named
from op_jupyter.store.trash import Trashed
from op_jupyter.views.text import count, one_line

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE: Final = re.compile(rf"(\d{{1,9}})([{''.join(_UNITS)}])")
_COLUMNS: Final = ("session", "deleted (UTC)", "turns", "status", "title")
_TITLE_CHARS: Final = 60


def age(text: str) -> float:
    """*text* (``30d``, ``12h``, ``0s``) in seconds; for argparse.

    Raises:
        ArgumentTypeError: it is no such thing.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: use 30d, 12h or 0s, for example")
    return float(int(match[1]) * _UNITS[match[2]])


def list_trash(*, as_json: bool) -> None:
    """Print what is in the trash, the newest first."""
    found = default_service().upkeep.trash()
    if as_json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, [_row(each) for each in found])
    else:
        print("The trash is empty.")


def _row(trashed: Trashed) -> tuple[str, ...]:
    info = trashed.info
    when = trashed.deleted_at[:16].replace("T", " ")
    title = one_line(info.title, _TITLE_CHARS)
    return info.id, when, count(info.turns, "turn"), info.last_status, title


def put(given: str) -> None:
    """Move the session that *given* names to the trash.

    Raises:
        UnknownSession: there is none.
        SessionLocked: somebody has it open for writing.
    """
    service = default_service()
    wanted = service.find(given)
    service.delete_session(wanted)
    print(f"{wanted} is in the trash; `op-jupyter trash restore {wanted}` restores it")


def restore(given: str) -> None:
    """Bring a session back, the one deleted last of those with that id.

    Raises:
        UnknownSession: none in the trash has that id.
        StoreError: there is another session with that id by now.
    """
    service = default_service()
    there = [trashed.info.id for trashed in service.upkeep.trash()]
    wanted = session_named(given, list(dict.fromkeys(there)))
    service.restore_session(wanted)
    print(f"{wanted} was restored")


def purge(given: str | None, older_than: float | None) -> None:
    """Remove for good what is in the trash under that id, or what was deleted so long ago.

    Raises:
        BadCommandLine: neither was said, or both.
        UnknownSession: none in the trash has that id.
    """
    if (given is None) == (older_than is None):
        raise BadCommandLine("name a session of the trash, or --older-than AGE (0s: all of it)")
    service = default_service()
    if given is not None:
        service.purge_session(given)  # the whole id: this cannot be taken back
        print(f"{given} was deleted permanently")
    elif older_than is not None:
        gone = service.upkeep.purge_older(older_than)
        print("\n".join([*gone, f"{count(len(gone), 'session')} deleted permanently"]))
