"""What the thing that the person looks at can do, asked anew for each cell."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, TypeAlias

from op_jupyter.core.values import dataclass

Kind: TypeAlias = Literal["kernel", "terminal", "script"]


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Where the output goes, and whether somebody can answer.

    Attributes:
        kind: ``kernel`` (a notebook, a console, nbclient), ``terminal`` (IPython), or
            ``script`` (a shell without a terminal: nobody reads along).
        can_answer: ``input()`` reaches a person, so a card may as well.
    """

    kind: Kind
    can_answer: bool

    @property
    def shows_widgets(self) -> bool:
        """Whether to try a live view; only its own ``ready`` proves that somebody sees it."""
        return self.kind == "kernel" and self.can_answer


_PROCESS = os.getpid()


def kernel_of(shell: Any) -> Any:
    """The running ipykernel, or None (terminal IPython, a bare shell, a forked child of one)."""
    if os.getpid() != _PROCESS:  # its sockets are the parent's
        return None
    kernel = getattr(shell, "kernel", None)
    return kernel if getattr(kernel, "shell_stream", None) is not None else None


def detect(shell: Any) -> FrontEnd:
    """The front end of the cell that runs now."""
    kernel = kernel_of(shell)
    if kernel is not None:
        return FrontEnd("kernel", bool(execute_request(kernel).get("allow_stdin", False)))
    if getattr(shell, "simple_prompt", None) is None:  # only a terminal's shell has a prompt
        return FrontEnd("script", False)
    return FrontEnd("terminal", _is_terminal(sys.stdin))


def execute_request(kernel: Any) -> dict[str, Any]:
    """The content of the request that runs the current cell."""
    content: dict[str, Any] = kernel.get_parent("shell").get("content", {})
    return content


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # closed
        return False
