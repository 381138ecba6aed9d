"""What Python code would do, as far as its text tells; and how that is said of any code.

Advisory: it reads the code and runs nothing, so code that wants to hide something can.
It makes the card point at the right lines; the card itself is the protection.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from op_jupyter.core import danger_tables as tables
from op_jupyter.core.code_flow import Flow
from op_jupyter.core.code_names import IMPORTERS, Names
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
CHANGES_AGENT: Final = "gives the agent commands, which can change what it may do"
TOO_DEEP: Final = "is nested too deeply to be checked"
TOO_LONG: Final = "is too long to be checked"

LONGEST_CODE: Final = 100_000
"""Longer code is not looked at: it would take seconds, in which nothing else goes on."""
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
        reader = _Reader(tree, depth, shell)
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


class _Reader(Flow):
    """Collects dangers and touched paths."""

    def __init__(self, tree: ast.Module, depth: int, shell: ReadCommand) -> None:
        super().__init__(tree)
        self._names = Names()
        self._depth = depth
        self._read_shell = shell
        self.dangers: list[Danger] = []
        self.touches: list[Touch] = []

    def generic_visit(self, node: ast.AST) -> None:
        """Look at every expression for what it names, then go into it."""
        if isinstance(node, ast.expr):
            for names in self.worlds(node):
                self._names = names
                if isinstance(node, ast.Call):
                    self._look_at_call(node)
                self._look_at_name(node)
                self._look_at_text(node)
        super().generic_visit(node)

    def _look_at_call(self, call: ast.Call) -> None:
        name = self._names.resolve(call.func) or "?"
        for look in (self._shell, self._evaluator, self._magic, self._opened, self._written):
            look(call, name)
        if name in tables.KERNEL_ENDERS:
            self._danger(call, ENDS_KERNEL)
        if self._is_built_name(call, name):
            self._danger(call, BUILT_NAME)

    def _danger(self, node: ast.expr, words: str) -> None:
        self.dangers.append(Danger(node.lineno, words))

    def _touch(self, node: ast.expr, path: str | None, *, write: bool) -> None:
        if path and path not in tables.HARMLESS_TARGETS and "\0" not in path:
            self.touches.append(Touch(node.lineno, path, write))

    def _look_at_name(self, node: ast.expr) -> None:
        name = self._names.resolve(node)
        if name is None or isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            return
        # A bare name may have been imported in an earlier cell.
        words = tables.DELETERS.get(name) or tables.DELETING_ATTRIBUTES.get(name.rsplit(".", 1)[-1])
        if words is not None:
            self._danger(node, words)

    def _look_at_text(self, node: ast.expr) -> None:
        """Note texts that may be paths, for paths that must not be touched at all."""
        text = self._names.text(node)
        if text is not None and 0 < len(text) < 4096 and "\n" not in text:
            self._touch(node, text, write=False)

    def _is_built_name(self, call: ast.Call, name: str) -> bool:
        if name in IMPORTERS:
            return bool(call.args) and self._names.text(call.args[0]) is None
        if name != "getattr" or len(call.args) < 2 or self._names.text(call.args[1]) is not None:
            return False
        return self._names.resolve(call.args[0]) in tables.GUARDED_MODULES

    # -- commands

    def _shell(self, call: ast.Call, name: str) -> None:
        if name in tables.EXECUTORS:
            words = self._words(call.args[tables.EXECUTORS[name] :])
            self._command(call, read_argv(words, self._read_shell))
        elif name in tables.LIST_EXECUTORS:
            given = _argument(call, tables.LIST_EXECUTORS[name], ("argv", "args"))
            listed = isinstance(given, ast.List | ast.Tuple)
            reading = CommandReading((BUILT_COMMAND,))
            self._command(call, self._read_command(given) if listed and given else reading)
        elif name in tables.SHELLS:
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
        if name not in tables.EVALUATORS or not call.args:
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
        if name not in tables.MAGICS:
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
        elif magic == "agent" or (magic == "config" and "AgentMagics" in line):
            self._danger(call, CHANGES_AGENT)

    # -- files

    def _opened(self, call: ast.Call, name: str) -> None:
        if name == "os.open" and tables.WRITING_FLAGS & _attributes(_argument(call, 1, ("flags",))):
            self._write_to(call, _argument(call, 0, ("path",)))
            return
        if name in tables.OPENERS:
            path, mode = _argument(call, 0, ("file", "filename")), _argument(call, 1, ("mode",))
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "open":
            path, mode = call.func.value, _argument(call, 0, ("mode",))
        else:
            return
        if set(_or(self._names.text(mode), "")) & set("wax+"):
            self._touch(call, self._names.text(path), write=True)

    def _written(self, call: ast.Call, name: str) -> None:
        for index in tables.WRITING_CALLS.get(name, ()):
            self._write_to(call, _argument(call, index, ()))
        if name in tables.WRITING_CALLS or not isinstance(call.func, ast.Attribute):
            return
        if call.func.attr in tables.WRITING_METHODS:
            self._write_to(call, _argument(call, 0, ("path", "path_or_buf", "fname", "file")))
        elif call.func.attr in tables.PATH_WRITERS:
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
