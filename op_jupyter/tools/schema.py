"""From a Python signature and docstring to the tool that a model sees, and back.

`read_signature` refuses what a model could never call; `Signature.bind` checks and converts
the arguments that a model sends.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, get_args, get_origin

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from op_jupyter.core.messages import ToolSpec
from op_jupyter.core.values import dataclass
from op_jupyter.errors import InvalidArguments, ToolDefinitionError
from op_jupyter.tools.summaries import brief_value

HIDDEN: Final = frozenset({"runtime"})
"""Parameters that we fill in; a model never sees them."""

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONFIG: Final = ConfigDict(extra="forbid", populate_by_name=False)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model may call: the tool as it sees it, and the check of what it sends."""

    spec: ToolSpec
    _model: type[BaseModel]
    _names: Mapping[str, str]

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments to call with: those that were sent, as the annotated types.

        Raises:
            InvalidArguments: they do not fit; the message names each field.
        """
        try:
            values = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise _invalid(self.spec, error) from None
        return {self._names[key]: getattr(values, key) for key in values.model_fields_set}


def tool_spec(function: Callable[..., Any], *, name: str | None = None) -> ToolSpec:
    """*function* as a model sees it.

    Raises:
        ToolDefinitionError: a model could not call it; the message says what to change.
    """
    return read_signature(function, name=name).spec


def read_signature(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    hidden: Collection[str] = HIDDEN,
) -> Signature:
    """The signature of *function* as a tool; *name* replaces the function's own.

    Parameters named in *hidden* are no part of it: the model neither sees nor sends them.

    Raises:
        ToolDefinitionError: a model could not call it; the message says what to change.
    """
    name = _tool_name(function, name)
    _check_kind(function, name)
    doc = _parse_doc(function)
    told = {p.arg_name: " ".join((p.description or "").split()) for p in doc.params}
    parameters = [p for p in _parameters(function, name) if p.name not in hidden]
    hints = _hints(function, name)
    fields: dict[str, Any] = {}
    for i, parameter in enumerate(parameters):
        annotation = hints.get(parameter.name, parameter.annotation)
        fields[f"f{i}"] = _field(name, parameter, annotation, told.get(parameter.name, ""))
    # Fields have names of their own: a parameter may be called `schema` or `_x`, which a
    # pydantic model would refuse.
    model = create_model(name, __config__=_CONFIG, **fields)
    schema = _tidy(model.model_json_schema(schema_generator=_QuietSchema))
    return Signature(
        ToolSpec(name, _description(doc, function, name), schema),
        model,
        {f"f{i}": parameter.name for i, parameter in enumerate(parameters)},
    )


# --- the function -----------------------------------------------------------------------


def _tool_name(function: Callable[..., Any], name: str | None) -> str:
    if not callable(function):
        raise ToolDefinitionError(f"{brief_value(function)} is not a function; pass a function")
    if name is None:
        name = str(getattr(_bare(function), "__name__", type(function).__name__))
    if not _TOOL_NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"{name!r} cannot be the name of a tool (letters, digits, '_' and '-', at most 64); "
            "define the function with `def` and a plain name, or pass name=..."
        )
    return name


def _bare(function: Any) -> Any:
    """What decorators and `functools.partial` wrap."""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, partial) else function.__wrapped__
    return function


def _code_of(function: Any) -> Any:
    """The function that runs in the end: of an object, its ``__call__``."""
    bare = _bare(function)
    return bare if inspect.isroutine(bare) else type(bare).__call__


def _check_kind(function: Callable[..., Any], name: str) -> None:
    if inspect.isclass(function):
        raise ToolDefinitionError(f"{name} is a class; pass a function that builds and uses it")
    code = _code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ToolDefinitionError(
            f"{name} is a generator, and a tool call has one result; return a list instead"
        )


def _parameters(function: Callable[..., Any], name: str) -> Iterator[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise ToolDefinitionError(
            f"{name} does not tell its parameters; wrap it in a function with named ones"
        ) from None
    for parameter in signature.parameters.values():
        if problem := _UNUSABLE.get(parameter.kind):
            raise ToolDefinitionError(
                f"parameter {str(parameter).split(':')[0]!r} of {name} cannot be offered to a "
                f"model: {problem}",
                parameter=parameter.name,
            )
        yield parameter


_UNUSABLE: Final[Mapping[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "take a list instead, for example `items: list[str]`",
    inspect.Parameter.VAR_KEYWORD: "name the parameters, or take a dict instead",
    inspect.Parameter.POSITIONAL_ONLY: "a model passes by name; remove the `/`",
}


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_code_of(function), include_extras=True)
    except NameError as error:
        raise ToolDefinitionError(
            f"an annotation of {name} names {error.name!r}, which is not defined where the "
            "function is; define or import it there",
            parameter=error.name,
        ) from None


# --- one parameter ----------------------------------------------------------------------


def _field(name: str, parameter: inspect.Parameter, annotation: Any, told: str) -> tuple[Any, Any]:
    if annotation is inspect.Parameter.empty:
        annotation = Any
    _check_annotation(name, parameter, annotation)
    options: dict[str, Any] = {"alias": parameter.name}
    if told and not _has_description(annotation):
        options["description"] = told
    if parameter.default is inspect.Parameter.empty:
        return annotation, Field(**options)
    if _is_json(parameter.default):
        return annotation, Field(parameter.default, **options)
    # Not shown: JSON has no words for it.  Python fills it in when the model sends nothing.
    return annotation, Field(default_factory=lambda: None, **options)


def _check_annotation(name: str, parameter: inspect.Parameter, annotation: Any) -> None:
    try:
        TypeAdapter(annotation).json_schema(schema_generator=_QuietSchema)
    except (PydanticUserError, TypeError) as error:
        advice = (
            "import TypedDict from typing_extensions, which it needs before Python 3.12"
            if getattr(error, "code", None) == "typed-dict-version"
            else "take something JSON can hold, for example the name of a variable as `str`, "
            "and look the object up inside the function"
        )
        raise ToolDefinitionError(
            f"parameter {parameter.name!r} of {name} has the type {_type_name(annotation)}, which "
            f"a model cannot send; {advice}",
            parameter=parameter.name,
        ) from error


def _type_name(annotation: Any) -> str:
    named = annotation if isinstance(annotation, type) else None
    return str(annotation) if named is None else named.__name__


def _has_description(annotation: Any) -> bool:
    if get_origin(annotation) is not typing.Annotated:
        return False
    return any(getattr(extra, "description", None) for extra in get_args(annotation)[1:])


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


# --- the schema and the description -----------------------------------------------------


class _QuietSchema(GenerateJsonSchema):
    """Leaves out what JSON Schema has no words for, without a warning about it."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Say nothing."""


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* without the titles that pydantic makes up; they cost tokens and say nothing."""
    return {key: _tidy_member(key, value) for key, value in schema.items() if key != "title"}


def _tidy_member(key: str, value: Any) -> Any:
    if key in _NAMED:
        return {name: _tidy(inner) for name, inner in value.items()}
    if key in _LISTED:
        return [_tidy(inner) for inner in value]
    return _tidy(value) if key in _NESTED and isinstance(value, dict) else value


_NAMED: Final = frozenset({"properties", "$defs", "patternProperties"})
_LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NESTED: Final = frozenset({"items", "additionalProperties", "propertyNames", "not"})


def _parse_doc(function: Callable[..., Any]) -> docstring_parser.Docstring:
    text = inspect.getdoc(_code_of(function)) or ""
    try:
        return docstring_parser.parse(text)
    except docstring_parser.ParseError:
        doc = docstring_parser.Docstring()
        doc.short_description = text
        return doc


def _description(doc: docstring_parser.Docstring, function: Any, name: str) -> str:
    parts = [doc.short_description or "", doc.long_description or ""]
    if doc.returns is not None and doc.returns.description:
        parts.append(f"Returns: {doc.returns.description}")
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    return text or f"{name}{inspect.signature(function)}"


# --- arguments that do not fit ----------------------------------------------------------


def _invalid(spec: ToolSpec, error: ValidationError) -> InvalidArguments:
    details = error.errors(include_url=False)
    fields = tuple(dict.fromkeys(str(d["loc"][0]) for d in details if d["loc"]))
    text = "; ".join(map(_problem, details))
    if any(d["type"] == "extra_forbidden" for d in details):
        known = ", ".join(spec.input_schema.get("properties", {})) or "none"
        text += f" (parameters of {spec.name}: {known})"
    return InvalidArguments(text, fields=fields)


def _problem(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"]) or "arguments"
    if detail["type"] == "missing":
        return f"{where}: is missing"
    if detail["type"] == "extra_forbidden":
        return f"{where}: there is no such parameter"
    return f"{where}: {_lower(detail['msg'])}, got {brief_value(detail['input'], 60)}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
