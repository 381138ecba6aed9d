"""Tools for the files of the workspace: read, list, search, edit, write, move, delete."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from op_jupyter.core.diff import unified_diff
from op_jupyter.core.globs import glob
from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.paths import looks_like_credentials, may_hold_secrets
from op_jupyter.core.permissions import Effect
from op_jupyter.errors import InvalidArguments
from op_jupyter.tools import grep
from op_jupyter.tools.base import CallDescription, Tool, ToolContext, ToolOutput
from op_jupyter.tools.disk import (
    NOISE,
    Files,
    ToolFailure,
    decode,
    delete_entry,
    move_entry,
    named_path,
    open_to_read,
    read_text,
    replace_file,
)
from op_jupyter.tools.gate import real_path
from op_jupyter.tools.schema import Signature, read_signature
from op_jupyter.tools.threads import in_thread
from op_jupyter.tools.trees import inner_paths

TIMEOUT: Final = 60.0
SEARCH_SECONDS: Final = 20.0
READ_CHARS: Final = 24_000
LINE_BYTES: Final = 100_000
EDITED_BYTES: Final = 5_000_000
LISTED: Final = 500
WALKED: Final = 20_000
MATCHES: Final = 200
MATCH_CHARS: Final = 300
DIFF_CHARS: Final = 8_000
COMPARED_CHARS: Final = 1_000_000
"""Of the old and the new text together: comparing more would hold up all other sessions."""

Work = Callable[..., str]


def file_tools() -> tuple[Tool, ...]:
    """All of them, in the order in which they are offered."""
    return (
        ReadFile(),
        ListFiles(),
        SearchFiles(),
        EditFile(),
        WriteFile(),
        MoveFile(),
        DeleteFile(),
    )


class _FileTool:
    """What the file tools share; *work* does it and says what was done."""

    effect: Effect = "read"
    timeout: float | None = TIMEOUT
    trusted = False

    def __init__(self, name: str, work: Work) -> None:
        self.signature: Signature = read_signature(work, name=name, hidden=("files",))
        self._work = work

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return self.signature.spec

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""
        try:
            keywords = self.signature.bind(arguments)
            for name in ("path", "to"):
                named_path(keywords.get(name, "."), Path("/"))
        except InvalidArguments as error:
            return error.message
        return ""

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The path that would be read."""
        return CallDescription(paths_read=(named_path(arguments.get("path", "."), workspace),))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it; what goes wrong is said in words."""
        keywords = self.signature.bind(arguments)
        try:
            text = await self._do(Files(context), keywords)
        except ToolFailure as failure:
            return ToolOutput((TextBlock(str(failure)),), "failed")
        except OSError as error:
            return ToolOutput((TextBlock(_os_words(error, keywords, context)),), "failed")
        return ToolOutput((TextBlock(_printable(text)),))

    async def _do(self, files: Files, keywords: Mapping[str, Any]) -> str:
        return await in_thread(lambda: self._work(files, **keywords))


def _printable(text: str) -> str:
    """*text*, which may hold file names that are not UTF-8, as a model can be sent it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _os_words(error: OSError, keywords: Mapping[str, Any], context: ToolContext) -> str:
    """What the system refused, and names that look like the one that is missing."""
    path = named_path(keywords.get("path", "."), context.workspace)
    words = f"{keywords.get('path', '.')}: {error.strerror or error}"
    if not isinstance(error, FileNotFoundError) or not path.parent.is_dir():
        return words
    near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=3)
    return f"{words}; there is {', '.join(sorted(near))}" if near else words


# --- read -------------------------------------------------------------------------------


class ReadFile(_FileTool):
    """`read_file`."""

    def __init__(self) -> None:
        super().__init__("read_file", _read_file)


def _read_file(files: Files, path: str, offset: int = 1, limit: int = 1000) -> str:
    """Read a text file.

    Args:
        path: relative to the workspace, or absolute.
        offset: number of the first line to read, from 1.
        limit: how many lines to read.
    """
    real = files.resolve(path)
    first = max(1, offset)
    lines: list[str] = []
    room = READ_CHARS
    with open_to_read(real) as file:
        for number, raw in enumerate(_raw_lines(file), 1):
            if number < first:
                continue
            line = decode(raw, real)
            if len(lines) >= limit or (lines and room < len(line)):
                return "".join(lines) + f"… more lines follow; go on with offset={number}"
            lines.append(_cut(line, max(room, 200)))
            room -= len(line)
    if not lines:
        return "(the file is empty)" if first == 1 else f"(there is no line {first})"
    return "".join(lines)


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of *file*; of one that is absurdly long only the start."""
    while line := file.readline(LINE_BYTES):
        rest = line
        while len(rest) == LINE_BYTES and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES)
        if rest is not line:
            line = line[:-3].decode("utf-8", "ignore").encode() + "… (line cut)\n".encode()
        yield line


def _cut(line: str, room: int) -> str:
    return line if len(line) <= room else f"{line[:room]}… ({len(line)} characters in this line)\n"


# --- write and edit ---------------------------------------------------------------------


class _Changing(_FileTool):
    """A tool that replaces the content of one file."""

    effect: Effect = "write"

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The path that would be written, and the diff."""
        path = named_path(arguments["path"], workspace)
        try:
            old = _old_text(real_path(path))
            new = self._new_text(old, self.signature.bind(arguments))
        except (ToolFailure, OSError):
            return CallDescription(paths_written=(path,))  # the call itself will say why
        shown = str(arguments["path"])
        return CallDescription(
            paths_written=(path,),
            diff=_diff_for_card(old or "", new, shown, created=old is None),
        )

    def _new_text(self, old: str | None, keywords: Mapping[str, Any]) -> str:
        raise NotImplementedError


def _diff_for_card(old: str, new: str, shown: str, *, created: bool = False) -> str:
    """The diff, or nothing when the texts are too long: the card shows the arguments."""
    if len(old) + len(new) > COMPARED_CHARS:
        return ""
    return unified_diff(old, new, shown, created=created)


def _old_text(real: Path) -> str | None:
    try:
        return read_text(real, EDITED_BYTES)
    except FileNotFoundError:
        return None


class WriteFile(_Changing):
    """`write_file`."""

    def __init__(self) -> None:
        super().__init__("write_file", _write_file)

    def _new_text(self, old: str | None, keywords: Mapping[str, Any]) -> str:
        return str(keywords["text"])


def _write_file(files: Files, path: str, text: str) -> str:
    """Write a text file, new or in place of the old one. Folders are made as needed.

    Args:
        path: relative to the workspace, or absolute.
        text: the whole new content.
    """
    real = files.resolve(path)
    existed = real.exists()
    replace_file(real, _encode(text))
    lines = len(text.splitlines())
    return f"{'replaced' if existed else 'made'} {files.show(real)} ({lines} lines)"


class EditFile(_Changing):
    """`edit_file`."""

    def __init__(self) -> None:
        super().__init__("edit_file", _edit_file)

    def _new_text(self, old: str | None, keywords: Mapping[str, Any]) -> str:
        if old is None:
            raise FileNotFoundError
        return _replaced(old, keywords["old_text"], keywords["new_text"])


def _edit_file(files: Files, path: str, old_text: str, new_text: str) -> str:
    """Replace one place in a text file.

    Args:
        path: relative to the workspace, or absolute.
        old_text: the text to replace, exactly as it stands in the file, with enough of its
            surroundings to occur only once.
        new_text: what to put there.
    """
    real = files.resolve(path)
    before = read_text(real, EDITED_BYTES)
    after = _replaced(before, old_text, new_text)
    replace_file(real, _encode(after))
    diff = unified_diff(before, after, files.show(real))
    return diff if len(diff) <= DIFF_CHARS else f"edited {files.show(real)}"


def _replaced(text: str, old: str, new: str) -> str:
    """*text* with its one occurrence of *old* replaced; line ends as the file has them."""
    if "\r\n" in text and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    if not old:
        raise ToolFailure("old_text is empty; write_file makes or replaces a whole file")
    if old == new:
        raise ToolFailure("old_text and new_text are the same; nothing was changed")
    count = text.count(old)
    if count == 1:
        return text.replace(old, new)
    if count:
        raise ToolFailure(
            f"old_text occurs {count} times (lines {_where(text, old)}); add surrounding text so "
            "that it occurs once; nothing was changed"
        )
    raise ToolFailure(f"old_text does not occur in the file{_nearest(text, old)}")


def _where(text: str, old: str) -> str:
    starts = [m.start() for m in re.finditer(re.escape(old), text)]
    shown = ", ".join(str(text.count("\n", 0, start) + 1) for start in starts[:5])
    return shown + (", …" if len(starts) > 5 else "")


def _nearest(text: str, old: str) -> str:
    """Where the first line of *old* stands apart from its white space, which is the usual slip."""
    first = old.strip().splitlines()[0].strip() if old.strip() else ""
    for number, line in enumerate(text.splitlines(), 1):
        if first and line.strip() == first:
            return f"; line {number} is alike, but white space or the lines after it differ"
    return "; read the file again"


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolFailure(f"the text holds {text[error.start]!r}, which is no character") from None


# --- move and delete --------------------------------------------------------------------


class MoveFile(_FileTool):
    """`move_file`."""

    effect: Effect = "write"

    def __init__(self) -> None:
        super().__init__("move_file", _move_file)

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The two places, and of a folder everything in it; no link is followed.

        Raises:
            ToolFailure: there is more in the folder than one call moves.
            OSError: it cannot be looked into.
        """
        places = [named_path(arguments[name], workspace) for name in ("path", "to")]
        real = real_path(places[0].parent) / places[0].name
        inner = inner_paths(real)
        return CallDescription(
            entries_written=(*places, *(place / name for place in places for name in inner))
        )


def _move_file(files: Files, path: str, to: str) -> str:
    """Move or rename a file or a folder. What is at the new place is never replaced.

    Args:
        path: relative to the workspace, or absolute; a link is moved itself.
        to: its new path. Folders are made as needed.
    """
    source, target = files.resolve_entry(path), files.resolve_entry(to)
    if real_path(files.workspace).is_relative_to(source):
        raise ToolFailure(f"{path} holds the workspace itself; nothing was moved")
    inner = inner_paths(source)
    for place in (source, target):
        files.check_below(place, inner)
    move_entry(source, target)
    much = f" with {len(inner)} files and folders in it" if inner else ""
    return f"moved {files.show(source)}{much} to {files.show(target)}"


class DeleteFile(_FileTool):
    """`delete_file`."""

    effect: Effect = "write"

    def __init__(self) -> None:
        super().__init__("delete_file", _delete_file)

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The entry, and as a diff what it holds."""
        path = named_path(arguments["path"], workspace)
        try:
            old = "" if path.is_symlink() else _old_text(real_path(path)) or ""
            diff = _diff_for_card(old, "", str(arguments["path"]))
        except (ToolFailure, OSError):
            diff = ""  # a folder, or no text: the call's arguments say it all
        return CallDescription(entries_written=(path,), diff=diff)


def _delete_file(files: Files, path: str) -> str:
    """Delete a file, a link or an empty folder.

    Args:
        path: relative to the workspace, or absolute; of a link the link itself is deleted.
    """
    real = files.resolve_entry(path)
    delete_entry(real)
    return f"deleted {files.show(real)}"


# --- list and search --------------------------------------------------------------------


class ListFiles(_FileTool):
    """`list_files`."""

    def __init__(self) -> None:
        super().__init__("list_files", _list_files)


def _list_files(files: Files, path: str = ".", pattern: str = "*") -> str:
    """List files and folders.

    Args:
        path: the folder, relative to the workspace, or absolute.
        pattern: `*` is anything within a name, `**` any folders: `**/*.csv` finds every CSV file.
    """
    real = files.resolve(path)
    if not real.is_dir():
        raise ToolFailure(f"{path} is not a folder" if real.exists() else f"there is no {path}")
    matches = glob(pattern)
    deep = "/" in pattern or "**" in pattern
    found = [name for name in _walk(real, deep=deep) if matches(name.rstrip("/"))]
    if not found:
        return f"(nothing in {path} matches {pattern})" if any(real.iterdir()) else "(empty folder)"
    more = len(found) - LISTED
    return "\n".join(found[:LISTED]) + (f"\n… {more} more; narrow the pattern" if more > 0 else "")


def _walk(root: Path, *, deep: bool) -> list[str]:
    """Names below *root* in order, folders with a slash; links are named, never followed."""
    names: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not deep or name not in NOISE)
        base = Path(folder).relative_to(root)
        names += [f"{base / name}/" for name in folders]
        names += [str(base / name) for name in files]
        if not deep or len(names) > WALKED:
            break
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(folder, name))]
    return sorted(names)[:WALKED]


class SearchFiles(_FileTool):
    """`search_files`; a search that takes more than *seconds* is ended."""

    def __init__(self, seconds: float = SEARCH_SECONDS) -> None:
        super().__init__("search_files", _prepare_search)
        self._seconds = seconds

    async def _do(self, files: Files, keywords: Mapping[str, Any]) -> str:
        request = await super()._do(files, keywords)
        return _tell(json.loads(await _grep(request.encode(), self._seconds)))


def _prepare_search(
    files: Files, pattern: str, path: str = ".", names: str = "*", ignore_case: bool = False
) -> str:
    """Search text files for a regular expression, line by line.

    Args:
        pattern: a regular expression of Python.
        path: a folder or a file, relative to the workspace, or absolute.
        names: only files whose names match, for example `*.py` or `src/**/*.md`.
        ignore_case: whether upper and lower case are the same.
    """
    real = files.resolve(path)
    if not real.exists():
        raise ToolFailure(f"there is no {path}")
    alone = real.is_file()
    root = real.parent if alone else real
    chosen = [real.name] if alone else list(_searched(root, names))
    return json.dumps(
        {
            "pattern": pattern,
            "ignore_case": ignore_case,
            "root": str(root),
            "files": chosen,
            "most": MATCHES,
            "line_chars": MATCH_CHARS,
            "largest": EDITED_BYTES,
        }
    )


def _searched(root: Path, names: str) -> Iterator[str]:
    """Files to look into; what may hold secrets is only searched when it is named itself."""
    matches = glob(names if "/" in names else f"**/{names}")
    for name in _walk(root, deep=True):
        path = root / name
        secret = looks_like_credentials(path) or may_hold_secrets(path)
        if not name.endswith("/") and matches(name) and not secret and not path.is_symlink():
            yield name


async def _grep(request: bytes, seconds: float) -> bytes:
    """Search in a process of its own, which is ended when it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", grep.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate(request)
    except TimeoutError:
        raise ToolFailure(
            f"no result after {seconds:g} seconds; use a simpler pattern or fewer files"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ToolFailure(f"the search ended with code {process.returncode}")
    return answer


def _tell(found: Mapping[str, Any]) -> str:
    if "error" in found:
        raise ToolFailure(found["error"])
    lines = [f"{name}:{number}: {line}" for name, number, line in found["matches"]]
    if not lines:
        lines = ["(no match)"]
    if found["more"]:
        lines.append(f"… more than {MATCHES} matches; narrow the pattern")
    if found["skipped"]:
        lines.append(f"({found['skipped']} files are not text or too large)")
    return "\n".join(lines)
