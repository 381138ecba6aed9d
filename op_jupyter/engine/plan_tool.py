"""`update_plan`: a control tool; its stored result is what the checklist shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.plan import SCHEMA, UPDATE_PLAN, problem_of_plan, progress_of
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput


class UpdatePlan:
    """The tool with which the model replaces its plan.

    It only says that the plan is sound.  The loop shows the plan once the result is stored.
    """

    effect: Effect = "control"
    timeout: float | None = None
    trusted = False
    spec = ToolSpec(
        UPDATE_PLAN,
        "Write down, or check off, the steps of a task that takes several. The person sees them "
        "as a checklist. Send the whole plan each time, with at most one step in progress.",
        SCHEMA,
    )

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""
        return problem_of_plan(arguments)

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """It touches nothing."""
        return CallDescription()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Accept the plan."""
        return ToolOutput((TextBlock(f"plan updated: {progress_of(arguments['steps'])}"),))
