"""JSON Schemas and pydantic types as reply formats; loads pydantic and jsonschema-rs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic import ValidationError as TypeMismatch
from pydantic.errors import PydanticUserError

from op_jupyter.core.messages import TextBlock
from op_jupyter.core.updates import clip
from op_jupyter.engine.formats import Misfit, ReplyFormat, json_text
from op_jupyter.errors import UsageError
from op_jupyter.tools.json_schema import BadSchema, JsonSchema, TooDeep

_MOST_PROBLEMS: Final = 8
_TOO_DEEP: Final = "it is nested too deep"
_OWN_WORDS: Final = frozenset({"value_error", "assertion_error"})
"""Errors whose message is written by the type's author, and may quote the reply."""


def schema_format(wanted: Any) -> ReplyFormat:
    """The format that *wanted* names: a JSON Schema (a mapping), or a type.

    Raises:
        UsageError: it is neither, or says what no JSON can be.
    """
    return SchemaFormat(wanted) if isinstance(wanted, Mapping) else TypeFormat(wanted)


class SchemaFormat:
    """JSON that fits a JSON Schema; the value is plain JSON."""

    question: tuple[TextBlock, ...] = ()

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            self.schema: Mapping[str, Any] = json.loads(
                json.dumps(schema, allow_nan=False)  # in the order in which it was written
            )
        except (TypeError, ValueError) as error:
            raise UsageError(f"the JSON Schema cannot be written as JSON: {error}") from None
        try:
            self._schema = JsonSchema(self.schema)
        except BadSchema as error:
            raise UsageError(
                f"the JSON Schema cannot be used: {error.message:.300}. "
                "It has to hold everything that it refers to"
            ) from None

    def read(self, reply: str) -> Any:
        """The value, checked."""
        value = json.loads(json_text(reply))
        try:
            problems = self._schema.problems(value)
        except TooDeep:
            raise Misfit(_TOO_DEEP, _TOO_DEEP) from None
        if problems:
            raise Misfit(
                _joined(f"{_place(p.place)}{p.message:.300}" for p in problems),
                _joined(f"{_place(p.place)}does not fit {p.rule}" for p in problems),
            )
        return value


class TypeFormat:
    """JSON that pydantic makes a value of: a model, a dataclass, ``list[int]``."""

    question: tuple[TextBlock, ...] = ()

    def __init__(self, wanted: Any) -> None:
        if isinstance(wanted, str) or inspect.isroutine(wanted):
            raise UsageError(
                f"response_format={wanted!r:.60}: pass a JSON Schema (dict) or a pydantic model"
            )
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(wanted)
            self.schema: Mapping[str, Any] = self._adapter.json_schema()
        except PydanticUserError as error:
            raise UsageError(
                f"response_format={wanted!r:.60} is no JSON Schema (dict) or pydantic model: "
                f"{error.message.splitlines()[0]}"
            ) from None

    def read(self, reply: str) -> Any:
        """The value, as its type."""
        text = json_text(reply)
        try:
            return self._adapter.validate_json(text)
        except TypeMismatch as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
        raise Misfit(
            _joined(f"{_place(e['loc'])}{e['msg']}" for e in found),
            _joined(
                f"{_place(e['loc'])}{e['type'] if e['type'] in _OWN_WORDS else e['msg']}"
                for e in found
            ),
        )


def _place(path: Iterable[int | str]) -> str:
    where = ".".join(clip(str(part), 40) for part in path)
    return f"{where}: " if where else ""


def _joined(problems: Iterable[str]) -> str:
    listed = list(problems)
    more = len(listed) - _MOST_PROBLEMS
    return "; ".join(listed[:_MOST_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
