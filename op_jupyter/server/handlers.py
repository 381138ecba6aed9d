"""The addresses under ``/openprogram``: who may ask, which error has which status.

Auth, origin and cross-site checks are the server's own.  What reads the disk runs in a thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from op_jupyter.errors import (
    CorruptRecord,
    FormatTooNew,
    OpenProgramError,
    SessionActive,
    SessionLocked,
    UnknownNode,
    UnknownSession,
    UsageError,
)
from op_jupyter.server.sessions import StoredSessions

if TYPE_CHECKING:
    from op_jupyter.engine.service import Service

P = ParamSpec("P")
T = TypeVar("T")

_STATUS: Final[dict[type[OpenProgramError], int]] = {
    UnknownSession: 404,
    UnknownNode: 404,
    SessionLocked: 409,
    SessionActive: 409,
    CorruptRecord: 422,
    FormatTooNew: 422,
    UsageError: 400,
    OpenProgramError: 500,
}
_ID: Final = r"([^/]+)"
_MOST_DIGITS: Final = 9


class _Handler(APIHandler):
    """Runs one call in a thread, and tells its errors in words."""

    auth_resource = "openprogram"

    def initialize(self, sessions: StoredSessions) -> None:
        """Called by tornado with what `handlers` passes along."""
        self.sessions = sessions

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What *function* returns, from a thread.

        Raises:
            web.HTTPError: with the words of the error that it raised.
        """
        try:
            return await asyncio.to_thread(function, *args, **kwargs)
        except OpenProgramError as error:
            kinds = (kind for kind in _STATUS if isinstance(error, kind))
            # "%s", because the message may hold percent signs.
            raise web.HTTPError(_STATUS[next(kinds)], "%s", error.message) from error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """``{"message": ...}``, which a person can read."""
        _, error, _ = kwargs.get("exc_info", (None, None, None))
        if not isinstance(error, web.HTTPError) or not error.args:
            super().write_error(status_code, **kwargs)
            return
        self.write(json.dumps({"message": str(error.args[0])}))

    def number(self, name: str, default: int) -> int:
        """A whole number from the query.

        Raises:
            web.HTTPError: it is none.
        """
        text = self.get_query_argument(name, str(default))
        if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
            raise web.HTTPError(400, "%s", f"{name} is {text!r:.40}; a whole number is needed")
        return int(text)


class SessionsHandler(_Handler):
    """``GET /openprogram/sessions?q=&limit=&agents=``."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List sessions."""
        query = self.get_query_argument("q", "")
        limit, agents = self.number("limit", 100), self.number("agents", 0)
        found = await self.call(self.sessions.listed, query=query, limit=limit, agents=bool(agents))
        await self.finish(found)


class SessionHandler(_Handler):
    """``/openprogram/sessions/ID``."""

    @web.authenticated
    @authorized
    async def get(self, session_id: str) -> None:
        """Everything that the graph draws."""
        await self.finish(await self.call(self.sessions.one, session_id))

    @web.authenticated
    @authorized
    async def delete(self, session_id: str) -> None:
        """Move it to the trash."""
        await self.call(self.sessions.delete, session_id)
        self.set_status(204)
        await self.finish()


class NodeHandler(_Handler):
    """``/openprogram/sessions/ID/nodes/ID``."""

    @web.authenticated
    @authorized
    async def get(self, session_id: str, node_id: str) -> None:
        """What went in and what came out."""
        await self.finish(await self.call(self.sessions.node, session_id, node_id))


class ExportHandler(_Handler):
    """``GET /openprogram/sessions/ID/export?format=md``."""

    @web.authenticated
    @authorized
    async def get(self, session_id: str) -> None:
        """The session as a file to save; never a page of this server's own."""
        form = self.get_query_argument("format", "md")
        file = await self.call(self.sessions.exported, session_id, form)
        self.set_header("Content-Disposition", f'attachment; filename="{file.name}"')
        self.set_header("X-Content-Type-Options", "nosniff")
        await self.finish(file.text, set_content_type=f"{file.media_type}; charset=utf-8")


class RestoreHandler(_Handler):
    """``POST /openprogram/sessions/ID/restore``."""

    @web.authenticated
    @authorized
    async def post(self, session_id: str) -> None:
        """Take it out of the trash."""
        await self.call(self.sessions.restore, session_id)
        self.set_status(204)
        await self.finish()


def _default_service() -> Service:
    from op_jupyter.bootstrap import default_service  # a third of a second: with the first request

    return default_service()


def handlers(base_url: str) -> list[tuple[str, type[_Handler], dict[str, Any]]]:
    """The addresses and what answers there."""
    shared = {"sessions": StoredSessions(_default_service)}
    sessions = url_path_join(base_url, "openprogram", "sessions")
    return [
        (sessions, SessionsHandler, shared),
        (f"{sessions}/{_ID}", SessionHandler, shared),
        (f"{sessions}/{_ID}/nodes/{_ID}", NodeHandler, shared),
        (f"{sessions}/{_ID}/export", ExportHandler, shared),
        (f"{sessions}/{_ID}/restore", RestoreHandler, shared),
    ]
