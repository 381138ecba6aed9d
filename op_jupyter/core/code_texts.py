"""What texts become when code puts them together: only what is quick, small and surely the same."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

LONGEST: Final = 10_000
"""A text that the code puts together is unknown beyond that: it can double with each line."""

Texts = Sequence[str | None]


def joined(separator: str, parts: Texts) -> str | None:
    """All *parts* in one; ``/`` joins them as paths."""
    known = [part for part in parts if part is not None]
    between = len(separator) * len(known)
    if len(known) < len(parts) or not known or between + sum(map(len, known)) > LONGEST:
        return None
    return posixpath.join(*known) if separator == "/" else separator.join(known)


def formatted(template: str, values: Texts) -> str | None:
    """``template.format(*values)``, for fields without a width and the like."""
    fields = _FIELD.findall(template)
    if not {"{", "}"}.isdisjoint(_FIELD.sub("", template)):
        return None
    at = [int(field) if field else index for index, field in enumerate(fields)]
    if any(index >= len(values) for index in at):
        return None
    return _mixed(_FIELD.split(template)[::2], [values[index] for index in at])


def percent_formatted(template: str, values: Texts) -> str | None:
    """``template % values``, for plain ``%s``."""
    texts = template.split("%s")
    if any("%" in text for text in texts) or len(texts) - 1 != len(values):
        return None
    return _mixed(texts, values)


def _mixed(texts: Sequence[str], values: Texts) -> str | None:
    parts: list[str | None] = [texts[0]]
    for value, text in zip(values, texts[1:], strict=False):
        parts += [value, text]
    return joined("", parts)


def changed(method: str, text: str, arguments: Texts) -> str | None:
    """What a method of *text* makes of it, if it is one that is known."""
    change = _CHANGES.get(method)
    words = [argument for argument in arguments if argument is not None]
    if change is None or len(words) < len(arguments):
        return None
    try:
        made = change(text, *words)
    except (TypeError, ValueError):  # other arguments than it takes
        return None
    return made if len(made) <= LONGEST else None


def decoded(function: str, text: str) -> str | None:
    """What a function that decodes makes of *text*."""
    decode = _DECODERS.get(function)
    if decode is None or len(text) > LONGEST:
        return None
    try:
        return decode(text).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return None


def sliced(text: str, start: int | None, stop: int | None, step: int | None) -> str | None:
    """``text[start:stop:step]``."""
    return None if step == 0 else text[start:stop:step]


def _replaced(text: str, old: str, new: str) -> str:
    if (len(text) + 1) * max(len(new), 1) > 10 * LONGEST:
        raise ValueError("it may become too long")
    return text.replace(old, new)


_FIELD: Final = re.compile(r"\{(\d{0,2})\}")
_CHANGES: Final[Mapping[str, Callable[..., str]]] = {
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "casefold": lambda text: text.casefold(),
    "swapcase": lambda text: text.swapcase(),
    "strip": lambda text, what=None: text.strip(what),
    "lstrip": lambda text, what=None: text.lstrip(what),
    "rstrip": lambda text, what=None: text.rstrip(what),
    "removeprefix": lambda text, what: text.removeprefix(what),
    "removesuffix": lambda text, what: text.removesuffix(what),
    "replace": _replaced,
    "decode": lambda text, *_: text,
    "encode": lambda text, *_: text,
}
_DECODERS: Final[Mapping[str, Callable[[str], bytes]]] = {
    **dict.fromkeys(("base64.b64decode", "b64decode", "binascii.a2b_base64"), base64.b64decode),
    **dict.fromkeys(("bytes.fromhex", "binascii.unhexlify", "bytearray.fromhex"), bytes.fromhex),
}
