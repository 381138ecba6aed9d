"""A provider's own tools, as tools of the turn: they pass the one gate and are stored like all.

The model's call comes to the engine first; only what the gate allows, with the arguments that
it allows, is run by the provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from op_jupyter.core.messages import ResultState, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.turn import ToolState
from op_jupyter.providers.base import Conversations, OwnTool
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput

_STATES: Final[dict[ResultState, ToolState]] = {
    "success": "succeeded",
    "error": "failed",
    "denied": "denied",
    "interrupted": "cancelled",
}


class ProviderTool:
    """One of the provider's own tools, in one exchange."""

    trusted = False
    timeout: float | None = None

    def __init__(self, own: OwnTool, conversations: Conversations, exchange: str) -> None:
        self._own = own
        self._conversations = conversations
        self._exchange = exchange

    @property
    def spec(self) -> ToolSpec:
        """As the provider describes it."""
        return self._own.spec

    @property
    def effect(self) -> Effect:
        """What it does to the world."""
        return self._own.effect

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The paths and the code that its arguments name."""
        own = self._own
        code = arguments.get(own.code) if own.code else None
        return CallDescription(
            paths_read=_paths(own.reads, arguments, workspace),
            paths_written=_paths(own.writes, arguments, workspace),
            code=code if isinstance(code, str) else "",
            language=own.language if isinstance(code, str) else "",
        )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Have the provider do it."""
        result = await self._conversations.run_own(self._exchange, arguments)
        return ToolOutput(result.content, _STATES[result.state])


def _paths(names: Sequence[str], arguments: Mapping[str, Any], workspace: Path) -> tuple[Path, ...]:
    named = (arguments.get(name) for name in names)
    return tuple(workspace / Path(path).expanduser() for path in named if isinstance(path, str))
