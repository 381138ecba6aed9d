"""Which session is meant: by its id, or by as much of its beginning as is unique."""

from __future__ import annotations

from typing import Any

from op_jupyter.bootstrap import default_store
from op_jupyter.errors import OpenProgramError
from op_jupyter.store.base import Store
from op_jupyter.store.summary import session_named

_ALL = 1_000_000


def session_id(store: Store, given: str) -> str:
    """The id of the session that *given* names.

    Raises:
        InvalidSessionId: it can name none.
        UnknownSession: it names none, or more than one.
    """
    if store.exists(given):
        return given
    return session_named(given, [info.id for info in store.sessions(_ALL)])


def complete_session(prefix: str, **_more: Any) -> list[str]:
    """The ids that begin with *prefix*; none where the store cannot be read."""
    try:
        known = default_store().sessions(_ALL)
    except OpenProgramError:
        return []
    return [info.id for info in known if info.id.startswith(prefix)]
