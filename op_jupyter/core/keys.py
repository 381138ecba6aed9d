"""Canonical JSON and the hashes made of it: same value, same bytes, on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

# `json.dumps` makes such an encoder for each value.
_encode: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def canonical_json(value: Json) -> str:
    """*value* as JSON with sorted keys and no white space.

    Raises:
        ValueError: NaN or an infinity, which JSON has no word for.
        TypeError: a value JSON cannot hold.
    """
    return _encode(value)


def sha256(value: Json) -> str:
    """Hex digest of the canonical JSON of *value*."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def canonical_arguments(raw: str) -> str:
    """Tool arguments in canonical form, or the raw text when it is not JSON.

    Two calls are "the same" for the doom-loop rule when these are equal.
    """
    try:
        return canonical_json(json.loads(raw))
    except (ValueError, RecursionError):
        return raw


def nests_deeper(value: Json, levels: int) -> bool:
    """Whether arrays and objects of *value* are inside each other more than *levels* times."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [inner for outer in layer for inner in _members(outer)]
        if not layer:
            return False
    return True


def _members(value: Json) -> Iterable[Json]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
