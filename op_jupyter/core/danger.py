"""What Python code would do, as far as its text tells; and how that is said of any code.

Advisory: it reads the code and runs nothing, so code that wants to hide something can.
It makes the card point at the right lines; the card itself is the protection.
"""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from op_jupyter.core.shell_words import (
    BUILT_COMMAND,
    UNKNOWN,
    CommandReading,
    ReadCommand,
    read_argv,
    read_command,
)


@dataclass(frozen=True, slots=True)
class Danger:
    """Something dangerous in a line: *words* complete the sentence "this line …"."""

    line: int
    words: str


@dataclass(frozen=True, slots=True)
class Touch:
    """A path that stands in a line.

    Attributes:
        path: as the code writes it.
        real: absolute, symlinks resolved by somebody who may look at the disk; or nothing.
    """

    line: int
    path: str
    write: bool = False
    real: str = ""


@dataclass(frozen=True, slots=True)
class CodeReading:
    """Everything that was found, in order of lines, without repetitions."""

    dangers: tuple[Danger, ...] = ()
    touches: tuple[Touch, ...] = ()


BUILT_CODE: Final = "runs code that is built while it runs"
BUILT_NAME: Final = "picks what to call by a name that is built while it runs"
ENDS_KERNEL: Final = "ends the kernel"
TOO_DEEP: Final = "is nested too deeply to be checked"
TOO_LONG: Final = "is too long to be checked"

LONGEST_CODE: Final = 200_000
"""Longer code is not looked at: it would take seconds, in which nothing else goes on."""
_LONGEST_JOINED: Final = 10_000
_LONGEST_NAME: Final = 1_000
"""Texts and names that the code puts together are unknown beyond that: they can double."""

_NESTING: Final = 4
"""How many layers of code inside strings are followed."""


def read_code(code: str, shell: ReadCommand = read_command) -> CodeReading:
    """What *code* would do; nothing for code that cannot be parsed, because it cannot run.

    *shell* reads the shell commands in it.
    """
    return _read(code, 0, shell)


def _read(code: str, depth: int, shell: ReadCommand) -> CodeReading:
    if depth > _NESTING:
        return CodeReading((Danger(1, TOO_DEEP),))
    if len(code) > LONGEST_CODE:
        return CodeReading((Danger(1, TOO_LONG),))
    try:
        tree = _parse(code)
        reader = _Reader(_names_of(tree), depth, shell)
        reader.visit(tree)
    except (SyntaxError, ValueError):
        return CodeReading()
    except (RecursionError, MemoryError):
        return CodeReading((Danger(1, TOO_DEEP),))
    return CodeReading(
        tuple(sorted(set(reader.dangers), key=lambda d: (d.line, d.words))),
        tuple(sorted(set(reader.touches), key=lambda t: (t.line, t.path, t.write))),
    )


def _parse(code: str) -> ast.Module:
    """The tree of *code*; what the parser has to say about style is said when it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


# --- what names stand for ---------------------------------------------------------------


@dataclass(slots=True)
class _Names:
    """What the names in the code stand for: dotted names, and constant texts."""

    dotted: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """*name* stands for something that is not known."""
        self.dotted.pop(name, None)
        self.texts.pop(name, None)

    def copy(self) -> _Names:
        """What they stand for now, for a scope of its own."""
        return _Names(dict(self.dotted), dict(self.texts))

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
        if name in _IMPORTERS:
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


_IMPORTERS: Final = frozenset({"__import__", "importlib.import_module", "import_module"})
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


def _names_of(tree: ast.Module) -> _Names:
    """What imports and plain assignments anywhere in the code make names stand for."""
    names = _Names()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names.dotted |= {a.asname: a.name for a in aliases if a.asname}
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")]):
                known = (name for name in _TELLING if name.rpartition(".")[0] == module)
                names.dotted |= {name.rpartition(".")[2]: name for name in known}
            case ast.ImportFrom(module=str(module), names=aliases):
                names.dotted |= {a.asname or a.name: f"{module}.{a.name}" for a in aliases}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                _bind(names, name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                _bind(names, name, value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                _bind(names, name, value)
            case _:
                pass
    return names


def _bind(names: _Names, name: str, value: ast.expr) -> None:
    text, dotted = names.text(value), names.resolve(value)
    names.forget(name)
    if text is not None:
        names.texts[name] = text
    if dotted is not None and dotted != name and len(dotted) <= _LONGEST_NAME:
        names.dotted[name] = dotted


# --- the tables -------------------------------------------------------------------------

_DELETERS: Final = {
    "os.remove": "deletes a file",
    "os.unlink": "deletes a file",
    "os.rmdir": "deletes a folder",
    "os.removedirs": "deletes folders",
    "send2trash.send2trash": "moves files to the trash",
}

_DELETING_ATTRIBUTES: Final = {
    "rmtree": "deletes folders",
    "removedirs": "deletes folders",
    "rmdir": "deletes a folder",
    "unlink": "deletes a file",
}
"""Telling on their own, so they count whatever they are called on."""

_SHELLS: Final = frozenset(
    {
        *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
        *("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.Popen"),
        *("subprocess.check_output", "asyncio.create_subprocess_shell", "pty.spawn"),
        *("get_ipython().system", "get_ipython().getoutput", "get_ipython().system_raw"),
        *("get_ipython().system_piped", "commands.getoutput"),
    }
)

_EXECUTORS: Final[Mapping[str, int]] = {
    "asyncio.create_subprocess_exec": 0,
    **{f"os.exec{suffix}": 0 for suffix in ("l", "le", "lp", "lpe")},
    **{f"os.spawn{suffix}": 1 for suffix in ("l", "le", "lp", "lpe")},
}
"""Take the words of a command as arguments of their own, from that one on."""

_LIST_EXECUTORS: Final[Mapping[str, int]] = {
    **{f"os.exec{suffix}": 1 for suffix in ("v", "ve", "vp", "vpe")},
    **{f"os.spawn{suffix}": 2 for suffix in ("v", "ve", "vp", "vpe")},
    **dict.fromkeys(("os.posix_spawn", "os.posix_spawnp"), 1),
}
"""Take the words of a command as a list, which is that argument."""

_EVALUATORS: Final = frozenset(
    {"exec", "eval", "compile"}
    | {f"get_ipython().{name}" for name in ("run_cell", "run_cell_async", "ex", "ev")}
)

_MAGICS: Final = frozenset(
    {"get_ipython().run_line_magic", "get_ipython().run_cell_magic", "get_ipython().magic"}
)

_KERNEL_ENDERS: Final = frozenset({"exit", "quit", "os._exit", "os.abort"})

_GUARDED_MODULES: Final = frozenset(
    {"os", "shutil", "subprocess", "builtins", "__builtins__", "pathlib", "posix", "importlib"}
)

_WRITING_CALLS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree"), (1,)),
    **dict.fromkeys(("shutil.move", "os.rename", "os.replace", "os.renames"), (0, 1)),
    **dict.fromkeys(("os.makedirs", "os.mkdir", "os.chmod", "os.chown", "os.truncate"), (0,)),
    **dict.fromkeys(("os.symlink", "os.link", "urllib.request.urlretrieve"), (1,)),
    **dict.fromkeys(("numpy.save", "numpy.savez", "numpy.savetxt", "np.save"), (0,)),
    **dict.fromkeys(
        ("np.savez", "np.savetxt", "numpy.savez_compressed", "np.savez_compressed"), (0,)
    ),
    **dict.fromkeys(("torch.save", "joblib.dump"), (1,)),
}
"""Functions that write, and which arguments are the paths."""

_WRITING_METHODS: Final = frozenset(
    {
        *("to_csv", "to_parquet", "to_excel", "to_json", "to_pickle", "to_feather", "to_html"),
        *("to_hdf", "to_stata", "to_xml", "to_markdown", "to_latex", "to_netcdf", "to_zarr"),
        *("savefig", "write_csv", "write_parquet", "write_json", "write_ipc", "write_html"),
        *("write_image", "save", "extractall", "sink_parquet", "sink_csv"),
    }
)
"""Methods of anything whose first argument is the path that they write."""

_PATH_WRITERS: Final = frozenset(
    {"write_text", "write_bytes", "touch", "mkdir", "symlink_to", "hardlink_to", "chmod", "rename"}
)
"""Methods of a path that change what it names."""

_OPENERS: Final = frozenset(
    {
        *("open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"),
        *("zipfile.ZipFile", "tarfile.open", "h5py.File"),
    }
)
_WRITING_FLAGS: Final = frozenset({"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"})
_HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


_TELLING: Final = frozenset(
    {*_DELETERS, *_SHELLS, *_EXECUTORS, *_LIST_EXECUTORS, *_WRITING_CALLS, "shutil.rmtree"}
)
"""What ``from module import *`` may bring in under a short name."""


# --- reading ----------------------------------------------------------------------------


class _Reader(ast.NodeVisitor):
    """Collects dangers and touched paths."""

    def __init__(self, names: _Names, depth: int, shell: ReadCommand) -> None:
        self._names = names
        self._depth = depth
        self._read_shell = shell
        self.dangers: list[Danger] = []
        self.touches: list[Touch] = []

    def generic_visit(self, node: ast.AST) -> None:
        """Look at every expression for what it names, then go into it."""
        if isinstance(node, ast.expr):
            self._look_at_name(node)
            self._look_at_text(node)
        super().generic_visit(node)

    def visit_Call(self, call: ast.Call) -> None:
        name = self._names.resolve(call.func) or "?"
        for look in (self._shell, self._evaluator, self._magic, self._opened, self._written):
            look(call, name)
        if name in _KERNEL_ENDERS:
            self._danger(call, ENDS_KERNEL)
        if self._is_built_name(call, name):
            self._danger(call, BUILT_NAME)
        self.generic_visit(call)

    # -- names, in the order of the lines: what comes later does not hide what was before

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                _bind(self._names, target.id, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.value is not None:
            _bind(self._names, node.target.id, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        _bind(self._names, node.target.id, node.value)

    def visit_Name(self, node: ast.Name) -> None:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Store):
            self._names.forget(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._scope(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._scope(node)

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outside, self._names = self._names, self._names.copy()
        self.generic_visit(node)
        self._names = outside

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node.generators, node.elt)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node.generators, node.elt)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node.generators, node.elt)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node.generators, node.key, node.value)

    def _comprehension(self, loops: Sequence[ast.comprehension], *made: ast.expr) -> None:
        """What it loops over comes first, although it is written last."""
        outside, self._names = self._names, self._names.copy()
        for part in (*loops, *made):
            self.visit(part)
        self._names = outside

    def visit_arg(self, node: ast.arg) -> None:
        self.generic_visit(node)
        self._names.forget(node.arg)

    def _danger(self, node: ast.expr, words: str) -> None:
        self.dangers.append(Danger(node.lineno, words))

    def _touch(self, node: ast.expr, path: str | None, *, write: bool) -> None:
        if path and path not in _HARMLESS_TARGETS and "\0" not in path:
            self.touches.append(Touch(node.lineno, path, write))

    def _look_at_name(self, node: ast.expr) -> None:
        name = self._names.resolve(node)
        if name is None or isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            return
        # A bare name may have been imported in an earlier cell.
        words = _DELETERS.get(name) or _DELETING_ATTRIBUTES.get(name.rsplit(".", 1)[-1])
        if words is not None:
            self._danger(node, words)

    def _look_at_text(self, node: ast.expr) -> None:
        """Note texts that may be paths, for paths that must not be touched at all."""
        text = self._names.text(node)
        if text is not None and 0 < len(text) < 4096 and "\n" not in text:
            self._touch(node, text, write=False)

    def _is_built_name(self, call: ast.Call, name: str) -> bool:
        if name in _IMPORTERS:
            return bool(call.args) and self._names.text(call.args[0]) is None
        if name != "getattr" or len(call.args) < 2 or self._names.text(call.args[1]) is not None:
            return False
        return self._names.resolve(call.args[0]) in _GUARDED_MODULES

    # -- commands

    def _shell(self, call: ast.Call, name: str) -> None:
        if name in _EXECUTORS:
            words = self._words(call.args[_EXECUTORS[name] :])
            self._command(call, read_argv(words, self._read_shell))
        elif name in _LIST_EXECUTORS:
            given = _argument(call, _LIST_EXECUTORS[name], ("argv", "args"))
            listed = isinstance(given, ast.List | ast.Tuple)
            reading = CommandReading((BUILT_COMMAND,))
            self._command(call, self._read_command(given) if listed and given else reading)
        elif name in _SHELLS:
            given = _argument(call, 0, ("args", "cmd", "command"))
            if given is not None:
                self._command(call, self._read_command(given))

    def _read_command(self, given: ast.expr) -> CommandReading:
        if isinstance(given, ast.List | ast.Tuple):
            return read_argv(self._words(given.elts), self._read_shell)
        text = self._names.text(given)
        return CommandReading((BUILT_COMMAND,)) if text is None else self._read_shell(text)

    def _words(self, nodes: Sequence[ast.expr]) -> list[str]:
        return [_or(self._names.text(node), UNKNOWN) for node in nodes]

    def _command(self, call: ast.Call, reading: CommandReading) -> None:
        for words in reading.dangers:
            self._danger(call, words)
        for path in reading.reads:
            self._touch(call, path, write=False)
        for path in reading.writes:
            self._touch(call, path, write=True)

    # -- code in texts

    def _evaluator(self, call: ast.Call, name: str) -> None:
        if name not in _EVALUATORS or not call.args:
            return
        code = self._names.text(call.args[0])
        if code is not None:
            self._nested(call, code)
        elif self._names.resolve(call.args[0]) not in ("compile", "ast.parse"):
            self._danger(call, BUILT_CODE)

    def _nested(self, call: ast.Call, code: str) -> None:
        reading = _read(code, self._depth + 1, self._read_shell)
        self.dangers += [Danger(call.lineno, found.words) for found in reading.dangers]
        self.touches += [Touch(call.lineno, t.path, t.write) for t in reading.touches]

    def _magic(self, call: ast.Call, name: str) -> None:
        if name not in _MAGICS:
            return
        words = [self._names.text(argument) for argument in call.args]
        if None in words or not words:
            self._danger(call, BUILT_COMMAND)
            return
        magic, line, body = (*(word or "" for word in words), "", "")[:3]
        if magic in _SHELL_MAGICS:
            self._command(call, self._read_shell(body or line))
        elif magic == "writefile":
            self._touch(call, line.split()[-1] if line.split() else None, write=True)
        elif magic in ("time", "timeit", "prun", "capture"):
            self._nested(call, body or line)

    # -- files

    def _opened(self, call: ast.Call, name: str) -> None:
        if name == "os.open" and _WRITING_FLAGS & _attributes(_argument(call, 1, ("flags",))):
            self._write_to(call, _argument(call, 0, ("path",)))
            return
        if name in _OPENERS:
            path, mode = _argument(call, 0, ("file", "filename")), _argument(call, 1, ("mode",))
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "open":
            path, mode = call.func.value, _argument(call, 0, ("mode",))
        else:
            return
        if set(_or(self._names.text(mode), "")) & set("wax+"):
            self._touch(call, self._names.text(path), write=True)

    def _written(self, call: ast.Call, name: str) -> None:
        for index in _WRITING_CALLS.get(name, ()):
            self._write_to(call, _argument(call, index, ()))
        if name in _WRITING_CALLS or not isinstance(call.func, ast.Attribute):
            return
        if call.func.attr in _WRITING_METHODS:
            self._write_to(call, _argument(call, 0, ("path", "path_or_buf", "fname", "file")))
        elif call.func.attr in _PATH_WRITERS:
            self._write_to(call, call.func.value)
            if call.func.attr == "rename":
                self._write_to(call, _argument(call, 0, ("target",)))

    def _write_to(self, call: ast.Call, path: ast.expr | None) -> None:
        self._touch(call, self._names.text(path), write=True)


_SHELL_MAGICS: Final = frozenset({"bash", "sh", "script", "system", "sx", "!", "!!"})


def _argument(call: ast.Call, index: int, keywords: Sequence[str]) -> ast.expr | None:
    if index < len(call.args):
        found = call.args[index]
        return None if isinstance(found, ast.Starred) else found
    return next((k.value for k in call.keywords if k.arg in keywords), None)


def _attributes(node: ast.expr | None) -> set[str]:
    """The attributes named anywhere in an expression: of ``os.O_RDWR | os.O_CREAT`` both."""
    inner = ast.walk(node) if node is not None else ()
    return {part.attr for part in inner if isinstance(part, ast.Attribute)}


def _or(text: str | None, otherwise: str) -> str:
    return otherwise if text is None else text
