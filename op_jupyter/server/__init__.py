"""The Jupyter Server extension: stored sessions over HTTP, behind the server's own auth.

It serves the sidebar of the lab extension.  Everything that a notebook needs works without it.
Loading registers addresses and imports nothing else; the rest comes with the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp
    from tornado import web


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """What `jupyter server extension list` shows."""
    return [{"module": "op_jupyter.server"}]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    """Called by the server when it starts."""
    from op_jupyter.server.handlers import handlers

    application: web.Application = app.web_app
    application.add_handlers(".*$", handlers(application.settings["base_url"]))
    app.log.info("op_jupyter.server: stored sessions are served")
