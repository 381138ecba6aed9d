"""Search files for a regular expression; run as a program of its own.

A regular expression can take for ever, and Python cannot stop one that runs in a thread; a
process can be ended.  Reads one JSON object from standard input, writes one to standard output.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def search(request: Mapping[str, Any]) -> dict[str, Any]:
    """Matches in ``files`` below ``root``: ``[file, line number, line]`` each.

    ``skipped`` counts files that are not text, too large or unreadable; ``more`` says that
    ``most`` matches were found and the search ended there.
    """
    try:
        pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except re.error as error:
        return {"error": f"{request['pattern']!r} is not a regular expression: {error}"}
    matches: list[tuple[str, int, str]] = []
    skipped = 0
    for name in request["files"]:
        text = _text_of(os.path.join(request["root"], name), request["largest"])
        if text is None:
            skipped += 1
            continue
        for number, line in _matching(pattern, text):
            if len(matches) == request["most"]:
                return {"matches": matches, "skipped": skipped, "more": True}
            matches.append((name, number, line[: request["line_chars"]]))
    return {"matches": matches, "skipped": skipped, "more": False}


def _matching(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.search(line):
            yield number, line


def _text_of(path: str, largest: int) -> str | None:
    try:
        descriptor = os.open(path, _READ)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(largest + 1)
    except OSError:
        return None
    if len(data) > largest or b"\0" in data[:8192]:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


if __name__ == "__main__":
    json.dump(search(json.load(sys.stdin)), sys.stdout)
