"""An MCP server that goes silent at one stage: ``python mcp_hang.py STAGE``.

``start``: it never answers; ``list``: it lists no tools; ``call``: its tool never ends;
``shutdown``: it answers everything, and nothing but a kill ends it.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

STAGE = sys.argv[1]
TOOL = {"name": "look", "description": "Look.", "inputSchema": {"type": "object"}}


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """The result of *request*; None: silence."""
    match request["method"]:
        case "initialize" if STAGE != "start":
            version = request["params"]["protocolVersion"]
            server = {"name": "hang", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list" if STAGE != "list":
            return {"tools": [TOOL]}
        case "tools/call" if STAGE != "call":
            return {"content": [{"type": "text", "text": "seen"}]}
        case _:
            return None


if STAGE == "shutdown":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request and (result := answer(request)) is not None:
        told = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        print(json.dumps(told), flush=True)
while STAGE == "shutdown":
    time.sleep(60)
