"""``{{name}}`` stands for a variable; everything else reaches the model byte for byte."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.errors import SubstitutionError
from op_jupyter.notebook.substitution import filled_in, substitute

VARIABLES: dict[str, Any] = {
    "city": "Lyon",
    "count": 3,
    "row": {"name": "Ada", "tags": ["a", "b"], "a b": 1},
    "point": SimpleNamespace(x=1, inner=SimpleNamespace(y="deep")),
    "braces": "{{city}} and {{nothing}}",
    "größe": "L",
}


def text(prompt: str) -> str:
    (block,) = substitute(prompt, VARIABLES)
    assert isinstance(block, TextBlock)
    return block.text


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("Tell me about {{city}}.", "Tell me about Lyon."),
        ("{{ city }}", "Lyon"),
        ("{{count}} of {{count}}", "3 of 3"),
        ("{{größe}}", "L"),
        ("{{point.x}} {{point.inner.y}}", "1 deep"),
        ("{{row[\"name\"]}} {{row['a b']}}", "Ada 1"),
        ('{{row["tags"][0]}} {{row["tags"][-1]}}', "a b"),
        ('{{row["tags"]}}', '["a", "b"]'),
    ],
)
def test_a_variable_is_inserted(prompt: str, sent: str) -> None:
    assert text(prompt) == sent


def test_values_are_inserted_once() -> None:
    assert text("{{braces}}") == "{{city}} and {{nothing}}"


@pytest.mark.parametrize(
    "prompt",
    [
        '{"a": {"b": {}}}',
        '{{"a": 1}}',
        r"\frac{a}{b} $\sum_{i}^{n}$ %timeit",
        "{city} {0} {} {{}} {{ }} { {city} }",
        "{{ city | upper }} {% if x %}",
        "{{city()}} {{city + 1}} {{row[city]}} {{1}} {{city.}}",
        "f'{x!r:>{width}}' $HOME !ls what?",
        "line\r\nline\ttab\x00end",
        "{{\ncity\n}}",
    ],
)
def test_everything_else_stays_as_it_is(prompt: str) -> None:
    assert text(prompt) == prompt


@given(st.text(alphabet="{}[]\"'.% $\\\nab1", max_size=60))
def test_a_prompt_without_double_braces_is_never_changed(prompt: str) -> None:
    if "{{" not in prompt and prompt:
        assert text(prompt) == prompt


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("{{town}}", "no variable 'town'"),
        ("{{citi}}", "did you mean 'city'"),
        ("{{city.population}}", ".population of a str raises AttributeError"),
        ('{{row["age"]}}', '["age"] of a dict raises KeyError'),
        ('{{row["tags"][9]}}', "[9] of a list raises IndexError"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(prompt: str, says: str) -> None:
    with pytest.raises(SubstitutionError) as caught:
        substitute(f"Hello {{{{city}}}}. {prompt}", VARIABLES)
    assert says in caught.value.message
    assert "nothing was sent" in caught.value.message


class Hostile:
    """Everything that one may look at raises, with a secret in what it says."""

    @property
    def __class__(self) -> Any:
        raise ValueError("no class")

    @property
    def key(self) -> str:
        raise RuntimeError("it is sk-ant-api03-planted0123456789abcdef\n" * 100)

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("reference", "says"), [("{{it.key}}", "RuntimeError"), ("{{it}}", "looking at it raises")]
)
def test_a_value_that_cannot_be_looked_at_is_one_line_without_its_secrets(
    reference: str, says: str
) -> None:
    with pytest.raises(SubstitutionError) as caught:
        substitute(f"Look: {reference}", {"it": Hostile()})
    said = caught.value.message
    assert says in said and "nothing was sent" in said
    assert "planted" not in said and "\n" not in said and len(said) < 500


def test_a_command_is_not_run_with_what_has_no_text() -> None:
    for value in (Hostile(), "x" * 5_000_000):
        with pytest.raises(SubstitutionError, match="nothing was done"):
            filled_in("show {{it}}", {"it": value})


def test_a_megabyte_of_text_comes_through_whole() -> None:
    long = "é" * 500_000
    assert text(long + "{{count}}") == long + "3"


def test_a_table_becomes_a_bounded_summary() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"price": range(10_000)})
    (block,) = substitute("Look: {{table}}", {"table": table})
    assert isinstance(block, TextBlock)
    assert "10000" in block.text
    assert "price" in block.text
    assert len(block.text) < 5_000


def test_a_picture_becomes_an_image_block() -> None:
    picture = ImageBlock("image/png", "aGk=")
    content = substitute("Before {{picture}} after", {"picture": picture})
    assert content == (TextBlock("Before "), picture, TextBlock(" after"))
