"""`dataclass` as in the standard library, but quick to define.

The standard library writes the source of six methods for each class and compiles it: of the time
that loading the extension takes, that was more than half. Here all classes share the ones that
print, compare and hash a value; the standard library does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass as defined
from dataclasses import fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Decorator = Callable[[type], Any]


def _dataclass(
    *,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 -- its name in the standard library
    frozen: bool = False,
    slots: bool = False,
) -> Decorator:
    def define(cls: type) -> Any:
        own = set(vars(cls))
        made: Any = defined(cls, eq=False, repr=False, frozen=frozen, slots=slots)
        if repr and "__repr__" not in own:
            made.__repr__ = _shown
        if eq and "__eq__" not in own:
            _compare(made, hashes=frozen)
        return made

    return define


@recursive_repr()
def _shown(value: Any) -> str:
    named = ", ".join(
        f"{field.name}={getattr(value, field.name)!r}" for field in fields(value) if field.repr
    )
    return f"{type(value).__qualname__}({named})"


def _compare(made: Any, *, hashes: bool) -> None:
    read = attrgetter("__class__", *(field.name for field in fields(made) if field.compare))

    def equal(value: object, other: object) -> Any:
        if other.__class__ is not value.__class__:
            return NotImplemented
        return read(value) == read(other)

    made.__eq__ = equal
    made.__hash__ = (lambda value: hash(read(value))) if hashes else None


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
