"""`op-jupyter run file.py:function`: a function of a file, called as a cell would call it."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.engine.session_context import session_context
from op_jupyter.errors import InvalidArguments, OpenProgramError, ToolDefinitionError
from op_jupyter.tools.schema import Signature, read_signature
from op_jupyter.tools.summaries import to_json_value


class FunctionFailed(OpenProgramError):
    """The function, or the file it is in, raised; its traceback has been printed."""


def run(target: str, arguments: Sequence[str], session_id: str | None) -> None:
    """Call the function that *target* names and print what it returns.

    Args:
        target: ``path/to/file.py:function``.
        arguments: ``name=value``; a value is taken as the parameter's type says, JSON for
            anything that a text is not.
        session_id: the session to go on with; None: a new one.

    Raises:
        BadCommandLine: no such file or function, or arguments that do not fit.
        FunctionFailed: the function raised.
        OpenProgramError: as the function, or the session, raised it.
    """
    path, name = _split(target)
    function = _find(_load(path), name, path)
    keywords = _keywords(function, name, arguments)
    with session_context(session_id, source="cli") as handle:
        session = handle.session_id
        print(f"session: {session} (--session {session} to continue)", file=sys.stderr)
        value = _foreign(f"{name}()", lambda: _call(function, keywords))
    if value is not None:
        print(value if isinstance(value, str) else _json(value))


def _split(target: str) -> tuple[Path, str]:
    file, colon, name = target.rpartition(":")
    if not colon or not name.replace(".", "").isidentifier():
        raise BadCommandLine(f"{target!r} is not FILE:FUNCTION, for example review.py:classify")
    path = Path(file)
    if not path.is_file():
        raise BadCommandLine(f"there is no file {file!r}")
    if path.suffix != ".py":
        raise BadCommandLine(f"{file!r} is no Python file; its name has to end with .py")
    return path.resolve(), name


def _load(path: Path) -> ModuleType:
    """The file as a module: under its own name, so that workers can import it as well."""
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"op_jupyter_run_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    load = spec.loader.exec_module
    _foreign(path.name, lambda: load(module))
    return module


def _find(module: ModuleType, name: str, path: Path) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if callable(found):
        return found  # type: ignore[no-any-return]  # callable is all that is known
    there = sorted(
        key
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    )
    listed = ", ".join(there) or "none"
    what = "has no" if found is None else "does not call"
    raise BadCommandLine(f"{path.name} {what} function {name!r}; its functions: {listed}")


def _keywords(function: Callable[..., Any], name: str, given: Sequence[str]) -> dict[str, Any]:
    try:
        signature = read_signature(function, name=name.rpartition(".")[2])
    except ToolDefinitionError as error:
        raise BadCommandLine(f"{name} cannot be run from here: {error.message}") from error
    texts: dict[str, Any] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise BadCommandLine(f"--arg {item!r} is not NAME=VALUE")
        if key in texts:
            raise BadCommandLine(f"--arg {key} is given twice")
        texts[key] = value
    try:
        return _bind(signature, texts)
    except InvalidArguments as error:
        raise BadCommandLine(f"the arguments do not fit {name}: {error.message}") from error


def _bind(signature: Signature, texts: Mapping[str, str]) -> dict[str, Any]:
    """The arguments as text where text fits, and as JSON where it does not."""
    try:
        return signature.bind(texts)
    except InvalidArguments as error:
        parsed: dict[str, Any] = dict(texts)
        for key in {field.partition(".")[0] for field in error.fields} & parsed.keys():
            # What is no JSON either stays text, and is told with what does not fit of it.
            with suppress(ValueError, RecursionError):
                parsed[key] = json.loads(texts[key])
        return signature.bind(parsed)


def _call(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    value = function(**keywords)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _foreign(what: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OpenProgramError:
        raise
    except Exception as error:
        traceback.print_exception(_from_theirs(error))
        raise FunctionFailed(f"{what} raised {type(error).__name__}") from error


def _from_theirs(error: Exception) -> Exception:
    """*error* with a traceback that starts in the file that was run."""
    here, trace = str(Path(__file__).parents[1]), error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((here, "<frozen")):
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)


def _json(value: Any) -> str:
    return json.dumps(to_json_value(value), ensure_ascii=False, indent=2)
