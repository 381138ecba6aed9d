"""What a shell command would do, as far as its words tell.  Advisory, never a sandbox."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

UNREADABLE: Final = "runs a shell command that cannot be read"
BUILT_COMMAND: Final = "runs a shell command that is built while it runs"
UNKNOWN: Final = "\0"
"""Stands for a word of a command that is only known when it runs."""
DELETES_FILES: Final = "deletes files"
DELETES_FOLDERS: Final = "deletes folders"


@dataclass(frozen=True, slots=True)
class CommandReading:
    """What one command line does.

    Attributes:
        dangers: what is dangerous about it, in a few words each.
        reads, writes: paths that stand in it, as they are written.
    """

    dangers: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def read_command(command: str) -> CommandReading:
    """The reading of a whole command line, all its parts together."""
    try:
        parts = [read_argv(argv) for argv in _simple_commands(command)]
    except ValueError:
        return CommandReading((UNREADABLE,))
    return _together(parts)


def read_argv(argv: Sequence[str]) -> CommandReading:
    """The reading of one program with its arguments."""
    words, writes = _take_redirections(argv)
    words = _without_wrappers(words)
    nested = [read_command(inner) for word in words for inner in _substitutions(word)]
    if not words:
        return _together([CommandReading(writes=writes), *nested])
    program, arguments = words[0].rsplit("/", 1)[-1], words[1:]
    script = _script(arguments) if program in _SHELLS else None
    if UNKNOWN in (program, script):
        return CommandReading((BUILT_COMMAND,))
    if script is not None:
        nested.append(read_command(script))
    rule = _PROGRAMS.get(program.removesuffix(".exe"))
    danger = rule(arguments) if rule else ("formats a disk" if program.startswith("mkfs") else "")
    plain = tuple(word for word in arguments if not word.startswith("-"))
    targets = plain if program in _WRITERS else plain[-1:] if program in _COPIERS else ()
    own = CommandReading((danger,) if danger else (), plain, writes + targets)
    return _together([own, *nested])


def _together(parts: Sequence[CommandReading]) -> CommandReading:
    return CommandReading(
        tuple(dict.fromkeys(d for part in parts for d in part.dangers)),
        tuple(r for part in parts for r in part.reads),
        tuple(w for part in parts for w in part.writes),
    )


_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish"})
_WRAPPERS: Final = frozenset(
    {
        "env",
        "nice",
        "nohup",
        "time",
        "xargs",
        "command",
        "exec",
        "sudo",
        "doas",
        "timeout",
        "busybox",
    }
)
_WRITERS: Final = frozenset({"tee", "touch", "mkdir", "chmod", "chown", "truncate"})
_COPIERS: Final = frozenset({"cp", "mv", "ln", "install", "rsync"})
_OPERATORS: Final = frozenset("();<>|&\n")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def _simple_commands(command: str) -> Iterator[list[str]]:
    """The commands between ``;``, ``|``, ``&&``, brackets, back quotes and line ends."""
    lexer = shlex.shlex(
        command.replace("\\\n", " ").replace("\n", " ; ").replace("`", " ; "),
        posix=True,
        punctuation_chars=True,
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for token in lexer:
        if token and set(token) <= _OPERATORS and not set(token) & set("<>"):
            yield words
            words = []
        else:
            words.append(token)
    yield words


def _take_redirections(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    words: list[str] = []
    writes: list[str] = []
    remaining = iter(argv)
    for word in remaining:
        if not word or not set(word) <= set("<>&|"):
            words.append(word)
        elif ">" in word and (target := next(remaining, "")):
            writes.append(target)
    return words, tuple(writes)


def _without_wrappers(words: Sequence[str]) -> list[str]:
    """*words* from the program on that really runs: ``sudo -n env A=1 rm`` runs ``rm``."""
    rest = list(words)
    wrapped = False
    while rest and (
        rest[0].rsplit("/", 1)[-1] in _WRAPPERS
        or _ASSIGNMENT.match(rest[0])
        or (wrapped and (rest[0].startswith("-") or rest[0].rstrip("smhd").isdigit()))
    ):
        wrapped = True
        rest.pop(0)
    return rest


def _substitutions(word: str) -> list[str]:
    return [word[word.index("$(") + 2 :].rstrip(")")] if "$(" in word else []


def _script(arguments: Sequence[str]) -> str | None:
    """The text after ``-c``."""
    for flag, text in pairwise(arguments):
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith("c"):
            return text
    return None


def _has_flag(arguments: Sequence[str], short: str, *long: str) -> bool:
    """Whether one of the letters in *short*, or a long option, is among *arguments*."""
    for word in arguments:
        if word.startswith("--"):
            if word.split("=", 1)[0] in long:
                return True
        elif word.startswith("-") and set(short) & set(word[1:]):
            return True
    return False


def _rm(arguments: Sequence[str]) -> str:
    return DELETES_FOLDERS if _has_flag(arguments, "rR", "--recursive") else DELETES_FILES


def _find(arguments: Sequence[str]) -> str:
    deletes = "-delete" in arguments or any(
        word.rsplit("/", 1)[-1] in ("rm", "unlink", "shred") for word in arguments
    )
    return DELETES_FILES if deletes else ""


def _git(arguments: Sequence[str]) -> str:
    words = set(arguments)
    if "clean" in words and _has_flag(arguments, "f", "--force"):
        return DELETES_FILES
    if "reset" in words and "--hard" in words:
        return "discards changes"
    if "push" in words and _has_flag(arguments, "f", "--force", "--force-with-lease", "--mirror"):
        return "overwrites what others see in git"
    return ""


def _dd(arguments: Sequence[str]) -> str:
    return "overwrites a file or disk" if any(w.startswith("of=") for w in arguments) else ""


_PROGRAMS: Final = {
    "rm": _rm,
    "rmdir": lambda _: DELETES_FOLDERS,
    "unlink": lambda _: DELETES_FILES,
    "shred": lambda _: DELETES_FILES,
    "find": _find,
    "git": _git,
    "dd": _dd,
}
