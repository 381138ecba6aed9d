"""What the names in code stand for in the notebook already, for whoever judges the code.

Earlier cells may have made a short name for `os.system`, or a text that is a command.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import PosixPath, PurePosixPath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from IPython.core.interactiveshell import InteractiveShell

from op_jupyter.core.code_flow import Known, Meaning
from op_jupyter.core.code_names import SHELL, canonical
from op_jupyter.core.danger_tables import HANDED, TELLING

_LONGEST_TEXT: Final = 10_000
_NAME: Final = re.compile(r"[^\W\d]\w*")


def known_names(code: str, variables: Mapping[str, Any]) -> Known:
    """What the names that stand in *code* are, of those *variables* that tell.

    Values are looked at by their type alone: nothing of theirs runs.
    """
    names = set(_NAME.findall(unicodedata.normalize("NFKC", code)))
    meanings = {name: _meaning(variables[name]) for name in names if name in variables}
    return {name: (meaning,) for name, meaning in meanings.items() if meaning is not None}


def _meaning(value: object) -> Meaning | None:
    kind = type(value)
    if issubclass(kind, InteractiveShell):
        return Meaning(dotted=SHELL)
    if kind is ModuleType:
        return Meaning(dotted=_module_name(value.__dict__.get("__name__")))
    if type(value) is MethodType and issubclass(type(value.__self__), InteractiveShell):
        return Meaning(dotted=f"{SHELL}.{value.__name__}")
    if kind in (FunctionType, BuiltinFunctionType, type):
        return _telling(value)
    if type(value) in (str, bytes) or kind in _PATHS:
        text = value.decode("utf-8", "replace") if type(value) is bytes else str(value)
        return Meaning(text=text) if len(text) <= _LONGEST_TEXT else None
    return None


def _telling(value: Any) -> Meaning | None:
    """A function or class, when it is one whose name tells something."""
    module = _module_name(value.__module__)
    name = value.__qualname__
    dotted = canonical(f"{module}.{name}") if module and isinstance(name, str) else name
    return Meaning(dotted=dotted) if dotted in _TELLING else None


def _module_name(name: object) -> str | None:
    if not isinstance(name, str):
        return None
    return "os.path" if name in ("posixpath", "ntpath") else name


_PATHS: Final = frozenset({PurePosixPath, PosixPath})
_TELLING: Final = TELLING | HANDED
