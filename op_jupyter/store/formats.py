"""What records looked like in earlier versions, and the steps that bring them up to today's.

A record says which format it is of (``v``).  Nothing is ever written again: the journal is
append-only and git has committed it.  An old record is brought up to date each time it is read,
after its large values are back in it and before it is folded; so there is no half-done migration,
reading needs no lock, and a clone, a checkout and a commit of an old version stay what they were.
What is written next to it is of today's format, which an older version refuses by its number.

1   A model call's ``reads`` had ``context_tokens``, the size of the model's window, where it has
    ``line`` now, and no ``own``: the last model call of the same loop.  Only the first versions
    wrote that; later ones of format 1 wrote what format 2 has.
2   Today's.

A step is a function from the record as it was to the record as it would have been written in the
next format.  It keeps ``seq`` and ids, is pure, and may get whatever a stranger wrote: it raises
`KeyError`, `TypeError` or `ValueError` when that is not what its format has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from op_jupyter.core.context_window import line_tokens

Record: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Record], Record]


def _reads_tell_the_line(record: Record) -> Record:
    node = record.get("node")
    reads = node.get("reads") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(reads, dict):
        return record
    now = {"own": None, **reads}
    if "context_tokens" in now:
        window, kept_free = now.pop("context_tokens"), now["max_tokens"]
        if type(window) is not int or type(kept_free) is not int:
            raise TypeError("the window of a model is no number of tokens")
        now.setdefault("line", line_tokens(window, kept_free))
    return {**record, "node": {**node, "reads": now}}


STEPS: Final[Sequence[Step]] = (_reads_tell_the_line,)
"""The first one leads from format 1 to format 2, and so on."""

FORMAT: Final = 1 + len(STEPS)
"""What is written today."""


def brought_up_to_date(record: Record, version: int) -> Record:
    """*record*, which is of format *version* (1 to `FORMAT`), as it would be written today.

    Raises:
        KeyError, TypeError, ValueError: it is not what its format has.
    """
    for step in STEPS[version - 1 :]:
        record = step(record)
    return record
