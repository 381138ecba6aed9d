"""Lines of magics, parsed by IPython's ``magic_arguments``, with errors in our own words."""

from __future__ import annotations

import argparse
import keyword
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.magic_arguments import argument, magic_arguments

from op_jupyter.core.values import dataclass
from op_jupyter.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


class HelpWanted(Exception):
    """``--help`` was among the arguments; the text is the message."""


class _Help(argparse.Action):
    """``--help`` in a cell may not end the process, as argparse's own does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        raise HelpWanted(parser.format_help())


@dataclass(frozen=True, slots=True)
class Flag:
    """One argument, in argparse's words.

    Attributes:
        kind: what its value names ("session", "node", …), for completion; "": nothing known.
    """

    names: tuple[str, ...]
    options: dict[str, Any]
    kind: str = ""

    @property
    def takes_value(self) -> bool:
        """Whether something has to follow it."""
        return "action" not in self.options

    @property
    def positional(self) -> bool:
        """Whether it is told by its place, not by its name."""
        return not self.names[0].startswith("-")


def flag(*names: str, kind: str = "", **options: Any) -> Flag:
    """An argument for `arguments`; takes what `ArgumentParser.add_argument` takes.

    Args:
        kind: what its value names, as `notebook.completion` knows it.
    """
    return Flag(names, options, kind)


_HELP: Final = flag("-h", "--help", nargs=0, action=_Help, help="Show this text.")


def arguments(name: str, *flags: Flag) -> Callable[[F], F]:
    """Give a function the parser ``function.parser`` for *flags* and ``--help``."""

    def decorate(function: F) -> F:
        for each in (_HELP, *reversed(flags)):
            argument(*each.names, **each.options)(function)  # type: ignore[no-untyped-call]
        magic_arguments(name)(function)  # type: ignore[no-untyped-call]  # IPython
        # A flag that is cut short would change its meaning when another one is added.
        function.parser.allow_abbrev = False  # type: ignore[attr-defined]  # set by IPython
        vars(function)["flags"] = flags
        return function

    return decorate


def flags_of(function: Any) -> tuple[Flag, ...]:
    """The flags that `arguments` gave to *function*."""
    flags: tuple[Flag, ...] = function.flags
    return flags


def description_of(function: Any) -> str:
    """What the docstring of *function* said before `arguments` added its flags to it."""
    description: str | None = function.parser.description
    return description or ""


def parse(function: Any, line: str) -> argparse.Namespace:
    """The arguments in *line*.

    Raises:
        UsageError: an unknown flag, a missing value, an unbalanced quote.
        HelpWanted: ``--help``.
    """
    name = function.argcmd_name
    try:
        parsed: argparse.Namespace = function.parser.parse_args(_words(line))
    except IPythonUsageError as error:
        raise UsageError(f"%{name}: {error}; `%{name} --help` lists all options") from None
    except ValueError as error:
        raise UsageError(f"%{name}: {error} in {line!r}") from None
    return parsed


def _words(line: str) -> list[str]:
    """*line* as a shell splits it, but for the backslash, which is a letter like others."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    return list(lexer)


def names_list(text: str) -> tuple[str, ...]:
    """``a,b`` as names; for argparse.

    Raises:
        ArgumentTypeError: it holds no name.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise argparse.ArgumentTypeError("name at least one, or none")
    return names


def positive(text: str) -> int:
    """*text* as a number above zero; for argparse.

    Raises:
        ArgumentTypeError: it is no such number.
    """
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return int(text)


def variable_name(text: str) -> str:
    """*text*, a name that Python can assign to; for argparse.

    Raises:
        ArgumentTypeError: it is not one.
    """
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable name")
    return text
