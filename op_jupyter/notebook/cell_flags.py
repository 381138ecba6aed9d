"""What may stand behind ``%%agent``."""

from __future__ import annotations

from op_jupyter.config.settings import CHOICES
from op_jupyter.notebook.parsing import arguments, flag, names_list, positive, variable_name


@arguments(
    "%agent",  # the help's usage line adds the first %
    flag("--session", kind="session", metavar="ID", help="Run this cell in another session."),
    flag("--fresh", action="store_true", help="Begin a new session with this cell."),
    flag("--model", kind="model", metavar="M", help="Ask this model."),
    flag("--provider", kind="provider", metavar="P", help="Ask this model service."),
    flag(
        "--mode",
        choices=CHOICES["mode"],
        help="What runs without asking, from now on in this session.",
    ),
    flag(
        "--tools",
        kind="tool",
        metavar="A,B",
        type=names_list,
        help="Offer these tools alone, functions of the notebook among them; or none.",
    ),
    flag(
        "--skill",
        kind="skill",
        metavar="A,B",
        type=names_list,
        default=(),
        help="Send these skills along, before the prompt.",
    ),
    flag(
        "--no-skill",
        kind="skill",
        metavar="A,B",
        type=names_list,
        default=(),
        help="Do not tell the model of these skills in this turn.",
    ),
    flag("--max-steps", metavar="N", type=positive, help="Most model calls of the turn."),
    flag(
        "--budget",
        metavar="TOKENS",
        type=positive,
        help="Most tokens of the turn, sent and received: no model call begins beyond them.",
    ),
    flag("--replay", choices=CHOICES["replay"], help="Record model calls, or play them."),
    flag("-o", "--output", metavar="VAR", type=variable_name, help="Keep the result under a name."),
    flag(
        "--worktree",
        kind="worktree",
        metavar="NAME",
        nargs="?",
        const="",
        help="Work in a git worktree of the repository; one that is there, or a new one.",
    ),
    flag(
        "--background",
        action="store_true",
        help="Go on with the next cell; the value is a job to wait for, or to cancel.",
    ),
    flag("--quiet", action="store_true", help="Show nothing; return the result alone."),
)
def agent_cell() -> None:
    """Let the agent work on the cell below, which is the prompt, byte for byte.

    {{name}}, {{name.attribute}} and {{name["key"]}} stand for variables of the notebook.
    The value of the cell is the result; `str(result)` is the answer.
    """
