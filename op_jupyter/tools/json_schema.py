"""JSON Schemas that somebody else wrote: what does not fit one.

The one module that imports jsonschema-rs.  The package jsonschema is not used: it matches
patterns with `re`, which a hostile one keeps busy for ever, and takes seconds to import where
JupyterLab has installed its grammars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema_rs

from op_jupyter.core.keys import nests_deeper
from op_jupyter.core.values import dataclass

STEPS: Final = 100_000
"""Most steps back that a pattern may take for one text; some milliseconds."""

DEEPEST: Final = 500
"""How deep a value may nest: the checker recurses on the stack, and does not look at its end."""

_DRAFTS: Final = frozenset(
    {
        *(f"http://json-schema.org/draft-0{number}/schema" for number in (4, 6, 7)),
        *(f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")),
    }
)


class BadSchema(Exception):
    """A schema that cannot be used; *message* says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TooDeep(Exception):
    """A value that is nested too deep to be checked."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not fit.

    Attributes:
        place: where in the value, from the outside in.
        message: what is wrong; may quote the value.
        rule: what it does not fit, without the value: ``minimum=3``.
    """

    place: tuple[str | int, ...]
    message: str
    rule: str


class JsonSchema:
    """*schema*, ready to check values: of its own draft, or of 2020-12 when it names no known one.

    Nothing outside of it is read, neither from the network nor from the disk.

    Raises:
        BadSchema: it is none, or refers to what is not in it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        if str(schema.get("$schema", "")).rstrip("#") not in _DRAFTS:
            self._schema.pop("$schema", None)
        try:
            self._validator = jsonschema_rs.validator_for(
                self._schema,
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=STEPS),
            )
        except jsonschema_rs.ValidationError as error:
            raise BadSchema(error.message) from None
        except ValueError as error:
            raise BadSchema(str(error)) from None

    def problems(self, value: Any) -> list[Problem]:
        """What is wrong with *value*, plain JSON, in the order of the places.

        A text that a pattern takes too many steps for does not fit it.

        Raises:
            TooDeep: it is nested too deep.
        """
        if nests_deeper(value, DEEPEST):
            raise TooDeep
        found = [self._problem(error) for error in self._validator.iter_errors(value)]
        return sorted(found, key=lambda p: (list(map(str, p.place)), p.message))

    def _problem(self, error: jsonschema_rs.ValidationError) -> Problem:
        path = list(error.schema_path)
        expected = _at(self._schema, path)
        rule = str(path[-1]) if path else "schema"
        return Problem(
            tuple(error.instance_path),
            error.message,
            rule if expected is None else f"{rule}={expected!r:.80}",
        )


def _at(schema: Any, path: Sequence[str | int]) -> Any:
    """What stands there in *schema*; None where a reference leads elsewhere."""
    for step in path:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return None
    return schema
