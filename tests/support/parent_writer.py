"""A process with a sub-agent that is done, one that works, and a turn that nobody waits for.

    python -m support.parent_writer ROOT

In session ``parent`` the first one's result waits to be told; the turn is of session ``other``.
It says ``ready`` and waits until it is killed.
"""

import sys
import threading
from typing import Final

from op_jupyter.core.messages import ModelRequest, TextBlock
from op_jupyter.engine import loop, registry
from op_jupyter.engine.agent_tools import agent_tools
from op_jupyter.engine.runtime import Runtime
from op_jupyter.engine.session import AgentSession, TurnStart
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import Gate, Script, ScriptedProvider, call, reply
from op_jupyter.tools.toolset import toolset_of

QUICK: Final = call("spawn_agent", {"message": "quickly"})
SLOW: Final = call("spawn_agent", {"message": "slowly"})


def start(provider: ScriptedProvider, prompt: str) -> TurnStart:
    runtime = Runtime(provider=provider)
    return TurnStart((TextBlock(prompt),), runtime, tools=toolset_of(agent_tools()))


def main(root: str) -> None:
    store = SessionStore(root)
    over, works, hangs = Gate(), Gate(), Gate()
    parents: list[Script] = [reply(QUICK, SLOW), reply("meanwhile")]

    def answer(request: ModelRequest) -> Script:
        said = request.messages[0].text
        if "ask them" in said:
            return parents.pop(0)
        return [over, *reply("done")] if "quickly" in said else [works, *reply("late")]

    session = registry.acquire(store, store.create_session("parent"))
    loop.run_sync(session.run_turn, start(ScriptedProvider(default=answer), "ask them"))
    over.open()
    loop.run_sync(_first_is_done, session)
    works.wait_reached()
    other = registry.acquire(store, store.create_session("other"))
    loop.run_sync(other.start_turn, start(ScriptedProvider([hangs]), "for ever"))
    hangs.wait_reached()
    print("ready", flush=True)
    threading.Event().wait()


async def _first_is_done(session: AgentSession) -> None:
    await session.agents.get("agent-1").ended.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
