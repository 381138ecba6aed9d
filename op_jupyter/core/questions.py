"""Questions to a person: what is asked, what an answer may be, and how both read as text.

An answer is plain JSON.  What comes from a page, a terminal or a host goes through the same
checks, which say in a sentence what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from op_jupyter.core.keys import Json
from op_jupyter.core.values import dataclass
from op_jupyter.core.visible import visible

QuestionKind: TypeAlias = Literal["ask", "confirm", "form"]
FieldKind: TypeAlias = Literal["text", "integer", "number", "boolean", "choice", "choices", "json"]

_YES: Final = frozenset({"y", "yes", "true", "1", "on"})
_NO: Final = frozenset({"n", "no", "false", "0", "off"})
_HINTS: Final[dict[FieldKind, str]] = {
    "text": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
    "choice": "number or name",
    "choices": "numbers or names, separated by commas",
    "json": "JSON",
}


class BadAnswer(ValueError):
    """An answer that does not fit; the message is for the person."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One thing that a form asks for."""

    name: str
    kind: FieldKind
    title: str
    help: str = ""
    options: tuple[Json, ...] = ()
    required: bool = True
    default: Json = None

    def to_json(self) -> dict[str, Any]:
        """For a page, which sends texts back: see `read_field`."""
        return {
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "help": self.help,
            "options": [field_text(option) for option in self.options],
            "required": self.required,
            "default": self.default_text,
        }

    @property
    def default_text(self) -> str:
        """What stands in the field at first."""
        if self.default is None:
            return ""
        if self.kind == "choices" and isinstance(self.default, Sequence):
            return ", ".join(field_text(item) for item in self.default)
        return field_text(self.default)


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked.

    Attributes:
        options: to choose from; none: the answer is free text.
        multi: any number of *options* may be chosen, and the answer is a list.
        allow_custom: the answer may be none of *options*.
        default: of a confirmation, what an empty answer means.
        fields: of a form.
        timeout: seconds that somebody has for the answer; None: any time.
    """

    id: str
    session_id: str
    turn_id: str
    kind: QuestionKind
    prompt: str
    options: tuple[str, ...] = ()
    multi: bool = False
    allow_custom: bool = True
    default: bool = False
    fields: tuple[FormField, ...] = ()
    timeout: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For a page."""
        return {
            "id": self.id,
            "kind": self.kind,
            "prompt": self.prompt,
            "options": list(self.options),
            "multi": self.multi,
            "allow_custom": self.allow_custom,
            "default": self.default,
            "fields": [field.to_json() for field in self.fields],
        }

    @property
    def subject(self) -> dict[str, Any]:
        """What makes it the same question in another run."""
        told = self.to_json()
        del told["id"]
        return told


def question_from_json(data: Mapping[str, Any]) -> Question:
    """The question that `dataclasses.asdict` made *data* of, after a way through JSON."""
    fields = tuple(FormField(**{**f, "options": tuple(f["options"])}) for f in data["fields"])
    return Question(**{**data, "options": tuple(data["options"]), "fields": fields})


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """What came of a question; *how* names the way: ``click``, ``stdin``, ``terminal``, ..."""

    value: Json = None
    how: str = ""
    declined: bool = False


def checked_answer(question: Question, said: Any) -> Json:
    """*said* as the answer to *question*, which is no form.

    Raises:
        BadAnswer: it is none; the message says what would be.
    """
    if question.kind == "confirm":
        if not isinstance(said, bool):
            raise BadAnswer("answer yes or no")
        return said
    if not question.multi:
        return _checked_choice(question, said)
    if isinstance(said, str) or not isinstance(said, Sequence) or not said:
        raise BadAnswer("choose at least one")
    return list(dict.fromkeys(_checked_choice(question, item) for item in said))


def _checked_choice(question: Question, said: Any) -> str:
    if not isinstance(said, str) or not said.strip():
        raise BadAnswer("the answer is empty")
    if question.options and not question.allow_custom and said not in question.options:
        raise BadAnswer(f"choose one of {', '.join(question.options)}")
    return said


def answer_text(value: Json) -> str:
    """An answer as it stands in the graph and in a saved notebook."""
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case Mapping():
            return "\n".join(f"{name}: {answer_text(item)}" for name, item in value.items())
        case Sequence() if all(isinstance(item, str) for item in value):
            return ", ".join(str(item) for item in value)
        case _:
            return json.dumps(value, ensure_ascii=False)


# -- forms


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """The fields of a form for *schema*, a JSON Schema of an object.

    Raises:
        ValueError: it is none, or an object without properties.
    """
    schema = _resolved(schema, schema)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise ValueError("a form is asked for by an object with properties")
    required = schema.get("required", ())
    return tuple(
        _field(name, _resolved(part, schema), required=name in required)
        for name, part in properties.items()
    )


def _resolved(part: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """*part* without the detours that pydantic makes: references, ``null`` beside a type."""
    if not isinstance(part, Mapping):
        return {}
    if isinstance(ref := part.get("$ref"), str) and ref.startswith("#/"):
        found: Any = root
        for step in ref[2:].split("/"):
            found = found.get(step, {}) if isinstance(found, Mapping) else {}
        if isinstance(found, Mapping) and "$ref" not in found:
            return {**found, **{key: value for key, value in part.items() if key != "$ref"}}
        return {}
    kinds = part.get("anyOf")
    kinds = [one for one in kinds if one != {"type": "null"}] if isinstance(kinds, list) else []
    if len(kinds) == 1:
        rest = {key: value for key, value in part.items() if key != "anyOf"}
        return {**_resolved(kinds[0], root), **rest}
    items = part.get("items")
    return {**part, "items": _resolved(items, root)} if isinstance(items, Mapping) else part


def _field(name: str, part: Mapping[str, Any], *, required: bool) -> FormField:
    kind: FieldKind
    options: Sequence[Json] = ()
    match part:
        case {"const": value}:
            kind, options = "choice", (value,)
        case {"enum": [*values]} if values:
            kind, options = "choice", values
        case {"type": "array", "items": {"enum": [*values]}} if values:
            kind, options = "choices", values
        case {"type": "string"}:
            kind = "text"
        case {"type": "integer" | "number" | "boolean" as plain}:
            kind = plain
        case _:
            kind = "json"
    return FormField(
        name,
        kind,
        str(part.get("title") or name),
        str(part.get("description") or ""),
        tuple(options),
        required,
        part.get("default"),
    )


def read_form(fields: Sequence[FormField], said: Any) -> dict[str, Json]:
    """The object that the texts of *said* make; a field that is left empty is left out.

    Raises:
        BadAnswer: one of them does not fit its field.
    """
    if not isinstance(said, Mapping):
        raise BadAnswer("the form is empty")
    values: dict[str, Json] = {}
    for field in fields:
        raw = said.get(field.name, "")
        if raw == "" or raw == []:
            if field.default is not None:
                values[field.name] = field.default
            elif field.required and field.kind != "choices":
                raise BadAnswer(f"{field.title}: needed")
            elif field.required:
                values[field.name] = []
            continue
        values[field.name] = read_field(field, raw)
    return values


def read_field(field: FormField, raw: Any) -> Json:
    """The value that the text *raw* (of several choices a list of texts) means.

    Raises:
        BadAnswer: it means none.
    """
    if field.kind == "choices":
        return [_option(field, item) for item in _items(raw)]
    if not isinstance(raw, str):
        raise BadAnswer(f"{field.title}: {_HINTS[field.kind]}")
    try:
        match field.kind:
            case "text":
                return raw
            case "choice":
                return _option(field, raw)
            case "boolean":
                return yes_or_no(raw)
            case "integer":
                return int(raw)
            case "number":
                return _plain_number(raw)
            case "json":
                value: Json = json.loads(raw)
                return value
    except BadAnswer:
        raise
    except (ValueError, RecursionError):
        raise BadAnswer(f"{field.title}: {_HINTS[field.kind]}") from None


def _plain_number(raw: str) -> float:
    value = float(raw)
    if value - value != 0:  # an infinity, or not a number at all
        raise ValueError(raw)
    return value


def _option(field: FormField, raw: Any) -> Json:
    texts = [field_text(option) for option in field.options]
    index = _index(texts, raw)
    if index is None:
        raise BadAnswer(f"{field.title}: choose from {', '.join(texts)}")
    return field.options[index]


def _index(texts: Sequence[str], raw: Any) -> int | None:
    """Which of *texts* is meant: its own words first, else its number from 1."""
    if not isinstance(raw, str):
        return None
    said = raw.strip()
    if said in texts:
        return texts.index(said)
    if said.isascii() and said.isdigit() and len(said) < 6 and 1 <= int(said) <= len(texts):
        return int(said) - 1
    return None


def _items(raw: Any) -> list[Any]:
    if isinstance(raw, str):
        return [item.strip() for item in raw.split(",") if item.strip()]
    return list(raw) if isinstance(raw, Sequence) else [raw]


def field_text(value: Json) -> str:
    """One option or default of a field, as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def yes_or_no(raw: str) -> bool:
    """What *raw* means.

    Raises:
        BadAnswer: neither.
    """
    said = raw.strip().lower()
    if said in _YES or said in _NO:
        return said in _YES
    raise BadAnswer("answer yes or no")


# -- on one line at a time


def prompt_lines(question: Question) -> str:
    """*question* as text, up to where the answer is typed."""
    lines = [visible(question.prompt), *_numbered(question.options)]
    if question.kind == "confirm":
        return "\n".join(lines) + (" [Y/n] " if question.default else " [y/N] ")
    if not question.options:
        return "\n".join([*lines, "(an empty line declines)"]) + "\n> "
    how = "numbers or names, separated by commas" if question.multi else "number or name"
    own = ", or your own words" if question.allow_custom else ""
    return "\n".join([*lines, f"({how}{own}; an empty line declines)"]) + "\n> "


def field_lines(field: FormField) -> str:
    """One field as text, up to where the answer is typed."""
    head = visible(f"{field.title}: {field.help}" if field.help else field.title)
    hint = _HINTS[field.kind]
    if field.default_text:
        hint += f"; empty: {visible(field.default_text)}"
    elif not field.required:
        hint += "; may be empty"
    lines = [head, *_numbered([field_text(option) for option in field.options])]
    return "\n".join([*lines, f"({hint})"]) + "\n> "


def _numbered(options: Sequence[str]) -> list[str]:
    return [f"  {number}. {visible(option)}" for number, option in enumerate(options, 1)]


def read_line(question: Question, line: str) -> QuestionAnswer:
    """The answer on *line*, to a question that is no form.

    Raises:
        BadAnswer: it is none.
    """
    said = line.strip()
    if question.kind == "confirm":
        return QuestionAnswer(yes_or_no(said) if said else question.default)
    if not said:
        return QuestionAnswer(declined=True)
    if not question.options:
        return QuestionAnswer(line)
    if not question.multi or said in question.options:
        chosen = _named(question, said)
        return QuestionAnswer(checked_answer(question, [chosen] if question.multi else chosen))
    names = [_named(question, item) for item in _items(said)]
    return QuestionAnswer(checked_answer(question, names))


def _named(question: Question, said: str) -> str:
    index = _index(question.options, said)
    return said if index is None else question.options[index]
