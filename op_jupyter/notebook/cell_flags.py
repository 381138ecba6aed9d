"""What may stand behind ``%%agent``."""

from __future__ import annotations

from op_jupyter.config.settings import CHOICES
from op_jupyter.notebook.parsing import arguments, flag, names_list, positive, variable_name


@arguments(
    "%agent",  # the help's usage line adds the first %
    flag("--session", kind="session", metavar="ID", help="Run this cell in another session."),
    flag("--fresh", action="store_true", help="Start a new session with this cell."),
    flag("--model", kind="model", metavar="M", help="Use this model."),
    flag("--provider", kind="provider", metavar="P", help="Use this provider."),
    flag(
        "--mode",
        choices=CHOICES["mode"],
        help="Change the permission mode of the session: what runs without asking.",
    ),
    flag(
        "--tools",
        kind="tool",
        metavar="A,B",
        type=names_list,
        help="Offer only these tools (functions of the notebook count as well), or none.",
    ),
    flag(
        "--skill",
        kind="skill",
        metavar="A,B",
        type=names_list,
        default=(),
        help="Send these skills along with the prompt.",
    ),
    flag(
        "--no-skill",
        kind="skill",
        metavar="A,B",
        type=names_list,
        default=(),
        help="Hide these skills from the model for this turn.",
    ),
    flag("--max-steps", metavar="N", type=positive, help="Make at most N model calls."),
    flag(
        "--budget",
        metavar="TOKENS",
        type=positive,
        help="Start no further model call after this many tokens, sent and received.",
    ),
    flag("--replay", choices=CHOICES["replay"], help="Record model calls, or replay them."),
    flag("-o", "--output", metavar="VAR", type=variable_name, help="Assign the result to VAR."),
    flag(
        "--worktree",
        kind="worktree",
        metavar="NAME",
        nargs="?",
        const="",
        help="Work in a git worktree of the repository: an existing or a new one.",
    ),
    flag(
        "--background",
        action="store_true",
        help="Return at once; the value is a job that you can wait for or cancel.",
    ),
    flag("--quiet", action="store_true", help="Show nothing; only return the result."),
)
def agent_cell() -> None:
    """Run an agent turn. The cell body is the prompt, sent to the model as it is.

    {{name}}, {{name.attribute}} and {{name["key"]}} insert variables of the notebook.
    The value of the cell is the result; `str(result)` is the answer.
    """
