"""What a shell command would do, read with bash's grammar.  Advisory, never a sandbox.

The grammar is tree-sitter's; this is the one module that imports it.  What the words of one
command mean is `core.shell_words`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from op_jupyter.core.danger import CodeReading, Danger, Touch, read_code
from op_jupyter.core.paths import hidden_names
from op_jupyter.core.shell_programs import (
    BUILT_COMMAND,
    FED,
    UNKNOWN,
    UNREADABLE,
)
from op_jupyter.core.shell_words import (
    CommandReading,
    assigned,
    is_fed,
    python_code,
    read_argv,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

TOO_DEEP: Final = "is nested too deeply to be checked"
_NESTING: Final = 8
"""How many layers of commands inside texts are followed."""
_DEEPEST: Final = 200
"""How deep the tree of one command is followed."""
_LONGEST: Final = 100_000
_MOST_COMMANDS: Final = 2_000
"""Longer scripts, and such of more commands, are not looked at: it would take seconds."""
_MOST_WORDS: Final = 5_000
"""The same of a command of more words."""
_MOST_NAMES: Final = 32
"""So many names that one word with braces stands for are looked at."""


def read_script(script: str) -> CodeReading:
    """What *script* would do, by line."""
    try:
        return _Script(script, 0).read()
    except RecursionError:
        return CodeReading((Danger(1, TOO_DEEP),))


def read_line(command: str) -> CommandReading:
    """What *command* would do, all its lines together: for commands inside other code."""
    return _flat(read_script(command))


def _flat(reading: CodeReading) -> CommandReading:
    return CommandReading(
        tuple(dict.fromkeys(danger.words for danger in reading.dangers)),
        tuple(touch.path for touch in reading.touches),
        tuple(touch.path for touch in reading.touches if touch.write),
    )


class _Script:
    """One text that a shell would run."""

    def __init__(self, script: str, depth: int) -> None:
        self._source = script.encode("utf-8", "replace")
        self._depth = depth
        self._values: dict[str, str] = {}
        self._folders: list[str] = []
        self._dangers: dict[Danger, None] = {}
        self._touches: dict[Touch, None] = {}

    def read(self) -> CodeReading:
        if self._depth > _NESTING or len(self._source) > _LONGEST:
            return CodeReading((Danger(1, TOO_DEEP),))
        root = _parser().parse(self._source).root_node
        if root.has_error or _SPLIT_WORD.search(self._source):
            self._dangers[Danger(1, UNREADABLE)] = None
        if sum(node.type == "command" for node in _descendants(root)) > _MOST_COMMANDS:
            return CodeReading((Danger(1, TOO_DEEP),))
        self._values = self._constants(root)
        self._walk(root)
        by_line = sorted(self._dangers, key=lambda danger: danger.line)
        return CodeReading(tuple(by_line), tuple(self._touches))

    def _walk(self, root: Node) -> None:
        waiting = [(root, 0)]
        while waiting:
            node, depth = waiting.pop()
            if depth > _DEEPEST:
                self._dangers[Danger(_line(node), TOO_DEEP)] = None
                continue
            if node.type == "command":
                self._command(node)
            elif node.type == "file_redirect":
                self._redirect(node)
            elif node.type == "variable_assignment":
                self._assignment(node)
            elif node.type in _UNPARSED and _runs_inside(self._raw(node)):
                # What the grammar does not take apart there, and bash does.
                self._dangers[Danger(_line(node), BUILT_COMMAND)] = None
            # In order of the text: what `cd` does counts for what follows it.
            waiting += [(child, depth + 1) for child in reversed(node.named_children)]

    # -- commands

    def _command(self, node: Node) -> None:
        words = list(self._words(node))
        if len(words) > _MOST_WORDS:
            self._dangers[Danger(_line(node), TOO_DEEP)] = None
            return
        reading = read_argv(words, self._inner)
        self._note(_line(node), reading)
        always = words[:1] in (["source"], ["."]) or "xargs" in words[:1]
        if is_fed(words) and (always or _has_input(node)):
            self._dangers[Danger(_line(node), FED)] = None
        self._python(_line(node), python_code(words))
        if words[:1] in (["cd"], ["pushd"]):
            plain = [word for word in words[1:] if not word.startswith("-")]
            self._folders.append(plain[0] if plain else "~")
        if words and words[0] in _ARITHMETIC and any("$(" in word for word in words):
            self._dangers[Danger(_line(node), BUILT_COMMAND)] = None

    def _assignment(self, node: Node) -> None:
        name, value = (node.child_by_field_name(field) for field in ("name", "value"))
        if name is not None and value is not None:
            self._note(_line(node), assigned(self._raw(name), self._text(value), self._inner))

    def _inner(self, command: str) -> CommandReading:
        return _flat(_Script(command, self._depth + 1).read())

    def _python(self, line: int, code: str | None) -> None:
        if code is not None and UNKNOWN not in code:
            found = read_code(code, read_line if self._depth < _NESTING else _unfollowed)
            self._note(
                line,
                CommandReading(
                    tuple(danger.words for danger in found.dangers),
                    tuple(touch.path for touch in found.touches),
                    tuple(touch.path for touch in found.touches if touch.write),
                ),
            )

    def _redirect(self, node: Node) -> None:
        target = node.child_by_field_name("destination")
        operators = [child.type for child in node.children if not child.is_named]
        if target is None or not operators:
            return
        path, operator = self._text(target), operators[0]
        copies = operator in (">&", "<&") and (path.isdigit() or path == "-")
        if copies:
            return
        writes = ">" in operator
        self._note(_line(node), CommandReading((), (path,), (path,) if writes else ()))

    def _note(self, line: int, reading: CommandReading) -> None:
        for words in reading.dangers:
            self._dangers[Danger(line, words)] = None
        for paths, write in ((reading.reads, False), (reading.writes, True)):
            for path in paths:
                for place in self._places(path):
                    self._touches[Touch(line, place, write)] = None

    def _places(self, path: str) -> Iterator[str]:
        """Where *path* may be, given the ``cd`` before it; a subshell's counts as well."""
        for name in _expanded(path):
            known, unknown, _ = name.partition(UNKNOWN)
            # Of a name that is not all known, the folder that it surely is in.
            place = known[: known.rfind("/") + 1] if unknown else name
            if not place or place in _NOWHERE or len(place) > 4096 or "\n" in place:
                continue
            yield place
            if not place.startswith(("/", "~", "$HOME", "${HOME}")):
                known_folders = (folder for folder in self._folders if UNKNOWN not in folder)
                yield from (posixpath.join(folder, place) for folder in known_folders)

    # -- words

    def _words(self, command: Node) -> Iterator[str]:
        for child in command.named_children:
            if child.type == "command_name":
                yield self._text(child.named_children[0]) if child.named_children else ""
            elif child.type not in _NO_WORDS:
                yield self._text(child)

    def _constants(self, root: Node) -> dict[str, str]:
        """Variables that are given one text in the whole script."""
        values: dict[str, str] = {}
        for node in _descendants(root):
            for other in self._set_otherwise(node):
                values[other] = UNKNOWN
            if node.type != "variable_assignment":
                continue
            name, value = (node.child_by_field_name(field) for field in ("name", "value"))
            if name is not None:
                key = self._raw(name)
                text = "" if value is None else self._text(value)
                values[key] = text if values.get(key, text) == text else UNKNOWN
        return values

    def _set_otherwise(self, node: Node) -> Iterator[str]:
        """Variables whose value does not stand there: of loops, of `read` and the like."""
        if node.type in ("for_statement", "select_statement"):
            yield from (self._raw(c) for c in node.children_by_field_name("variable"))
        elif node.type == "expansion" and "=" in self._raw(node):
            yield from (self._raw(c) for c in node.named_children if c.type == "variable_name")
        elif node.type == "command":
            words = [self._raw(child) for child in node.named_children]
            if words[:1] and words[0] in _SETTERS:
                yield from (word for word in words[1:] if word.isidentifier())
        elif node.type == "declaration_command" and "-n" in self._raw(node).split():
            found = _descendants(node)
            yield from (self._raw(child) for child in found if child.type == "variable_name")

    def _text(self, node: Node) -> str:
        """The text that *node* stands for; what is only known when it runs is `UNKNOWN`."""
        match node.type:
            case "word":
                return _unescaped(self._raw(node))
            case "raw_string":
                return self._raw(node)[1:-1]
            case "ansi_c_string":
                return _ansi(self._raw(node)[2:-1])
            case "string" | "translated_string" | "concatenation":
                return "".join(self._parts(node))
            case "string_content":
                return _unescaped(self._raw(node), '"\\$`\n')
            case "simple_expansion" | "expansion":
                return self._variable(node)
            case "command_substitution" | "process_substitution" | "arithmetic_expansion":
                return UNKNOWN
            case _:
                return self._raw(node)

    def _parts(self, node: Node) -> Iterator[str]:
        """The parts of *node*, the white space between them as it stands."""
        quotes = node.type != "concatenation"
        at = node.start_byte + (1 if quotes else 0)
        for child in node.named_children:
            yield self._source[at : child.start_byte].decode("utf-8", "replace")
            yield self._text(child)
            at = child.end_byte
        yield self._source[at : node.end_byte - (1 if quotes else 0)].decode("utf-8", "replace")

    def _variable(self, node: Node) -> str:
        inner = node.named_children
        if len(inner) != 1 or inner[0].type != "variable_name":
            return UNKNOWN
        name = self._raw(inner[0])
        return "$HOME" if name == "HOME" else self._values.get(name, UNKNOWN)

    def _raw(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")


_NO_WORDS: Final = frozenset(
    {"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect", "comment"}
)
_NOWHERE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "-"})


_SETTERS: Final = frozenset(
    {"read", "mapfile", "readarray", "printf", "getopts", "unset", "let", "eval", "source", "."}
)
_ARITHMETIC: Final = frozenset({"let", "test", "[", "unset", "read", "printf", "mapfile"})
"""Builtins that evaluate what is inside the brackets of a name that they are given."""
_UNPARSED: Final = frozenset({"heredoc_body", "expansion", "test_command"})
_SPLIT_WORD: Final = re.compile(rb"[^\s\\;&|()'\"]\\\n[^\s]")
"""A word that goes on in the next line, which the grammar takes for two."""


def _runs_inside(text: str) -> bool:
    return "`" in text or re.search(r"'[^']*\$\([^']*'", text) is not None


def _expanded(path: str) -> Iterator[str]:
    """*path*, its braces taken apart, and what is hidden that its wildcards may stand for."""
    names = [path]
    while names and len(names) <= _MOST_NAMES:
        name = names.pop()
        found = _BRACES.search(name)
        if found is not None:
            parts = found[1].split(",")
            names += [f"{name[: found.start()]}{p}{name[found.end() :]}" for p in parts]
            continue
        yield name
        yield from hidden_names(name)


_BRACES: Final = re.compile(r"(?<!\$)\{([^{}]*,[^{}]*)\}")


def _has_input(command: Node) -> bool:
    """Whether something is fed to *command*: a pipe, a file, a text."""
    parent = command.parent
    while parent is not None:
        if parent.type == "pipeline" and parent.named_children[0].start_byte < command.start_byte:
            return True
        if parent.type == "redirected_statement" and any(
            child.type.endswith("_redirect") and _reads(child) for child in parent.named_children
        ):
            return True
        parent = parent.parent
    return any(child.type == "herestring_redirect" for child in command.named_children)


def _reads(redirect: Node) -> bool:
    return any(
        not child.is_named and child.type.startswith("<") for child in redirect.children
    ) or (redirect.type in ("heredoc_redirect", "herestring_redirect"))


def _unfollowed(_command: str) -> CommandReading:
    return CommandReading((TOO_DEEP,))


def _descendants(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.named_children)


def _line(node: Node) -> int:
    return node.start_point[0] + 1


def _unescaped(text: str, special: str = "") -> str:
    """*text* without the backslashes that quote; inside quotes only before *special*."""
    out: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        following = next(characters, "")
        if special and following not in special:
            out.append("\\")
        if following != "\n":
            out.append(following)
    return "".join(out)


_ANSI: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def _ansi(text: str) -> str:
    """The text of ``$'…'``; one with numbers in it is not worked out."""
    out: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
        elif (meant := _ANSI.get(next(characters, ""))) is None:
            return UNKNOWN
        else:
            out.append(meant)
    return "".join(out)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    # On first use: 40 ms that loading the extension need not take.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
