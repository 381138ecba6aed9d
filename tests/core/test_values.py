"""Values behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from op_jupyter.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: tuple[int, ...] = ()
    note: str = field(default="", compare=False)
    hidden: str = field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    x: int
    y: tuple[int, ...] = ()
    note: str = field(default="", compare=False)
    hidden: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True)
class Box:
    content: Any


@dataclass(frozen=True, slots=True)
class Named:
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named)

    def __hash__(self) -> int:
        return 7


@dataclass(slots=True, eq=False)
class Entity:
    name: str


VALUES = [(1,), (1, (2, 3)), (1, (2, 3), "n"), (1, (), "", "h"), (2,)]


@pytest.mark.parametrize("values", VALUES)
def test_a_value_is_printed_as_by_the_standard_library(values: tuple[Any, ...]) -> None:
    assert repr(Point(*values)) == repr(Standard(*values)).replace("Standard", "Point")


def test_values_are_equal_where_those_of_the_standard_library_are() -> None:
    for one in VALUES:
        for other in VALUES:
            assert (Point(*one) == Point(*other)) is (Standard(*one) == Standard(*other))
    assert len({Point(*values) for values in VALUES}) == len({Standard(*v) for v in VALUES})


def test_a_value_of_another_class_is_never_equal() -> None:
    assert Point(1) != Standard(1)
    assert Nothing() == Nothing()
    assert Nothing() != Box(1)


def test_a_frozen_value_refuses_changes_and_is_copied_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    assert dataclasses.replace(point, x=2) == Point(2)


def test_a_value_survives_pickling_and_copying() -> None:
    point = Point(1, (2,), "n")
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point


def test_what_can_change_is_compared_but_not_hashed() -> None:
    assert Box([1]) == Box([1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box(1))


def test_a_value_that_contains_itself_is_printed() -> None:
    box = Box(None)
    box.content = box
    assert repr(box) == "Box(content=...)"


def test_what_a_class_defines_itself_is_kept() -> None:
    assert repr(Named("a")) == "<a>"
    assert Named("a") == Named("b")
    assert hash(Named("a")) == 7


def test_without_comparison_each_object_is_its_own() -> None:
    one = Entity("a")
    assert one != Entity("a")
    assert len({one, Entity("a")}) == 2
