"""Which session is meant, on a command line and while one is typed."""

from __future__ import annotations

from typing import Any

from op_jupyter.bootstrap import default_service
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.base import Store

_ALL = 1_000_000


def session_id(store: Store, given: str) -> str:
    """The id of the session that *given* names: its id, or a beginning of it that is unique.

    Raises:
        InvalidSessionId: it can name none.
        UnknownSession: it names none, or more than one.
    """
    return default_service(store).find(given)


def complete_session(prefix: str, **_more: Any) -> list[str]:
    """The ids that begin with *prefix*; none where the store cannot be read."""
    try:
        known = default_service().list_sessions(_ALL, archived=None, sub_agents=True)
    except OpenProgramError:
        return []
    return [info.id for info in known if info.id.startswith(prefix)]
