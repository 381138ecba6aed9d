"""A small MCP server for tests, a program of its own: ``python mcp_server.py``."""

from __future__ import annotations

import base64
import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("small")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def write(path: str, text: str) -> str:
    """Write a file, so that a test sees whether it ran."""
    Path(path).write_text(text)
    return "written"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it went wrong")


@server.tool()
def flood() -> str:
    """Say far too much."""
    return "x" * 1_000_000


@server.tool()
def picture() -> Image:
    """Show one pixel."""
    dot = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5"
        "ErkJggg=="
    )
    return Image(data=base64.b64decode(dot), format="png")


@server.tool()
def secret() -> str:
    """Tell what the environment holds."""
    return ",".join(sorted(os.environ))


@server.tool()
def die() -> str:
    """End at once."""
    os._exit(3)


@server.tool()
def hang() -> str:
    """Never answer."""
    time.sleep(3600)
    return ""


if __name__ == "__main__":
    if "--refuse" in sys.argv:
        sys.exit(1)
    server.run(transport="stdio")
