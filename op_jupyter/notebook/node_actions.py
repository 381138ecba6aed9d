"""What the buttons of a node in the live view do: a prompt, a branch, a rewind, files put back.

A session changes its line, and files are put back, only while nothing runs.  So what is asked for
during a turn is noted, and done when the turn ends; or, where no cell waits for the turn, at the
end of the cell that runs then.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.compaction import rewind_target
from op_jupyter.core.nodes import Node
from op_jupyter.engine.gate import places_for
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.engine.session import AgentSession
from op_jupyter.engine.undo import changed_in, paths_of, told, undo_calls
from op_jupyter.errors import OpenProgramError, UnknownNode, UsageError
from op_jupyter.views.details import node_details
from op_jupyter.views.text import count

if TYPE_CHECKING:
    from op_jupyter.views.agent_view import NodeAction

_ALL: Final[tuple[NodeAction, ...]] = ("fork", "rewind", "show_prompt", "undo")
_AFTERWARDS: Final[Mapping[NodeAction, str]] = {
    "fork": "When {end}, the next prompt begins a branch of its own {place}.",
    "rewind": "When {end}, the conversation goes on from {place}.",
    "undo": "When {end}, its files are put back: {paths}.",
}


class NodeActions:
    """What is asked for of the nodes of one session, while one turn of it is shown."""

    offered: Final = _ALL

    def __init__(self, session: AgentSession, *, turn_id: str | None = None) -> None:
        """*turn_id*: the turn, where no cell waits for it; `Notebook.after_cell` does then."""
        self._session = session
        self._turn_id = turn_id
        self._noted: dict[NodeAction, str] = {}
        self._over = False
        self._lock = threading.Lock()

    def details(self, node_id: str) -> Mapping[str, Any]:
        """What the page shows of a node; in ``changes`` the files that could be put back."""
        try:
            node = self._session.dag.node(node_id)
            changes = self._paths(node)
        except UnknownNode:
            return {}
        except OpenProgramError:  # a record that nobody can read: nothing to offer
            changes = []
        shown = node_details(node, self._session.dag.decision_of(node))
        return {**shown, "changes": changes}

    def act(self, action: NodeAction, node_id: str) -> str:
        """Take a click, on any thread, and say what comes of it."""
        try:
            if action == "show_prompt":
                dag, store = self._session.dag, self._session.store
                request, _ = request_of(dag, node_id, store.read_blob)
                return prompt_text(request)
            said = self._afterwards(action, self._session.dag.node(node_id))
        except OpenProgramError as error:
            return error.message
        with self._lock:
            if self._over:
                return f"This turn is over: `%agent {action} {node_id}` does it."
            if self._noted.get(action) == node_id:
                del self._noted[action]
                return "Taken back: nothing will happen."
            if action != "undo":  # the conversation can only go on from one place
                self._noted.pop("rewind" if action == "fork" else "fork", None)
            self._noted[action] = node_id
        return said

    async def finish(self) -> list[str]:
        """Do what was noted, now that the turn is over, and say what came of it."""
        with self._lock:
            self._over = True
            noted = sorted(self._noted.items(), key=lambda item: item[0] != "undo")
        return [await self._do(action, node_id) for action, node_id in noted]

    @property
    def ready(self) -> bool:
        """Whether it can be finished: its turn is over, and no other has begun."""
        turn = self._session.dag.turns.get(self._turn_id or "")
        return self._session.active_turn_id is None and (turn is None or turn.status != "running")

    def _afterwards(self, action: NodeAction, node: Node) -> str:
        end = "this turn ends" if self._turn_id is None else "this turn and the running cell end"
        if action == "undo":
            paths = self._paths(node)
            if not paths:
                raise UsageError("it changed no file that could be put back")
            return _AFTERWARDS[action].format(end=end, paths=", ".join(paths))
        target = rewind_target(self._session.dag, node.id)
        place = "here" if target == node.id else "before this"
        return _AFTERWARDS[action].format(end=end, place=place)

    async def _do(self, action: NodeAction, node_id: str) -> str:
        session = self._session
        try:
            if action == "undo":
                calls = self._calls(session.dag.node(node_id))
                # The page has shown which files, and asked.
                return told(await undo_calls(session, calls, ask=False))
            if action == "fork":
                return f"On branch {await session.fork(node_id)} now."
            target = await session.rewind(node_id)
        except OpenProgramError as error:
            return f"{action} {node_id}: {error.message}"
        return f"The conversation goes on after {target or 'nothing: it is at its beginning'}."

    def _calls(self, node: Node) -> list[Node]:
        """Of a prompt the calls of its turn, else *node* and what it called."""
        changed = changed_in(self._session, node.turn_id or "")
        if node.role == "user":
            return changed
        below = {each.id for each in self._session.dag.subtree(node.id)}
        return [call for call in changed if call.id in below]

    def _paths(self, node: Node) -> list[str]:
        show = places_for(self._session).show
        found = dict.fromkeys(
            path for call in self._calls(node) for path in paths_of(self._session, call)
        )
        named = [show(Path(path)) for path in found]
        return named if len(named) <= 20 else [*named[:20], f"and {count(len(named) - 20, 'more')}"]
