"""From signatures to what a model sees, and from what it sends to arguments."""

from __future__ import annotations

import datetime
import enum
import functools
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from typing_extensions import TypedDict

from op_jupyter.errors import InvalidArguments, ToolDefinitionError
from op_jupyter.tools.schema import read_signature, tool_spec

NOTHING = object()


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Box:
    width: int
    label: str = "none"


class Options(TypedDict):
    deep: bool
    note: NotRequired[str]


class Order(pydantic.BaseModel):
    title: str
    boxes: list[Box]


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = tool_spec(function).input_schema["properties"]
    return found


def bind(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    return read_signature(function).bind(arguments)


def median(column: str, digits: int = 2) -> float:
    """Compute the median of a column.

    Missing values are left out.

    Args:
        column: name of the column,
            as it stands in the header.
        digits: how many digits to keep.

    Returns:
        The median, rounded.
    """
    return 0.0


def test_a_documented_function_becomes_a_whole_tool() -> None:
    spec = tool_spec(median)
    assert spec.name == "median"
    assert spec.description == (
        "Compute the median of a column.\n\nMissing values are left out.\n\n"
        "Returns: The median, rounded."
    )
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "column": {
                "type": "string",
                "description": "name of the column, as it stands in the header.",
            },
            "digits": {
                "type": "integer",
                "default": 2,
                "description": "how many digits to keep.",
            },
        },
        "required": ["column"],
        "additionalProperties": False,
    }


def test_docstrings_in_numpy_and_sphinx_style_are_understood() -> None:
    def numpy_style(a: int) -> None:
        """Do it.

        Parameters
        ----------
        a : int
            The first.
        """

    def sphinx_style(a: int) -> None:
        """Do it.

        :param a: The first.
        """

    for function in (numpy_style, sphinx_style):
        assert properties(function)["a"]["description"] == "The first."


def test_without_a_docstring_the_signature_speaks() -> None:
    def f(a: int, b: str = "x") -> int:
        return 1

    assert tool_spec(f).description.startswith("f(a: ")


def test_an_annotated_description_wins_over_the_docstring() -> None:
    def f(a: Annotated[int, Field(description="from Annotated", ge=0)]) -> None:
        """Do it.

        Args:
            a: from the docstring
        """

    assert properties(f)["a"] == {"type": "integer", "minimum": 0, "description": "from Annotated"}


def many(
    a: Literal["x", "y"],
    b: Size,
    c: int | None = None,
    d: list[str] | None = None,
    e: dict[str, float] | None = None,
    f: tuple[int, str] = (1, "a"),
    g: Box | None = None,
    h: Options | None = None,
    i: Order | None = None,
    j: datetime.date | None = None,
    k: Path = Path("here"),
    m: Any = None,
) -> None:
    """Take everything."""


def test_every_kind_of_annotation_has_a_schema() -> None:
    schema = tool_spec(many).input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    found = schema["properties"]
    assert found["a"] == {"enum": ["x", "y"], "type": "string"}
    assert schema["$defs"]["Size"] == {"enum": ["small", "large"], "type": "string"}
    assert found["c"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert found["f"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert schema["$defs"]["Box"]["properties"]["label"] == {"default": "none", "type": "string"}
    assert schema["$defs"]["Options"]["required"] == ["deep"]
    assert schema["$defs"]["Order"]["properties"]["title"] == {"type": "string"}
    assert found["m"] == {"default": None}
    assert schema["required"] == ["a", "b"]


def test_arguments_become_what_the_annotations_say() -> None:
    bound = bind(
        many,
        a="x",
        b="large",
        c="3",
        f=[2, "b"],
        g={"width": 4},
        h={"deep": True},
        i={"title": "t", "boxes": [{"width": 1}]},
        j="2026-01-02",
        k="a/b",
        m={"any": [1]},
    )
    assert bound == {
        "a": "x",
        "b": Size.LARGE,
        "c": 3,
        "f": (2, "b"),
        "g": Box(4),
        "h": {"deep": True},
        "i": Order(title="t", boxes=[Box(1)]),
        "j": datetime.date(2026, 1, 2),
        "k": Path("a/b"),
        "m": {"any": [1]},
    }


def test_what_was_not_sent_is_left_to_the_defaults_of_the_function() -> None:
    assert bind(median, column="x") == {"column": "x"}


def test_a_parameter_without_annotation_takes_any_json() -> None:
    def f(a, b=1):  # type: ignore[no-untyped-def]
        """Do it."""

    assert properties(f) == {"a": {}, "b": {"default": 1}}
    assert bind(f, a=[{"x": None}]) == {"a": [{"x": None}]}


def test_names_that_pydantic_keeps_for_itself_are_free_here() -> None:
    def f(schema: int, json: int, model_config: int, copy: int, _private: int, title: int) -> None:
        """Do it."""

    names = ["schema", "json", "model_config", "copy", "_private", "title"]
    assert list(properties(f)) == names
    assert bind(f, **dict.fromkeys(names, 1)) == dict.fromkeys(names, 1)


def test_a_default_that_json_cannot_hold_is_not_shown_but_used() -> None:
    def f(a: Size = Size.SMALL, b: Path = Path("x"), c: Any = NOTHING) -> None:
        """Do it."""

    assert all("default" not in schema for schema in properties(f).values())
    assert bind(f) == {}


def test_the_runtime_is_hidden() -> None:
    def f(a: int, runtime: object = None) -> None:
        """Do it."""

    assert list(properties(f)) == ["a"]
    with pytest.raises(InvalidArguments, match="runtime: there is no such parameter"):
        bind(f, a=1, runtime=1)


def test_methods_partials_wrapped_functions_and_callables_work() -> None:
    class Counter:
        def count(self, word: str) -> int:
            """Count a word."""
            return 0

        def __call__(self, word: str) -> int:
            """Count a word."""
            return 0

    @functools.wraps(median)
    def wrapped(*args: Any, **kwargs: Any) -> float:
        return median(*args, **kwargs)

    assert properties(Counter().count) == {"word": {"type": "string"}}
    assert tool_spec(Counter()).name == "Counter"
    assert properties(Counter()) == {"word": {"type": "string"}}
    assert tool_spec(wrapped) == tool_spec(median)
    assert tool_spec(functools.partial(median, digits=3)).name == "median"
    assert tool_spec(median, name="other").name == "other"


def spread(*words: str) -> None:
    """Do it."""


def keywords(**words: str) -> None:
    """Do it."""


def positional(a: int, /) -> None:
    """Do it."""


def generator() -> Iterator[int]:
    """Do it."""
    yield 1


async def stream() -> Any:
    """Do it."""
    yield 1


def callback(a: int, then: Callable[[int], int]) -> None:
    """Do it."""


def opaque(a: int, where: jsonschema.Draft202012Validator) -> None:
    """Do it."""


def undefined(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do it."""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (spread, "parameter '*words' of spread .* take a list instead"),
        (keywords, r"parameter '\*\*words' of keywords .* name the parameters"),
        (positional, "parameter 'a' of positional .* remove the `/`"),
        (generator, "generator is a generator.* return a list instead"),
        (stream, "stream is a generator"),
        (callback, "parameter 'then' of callback has the type .*Callable"),
        (opaque, "parameter 'where' of opaque has the type .*Validator"),
        (undefined, "names 'Nowhere', which is not defined"),
        (lambda x: x, "'<lambda>' cannot be the name of a tool"),
        (Box, "Box is a class"),
        ("text", "'text' is not a function"),
    ],
)
def test_an_unusable_signature_is_refused_with_what_to_do(function: Any, words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words.replace("'*", r"'\*")):
        read_signature(function)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it from 3.12 on")
def test_the_typed_dict_of_an_old_python_is_refused_with_the_one_to_use() -> None:
    class Old(typing.TypedDict):
        a: int

    def f(a: Any) -> None:
        """Do it."""

    f.__annotations__["a"] = Old
    with pytest.raises(ToolDefinitionError, match="import TypedDict from typing_extensions"):
        read_signature(f)


@pytest.mark.parametrize(
    ("arguments", "message", "fields"),
    [
        ({}, "column: is missing", ("column",)),
        ({"column": 3}, "column: input should be a valid string, got 3", ("column",)),
        (
            {"column": "x", "digits": "many"},
            "digits: input should be a valid integer, unable to parse string as an integer, "
            "got 'many'",
            ("digits",),
        ),
        (
            {"column": "x", "colour": 1},
            "colour: there is no such parameter (parameters of median: column, digits)",
            ("colour",),
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_field(
    arguments: dict[str, Any], message: str, fields: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        bind(median, **arguments)
    assert caught.value.message == message
    assert caught.value.fields == fields


def test_a_problem_deep_inside_names_its_place() -> None:
    with pytest.raises(InvalidArguments, match=r"i\.boxes\.1\.width: is missing"):
        bind(many, a="x", b="small", i={"title": "t", "boxes": [{"width": 1}, {}]})


def test_a_huge_wrong_value_does_not_make_a_huge_message() -> None:
    with pytest.raises(InvalidArguments) as caught:
        bind(median, column="x", digits="9" * 1_000_000)
    assert len(caught.value.message) < 300


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


MANY = read_signature(many)


@given(st.dictionaries(st.sampled_from("abcdefghijkm") | st.text(max_size=3), json_values))
def test_whatever_is_sent_is_bound_or_refused(arguments: dict[str, Any]) -> None:
    try:
        bound = MANY.bind(arguments)
    except InvalidArguments:
        return
    assert bound.keys() == arguments.keys()
