"""The value of a ``%%agent`` cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

from IPython.core.getipython import get_ipython

from op_jupyter.core.messages import Usage
from op_jupyter.core.nodes import Node
from op_jupyter.core.turn import Outcome
from op_jupyter.core.values import dataclass
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import TurnCancelled, TurnFailed
from op_jupyter.notebook.display import put, static


@dataclass(frozen=True, slots=True, repr=False)
class TurnResult:
    """How one turn ended.

    Attributes:
        text: the answer; also ``str(result)``.
        nodes: what ran, in order.
        shown_in: number of the cell that shows the turn itself, so that its value is not
            shown a second time; None: no cell does.
        speaks: it was streamed to a terminal, and its value says so in a line.
    """

    text: str
    session_id: str
    turn_id: str
    status: Literal["completed", "failed", "cancelled"]
    steps: int
    usage: Usage
    nodes: Sequence[Node]
    state: dict[str, Any] = field(compare=False)
    shown_in: int | None = None
    speaks: bool = False

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        from op_jupyter.views.words import summary_line

        return f"<{summary_line(self.state)}>"

    def _ipython_display_(self) -> None:
        shell = get_ipython()
        here = shell is not None and shell.execution_count == self.shown_in
        if here and self.speaks:
            put({"text/plain": repr(self)})
        elif not here:
            put(self._repr_mimebundle_())

    def _repr_mimebundle_(self, **_kwargs: Any) -> dict[str, Any]:
        return static(self.state)


def turn_result(
    session: AgentSession,
    turn_id: str,
    outcome: Outcome,
    state: dict[str, Any],
    *,
    shown_in: int | None = None,
    speaks: bool = False,
) -> TurnResult:
    """The result of a turn that is over; *state* is what a view saw of it."""
    return TurnResult(
        outcome.text,
        session.session_id,
        turn_id,
        outcome.status,
        outcome.steps,
        outcome.usage,
        tuple(node for node in session.dag if node.turn_id == turn_id),
        state,
        shown_in=shown_in,
        speaks=speaks,
    )


def judged(result: TurnResult, outcome: Outcome) -> TurnResult:
    """*result*, when the turn has an answer.

    Raises:
        TurnFailed, TurnCancelled: it has none.
    """
    if outcome.status == "completed":
        return result
    if outcome.status == "cancelled":
        raise TurnCancelled("the turn was cancelled; what it did so far is kept")
    code = outcome.code or "failed"
    raise TurnFailed(f"{code}: {outcome.message}", code=code, turn_id=result.turn_id)
