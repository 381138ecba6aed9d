"""``{{name}}`` in a prompt stands for a variable of the notebook; nothing else is touched.

Only a dotted or indexed name between the braces counts, so JSON, LaTeX, f-strings and Jinja
templates reach the model byte for byte.  Values are inserted once: braces inside of a value
stay what they are.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from op_jupyter.core.messages import Block, ImageBlock, TextBlock
from op_jupyter.errors import SubstitutionError
from op_jupyter.tools.summaries import content_of

_STEP: Final = r"""\.[^\W\d]\w*|\[-?\d+\]|\["(?:[^"\\\n]|\\.)*"\]|\['(?:[^'\\\n]|\\.)*'\]"""
_REFERENCE: Final = re.compile(rf"\{{\{{[ \t]*([^\W\d]\w*)((?:{_STEP})*)[ \t]*\}}\}}")
_STEPS: Final = re.compile(_STEP)


def substitute(text: str, variables: Mapping[str, Any]) -> tuple[Block, ...]:
    """*text* as content for the model, with the variables it names in their places.

    Tables and arrays become a bounded summary, figures an image after the text so far.

    Raises:
        SubstitutionError: a name is not defined, or has no such attribute or item.
    """
    return tuple(_joined(_parts(text, variables)))


def _parts(text: str, variables: Mapping[str, Any]) -> Iterator[TextBlock | ImageBlock]:
    end = 0
    for found in _REFERENCE.finditer(text):
        yield TextBlock(text[end : found.start()])
        yield from content_of(_value(found, variables))
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


def _value(found: re.Match[str], variables: Mapping[str, Any]) -> Any:
    name, steps = found.groups()
    if name not in variables:
        raise SubstitutionError(
            f"{found.group()} in the prompt: there is no variable {name!r} in this notebook"
            f"{_nearest(name, variables)}; nothing was sent. To send the braces themselves, put "
            "the text into a variable: values are inserted as they are",
            name=name,
        )
    value = variables[name]
    for step in _STEPS.findall(steps):
        value = _step(value, step, found.group())
    return value


def _step(value: Any, step: str, whole: str) -> Any:
    try:
        if step.startswith("."):
            return getattr(value, step[1:])
        return value[ast.literal_eval(step[1:-1])]
    except Exception as error:
        raise SubstitutionError(
            f"{whole} in the prompt: {step} of a {type(value).__name__} raises "
            f"{type(error).__name__}: {error}; nothing was sent",
            name=whole,
        ) from error


def _nearest(name: str, variables: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, [n for n in variables if not n.startswith("_")], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
