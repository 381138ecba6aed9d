"""A process whose turn hangs inside a tool until it is killed.

    python -m support.turn_writer ROOT SESSION

It says ``in tool`` when the tool has had its effect and its call is on record.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.engine import loop, registry
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import TurnStart
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.toolset import Toolset

SPEC: Final = ToolSpec("mark", "Leave a mark.", {"type": "object", "properties": {}})


class Mark:
    """Leaves a mark in the workspace, says so, and never comes back."""

    spec = SPEC
    effect: Effect = "read"
    timeout = None
    trusted = True

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        return CallDescription()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        (context.workspace / "mark").write_text("done", "utf-8")
        print("in tool", flush=True)
        await asyncio.Event().wait()
        return ToolOutput(())


def main(root: str, session_id: str) -> None:
    store = SessionStore(root)
    session = registry.acquire(store, store.create_session(session_id))
    session.workspace = Path(root)
    asks = [call("mark", {}, id="before"), call("mark", {"n": 1}, id="mate")]
    start = TurnStart(
        (TextBlock("leave a mark"),),
        Runtime(provider=ScriptedProvider(reply("I will. ", *asks))),
        client_request_id="r1",
        tools=Toolset([Mark()]),
    )
    loop.run_sync(session.run_turn, start)


if __name__ == "__main__":
    main(*sys.argv[1:])
