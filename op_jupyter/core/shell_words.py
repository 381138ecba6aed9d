"""What a shell command would do, as far as its words tell.  Advisory, never a sandbox."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

UNREADABLE: Final = "runs a shell command that cannot be read"
BUILT_COMMAND: Final = "runs a shell command that is built while it runs"
UNKNOWN: Final = "\0"
"""Stands for a word of a command that is only known when it runs."""
DELETES_FILES: Final = "deletes files"
DELETES_FOLDERS: Final = "deletes folders"
DISCARDS: Final = "discards changes"
OTHER_RIGHTS: Final = "runs with another user's rights"
FED: Final = "runs whatever is fed to it"


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


ReadCommand: TypeAlias = Callable[[str], CommandReading]


def read_command(command: str) -> CommandReading:
    """The reading of a whole command line, all its parts together.

    It splits the line at its operators only; `tools.shell_grammar` knows the whole grammar.
    """
    try:
        parts = [_read_redirected(argv) for argv in _simple_commands(command)]
    except ValueError:
        return CommandReading((UNREADABLE,))
    return together(parts)


def _read_redirected(argv: Sequence[str]) -> CommandReading:
    words, writes = _take_redirections(argv)
    inner = [read_command(text) for word in words for text in _substitutions(word)]
    return together([CommandReading(writes=writes), read_argv(words), *inner])


def read_argv(words: Sequence[str], read: ReadCommand = read_command) -> CommandReading:
    """The reading of one program with its arguments; *read* reads commands inside of them."""
    unwrapped, other_rights = _unwrapped(words)
    notes = CommandReading((OTHER_RIGHTS,) if other_rights else ())
    if not unwrapped:
        return notes
    program, arguments = unwrapped[0].rsplit("/", 1)[-1].removesuffix(".exe"), unwrapped[1:]
    own = CommandReading(_own_danger(program, arguments), *_paths(program, arguments))
    return together([notes, own, *_nested(program, arguments, read)])


def _own_danger(program: str, arguments: Sequence[str]) -> tuple[str, ...]:
    if UNKNOWN in program:
        return (BUILT_COMMAND,)
    if program.startswith("mkfs"):
        return ("formats a disk",)
    rule = _PROGRAMS.get(program)
    danger = rule(arguments) if rule else ""
    return (danger,) if danger else ()


def _paths(program: str, arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths among *arguments*: all, and those that are written."""
    plain = tuple(word for word in arguments if not word.startswith("-"))
    if program in _WRITERS or (program in _IN_PLACE and _has_flag(arguments, "i", "--in-place")):
        return plain, plain
    if program in _COPIERS:
        return plain, (*plain[-1:], *_named_folders(arguments))
    return plain, tuple(w.removeprefix("of=") for w in arguments if w.startswith("of="))


def _named_folders(arguments: Sequence[str]) -> list[str]:
    """Where ``cp -t FOLDER`` and ``--target-directory=FOLDER`` put things."""
    after = [word for flag, word in pairwise(arguments) if flag in ("-t", "--target-directory")]
    glued = [w.split("=", 1)[1] for w in arguments if w.startswith("--target-directory=")]
    return after + glued


def _nested(program: str, arguments: Sequence[str], read: ReadCommand) -> list[CommandReading]:
    """The readings of the commands that are arguments of this one."""
    if program in SHELLS or program == "su":
        script = option_text(arguments, "c")
        return [] if script is None else [_read_text(script, read)]
    if program in ("eval", "trap", "watch"):
        return [_read_text(" ".join(arguments[:1] if program == "trap" else arguments), read)]
    if program == "alias":
        return [_read_text(word.split("=", 1)[1], read) for word in arguments if "=" in word]
    if program == "find":
        return [read_argv(inner, read) for inner in _executed_by_find(arguments)]
    return []


def _read_text(command: str, read: ReadCommand) -> CommandReading:
    return CommandReading((BUILT_COMMAND,)) if UNKNOWN in command else read(command)


def _executed_by_find(arguments: Sequence[str]) -> Iterator[list[str]]:
    words = list(arguments)
    for start, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            rest = words[start + 1 :]
            end = next((i for i, w in enumerate(rest) if w in (";", "+")), len(rest))
            yield rest[:end]


def together(parts: Sequence[CommandReading]) -> CommandReading:
    """Several readings as one."""
    return CommandReading(
        tuple(dict.fromkeys(d for part in parts for d in part.dangers)),
        tuple(r for part in parts for r in part.reads),
        tuple(w for part in parts for w in part.writes),
    )


SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish"})
_PRIVILEGED: Final = frozenset({"sudo", "doas", "su", "pkexec", "runuser"})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program whose arguments are a command.

    Attributes:
        valued: its options that take the next word.
        positional: how many words stand between its options and the command.
    """

    valued: frozenset[str] = frozenset()
    positional: int = 0


def _wrapper(valued: str = "", positional: int = 0) -> _Wrapper:
    return _Wrapper(frozenset(valued.split()), positional)


_WRAPPERS: Final[Mapping[str, _Wrapper]] = {
    "sudo": _wrapper("-u -g -h -p -C -T -r -t -U -D -R --user --group --host --prompt --chdir"),
    "doas": _wrapper("-u -C"),
    "pkexec": _wrapper("--user"),
    "runuser": _wrapper("-u -g -G"),
    "env": _wrapper("-u -C --unset --chdir"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n -p"),
    "timeout": _wrapper("-s -k --signal --kill-after", 1),
    "time": _wrapper("-f -o"),
    "xargs": _wrapper(
        "-I -i -n -P -L -l -d -a -E -e -s --replace --max-args --max-procs --max-lines "
        "--delimiter --arg-file"
    ),
    "parallel": _wrapper("-j -a -I"),
    "stdbuf": _wrapper("-i -o -e"),
    "strace": _wrapper("-e -o -p"),
    "flock": _wrapper("-w -E", 1),
    "chroot": _wrapper("", 1),
    **dict.fromkeys(
        ("nohup", "setsid", "command", "builtin", "exec", "busybox", "unshare", "caffeinate"),
        _wrapper("-a"),
    ),
}
_IN_PLACE: Final = frozenset({"sed", "perl"})
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


def _unwrapped(words: Sequence[str]) -> tuple[list[str], bool]:
    """*words* from the program on that really runs, and whether it runs as somebody else.

    ``sudo -u root env A=1 rm x`` runs ``rm x`` as somebody else.
    """
    rest = list(words)
    other_rights = False
    while rest:
        program = rest[0].rsplit("/", 1)[-1]
        other_rights = other_rights or program in _PRIVILEGED
        if _ASSIGNMENT.match(rest[0]):
            rest.pop(0)
        elif (wrapper := _WRAPPERS.get(program)) is not None:
            rest = _after_options(rest[1:], wrapper)
        else:
            break
    return rest, other_rights


def _after_options(words: Sequence[str], wrapper: _Wrapper) -> list[str]:
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if option in ("-S", "--split-string") and rest:  # env: the command in one word
            return [*rest[0].split(), *rest[1:]]
        if option in wrapper.valued and rest:
            rest.pop(0)
    while rest and _ASSIGNMENT.match(rest[0]):
        rest.pop(0)
    return rest[wrapper.positional :]


def _substitutions(word: str) -> list[str]:
    return [word[word.index("$(") + 2 :].rstrip(")")] if "$(" in word else []


def option_text(arguments: Sequence[str], letter: str) -> str | None:
    """The word after ``-c`` (or a bundle that ends in it), for the letter ``c``."""
    for flag, text in pairwise(arguments):
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith(letter):
            return text
    return None


def python_code(words: Sequence[str]) -> str | None:
    """The code in ``python -c CODE``, when all of it is known."""
    unwrapped, _ = _unwrapped(words)
    if not unwrapped or not _PYTHON.fullmatch(unwrapped[0].rsplit("/", 1)[-1]):
        return None
    code = option_text(unwrapped[1:], "c")
    return None if code is None or UNKNOWN in code else code


_PYTHON: Final = re.compile(r"(?:i?python|pypy)[\d.]*w?")


def is_fed(words: Sequence[str]) -> bool:
    """Whether the program is a shell or Python that runs what it reads from its input."""
    unwrapped, _ = _unwrapped(words)
    program = unwrapped[0].rsplit("/", 1)[-1] if unwrapped else ""
    if program not in SHELLS and not program.startswith("python"):
        return False
    return all(word.startswith("-") and word[-1:] not in "cm" for word in unwrapped[1:])


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
    return DELETES_FILES if "-delete" in arguments else ""


def _git(arguments: Sequence[str]) -> str:
    words = set(arguments)
    if "clean" in words and _has_flag(arguments, "f", "--force"):
        return DELETES_FILES
    if "reset" in words and "--hard" in words:
        return DISCARDS
    if "restore" in words or ("checkout" in words and not words.isdisjoint({"--", ".", "-f"})):
        return DISCARDS
    if "stash" in words and not words.isdisjoint({"drop", "clear"}):
        return DISCARDS
    if "branch" in words and "-D" in words:
        return DISCARDS
    if "push" in words and _has_flag(arguments, "f", "--force", "--force-with-lease", "--mirror"):
        return "overwrites what others see in git"
    return ""


def _dd(arguments: Sequence[str]) -> str:
    return "overwrites a file or disk" if any(w.startswith("of=") for w in arguments) else ""


def _rsync(arguments: Sequence[str]) -> str:
    deletes = any(w.startswith("--delete") or w == "--remove-source-files" for w in arguments)
    return DELETES_FILES if deletes else ""


_PROGRAMS: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "rm": _rm,
    "rmdir": lambda _: DELETES_FOLDERS,
    "unlink": lambda _: DELETES_FILES,
    "shred": lambda _: DELETES_FILES,
    "find": _find,
    "git": _git,
    "dd": _dd,
    "rsync": _rsync,
    "wipefs": lambda _: "formats a disk",
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), lambda _: "stops the machine"),
}
