"""What an expression of Python code stands for, as far as the code alone tells."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from op_jupyter.core.code_texts import (
    LONGEST,
    changed,
    decoded,
    formatted,
    joined,
    percent_formatted,
    sliced,
)
from op_jupyter.core.values import dataclass


def canonical(dotted: str) -> str:
    """The one name of what has several: ``glob.os.remove`` and ``posix.remove`` are ``os.remove``.

    A module that another one imports is reached through it as well.
    """
    parts = dotted.split(".")
    while len(parts) > 1 and parts[-1] == "__call__":
        parts.pop()
    for index in range(len(parts) - 1, 0, -1):
        if parts[index].removeprefix("_") in _ANYWHERE:
            parts = [parts[index].removeprefix("_"), *parts[index + 1 :]]
            break
        if parts[index] in _BUILTINS:
            del parts[:index]
            break
    if len(parts) > 1 and parts[0] in _BUILTINS and parts[1] != "__dict__":
        del parts[0]
    if parts[0] == "__builtins__":
        parts[0] = "builtins"
    if len(parts) > 1:
        parts[0] = _SAME_MODULE.get(parts[0], parts[0])
    if "get_ipython" in parts[1:] or parts[-2:] == ["importlib", "__import__"]:
        return parts[-1]
    return ".".join(parts)


@dataclass(slots=True)
class Names:
    """What names stand for, one thing each: dotted names, and constant texts."""

    dotted: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def resolve(self, node: ast.expr | None) -> str | None:
        """The dotted name of *node*; ``?`` stands for a part that is not known."""
        match node:
            case ast.Name(id=name):
                return canonical(self.dotted.get(name, name))
            case ast.Attribute():
                return self._resolve_attribute(node)
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
                return self.texts[name] if name in self.texts else self._named_text(node)
            case ast.NamedExpr(value=value) | ast.FormattedValue(value=value, format_spec=None):
                return self.text(value)
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                template = self.text(left)
                values = right.elts if isinstance(right, ast.Tuple) else [right]
                texts = [self.text(value) for value in values]
                return None if template is None else percent_formatted(template, texts)
            case ast.JoinedStr() | ast.BinOp():
                return self._joined(node)
            case ast.Attribute(value=value, attr="parent"):
                return joined("/", [self.text(value), ".."])
            case ast.Attribute():
                return self._named_text(node)
            case ast.Subscript(value=value, slice=key):
                return self._text_of_item(value, key)
            case ast.Call():
                return self._joined(node) or self._text_of_call(node)
            case _:
                return None

    def folder(self, node: ast.expr | None) -> str | None:
        """Where the path *node* surely lies, when only its beginning is known."""
        found = self._parts(node)
        if found is None:
            start = (self._template(node) or "").partition("%")[0].partition("{")[0]
            return start[: start.rfind("/") + 1]
        separator, parts = found
        known: list[str] = []
        for part in parts:
            text = self.text(part)
            if text is None:
                known += [inner] if (inner := self.folder(part)) and part is parts[0] else []
                break
            known.append(text)
        start = joined(separator, known) or ""
        return start if separator == "/" else start[: start.rfind("/") + 1]

    def _template(self, node: ast.expr | None) -> str | None:
        """The text that ``%`` or ``.format`` fills in."""
        match node:
            case ast.BinOp(left=template, op=ast.Mod()):
                return self.text(template)
            case ast.Call(func=ast.Attribute(value=template, attr="format")):
                return self.text(template)
            case _:
                return None

    # -- things

    def _resolve_attribute(self, node: ast.Attribute) -> str:
        """Only the end of what is longer than any name in earnest."""
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute) and len(parts) < _LONGEST_CHAIN:
            parts.append(inner.attr)
            inner = inner.value
        base = None if isinstance(inner, ast.Attribute) else self.resolve(inner)
        return canonical(".".join((base or "?", *reversed(parts))))

    def _resolve_item(self, value: ast.expr, key: str | None) -> str | None:
        """``vars(os)["remove"]``, ``os.__dict__["remove"]``, ``sys.modules["os"]``."""
        base = self.resolve(value)
        if base is None or key is None:
            return None
        if base in HOLDERS:
            return canonical(self.dotted.get(key, key))
        if base == "builtins":
            return key
        if base.endswith(".__dict__"):
            return canonical(f"{base.removesuffix('.__dict__')}.{key}")
        return canonical(f"?.{key}") if key in _BUILTINS else None

    def _resolve_call(self, call: ast.Call) -> str | None:
        name = self.resolve(call.func)
        first = argument(call, 0, ("name",))
        if name in IMPORTERS:
            text = self.text(first)
            return None if text is None else self._imported(name, text)
        if name in ("getattr", "object.__getattribute__") and len(call.args) >= 2:
            attribute = self.text(call.args[1])
            return canonical(f"{self.resolve(first) or '?'}.{attribute}") if attribute else None
        if name == "vars" and first is not None:
            return f"{self.resolve(first) or '?'}.__dict__"
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("get", "__getitem__"):
            return self._resolve_item(call.func.value, self.text(first))
        if isinstance(call.func, ast.Call) and first is not None:
            return self._picked(call.func, call.args[0] if call.args else first)
        if name is not None and name.endswith("InteractiveShell.instance"):
            return SHELL
        return f"{name}()" if name in ("globals", "locals", "vars", "get_ipython") else None

    def _imported(self, importer: str, text: str) -> str:
        """``__import__("os.path")`` is ``os``; the others mean what they say."""
        dotted = text.partition(".")[0] if importer == "__import__" else text.replace(":", ".")
        return canonical(dotted)

    def _picked(self, getter: ast.Call, thing: ast.expr) -> str | None:
        """``operator.attrgetter("remove")(os)``."""
        if self.resolve(getter.func) not in ("operator.attrgetter", "attrgetter"):
            return None
        path = self.text(getter.args[0]) if getter.args else None
        return canonical(f"{self.resolve(thing) or '?'}.{path}") if path else None

    # -- texts

    def _named_text(self, node: ast.expr) -> str | None:
        return _NAMED_TEXTS.get(self.resolve(node) or "")

    def _parts(self, node: ast.expr | None) -> tuple[str, Sequence[ast.expr]] | None:
        """What a text or path is put together of, and what comes between."""
        match node:
            case ast.JoinedStr(values=values):
                return "", values
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return "", (left, right)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return "/", (left, right)
            case ast.Call(func=func, args=args):
                name = self.resolve(func) or ""
                if name == "str" and args:
                    return "", args[:1]
                if name in _SAME_PATH and args:
                    return "/", args
                if isinstance(func, ast.Attribute) and func.attr in _PATH_METHODS:
                    return "/", (func.value, *args)
        return None

    def _joined(self, node: ast.expr) -> str | None:
        found = self._parts(node)
        return None if found is None else joined(found[0], [self.text(p) for p in found[1]])

    def _text_of_item(self, value: ast.expr, key: ast.expr) -> str | None:
        if self.text(key) == "HOME":
            return "~" if self.resolve(value) == "os.environ" else None
        if isinstance(value, ast.Attribute) and value.attr == "parents":
            up = _number(key)
            known = self.text(value.value) if up is not None and 0 <= up < 50 else None
            return None if known is None or up is None else joined("/", [known, *[".."] * (up + 1)])
        text = self.text(value)
        if text is None or not isinstance(key, ast.Slice):
            return None
        bounds = [key.lower, key.upper, key.step]
        numbers = [_number(bound) for bound in bounds]
        if any(b is not None and n is None for b, n in zip(bounds, numbers, strict=True)):
            return None
        return sliced(text, *numbers)

    def _text_of_call(self, call: ast.Call) -> str | None:
        name = self.resolve(call.func) or ""
        if name in _HOMES:
            return "~"
        if name in _HERE or (name in _SAME_PATH and not call.args and not call.keywords):
            return "."
        texts = [self.text(each) for each in call.args]
        if name in ("os.environ.get", "os.getenv"):
            return "~" if texts[:1] == ["HOME"] else None
        if name == "chr" and len(call.args) == 1:
            number = _number(call.args[0])
            return chr(number) if number is not None and 0 <= number < 0x110000 else None
        if len(texts) == 1 and texts[0] is not None and (made := decoded(name, texts[0])):
            return made
        if not isinstance(call.func, ast.Attribute) or call.keywords:
            return None
        return self._text_of_method(call, call.func, texts)

    def _text_of_method(
        self, call: ast.Call, func: ast.Attribute, texts: Sequence[str | None]
    ) -> str | None:
        text = self.text(func.value)
        if text is None:
            return None
        if func.attr == "format":
            return formatted(text, texts)
        if func.attr == "join" and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
            return _joined_by(text, [self.text(each) for each in call.args[0].elts])
        if func.attr == "with_name":
            return joined("/", [text, "..", *texts])
        if func.attr == "with_suffix":
            return joined("", [posixpath.splitext(text)[0], *texts])
        return changed(func.attr, text, texts)


def argument(call: ast.Call, index: int, keywords: Sequence[str]) -> ast.expr | None:
    """An argument of *call*, by its place or by one of its names, stars of literals taken apart."""
    words = list(_words(call))
    if index < len(words):
        found = words[index]
        return None if isinstance(found, ast.Starred) else found
    return next((value for name, value in named_arguments(call) if name in keywords), None)


def named_arguments(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The keyword arguments, those of a literal after ``**`` among them."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value
        elif isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def hides_arguments(call: ast.Call) -> bool:
    """Whether there are arguments that only show when it runs."""
    return any(isinstance(word, ast.Starred) for word in _words(call)) or any(
        keyword.arg is None and not isinstance(keyword.value, ast.Dict) for keyword in call.keywords
    )


def _words(call: ast.Call) -> Iterator[ast.expr]:
    for word in call.args:
        if isinstance(word, ast.Starred) and isinstance(word.value, ast.List | ast.Tuple):
            yield from word.value.elts
        else:
            yield word


def _number(node: ast.expr | None) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case _:
            return None


def _joined_by(separator: str, parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or sum(map(len, known)) + len(separator) * len(known) > LONGEST:
        return None
    return separator.join(known)


_LONGEST_CHAIN: Final = 20
SHELL: Final = "get_ipython()"
HOLDERS: Final = frozenset({"sys.modules", "globals()", "locals()", "vars()"})
"""Their items are things by name."""
IMPORTERS: Final = frozenset(
    {
        *("__import__", "importlib.import_module", "import_module"),
        *("pkgutil.resolve_name", "pydoc.locate"),
    }
)
_ANYWHERE: Final = frozenset(
    {"os", "posix", "nt", "shutil", "subprocess", "sys", "builtins", "importlib", "ctypes", "pty"}
)
"""Modules that are found wherever another module imports them, also as ``_os`` and the like."""
_BUILTINS: Final = frozenset({"builtins", "__builtins__"})
_SAME_MODULE: Final = {"posix": "os", "nt": "os", "_io": "io", "_posixsubprocess": "subprocess"}
_NAMED_TEXTS: Final = {
    "sys.executable": "python",
    "os.sep": "/",
    "os.curdir": ".",
    "os.pardir": "..",
}
_HOMES: Final = frozenset({"pathlib.Path.home", "Path.home"})
_HERE: Final = frozenset({"pathlib.Path.cwd", "Path.cwd", "os.getcwd"})
_SAME_PATH: Final = frozenset(
    {
        *("Path", "pathlib.Path", "pathlib.PosixPath", "PurePath", "pathlib.PurePath"),
        *("os.path.join", "os.path.expanduser", "os.path.abspath", "os.path.realpath"),
        *("os.path.expandvars", "os.path.normpath", "os.fspath", "os.fsencode"),
    }
)
_PATH_METHODS: Final = frozenset({"joinpath", "expanduser", "resolve", "absolute", "as_posix"})
