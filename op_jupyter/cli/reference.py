"""The command line, written down: for `op-jupyter help`, and for ``docs/cli.md``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from op_jupyter.cli.exit_codes import MEANING
from op_jupyter.cli.frame import CommandParser
from op_jupyter.cli.usage import BadCommandLine

_HELP: Final = ("-h", "--help")


def help_text(top: CommandParser, words: Sequence[str] = ()) -> str:
    """What there is, and the exit codes; with *words*, all about that command.

    Raises:
        BadCommandLine: there is no such command.
    """
    current = top
    for word in words:
        known = current.commands.by_name if current.commands else {}
        if word not in known:
            listed = ", ".join(known) or "none"
            raise BadCommandLine(f"{current.prog} has no command {word!r}; there are: {listed}")
        current = known[word]
    text = current.format_help().rstrip()
    if words:
        return text
    codes = [f"  {code.value:<4} {meaning}" for code, meaning in MEANING.items()]
    return "\n".join([text, "", "exit codes:", *codes])


def markdown(top: CommandParser) -> str:
    """All of it, as ``docs/cli.md`` has it.  The same under every version of Python."""
    lines = [
        "# The command line",
        "",
        f"`{top.prog}` works with stored sessions, runs functions and installs optional parts.",
        f"`{top.prog} help COMMAND` shows the same as this page, and "
        f"`{top.prog} completion SHELL` sets up completion of commands and session ids.",
        "",
        f"This page is generated from the parsers: `{top.prog} help --markdown > docs/cli.md`.",
        "",
        "## For scripts",
        "",
        "With `--json`, a command prints one JSON document to stdout; an error is a JSON document "
        'on stderr, `{"error": {"type", "message", "exit_code"}}`. Without it, a terminal gets '
        "tables, and a pipe gets plain columns in which nothing is cut off.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code.value} | {meaning} |" for code, meaning in MEANING.items()),
        "",
        "## Commands",
    ]
    for parser in _commands(top):
        lines += ["", f"### `{parser.prog}`", "", parser.description or ""]
        arguments = [a for a in parser.arguments if tuple(a.option_strings) != _HELP]
        if arguments:
            lines += ["", "| argument | meaning |", "|---|---|", *map(_row, arguments)]
    return "\n".join(lines)


def _commands(parser: CommandParser) -> Iterator[CommandParser]:
    if parser.commands is None:
        yield parser
        return
    for command in parser.commands.by_name.values():
        yield from _commands(command)


def _row(action: argparse.Action) -> str:
    return f"| {_names(action)} | {_meaning(action)} |"


def _names(action: argparse.Action) -> str:
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        optional = action.nargs in ("?", "*")
        return f"`[{value}]`" if optional else f"`{value}`"
    taken = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{flag}{taken}`" for flag in action.option_strings)


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default))
    return (text[:1].upper() + text[1:]).replace("|", "\\|")
