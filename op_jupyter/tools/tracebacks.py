"""Errors as a model or a person needs them: the lines of their own code, and the message."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from op_jupyter.core.updates import bounded
from op_jupyter.tools.summaries import without_addresses

MESSAGE_CHARS: Final = 2_000
STORED_CHARS: Final = 8_000
FIRST_FRAMES: Final = 3
LAST_FRAMES: Final = 6
CAUSES: Final = 3

_PACKAGE: Final = str(Path(__file__).parent.parent)
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def message_of(error: BaseException) -> str:
    """The text of *error*, also when its own code for that fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- the error's own code may raise anything
        return f"<{type(error).__name__} cannot say what is wrong>"


def stored_message(error: BaseException, clean: Callable[[str], str]) -> str:
    """The text of *error* for the store: bounded, and *clean* takes secrets out of it.

    Before it is cut: half a secret would not be known as one.
    """
    return bounded(clean(message_of(error)), STORED_CHARS, STORED_CHARS // 4)


def short_traceback(error: BaseException, code_file: str = "") -> str:
    """The user's own lines that led to *error*, then its type and message.

    Frames of libraries and of this package are left out.  *code_file* is the file name under
    which the code that was asked to run had been compiled; its lines go without a name.
    """
    lines = list(_frames(error, code_file))
    if len(lines) > FIRST_FRAMES + LAST_FRAMES:
        hidden = len(lines) - FIRST_FRAMES - LAST_FRAMES
        lines[FIRST_FRAMES:-LAST_FRAMES] = [f"  … {hidden} more lines of calls"]
    return "\n".join([*lines, *_messages(error)])


def _frames(error: BaseException, code_file: str) -> Iterator[str]:
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_foreign(frame.filename):
            continue
        where = "" if frame.filename == code_file else f"{_shown(frame.filename)}, "
        function = "" if frame.name == "<module>" else f", in {frame.name}"
        source = f": {frame.line}" if frame.line else ""
        yield f"  {where}line {frame.lineno}{function}{source}"


def _is_foreign(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen", *_LIBRARIES))


def _shown(filename: str) -> str:
    """The last part of a file's name; code of a cell is called that."""
    path = Path(filename)
    is_cell = filename.startswith("<") or path.parent.name.startswith("ipykernel_")
    return "another cell" if is_cell else path.name


def _messages(error: BaseException) -> Iterator[str]:
    seen = 0
    cause: BaseException | None = error
    while cause is not None and seen <= CAUSES:
        prefix = "caused by " if seen else ""
        yield prefix + _message(cause)
        yield from getattr(cause, "__notes__", ())
        hidden = cause.__suppress_context__
        cause = cause.__cause__ or (None if hidden else cause.__context__)
        seen += 1


def _message(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        text = error.msg
        if error.lineno is not None:
            text += f" (line {error.lineno}: {(error.text or '').strip()})"
    else:
        text = message_of(error)
    text = bounded(without_addresses(text), MESSAGE_CHARS, MESSAGE_CHARS // 4)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
