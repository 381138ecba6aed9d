"""How commands are declared: parsers that suggest, complete and can be written down.

Declaring is cheap and imports nothing heavy; what a command does is imported when it runs.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

Command: TypeAlias = Callable[[argparse.Namespace], int | None]
"""What a command does; it returns its exit code, None for success."""

Completer: TypeAlias = Callable[..., Iterable[str]]
"""Called by the shell's completion with ``prefix`` and more as keywords."""

COMMAND: Final = "COMMAND"


class CommandParser(argparse.ArgumentParser):
    """A parser of one command, or of a group of them.

    Attributes:
        arguments: what was added, in order.
        commands: the commands of a group; None: it is none.
    """

    def __init__(self, **options: Any) -> None:
        self.arguments: list[argparse.Action] = []
        self.commands: Commands | None = None
        super().__init__(**{**options, "allow_abbrev": False})

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, and remember it."""
        action = super().add_argument(*names, **options)
        self.arguments.append(action)
        return action

    def add_commands(self) -> Commands:
        """Make this a group."""
        self.commands = Commands(self)
        return self.commands

    def refuse(self, word: str, known: Sequence[str], message: str) -> NoReturn:
        """End with *message* about *word*, and what it may have been meant for."""
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
        self.error(message + (f" (did you mean {near[0]!r}?)" if near else ""))


class Commands:
    """The commands of a group, by name."""

    def __init__(self, parser: CommandParser) -> None:
        self._parsers = parser.add_subparsers(
            metavar=COMMAND, required=True, parser_class=CommandParser
        )
        self.by_name: dict[str, CommandParser] = {}

    def add(self, name: str, command: Command, summary: str, more: str = "") -> CommandParser:
        """A command: one line for lists, and what there is to know beyond it."""
        parser = self._add(name, summary, more)
        parser.set_defaults(command=command, parser=parser)
        return parser

    def group(self, name: str, summary: str) -> Commands:
        """A group of commands."""
        return self._add(name, summary, "").add_commands()

    def _add(self, name: str, summary: str, more: str) -> CommandParser:
        description = summary[0].upper() + summary[1:] + "." + (f" {more}" if more else "")
        parser = self._parsers.add_parser(name, help=summary, description=description)
        self.by_name[name] = parser
        return parser


def parse(top: CommandParser, words: Sequence[str]) -> argparse.Namespace:
    """*words*, parsed; ends the process with a usage message where they are wrong."""
    current = top
    for word in words:
        if word.startswith("-") or current.commands is None:
            break
        known = current.commands.by_name
        if word not in known:
            listed = ", ".join(known)
            current.refuse(word, list(known), f"there is no command {word!r}; there are: {listed}")
        current = known[word]
    args, rest = top.parse_known_args(words)
    if rest:
        parser: CommandParser = args.parser
        known_flags = [flag for action in parser.arguments for flag in action.option_strings]
        parser.refuse(rest[0], known_flags, f"unrecognized arguments: {' '.join(rest)}")
    return args


# -- arguments that several commands have


def add_json(parser: CommandParser, what: str = "print JSON, for programs") -> None:
    """The flag ``--json``: one JSON document on stdout, and errors as JSON on stderr."""
    parser.add_argument("--json", action="store_true", help=what)


def add_session(
    parser: CommandParser, completer: Completer, *, name: str = "id", optional: bool = False
) -> None:
    """A session's id; `Service.find` finds out which one is meant."""
    count = {"nargs": "?"} if optional else {}
    parser.add_argument(
        name,
        metavar="ID",
        help="the session's id, or a unique beginning of it",
        **count,
    ).completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it


def positive(text: str) -> int:
    """*text* as a number from 1 on; as the ``type`` of an argument."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)
