"""All magics, flags and settings as one page, made of the parsers: ``docs/magics.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import dedent

from op_jupyter.notebook.cell_flags import agent_cell
from op_jupyter.notebook.commands.base import Command
from op_jupyter.notebook.config import AgentMagics
from op_jupyter.notebook.parsing import Flag, description_of, flags_of


def page(topics: Iterable[tuple[str, Iterable[Command]]]) -> str:
    """The page, in Markdown."""
    return "\n".join(
        [
            "# Magics",
            "",
            "This page is generated from the parsers; `%agent help --markdown` prints it.",
            "",
            "## `%%agent`",
            "",
            *_description(description_of(agent_cell)),
            *_table(flags_of(agent_cell)),
            *(line for topic, commands in topics for line in _topic(topic, commands)),
            *_settings(),
            "",
        ]
    )


def _topic(topic: str, commands: Iterable[Command]) -> Iterator[str]:
    yield from ("", f"## {topic}")
    for each in commands:
        places = " ".join(_place(flag) for flag in each.flags if flag.positional)
        yield from ("", f"### `%agent {each.word}{f' {places}' if places else ''}`", "")
        yield from _description(description_of(each))
        yield from _table(each.flags)


def _description(text: str) -> list[str]:
    first, _, rest = text.strip().partition("\n")
    return [first, *dedent(rest).rstrip().split("\n")] if rest.strip() else [first]


def _place(flag: Flag) -> str:
    name = flag.names[0].upper()
    return f"[{name}]" if flag.options.get("nargs") in ("?", "*") else name


def _table(flags: Iterable[Flag]) -> Iterator[str]:
    rows = [f"| `{_written(flag)}` | {_cell(_meaning(flag))} |" for flag in flags]
    if rows:
        yield from ("", "| | |", "|---|---|", *rows)


def _written(flag: Flag) -> str:
    if flag.positional:
        return flag.names[0].upper()
    value = str(flag.options.get("metavar") or flag.names[-1].lstrip("-").upper())
    value = f" [{value}]" if flag.options.get("nargs") == "?" else f" {value}"
    return ", ".join(flag.names) + (value if flag.takes_value else "")


def _meaning(flag: Flag) -> str:
    said = str(flag.options["help"])
    choices = flag.options.get("choices")
    return f"{said} One of {', '.join(f'`{each}`' for each in choices)}." if choices else said


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _settings() -> Iterator[str]:
    yield from ("", "## Settings", "")
    yield (
        "`%config AgentMagics.NAME = VALUE` in a notebook, or `c.AgentMagics.NAME = VALUE` in "
        "IPython's configuration."
    )
    yield from ("", "| name | default | meaning |", "|---|---|---|")
    for name, trait in AgentMagics.class_traits(config=True).items():
        if name in vars(AgentMagics):
            yield f"| `{name}` | `{trait.default()!r}` | {_cell(trait.help)} |"
