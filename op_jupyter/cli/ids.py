"""Which session is meant, while one is typed."""

from __future__ import annotations

from typing import Any

from op_jupyter.bootstrap import default_service
from op_jupyter.engine.service import ALL
from op_jupyter.errors import OpenProgramError


def complete_session(prefix: str, **_more: Any) -> list[str]:
    """The ids that begin with *prefix*; none where the store cannot be read."""
    try:
        known = default_service().list_sessions(ALL, archived=None, sub_agents=True)
    except OpenProgramError:
        return []
    return [info.id for info in known if info.id.startswith(prefix)]
