"""``{{name}}`` in a prompt stands for a variable of the notebook; nothing else is touched.

Only a dotted or indexed name between the braces counts, so JSON, LaTeX, f-strings and Jinja
templates reach the model byte for byte.  Values are inserted once: braces inside of a value
stay what they are.
"""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from op_jupyter.core.messages import Block, ImageBlock, TextBlock
from op_jupyter.engine.cleaning import Cleaner
from op_jupyter.errors import SubstitutionError
from op_jupyter.tools.summaries import content_of
from op_jupyter.tools.tracebacks import message_of
from op_jupyter.views.text import one_line

_STEP: Final = r"""\.[^\W\d]\w*|\[-?\d+\]|\["(?:[^"\\\n]|\\.)*"\]|\['(?:[^'\\\n]|\\.)*'\]"""
_REFERENCE: Final = re.compile(rf"\{{\{{[ \t]*([^\W\d]\w*)((?:{_STEP})*)[ \t]*\}}\}}")
_STEPS: Final = re.compile(_STEP)
_TOLD_CHARS: Final = 300
_WORD_CHARS: Final = 10_000
_CLEANER: Final = Cleaner()


def substitute(text: str, variables: Mapping[str, Any]) -> tuple[Block, ...]:
    """*text* as content for the model, with the variables it names in their places.

    Tables and arrays become a bounded summary, figures an image after the text so far.

    Raises:
        SubstitutionError: a name is not defined, or has no such attribute or item.
    """
    return tuple(_joined(_parts(text, variables)))


def filled_in(line: str, variables: Mapping[str, Any]) -> str:
    """*line*, of a command, with ``str()`` of the variables it names, each as one word.

    Raises:
        SubstitutionError: a name is not defined, or has no such attribute or item.
    """

    def word(found: re.Match[str]) -> str:
        value = _value(found, variables, "the command; nothing was done")
        try:
            text = str(value)
        except Exception as error:
            raise SubstitutionError(
                f"{found.group()} in the command: its text raises {_told(error)}; nothing was done",
                name=found.group(),
            ) from error
        if len(text) > _WORD_CHARS:
            raise SubstitutionError(
                f"{found.group()} in the command: its text has {len(text):,} characters, more than "
                f"the {_WORD_CHARS:,} of a word; nothing was done",
                name=found.group(),
            )
        return shlex.quote(text)

    return _REFERENCE.sub(word, line)


def _parts(text: str, variables: Mapping[str, Any]) -> Iterator[TextBlock | ImageBlock]:
    end = 0
    for found in _REFERENCE.finditer(text):
        yield TextBlock(text[end : found.start()])
        value = _value(found, variables, "the prompt; nothing was sent")
        try:
            yield from content_of(value)
        except Exception as error:
            raise SubstitutionError(
                f"{found.group()} in the prompt: looking at it raises {_told(error)}; nothing was "
                "sent",
                name=found.group(),
            ) from error
        end = found.end()
    yield TextBlock(text[end:])


def _joined(parts: Iterator[TextBlock | ImageBlock]) -> Iterator[Block]:
    """The same content in as few blocks as there can be."""
    text = ""
    for part in parts:
        if isinstance(part, TextBlock):
            text += part.text
            continue
        if text:
            yield TextBlock(text)
        text = ""
        yield part
    if text:
        yield TextBlock(text)


def _value(found: re.Match[str], variables: Mapping[str, Any], place: str) -> Any:
    name, steps = found.groups()
    where, _, so = place.partition("; ")
    if name not in variables:
        raise SubstitutionError(
            f"{found.group()} in {where}: there is no variable {name!r} in this notebook"
            f"{_nearest(name, variables)}; {so}. To have the braces themselves, put "
            "the text into a variable: values are inserted as they are",
            name=name,
        )
    value = variables[name]
    for step in _STEPS.findall(steps):
        value = _step(value, step, f"{found.group()} in {where}", so)
    return value


def _step(value: Any, step: str, what: str, so: str) -> Any:
    try:
        if step.startswith("."):
            return getattr(value, step[1:])
        return value[ast.literal_eval(step[1:-1])]
    except Exception as error:
        raise SubstitutionError(
            f"{what}: {step} of a {type(value).__name__} raises {_told(error)}; {so}",
            name=what.partition(" in ")[0],
        ) from error


def _told(error: Exception) -> str:
    """What somebody's code raised, on a line and without secrets."""
    return one_line(f"{type(error).__name__}: {_CLEANER.text(message_of(error))}", _TOLD_CHARS)


def _nearest(name: str, variables: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, [n for n in variables if not n.startswith("_")], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
