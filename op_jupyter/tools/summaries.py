"""Python values for prompts and for the store: bounded, and the same text every time.

Three views of a value, from short to long: `brief_value` (one line), `describe_value` (some
lines), `to_json_value` (plain JSON, whole as long as it is not too large).  None of them ever
shows a memory address, waits for a lazy value or imports a library.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import json
import math
import pathlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from threading import current_thread, main_thread
from typing import Any, Final, TypeVar

from op_jupyter.core.keys import Json
from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.core.updates import bounded
from op_jupyter.tools.figures import describe_picture, picture_of
from op_jupyter.tools.tables import brief_table, describe_table, is_a

T = TypeVar("T")

JSON_CHARS: Final = 20_000
DESCRIBED_CHARS: Final = 4_000
BRIEF_CHARS: Final = 120
DEEPEST: Final = 12
LONGEST_TEXT: Final = 1_000_000
AT_ONCE: Final = 500
"""Members of a value, with those inside of them, that are looked at without a thread."""

# Never from the middle of white space: of a lot of it, every rest would be tried.
_AT_ADDRESS: Final = re.compile(r"(?<!\s)\s+at 0x[0-9a-fA-F]+")
_ADDRESS: Final = re.compile(rf"{_AT_ADDRESS.pattern}|(?<!\s)\s*\b0x[0-9a-fA-F]{{8,}}")
_LONG_TEXT: Final = 400_000
"""A longer text of an object is cut before anything else is done with it."""
_PLAIN: Final = (
    str
    | int
    | float
    | None
    | bytes
    | list
    | tuple
    | dict
    | set
    | frozenset
    | enum.Enum
    | datetime.date
    | datetime.time
    | datetime.timedelta
    | decimal.Decimal
    | uuid.UUID
    | pathlib.PurePath
)


def without_addresses(text: str) -> str:
    """*text* without memory addresses, which differ from run to run."""
    return _AT_ADDRESS.sub("", text)


def brief_value(value: Any, limit: int = BRIEF_CHARS) -> str:
    """One line: the type, and as much of the value as fits."""
    return _one_line(_foreign(lambda: _brief(value, 0), value), limit)


def describe_value(value: Any, limit: int = DESCRIBED_CHARS) -> str:
    """Some lines: of a table its shape, types and head, of an object its type and its text."""
    text = _foreign(lambda: describe_table(value, brief_value) or _describe(value, limit), value)
    return bounded(text, limit * 3 // 4, limit // 4)


def to_json_value(value: Any, limit: int = JSON_CHARS) -> Json:
    """*value* as plain JSON of about *limit* characters at most.

    A value that JSON can hold and that fits comes back equal.  What is cut says so in place;
    what JSON cannot hold becomes its description.
    """
    return _Writer(limit).write(value)


def content_of(value: Any, limit: int = JSON_CHARS) -> tuple[TextBlock | ImageBlock, ...]:
    """*value*, returned by a tool or named in a prompt, as content for the model."""
    if isinstance(value, TextBlock | ImageBlock):
        return (value,)
    if isinstance(value, str):
        return (TextBlock(bounded(value, LONGEST_TEXT, 0)),)
    picture = _foreign(lambda: picture_of(value), value)
    if isinstance(picture, ImageBlock):
        return (TextBlock(describe_value(value)), picture)
    if _is_plain(value):
        return (TextBlock(json.dumps(to_json_value(value, limit), ensure_ascii=False)),)
    return (TextBlock(describe_value(value)),)


def is_seen_at_once(value: Any) -> bool:
    """Whether to look at *value* takes no time: it is small, and no code of its own runs."""
    waiting, looked_at = [value], 0
    while waiting:
        item = waiting.pop()
        looked_at += 1
        if type(item) in _CONTAINERS:
            if looked_at + len(waiting) + len(item) > AT_ONCE:
                return False
            waiting += [*item, *item.values()] if type(item) is dict else item
        elif type(item) not in _ATOMS:
            return False
    return True


_ATOMS: Final = frozenset({str, bytes, int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({list, tuple, dict})


def _is_plain(value: Any) -> bool:
    """Whether *value* is data rather than an object with a life of its own."""
    return isinstance(value, _PLAIN) or _fields_of(value) is not None


# --- texts ------------------------------------------------------------------------------


def _brief(value: Any, depth: int) -> str:
    special = _foreign(lambda: brief_table(value) or describe_picture(value), value)
    if special is not None:
        return special
    match value:
        case str() | bytes() | bytearray() if len(value) > BRIEF_CHARS:
            return f"{type(value).__name__} of {len(value)}: {value[:BRIEF_CHARS]!r}"
        case dict() | list() | tuple() | set() | frozenset():
            return _brief_container(value, depth)
        case _ if inspect.isroutine(value) or isinstance(value, type) or inspect.ismodule(value):
            return _definition(value)
    if is_a(value, "numpy", "generic"):
        return repr(value.item())
    fields = _fields_of(value)
    if fields is not None:
        inner = ", ".join(f"{k}={_inner(v, depth)}" for k, v in islice(fields, 6))
        return f"{type(value).__name__}({inner})"
    return _text_of(value)


def _brief_container(value: Any, depth: int) -> str:
    kind, size = type(value).__name__, len(value)
    if isinstance(value, Mapping):
        shown = [f"{_inner(k, depth)}: {_inner(v, depth)}" for k, v in islice(value.items(), 5)]
        brackets = "{}"
    else:
        items = _in_order(value) if isinstance(value, AbstractSet) else value
        shown = [_inner(item, depth) for item in islice(items, 8)]
        brackets = "()" if isinstance(value, tuple) else "{}" if kind != "list" else "[]"
    more = ", …" if size > len(shown) else ""
    return f"{kind} of {size}: {brackets[0]}{', '.join(shown)}{more}{brackets[1]}"


def _inner(value: Any, depth: int) -> str:
    return "…" if depth >= 2 else _one_line(_brief(value, depth + 1), BRIEF_CHARS // 2)


def _describe(value: Any, limit: int) -> str:
    if isinstance(value, str):
        return value if len(value) <= limit else f"str of {len(value)} characters: {value}"
    if inspect.isroutine(value) or isinstance(value, type):
        doc = inspect.getdoc(value) if inspect.isroutine(value) or value.__doc__ else None
        return f"{_definition(value)}\n{doc}" if doc else _definition(value)
    if isinstance(value, dict | list | tuple | set | frozenset) or _fields_of(value) is not None:
        whole = json.dumps(to_json_value(value, limit), ensure_ascii=False)
        return f"{_sized(value)}: {whole}"
    return _brief(value, 0)


def _sized(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, _SIZED) else kind


_SIZED: Final = (dict, list, tuple, set, frozenset)


def _definition(value: Any) -> str:
    """A function, class or module, without where it is in memory."""
    if inspect.ismodule(value):
        return f"module {value.__name__}"
    name = getattr(value, "__qualname__", type(value).__name__)
    try:
        signature = str(_as_written(inspect.signature(value)))
    except (TypeError, ValueError):
        signature = "(…)"
    kind = "class" if isinstance(value, type) else "function"
    return f"{kind} {name}{without_addresses(signature)}"


class _Word(str):
    """An annotation that ``from __future__ import annotations`` has made a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _as_written(signature: inspect.Signature) -> inspect.Signature:
    """*signature* without quotes around the annotations."""

    def plain(annotation: Any) -> Any:
        return _Word(annotation) if isinstance(annotation, str) else annotation

    parameters = [p.replace(annotation=plain(p.annotation)) for p in signature.parameters.values()]
    returned = plain(signature.return_annotation)
    return signature.replace(parameters=parameters, return_annotation=returned)


def _text_of(value: Any) -> str:
    """The text that an object gives of itself, made the same every time."""
    text = _foreign(lambda: repr(value), value)
    if len(text) > _LONG_TEXT:
        text = bounded(text, DESCRIBED_CHARS // 2, DESCRIBED_CHARS // 4)
    return _ADDRESS.sub("", text)


def _one_line(text: str, limit: int) -> str:
    text = " ".join(text[: limit * 4].split()) if len(text) > limit else " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _foreign(read: Callable[[], T], value: Any) -> T | str:
    """What *read* finds out about *value*; when the value's own code fails, only that it does."""
    try:
        return read()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise  # the stop button, as far as anybody can tell
        return f"{type(value).__name__} (looking at it raises {type(error).__name__})"


def _in_order(values: AbstractSet[Any]) -> list[Any]:
    """The members of a set in an order that does not change from run to run."""
    return sorted(values, key=_sort_key)


def _sort_key(item: Any) -> tuple[str, float, str]:
    number = item if isinstance(item, int | float) and abs(item) < _FINITE else 0
    return type(item).__name__, float(number), _text_of(item)


_FINITE: Final = 1e300
"""Larger integers do not fit a float; NaN is not below it either."""


def _fields_of(value: Any) -> Iterator[tuple[str, Any]] | None:
    """The named fields of a dataclass, a pydantic model or a named tuple."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        names: Sequence[str] = [field.name for field in dataclasses.fields(value) if field.repr]
    elif is_a(value, "pydantic", "BaseModel"):
        names = list(type(value).model_fields)
    elif isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple):
        names = getattr(value, "_fields")  # noqa: B009 -- mypy knows tuples without it
    else:
        return None
    return ((name, getattr(value, name, None)) for name in names)


# --- JSON -------------------------------------------------------------------------------


class _Writer:
    """Writes one value; *left* is how many characters may still be spent."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._inside: list[int] = []

    def write(self, value: Any) -> Json:
        """*value* as JSON, or what stands for it."""
        return _foreign(lambda: self._written(value), value)

    def _written(self, value: Any) -> Json:
        match value:
            case None | bool():
                return self._spend(value, 5)
            case enum.Enum():
                return self.write(value.value)
            case str():
                return self._text(str(value))
            case int():
                return self._number(int(value))
            case float():
                return self._spend(float(value) if math.isfinite(value) else str(value), 20)
            case datetime.date() | datetime.time():
                return self._text(value.isoformat())
            case _ if isinstance(value, _AS_TEXT):
                return self._text(str(value))
            case bytes() | bytearray():
                return self._text(f"{type(value).__name__} of {len(value)}: {bytes(value[:40])!r}")
            case _ if is_a(value, "numpy", "generic"):
                return self.write(value.item())
            case _:
                return self._compound(value)

    def _compound(self, value: Any) -> Json:
        if id(value) in self._inside or len(self._inside) >= DEEPEST:
            return self._text(f"… {type(value).__name__} inside itself or too deep")
        self._inside.append(id(value))
        try:
            return self._members(value)
        finally:
            self._inside.pop()

    def _members(self, value: Any) -> Json:
        fields = _fields_of(value)
        if fields is not None:
            return self._object(fields, 0)
        match value:
            case dict():
                return self._object(iter(value.items()), len(value))
            case set() | frozenset():
                return self._array(_in_order(value))
            case list() | tuple():
                return self._array(value)
            case _:
                return self._text(describe_value(value, max(200, min(DESCRIBED_CHARS, self._left))))

    def _object(self, members: Iterator[tuple[Any, Any]], size: int) -> Json:
        out: dict[str, Json] = {}
        for key, item in members:
            if self._left <= 0:
                out["…"] = f"{size - len(out)} more" if size else "more"
                break
            out[self._key(key, out)] = self.write(item)
        return out

    def _key(self, key: Any, taken: Mapping[str, Any]) -> str:
        name = key if isinstance(key, str) else brief_value(key)
        if len(name) > BRIEF_CHARS:
            name = self._clipped(name, BRIEF_CHARS) if len(name) > self._left else name
        self._left -= len(name) + 4
        return name if name not in taken else f"{name} ({type(key).__name__} {len(taken)})"

    def _array(self, items: Sequence[Any]) -> Json:
        out: list[Json] = []
        for item in items:
            if self._left <= 0:
                out.append(f"… {len(items) - len(out)} more")
                break
            out.append(self.write(item))
        return out

    def _number(self, value: int) -> Json:
        bits = value.bit_length()
        return self._spend(value if bits < 4096 else f"int of {bits} bits", 1 + bits // 3)

    def _text(self, text: str) -> str:
        room = max(self._left, 80)
        self._left -= min(len(text), room) + 4
        return text if len(text) <= room else self._clipped(text, room)

    def _clipped(self, text: str, room: int) -> str:
        return f"{text[: room - 40]}… ({len(text)} characters)"

    def _spend(self, value: Json, size: int) -> Json:
        self._left -= size + 2
        return value


_AS_TEXT: Final = (
    datetime.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    pathlib.PurePath,
    complex,
)
