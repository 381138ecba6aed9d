"""What an expression of Python code stands for, as far as the code alone tells."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_LONGEST_JOINED: Final = 10_000
"""A text that the code puts together is unknown beyond that: it can double with each line."""


@dataclass(slots=True)
class Names:
    """What names stand for, one thing each: dotted names, and constant texts."""

    dotted: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def resolve(self, node: ast.expr | None) -> str | None:
        """The dotted name of *node*; ``?`` stands for a part that is not known."""
        match node:
            case ast.Name(id=name):
                return self.dotted.get(name, name)
            case ast.Attribute(value=value, attr=attribute):
                base = self.resolve(value) or "?"
                return self._canonical(f"{base}.{attribute}")
            case ast.Subscript(value=value, slice=key):
                return self._resolve_item(value, self.text(key))
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.resolve(value)
            case ast.Call():
                return self._resolve_call(node)
            case _:
                return None

    def text(self, node: ast.expr | None) -> str | None:
        """The text or path that *node* is, when the code alone tells."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Constant(value=bytes(raw)):
                return raw.decode("utf-8", "replace")
            case ast.Name(id=name):
                return self.texts.get(name)
            case ast.NamedExpr(value=value) | ast.FormattedValue(value=value):
                return self.text(value)
            case ast.JoinedStr(values=values):
                return _join("", [self.text(value) for value in values])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _join("", [self.text(left), self.text(right)])
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _join("/", [self.text(left), self.text(right)])
            case ast.Subscript(value=value, slice=key) if self.text(key) == "HOME":
                return "~" if self.resolve(value) == "os.environ" else None
            case ast.Call():
                return self._text_of_call(node)
            case _:
                return None

    def _canonical(self, dotted: str) -> str:
        return dotted.removeprefix("builtins.").removeprefix("__builtins__.")

    def _resolve_item(self, value: ast.expr, key: str | None) -> str | None:
        """``vars(os)["remove"]``, ``os.__dict__["remove"]``, ``sys.modules["os"]``."""
        base = self.resolve(value)
        if base is None or key is None:
            return None
        if base in ("sys.modules", "globals()", "locals()", "vars()"):
            return self.dotted.get(key, key)
        if base.endswith(".__dict__"):
            return self._canonical(f"{base.removesuffix('.__dict__')}.{key}")
        return None

    def _resolve_call(self, call: ast.Call) -> str | None:
        name = self.resolve(call.func)
        first = call.args[0] if call.args else None
        if name in IMPORTERS:
            return self.text(first)
        if name == "getattr" and len(call.args) >= 2:
            attribute = self.text(call.args[1])
            return (
                self._canonical(f"{self.resolve(first) or '?'}.{attribute}") if attribute else None
            )
        if name == "vars" and first is not None:
            return f"{self.resolve(first) or '?'}.__dict__"
        return f"{name}()" if name in ("globals", "locals", "vars", "get_ipython") else None

    def _text_of_call(self, call: ast.Call) -> str | None:
        name = self.resolve(call.func) or ""
        if name in _HOMES:
            return "~"
        if name in _HERE:
            return "."
        if name in _SAME_PATH and call.args:
            return _join("/", [self.text(argument) for argument in call.args])
        if isinstance(call.func, ast.Attribute) and call.func.attr in _PATH_METHODS:
            base = self.text(call.func.value)
            return _join("/", [base, *(self.text(argument) for argument in call.args)])
        return None


IMPORTERS: Final = frozenset({"__import__", "importlib.import_module", "import_module"})
_HOMES: Final = frozenset({"pathlib.Path.home", "Path.home"})
_HERE: Final = frozenset({"pathlib.Path.cwd", "Path.cwd", "os.getcwd"})
_SAME_PATH: Final = frozenset(
    {
        *("Path", "pathlib.Path", "pathlib.PosixPath", "PurePath", "pathlib.PurePath", "str"),
        *("os.path.join", "os.path.expanduser", "os.path.abspath", "os.path.realpath"),
        *("os.path.expandvars", "os.path.normpath", "os.fspath", "os.fsencode"),
    }
)
_PATH_METHODS: Final = frozenset({"joinpath", "expanduser", "resolve", "absolute", "as_posix"})


def _join(separator: str, parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known or sum(map(len, known)) > _LONGEST_JOINED:
        return None
    return posixpath.join(*known) if separator == "/" else separator.join(known)
