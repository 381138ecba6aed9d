"""The seam to what a model can do: tools.

A tool never asks for permission; the one gate in the turn loop does, with what the tool
tells about the call (`Tool.effect`, `Tool.describe`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from op_jupyter.core.code_flow import Known
from op_jupyter.core.messages import ImageBlock, TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.turn import ToolState
from op_jupyter.core.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returns.  *value* is kept on the node, *content* goes to the model."""

    content: tuple[TextBlock | ImageBlock, ...]
    state: ToolState = "succeeded"
    value: Any = None


@dataclass(frozen=True, slots=True)
class CallDescription:
    """What a call is about to touch, for the gate and the card.

    *paths* are absolute; *entries_written* are made, moved or removed themselves, so that a
    link at their end is not followed; *code* is source that would run, with its *language*, and
    *known* is what names in it stand for already.
    """

    paths_read: Sequence[Path] = ()
    paths_written: Sequence[Path] = ()
    code: str = ""
    language: str = ""
    diff: str = ""
    undo: str = ""
    entries_written: Sequence[Path] = ()
    known: Known = field(default_factory=dict)


class MainThread(Protocol):
    """Runs things on the thread that holds the cell."""

    async def run(self, function: Callable[[], T]) -> T:
        """Run *function* on the main thread and return its value.

        Cancelling interrupts the main thread (`KeyboardInterrupt` inside *function*).
        """


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool may use.

    Attributes:
        workspace: folder that relative paths are resolved against.
        progress: shows a line of output while the tool runs; never blocks.
        main_thread: None outside a notebook cell.
        approved: real paths that the permission speaks of, for the second check right before
            a file is touched.
        worktree: the git worktree that the workspace is in for this turn; code runs in it.
        seconds: how long the call may take by the user's settings; None: as the tool says.
    """

    workspace: Path
    call_id: str
    turn_id: str
    progress: Callable[[str], None]
    main_thread: MainThread | None = None
    approved: Sequence[Path] = field(default_factory=tuple)
    worktree: Path | None = None
    seconds: float | None = None


class Tool(Protocol):
    """One tool."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    @property
    def timeout(self) -> float | None:
        """Seconds until a call is given up; None: never.

        The user's settings may say otherwise, unless the tool has an attribute
        ``limits_itself`` that is true: it goes by `ToolContext.seconds`.
        """

    @property
    def trusted(self) -> bool:
        """The program's author passed it in ``tools=[...]``: allowed by that."""

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """What the call would touch.  Pure; reads at most the file that it would change."""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it.  An exception becomes an ``error`` result."""
