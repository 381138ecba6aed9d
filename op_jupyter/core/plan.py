"""The plan of a turn: steps that the model writes down, and checks off, for the person to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

UPDATE_PLAN: Final = "update_plan"
MOST_STEPS: Final = 128
STEP_CHARS: Final = 1_024
STATUSES: Final = ("pending", "in_progress", "completed")

SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "steps": {
            "type": "array",
            "maxItems": MOST_STEPS,
            "description": "The whole plan, in order; it replaces the one before.",
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 1, "maxLength": STEP_CHARS},
                    "status": {"type": "string", "enum": list(STATUSES)},
                },
                "required": ["text", "status"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["steps"],
    "additionalProperties": False,
}


def problem_of_plan(arguments: Mapping[str, Any]) -> str:
    """What is wrong with a plan, naming the field; "" when nothing is."""
    if extra := sorted(set(arguments) - {"steps"}):
        return f"{extra[0]}: there is no such argument; the one there is is steps"
    steps = arguments.get("steps")
    if not isinstance(steps, list):
        return "steps: it has to be a list of {text, status}"
    if len(steps) > MOST_STEPS:
        return f"steps: {len(steps)} are too many; at most {MOST_STEPS}"
    for number, step in enumerate(steps):
        if problem := _problem_of_step(step):
            return f"steps.{number}{problem}"
    if sum(step["status"] == "in_progress" for step in steps) > 1:
        return "steps: more than one is in_progress"
    return ""


def _problem_of_step(step: Any) -> str:
    if not isinstance(step, Mapping) or set(step) != {"text", "status"}:
        return ": it has to be an object with text and status"
    text, status = step["text"], step["status"]
    if not isinstance(text, str) or not text.strip():
        return ".text: it has to be a text that is not empty"
    if len(text) > STEP_CHARS:
        return f".text: {len(text)} characters are too many; at most {STEP_CHARS}"
    if status not in STATUSES:
        return f".status: it has to be one of {', '.join(STATUSES)}"
    return ""


def progress_of(steps: Sequence[Mapping[str, Any]]) -> str:
    """How far a plan has come, in words."""
    if not steps:
        return "no steps"
    done = sum(step["status"] == "completed" for step in steps)
    return f"{done} of {len(steps)} done"
