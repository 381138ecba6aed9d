"""What the notebook holds: for the model's picture of the world, and the `inspect` tool."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.redact import is_secret_name
from op_jupyter.core.updates import bounded
from op_jupyter.errors import InvalidArguments
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.schema import Signature, read_signature
from op_jupyter.tools.summaries import brief_value, describe_value
from op_jupyter.tools.threads import in_thread

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SECTION_CHARS: Final = 3_000
LIST_CHARS: Final = 12_000
LINE_CHARS: Final = 160
GROUP_CHARS: Final = 600
DEPTH_CHARS: Final = 8_000
SOURCE_CHARS: Final = 4_000
MEMBERS: Final = 60
TIMEOUT: Final = 60.0


def user_variables(shell: InteractiveShell) -> dict[str, Any]:
    """The variables that the person made, by name in order; what IPython put there is not."""
    ours = shell.user_ns_hidden
    return {
        name: value
        for name, value in sorted(shell.user_ns.items(), key=lambda item: str(item[0]))
        if isinstance(name, str)
        and not name.startswith("_")
        and (name not in ours or ours[name] is not value)
    }


def variables_section(shell: InteractiveShell, limit: int = SECTION_CHARS) -> str:
    """The variables with type and shape, in about *limit* characters; "" when there are none.

    Data come first, a line each; functions, classes and modules share a line.
    """
    variables = user_variables(shell)
    data = {n: v for n, v in variables.items() if _group(v) is None}
    groups = [f"{title}: {names}" for title, names in _grouped(variables)]
    lines: list[str] = []
    room = limit - sum(map(len, groups))
    for name, value in data.items():
        line = f"{name}: {_line(name, value)}"
        if room < len(line):
            hidden = list(data)[len(lines) :]
            lines.append(f"… {len(hidden)} more: {_listed(hidden)}")
            break
        room -= len(line) + 1
        lines.append(line)
    return "\n".join([*lines, *groups])


def _line(name: str, value: Any) -> str:
    if is_secret_name(name) and isinstance(value, str | bytes):
        return f"{type(value).__name__} of {len(value)} characters, not shown"
    return brief_value(value, LINE_CHARS)


def _group(value: Any) -> str | None:
    """What *value* is listed among; None: it is data, or cannot be looked at."""
    try:
        return _kind(value)
    except Exception:  # noqa: BLE001 -- to look at it is to run its own code
        return None


def _kind(value: Any) -> str | None:
    if inspect.ismodule(value):
        return "modules"
    if isinstance(value, type):
        return "classes"
    return "functions" if inspect.isroutine(value) or _is_agentic(value) else None


def _is_agentic(value: Any) -> bool:
    return callable(value) and inspect.isfunction(getattr(value, "__wrapped__", None))


def _grouped(variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of each group, with what tells them apart, bounded."""
    for title in ("functions", "classes", "modules"):
        names = [_member(n, v) for n, v in variables.items() if _group(v) == title]
        if names:
            yield title, _listed(names)


def _listed(names: list[str]) -> str:
    shown: list[str] = []
    room = GROUP_CHARS
    for name in names:
        room -= len(name) + 2
        if room < 0:
            return f"{', '.join(shown)}, … {len(names) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown)


def _member(name: str, value: Any) -> str:
    try:
        return _told(name, value)
    except Exception:  # noqa: BLE001 -- as above
        return name


def _told(name: str, value: Any) -> str:
    if inspect.ismodule(value):
        return name if value.__name__ == name else f"{name} = {value.__name__}"
    if isinstance(value, type):
        return name
    _, bracket, rest = brief_value(inspect.unwrap(value), LINE_CHARS).partition("(")
    return name + bracket + rest


# --- the tool ---------------------------------------------------------------------------


def _inspect(name: str = "") -> None:
    """Look at the variables of the person's notebook without running code.

    Without a name all variables are listed with type and shape; with a name that one is shown
    in depth: of a table its columns and first rows, of a function its signature and source.

    Args:
        name: the name of one variable.
    """


class InspectTool:
    """`inspect`."""

    effect: Effect = "read"
    timeout: float | None = TIMEOUT
    trusted = False

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self.signature: Signature = read_signature(_inspect, name="inspect")

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return self.signature.spec

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing."""
        try:
            self.signature.bind(arguments)
        except InvalidArguments as error:
            return error.message
        return ""

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """Nothing on disk is touched."""
        return CallDescription()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Look; on the main thread when there is one, because looking runs code of the values."""
        name = self.signature.bind(arguments).get("name", "").strip()
        if context.main_thread is not None:
            return await context.main_thread.run(lambda: self._look(name))
        return await in_thread(lambda: self._look(name))

    def _look(self, name: str) -> ToolOutput:
        if not name:
            text = variables_section(self._shell, LIST_CHARS)
            return ToolOutput((TextBlock(text or "(the notebook has no variables yet)"),))
        variables = user_variables(self._shell)
        if name not in variables:
            return ToolOutput((TextBlock(_unknown(name, variables)),), "failed")
        value = variables[name]
        if is_secret_name(name) and isinstance(value, str | bytes):
            return ToolOutput((TextBlock(f"{name}: {_line(name, value)}"),))
        return ToolOutput((TextBlock(f"{name}: {_in_depth(value)}"),))


def _unknown(name: str, variables: Mapping[str, Any]) -> str:
    if not name.isidentifier():
        return f"{name!r} is not the name of a variable; use the python tool for expressions"
    near = difflib.get_close_matches(name, variables, n=3)
    there = ", ".join(near or list(variables)[:MEMBERS]) or "none yet"
    return f"there is no variable {name!r}; {'there is' if near else 'the variables are'}: {there}"


def _in_depth(value: Any) -> str:
    text, group = describe_value(value, DEPTH_CHARS), _group(value)
    if group == "modules":
        version = getattr(value, "__version__", None)
        told = f" {version}" if isinstance(version, str) else ""
        return f"{text}{told}\n{_public(value)}"
    if group == "classes":
        return f"{text}\n{_public(value)}"
    source = _source(value) if group == "functions" else ""
    return f"{text}\n\n{source}" if source else text


def _public(value: Any) -> str:
    names = [name for name in dir(value) if not name.startswith("_")]
    more = f", … {len(names) - MEMBERS} more" if len(names) > MEMBERS else ""
    return f"members: {', '.join(names[:MEMBERS])}{more}"


def _source(value: Any) -> str:
    """The source of a function of the notebook."""
    try:
        function = inspect.unwrap(value)
        if not inspect.isfunction(function):
            return ""
        return bounded(inspect.getsource(function), SOURCE_CHARS, 0)
    except (OSError, TypeError, ValueError):  # ValueError: it wraps itself
        return ""
