"""`op-jupyter export`, `import` and `fork`: sessions as documents, and back, and copies of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.output import print_json
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.errors import ConfigurationError
from op_jupyter.store.whole_file import write_whole
from op_jupyter.views.text import count, visible

FORMATS: Final = ("md", "html", "json", "ipynb")


def export_session(
    named: str,
    format: str | None,  # noqa: A002 - the word for it
    output: Path | None,
    *,
    whole: bool = False,
) -> None:
    """Print a session as a document, or write it to *output*, whose ending tells the format.

    Raises:
        UnknownSession, StoreError: the session is not there, or cannot be read.
        ConfigurationError: the file cannot be written.
    """
    service = default_service()
    if format is None:
        ending = "md" if output is None else output.suffix.removeprefix(".").lower()
        if ending not in FORMATS:
            raise BadCommandLine(f"say --format; {output} ends with none of {', '.join(FORMATS)}")
        format = ending  # noqa: A001
    text = service.export(service.find(named), format, whole=whole, tell=_note)
    if output is None:
        print(text, end="")
        return
    try:
        # For its owner alone: a session may hold what nobody else should read.
        write_whole(output, text.encode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written: {error}") from error
    print(output)


def _note(said: str) -> None:
    print(f"op-jupyter: note: {said}", file=sys.stderr)


def fork_session(named: str, fork_id: str | None) -> None:
    """Make a session of what is stored of another one, and print its id.

    Raises:
        UnknownSession, StoreError: the other one is not there, or cannot be read.
        UsageError: *fork_id* is taken.
    """
    service = default_service()
    print(service.fork_session(service.find(named), fork_id))


def import_session(path: Path, session_id: str | None, *, as_json: bool) -> None:
    """Take a document or a folder in, and say what became of it.

    Raises:
        UsageError, StoreError: it cannot be; nothing was stored.
    """
    done = default_service().import_session(path, session_id)
    if as_json:
        print_json(done)
        return
    if done.was:
        print(f"{visible(done.was)!r} has the id {done.session_id} here")
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.session_id}: {count(done.turns, 'turn')} imported")
