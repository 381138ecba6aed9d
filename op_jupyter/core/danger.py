"""What Python code would do, as far as its text tells; and how that is said of any code.

Advisory: it reads the code and runs nothing, so code that wants to hide something can.
It makes the card point at the right lines; the card itself is the protection.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

from op_jupyter.core import danger_tables as tables
from op_jupyter.core.code_flow import Effort, Flow, Known, TooMuch
from op_jupyter.core.code_names import (
    HOLDERS,
    IMPORTERS,
    SHELL,
    Names,
    argument,
    canonical,
    hides_arguments,
    named_arguments,
)
from op_jupyter.core.shell_programs import (
    BUILT_COMMAND,
    CHANGES_AGENT,
    FED,
    UNKNOWN,
)
from op_jupyter.core.shell_words import (
    CommandReading,
    ReadCommand,
    is_fed,
    python_code,
    read_argv,
    read_command,
    together,
)
from op_jupyter.core.values import dataclass


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
HANDS_ON: Final = "hands on what can run anything, to where it cannot be followed"
REACHES: Final = "reaches other code in a way that cannot be followed"
FOREIGN_CODE: Final = "calls code that is not Python"
UNREADABLE_CODE: Final = "runs code that cannot be read"
OTHER_MAGIC: Final = "runs a magic that is not known to be harmless"
NOTEBOOK_ITSELF: Final = "uses what runs the notebook in a way that cannot be checked"
UNKNOWN_FOLDER: Final = "works in a folder that is only known when it runs"
ENDS_KERNEL: Final = "ends the kernel"
ENDS_PROCESS: Final = "ends a process"
TOO_DEEP: Final = "is nested too deeply to be checked"
TOO_LONG: Final = "is too long to be checked"

LONGEST_CODE: Final = 100_000
"""Longer code is not looked at: it would take seconds, in which nothing else goes on."""
_MOST_LOOKS: Final = 60_000
"""The same of code that is short and would take as long; some tenths of a second."""
_NESTING: Final = 4
"""How many layers of code inside strings are followed."""


def read_code(
    code: str, shell: ReadCommand = read_command, known: Known | None = None
) -> CodeReading:
    """What *code* would do.

    *shell* reads the shell commands in it; *known* is what names stand for already.
    """
    return _read(code, 0, shell, known or {}, Effort(_MOST_LOOKS))[0]


def _read(
    code: str, depth: int, shell: ReadCommand, known: Known, effort: Effort
) -> tuple[CodeReading, Known]:
    """The reading, and what names stand for after the code."""
    if depth > _NESTING:
        return CodeReading((Danger(1, TOO_DEEP),)), {}
    if len(code) > LONGEST_CODE:
        return CodeReading((Danger(1, TOO_LONG),)), {}
    try:
        tree = _parse(code)
        reader = _Reader(tree, depth, shell, known, effort)
        reader.visit(tree)
    except (SyntaxError, ValueError):
        return CodeReading((Danger(1, UNREADABLE_CODE),)), {}
    except (RecursionError, MemoryError):
        return CodeReading((Danger(1, TOO_DEEP),)), {}
    except TooMuch:
        return CodeReading((Danger(1, TOO_LONG),)), {}
    reading = CodeReading(
        tuple(sorted(set(reader.dangers), key=lambda d: (d.line, d.words))),
        tuple(sorted(set(reader.touches), key=lambda t: (t.line, t.path, t.write))),
    )
    return reading, reader.known_now()


def _parse(code: str) -> ast.Module:
    """The tree of *code*; what the parser has to say about style is said when it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


class _Reader(Flow):
    """Collects dangers and touched paths."""

    def __init__(
        self, tree: ast.Module, depth: int, shell: ReadCommand, known: Known, effort: Effort
    ) -> None:
        super().__init__(tree, known, effort)
        self._names = Names()
        self._depth = depth
        self._shell_reader = shell
        self._followed: set[int] = set()
        """Expressions whose use is judged where they stand, by identity."""
        self._attributes: set[int] = set()
        """Statements that make attributes of classes."""
        self._folders: list[str] = []
        self.dangers: list[Danger] = []
        self.touches: list[Touch] = []

    def generic_visit(self, node: ast.AST) -> None:
        """Look at every expression for what it names, then go into it."""
        self._follow(node)
        if isinstance(node, _TELLING_NODES):
            for names in self.worlds(node):
                self._names = names
                if isinstance(node, ast.Call):
                    self._look_at_call(node)
                self._look_at_name(node)
                self._look_at_text(node)
        elif isinstance(node, ast.Import | ast.ImportFrom) and id(node) in self._attributes:
            self._look_at_kept_import(node)
        super().generic_visit(node)

    def _follow(self, node: ast.AST) -> None:
        """Note which parts of *node* are not handed on by it."""
        match node:
            case ast.Attribute(value=part) | ast.Subscript(value=part) | ast.Expr(value=part):
                self._followed.add(id(part))
            case ast.Compare(left=left, comparators=others):
                self._followed.update(map(id, (left, *others)))
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
                plain = all(isinstance(target, ast.Name) for target in _assigned(node))
                if plain and id(node) not in self._attributes:
                    self._followed.add(id(node.value))
            case ast.Call():
                self._followed.add(id(node.func))
            case ast.ClassDef():  # through which it is reached, and cannot be followed
                self._attributes.update(map(id, _statements_of_class(node)))

    def _look_at_kept_import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = canonical(f"{module}{alias.name}")
            if name in tables.HANDED or (name in tables.GUARDED_MODULES and alias.asname):
                self.dangers.append(Danger(node.lineno, HANDS_ON))

    def _look_at_call(self, call: ast.Call) -> None:
        name = self._names.resolve(call.func) or "?"
        picks = isinstance(call.func, ast.Call) and self._names.resolve(call) is not None
        if name in tables.QUIET or picks:
            self._followed.update(map(id, call.args))
        for look in (self._shell, self._evaluator, self._magic, self._opened, self._written):
            look(call, name)
        if name in tables.KERNEL_ENDERS:
            self._danger(call, ENDS_KERNEL)
        if name in tables.PROCESS_ENDERS:
            self._danger(call, ENDS_PROCESS)
        if self._is_built_name(call, name):
            self._danger(call, BUILT_NAME)
        if name in tables.FOLDER_CHANGERS:
            self._change_folder(call, argument(call, 0, ("path",)))

    def _change_folder(self, call: ast.Call, given: ast.expr | None) -> None:
        """Later paths start there, also those of the next code: so it counts as written to."""
        folder = self._names.text(given)
        if folder is None:
            self._danger(call, UNKNOWN_FOLDER)
        else:
            self._folders.append(folder)
            self._touch(call, folder, write=True)

    def _danger(self, node: ast.expr, words: str) -> None:
        self.dangers.append(Danger(node.lineno, words))

    def _touch(self, node: ast.expr, path: str | None, *, write: bool) -> None:
        if not path or path in tables.HARMLESS_TARGETS or "\0" in path:
            return
        self.touches.append(Touch(node.lineno, path, write))
        if not path.startswith(("/", "~", "$HOME")):
            self._effort.spend(len(self._folders))
            for folder in self._folders:
                self.touches.append(Touch(node.lineno, f"{folder}/{path}", write))

    def _look_at_name(self, node: ast.expr) -> None:
        if self._takes_unknown(node):
            self._danger(node, BUILT_NAME)
        name = self._names.resolve(node)
        if name is None:
            return
        last = name.rpartition(".")[2]
        if "." in name and last in tables.AGENT_ATTRIBUTES:
            self._danger(node, CHANGES_AGENT)
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            if isinstance(node, ast.Attribute) and last in tables.REPLACING:
                self._danger(node, REACHES)
            return
        # A bare name may have been imported in an earlier cell.
        words = tables.DELETERS.get(name) or tables.DELETING_ATTRIBUTES.get(last)
        if words is not None:
            self._danger(node, words)
        if name in tables.FOREIGN:
            self._danger(node, FOREIGN_CODE)
        if name in tables.REACHERS or ("." in name and last in tables.REACHING):
            self._danger(node, REACHES)
        if name.startswith(f"{SHELL}.") and name.split(".")[1] not in tables.HARMLESS_SHELL:
            self._danger(node, NOTEBOOK_ITSELF)
        if id(node) not in self._followed and self._is_handed(name):
            self._danger(node, HANDS_ON)
        if isinstance(node, ast.Attribute) and last in tables.PATH_WRITERS:
            self._write_to(node, node.value)

    def _is_handed(self, name: str) -> bool:
        return name in tables.HANDED or name in tables.GUARDED_MODULES or _holds_module(name)

    def _takes_unknown(self, node: ast.expr) -> bool:
        """Whether it takes a thing by a name that is not known out of what holds everything."""
        match node:
            case ast.Subscript(value=holder, slice=key, ctx=ast.Load()):
                known = self._names.text(key) is not None
            case ast.Attribute(value=holder, attr=method):
                known = method in _HOLDER_METHODS
            case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[key, *_]):
                known = self._names.text(key) is not None
            case _:
                return False
        name = self._names.resolve(holder) or ""
        return not known and (name in HOLDERS or _holds_module(name))

    def _look_at_text(self, node: ast.expr) -> None:
        """Note texts that may be paths, for paths that must not be touched at all."""
        text = self._names.text(node)
        if text is None:
            self._touch(node, self._names.folder(node), write=False)
        elif 0 < len(text) < 4096 and "\n" not in text:
            if text == tables.AGENT_VARIABLE:
                self._danger(node, CHANGES_AGENT)
            self._touch(node, text, write=False)

    def _is_built_name(self, call: ast.Call, name: str) -> bool:
        if name in IMPORTERS:
            return self._names.text(argument(call, 0, ("name", "path", "thing"))) is None
        if name in _PICKERS:
            text = self._names.text(argument(call, 0, ()))
            return text is None or text.rpartition(".")[2] in _TELLING_METHODS
        if name not in ("getattr", "object.__getattribute__") or len(call.args) < 2:
            return False
        guarded = self._names.resolve(call.args[0]) in {*tables.GUARDED_MODULES, SHELL}
        return guarded and self._names.text(call.args[1]) is None

    # -- commands

    def _shell(self, call: ast.Call, name: str) -> None:
        method = name.rpartition(".")[2]
        if name in tables.EXECUTORS or method in tables.EXECUTING_METHODS:
            start = tables.EXECUTORS.get(name, tables.EXECUTING_METHODS.get(method, 0))
            self._command(call, self._read_words(call.args[start:]))
        elif name in tables.LIST_EXECUTORS:
            at = tables.LIST_EXECUTORS[name]
            program = argument(call, at - 1, ("path", "file"))
            self._command(call, self._read_list(program, argument(call, at, ("argv", "args"))))
        elif name in tables.SHELLS or method in tables.SHELL_METHODS:
            self._shell_command(call, tables.SHELL_METHODS.get(method, 0))
        elif (words := _method_as_command(name)) is not None:
            self._command(call, self._read_words([*map(ast.Constant, words), *call.args]))

    def _shell_command(self, call: ast.Call, at: int) -> None:
        given = argument(call, at, ("args", "cmd", "command", "argv"))
        if given is not None:
            self._command(call, self._read_command(given))
        elif call.args or call.keywords:
            self._danger(call, BUILT_COMMAND)
        for name, program in named_arguments(call):
            if name == "executable":
                self._command(call, self._read_list(program, given))

    def _read_list(self, program: ast.expr | None, given: ast.expr | None) -> CommandReading:
        """What *program* does with a list of words, the first of which is only its name."""
        if not isinstance(given, ast.List | ast.Tuple) or program is None:
            return CommandReading((BUILT_COMMAND,))
        named = self._read_words(given.elts)
        return together([named, self._read_words([program, *given.elts[1:]])])

    def _read_command(self, given: ast.expr) -> CommandReading:
        if isinstance(given, ast.List | ast.Tuple):
            return self._read_words(given.elts)
        text = self._names.text(given)
        if text is None:
            return CommandReading((BUILT_COMMAND,))
        fed = CommandReading((FED,) if is_fed(text.split()) else ())
        return together([fed, self._read_shell(text)])

    def _read_shell(self, command: str) -> CommandReading:
        self._effort.spend(len(command))  # each character costs about as much
        return self._shell_reader(command)

    def _read_words(self, nodes: Sequence[ast.expr]) -> CommandReading:
        words = self._words(nodes)
        code = python_code(words)
        inner = () if code is None else tuple(d.words for d in self._apart(code).dangers)
        own = CommandReading((*inner, *((FED,) if is_fed(words) else ())))
        return together([own, read_argv(words, self._read_shell)])

    def _apart(self, code: str) -> CodeReading:
        """What *code* would do in a Python of its own."""
        return _read(code, self._depth + 1, self._shell_reader, {}, self._effort)[0]

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
        method = name.rpartition(".")[2]
        if name in tables.CODE_MAKERS:
            self._danger(call, BUILT_CODE)
        elif name in tables.EVALUATORS:
            given = [argument(call, at, _CODE_NAMES) for at in tables.EVALUATORS[name]]
            if given[0] is None and (call.args or call.keywords):
                self._danger(call, BUILT_CODE)
            for code in given:
                if code is not None:
                    self._evaluated(call, code)
        elif method in tables.EVALUATING_METHODS and "." in name:
            self._evaluated(call, call.args[0] if call.args else None)
        elif method in ("eval", "query") and _CALL_IN_QUERY.search(
            self._names.text(argument(call, 0, ("expr",))) or ""
        ):
            self._danger(call, BUILT_CODE)

    def _evaluated(self, call: ast.Call, given: ast.expr | None) -> None:
        code = self._names.text(given)
        if code is not None:
            self._nested(call, code)
        elif isinstance(given, ast.Lambda):
            return  # it is looked at where it stands
        elif self._names.resolve(given) not in ("compile", "ast.parse"):
            self._danger(call, BUILT_CODE)

    def _nested(self, call: ast.Call, code: str) -> None:
        reading, known = _read(
            code, self._depth + 1, self._shell_reader, self.known_now(), self._effort
        )
        self.dangers += [Danger(call.lineno, found.words) for found in reading.dangers]
        self.touches += [Touch(call.lineno, t.path, t.write) for t in reading.touches]
        self.add_known(known)

    def _magic(self, call: ast.Call, name: str) -> None:
        if name not in tables.MAGICS:
            return
        words = [self._names.text(argument) for argument in call.args]
        if None in words or not words:
            self._danger(call, BUILT_COMMAND)
            return
        magic, line, body = (*(word or "" for word in words), "", "")[:3]
        if name.endswith(".magic"):
            magic, _, line = magic.lstrip("%").partition(" ")
        if magic in _SHELL_MAGICS:
            self._command(call, self._read_shell(body or line))
        elif magic == "script":
            self._command(call, self._read_shell(f"{line} -c {shlex.quote(body)}"))
        elif magic in ("writefile", "file"):
            self._touch(call, line.split()[-1] if line.split() else None, write=True)
        elif magic in ("python", "python3"):
            self.dangers += [Danger(call.lineno, d.words) for d in self._apart(body).dangers]
        elif magic in ("time", "timeit", "prun", "capture"):
            self._nested(call, body or line)
        elif magic == "agent" or (magic == "config" and "AgentMagics" in line):
            self._danger(call, CHANGES_AGENT)
        elif magic not in tables.HARMLESS_MAGICS:
            self._danger(call, OTHER_MAGIC)

    # -- files

    def _opened(self, call: ast.Call, name: str) -> None:
        if name == "os.open":
            flags = argument(call, 1, ("flags",))
            if flags is not None and not _only_reads(flags):
                self._write_to(call, argument(call, 0, ("path",)))
            return
        if name in tables.OPENERS:
            path, at = argument(call, 0, ("file", "filename", "name")), 1
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "open":
            path, at = call.func.value, 0
        else:
            return
        mode = argument(call, at, ("mode",))
        text = self._names.text(mode)
        unknown = text is None and (mode is not None or hides_arguments(call))
        if unknown or set(text or "") & set("wax+"):
            self._write_to(call, path)

    def _written(self, call: ast.Call, name: str) -> None:
        places = tables.WRITING_CALLS.get(name)
        if places is not None:
            for index in places:
                self._write_to(call, argument(call, index, ()))
            named = tables.TARGETS | tables.SOURCES if 0 in places else tables.TARGETS
            for keyword, path in named_arguments(call):
                if keyword in named:
                    self._write_to(call, path)
        elif isinstance(call.func, ast.Attribute):
            self._written_by_method(call, call.func)

    def _written_by_method(self, call: ast.Call, func: ast.Attribute) -> None:
        if func.attr in tables.WRITING_METHODS:
            self._write_to(call, argument(call, 0, tables.METHOD_TARGETS))
        elif func.attr == "extract":
            self._write_to(call, argument(call, 1, ("path",)))
        elif func.attr in tables.PATH_WRITERS:
            if self._names.resolve(func.value) in _PATH_CLASSES:  # Path.touch(path)
                self._write_to(call, argument(call, 0, ()))
            if func.attr == "rename":
                self._write_to(call, argument(call, 0, ("target",)))
        elif func.attr == "replace" and len(call.args) + len(call.keywords) == 1:
            self._write_to(call, func.value)
            self._write_to(call, argument(call, 0, ("target",)))

    def _write_to(self, node: ast.expr, path: ast.expr | None) -> None:
        text = self._names.text(path)
        self._touch(node, self._names.folder(path) if text is None else text, write=True)


_TELLING_NODES: Final = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Call,
    ast.NamedExpr,
    ast.Constant,
    ast.JoinedStr,
    ast.BinOp,
)
"""Expressions that may name something or be a text."""
_SHELL_MAGICS: Final = frozenset({"bash", "sh", "system", "sx", "!", "!!"})
_HOLDER_METHODS: Final = frozenset({"get", "keys", "__getitem__", "__contains__", "update"})
_PICKERS: Final = frozenset(
    {"operator.attrgetter", "operator.methodcaller", "attrgetter", "methodcaller"}
)
_TELLING_METHODS: Final = frozenset(
    {*tables.DELETING_ATTRIBUTES, "system", "popen", "Popen", "exec", "eval", "check_output"}
)
_CODE_NAMES: Final = ("source", "object", "expression", "raw_cell", "stmt", "statement", "cmd")
_CALL_IN_QUERY: Final = re.compile(r"@[\w.]+\(")
_PATH_CLASSES: Final = frozenset({"Path", "pathlib.Path", "pathlib.PosixPath"})
_READING_FLAGS: Final = frozenset({"O_RDONLY", "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "os"})


def _holds_module(name: str) -> bool:
    """Whether it is a dictionary with all that a module has, or with all modules."""
    module, _, kept = name.partition(".")
    return name == "sys.modules" or (kept == "__dict__" and module in tables.GUARDED_MODULES)


def _statements_of_class(node: ast.ClassDef) -> Iterator[ast.AST]:
    """What runs in the class itself, not in its methods."""
    waiting: list[ast.AST] = [*node.body]
    while waiting:
        inner = waiting.pop()
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield inner
            waiting += ast.iter_child_nodes(inner)


def _assigned(node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> Sequence[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else (node.target,)


def _method_as_command(name: str) -> list[str] | None:
    """The command that a call like ``repo.git.clean(...)`` or ``sh.rm(...)`` runs."""
    parts = name.split(".")
    if len(parts) >= 3 and parts[-2] == "git":
        return ["git", parts[-1].replace("_", "-")]
    return parts[1:] if len(parts) == 2 and parts[0] == "sh" else None


def _only_reads(flags: ast.expr) -> bool:
    """Whether *flags* of `os.open` are some by name, all of which only read."""
    parts = list(ast.walk(flags))
    named = {getattr(part, "attr", None) or getattr(part, "id", None) for part in parts}
    numbers = {part.value for part in parts if isinstance(part, ast.Constant)}
    return numbers <= {0} and named <= {*_READING_FLAGS, None}


def _or(text: str | None, otherwise: str) -> str:
    return otherwise if text is None else text
