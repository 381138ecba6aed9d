"""Asking for JSON: natively where a service can, in words where it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_jupyter.core.keys import canonical_json


def format_instruction(schema: Mapping[str, Any]) -> str:
    """The words that ask for JSON of *schema*; the same bytes each time."""
    return (
        "Answer with one JSON value and nothing else: no explanation, no code fence."
        f" It must fit this JSON Schema:\n{canonical_json(schema)}"
    )


def is_constrainable(schema: Mapping[str, Any]) -> bool:
    """Whether a service that constrains its output can be given *schema*.

    It has to be an object whose objects all name their properties, without recursion; a
    ``dict[str, int]`` has to be asked for in words.
    """
    refers_inside = '"$ref"' in canonical_json(schema.get("$defs", {}))
    return schema.get("type") == "object" and not refers_inside and _is_closed(schema)


def _is_closed(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(_is_closed(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" and not _names_all_properties(schema):
        return False
    return all(_is_closed(value) for value in schema.values())


def _names_all_properties(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("properties")) and not schema.get("additionalProperties")
